//! Function starts, and the code that is typical of them.

mod calls;

use std::collections::BTreeMap;

use unspool_image::{Arch, Image};

use super::effect::{Effect, Flow, Instruction, TableForm, Target};
use super::flow::{Function, pushes_link};
use super::state::{PackedState, Value};
use super::text::Text;
use crate::exidx;

pub(super) use calls::{Calls, called, is_called, likely_called};

/// The function starts that the file states: symbols, the entry point, the exception index,
/// initializers and the procedure linkage table. The value is true for T32 code.
pub(super) fn known(image: &Image, text: &Text<'_>, symbols: bool) -> BTreeMap<u64, bool> {
    let mut starts = BTreeMap::new();
    if symbols {
        for (svma, thumb) in image.symbols().function_starts() {
            if text.is_text(svma) {
                starts.insert(svma, thumb);
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
        let functions = exidx::read(&index.data, index.svma, &bytes_at);
        let functions: Vec<u64> = functions.map(|(start, _)| start).collect();
        for (index, start) in functions.iter().enumerate() {
            let end = functions.get(index + 1).map_or(text.end(), |next| *next);
            if text.is_text(*start) && !starts.contains_key(start) && !text.is_data(*start) {
                let thumb = mode_at_start(image, text, symbols, *start, end, false);
                starts.insert(*start, thumb);
            }
        }
    }
    starts.extend(linkage_stubs(image, text).map(|svma| (svma, false)));
    starts
}

/// The stubs of x86-64's procedure linkage table (System V ABI, figures 5.2 and 11.5). Only calls
/// lead to them, which the analysis of a region does not see.
fn linkage_stubs<'a>(image: &'a Image, text: &'a Text<'_>) -> impl Iterator<Item = u64> + use<'a> {
    let is_x86_64 = text.machine.arch == Arch::X86_64;
    let names = [".plt", ".plt.sec", ".plt.got"].into_iter();
    let sections = names.filter(move |_| is_x86_64);
    let sections = sections.filter_map(|name| image.section(name));
    let stubs = sections.flat_map(|section| {
        let end = section.svma.saturating_add(section.data.len() as u64);
        (section.svma..end).step_by(8)
    });
    stubs.filter(|svma| {
        let jump = match is_landing(text, *svma) {
            true => svma + 4,
            false => *svma,
        };
        let jump = text.decode(jump, false);
        text.is_text(*svma)
            && jump.is_some_and(
                |jump| matches!(jump.flow, Flow::Table(table) if table.form == TableForm::Slot),
            )
    })
}

/// Starts in the search table of `.eh_frame_hdr` (LSB 5.0, 10.6.2, in the form that all linkers
/// write).
pub(super) fn described(image: &Image) -> Vec<u64> {
    let Some(header) = image.section(".eh_frame_hdr") else {
        return Vec::new();
    };
    let [1, 0x1b, 0x03, 0x3b, _, _, _, _, _, _, _, _, table @ ..] = &header.data[..] else {
        return Vec::new();
    };
    let entries = table.chunks_exact(8);
    let offset = |entry: &[u8]| i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
    entries
        .map(|entry| header.svma.wrapping_add_signed(offset(entry).into()))
        .collect()
}

/// Whether `svma` is marked as the target of an indirect jump or call: `endbr64`.
pub(super) fn is_landing(text: &Text<'_>, svma: u64) -> bool {
    text.machine.arch == Arch::X86_64 && text.bytes(svma).starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])
}

/// The end of the function at `start`, judging by its layout: the function ends after an
/// instruction that does not continue, if no earlier branch leads further.
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
            // Its targets are unknown here.
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
            if furthest < next && (next > at || next & 15 == 0) {
                return next.min(end);
            }
        }
    }
    end
}

/// Whether the code at `svma` is T32.
///
/// Without symbols nothing states it. But nearly every A32 instruction has the condition "always"
/// in its top four bits, and T32 code rarely looks like that. `after_a32` means that the code
/// before is A32, which makes A32 more likely here.
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

/// Whether the function at `svma` is T32 code, up to `end`. A T32 instruction that saves the link
/// register decides, if the A32 instruction there does not: few others look like it. The reverse
/// decides nothing, because a T32 `push.w` after another instruction reads as an A32 `push`.
pub(super) fn mode_at_start(
    image: &Image,
    text: &Text<'_>,
    symbols: bool,
    svma: u64,
    end: u64,
    after_a32: bool,
) -> bool {
    let saves = |thumb| svma & 3 == 0 && saves_link(text, Target { svma, thumb }, 1);
    let is_stated = symbols && image.thumb_at(svma).is_some();
    !is_stated && saves(true) && !saves(false) || mode(image, text, symbols, svma, end, after_a32)
}

