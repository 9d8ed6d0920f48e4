//! Parses records of the kernel's perf events. Pure functions, separate from the ring buffers.
//!
//! The layout is `enum perf_event_type` in the kernel's `include/uapi/linux/perf_event.h`. Samples
//! have the fields TID, TIME and CPU, and then RAW for a wake-up, or REGS_USER and perhaps
//! STACK_USER for a thread that stops running. All other records end with TID, TIME and CPU.

use crate::arch::{BLOCKED, STACK_WORDS, Word, may_return_to};
use crate::thread_events::record::{
    HEADER, LAST_ABI, LOST, OWN_ABI, SAMPLE, SAMPLE_ID, long, misc, word,
};

/// Record types, `PERF_RECORD_*`.
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
const SWITCH: u32 = 14;

/// Bits of a record's `misc` field, `PERF_RECORD_MISC_*`.
const MMAP_DATA: u16 = 1 << 13;
const COMM_EXEC: u16 = 1 << 13;
const MMAP_BUILD_ID: u16 = 1 << 14;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// Trace entry flags for entries made in an interrupt (`TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ`).
const IN_INTERRUPT: u8 = 0x08 | 0x10;

/// Something that happened to a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Time of the event, by the monotonic clock.
    pub(crate) time_ns: u64,
    /// The thread; 0 for lost records.
    pub(crate) tid: u32,
    /// The processor on which the kernel recorded the event.
    pub(crate) cpu: u32,
    /// The kind of event.
    pub(crate) event: Event,
}

/// The kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The thread began to run.
    SwitchIn,
    /// The thread stopped running at this place. `preempted`: it was still runnable.
    SwitchOut {
        preempted: bool,
        place: Option<Box<Place>>,
    },
    /// The thread was created by `creator`.
    Fork { creator: u32 },
    /// The thread has ended.
    Exit,
    /// The thread took this name.
    Name(Vec<u8>),
    /// The thread is the first one of a new process. `creator` created it.
    Process { creator: u32 },
    /// The process executed a program, and its only thread took this name.
    Exec(Vec<u8>),
    /// The process has mapped a file as code.
    Mapping(Box<Mapping>),
    /// The creator of the thread, at that moment.
    Creation(Box<CreationStack>),
    /// `waker` woke the thread. `None` if an interrupt did.
    Waking { waker: Option<u32> },
    /// The kernel dropped `count` records of this processor between `since_ns` and this record's
    /// time.
    Lost { count: u64, since_ns: u64 },
    /// The state of a thread that existed before the recording: the kernel's letter.
    State(u8),
}

/// A file that is mapped as code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// The offset in the file.
    pub(crate) offset: u64,
    /// 0 if the build-id is known instead.
    pub(crate) inode: u64,
    /// Empty if the file has none, or the kernel does not know it.
    pub(crate) build_id: Vec<u8>,
    pub(crate) path: Vec<u8>,
}

/// The user-mode state of a thread that has created another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreationStack {
    /// The registers as the start of a `g` packet.
    pub(crate) registers: Vec<u8>,
    pub(crate) sp: u64,
    /// The stack from the stack pointer upward.
    pub(crate) stack: Vec<u8>,
}

/// The user-mode registers of a thread that is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) pc: u64,
    /// The number of the system call, where a register has it.
    pub(crate) number: Option<u64>,
    /// The first two arguments of the system call.
    pub(crate) args: [u64; 2],
    /// The link register, where the function that makes the call may keep its return address.
    pub(crate) link: Option<u64>,
    /// The words of the stack from the stack pointer upward. `None` if a word is not known, or is
    /// neither the number of a system call nor an address.
    pub(crate) stack: [Option<u64>; STACK_WORDS],
}

/// Whether a stack word may be the number of a system call, or an address to which a function
/// returns.
fn may_show_call(word: u64) -> bool {
    const MAX_NUMBER: u64 = 0xfff;
    BLOCKED.number.is_none() && word <= MAX_NUMBER || may_return_to(word)
}

