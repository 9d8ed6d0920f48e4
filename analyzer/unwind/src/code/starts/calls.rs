//! What calls say about functions, wherever in the text they are: where functions start, and which do not return.

use unspool_image::{Arch, Image};

use super::{ends, is_landing, is_prologue, mode, padding, saves_link};
use crate::code::cover::Cover;
use crate::code::effect::{Effect, Flow, Target};
use crate::code::text::{Text, decode};

/// How far in a function that something calls the link register is looked for.
const CALLED: usize = 8;

fn target(svma: u64) -> Target {
    Target { svma, thumb: false }
}

/// Targets of all calls, read from the first byte of the text to the last without regard to control flow: where code
/// is not mixed with data, as compilers leave it on x86-64 and AArch64, hardly any is missed or imagined.
pub(in crate::code) fn called(text: &Text<'_>) -> Calls {
    let mut found = Vec::new();
    let mut calls = Calls::default();
    let mut constants = [0u64; 32];
    let empty = || Cover::over(text);
    let mut joins = empty();
    calls.returns = empty();
    calls.lines = empty();
    if text.machine.arch == Arch::Arm {
        return calls;
    }
    for range in text.ranges() {
        let mut at = range.start;
        let bytes = text.bytes(range.start);
        // Control does not come from the instruction before.
        let mut fresh = true;
        let mut padded = true;
        while at < range.end {
            let rest = bytes.get((at - range.start) as usize..).unwrap_or(&[]);
            let Some(instruction) = decode(text.machine, rest, at, false) else {
                at += 1 << text.machine.shift;
                fresh = true;
                continue;
            };
            if at & 15 == 0 {
                let landing = is_landing(text, at);
                // What catches exceptions has no space before it.
                if landing && padded
                    || (landing || fresh || padded) && is_prologue(text, target(at))
                {
                    calls.prologues.push(at);
                }
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

/// Prologues that something in ARM text looks like a call to. There is data between functions, and nothing says which
/// words are code, but few words of data are a call to a prologue.
pub(in crate::code) fn likely_called(image: &Image, text: &Text<'_>, symbols: bool) -> Vec<Target> {
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
pub(in crate::code) struct Calls {
    /// Addresses of data, in order.
    pub(in crate::code) references: Vec<u64>,
    /// Addresses behind calls.
    pub(in crate::code) returns: Cover,
    /// Addresses that control does not come to from the instruction before, or comes to behind a call.
    pub(in crate::code) lines: Cover,
    /// Functions that are called, in order.
    pub(in crate::code) targets: Vec<u64>,
    /// Prologues that control comes to neither from the instruction before nor by a jump, in order.
    pub(in crate::code) prologues: Vec<u64>,
    /// Those behind most calls of which there is only space, or another function: they do not return.
    pub(in crate::code) silent: Vec<u64>,
}
