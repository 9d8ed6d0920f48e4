//! Facts about functions that calls reveal: where functions start, and which do not return.

use std::ops::Range;
use std::thread;

use unspool_image::{Arch, Image};

use super::{ends, is_landing, is_prologue, mode, padding, saves_link};
use crate::code::byte_map::ByteMap;
use crate::code::effect::{Effect, Flow, Instruction, Target};
use crate::code::state::bits;
use crate::code::text::{Text, decode_to};

/// Number of instructions in which to look for a save of the link register, in a called function.
const PROLOGUE_WINDOW: usize = 8;

fn target(svma: u64) -> Target {
    Target { svma, thumb: false }
}

/// Decodes the text linearly and collects the targets of all calls.
///
/// It ignores control flow. On x86-64 and AArch64 compilers do not mix code with data, so that
/// hardly any call is missed or invented. Each of `threads` threads reads a part; the result does
/// not depend on their number.
pub(in crate::code) fn called(text: &Text<'_>, threads: usize) -> Calls {
    let mut reading = Reading::new(text, 0);
    if text.machine.arch == Arch::Arm {
        return reading.calls;
    }
    for range in text.ranges() {
        reading.enter();
        let size = range.end - range.start;
        let parts = (size / MIN_PART_SIZE).clamp(1, threads as u64);
        let begun: Vec<(u64, Reading<'_>)> = (1..parts)
            .map(|part| Reading::begun(text, range, range.start + size / parts * part))
            .collect();
        let mut ends = begun.iter().map(|begun| begun.0).collect::<Vec<_>>();
        ends.push(range.end);
        thread::scope(|scope| {
            let others: Vec<_> = begun
                .into_iter()
                .zip(&ends[1..])
                .map(|((start, mut part), &end)| {
                    let before = part.context();
                    let read = move || {
                        let end = part.read(range, start, end);
                        (part, before, end)
                    };
                    (
                        start,
                        thread::Builder::new()
                            .name("code".into())
                            .spawn_scoped(scope, read),
                    )
                })
                .collect();
            let mut at = reading.read(range, range.start, ends[0]);
            for ((start, other), &end) in others.into_iter().zip(&ends[1..]) {
                let other = other.ok().map(|other| {
                    other
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                });
                match other {
                    Some((part, before, end)) if start == at && before == reading.context() => {
                        reading.append(part);
                        at = end;
                    }
                    // The guessed start of its instructions was wrong.
                    _ => at = reading.read(range, at, end),
                }
            }
        });
    }
    let Reading {
        mut calls,
        mut found,
        joins,
        ..
    } = reading;
    calls.references.sort_unstable();
    calls.references.dedup();
    found.sort_unstable();
    calls.targets = found.iter().map(|call| call.0).collect();
    calls.targets.dedup();
    calls.prologues.retain(|&start| !joins.contains(start));
    let starts = ByteMap::of(text, calls.targets.iter().chain(&calls.prologues));
    for sites in found.chunk_by(|a, b| a.0 == b.0) {
        let mut after = AfterCalls::default();
        for &(_, next) in sites {
            after.count(text, next, &starts, &joins);
        }
        if after.means_noreturn() {
            calls.noreturn.push(sites[0].0);
        }
    }
    calls
}

/// Minimum size of a part for a thread of its own.
const MIN_PART_SIZE: u64 = 1 << 16;
/// Number of bytes after which decoding from an arbitrary address is nearly always in step.
const LEAD_IN: u64 = 256;

/// A part of the text that is being decoded linearly.
struct Reading<'t> {
    text: &'t Text<'t>,
    calls: Calls,
    /// Targets of calls, and the addresses after the calls.
    found: Vec<(u64, u64)>,
    /// Targets of jumps.
    joins: ByteMap,
    /// By register: the last constant, if it has not been used since.
    constants: [u64; 32],
    /// One bit for each register whose constant was set in this part. The part before decides the
    /// others.
    known: u32,
    /// Uses of those other registers: the register and the added offset.
    open: Vec<(u8, i32)>,
    /// Control does not come from the instruction before.
    fresh: bool,
    /// The instruction before is padding.
    padded: bool,
}

