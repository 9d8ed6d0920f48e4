//! Notifications that `unspool-stub` sends without stopping the target: `UnspoolThreads`,
//! `UnspoolTrace`, `UnspoolDropped`, `UnspoolMissed`, `UnspoolStood`, `UnspoolHalted` and others
//! (docs/reference/protocol.md).

use std::time::Duration;

use crate::packet;
use crate::samples::Samples;
use crate::schedule::{self, ScheduleRecord};
use crate::stop::StopReply;
use crate::trace::TraceFrame;

/// An event that the server reports by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A thread started or ended.
    Thread {
        /// The event.
        notice: ThreadNotice,
        /// The time at which the server sent it, on its monotonic clock in nanoseconds, if known.
        sent_ns: Option<u64>,
        /// Time since it arrived.
        since: Duration,
    },
    /// A tracepoint was hit.
    Frame(TraceFrame),
    /// From this point in the sequence on, hits of a tracepoint are missing, or no longer missing.
    Mark {
        /// The tracepoint's number.
        tracepoint: u32,
        /// The reason.
        mark: TraceMark,
    },
    /// The total number of hits of a tracepoint that were dropped for lack of buffer space.
    Dropped {
        /// The tracepoint's number.
        tracepoint: u32,
        /// The total number.
        count: u64,
    },
    /// A tracepoint was paused to limit overhead. All values are totals.
    Missed {
        /// The tracepoint's number.
        tracepoint: u32,
        /// Number of pauses.
        pauses: u64,
        /// Total duration of the pauses.
        paused: Duration,
        /// Estimated number of hits during the pauses.
        hits: u64,
    },
    /// Threads may have been delayed, because the server waited for a processor or for a client.
    Stood {
        /// Start, on the server's monotonic clock in nanoseconds.
        from_ns: u64,
        /// End, on the same clock.
        to_ns: u64,
        /// Time since it arrived.
        since: Duration,
    },
    /// All threads were stopped on behalf of one of the server's clients.
    Halted {
        /// Start, on the server's monotonic clock in nanoseconds.
        from_ns: u64,
        /// End, on the same clock.
        to_ns: u64,
        /// Time since it arrived.
        since: Duration,
    },
    /// Threads were stopped for less than a millisecond each time. All values are totals.
    ShortStops {
        /// Number of stops.
        count: u64,
        /// Total duration.
        total: Duration,
    },
    /// The kernel recorded when threads ran.
    Schedule {
        /// The records, in the order of their times.
        records: Vec<ScheduleRecord>,
        /// The server's monotonic clock when it sent this, in nanoseconds.
        sent_ns: u64,
        /// Time since it arrived.
        since: Duration,
    },
    /// The kernel recorded when threads ran of processes that the target created.
    Processes {
        /// The records, in the order of their times.
        records: Vec<ScheduleRecord>,
        /// The server's monotonic clock when it sent this, in nanoseconds.
        sent_ns: u64,
        /// Time since it arrived.
        since: Duration,
    },
    /// The kernel sampled threads that ran.
    Samples {
        /// The samples.
        samples: Samples,
        /// The server's monotonic clock when it sent this, in nanoseconds.
        sent_ns: u64,
        /// Time since it arrived.
        since: Duration,
    },
    /// For observers: a thread waits before it gets a signal that ends the process
    /// ([`Client::release`](crate::Client::release)).
    Fatal {
        /// The thread.
        tid: u64,
        /// The signal, as gdb's number.
        signal: u8,
    },
    /// For observers: a thread waits for a short time
    /// ([`Client::release`](crate::Client::release)).
    Held {
        /// The thread.
        tid: u64,
        /// The tracepoint's address. `None` if the process has called exec.
        at: Option<u64>,
    },
    /// For observers: the process executes this file.
    Executed(String),
    /// For observers: the controlling client changed.
    Control(Control),
    /// For observers: the process has ended, with the stop reply. `None` if it was detached.
    Ended(Option<StopReply>),
}

/// The reason why hits of a tracepoint are missing from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceMark {
    /// The tracepoint is paused.
    Paused,
    /// The tracepoint is active again, and no more hits are missing.
    Resumed,
    /// Hits were dropped here.
    Dropped,
}

/// The control of an observed target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Control {
    /// Another client controls it.
    Taken,
    /// No client controls it, and it runs.
    Free,
    /// No client controls it, and it is stopped until one does.
    Halted,
}

/// The variable number that marks frames use.
const MARK: u32 = u32::MAX;

impl TraceMark {
    fn of(value: i64) -> Option<TraceMark> {
        match value {
            0 => Some(TraceMark::Resumed),
            1 => Some(TraceMark::Paused),
            2 => Some(TraceMark::Dropped),
            _ => None,
        }
    }
}

