//! Names the stubs of the procedure linkage table `name@plt`, like gdb and objdump.
//!
//! The stubs have no symbols. Each jumps through a slot of the global offset table, and the slot
//! has a relocation with the function's name. So the stubs' code is decoded, which works for all
//! linker layouts (`.plt`, `.plt.sec`, `.plt.got`).

use std::collections::{HashMap, HashSet};

use crate::image::layout;
use crate::image::tables;
use crate::{Arch, Image};

pub(super) struct Stub {
    pub(super) name: String,
    pub(super) svma: u64,
    pub(super) size: u64,
    pub(super) thumb: bool,
}

pub(super) fn stubs(image: &Image) -> Vec<Stub> {
    if image.is_big_endian() {
        return Vec::new();
    }
    let decode = match image.arch() {
        Arch::X86_64 => x86_64,
        Arch::Aarch64 => aarch64,
        Arch::Arm => arm,
    };
    let mut jumps: Vec<Jump> = Vec::new();
    for section in &image.layout().sections {
        if !section.name.starts_with(".plt") && section.name != ".iplt" {
            continue;
        }
        if super::read::is_code(section)
            && let Some(content) = image.own_section(&section.name)
        {
            jumps.extend(decode(section.svma, &content.data));
        }
    }
    let used: HashSet<u64> = jumps.iter().map(|jump| jump.slot).collect();
    let names = named_slots(image, &|slot| used.contains(&slot));
    let stubs = jumps.into_iter().filter_map(|jump| {
        let name = names.get(&jump.slot)?;
        Some(Stub {
            name: format!("{name}@plt"),
            svma: jump.start,
            size: jump.end - jump.start,
            thumb: jump.thumb,
        })
    });
    stubs.collect()
}

/// By slot address: the name of the function in its relocation.
pub(crate) fn slots(image: &Image) -> HashMap<u64, String> {
    named_slots(image, &|_| true)
}

/// Like [`slots`], for the slots that pass `wanted`.
pub(crate) fn named_slots(image: &Image, wanted: &dyn Fn(u64) -> bool) -> HashMap<u64, String> {
    let mut slots = HashMap::new();
    let Some((symbols, strings)) = super::read::sections(image, ".dynsym") else {
        return slots;
    };
    let headers = image.layout();
    let names: Vec<u32> = tables::symbols(symbols.bytes(), headers.is_64, headers.endian)
        .map(|symbol| symbol.name)
        .collect();
    for (section, addends) in [
        (".rela.plt", true),
        (".rela.dyn", true),
        (".rel.plt", false),
        (".rel.dyn", false),
    ] {
        let Some(content) = image.own_section(section) else {
            continue;
        };
        for relocation in tables::relocations(&content.data, headers.is_64, headers.endian, addends)
        {
            if relocation.symbol == 0 || !wanted(relocation.offset) {
                continue;
            }
            let name = usize::try_from(relocation.symbol)
                .ok()
                .and_then(|symbol| names.get(symbol))
                .and_then(|&name| layout::string_at(strings.bytes(), name.into()))
                .filter(|name| !name.is_empty() && name.len() < 4096)
                .and_then(|name| std::str::from_utf8(name).ok());
            if let Some(name) = name {
                slots.insert(relocation.offset, name.to_owned());
            }
        }
    }
    slots
}

/// The code of a stub, and its slot.
struct Jump {
    start: u64,
    end: u64,
    slot: u64,
    thumb: bool,
}

/// Stubs of 8 or 16 bytes with one `jmp *slot(%rip)`, `ff 25 rel32`, possibly after `endbr64` (`f3
/// 0f 1e fa`) or a `bnd` prefix (`f2`).
fn x86_64(svma: u64, code: &[u8]) -> Vec<Jump> {
    let mut jumps = Vec::new();
    let mut at = 0;
    while at + 8 <= code.len() {
        let stub = &code[at..code.len().min(at + 16)];
        let skip = if stub.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
            4
        } else {
            0
        };
        let skip = skip + usize::from(stub.get(skip) == Some(&0xf2));
        let jump = match stub.get(skip..skip + 6) {
            Some(&[0xff, 0x25, a, b, c, d]) => Some(i32::from_le_bytes([a, b, c, d])),
            _ => None,
        };
        let Some(displacement) = jump else {
            at += 8;
            continue;
        };
        // `.plt.got` without endbr64: `jmp` and a two-byte nop, 8 bytes.
        let size = if skip == 0 && stub.get(6..8) == Some(&[0x66, 0x90]) {
            8
        } else {
            16
        };
        let start = svma.wrapping_add(at as u64);
        let next = start.wrapping_add(skip as u64 + 6);
        jumps.push(Jump {
            start,
            end: start.saturating_add(size),
            slot: next.wrapping_add_signed(displacement.into()),
            thumb: false,
        });
        at += size as usize;
    }
    jumps
}

