//! Reads from `/proc` what threads do in the kernel, without stopping them.
//!
//! This shows what the holder of a lock waits for. If a thread has not run between two samples,
//! it is read once, and again only after it has run. Only local threads can be read.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use unspool_capture::{Blocked, Chunk, Snapshot};

use super::asleep::SystemCallState;
use super::cgroup;
use super::local_process::{LocalProcess, stat, text};
use super::pipes::numbers;
use super::session::Session;
use super::sink::Sink;
use crate::platform::syscall::{CODE_BEFORE, Call};

/// Maximum number of threads read per sample, which limits the cost of thousands of idle threads.
const MAX_READS: usize = 32;
/// Bytes of stack kept per thread: enough for the callers of a system call.
const STACK: usize = 1024;

/// The system call in which a thread is asleep.
pub(super) fn blocking_call(pid: u32, tid: u64) -> Option<Call> {
    let text = text(&format!("/proc/{pid}/task/{tid}/syscall"))?;
    SystemCallState::parse(&text)?.call()
}

/// Records what these threads do in the kernel. `idle` has the threads and the times since which
/// they have not run. `places` has the pc and sp of each thread's latest record. Returns the
/// threads read.
pub(super) fn record_blocked(
    session: &Session,
    sink: &mut Sink,
    places: &mut HashMap<u64, (u64, u64)>,
    idle: &[(u64, u64)],
) -> Vec<u64> {
    let Some(pid) = session.pid.filter(|_| session.local) else {
        return Vec::new();
    };
    let mut memory = None;
    let mut known = Vec::new();
    let mut read = |address, len| {
        let memory = memory.get_or_insert_with(|| File::open(format!("/proc/{pid}/mem")));
        bytes_at(memory.as_ref().ok()?, address, len)
    };
    for &(tid, since_ns) in idle.iter().take(MAX_READS) {
        let call = text(&format!("/proc/{pid}/task/{tid}/syscall"));
        // The file of a running thread says `running`.
        let Some(word) = call.and_then(|call| SystemCallState::parse(&call)) else {
            continue;
        };
        known.push(tid);
        let call = word.call().map(|call| {
            let start = word.pc.wrapping_sub(CODE_BEFORE as u64);
            call.continued(session.abi.arch, || read(start, CODE_BEFORE))
        });
        let place = (word.pc, word.sp);
        let is_new = places.insert(tid, place) != Some(place);
        let snapshot = is_new.then(|| {
            let bytes = read(word.sp, STACK);
            let registers = session.abi.registers_at(word.pc, word.sp);
            let mut snapshot =
                Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
            snapshot.chunks.extend(bytes.map(|bytes| Chunk {
                address: word.sp,
                bytes,
            }));
            snapshot
        });
        let descriptor = call.and_then(|call| call.descriptor(session.abi.arch));
        let file = descriptor.and_then(|descriptor| file_of(pid, descriptor));
        sink.record(Blocked {
            time_ns: sink.now_ns(),
            tid,
            since_ns,
            number: call.map_or(word.number, |call| Some(call.number)),
            args: word.args,
            file: file.unwrap_or_default(),
            pc: word.pc,
            sp: word.sp,
            snapshot,
        });
    }
    known
}

/// The state of a local program, which a stop of its threads changes.
#[derive(Debug, Default)]
pub(super) struct BeforeStop {
    /// The letter of the process's state (proc(5), `stat`).
    pub(super) state: Option<char>,
    /// Whether its cgroup has frozen it.
    pub(super) frozen: bool,
    /// The threads that were asleep in system calls. A stop ends some calls early: a `write` of
    /// more than a pipe holds then returns the number of bytes written so far.
    blocked: Vec<Blocked>,
}

impl BeforeStop {
    /// Reads the state of a process of this machine.
    pub(super) fn of(pid: u64) -> BeforeStop {
        let process = u32::try_from(pid).ok().map(LocalProcess::new);
        let is_stopped = || {
            let task = process.as_ref().and_then(LocalProcess::living_task);
            let stat = task.and_then(|task| stat(&format!("{task}/stat")));
            stat.is_some_and(|stat| stat.state == 'T')
        };
        let folder = format!("/proc/{pid}/task");
        let blocked = numbers(&folder).filter_map(|tid| {
            let call = text(&format!("{folder}/{tid}/syscall"))?;
            // A first thread that has ended has no stack.
            let call = SystemCallState::parse(&call).filter(|call| call.sp != 0)?;
            Some(Blocked {
                tid,
                number: call.number,
                args: call.args,
                pc: call.pc,
                sp: call.sp,
                ..Blocked::default()
            })
        });
        let blocked: Vec<Blocked> = blocked.collect();
        BeforeStop {
            state: stat(&format!("/proc/{pid}/stat")).map(|stat| stat.state),
            frozen: cgroup::is_frozen(pid),
            // A signal stops all threads. A stopped thread may have left the call.
            blocked: if is_stopped() { Vec::new() } else { blocked },
        }
    }

    /// Records the calls in which threads were asleep.
    pub(super) fn record(&self, sink: &mut Sink) {
        let time_ns = sink.now_ns();
        for blocked in &self.blocked {
            sink.record(Blocked {
                time_ns,
                since_ns: time_ns,
                ..blocked.clone()
            });
        }
    }
}

/// The file behind a descriptor of a local process, as `/proc` names it.
pub(super) fn file_of(pid: u64, descriptor: i32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// Up to `len` bytes of memory, fewer at the end of a mapping.
fn bytes_at(memory: &File, address: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let count = memory.read_at(&mut bytes, address).ok()?;
    bytes.truncate(count);
    (count > 0).then_some(bytes)
}
