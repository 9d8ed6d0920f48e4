//! Encodes samples for the notification `UnspoolSamples` (docs/reference/protocol.md). Of a stack,
//! only the words that have changed since the thread's previous sample are sent, because most of a
//! stack stays as it is.

use std::collections::HashMap;

use crate::thread_events::sample::Sample;
use crate::thread_events::wire::{change, number};

/// Kinds of records.
const SAMPLE: u8 = 0;
const LOST: u8 = 1;
const FORGET: u8 = 2;
const LOST_OFF_CPU: u8 = 3;

/// Bits of a sample's flags.
const IN_KERNEL: u64 = 1;
const CUT: u64 = 2;
const OFF_CPU: u64 = 4;

/// Maximum size of all stacks kept for comparison, in bytes.
const MAX_KEPT: usize = 1 << 20;
/// Approximate size of a kept stack apart from its bytes.
const ENTRY: usize = 64;
/// The size of the words that are compared.
const WORD: usize = 8;

/// A stack, and the address of its first byte.
struct Stack {
    address: u64,
    bytes: Vec<u8>,
}

/// The state that encoder and decoder share.
#[derive(Default)]
pub(super) struct Encoder {
    /// The last stack of each thread.
    stacks: HashMap<u32, Stack>,
    /// Size of the stacks in `stacks`.
    kept: usize,
    /// The time of the previous record in the body.
    last_ns: u64,
    /// Size of the body's head.
    head: usize,
}

impl Encoder {
    /// `UnspoolSamples:NOW;`, to which records are appended.
    pub(super) fn begin(&mut self, now_ns: u64) -> Vec<u8> {
        let body = format!("UnspoolSamples:{now_ns:x};").into_bytes();
        (self.last_ns, self.head) = (0, body.len());
        body
    }

    /// True if the body has no records.
    pub(super) fn is_empty(&self, body: &[u8]) -> bool {
        body.len() <= self.head
    }

    /// Samples that the kernel lost: of threads that stopped running if `is_off_cpu` is set.
    pub(super) fn lost(&mut self, cpu: u32, count: u64, is_off_cpu: bool, body: &mut Vec<u8>) {
        body.push(if is_off_cpu { LOST_OFF_CPU } else { LOST });
        number(cpu.into(), body);
        number(count, body);
    }

    /// A sample: of a thread that blocks if `is_off_cpu` is set.
    pub(super) fn sample(&mut self, sample: &Sample<'_>, is_off_cpu: bool, body: &mut Vec<u8>) {
        let mut former = self.stacks.remove(&sample.tid);
        self.kept -= former.as_ref().map_or(0, |stack| stack.bytes.len() + ENTRY);
        if self.kept + sample.stack.len() + ENTRY > MAX_KEPT {
            self.stacks.clear();
            self.kept = 0;
            body.push(FORGET);
            former = None;
        }
        let sp = self.head(sample, is_off_cpu, body);
        changes(sp, sample.stack, former.as_ref(), body);
        self.kept += sample.stack.len() + ENTRY;
        let mut bytes = former.map(|stack| stack.bytes).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(sample.stack);
        let stack = Stack { address: sp, bytes };
        self.stacks.insert(sample.tid, stack);
    }

    /// A sample with the same stack as the thread's previous one, which is not compared again.
    pub(super) fn repeat(&mut self, sample: &Sample<'_>, body: &mut Vec<u8>) {
        self.head(sample, false, body);
        if !sample.stack.is_empty() {
            number(sample.stack.len() as u64, body);
            number(0, body);
        }
    }

    /// Appends a sample without the changes of its stack. Returns the stack pointer.
    fn head(&mut self, sample: &Sample<'_>, is_off_cpu: bool, body: &mut Vec<u8>) -> u64 {
        let in_kernel = if sample.in_kernel { IN_KERNEL } else { 0 };
        let cut = if sample.is_cut { CUT } else { 0 };
        // A thread always stops in the kernel.
        let flags = cut | if is_off_cpu { OFF_CPU } else { in_kernel };
        let (registers, sp) = (sample.packet(), sample.sp());
        body.push(SAMPLE);
        change(sample.time_ns, &mut self.last_ns, body);
        number(sample.tid.into(), body);
        number(sample.cpu.into(), body);
        number(flags, body);
        number(registers.len() as u64, body);
        body.extend_from_slice(&registers);
        number(sp, body);
        number(sample.stack.len() as u64, body);
        sp
    }
}

