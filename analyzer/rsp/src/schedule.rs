//! The kernel's schedule of threads, from `unspool-stub`'s notifications `UnspoolSchedule` (the
//! target's) and `UnspoolProcesses` (those of the processes that it created)
//! (docs/reference/protocol.md).

use crate::compact::{self, Compact};

/// A scheduling event of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Time of the event, on the server's monotonic clock in nanoseconds.
    pub server_ns: u64,
    /// The thread.
    pub tid: u64,
    /// The processor.
    pub cpu: u32,
    /// The kind of event.
    pub event: ScheduleEvent,
}

/// The kinds of [`ScheduleRecord`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleEvent {
    /// The thread runs from now on.
    Runs,
    /// The thread is blocked from now on.
    Blocks {
        /// The place at which it is blocked; `None` if the server does not record places.
        place: Option<Box<BlockPlace>>,
    },
    /// Another thread takes the processor; this one can still run.
    Preempted,
    /// The thread was created.
    Created {
        /// The creating thread.
        creator: u64,
    },
    /// The thread has ended.
    Ended,
    /// The thread's new name.
    Named(String),
    /// The thread was woken, and can run.
    Woken {
        /// The waking thread; none if an interrupt woke it.
        waker: Option<u64>,
    },
    /// Records of this processor are missing.
    Lost {
        /// The number of missing records.
        count: u64,
        /// Start of the gap, on the server's clock.
        since_ns: u64,
    },
    /// The thread is the first one of a new process.
    ProcessCreated {
        /// The thread that created the process.
        creator: u64,
    },
    /// The process executed a program, and its only thread has this name now.
    Executed(String),
    /// The thread's process has mapped a file as code.
    Mapped(Box<CodeMapping>),
    /// The thread was created with this stack of its creator.
    CreatedAt(Box<CreationStack>),
    /// The thread existed when the recording started.
    Found {
        /// The kernel's letter for its state (proc(5)).
        state: u8,
    },
}

/// A file that is mapped as code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMapping {
    /// Its address in the process.
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// The file's inode number; 0 if the build-id is known instead.
    pub inode: u64,
    /// The file's build-id; empty if it has none, or the server does not know it.
    pub build_id: Vec<u8>,
    /// The path on the target.
    pub path: String,
}

/// The state of a thread that has just created another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreationStack {
    /// The general registers, as the start of a `g` packet.
    pub registers: Vec<u8>,
    /// The stack pointer.
    pub sp: u64,
    /// The stack, from the stack pointer upward.
    pub stack: Vec<u8>,
}

/// The registers of a thread that is blocked. Where it is not in a system call, only the program
/// counter has a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockPlace {
    /// The program counter, behind the system call's instruction.
    pub pc: u64,
    /// The number of the system call; none if no register has it.
    pub number: Option<u64>,
    /// The first two arguments.
    pub args: [u64; 2],
    /// The link register, if the record has it.
    pub link: Option<u64>,
    /// The words of the stack from the stack pointer upward, up to the last one that is known.
    /// `None` if a word is not known, or is neither the number of a system call nor an address.
    pub stack: Vec<Option<u64>>,
}

/// Decodes a notification's body after its name. Returns its time on the server's
/// monotonic clock, and the records up to the first unknown one.
pub(crate) fn decode(body: &[u8]) -> Option<(u64, Vec<ScheduleRecord>)> {
    let (now_ns, bytes) = compact::body(body)?;
    let mut bytes = Compact(&bytes);
    let mut records = Vec::new();
    let mut time_ns = 0u64;
    while let Some(record) = bytes.record(&mut time_ns) {
        records.push(record);
    }
    Some((now_ns, records))
}