impl Notice {
    /// Appends the notices in one notification that arrived `since` ago. Skips unknown entries.
    pub(crate) fn decode(
        payload: &[u8],
        registers: usize,
        since: Duration,
        notices: &mut Vec<Notice>,
    ) {
        if let Some(rest) = payload.strip_prefix(b"UnspoolTrace:") {
            let end = rest.iter().position(|byte| *byte == b';');
            let (now, frames) = rest.split_at(end.unwrap_or(rest.len()));
            let now = std::str::from_utf8(now).unwrap_or_default();
            let frames = packet::unescape(frames.get(1..).unwrap_or_default());
            let (Ok(now), Some(frames)) = (u64::from_str_radix(now, 16), frames) else {
                return;
            };
            let frames = TraceFrame::decode(&frames, registers).into_iter();
            notices.extend(frames.filter_map(|frame| {
                Some(match frame.variable(MARK) {
                    Some(mark) => Notice::Mark {
                        tracepoint: frame.tracepoint,
                        mark: TraceMark::of(mark)?,
                    },
                    None => Notice::Frame(TraceFrame {
                        sent_ns: now,
                        since,
                        ..frame
                    }),
                })
            }));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolSchedule:") {
            let decoded = schedule::decode(rest).into_iter();
            notices.extend(decoded.map(|(sent_ns, records)| Notice::Schedule {
                records,
                sent_ns,
                since,
            }));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolProcesses:") {
            let decoded = schedule::decode(rest).into_iter();
            notices.extend(decoded.map(|(sent_ns, records)| Notice::Processes {
                records,
                sent_ns,
                since,
            }));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolDropped:") {
            let text = std::str::from_utf8(rest).unwrap_or_default();
            notices.extend(text.split(';').filter_map(|entry| {
                let (number, count) = entry.split_once(',')?;
                Some(Notice::Dropped {
                    tracepoint: u32::from_str_radix(number, 16).ok()?,
                    count: u64::from_str_radix(count, 16).ok()?,
                })
            }));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolMissed:") {
            let text = std::str::from_utf8(rest).unwrap_or_default();
            notices.extend(text.split(';').filter_map(Notice::missed));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolStood:") {
            notices.extend(spans(rest).map(|(from_ns, to_ns)| Notice::Stood {
                from_ns,
                to_ns,
                since,
            }));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolHalted:") {
            notices.extend(spans(rest).map(|(from_ns, to_ns)| Notice::Halted {
                from_ns,
                to_ns,
                since,
            }));
        } else if let Some(rest) = payload.strip_prefix(b"UnspoolShortStops:") {
            notices.extend(spans(rest).map(|(count, ns)| Notice::ShortStops {
                count,
                total: Duration::from_nanos(ns),
            }));
        } else if let Some(notice) = Notice::of_observers(payload, notices) {
            notices.push(notice);
        } else {
            let sent_ns = ThreadNotice::sent(payload);
            let threads = ThreadNotice::decode(payload).into_iter();
            notices.extend(threads.map(|notice| Notice::Thread {
                notice,
                sent_ns,
                since,
            }));
        }
    }

    /// Decodes `N,PAUSES,NS,HITS`, hexadecimal.
    fn missed(entry: &str) -> Option<Notice> {
        let mut numbers = entry.split(',').map(|n| u64::from_str_radix(n, 16).ok());
        let mut next = || numbers.next().flatten();
        Some(Notice::Missed {
            tracepoint: u32::try_from(next()?).ok()?,
            pauses: next()?,
            paused: Duration::from_nanos(next()?),
            hits: next()?,
        })
    }
}

/// Decodes `NUMBER,NUMBER;...`, hexadecimal. Skips invalid entries.
fn spans(text: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let text = std::str::from_utf8(text).unwrap_or_default();
    text.split(';').filter_map(|entry| {
        let (from, to) = entry.split_once(',')?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some((number(from)?, number(to)?))
    })
}

