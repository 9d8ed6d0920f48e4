//! Parses samples of the kernel's perf events. Pure functions, separate from the ring buffers.
//!
//! The layout is `enum perf_event_type` in the kernel's `include/uapi/linux/perf_event.h`. Samples
//! have the fields TID, TIME, CPU, REGS_USER and STACK_USER; all other records end with TID, TIME
//! and CPU.

use crate::arch;
use crate::thread_events::record::{HEADER, LOST, OWN_ABI, SAMPLE, SAMPLE_ID, long, misc, word};

/// The processor's mode in a record's `misc` field, `PERF_RECORD_MISC_*`.
const MODE: u16 = 7;
const KERNEL_MODE: u16 = 1;

/// A record of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    Sample(Sample<'a>),
    /// The kernel had no room for `count` records of this processor.
    Lost {
        cpu: u32,
        count: u64,
    },
}

/// A thread at one moment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// Time by the monotonic clock.
    pub(crate) time_ns: u64,
    pub(crate) cpu: u32,
    /// The thread ran in the kernel. Registers and stack are those of user mode.
    pub(crate) in_kernel: bool,
    /// Values of the registers `arch::SAMPLED`, in this order. Empty for kernel threads, and for
    /// programs of the other size.
    pub(crate) registers: Vec<u64>,
    /// The stack from the stack pointer upward.
    pub(crate) stack: &'a [u8],
    /// The copied bytes fill the reserved space, so the stack may be longer.
    pub(crate) is_cut: bool,
}

impl Sample<'_> {
    /// The stack pointer; 0 if it is not known.
    pub(crate) fn sp(&self) -> u64 {
        let mut values = arch::SAMPLED.iter().zip(&self.registers);
        let sp = values.find_map(|((_, number), value)| (*number == arch::SP).then_some(*value));
        sp.unwrap_or(0)
    }

    /// The registers as the start of a `g` packet. Those that the kernel does not sample are zero.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let layout = arch::layout();
        let mut bytes = Vec::new();
        for ((_, number), value) in arch::SAMPLED.iter().zip(&self.registers) {
            let Some(register) = layout.register(*number) else {
                continue;
            };
            let size = register.size.min(8);
            if bytes.len() < register.offset + size {
                bytes.resize(register.offset + size, 0);
            }
            bytes[register.offset..register.offset + size]
                .copy_from_slice(&value.to_le_bytes()[..size]);
        }
        bytes
    }
}

/// Parses one complete record. A malformed sample counts as lost. Returns `None` for other kinds
/// and for other malformed records.
pub(crate) fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let kind = word(bytes, 0)?;
    let misc = misc(bytes)?;
    match kind {
        SAMPLE => match sample(bytes, misc & MODE == KERNEL_MODE) {
            Some(sample) => Some(Record::Sample(sample)),
            None => Some(Record::Lost {
                cpu: word(bytes, 24)?,
                count: 1,
            }),
        },
        LOST => {
            let identity = bytes.len().checked_sub(SAMPLE_ID)?;
            Some(Record::Lost {
                cpu: word(bytes, identity + 16)?,
                count: long(bytes, HEADER + 8)?,
            })
        }
        _ => None,
    }
}

fn sample(bytes: &[u8], in_kernel: bool) -> Option<Sample<'_>> {
    let abi = word(bytes, 32)?;
    let mut at = 40;
    let mut registers = Vec::new();
    if abi != 0 {
        for _ in arch::SAMPLED {
            registers.push(long(bytes, at)?);
            at += 8;
        }
    }
    if abi != OWN_ABI {
        registers.clear();
    }
    let reserved = usize::try_from(long(bytes, at)?).ok()?;
    at += 8;
    let mut stack: &[u8] = &[];
    let mut is_cut = false;
    if reserved > 0 {
        let all = bytes.get(at..at.checked_add(reserved)?)?;
        let used = usize::try_from(long(bytes, at + reserved)?).ok()?;
        stack = all.get(..used)?;
        is_cut = used == reserved;
    }
    Some(Sample {
        pid: word(bytes, 8)?,
        tid: word(bytes, 12)?,
        time_ns: long(bytes, 16)?,
        cpu: word(bytes, 24)?,
        in_kernel,
        registers,
        stack,
        is_cut,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_events::record::size_of_record;

    /// A sample in kernel mode with 24 bytes for the stack, of which 16 are used.
    fn example() -> Vec<u8> {
        let mut bytes = SAMPLE.to_le_bytes().to_vec();
        bytes.extend(KERNEL_MODE.to_le_bytes());
        bytes.extend([0, 0]);
        for word in [100u32, 101, 7, 0, 3, 0, OWN_ABI, 0] {
            bytes.extend(word.to_le_bytes());
        }
        let registers = arch::SAMPLED.len() as u64;
        let stack = [0x1111, 0x2222, 0];
        let values = (0..registers).chain([24]);
        for value in values.chain(stack).chain([16]) {
            bytes.extend(value.to_le_bytes());
        }
        let size = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    #[test]
    fn a_sample_has_the_used_part_of_the_stack() {
        let bytes = example();
        assert_eq!(
            size_of_record(*bytes.first_chunk().unwrap()),
            Some(bytes.len())
        );
        let Some(Record::Sample(sample)) = parse(&bytes) else {
            panic!("{bytes:?}");
        };
        assert_eq!((sample.pid, sample.tid, sample.cpu), (100, 101, 3));
        assert_eq!(sample.time_ns, 7);
        assert!(sample.in_kernel && !sample.is_cut);
        assert_eq!(
            sample.registers.last(),
            Some(&(sample.registers.len() as u64 - 1))
        );
        assert_eq!(sample.stack.len(), 16);
        let mut full = bytes;
        let end = full.len();
        full[end - 8] = 24;
        let Some(Record::Sample(sample)) = parse(&full) else {
            panic!("{full:?}");
        };
        assert!(sample.is_cut && sample.stack.len() == 24);
    }

    #[test]
    fn lost_records_are_counted() {
        let mut bytes = LOST.to_le_bytes().to_vec();
        bytes.extend([0, 0, 48, 0]);
        for word in [9u32, 0, 12, 0, 100, 101, 5, 0, 3, 0] {
            bytes.extend(word.to_le_bytes());
        }
        assert_eq!(parse(&bytes), Some(Record::Lost { cpu: 3, count: 12 }));
    }

    /// No truncated or damaged record makes the parser panic.
    #[test]
    fn damaged_records() {
        let bytes = example();
        for end in 0..bytes.len() {
            let parsed = parse(&bytes[..end]);
            assert!(!matches!(parsed, Some(Record::Sample(_))), "{parsed:?}");
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let _ = parse(&bytes);
            }
        }
        assert_eq!(size_of_record([0; HEADER]), None);
    }
}