/// A parsed record of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The process is 0 where the record does not have it: at wake-ups and lost records.
    Record(u32, Record),
    /// The place of the thread that stops running on the record's processor. The record of that
    /// follows.
    Stopping(u32, Box<Place>),
}

/// Position of the woken thread's id in a sample of `sched_waking`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakingFormat {
    pub(super) offset: usize,
}

/// Parses one complete record. Returns `None` for other kinds and for malformed records.
pub(super) fn parse(bytes: &[u8], waking: Option<WakingFormat>) -> Option<Parsed> {
    let kind = word(bytes, 0)?;
    let misc = misc(bytes)?;
    if kind == SAMPLE {
        // In samples of wake-ups, this word is the size of RAW, which is larger than any ABI.
        return match word(bytes, 32)? {
            OWN_ABI => stopping(bytes),
            abi if abi <= LAST_ABI => None,
            _ => wake_up(bytes, waking?).map(|record| Parsed::Record(0, record)),
        };
    }
    let identity = bytes
        .len()
        .checked_sub(SAMPLE_ID)
        .filter(|at| *at >= HEADER)?;
    let body = bytes.get(HEADER..identity)?;
    let (pid, tid) = (word(bytes, identity)?, word(bytes, identity + 4)?);
    let time_ns = long(bytes, identity + 8)?;
    let cpu = word(bytes, identity + 16)?;
    let record = |tid, event| Record {
        time_ns,
        tid,
        cpu,
        event,
    };
    let record = match kind {
        LOST => {
            let count = long(body, 8)?;
            let since_ns = time_ns;
            Parsed::Record(0, record(0, Event::Lost { count, since_ns }))
        }
        SWITCH => {
            let event = match misc & SWITCH_OUT {
                0 => Event::SwitchIn,
                _ => Event::SwitchOut {
                    preempted: misc & SWITCH_OUT_PREEMPT != 0,
                    place: None,
                },
            };
            Parsed::Record(pid, record(tid, event))
        }
        // Fields: the process, the creator's process, the thread, the creator.
        FORK => {
            let (process, creator) = (word(body, 0)?, word(body, 12)?);
            let event = match word(body, 4)? == process {
                true => Event::Fork { creator },
                false => Event::Process { creator },
            };
            Parsed::Record(process, record(word(body, 8)?, event))
        }
        EXIT => Parsed::Record(word(body, 0)?, record(word(body, 8)?, Event::Exit)),
        COMM => {
            let name = body.get(8..)?.split(|byte| *byte == 0).next()?.to_vec();
            let event = match misc & COMM_EXEC {
                0 => Event::Name(name),
                _ => Event::Exec(name),
            };
            Parsed::Record(word(body, 0)?, record(word(body, 4)?, event))
        }
        // Fields: the process, the thread, the address, the length, the offset, the device (8
        // bytes), the inode and its generation, or instead of these three the size of the build-id
        // (4 bytes) and the build-id (20 bytes), protection and flags (4 bytes each), the path.
        MMAP2 if misc & MMAP_DATA == 0 => {
            let path = body.get(64..)?.split(|byte| *byte == 0).next()?.to_vec();
            // Memory without a file has a name such as `//anon` or `[vdso]`.
            (path.starts_with(b"/") && !path.starts_with(b"//")).then_some(())?;
            let (inode, build_id) = match misc & MMAP_BUILD_ID {
                0 => (long(body, 40)?, Vec::new()),
                _ => {
                    let size = usize::from(*body.get(32)?);
                    (0, body.get(36..56)?.get(..size)?.to_vec())
                }
            };
            let mapping = Mapping {
                address: long(body, 8)?,
                length: long(body, 16)?,
                offset: long(body, 24)?,
                inode,
                build_id,
                path,
            };
            let event = Event::Mapping(Box::new(mapping));
            Parsed::Record(word(body, 0)?, record(word(body, 4)?, event))
        }
        _ => return None,
    };
    Some(record)
}