/// The length of the instruction at `svma`, if it is padding between functions.
pub(crate) fn padding(text: &Text<'_>, svma: u64, thumb: bool) -> Option<u64> {
    match text.machine.arch {
        Arch::X86_64 => {
            let bytes = text.bytes(svma);
            if !matches!(bytes, [] | [0x66 | 0x2e | 0x90 | 0x0f | 0xcc, ..]) {
                return None;
            }
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
        // nop.w
        _ if thumb && text.half(svma) == Some(0xf3af) && text.half(svma + 2) == Some(0x8000) => {
            Some(4)
        }
        _ if thumb => matches!(text.half(svma), None | Some(0 | 0xbf00 | 0x46c0)).then_some(2),
        _ => matches!(text.word(svma), None | Some(0 | 0xe320_f000 | 0xe1a0_0000)).then_some(4),
    }
}

/// Whether a function's prologue is at `svma`, possibly after padding.
pub(super) fn follows(text: &Text<'_>, svma: u64) -> bool {
    let mut at = svma;
    while let Some(len) = padding(text, at, false).filter(|_| at < svma + 16) {
        at += len;
    }
    text.prologues.contains(at)
}

/// Whether control cannot continue after an instruction.
pub(super) fn ends(instruction: &Instruction) -> bool {
    instruction.condition == 14
        && matches!(
            instruction.flow,
            Flow::Jump(_) | Flow::Return | Flow::Indirect(_) | Flow::Table(_) | Flow::Trap
        )
}

/// Whether one of the first instructions at `target` saves the link register below the stack
/// pointer. On x86-64, any callee-saved register counts. On both 64-bit machines, making room is
/// enough.
pub(super) fn is_prologue(text: &Text<'_>, target: Target) -> bool {
    let window = match text.machine.arch {
        Arch::Arm => 3,
        Arch::X86_64 => 5,
        _ => 6,
    };
    saves_link(text, target, window)
}

/// Like [`is_prologue`], for the first `count` instructions.
fn saves_link(text: &Text<'_>, target: Target, count: usize) -> bool {
    let machine = text.machine;
    let saved = if machine.link {
        1 << machine.ra
    } else {
        machine.preserved
    };
    let mut at = target.svma;
    for index in 0..count {
        let Some(instruction) = text.decode(at, target.thumb) else {
            return false;
        };
        let saves = instruction.effects().iter().any(|effect| match *effect {
            Effect::Store { base, mask, .. } => base == machine.sp && mask & saved != 0,
            Effect::Add { to, from, by } => {
                machine.arch != Arch::Arm && index < 3 && to == machine.sp && from == to && by < 0
            }
            _ => false,
        });
        if saves {
            return true;
        }
        let stops = match machine.arch {
            // This is not a function's beginning, but data before one.
            Arch::Arm => {
                instruction.flow != Flow::Next
                    || instruction.effects().iter().any(|effect| match *effect {
                        Effect::Add { to, from, by } => to == machine.sp && (from != to || by > 0),
                        Effect::Clobber(mask) | Effect::Load { mask, .. } => {
                            mask >> machine.sp & 3 != 0
                        }
                        _ => false,
                    })
            }
            // Some functions save registers only where they need them.
            Arch::X86_64 => ends(&instruction),
            _ => instruction.flow != Flow::Next,
        };
        if stops {
            return false;
        }
        at += u64::from(instruction.len);
    }
    false
}

/// Whether the code at `target` saves the link register, which a call has overwritten in `state`.
/// No real path leads there in such a state.
pub(super) fn is_entry(text: &Text<'_>, target: Target, state: &PackedState) -> bool {
    let machine = text.machine;
    machine.link
        && state.register(machine.ra) == Value::Unknown
        && text
            .decode(target.svma, target.thumb)
            .is_some_and(|first| pushes_link(&first, machine))
}

/// The function that start code calls to run the program and exit. A trap or a call of `abort`
/// follows the call.
pub(super) fn runs_program(text: &Text<'_>, start: &Function) -> Option<Target> {
    let mut spans = start.spans.iter();
    let &(mut at, end) = spans.next()?;
    while at < end {
        let instruction = text.decode(at, start.thumb)?;
        at += u64::from(instruction.len);
        if let Flow::Call(Some(target)) = instruction.flow {
            let next = text.decode(at, start.thumb)?;
            return matches!(next.flow, Flow::Trap | Flow::Call(_)).then_some(target);
        }
    }
    None
}

/// Whether a function with this name does not return.
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
