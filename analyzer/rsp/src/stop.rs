//! Stop replies: the reports of a resumed target (RSP, "Stop Reply Packets").

use crate::thread::ThreadId;

/// The reason why the target no longer runs, or an event of one of its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReply {
    /// `S`, `T`: a thread stopped, and with it (all-stop) all others.
    Stopped {
        /// gdb's signal number, see [`crate::signals`].
        signal: u8,
        /// The thread that stopped.
        thread: Option<ThreadId>,
        /// The reason for the stop.
        reason: StopReason,
        /// Expedited registers: number, and bytes in target byte order.
        registers: Vec<(u32, Vec<u8>)>,
        /// Expedited memory, as sent by LLDB's servers and `unspool-stub`: address and bytes.
        memory: Vec<(u64, Vec<u8>)>,
        /// The processor that ran the thread.
        core: Option<u32>,
    },
    /// `W`: the process exited.
    Exited {
        /// Its exit code.
        code: i32,
        /// The process, with `multiprocess`.
        pid: Option<u64>,
    },
    /// `X`: the process was killed by a signal.
    Terminated {
        /// gdb's signal number.
        signal: u8,
        /// The process, with `multiprocess`.
        pid: Option<u64>,
    },
    /// `w`: a thread exited (with `QThreadEvents` on).
    ThreadExited {
        /// Its exit code.
        code: i64,
        /// The thread.
        thread: ThreadId,
    },
    /// `N`: no resumed thread is left.
    NoThreadsLeft,
}

/// The reason for a thread's stop, from the named pairs of a `T` packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// No named pair: the signal is the reason.
    Signal,
    /// `swbreak`: a software breakpoint; the pc is already at its address.
    SwBreak,
    /// `hwbreak`: a hardware breakpoint.
    HwBreak,
    /// `watch`, `rwatch`, `awatch`.
    Watch {
        /// The data address.
        address: u64,
        /// The kind of watchpoint.
        kind: WatchKind,
    },
    /// `library`: the list of loaded libraries changed.
    Library,
    /// `fork`: the child.
    Fork(ThreadId),
    /// `vfork`: the child.
    VFork(ThreadId),
    /// `vforkdone`: the child of a vfork has called exec or exited.
    VForkDone,
    /// `exec`: path of the new program.
    Exec(String),
    /// `create`: the thread is new (with `QThreadEvents` on).
    ThreadCreated,
    /// `syscall_entry`: number of the system call.
    SyscallEntry(u64),
    /// `syscall_return`: number of the system call.
    SyscallReturn(u64),
    /// `replaylog`: the beginning or the end of an execution log.
    ReplayLog,
}

/// The kind of watchpoint that was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchKind {
    /// `watch`: written.
    Write,
    /// `rwatch`: read.
    Read,
    /// `awatch`: read or written.
    Access,
}

impl StopReply {
    /// The bytes of an expedited register, in target byte order.
    pub fn expedited(&self, number: u32) -> Option<&[u8]> {
        let StopReply::Stopped { registers, .. } = self else {
            return None;
        };
        let (_, bytes) = registers.iter().find(|(n, _)| *n == number)?;
        Some(bytes)
    }

    /// The thread of the stop reply.
    pub fn thread(&self) -> Option<ThreadId> {
        match self {
            StopReply::Stopped { thread, .. } => *thread,
            StopReply::ThreadExited { thread, .. } => Some(*thread),
            _ => None,
        }
    }

    /// Decodes a stop reply. `None` if it is another packet.
    pub fn decode(payload: &[u8]) -> Option<StopReply> {
        let text = std::str::from_utf8(payload).ok()?;
        let kind = text.chars().next()?;
        let rest = text.get(kind.len_utf8()..)?;
        match kind {
            'S' => Some(stopped(signal(rest)?)),
            'T' => Some(decode_pairs(signal(rest.get(..2)?)?, rest.get(2..)?)),
            'W' => {
                let (code, pid) = code_and_process(rest);
                Some(StopReply::Exited {
                    // Four bytes hold every exit code. A negative one is sent as its two's
                    // complement.
                    code: u32::try_from(crate::hex::number(code)?).ok()?.cast_signed(),
                    pid,
                })
            }
            'X' => {
                let (code, pid) = code_and_process(rest);
                Some(StopReply::Terminated {
                    signal: signal(code)?,
                    pid,
                })
            }
            'w' => {
                let (code, thread) = rest.split_once(';')?;
                Some(StopReply::ThreadExited {
                    code: crate::hex::number(code)?.cast_signed(),
                    thread: ThreadId::decode(thread)?,
                })
            }
            'N' if rest.is_empty() => Some(StopReply::NoThreadsLeft),
            _ => None,
        }
    }
}