impl Notice {
    /// Decodes notifications for observers. If several threads are held, appends all but the last
    /// to `notices` itself.
    fn of_observers(payload: &[u8], notices: &mut Vec<Notice>) -> Option<Notice> {
        let text = std::str::from_utf8(payload).ok()?;
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "UnspoolHeld" => {
                let number = |digits| u64::from_str_radix(digits, 16).ok();
                notices.extend(rest.split(';').filter_map(|entry| {
                    let (tid, at) = entry.split_once(',')?;
                    let at = Some(number(at)?).filter(|at| *at != 0);
                    Some(Notice::Held {
                        tid: number(tid)?,
                        at,
                    })
                }));
                notices.pop()
            }
            "UnspoolFatal" => {
                let (tid, signal) = rest.split_once(',')?;
                Some(Notice::Fatal {
                    tid: u64::from_str_radix(tid, 16).ok()?,
                    signal: u8::from_str_radix(signal, 16).ok()?,
                })
            }
            "UnspoolExec" => {
                let path = crate::hex::decode(rest.as_bytes())?;
                Some(Notice::Executed(
                    String::from_utf8_lossy(&path).into_owned(),
                ))
            }
            "UnspoolControl" => Some(Notice::Control(match rest {
                "taken" => Control::Taken,
                "free" => Control::Free,
                "halted" => Control::Halted,
                _ => return None,
            })),
            "UnspoolEnd" if rest == "D" => Some(Notice::Ended(None)),
            "UnspoolEnd" => StopReply::decode(rest.as_bytes()).map(|end| Notice::Ended(Some(end))),
            _ => None,
        }
    }
}

/// The start or the end of a thread, or another process that a thread starts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadNotice {
    /// A thread was created.
    Created {
        /// Its id.
        tid: u64,
        /// The thread that created it.
        creator: u64,
        /// Address of its thread-local data, if the server's kernel provides it.
        thread_pointer: Option<u64>,
        /// Time between the event and its notification.
        age: Duration,
    },
    /// A thread has ended.
    Exited {
        /// Its id.
        tid: u64,
        /// Its exit code.
        code: i64,
        /// Time between the event and its notification.
        age: Duration,
    },
    /// A thread was killed with its process.
    Killed {
        /// Its id.
        tid: u64,
        /// The signal that killed the process, in the target's own numbering; 0 if the process
        /// exited or executed another program.
        signal: u32,
        /// Time between the event and its notification.
        age: Duration,
    },
    /// A thread started another process.
    Started {
        /// The new process.
        pid: u64,
        /// The thread.
        creator: u64,
        /// Time between the event and its notification.
        age: Duration,
    },
    /// A process that was started before executed a file.
    Executed {
        /// The process.
        pid: u64,
        /// Path of the file.
        file: String,
        /// Time between the event and its notification.
        age: Duration,
    },
}

impl ThreadNotice {
    /// The time at which a notification was sent, on the server's monotonic clock: `tNOW`.
    pub(crate) fn sent(notification: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(notification).ok()?;
        let entries = text.strip_prefix("UnspoolThreads:")?;
        let mut clocks = entries
            .split(';')
            .filter_map(|entry| entry.strip_prefix('t'));
        u64::from_str_radix(clocks.next()?, 16).ok()
    }

    /// The notices in one notification. Skips invalid entries.
    pub(crate) fn decode(notification: &[u8]) -> Vec<ThreadNotice> {
        let text = std::str::from_utf8(notification).unwrap_or_default();
        let entries = text.strip_prefix("UnspoolThreads:").unwrap_or_default();
        entries.split(';').filter_map(ThreadNotice::entry).collect()
    }

