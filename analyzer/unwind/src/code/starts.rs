//! Where functions start.

use std::collections::BTreeMap;

use unspool_image::{Arch, Image};

use super::effect::{Effect, Flow, Instruction, Target};
use super::text::Text;
use crate::exidx;

/// Starts that something states: symbols, the entry point, the exception index, initializers.
pub(super) fn known(image: &Image, text: &Text<'_>, symbols: bool) -> BTreeMap<u64, bool> {
    let mut starts = BTreeMap::new();
    if symbols {
        for symbol in image.symbols().functions() {
            if text.is_text(symbol.svma) {
                starts.insert(symbol.svma, symbol.thumb);
            }
        }
    }
    let arm = text.machine.arch == Arch::Arm;
    let entry = image.entry();
    let (start, thumb) = if arm {
        (entry & !1, entry & 1 == 1)
    } else {
        (entry, false)
    };
    if entry != 0 && text.is_text(start) {
        starts.insert(start, thumb);
    }
    for pointer in super::pointers::initializers(image, text) {
        let svma = if arm { pointer & !1 } else { pointer };
        if text.is_text(svma) && !starts.contains_key(&svma) {
            starts.insert(svma, arm && pointer & 1 == 1);
        }
    }
    if let Some(index) = image.section(".ARM.exidx") {
        let bytes_at = |svma: u64, len: usize| image.bytes_at(svma, len);
        for (start, _) in exidx::read(&index.data, index.svma, &bytes_at) {
            if text.is_text(start) && !starts.contains_key(&start) && !text.is_data(start) {
                starts.insert(start, mode(image, text, symbols, start, start + 16, false));
            }
        }
    }
    starts
}

/// Targets of all calls, read from the first byte of the text to the last without regard to control flow: where code
/// is not mixed with data, as compilers leave it on x86-64 and AArch64, hardly any is missed or imagined.
pub(super) fn called(text: &Text<'_>) -> Calls {
    let mut found = Vec::new();
    let mut calls = Calls::default();
    let mut constants = [0u64; 32];
    if text.machine.arch == Arch::Arm {
        return calls;
    }
    for range in text.ranges() {
        let mut at = range.start;
        while at < range.end {
            let Some(instruction) = text.decode(at, false) else {
                at += 1 << text.machine.shift;
                continue;
            };
            for &effect in instruction.effects() {
                match effect {
                    Effect::Constant { to, value } => {
                        constants[usize::from(to & 31)] = u64::from(value);
                        calls.references.push(u64::from(value));
                    }
                    // adrp, add
                    Effect::Add { to, from, by } if to == from && text.machine.link => {
                        let page = std::mem::take(&mut constants[usize::from(to & 31)]);
                        if page != 0 {
                            calls
                                .references
                                .push(page.wrapping_add_signed(i64::from(by)));
                        }
                    }
                    _ => {}
                }
            }
            if let Flow::Call(Some(target)) = instruction.flow
                && text.is_text(target.svma)
            {
                found.push((target.svma, at + u64::from(instruction.len)));
            }
            at += u64::from(instruction.len);
        }
    }
    calls
        .references
        .retain(|&svma| text.is_mapped(svma) && !text.is_text(svma));
    calls.references.sort_unstable();
    calls.references.dedup();
    found.sort_unstable();
    calls.targets = found.iter().map(|call| call.0).collect();
    calls.targets.dedup();
    for sites in found.chunk_by(|a, b| a.0 == b.0) {
        let last = |next: u64| {
            padding(text, next, false).is_some()
                || calls.targets.binary_search(&next).is_ok()
                || !text.is_text(next)
        };
        let ending = sites.iter().filter(|site| last(site.1)).count();
        if sites.len() >= 2 && ending * 10 >= sites.len() * 6 {
            calls.silent.push(sites[0].0);
        }
    }
    calls
}

/// What calls say about functions.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Addresses of data, in order.
    pub(super) references: Vec<u64>,
    /// Functions that are called, in order.
    pub(super) targets: Vec<u64>,
    /// Those behind most calls of which there is only space, or another function: they do not return.
    pub(super) silent: Vec<u64>,
}

/// Where the function at `start` ends, by the layout of the code alone: behind an instruction that control does not
/// go on from, where no branch before leads further.
pub(super) fn extent(text: &Text<'_>, start: u64, end: u64) -> u64 {
    let mut at = start;
    let mut furthest = start;
    while at < end {
        let Some(instruction) = text.decode(at, false) else {
            return end;
        };
        at += u64::from(instruction.len);
        match instruction.flow {
            Flow::Branch(target) | Flow::IfZero { target, .. } | Flow::Jump(target)
                if (start..end).contains(&target.svma) =>
            {
                furthest = furthest.max(target.svma);
            }
            // Its targets are not known here.
            Flow::Table(_) | Flow::Indirect(_) => return end,
            _ => {}
        }
        if ends(&instruction) {
            let mut next = at;
            while next < end
                && let Some(len) = padding(text, next, false)
            {
                next += len;
            }
            if furthest <= next && (next > at || next & 15 == 0) {
                return next.min(end);
            }
        }
    }
    end
}

