//! Where functions start.

use std::collections::BTreeMap;

use super::Code;
use super::effect::{Effect, Target};
use super::flow::Text;
use crate::exidx;

/// Starts that something states: symbols, the entry point, the exception index.
pub(super) fn known(code: &Code<'_>) -> BTreeMap<u64, bool> {
    let image = code.image;
    let mut starts = BTreeMap::new();
    let text = image.text_ranges();
    let is_text = |svma: u64| text.iter().any(|range| range.contains(&svma));
    if code.symbols {
        for symbol in image.symbols().functions() {
            if is_text(symbol.svma) {
                starts.insert(symbol.svma, symbol.thumb);
            }
        }
    }
    let entry = image.entry();
    if entry != 0 && is_text(entry & !1) {
        starts.insert(entry & !1, entry & 1 == 1);
    }
    if let Some(index) = image.section(".ARM.exidx") {
        let bytes_at = |svma: u64, len: usize| image.bytes_at(svma, len);
        for (start, _) in exidx::read(&index.data, index.svma, &bytes_at) {
            if is_text(start) && !starts.contains_key(&start) && !code.is_data(start) {
                starts.insert(start, mode(code, start, start + 16, false));
            }
        }
    }
    starts
}

/// Whether the code at `svma` is T32. Nothing states it without symbols, but nearly every A32 instruction
/// has the condition "always" in its top four bits, and hardly any run of T32 code looks like that.
///
/// `after_a32`: the code before is A32, which makes it likelier here.
pub(super) fn mode(code: &Code<'_>, svma: u64, end: u64, after_a32: bool) -> bool {
    if code.symbols
        && let Some(thumb) = code.image.thumb_at(svma)
    {
        return thumb;
    }
    if svma & 3 != 0 {
        return true;
    }
    let count = (end.saturating_sub(svma) / 4).clamp(4, 64);
    let words: Vec<u32> = (0..count).map_while(|n| code.word(svma + 4 * n)).collect();
    let always = words.iter().filter(|word| *word >> 28 == 0xe).count();
    always * 5 < words.len() * if after_a32 { 2 } else { 3 }
}

/// Instructions that only fill space between functions.
pub(super) fn is_padding(code: &Code<'_>, svma: u64, thumb: bool) -> bool {
    if thumb {
        matches!(code.half(svma), None | Some(0 | 0xbf00 | 0x46c0))
    } else {
        matches!(code.word(svma), None | Some(0 | 0xe320_f000 | 0xe1a0_0000))
    }
}

/// Whether one of the first instructions at `target` saves the link register below the stack pointer.
pub(super) fn is_prologue(code: &Code<'_>, target: Target) -> bool {
    let mut at = target.svma;
    for _ in 0..3 {
        let Some(instruction) = code.decode(at, target.thumb) else {
            return false;
        };
        let saves = instruction.effects().iter().any(
            |effect| matches!(effect, Effect::Store { base: 13, mask, .. } if mask >> 14 & 1 == 1),
        );
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