/// Appends the stack as pairs of runs: the number of bytes that are as in the former stack, the
/// number of other bytes, and these bytes.
fn changes(sp: u64, stack: &[u8], former: Option<&Stack>, body: &mut Vec<u8>) {
    let before = |at: usize| -> Option<&[u8]> {
        let former = former?;
        let from = sp.checked_add(at as u64)?.checked_sub(former.address)?;
        let from = usize::try_from(from).ok()?;
        let size = WORD.min(stack.len() - at);
        former.bytes.get(from..from.checked_add(size)?)
    };
    let is_same = |at: usize| {
        let end = stack.len().min(at + WORD);
        before(at) == stack.get(at..end)
    };
    let mut at = 0;
    while at < stack.len() {
        let run = |mut end: usize, same: bool| {
            while end < stack.len() && is_same(end) == same {
                end = stack.len().min(end + WORD);
            }
            end
        };
        let same = run(at, true);
        let other = run(same, false);
        number((same - at) as u64, body);
        number((other - same) as u64, body);
        body.extend_from_slice(&stack[same..other]);
        at = other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn sample(time_ns: u64, sp: u64, stack: &[u8]) -> Sample<'_> {
        let registers = arch::SAMPLED.iter();
        let registers = registers.map(|(_, number)| if *number == arch::SP { sp } else { 0 });
        Sample {
            pid: 1,
            tid: 5,
            time_ns,
            cpu: 1,
            in_kernel: true,
            registers: registers.collect(),
            stack,
            is_cut: false,
        }
    }

    /// The part of a sample's encoding that follows the registers.
    fn after_registers(body: &[u8], start: usize) -> &[u8] {
        let size = sample(0, 0, &[]).packet().len();
        let mut length = Vec::new();
        number(size as u64, &mut length);
        &body[start + length.len() + size..]
    }

    #[test]
    fn only_changed_words_are_sent() {
        let mut encoder = Encoder::default();
        let mut body = encoder.begin(0x1f);
        assert!(encoder.is_empty(&body));
        let mut stack: Vec<u8> = (0..32).collect();
        encoder.sample(&sample(300, 64, &stack), false, &mut body);
        assert!(!encoder.is_empty(&body));
        let start = b"UnspoolSamples:1f;".len();
        assert_eq!(body[start..start + 6], [SAMPLE, 0xd8, 4, 5, 1, 1]);
        let rest = after_registers(&body, start + 6);
        assert_eq!(rest[..4], [64, 32, 0, 32]);
        assert_eq!(rest[4..], stack);
        // The next stack begins a word further out, and its second word has changed.
        let mut body = encoder.begin(0x1f);
        stack[16] = 99;
        encoder.sample(&sample(300, 72, &stack[8..]), true, &mut body);
        assert_eq!(
            body[start..start + 6],
            [SAMPLE, 0xd8, 4, 5, 1, OFF_CPU as u8]
        );
        let rest = after_registers(&body, start + 6);
        assert_eq!(rest[..2], [72, 24]);
        assert_eq!(rest[2..12], [8, 8, 99, 17, 18, 19, 20, 21, 22, 23]);
        assert_eq!(rest[12..], [8, 0]);
        // A repeated sample is as one that was compared.
        let mut bodies = [encoder.begin(0x1f), encoder.begin(0x1f)];
        encoder.repeat(&sample(300, 72, &stack[8..]), &mut bodies[0]);
        encoder.last_ns = 0;
        encoder.sample(&sample(300, 72, &stack[8..]), false, &mut bodies[1]);
        assert_eq!(bodies[0], bodies[1]);
    }

    #[test]
    fn kept_stacks_are_limited() {
        let mut encoder = Encoder::default();
        let mut body = encoder.begin(0);
        let stack = vec![7; 64 << 10];
        let count = MAX_KEPT / (stack.len() + ENTRY) + 1;
        for tid in 0..count as u32 {
            let sample = Sample {
                tid,
                ..sample(1, 64, &stack)
            };
            body.clear();
            encoder.sample(&sample, false, &mut body);
            assert!(encoder.kept <= MAX_KEPT);
        }
        assert_eq!(body[..2], [FORGET, SAMPLE]);
    }
}