/// The size of the stack in samples of threads that stop running, in bytes.
pub(super) const STACK_SIZE: usize = size_of::<Word>() * STACK_WORDS;

/// Parses the registers of a thread that stops running.
fn stopping(bytes: &[u8]) -> Option<Parsed> {
    let register = |index: usize| long(bytes, 40 + 8 * index);
    let number = BLOCKED.number.and_then(register);
    // The size of the stack, the stack, and how many bytes of it are valid.
    let size_at = 40 + 8 * BLOCKED.bits.len();
    let stack_at = size_at + 8;
    let size = match number.is_none_or(|number| BLOCKED.futex.contains(&number)) {
        true => long(bytes, size_at).unwrap_or(0).min(STACK_SIZE as u64) as usize,
        false => 0,
    };
    let valid = long(bytes, stack_at + size).unwrap_or(0).min(size as u64) as usize;
    let mut stack = [None; STACK_WORDS];
    let words = bytes.get(stack_at..stack_at + valid).unwrap_or_default();
    for (known, bytes) in stack.iter_mut().zip(words.chunks(size_of::<Word>())) {
        let word = match size_of::<Word>() {
            4 => word(bytes, 0).map(u64::from),
            _ => long(bytes, 0),
        };
        *known = word.filter(|word| may_show_call(*word));
    }
    let place = Place {
        pc: register(BLOCKED.pc)?,
        number,
        args: [register(BLOCKED.args[0])?, register(BLOCKED.args[1])?],
        link: BLOCKED.link.and_then(register).filter(|_| size > 0),
        stack,
    };
    Some(Parsed::Stopping(word(bytes, 12)?, Box::new(place)))
}