/// Whether the code at `svma` is T32. Nothing states it without symbols, but nearly every A32 instruction
/// has the condition "always" in its top four bits, and hardly any run of T32 code looks like that.
///
/// `after_a32`: the code before is A32, which makes it likelier here.
pub(super) fn mode(
    image: &Image,
    text: &Text<'_>,
    symbols: bool,
    svma: u64,
    end: u64,
    after_a32: bool,
) -> bool {
    if symbols && let Some(thumb) = image.thumb_at(svma) {
        return thumb;
    }
    if svma & 3 != 0 {
        return true;
    }
    let count = (end.saturating_sub(svma) / 4).clamp(4, 64);
    let words: Vec<u32> = (0..count).map_while(|n| text.word(svma + 4 * n)).collect();
    let always = words.iter().filter(|word| *word >> 28 == 0xe).count();
    always * 5 < words.len() * if after_a32 { 2 } else { 3 }
}

/// Length of the instruction at `svma` if it only fills space between functions.
pub(crate) fn padding(text: &Text<'_>, svma: u64, thumb: bool) -> Option<u64> {
    match text.machine.arch {
        Arch::X86_64 => {
            let bytes = text.bytes(svma);
            // int3; data16 and cs prefixes before nop, or before nopw
            let prefixes = bytes
                .iter()
                .take(14)
                .take_while(|byte| matches!(byte, 0x66 | 0x2e))
                .count();
            let nop = matches!(bytes.get(prefixes..)?, [0x90, ..] | [0x0f, 0x1f, ..]);
            if nop {
                text.decode(svma, false).map(|found| u64::from(found.len))
            } else {
                (matches!(bytes, [0xcc, ..]) || bytes.is_empty()).then_some(1)
            }
        }
        Arch::Aarch64 => matches!(text.word(svma), None | Some(0 | 0xd503_201f)).then_some(4),
        _ if thumb => matches!(text.half(svma), None | Some(0 | 0xbf00 | 0x46c0)).then_some(2),
        _ => matches!(text.word(svma), None | Some(0 | 0xe320_f000 | 0xe1a0_0000)).then_some(4),
    }
}

/// Whether space and then a function's prologue follow at `svma`: no loop, which is aligned too, starts by saving
/// registers.
pub(super) fn follows(text: &Text<'_>, svma: u64) -> bool {
    let mut at = svma;
    while let Some(len) = padding(text, at, false).filter(|_| at < svma + 16) {
        at += len;
    }
    let target = Target {
        svma: at,
        thumb: false,
    };
    at > svma && at & 15 == 0 && is_prologue(text, target)
}

/// Whether control cannot go on behind an instruction.
pub(super) fn ends(instruction: &Instruction) -> bool {
    instruction.condition == 14
        && matches!(
            instruction.flow,
            Flow::Jump(_) | Flow::Return | Flow::Indirect(_) | Flow::Table(_) | Flow::Trap
        )
}

/// Whether one of the first instructions at `target` saves the link register below the stack pointer; on x86-64, any
/// register that calls preserve, or makes room.
pub(super) fn is_prologue(text: &Text<'_>, target: Target) -> bool {
    let machine = text.machine;
    let saved = if machine.link {
        1 << machine.ra
    } else {
        machine.preserved
    };
    let mut at = target.svma;
    for _ in 0..3 {
        let Some(instruction) = text.decode(at, target.thumb) else {
            return false;
        };
        let saves = instruction.effects().iter().any(|effect| {
            matches!(effect, Effect::Store { base, mask, .. }
                if *base == machine.sp && mask & saved != 0)
                || !machine.link
                    && matches!(effect, Effect::Add { to, from, by }
                        if *to == machine.sp && from == to && *by < 0)
        });
        if saves {
            return true;
        }
        at += u64::from(instruction.len);
    }
    false
}

/// Functions that are known not to return, by name.
pub(super) fn never_returns(name: &str) -> bool {
    let name = name.strip_suffix("@plt").unwrap_or(name);
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    matches!(
        name,
        "abort"
            | "exit"
            | "_exit"
            | "_Exit"
            | "quick_exit"
            | "__assert_fail"
            | "__assert_fail_base"
            | "__assert_perror_fail"
            | "__assert"
            | "__stack_chk_fail"
            | "__fortify_fail"
            | "__chk_fail"
            | "__libc_fatal"
            | "__libc_start_main"
            | "__longjmp_chk"
            | "longjmp"
            | "_longjmp"
            | "siglongjmp"
            | "pthread_exit"
            | "__cxa_throw"
            | "__cxa_rethrow"
            | "__cxa_end_cleanup"
            | "__cxa_bad_cast"
            | "__cxa_bad_typeid"
            | "__cxa_throw_bad_array_new_length"
            | "__cxa_call_unexpected"
            | "_Unwind_Resume"
            | "_ZSt9terminatev"
            | "err"
            | "errx"
            | "verr"
            | "verrx"
            | "thrd_exit"
    ) || name.starts_with("_ZSt") && name.contains("__throw_")
}