    /// Decodes `cTID,CREATOR,[POINTER],AGE`, `xTID,CODE,AGE`, `kTID,SIGNAL,AGE`, `pPID,CREATOR,AGE`
    /// or `ePID,PATH,AGE`. All numbers are hexadecimal, and ages are in nanoseconds.
    fn entry(text: &str) -> Option<ThreadNotice> {
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let age = |digits: &str| number(digits).map(Duration::from_nanos);
        let fields: Vec<&str> = text.get(1..)?.split(',').collect();
        match (text.get(..1)?, fields.as_slice()) {
            ("c", [tid, creator, pointer, ago]) => Some(ThreadNotice::Created {
                tid: number(tid)?,
                creator: number(creator)?,
                thread_pointer: number(pointer),
                age: age(ago)?,
            }),
            ("x", [tid, code, ago]) => Some(ThreadNotice::Exited {
                tid: number(tid)?,
                // A C int.
                code: i64::from(u32::from_str_radix(code, 16).ok()?.cast_signed()),
                age: age(ago)?,
            }),
            ("k", [tid, signal, ago]) => Some(ThreadNotice::Killed {
                tid: number(tid)?,
                signal: u32::from_str_radix(signal, 16).ok()?,
                age: age(ago)?,
            }),
            ("p", [pid, creator, ago]) => Some(ThreadNotice::Started {
                pid: number(pid)?,
                creator: number(creator)?,
                age: age(ago)?,
            }),
            ("e", [pid, file, ago]) => Some(ThreadNotice::Executed {
                pid: number(pid)?,
                file: String::from_utf8_lossy(&crate::hex::decode(file.as_bytes())?).into_owned(),
                age: age(ago)?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices() {
        let ns = Duration::from_nanos;
        assert_eq!(
            ThreadNotice::decode(
                b"UnspoolThreads:t5f5;c1f,10,7f00,3e8;xa,ffffffff,1;c20,1f,,2;ka,b,3;p21,10,4;\
                  e21,2f62,5;e21,2,5"
            ),
            [
                ThreadNotice::Created {
                    tid: 0x1f,
                    creator: 0x10,
                    thread_pointer: Some(0x7f00),
                    age: ns(1000)
                },
                ThreadNotice::Exited {
                    tid: 10,
                    code: -1,
                    age: ns(1)
                },
                ThreadNotice::Created {
                    tid: 0x20,
                    creator: 0x1f,
                    thread_pointer: None,
                    age: ns(2)
                },
                ThreadNotice::Killed {
                    tid: 10,
                    signal: 11,
                    age: ns(3)
                },
                ThreadNotice::Started {
                    pid: 0x21,
                    creator: 0x10,
                    age: ns(4)
                },
                ThreadNotice::Executed {
                    pid: 0x21,
                    file: "/b".to_owned(),
                    age: ns(5)
                },
            ]
        );
    }

    #[test]
    fn when_it_was_sent() {
        assert_eq!(
            ThreadNotice::sent(b"UnspoolThreads:t5f5;xa,0,1"),
            Some(0x5f5)
        );
        assert_eq!(ThreadNotice::sent(b"UnspoolThreads:xa,0,1"), None);
        assert_eq!(ThreadNotice::sent(b"UnspoolThreads:t"), None);
    }

    #[test]
    fn marks_lie_among_frames() {
        // The number, the length, and one block: V, the variable in 4 bytes, the value in 8.
        let mark = |tracepoint: u8, value: u8| {
            let mut bytes = vec![tracepoint, 0, 13, 0, 0, 0, b'V', 0xff, 0xff, 0xff, 0xff];
            bytes.extend([value, 0, 0, 0, 0, 0, 0, 0]);
            bytes
        };
        let mut body = b"UnspoolTrace:3e8;".to_vec();
        for (tracepoint, value) in [(5, 1), (6, 2), (7, 9), (5, 0)] {
            body.extend(mark(tracepoint, value));
        }
        let mut notices = Vec::new();
        Notice::decode(&body, 0, Duration::ZERO, &mut notices);
        let mark = |tracepoint, mark| Notice::Mark { tracepoint, mark };
        let known = [
            mark(5, TraceMark::Paused),
            mark(6, TraceMark::Dropped),
            mark(5, TraceMark::Resumed),
        ];
        assert_eq!(notices, known);
    }

    #[test]
    fn pauses() {
        let mut notices = Vec::new();
        let body = b"UnspoolMissed:2,3,3e8,20;x;4,1;5,1,0,0";
        Notice::decode(body, 0, Duration::ZERO, &mut notices);
        let missed = |tracepoint, pauses, ns, hits| Notice::Missed {
            tracepoint,
            pauses,
            paused: Duration::from_nanos(ns),
            hits,
        };
        assert_eq!(notices, [missed(2, 3, 1000, 32), missed(5, 1, 0, 0)]);
    }

    #[test]
    fn standing() {
        let mut notices = Vec::new();
        let body = b"UnspoolStood:3e8,7d0;x;5;ff,100";
        Notice::decode(body, 0, Duration::ZERO, &mut notices);
        let stood = |from_ns, to_ns| Notice::Stood {
            from_ns,
            to_ns,
            since: Duration::ZERO,
        };
        assert_eq!(notices, [stood(1000, 2000), stood(255, 256)]);
        let mut notices = Vec::new();
        for body in [
            &b"UnspoolHalted:1,2;3"[..],
            b"UnspoolShortStops:a,3e8",
            b"UnspoolFatal:7b,0f",
            b"UnspoolFatal:7b",
        ] {
            Notice::decode(body, 0, Duration::ZERO, &mut notices);
        }
        let halted = Notice::Halted {
            from_ns: 1,
            to_ns: 2,
            since: Duration::ZERO,
        };
        let short = Notice::ShortStops {
            count: 10,
            total: Duration::from_micros(1),
        };
        let fatal = Notice::Fatal {
            tid: 123,
            signal: 15,
        };
        assert_eq!(notices, [halted, short, fatal]);
    }

    #[test]
    fn nonsense_is_left_out() {
        for text in [
            "",
            "Stop:T05",
            "UnspoolThreads:",
            "UnspoolThreads:c1;x;é1,2,3;y1,2,3",
        ] {
            assert_eq!(ThreadNotice::decode(text.as_bytes()), [], "{text}");
        }
    }
}