impl Compact<'_> {
    fn record(&mut self, time_ns: &mut u64) -> Option<ScheduleRecord> {
        let kind = self.byte()?;
        *time_ns = time_ns.wrapping_add(self.change()?);
        let server_ns = *time_ns;
        let tid = self.number()?;
        let cpu = u32::try_from(self.number()?).ok()?;
        let event = match kind {
            0 => ScheduleEvent::Runs,
            1 => ScheduleEvent::Blocks { place: None },
            2 => ScheduleEvent::Preempted,
            3 => ScheduleEvent::Created {
                creator: self.number()?,
            },
            4 => ScheduleEvent::Ended,
            5 => ScheduleEvent::Named(self.name()?),
            6 => ScheduleEvent::Woken {
                waker: Some(self.number()?).filter(|waker| *waker != 0),
            },
            7 => ScheduleEvent::Lost {
                count: self.number()?,
                since_ns: server_ns.saturating_sub(self.number()?),
            },
            8 => ScheduleEvent::Found {
                state: self.byte()?,
            },
            9 => ScheduleEvent::Blocks {
                place: Some(Box::new(self.block_place()?)),
            },
            10 | 16 => {
                let mut place = self.block_place()?;
                if kind == 16 {
                    place.link = Some(self.number()?);
                }
                let mask = self.number()?;
                for index in 0..u64::BITS - mask.leading_zeros() {
                    let word = match mask >> index & 1 {
                        0 => None,
                        _ => Some(self.number()?),
                    };
                    place.stack.push(word);
                }
                ScheduleEvent::Blocks {
                    place: Some(Box::new(place)),
                }
            }
            11 => ScheduleEvent::ProcessCreated {
                creator: self.number()?,
            },
            12 => ScheduleEvent::Executed(self.name()?),
            13 | 15 => {
                let (address, length) = (self.number()?, self.number()?);
                let offset = self.number()?;
                let (inode, build_id) = match kind {
                    13 => (self.number()?, Vec::new()),
                    _ => (0, self.counted()?.to_vec()),
                };
                ScheduleEvent::Mapped(Box::new(CodeMapping {
                    address,
                    length,
                    offset,
                    inode,
                    build_id,
                    path: self.name()?,
                }))
            }
            14 => ScheduleEvent::CreatedAt(Box::new(CreationStack {
                registers: self.counted()?.to_vec(),
                sp: self.number()?,
                stack: self.counted()?.to_vec(),
            })),
            // The length of a newer server's record is unknown.
            _ => return None,
        };
        Some(ScheduleRecord {
            server_ns,
            tid,
            cpu,
            event,
        })
    }

    fn name(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.counted()?).into_owned())
    }

    /// A length and that many bytes.
    fn counted(&mut self) -> Option<&[u8]> {
        let length = self.length()?;
        self.bytes(length)
    }

    fn block_place(&mut self) -> Option<BlockPlace> {
        Some(BlockPlace {
            pc: self.number()?,
            number: self.number()?.checked_sub(1),
            args: [self.number()?, self.number()?],
            link: None,
            stack: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same bytes as in the stub's test of its encoder.
    const BODY: &[&[u8]] = &[
        b"1f;",
        &[0, 0xd8, 4, 5, 1],
        &[2, 1, 5, 1],
        &[3, 0, 6, 1, 5],
        &[5, 0, 6, 1, 2, b'a', b'b'],
        &[6, 4, 6, 1, 0],
        &[7, 0, 0, 1, 9, 0xac, 2],
        &[8, 0, 6, 1, b'S'],
        &[9, 0, 6, 1, 0x81, 2, 8, 3, 0],
        &[10, 0, 6, 1, 0x81, 2, 8, 3, 0, 0b1010_0100, 4, 0xac, 2, 0, 1],
        &[
            16,
            0,
            6,
            1,
            0x81,
            2,
            8,
            3,
            0,
            0xac,
            2,
            0b1010_0100,
            4,
            0xac,
            2,
            0,
            1,
        ],
        &[16, 0, 6, 1, 0x81, 2, 8, 3, 0, 0xac, 2, 0],
        &[11, 0, 7, 1, 5],
        &[12, 0, 7, 1, 2, b'a', b'b'],
        &[13, 0, 7, 1, 0xac, 2, 7, 0, 9, 2, b'/', b'a'],
        &[14, 0, 8, 1, 2, 6, 0, 0xac, 2, 3, 4, 5, 6],
        &[15, 0, 7, 1, 0xac, 2, 7, 0, 2, 5, 6, 2, b'/', b'a'],
    ];

    #[test]
    fn records() {
        let record = |server_ns, tid, event| ScheduleRecord {
            server_ns,
            tid,
            cpu: 1,
            event,
        };
        let place = BlockPlace {
            pc: 257,
            number: Some(7),
            args: [3, 0],
            link: None,
            stack: Vec::new(),
        };
        let mut stack = vec![None; 10];
        (stack[2], stack[5], stack[9]) = (Some(300), Some(0), Some(1));
        let with = |link, stack| BlockPlace {
            link,
            stack,
            ..place.clone()
        };
        let blocks = |place| ScheduleEvent::Blocks {
            place: Some(Box::new(place)),
        };
        let mapping = CodeMapping {
            address: 300,
            length: 7,
            offset: 0,
            inode: 9,
            build_id: Vec::new(),
            path: "/a".into(),
        };
        let mut with_id = mapping.clone();
        (with_id.inode, with_id.build_id) = (0, vec![5, 6]);
        let creation = CreationStack {
            registers: vec![6, 0],
            sp: 300,
            stack: vec![4, 5, 6],
        };
        let expected = [
            record(300, 5, ScheduleEvent::Runs),
            record(299, 5, ScheduleEvent::Preempted),
            record(299, 6, ScheduleEvent::Created { creator: 5 }),
            record(299, 6, ScheduleEvent::Named("ab".into())),
            record(301, 6, ScheduleEvent::Woken { waker: None }),
            record(
                301,
                0,
                ScheduleEvent::Lost {
                    count: 9,
                    since_ns: 1,
                },
            ),
            record(301, 6, ScheduleEvent::Found { state: b'S' }),
            record(301, 6, blocks(place.clone())),
            record(301, 6, blocks(with(None, stack.clone()))),
            record(301, 6, blocks(with(Some(300), stack))),
            record(301, 6, blocks(with(Some(300), Vec::new()))),
            record(301, 7, ScheduleEvent::ProcessCreated { creator: 5 }),
            record(301, 7, ScheduleEvent::Executed("ab".into())),
            record(301, 7, ScheduleEvent::Mapped(Box::new(mapping))),
            record(301, 8, ScheduleEvent::CreatedAt(Box::new(creation))),
            record(301, 7, ScheduleEvent::Mapped(Box::new(with_id))),
        ];
        assert_eq!(decode(&BODY.concat()), Some((0x1f, expected.to_vec())));
    }

    /// A body cut at any place gives the complete records before the cut, without a panic.
    #[test]
    fn damage() {
        let body = BODY.concat();
        let mut whole = 3;
        let mut ends = vec![whole];
        for part in &BODY[1..] {
            whole += part.len();
            ends.push(whole);
        }
        for end in 3..=body.len() {
            let (_, records) = decode(&body[..end]).unwrap();
            let count = ends.iter().filter(|at| **at <= end).count() - 1;
            assert_eq!(records.len(), count, "{end}");
        }
        for end in 0..3 {
            assert_eq!(decode(&body[..end]), None);
        }
        for at in 0..body.len() {
            for byte in 0..=u8::MAX {
                let mut body = body.clone();
                body[at] = byte;
                let _ = decode(&body);
            }
        }
        // A number without an end, and a name longer than the body.
        assert_eq!(
            decode(&[b"1;", &[0xff; 40][..]].concat()),
            Some((1, vec![]))
        );
        assert_eq!(
            decode(b"1;\x05\0\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            Some((1, vec![]))
        );
    }
}