impl<'t> Reading<'t> {
    /// `open` are the registers whose constants the part before decides.
    fn new(text: &'t Text<'t>, open: u32) -> Reading<'t> {
        let empty = || ByteMap::over(text);
        let calls = Calls {
            returns: empty(),
            lines: empty(),
            ..Calls::default()
        };
        Reading {
            text,
            calls,
            found: Vec::new(),
            joins: empty(),
            constants: [0; 32],
            known: !open,
            open: Vec::new(),
            fresh: true,
            padded: true,
        }
    }

    /// Starts a new range.
    fn enter(&mut self) {
        (self.fresh, self.padded) = (true, true);
    }

    /// Starts a part at the first instruction at or after `near`, and returns that address. The
    /// start is a guess.
    fn begun(text: &'t Text<'t>, range: &Range<u64>, near: u64) -> (u64, Reading<'t>) {
        let mut lead = Reading::new(text, 0);
        let from = near.saturating_sub(LEAD_IN).max(range.start) & !15;
        let start = lead.read(range, from, near);
        let mut reading = Reading::new(text, u32::MAX);
        (reading.fresh, reading.padded) = (lead.fresh, lead.padded);
        (start, reading)
    }

    /// The facts about the instruction before that the next one depends on.
    fn context(&self) -> (bool, bool) {
        (self.fresh, self.padded)
    }

    /// Appends the following part.
    fn append(&mut self, next: Reading<'t>) {
        for (register, by) in next.open {
            let page = self.constants[usize::from(register)];
            if page != 0 {
                self.calls
                    .refer(self.text, page.wrapping_add_signed(by.into()));
            }
        }
        for register in bits(next.known) {
            let register = usize::from(register);
            self.constants[register] = next.constants[register];
        }
        self.calls.returns.merge(&next.calls.returns);
        self.calls.lines.merge(&next.calls.lines);
        self.joins.merge(&next.joins);
        self.calls.references.extend(next.calls.references);
        self.calls.prologues.extend(next.calls.prologues);
        self.found.extend(next.found);
        (self.fresh, self.padded) = (next.fresh, next.padded);
    }

    /// Decodes the instructions of `range` that start between `at` and `end`. Returns the address
    /// after the last.
    fn read(&mut self, range: &Range<u64>, mut at: u64, end: u64) -> u64 {
        let text = self.text;
        let calls = &mut self.calls;
        let bytes = text.bytes(range.start);
        let mut instruction = Instruction::new(0);
        while at < end {
            let rest = bytes.get((at - range.start) as usize..).unwrap_or(&[]);
            if decode_to(text.machine, rest, at, false, &mut instruction).is_none() {
                at += 1 << text.machine.shift;
                self.fresh = true;
                continue;
            }
            if at & 15 == 0 {
                let landing = is_landing(text, at);
                // A landing pad has no padding before it.
                if landing && self.padded
                    || (landing || self.fresh || self.padded) && is_prologue(text, target(at))
                {
                    calls.prologues.push(at);
                }
            }
            let next = at + u64::from(instruction.len);
            let call = matches!(instruction.flow, Flow::Call(_));
            if call {
                calls.returns.add(next);
            }
            self.fresh = ends(&instruction);
            // Padding has no effects.
            self.padded = instruction.effects().is_empty()
                && matches!(instruction.flow, Flow::Next | Flow::Trap)
                && padding(text, at, false).is_some();
            if self.fresh || call || self.padded {
                calls.lines.add(next);
            }
            for &effect in instruction.effects() {
                match effect {
                    Effect::Constant { to, value } => {
                        self.known |= 1 << (to & 31);
                        self.constants[usize::from(to & 31)] = u64::from(value);
                        calls.refer(text, u64::from(value));
                    }
                    // adrp, add
                    Effect::Add { to, from, by } if to == from && text.machine.link => {
                        let register = to & 31;
                        let page = std::mem::take(&mut self.constants[usize::from(register)]);
                        if self.known >> register & 1 == 0 {
                            self.known |= 1 << register;
                            self.open.push((register, by));
                        } else if page != 0 {
                            calls.refer(text, page.wrapping_add_signed(i64::from(by)));
                        }
                    }
                    _ => {}
                }
            }
            match instruction.flow {
                Flow::Call(Some(target)) if text.is_text(target.svma) => {
                    self.found.push((target.svma, next));
                }
                Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } => {
                    self.joins.add(target.svma);
                }
                _ => {}
            }
            at = next;
        }
        at
    }
}

/// Counts the calls of one function by the kind of code that follows the call.
#[derive(Debug, Default)]
struct AfterCalls {
    /// Nothing, or another function: only a call that does not return ends a function.
    end: usize,
    /// The target of a jump, which may follow any call.
    join: usize,
    /// Other code. After a call that does not return, only a landing pad.
    other: usize,
}

