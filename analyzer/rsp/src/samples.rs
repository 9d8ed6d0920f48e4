//! The kernel's CPU samples of the target's threads, from `unspool-stub`'s notification
//! `UnspoolSamples` (docs/reference/protocol.md).

use std::collections::HashMap;

use crate::compact::{self, Compact};

/// Maximum size of a stack in bytes.
const MAX_STACK: usize = 1 << 16;

/// A thread at one moment: it ran, or it stopped running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Time of the sample, on the server's monotonic clock in nanoseconds.
    pub server_ns: u64,
    /// The thread.
    pub tid: u64,
    /// The processor.
    pub cpu: u32,
    /// Whether the thread ran in the kernel. Registers and stack are those of user mode.
    pub in_kernel: bool,
    /// Whether the thread stopped running: because it blocked, or because another one took its
    /// processor.
    pub is_off_cpu: bool,
    /// True if the stack continues beyond the copied bytes.
    pub is_cut: bool,
    /// The general registers, as the start of a `g` packet. Registers that the kernel does not
    /// sample are zero or missing.
    pub registers: Vec<u8>,
    /// The stack pointer.
    pub sp: u64,
    /// The stack, from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// The content of a notification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Samples {
    /// The samples, in the order of their times for each processor.
    pub samples: Vec<Sample>,
    /// Number of samples of running threads that the kernel lost for lack of buffer space.
    pub lost: u64,
    /// Number of off-CPU samples that the kernel did not take, because its buffers were
    /// full or the rate was too high.
    pub lost_off_cpu: u64,
}

/// Decodes notifications. Each may refer to stacks of earlier ones.
#[derive(Debug, Default)]
pub(crate) struct SampleDecoder {
    /// The address and the bytes of each thread's last stack.
    stacks: HashMap<u64, (u64, Vec<u8>)>,
}

impl SampleDecoder {
    /// Decodes a notification's body after `UnspoolSamples:`. Returns its time on the server's
    /// monotonic clock, and the records up to the first malformed one.
    pub(crate) fn decode(&mut self, body: &[u8]) -> Option<(u64, Samples)> {
        let (now_ns, bytes) = compact::body(body)?;
        let mut bytes = Compact(&bytes);
        let mut samples = Samples::default();
        let mut time_ns = 0;
        while self
            .record(&mut bytes, &mut time_ns, &mut samples)
            .is_some()
        {}
        Some((now_ns, samples))
    }

    fn record(
        &mut self,
        bytes: &mut Compact<'_>,
        time_ns: &mut u64,
        into: &mut Samples,
    ) -> Option<()> {
        match bytes.byte()? {
            0 => into.samples.push(self.sample(bytes, time_ns)?),
            1 => {
                let (_cpu, count) = (bytes.number()?, bytes.number()?);
                into.lost = into.lost.saturating_add(count);
            }
            2 => self.stacks.clear(),
            3 => {
                let (_cpu, count) = (bytes.number()?, bytes.number()?);
                into.lost_off_cpu = into.lost_off_cpu.saturating_add(count);
            }
            // The length of a newer server's record is unknown.
            _ => return None,
        }
        Some(())
    }

    fn sample(&mut self, bytes: &mut Compact<'_>, time_ns: &mut u64) -> Option<Sample> {
        *time_ns = time_ns.wrapping_add(bytes.change()?);
        let tid = bytes.number()?;
        let cpu = u32::try_from(bytes.number()?).ok()?;
        let flags = bytes.number()?;
        let length = bytes.length()?;
        let registers = bytes.bytes(length)?.to_vec();
        let sp = bytes.number()?;
        let length = bytes.length().filter(|length| *length <= MAX_STACK)?;
        let former = self.stacks.remove(&tid).unwrap_or_default();
        let stack = stack(bytes, sp, length, &former)?;
        self.stacks.insert(tid, (sp, stack.clone()));
        Some(Sample {
            server_ns: *time_ns,
            tid,
            cpu,
            in_kernel: flags & 1 != 0,
            is_cut: flags & 2 != 0,
            is_off_cpu: flags & 4 != 0,
            registers,
            sp,
            stack,
        })
    }
}

/// Decodes pairs of runs: bytes that equal those of the thread's previous stack, then changed
/// bytes.
fn stack(
    bytes: &mut Compact<'_>,
    sp: u64,
    length: usize,
    (address, former): &(u64, Vec<u8>),
) -> Option<Vec<u8>> {
    let mut stack = Vec::with_capacity(length);
    while stack.len() < length {
        let (same, other) = (bytes.length()?, bytes.length()?);
        let fits = same.checked_add(other)? <= length - stack.len();
        if !fits || (same, other) == (0, 0) {
            return None;
        }
        if same > 0 {
            let from = sp.checked_add(stack.len() as u64)?.checked_sub(*address)?;
            let from = usize::try_from(from).ok()?;
            stack.extend_from_slice(former.get(from..from.checked_add(same)?)?);
        }
        stack.extend_from_slice(bytes.bytes(other)?);
    }
    Some(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two samples of a thread, whose second stack begins a word further out and has another
    /// second word, as in the stub's test of its encoder.
    fn body() -> Vec<u8> {
        let mut body = b"1f;".to_vec();
        body.extend([0, 0xd8, 4, 5, 1, 1, 2, 7, 8, 64, 32, 0, 32]);
        body.extend(0..32);
        body.extend([0, 2, 5, 1, 6, 0, 72, 24]);
        body.extend([8, 8, 99, 17, 18, 19, 20, 21, 22, 23, 8, 0]);
        body.extend([1, 3, 12, 3, 3, 7]);
        body
    }

    #[test]
    fn stacks_are_completed_from_former_ones() {
        let (now_ns, decoded) = SampleDecoder::default().decode(&body()).unwrap();
        assert_eq!((now_ns, decoded.lost), (0x1f, 12));
        assert_eq!(decoded.lost_off_cpu, 7);
        let [first, second] = &decoded.samples[..] else {
            panic!("{decoded:?}");
        };
        assert_eq!((first.server_ns, first.tid, first.cpu), (300, 5, 1));
        assert_eq!((first.in_kernel, first.is_cut), (true, false));
        assert_eq!((second.in_kernel, second.is_cut), (false, true));
        assert!(second.is_off_cpu && !first.is_off_cpu);
        assert_eq!(first.registers, [7, 8]);
        assert_eq!((second.server_ns, second.sp), (301, 72));
        assert_eq!(first.stack, (0..32).collect::<Vec<u8>>());
        let mut expected: Vec<u8> = (8..32).collect();
        expected[8] = 99;
        assert_eq!(second.stack, expected);
    }

    /// The decoder does not panic if a body is cut or changed at any place. It rejects a sample
    /// that refers to a forgotten stack.
    #[test]
    fn damage() {
        let body = body();
        for end in 0..body.len() {
            if let Some((_, decoded)) = SampleDecoder::default().decode(&body[..end]) {
                assert!(decoded.samples.len() <= 2);
            }
        }
        for at in 3..body.len() {
            for byte in 0..=u8::MAX {
                let mut body = body.clone();
                body[at] = byte;
                let _ = SampleDecoder::default().decode(&body);
            }
        }
        let forgotten = [&b"1f;\x02"[..], &body[3 + 13 + 32..]].concat();
        let (_, decoded) = SampleDecoder::default().decode(&forgotten).unwrap();
        assert_eq!(decoded, Samples::default());
    }
}
