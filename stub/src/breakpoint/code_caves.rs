//! Code caves: unused executable bytes at the end of the last page of a file's text.
//!
//! Memory is mapped in pages, and text rarely fills its last page. The rest of that page is mapped
//! and executable like the text, and programs do not use it. The stub needs no injection to get
//! it, the program gets no new mapping, and it is as near to the text as possible. Code left there
//! by accident is harmless. (gdb uses the program's entry point, which is only one slot, and none
//! before the program has started.)

use std::collections::HashMap;
use std::ops::Range;

use crate::arch::Word;
use crate::sys::maps;
use crate::sys::memory::Memory;

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;
/// Upper limit of the number of segments, above that of any image.
const MAX_SEGMENTS: u64 = 64;

/// All caves after the text of files in the mappings `maps`.
pub(super) fn find(maps: &str, memory: &Memory) -> Vec<Range<u64>> {
    let mut heads = HashMap::new();
    let mut caves = Vec::new();
    for mapping in maps::mappings(maps).filter(|mapping| mapping.path.starts_with('/')) {
        if mapping.offset == 0 {
            heads.insert(mapping.path, mapping.range.start);
        }
        if !mapping.executable {
            continue;
        }
        let Some(head) = heads.get(mapping.path) else {
            continue;
        };
        let ends = text_ends(memory, *head);
        let end = ends.into_iter().find(|end| mapping.range.contains(end));
        caves.extend(end.map(|end| end..mapping.range.end));
    }
    caves
}

/// The ends of the executable segments of the image with its header at `head`.
fn text_ends(memory: &Memory, head: u64) -> Vec<u64> {
    // The program headers follow the file's header, so one read almost always gets both.
    let mut first = [0; 1024];
    let length = memory.read(head, &mut first).unwrap_or(0);
    let field = |at: u64, size: usize| -> Option<u64> {
        let mut bytes = [0; 8];
        let bytes_at = usize::try_from(at.checked_sub(head)?).ok()?;
        match first[..length].get(bytes_at..bytes_at + size) {
            Some(read) => bytes[..size].copy_from_slice(read),
            None if memory.read(at, &mut bytes[..size]).ok()? == size => {}
            None => return None,
        }
        Some(u64::from_le_bytes(bytes))
    };
    let wide = size_of::<Word>() == 8;
    let word = size_of::<Word>();
    let segments = || {
        if field(head, 4)? != 0x464c_457f {
            return None;
        }
        // Elf64_Ehdr: phoff 32, phnum 56; Elf32_Ehdr: phoff 28, phnum 44.
        let (offset_at, count_at) = if wide { (32, 56) } else { (28, 44) };
        let table = head.checked_add(field(head + offset_at, word)?)?;
        let count = field(head + count_at, 2)?.min(MAX_SEGMENTS);
        let mut bias = None;
        let mut ends = Vec::new();
        for index in 0..count {
            // Elf64_Phdr: flags 4, offset 8, vaddr 16, memsz 40; Elf32_Phdr: offset 4, vaddr 8,
            // memsz 20, flags 24.
            let [size, flags, offset, address, length] = if wide {
                [56, 4, 8, 16, 40]
            } else {
                [32, 24, 4, 8, 20]
            };
            let header = table + index * size;
            if field(header, 4)? != u64::from(PT_LOAD) {
                continue;
            }
            let start = field(header + address, word)?;
            if field(header + offset, word)? == 0 {
                bias = Some(head.wrapping_sub(start & !0xfff));
            }
            if field(header + flags, 4)? & u64::from(PF_X) != 0 {
                ends.push(start.wrapping_add(field(header + length, word)?));
            }
        }
        let bias = bias?;
        Some(ends.into_iter().map(|end| end.wrapping_add(bias)).collect())
    };
    segments().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Tid;

    #[test]
    fn own_text_has_a_cave() {
        let process = Tid(std::process::id() as i32);
        let memory = Memory::open(process).expect("own memory");
        let here = own_text_has_a_cave as *const () as u64;
        let caves = find(&maps::read(process), &memory);
        let near = caves
            .iter()
            .find(|cave| cave.start.abs_diff(here) < 1 << 30);
        let near = near.expect("text that fills its last page to the last byte is rare");
        assert!(near.end % 4096 == 0 && near.end - near.start < 65536);
    }
}
