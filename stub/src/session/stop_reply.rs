//! Stop replies. Written here because gdbstub cannot express execs, thread creations or exits, nor
//! send all expedited registers.

use std::fmt::Write;

use crate::arch;
use crate::arch::watch::Access;
use crate::ptrace::stop::{Cause, Stop};
use crate::session::disabled_packets::DisabledPackets;
use crate::subscription::thread_log::{Change, ThreadEvent};
use crate::sys::Tid;
use crate::sys::monotonic_ns;
use crate::tracee::Tracee;

use super::framing::hex;
use super::signal;

/// The client's features from `qSupported`, and options of stop replies.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dialect {
    /// Thread ids have the form `pPID.TID`.
    pub(crate) multiprocess: bool,
    /// The client knows the `swbreak` stop reason.
    pub(crate) swbreak: bool,
    /// The client knows the `hwbreak` stop reason.
    pub(crate) hwbreak: bool,
    /// Stop replies contain only a signal.
    pub(crate) no_details: bool,
    /// Stop replies do not name the thread.
    pub(crate) no_thread: bool,
    /// Stop replies carry all general registers.
    pub(crate) general_registers: bool,
    /// Number of stack bytes, from the stack pointer up, in stop replies at breakpoints.
    pub(crate) stack: usize,
}

impl Dialect {
    /// The dialect before `qSupported`.
    pub(crate) fn new(disabled: DisabledPackets) -> Dialect {
        Dialect {
            no_details: disabled.stop_details,
            no_thread: disabled.stop_thread,
            ..Dialect::default()
        }
    }

    /// Formats a thread id.
    pub(crate) fn thread_id(self, pid: Tid, tid: Tid) -> String {
        if self.multiprocess {
            format!("p{:x}.{:x}", pid.0, tid.0)
        } else {
            format!("{:x}", tid.0)
        }
    }

    /// Thread events as a notification. `None` if there are no events.
    pub(crate) fn thread_log(self, entries: &[ThreadEvent]) -> Option<Vec<u8>> {
        if entries.is_empty() {
            return None;
        }
        let mut text = format!("t{:x}", monotonic_ns());
        for entry in entries {
            text.push(';');
            let _ = match &entry.change {
                Change::Created {
                    tid,
                    creator,
                    pointer,
                } => {
                    let pointer = pointer.map_or(String::new(), |at| format!("{at:x}"));
                    write!(text, "c{:x},{:x},{pointer}", tid.0, creator.0)
                }
                Change::Exited { tid, code } => write!(text, "x{:x},{code:x}", tid.0),
                Change::Killed { tid, signal } => write!(text, "k{:x},{signal:x}", tid.0),
                Change::Started { pid, creator } => write!(text, "p{:x},{:x}", pid.0, creator.0),
                Change::Executed { pid, file } => {
                    let mut digits = Vec::new();
                    hex(file, &mut digits);
                    write!(text, "e{:x},{}", pid.0, String::from_utf8_lossy(&digits))
                }
            };
            let _ = write!(text, ",{:x}", entry.at.elapsed().as_nanos());
        }
        Some(format!("UnspoolThreads:{text}").into_bytes())
    }

    /// The stop reply for `stop`.
    pub(crate) fn stop_reply(self, tracee: &mut Tracee, stop: &Stop) -> Vec<u8> {
        let pid = tracee.process.pid();
        let process_suffix = if self.multiprocess {
            format!(";process:{:x}", pid.0)
        } else {
            String::new()
        };
        match stop {
            Stop::Exited(code) => format!("W{code:02x}{process_suffix}").into_bytes(),
            Stop::Killed(by) => {
                format!("X{:02x}{process_suffix}", signal::to_gdb(*by)).into_bytes()
            }
            Stop::ThreadExited(tid, code) => {
                format!("w{code:x};{}", self.thread_id(pid, *tid)).into_bytes()
            }
            Stop::NothingRuns => b"N".to_vec(),
            Stop::Thread(tid, cause) => self.thread_stop(tracee, *tid, cause),
        }
    }

    fn thread_stop(self, tracee: &mut Tracee, tid: Tid, cause: &Cause) -> Vec<u8> {
        let number = match cause {
            Cause::Signal(number) => signal::to_gdb(*number),
            Cause::Interrupt => signal::to_gdb(libc::SIGINT),
            Cause::Halted => 0,
            _ => signal::to_gdb(libc::SIGTRAP),
        };
        if self.no_details {
            return format!("S{number:02x}").into_bytes();
        }
        let mut text = format!("T{number:02x}");
        match cause {
            Cause::Breakpoint if self.swbreak => text.push_str("swbreak:;"),
            Cause::CallEntry(number) => {
                let _ = write!(text, "syscall_entry:{number:x};");
            }
            Cause::CallReturn(number) => {
                let _ = write!(text, "syscall_return:{number:x};");
            }
            Cause::Watch(watch) => match watch.access {
                Access::Execute if self.hwbreak => text.push_str("hwbreak:;"),
                Access::Execute => {}
                Access::Write => push_address(&mut text, "watch", watch.at),
                Access::Read => push_address(&mut text, "rwatch", watch.at),
                Access::Any => push_address(&mut text, "awatch", watch.at),
            },
            Cause::Created => text.push_str("create:;"),
            Cause::Fork(child) | Cause::VFork(child) => {
                let what = match cause {
                    Cause::Fork(_) => "fork",
                    _ => "vfork",
                };
                let _ = write!(text, "{what}:{};", self.thread_id(*child, *child));
            }
            Cause::VForkDone => text.push_str("vforkdone:;"),
            Cause::Exec(path) => {
                let mut digits = Vec::new();
                hex(path.as_bytes(), &mut digits);
                let _ = write!(text, "exec:{};", String::from_utf8_lossy(&digits));
            }
            _ => {}
        }
        let mut reply = text.into_bytes();
        if let Some(stopped) = tracee.process.stopped(tid) {
            let sent = |register: &&arch::Register| match self.general_registers {
                true => register.place.set == 0 || Some(register.number) == arch::THREAD_POINTER,
                false => arch::EXPEDITED.contains(&register.number),
            };
            for register in arch::layout().registers.iter().filter(sent) {
                let mut value = [0; 16];
                let value = &mut value[..register.size];
                if stopped.register(register, value).is_ok() {
                    reply.extend_from_slice(format!("{:02x}:", register.number).as_bytes());
                    hex(value, &mut reply);
                    reply.push(b';');
                }
            }
        }
        if self.stack > 0 && *cause == Cause::Breakpoint {
            self.append_stack(tracee, tid, &mut reply);
        }
        if self.no_thread {
            return reply;
        }
        let thread = self.thread_id(tracee.process.pid(), tid);
        reply.extend_from_slice(format!("thread:{thread};").as_bytes());
        reply
    }
    /// Appends `memory:0xADDRESS=BYTES;`, the form in which LLDB's servers expedite memory.
    fn append_stack(self, tracee: &mut Tracee, tid: Tid, reply: &mut Vec<u8>) {
        let sp = tracee
            .process
            .stopped(tid)
            .and_then(|stopped| stopped.sp().ok());
        let mut bytes = vec![0; self.stack];
        if let Some(sp) = sp
            && let Ok(known) = tracee.read_memory(sp, &mut bytes)
        {
            reply.extend_from_slice(format!("memory:0x{sp:x}=").as_bytes());
            hex(&bytes[..known], reply);
            reply.push(b';');
        }
    }
}

fn push_address(text: &mut String, reason: &str, at: u64) {
    let _ = write!(text, "{reason}:{at:x};");
}
