//! Where functions start.

use std::collections::BTreeMap;

use unspool_image::{Arch, Image};

use super::cover::Cover;
use super::effect::{Effect, Flow, Instruction, Target};
use super::flow::{Function, pushes_link};
use super::state::{State, Value};
use super::text::Text;
use crate::exidx;

/// How far in a function that something calls the link register is looked for.
const CALLED: usize = 8;

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

fn target(svma: u64) -> Target {
    Target { svma, thumb: false }
}

/// Targets of all calls, read from the first byte of the text to the last without regard to control flow: where code
/// is not mixed with data, as compilers leave it on x86-64 and AArch64, hardly any is missed or imagined.
pub(super) fn called(text: &Text<'_>) -> Calls {
    let mut found = Vec::new();
    let mut calls = Calls::default();
    let mut constants = [0u64; 32];
    let empty = || Cover::new(text.start(), text.end());
    let mut joins = empty();
    calls.returns = empty();
    calls.lines = empty();
    if text.machine.arch == Arch::Arm {
        return calls;
    }
    for range in text.ranges() {
        let mut at = range.start;
        // Control does not come from the instruction before.
        let mut fresh = true;
        let mut padded = true;
        while at < range.end {
            let Some(instruction) = text.decode(at, false) else {
                at += 1 << text.machine.shift;
                fresh = true;
                continue;
            };
            if at & 15 == 0
                && match (is_landing(text, at), is_prologue(text, target(at))) {
                    (true, true) => true,
                    (false, true) => fresh || padded,
                    // What catches exceptions has no space before it.
                    (true, false) => padded,
                    (false, false) => false,
                }
            {
                calls.prologues.push(at);
            }
            let next = at + u64::from(instruction.len);
            let call = matches!(instruction.flow, Flow::Call(_));
            if call {
                calls.returns.insert(next, next + 1);
            }
            fresh = ends(&instruction);
            padded = padding(text, at, false).is_some();
            if fresh || call || padded {
                calls.lines.insert(next, next + 1);
            }
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
            match instruction.flow {
                Flow::Call(Some(target)) if text.is_text(target.svma) => {
                    found.push((target.svma, at + u64::from(instruction.len)));
                }
                Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } => {
                    joins.insert(target.svma, target.svma + 1);
                }
                _ => {}
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
    calls.prologues.retain(|&start| !joins.contains(start));
    let starts = Cover::of(text, calls.targets.iter().chain(&calls.prologues));
    for sites in found.chunk_by(|a, b| a.0 == b.0) {
        let mut behind = Behind::default();
        for &(_, next) in sites {
            behind.count(text, next, &starts, &joins);
        }
        if behind.is_nothing() {
            calls.silent.push(sites[0].0);
        }
    }
    calls
}

/// What is behind the calls of one function, in numbers of calls.
#[derive(Debug, Default)]
struct Behind {
    /// Nothing, or another function: only a call that does not return is at a function's end.
    end: usize,
    /// Code that is jumped to, and may be behind any call.
    join: usize,
    /// Other code: behind a call that does not return, only what catches exceptions.
    other: usize,
}

impl Behind {
    fn count(&mut self, text: &Text<'_>, next: u64, starts: &Cover, joins: &Cover) {
        let mut at = next;
        while text.is_text(at)
            && let Some(len) = padding(text, at, false)
        {
            at += len;
        }
        if !text.is_text(at) || starts.contains(at) {
            self.end += 1;
        } else if joins.contains(at) || is_landing(text, at) {
            self.join += 1;
        } else if at > next {
            // Space is left before what is jumped to, and before functions.
            self.end += 1;
        } else {
            self.other += 1;
        }
    }

    /// Whether the function does not return.
    fn is_nothing(&self) -> bool {
        let sites = self.end + self.join + self.other;
        let most = (self.end + self.join) * 10 >= sites * 6;
        let plain = self.other == 0 && (self.end >= 2 || sites >= 8 && self.end > 0);
        sites >= 2 && most && (plain || self.end * 8 >= sites && self.end >= 2)
    }
}

/// Whether `svma` is marked as a place that control comes to indirectly: `endbr64`.
pub(super) fn is_landing(text: &Text<'_>, svma: u64) -> bool {
    text.machine.arch == Arch::X86_64 && text.bytes(svma).starts_with(&[0xf3, 0x0f, 0x1e, 0xfa])
}

/// Prologues that something in ARM text looks like a call to. There is data between functions, and nothing says which
/// words are code, but few words of data are a call to a prologue.
pub(super) fn likely_called(image: &Image, text: &Text<'_>, symbols: bool) -> Vec<Target> {
    let mut found = Vec::new();
    for range in text.ranges() {
        let mut at = range.start.next_multiple_of(2);
        while at < range.end {
            // T32: 11110... ........ 11....... ........; A32: cond 1011 or, to T32, 1111 101.
            let wide = text.half(at).is_some_and(|half| half >> 11 == 0b11110);
            let a32 = at & 3 == 0
                && text
                    .word(at)
                    .is_some_and(|word| matches!(word >> 24, 0xeb | 0xfa | 0xfb));
            if (wide || a32)
                && !text.is_data(at)
                && let around = at.saturating_sub(16).max(range.start) & !3
                && let thumb = mode(image, text, symbols, around, around + 32, false)
                && (if thumb { wide } else { a32 })
                && let Some(call) = text.decode(at, thumb)
                && let Flow::Call(Some(target)) = call.flow
                && target.svma & 3 == 0
                && text.is_text(target.svma)
                && saves_link(text, target, CALLED)
            {
                found.push(target);
            }
            at += 2;
        }
    }
    found.sort_unstable_by_key(|target| (target.svma, target.thumb));
    found.dedup();
    found
}

/// What calls say about functions.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Addresses of data, in order.
    pub(super) references: Vec<u64>,
    /// Addresses behind calls.
    pub(super) returns: Cover,
    /// Addresses that control does not come to from the instruction before, or comes to behind a call.
    pub(super) lines: Cover,
    /// Functions that are called, in order.
    pub(super) targets: Vec<u64>,
    /// Prologues that control comes to neither from the instruction before nor by a jump, in order.
    pub(super) prologues: Vec<u64>,
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
            if furthest < next && (next > at || next & 15 == 0) {
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
        // nop.w
        _ if thumb && text.half(svma) == Some(0xf3af) && text.half(svma + 2) == Some(0x8000) => {
            Some(4)
        }
        _ if thumb => matches!(text.half(svma), None | Some(0 | 0xbf00 | 0x46c0)).then_some(2),
        _ => matches!(text.word(svma), None | Some(0 | 0xe320_f000 | 0xe1a0_0000)).then_some(4),
    }
}

/// Whether a function's prologue follows at `svma`, maybe behind space.
pub(super) fn follows(text: &Text<'_>, svma: u64) -> bool {
    let mut at = svma;
    while let Some(len) = padding(text, at, false).filter(|_| at < svma + 16) {
        at += len;
    }
    text.prologues.binary_search(&at).is_ok()
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
/// register that calls preserve. On both 64-bit machines, making room is enough.
pub(super) fn is_prologue(text: &Text<'_>, target: Target) -> bool {
    let window = match text.machine.arch {
        Arch::Arm => 3,
        Arch::X86_64 => 5,
        _ => 6,
    };
    saves_link(text, target, window)
}

/// The same of the first `count` instructions.
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
            // What is no function's beginning, but data before one.
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

/// Whether code at `target` saves the link register, which in `state` a call has overwritten: nothing goes there with it.
pub(super) fn is_entry(text: &Text<'_>, target: Target, state: &State) -> bool {
    let machine = text.machine;
    machine.link
        && state.register(machine.ra) == Value::Unknown
        && text
            .decode(target.svma, target.thumb)
            .is_some_and(|first| pushes_link(&first, machine))
}

/// What start code calls to run the program and exit: behind the call there is a trap, or a call of `abort`.
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
