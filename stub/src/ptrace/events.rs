//! Turns a report of the kernel into an event and updates the thread's state. The caller decides
//! what the event means.

use crate::sys::Tid;
use crate::sys::memory::Memory;
use crate::sys::ptrace;
use crate::sys::wait::Status;

use super::process::Process;
use super::stop::Stop;
use super::thread::{At, Thread};

/// An event of a thread or a child.
pub(crate) enum Event {
    /// Report of a child that is not debugged.
    Child(Status),
    /// The thread is gone. For the first thread: the process is gone.
    Gone(Stop),
    /// The thread stopped before this signal is delivered.
    Signal(i32),
    /// The thread was interrupted, or belongs to a group-stop.
    Held,
    /// The thread created a thread or process, as the status says. The new id is missing if the
    /// creator is dead.
    Made(Option<Tid>, Status),
    /// The vfork(2) child has left the thread's memory.
    VForkDone,
    /// The process executed a file. It now has one thread, with the first thread's id, and new
    /// memory. The value is the id of the thread that executed it.
    Exec(Tid),
    /// The thread has executed its last instruction.
    Exiting,
    /// The thread enters or leaves a system call.
    SystemCall,
    /// An event that the stub did not request.
    Other,
}

impl Process {
    /// Processes a report. `None` if it is about no thread or child of this process.
    pub(crate) fn event(&mut self, tid: Tid, status: Status) -> Option<Event> {
        if self.children.contains(tid) {
            return Some(Event::Child(status));
        }
        if !self.threads.contains_key(&tid) {
            return None;
        }
        Some(match status {
            Status::Exited(code) => Event::Gone(Stop::Exited(code)),
            Status::Killed(signal) => Event::Gone(Stop::Killed(signal)),
            Status::KilledByExit(code) => {
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.killed_by_exit = true;
                }
                Event::Gone(Stop::Exited(code))
            }
            Status::Signal(signal) => {
                self.mark_stopped(tid, At::Signal);
                Event::Signal(signal)
            }
            Status::Held(signal) => {
                self.mark_stopped(tid, At::held(signal));
                Event::Held
            }
            Status::Clone | Status::Fork | Status::VFork => {
                self.mark_stopped(tid, At::InCall);
                let new = ptrace::event_message(tid).ok();
                Event::Made(new.map(|new| Tid(new as i32)), status)
            }
            Status::VForkDone => {
                self.mark_stopped(tid, At::InCall);
                if let Some(thread) = self.threads.get_mut(&tid) {
                    thread.vfork_child = None;
                    thread.lends_memory = false;
                }
                Event::VForkDone
            }
            Status::Exec => {
                let former = self.execute_file(tid);
                Event::Exec(former)
            }
            Status::Exiting => {
                self.mark_stopped(tid, At::Event);
                Event::Exiting
            }
            Status::Syscall => {
                self.mark_stopped(tid, At::Event);
                Event::SystemCall
            }
            Status::Other => {
                self.mark_stopped(tid, At::Event);
                Event::Other
            }
        })
    }

    fn execute_file(&mut self, tid: Tid) -> Tid {
        let former = ptrace::event_message(tid).map_or(tid, |former| Tid(former as i32));
        let action = self
            .threads
            .get(&former)
            .or_else(|| self.threads.get(&tid))
            .map_or(self.default_action, |thread| thread.action);
        self.threads.clear();
        self.thread_exits.clear();
        self.threads.insert(tid, Thread::new(tid, action));
        self.mark_stopped(tid, At::Event);
        self.set_exit_stop(tid);
        self.watches.clear();
        if let Ok(memory) = Memory::open(tid) {
            self.memory = memory;
        }
        self.mark_current(tid);
        former
    }

    /// Adds a newly created thread, which has not stopped yet.
    pub(crate) fn add_thread(&mut self, creator: Tid, tid: Tid) {
        let mut thread = Thread::new(tid, self.default_action);
        thread.newborn = true;
        let creator = self.threads.get(&creator);
        thread.stops_at_end = creator.is_some_and(|creator| creator.stops_at_end);
        self.threads.insert(tid, thread);
    }

    /// Records that a thread enters or leaves a system call. Returns the call's number, and true if
    /// the thread enters.
    pub(crate) fn system_call(&mut self, tid: Tid) -> Option<(u64, bool)> {
        let thread = self.threads.get_mut(&tid)?;
        // Before Linux 5.3 the kernel does not report the direction, but entries and exits
        // alternate.
        let enters = ptrace::at_call_entry(tid).unwrap_or(!thread.in_call);
        thread.in_call = enters;
        let stopped = thread.stopped()?;
        if enters {
            stopped.is_in_call();
        }
        let number = crate::arch::system_call(stopped.general().ok()?)?;
        Some((number, enters))
    }
}