/// Parses a wake-up; the woken thread may belong to another process.
fn wake_up(bytes: &[u8], waking: WakingFormat) -> Option<Record> {
    let waker = word(bytes, 12)?;
    let raw_size = word(bytes, 32)? as usize;
    let raw = bytes.get(36..36usize.checked_add(raw_size)?)?;
    let in_interrupt = raw.get(2)? & IN_INTERRUPT != 0;
    Some(Record {
        time_ns: long(bytes, 16)?,
        tid: word(raw, waking.offset)?,
        cpu: word(bytes, 24)?,
        event: Event::Waking {
            waker: (!in_interrupt && waker != 0).then_some(waker),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_events::record::size_of_record;

    const PROCESS: u32 = 100;
    const FORMAT: WakingFormat = WakingFormat { offset: 24 };

    /// A record with this body, of thread 101 at 5 ns on processor 3.
    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = (HEADER + body.len() + SAMPLE_ID) as u16;
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(body);
        bytes.extend(words(&[PROCESS, 101, 5, 0, 3, 0]));
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A wake-up of thread 102 by thread 101 at 7 ns.
    fn waking(flags: u8) -> Vec<u8> {
        let mut raw = vec![1, 0, flags, 0];
        raw.extend(words(&[101]));
        raw.extend(*b"sleeper\0\0\0\0\0\0\0\0\0");
        raw.extend(words(&[102, 120, 1]));
        let mut bytes = words(&[SAMPLE, 0]);
        bytes.extend(words(&[PROCESS, 101, 7, 0, 2, 0, raw.len() as u32]));
        bytes.extend(raw);
        let size = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    fn parsed(bytes: &[u8]) -> Option<(u32, Event)> {
        match parse(bytes, Some(FORMAT))? {
            Parsed::Record(_, record) => Some((record.tid, record.event)),
            Parsed::Stopping(..) => None,
        }
    }

    /// The values of the registers are 0x1000, 0x1001 and so on, but the number is that of a futex
    /// call.
    fn value(index: usize) -> u64 {
        match BLOCKED.number {
            Some(number) if number == index => BLOCKED.futex[0],
            _ => 0x1000 + index as u64,
        }
    }

    /// Thread 101 stops running.
    fn stopping(abi: u32, stack: &[Word], valid: usize) -> Vec<u8> {
        let mut bytes = words(&[SAMPLE, 0, PROCESS, 101, 7, 0, 2, 0, abi, 0]);
        let registers = (0..BLOCKED.bits.len()).map(value);
        bytes.extend(registers.flat_map(u64::to_le_bytes));
        if !stack.is_empty() {
            bytes.extend((size_of_val(stack) as u64).to_le_bytes());
            bytes.extend(stack.iter().flat_map(|word| word.to_le_bytes()));
            bytes.extend(((valid * size_of::<Word>()) as u64).to_le_bytes());
        }
        let size = bytes.len() as u16;
        bytes[6..8].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    #[test]
    fn mapped_files_with_build_ids() {
        let mut body = words(&[PROCESS, 101]);
        for long in [0x1000u64, 0x2000, 0x3000] {
            body.extend(long.to_le_bytes());
        }
        body.extend([2, 0, 0, 0, 5, 6]);
        body.resize(64, 0);
        body.extend(*b"/lib/a\0\0");
        let mapping = |misc| match parsed(&record(MMAP2, misc, &body)) {
            Some((101, Event::Mapping(mapping))) => *mapping,
            other => panic!("{other:?}"),
        };
        let seen = mapping(MMAP_BUILD_ID);
        assert_eq!(
            (seen.address, seen.length, seen.offset),
            (0x1000, 0x2000, 0x3000)
        );
        assert_eq!(
            (seen.inode, &*seen.build_id, &*seen.path),
            (0, &[5, 6][..], &b"/lib/a"[..])
        );
        assert!(mapping(0).build_id.is_empty());
    }

    #[test]
    fn places_of_stopping_threads() {
        let place = Place {
            pc: value(BLOCKED.pc),
            number: BLOCKED.number.map(value),
            args: BLOCKED.args.map(value),
            link: None,
            stack: [None; STACK_WORDS],
        };
        let bare = |abi| stopping(abi, &[], 0);
        let seen = parse(&bare(OWN_ABI), Some(FORMAT));
        assert_eq!(seen, Some(Parsed::Stopping(101, Box::new(place))));
        assert_eq!(parse(&bare(OWN_ABI), None), seen, "without wake-ups");
        for abi in (0..=LAST_ABI).filter(|abi| *abi != OWN_ABI) {
            assert_eq!(parse(&bare(abi), None), None, "{abi}");
        }
        let bytes = bare(OWN_ABI);
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes[..end], None), None);
        }
    }

    #[test]
    fn stack_words_of_stopping_threads() {
        let words = |bytes: &[u8]| match parse(bytes, None) {
            Some(Parsed::Stopping(101, place)) => (place.link, place.stack),
            other => panic!("{other:?}"),
        };
        let known = |first: &[Option<u64>]| {
            let mut all = [None; STACK_WORDS];
            all[..first.len()].copy_from_slice(first);
            (BLOCKED.link.map(value), all)
        };
        // 0x1000 and the last one are neither numbers nor addresses.
        let stack = [0x1234_5678, 7, 0x1000, Word::MAX, 0xfff];
        let number = |number| Some(number).filter(|_| BLOCKED.number.is_none());
        let all = [Some(0x1234_5678), number(7), None, None, number(0xfff)];
        assert_eq!(words(&stopping(OWN_ABI, &stack, 5)), known(&all));
        // The stack ends after two words.
        let two = known(&all[..2]);
        assert_eq!(words(&stopping(OWN_ABI, &stack, 2)), two);
        assert_eq!(words(&stopping(OWN_ABI, &stack[..2], 2)), two);
        assert_eq!(words(&stopping(OWN_ABI, &stack[..2], 99)), two);
        if let Some(number) = BLOCKED.number {
            let mut other = stopping(OWN_ABI, &stack, 5);
            other[40 + 8 * number..][..8].copy_from_slice(&0xffu64.to_le_bytes());
            assert_eq!(words(&other), (None, [None; STACK_WORDS]), "not a futex");
        }
    }

    /// The bytes of a record, and the expected thread and event.
    type Case = (Vec<u8>, Option<(u32, Event)>);

    fn all() -> Vec<Case> {
        let out = |preempted| {
            let place = None;
            Some((101, Event::SwitchOut { preempted, place }))
        };
        let name = Event::Name(b"worker".to_vec());
        let lost = Event::Lost {
            count: 12,
            since_ns: 5,
        };
        vec![
            (record(SWITCH, 0, &[]), Some((101, Event::SwitchIn))),
            (record(SWITCH, SWITCH_OUT, &[]), out(false)),
            (
                record(SWITCH, SWITCH_OUT | SWITCH_OUT_PREEMPT, &[]),
                out(true),
            ),
            (
                record(FORK, 0, &words(&[PROCESS, PROCESS, 102, 101, 5, 0])),
                Some((102, Event::Fork { creator: 101 })),
            ),
            (
                record(FORK, 0, &words(&[200, PROCESS, 200, 101, 5, 0])),
                Some((200, Event::Process { creator: 101 })),
            ),
            (
                record(EXIT, 0, &words(&[PROCESS, PROCESS, 102, 102, 5, 0])),
                Some((102, Event::Exit)),
            ),
            (
                record(EXIT, 0, &words(&[200, 200, 200, 200, 5, 0])),
                Some((200, Event::Exit)),
            ),
            (
                record(
                    COMM,
                    0,
                    &[&words(&[PROCESS, 102])[..], b"worker\0\0"].concat(),
                ),
                Some((102, name)),
            ),
            (
                record(
                    COMM,
                    COMM_EXEC,
                    &[&words(&[200, 200])[..], b"tar\0\0\0\0\0"].concat(),
                ),
                Some((200, Event::Exec(b"tar".to_vec()))),
            ),
            (record(LOST, 0, &words(&[9, 0, 12, 0])), Some((0, lost))),
            (waking(0), Some((102, Event::Waking { waker: Some(101) }))),
            (waking(8), Some((102, Event::Waking { waker: None }))),
            (record(99, 0, &[]), None),
        ]
    }

    #[test]
    fn records_of_the_kernel() {
        for (bytes, expected) in all() {
            assert_eq!(
                size_of_record(*bytes.first_chunk().unwrap()),
                Some(bytes.len())
            );
            assert_eq!(parsed(&bytes), expected, "{bytes:x?}");
        }
        let record_of = |bytes: &[u8], process, format| match parse(bytes, format) {
            Some(Parsed::Record(of, record)) if of == process => record,
            other => panic!("{other:?}"),
        };
        let switch = record_of(&record(SWITCH, 0, &[]), PROCESS, None);
        assert_eq!((switch.time_ns, switch.cpu), (5, 3));
        let waking = record_of(&waking(0), 0, Some(FORMAT));
        assert_eq!((waking.time_ns, waking.cpu), (7, 2));
        let fork = record(FORK, 0, &words(&[200, PROCESS, 200, 101, 5, 0]));
        assert_eq!(record_of(&fork, 200, None).tid, 200);
    }

    /// Truncated records parse to nothing, and no damaged byte makes the parser panic.
    #[test]
    fn damaged_records() {
        for (bytes, expected) in all() {
            for end in 0..HEADER.min(bytes.len()) {
                assert_eq!(parsed(&bytes[..end]), None);
            }
            for end in 0..bytes.len() {
                parsed(&bytes[..end]);
            }
            let is_sample = bytes[0] == SAMPLE as u8;
            for at in 0..bytes.len() {
                for bit in 0..8 {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= 1 << bit;
                    let changed = parsed(&bytes);
                    // The last four bytes of a record are used in samples only.
                    if !is_sample && at >= bytes.len() - 4 {
                        assert_eq!(changed, expected);
                    }
                }
            }
        }
        assert_eq!(size_of_record([0; HEADER]), None);
        assert_eq!(size_of_record([0, 0, 0, 0, 0, 0, 7, 0]), None);
    }
}