fn signal(digits: &str) -> Option<u8> {
    crate::hex::number(digits)?.try_into().ok()
}

fn stopped(signal: u8) -> StopReply {
    StopReply::Stopped {
        signal,
        thread: None,
        reason: StopReason::Signal,
        registers: Vec::new(),
        memory: Vec::new(),
        core: None,
    }
}

/// Splits `AA;process:pid`; the second part is optional.
fn code_and_process(text: &str) -> (&str, Option<u64>) {
    match text.split_once(';') {
        Some((code, pair)) => (
            code,
            pair.strip_prefix("process:").and_then(crate::hex::number),
        ),
        None => (text, None),
    }
}

/// Decodes the `n:r` pairs of a `T` packet. "The client should ignore [a pair] that it does not
/// recognize" (RSP, "Stop Reply Packets"), so also one with an invalid value.
fn decode_pairs(signal: u8, pairs: &str) -> StopReply {
    let mut thread = None;
    let mut reason = StopReason::Signal;
    let mut registers = Vec::new();
    let mut memory = Vec::new();
    let mut core = None;
    for pair in pairs.split(';') {
        let Some((name, value)) = pair.split_once(':') else {
            continue;
        };
        if let Some(number) = crate::hex::number(name).and_then(|n| u32::try_from(n).ok()) {
            // `xxxx`: the value is unavailable.
            registers.extend(crate::hex::decode(value.as_bytes()).map(|bytes| (number, bytes)));
            continue;
        }
        match name {
            "thread" => thread = ThreadId::decode(value),
            "memory" => memory.extend(decode_memory(value)),
            "core" => core = crate::hex::number(value).and_then(|n| u32::try_from(n).ok()),
            name => {
                if let Some(named) = decode_reason(name, value) {
                    reason = named;
                }
            }
        }
    }
    StopReply::Stopped {
        signal,
        thread,
        reason,
        registers,
        memory,
        core,
    }
}

/// Decodes `0xADDRESS=BYTES` ("memory" in LLDB's "Stop Reply Packet Extensions").
fn decode_memory(value: &str) -> Option<(u64, Vec<u8>)> {
    let (address, bytes) = value.strip_prefix("0x")?.split_once('=')?;
    Some((
        crate::hex::number(address)?,
        crate::hex::decode(bytes.as_bytes())?,
    ))
}