impl AfterCalls {
    fn count(&mut self, text: &Text<'_>, next: u64, starts: &ByteMap, joins: &ByteMap) {
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
            // Compilers pad before jump targets and functions.
            self.end += 1;
        } else {
            self.other += 1;
        }
    }

    /// Whether the function does not return.
    fn means_noreturn(&self) -> bool {
        let sites = self.end + self.join + self.other;
        let most = (self.end + self.join) * 10 >= sites * 6;
        let plain = self.other == 0 && (self.end >= 2 || sites >= 8 && self.end > 0);
        sites >= 2 && most && (plain || self.end * 8 >= sites && self.end >= 2)
    }
}

/// Number of code bytes read at a time.
const CHUNK: usize = 256 << 10;

/// Whether an instruction calls an address in `wanted` directly.
///
/// It finds bytes that may be such a call and decodes only around them. Decoding all of the text
/// would take a hundred times as long.
pub(in crate::code) fn is_called(image: &Image, text: &Text<'_>, wanted: &Range<u64>) -> bool {
    let mut buffer = vec![0; CHUNK];
    for range in text.ranges() {
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(CHUNK);
            let len = image.copy_bytes(at, &mut buffer[..left.min(CHUNK)]);
            let bytes = &buffer[..len];
            let mut sites = likely_calls(text.machine.arch, bytes, at, wanted);
            if sites.any(|site| is_instruction(text, range, site)) {
                return true;
            }
            // A call may extend into the next chunk.
            let overlap = if len == CHUNK { 4 } else { 0 };
            at += len.saturating_sub(overlap).max(1) as u64;
        }
    }
    false
}

/// Positions in `bytes`, which start at `svma`, of possible calls to `wanted`.
fn likely_calls(
    arch: Arch,
    bytes: &[u8],
    svma: u64,
    wanted: &Range<u64>,
) -> impl Iterator<Item = u64> {
    let (length, step) = match arch {
        Arch::X86_64 => (5, 1),
        _ => (4, 4),
    };
    let places = bytes.windows(length).enumerate().step_by(step);
    places.filter_map(move |(index, bytes)| {
        let at = svma + index as u64;
        let target = match (arch, bytes) {
            // e8 rel32
            (Arch::X86_64, &[0xe8, a, b, c, d]) => {
                let distance = i32::from_le_bytes([a, b, c, d]);
                (at + 5).wrapping_add_signed(distance.into())
            }
            // 100101ii iiiiiiii iiiiiiii iiiiiiii: bl
            (Arch::Aarch64, &[a, b, c, d]) if d >> 2 == 0b100101 => {
                let word = u32::from_le_bytes([a, b, c, d]);
                at.wrapping_add_signed(i64::from((word << 6) as i32 >> 6) * 4)
            }
            _ => return None,
        };
        wanted.contains(&target).then_some(at)
    })
}

/// Whether an instruction starts at `site`, judging by the code before it.
fn is_instruction(text: &Text<'_>, range: &Range<u64>, site: u64) -> bool {
    let mut at = site.saturating_sub(LEAD_IN).max(range.start) & !15;
    while at < site {
        let found = text.decode(at, false);
        at += found.map_or(1 << text.machine.shift, |found| u64::from(found.len));
    }
    at == site
}

/// ARM prologues that are the target of a possible call.
///
/// Data lies between functions, and nothing tells code from data. But few words of data look like a
/// call of a prologue.
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
                && saves_link(text, target, PROLOGUE_WINDOW)
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

/// Facts that calls reveal.
#[derive(Debug, Default)]
pub(in crate::code) struct Calls {
    /// Addresses of data, in order.
    pub(in crate::code) references: Vec<u64>,
    /// Addresses after calls.
    pub(in crate::code) returns: ByteMap,
    /// Addresses that control does not reach from the instruction before, and addresses after
    /// calls.
    pub(in crate::code) lines: ByteMap,
    /// Called functions, in order.
    pub(in crate::code) targets: Vec<u64>,
    /// Prologues that control reaches neither from the instruction before nor by a jump, in order.
    pub(in crate::code) prologues: Vec<u64>,
    /// Functions that do not return: after most of their calls there is only padding or another
    /// function.
    pub(in crate::code) noreturn: Vec<u64>,
}

impl Calls {
    /// Records that code refers to this address.
    fn refer(&mut self, text: &Text<'_>, svma: u64) {
        if self.references.last() != Some(&svma) && !text.is_text(svma) && text.is_mapped(svma) {
            self.references.push(svma);
        }
    }
}