/// `adrp x16, page; ldr x17, [x16, #offset]; add x16, x16, #offset; br x17`, 16 bytes, possibly
/// after `bti c` (24 bytes with a nop).
fn aarch64(svma: u64, code: &[u8]) -> Vec<Jump> {
    let words: Vec<u32> = code.chunks_exact(4).map(|word| word_at(word, 0)).collect();
    let mut jumps = Vec::new();
    for (index, pair) in words.windows(2).enumerate() {
        let [adrp, ldr] = [pair[0], pair[1]];
        // adrp: 1ii10000 iiiiiiii iiiiiiii iiiddddd; ldr x17, [x16]: 11111001 01iiiiii iiiiii10
        // 00010001
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let start = svma.wrapping_add(index as u64 * 4);
        let low = u64::from(adrp >> 29 & 3);
        let high = u64::from(adrp >> 5 & 0x7_ffff);
        let pages = ((high << 2 | low) << 43) as i64 >> 31;
        let page = (start & !0xfff).wrapping_add_signed(pages);
        let slot = page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8);
        // PLT0 contains the same pair after `stp x16, x30`; its slot has no relocation.
        let bti = index
            .checked_sub(1)
            .is_some_and(|before| words[before] == 0xd503_245f);
        let start = if bti { start - 4 } else { start };
        jumps.push(Jump {
            start,
            end: start.saturating_add(if bti { 24 } else { 16 }),
            slot,
            thumb: false,
        });
    }
    jumps
}

/// `add ip, pc, #a; add ip, ip, #b; [add ip, ip, #c;] ldr pc, [ip, #d]!`, possibly after the Thumb
/// entry `bx pc; nop`.
fn arm(svma: u64, code: &[u8]) -> Vec<Jump> {
    let mut jumps = Vec::new();
    let mut at = 0;
    while at + 12 <= code.len() {
        let first = word_at(code, at);
        // add ip, pc, #imm: 1110 0010 1000 1111 1100 rrrr iiiiiiii
        if first & 0xffff_f000 != 0xe28f_c000 {
            at += 4;
            continue;
        }
        let here = svma.wrapping_add(at as u64);
        let mut ip = here
            .wrapping_add(8)
            .wrapping_add(arm_immediate(first).into());
        let mut next = at + 4;
        while next + 4 <= code.len() && word_at(code, next) & 0xffff_f000 == 0xe28c_c000 {
            ip = ip.wrapping_add(arm_immediate(word_at(code, next)).into());
            next += 4;
        }
        // ldr pc, [ip, #imm]!: 1110 0101 1011 1100 1111 iiiiiiiiiiii
        let is_jump = next + 4 <= code.len() && word_at(code, next) & 0xffff_f000 == 0xe5bc_f000;
        if is_jump {
            let slot = ip.wrapping_add(u64::from(word_at(code, next) & 0xfff)) & 0xffff_ffff;
            let end = svma.wrapping_add(next as u64 + 4);
            jumps.push(Jump {
                start: here,
                end,
                slot,
                thumb: false,
            });
            if at >= 4 && code[at - 4..at] == [0x78, 0x47, 0xc0, 0x46] {
                jumps.push(Jump {
                    start: here - 4,
                    end: here,
                    slot,
                    thumb: true,
                });
            }
        }
        at = next;
    }
    jumps
}

/// A32 modified immediate: 8 bits rotated right by twice the 4-bit field.
fn arm_immediate(instruction: u32) -> u32 {
    (instruction & 0xff).rotate_right((instruction >> 8 & 0xf) * 2)
}

fn word_at(code: &[u8], at: usize) -> u32 {
    code.get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}