fn decode_reason(name: &str, value: &str) -> Option<StopReason> {
    let watch = |kind| {
        let address = crate::hex::number(value)?;
        Some(StopReason::Watch { address, kind })
    };
    match name {
        "swbreak" => Some(StopReason::SwBreak),
        "hwbreak" => Some(StopReason::HwBreak),
        "watch" => watch(WatchKind::Write),
        "rwatch" => watch(WatchKind::Read),
        "awatch" => watch(WatchKind::Access),
        "library" => Some(StopReason::Library),
        "fork" => ThreadId::decode(value).map(StopReason::Fork),
        "vfork" => ThreadId::decode(value).map(StopReason::VFork),
        "vforkdone" => Some(StopReason::VForkDone),
        "exec" => {
            let path = crate::hex::decode(value.as_bytes())?;
            Some(StopReason::Exec(
                String::from_utf8_lossy(&path).into_owned(),
            ))
        }
        "create" => Some(StopReason::ThreadCreated),
        "syscall_entry" => crate::hex::number(value).map(StopReason::SyscallEntry),
        "syscall_return" => crate::hex::number(value).map(StopReason::SyscallReturn),
        "replaylog" => Some(StopReason::ReplayLog),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breakpoint_with_expedited_registers() {
        let reply = StopReply::decode(
            b"T05swbreak:;06:0000000000000000;07:20e0ffffff7f0000;10:xxxx;memory:0x7fffffffe020=0102;memory:zz;thread:p1f.2a;core:1;new:z;",
        )
        .unwrap();
        assert_eq!(
            reply,
            StopReply::Stopped {
                signal: 5,
                thread: Some(ThreadId::new(0x1f, 0x2a)),
                reason: StopReason::SwBreak,
                registers: vec![
                    (6, vec![0; 8]),
                    (7, vec![0x20, 0xe0, 0xff, 0xff, 0xff, 0x7f, 0, 0])
                ],
                memory: vec![(0x7fff_ffff_e020, vec![1, 2])],
                core: Some(1),
            }
        );
        assert_eq!(reply.expedited(6), Some(&[0; 8][..]));
        assert_eq!(reply.thread().unwrap().to_string(), "p1f.2a");
    }

    #[test]
    fn every_reason() {
        let child = ThreadId::new(2, 3);
        for (pair, expected) in [
            ("", StopReason::Signal),
            ("hwbreak:", StopReason::HwBreak),
            (
                "watch:7ff0",
                StopReason::Watch {
                    address: 0x7ff0,
                    kind: WatchKind::Write,
                },
            ),
            (
                "rwatch:1",
                StopReason::Watch {
                    address: 1,
                    kind: WatchKind::Read,
                },
            ),
            (
                "awatch:1",
                StopReason::Watch {
                    address: 1,
                    kind: WatchKind::Access,
                },
            ),
            ("library:1", StopReason::Library),
            ("fork:p2.3", StopReason::Fork(child)),
            ("vfork:p2.3", StopReason::VFork(child)),
            ("vforkdone:", StopReason::VForkDone),
            ("exec:2f62696e2f7368", StopReason::Exec("/bin/sh".into())),
            ("create:", StopReason::ThreadCreated),
            ("syscall_entry:e7", StopReason::SyscallEntry(0xe7)),
            ("syscall_return:e7", StopReason::SyscallReturn(0xe7)),
            ("replaylog:end", StopReason::ReplayLog),
            ("fork:-1", StopReason::Signal),
        ] {
            let reply = StopReply::decode(format!("T05{pair};").as_bytes()).unwrap();
            let StopReply::Stopped { reason, .. } = reply else {
                panic!("{reply:?}")
            };
            assert_eq!(reason, expected, "{pair}");
        }
    }

    #[test]
    fn ends() {
        let exited = |code, pid| Some(StopReply::Exited { code, pid });
        assert_eq!(StopReply::decode(b"W00"), exited(0, None));
        assert_eq!(StopReply::decode(b"W2a;process:1f"), exited(42, Some(0x1f)));
        assert_eq!(StopReply::decode(b"Wffffffff"), exited(-1, None));
        assert_eq!(
            StopReply::decode(b"X0b;process:1f"),
            Some(StopReply::Terminated {
                signal: 11,
                pid: Some(0x1f)
            })
        );
        assert_eq!(
            StopReply::decode(b"w7;p1.2"),
            Some(StopReply::ThreadExited {
                code: 7,
                thread: ThreadId::new(1, 2)
            })
        );
        assert_eq!(StopReply::decode(b"N"), Some(StopReply::NoThreadsLeft));
        assert_eq!(StopReply::decode(b"S05"), Some(stopped(5)));
    }

    #[test]
    fn what_is_none() {
        for payload in [
            &b""[..],
            b"T",
            b"T0",
            b"Tzz",
            b"S",
            b"Sxyz",
            b"W",
            b"OK",
            b"E01",
            b"w1",
            b"\xff",
            b"S\xc3\xa9",
        ] {
            assert_eq!(
                StopReply::decode(payload),
                None,
                "{}",
                payload.escape_ascii()
            );
        }
        for seed in 1..500 {
            let mut noise = crate::packet::tests::noise(seed, 40);
            noise
                .iter_mut()
                .for_each(|b| *b = b"T05;:pthread.1xS W"[usize::from(*b) % 18]);
            let _ = StopReply::decode(&[b"T05", &noise[..]].concat());
        }
    }
}
