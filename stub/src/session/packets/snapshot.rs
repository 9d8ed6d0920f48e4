//! `qUnspoolStacks`, `qUnspoolTimes` and `qUnspoolMemoryUsers`: data of the whole program in one
//! reply (docs/reference/protocol.md).

use std::fmt::Write;
use std::fs;

use nix::errno::Errno;

use crate::arch;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{PACKET_SIZE, escape, number};
use crate::sys::schedstat::Schedstat;
use crate::sys::{Tid, monotonic_ns, ptrace};
use crate::tracee::Tracee;

use super::Answer;

/// Maximum number of threads that are paused at the same time.
const BATCH_THREADS: usize = 16;
/// Maximum number of bytes that are read from one stack.
const MAX_STACK_BYTES: usize = 64 * 1024;

/// `qUnspoolStacks`: registers and stacks of threads. The stub pauses running threads in batches
/// and reports no stop.
///
/// `LENGTH;TID;TID...`. The reply is `b`, then for each thread, in this order and as long as there
/// is room:
///
/// ```text
/// thread id (4), size of registers (4), size of stack (4),
/// registers as in the g packet, stack from sp upward
/// ```
/// Numbers are little-endian, and the bytes have binary escapes. The registers include the general
/// ones and the thread pointer; others are zero, or missing at the end. A thread that the stub
/// cannot read has no registers.
pub(super) fn stacks(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.split(|byte| *byte == b';').map(number);
    let length = parts.next().flatten().and_then(|n| usize::try_from(n).ok());
    let tids: Option<Vec<Tid>> = parts.map(|tid| i32::try_from(tid?).ok().map(Tid)).collect();
    let (Some(length), Some(tids)) = (length, tids) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let mut stack = vec![0; length.min(MAX_STACK_BYTES)];
    // Every byte may need an escape.
    let room = PACKET_SIZE / 2 - 8;
    let largest = 12 + arch::layout().size + stack.len();
    let mut plain = Vec::with_capacity(room);
    for some in tids.chunks(BATCH_THREADS) {
        if plain.len() + some.len() * largest > room {
            // Take the rest one by one, as long as there is room.
            for tid in some {
                if !plain.is_empty() && plain.len() + largest > room {
                    return reply(&plain);
                }
                append_threads(tracee, &[*tid], &mut stack, &mut plain);
            }
            continue;
        }
        append_threads(tracee, some, &mut stack, &mut plain);
    }
    let _ = session;
    reply(&plain)
}

fn reply(plain: &[u8]) -> Answer {
    let mut reply = Vec::with_capacity(plain.len() + plain.len() / 16 + 1);
    reply.push(b'b');
    escape(plain, &mut reply);
    Answer::Reply(reply)
}

fn append_threads(tracee: &mut Tracee, tids: &[Tid], stack: &mut [u8], into: &mut Vec<u8>) {
    let interrupted = tracee.pause_threads(tids);
    for tid in tids {
        append_thread(tracee, *tid, stack, into);
    }
    tracee.unpause_threads(interrupted);
}

fn append_thread(tracee: &mut Tracee, tid: Tid, stack: &mut [u8], into: &mut Vec<u8>) {
    let layout = arch::layout();
    let start = into.len();
    into.extend_from_slice(&tid.0.to_le_bytes());
    into.extend_from_slice(&[0; 8]);
    let Some(stopped) = tracee.process.stopped(tid) else {
        return;
    };
    let wanted = |register: &&arch::Register| {
        register.place.set == 0 || Some(register.number) == arch::THREAD_POINTER
    };
    let registers = layout.registers.iter().filter(wanted);
    let ends = registers
        .clone()
        .map(|register| register.offset + register.size);
    let size = ends.max().unwrap_or(0);
    into.resize(start + 12 + size, 0);
    for register in registers {
        let at = start + 12 + register.offset;
        let value = &mut into[at..at + register.size];
        if stopped.register(register, value).is_err() {
            value.fill(0);
        }
    }
    let sp = stopped.sp();
    let known = sp.and_then(|sp| tracee.read_memory(sp, stack)).unwrap_or(0);
    into.extend_from_slice(&stack[..known]);
    into[start + 4..start + 8].copy_from_slice(&(size as u32).to_le_bytes());
    into[start + 8..start + 12].copy_from_slice(&(known as u32).to_le_bytes());
}

/// `qUnspoolTimes`: the times for which threads have run and waited for a processor, as the kernel
/// counts them.
///
/// `AFTER` selects threads with greater ids. The reply is `m` if there are more threads than fit,
/// else `l`, then the current time, then `;TID,ON-CPU,RUNNABLE` for each thread. It is an error if
/// the kernel does not count these times.
pub(super) fn times(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(after) = number(rest).and_then(|after| i32::try_from(after).ok()) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let process = tracee.process.pid();
    let tasks = format!("/proc/{process}/task");
    let Ok(entries) = fs::read_dir(&tasks) else {
        return Answer::error(Errno::ESRCH);
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut tids: Vec<i32> = names.filter_map(|name| name.parse().ok()).collect();
    tids.retain(|tid| *tid > after);
    tids.sort_unstable();

    let mut reply = format!("l{:x}", monotonic_ns());
    for (at, tid) in tids.iter().enumerate() {
        let Some(stat) = Schedstat::of_thread(process, Tid(*tid)) else {
            match fs::exists(format!("{tasks}/{tid}")) {
                // The kernel has no such files.
                Ok(true) => return Answer::error(Errno::ENOSYS),
                _ => continue,
            }
        };
        let Schedstat {
            ran_ns, waited_ns, ..
        } = stat;
        let _ = write!(reply, ";{tid:x},{ran_ns:x},{waited_ns:x}");
        if reply.len() > PACKET_SIZE - 64 && at + 1 < tids.len() {
            reply.replace_range(..1, "m");
            break;
        }
    }
    Answer::Reply(reply.into_bytes())
}

/// `qUnspoolMemoryUsers`: the other processes that run in the program's memory.
///
/// The reply is `l`, then `PID;` for each. It is an error if the kernel cannot compare memory.
pub(super) fn memory_users(_: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let own = tracee.process.pid();
    // A first thread that has ended before the others has no memory.
    let thread = tracee.process.tids().next().unwrap_or(own);
    if ptrace::same_memory(thread, thread).is_none() {
        return Answer::error(Errno::ENOSYS);
    }
    let Ok(entries) = fs::read_dir("/proc") else {
        return Answer::error(Errno::ENOSYS);
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = names.filter_map(|name| name.parse().ok().map(Tid));
    let mut reply = "l".to_owned();
    for pid in pids.filter(|pid| *pid != own) {
        // The kernel refuses to compare processes that the stub may not trace.
        if ptrace::same_memory(thread, pid) == Some(true) && reply.len() < PACKET_SIZE - 64 {
            let _ = write!(reply, "{:x};", pid.0);
        }
    }
    Answer::Reply(reply.into_bytes())
}
