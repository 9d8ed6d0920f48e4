//! Installs the handler for `SIGTRAP` in the program. It takes over if all of the stub's processes
//! are killed at once.
//!
//! The stub installs it with the first tracepoint and removes it on detach. If a thread hits a trap
//! with `SIGTRAP` blocked, the kernel resets the handler (Linux `force_sig_info_to_task`), and the
//! stub installs it again at that hit.

use nix::errno::Errno;

use crate::arch::trap_handler::{ACTION_SIZE, HANDLER, SIGACTION, SYSTEM_CALL, handler_of};
use crate::sys::ptrace;
use crate::sys::{Tid, status_field};
use crate::tracepoint::trap_handler::REGION;

use super::Tracee;
use super::remote_syscall::Room;

const SIGTRAP: u64 = libc::SIGTRAP as u64;
/// `SIG_IGN`
const IGNORED: u64 = 1;
/// The size of the kernel's `sigset_t`.
const MASK_SIZE: u64 = 8;
/// Distance from the stack pointer, in bytes, below which signal handlers may overwrite memory.
const BELOW_RED_ZONE: u64 = 512;

impl Tracee {
    /// Maps memory for copies of the instructions at these addresses, which traps may replace, and
    /// installs the handler. Every thread must be stopped.
    pub(super) fn provide_trap_handler(&mut self, wanted: &[u64]) {
        let own = self.process.end.is_none()
            && !self.process.shares_memory()
            && self.forks.borrowed.is_none();
        if HANDLER.is_empty() || wanted.is_empty() || !own {
            return;
        }
        let lacks = |at: &&u64| self.tracepoints.trap_handler.wants_region(**at);
        let far: Vec<u64> = wanted.iter().filter(lacks).copied().collect();
        if !far.is_empty() && self.process.calls_freely() {
            for at in far {
                if self.tracepoints.trap_handler.wants_region(at)
                    && let Some(start) = Room::of(self).get(at, REGION, true)
                {
                    let _ = self
                        .tracepoints
                        .trap_handler
                        .add_region(&self.process.memory, start);
                    // The handler is installed before the program makes any further call.
                    if !self.tracepoints.trap_handler.is_installed() {
                        self.install_trap_handler();
                    }
                }
            }
        }
        if self.tracepoints.trap_handler.start().is_none() {
            self.tracepoints.trap_handler.refuse();
        }
    }

    /// Tells the handler about the trap that is about to be inserted at `at`.
    fn enter_trap(&mut self, at: u64, kind: usize) {
        let code = self.code(at);
        self.tracepoints
            .trap_handler
            .enter(&self.process.memory, at, kind, &code);
    }

    /// Does the same for a trap at this address. The program may be going.
    pub(super) fn prepare_for_trap(&mut self, at: u64) {
        if self.tracepoints.trap_handler.wants_region(at)
            && !self.tracepoints.trap_handler.is_refused()
        {
            self.while_halted(|tracee| tracee.provide_trap_handler(&[at]));
        }
    }

    /// Prepares a recorded program for a breakpoint, so that it survives the stub's death. This may
    /// be the first trap of all: the recorder's breakpoint in the dynamic linker.
    pub(super) fn prepare_for_breakpoint(&mut self, at: u64, kind: usize) {
        let handler = &self.tracepoints.trap_handler;
        if !self.subscriptions.is_tracing() || handler.is_refused() {
            return;
        }
        // Without a handler, only a stopped program that can make system calls gets one now.
        let possible = match handler.wants_region(at) {
            true => !self.process.run.is_going() && self.caller().is_some(),
            false => true,
        };
        if possible {
            self.provide_trap_handler(&[at]);
            self.enter_trap(at, kind);
        }
    }

    /// Inserts the trap of a tracepoint.
    pub(super) fn plant_probe(&mut self, at: u64, kind: usize) -> Result<(), Errno> {
        if self.process.has_untraced_child_inside() {
            return Err(Errno::EBUSY);
        }
        self.enter_trap(at, kind);
        self.breakpoints.plant_probe(&self.process.memory, at, kind)
    }

    fn install_trap_handler(&mut self) -> Option<()> {
        let action = self.tracepoints.trap_handler.action()?;
        let former = self.present_action()?;
        if handler_of(&former) == IGNORED {
            return None;
        }
        // The handler needs this before it can run.
        self.tracepoints
            .trap_handler
            .replace(&self.process.memory, &former)?;
        let arguments = [SIGTRAP, action, 0, MASK_SIZE, 0, 0];
        self.call(SIGACTION, arguments).map(|_| ())
    }

    /// The program's current action for `SIGTRAP`, as a `struct kernel_sigaction`.
    fn present_action(&mut self) -> Option<Vec<u8>> {
        let tid = self.caller()?;
        let sp = self.process.stopped(tid)?.sp().ok()?;
        let room = sp.checked_sub(BELOW_RED_ZONE)? & !15;
        let mut before = vec![0; ACTION_SIZE];
        let known = self.process.memory.read(room, &mut before) == Ok(ACTION_SIZE);
        let answer = self.call(SIGACTION, [SIGTRAP, 0, room, MASK_SIZE, 0, 0]);
        let mut action = vec![0; ACTION_SIZE];
        let read = self.process.memory.read(room, &mut action) == Ok(ACTION_SIZE);
        if known {
            let _ = self.process.memory.write(room, &before);
        }
        (answer.is_some() && read).then_some(action)
    }

    /// Installs the handler again if the kernel has reset it, because the thread had `SIGTRAP`
    /// blocked.
    pub(super) fn keep_trap_handler(&mut self, tid: Tid) {
        if !self.tracepoints.trap_handler.is_installed() || self.process.shares_memory() {
            return;
        }
        // The kernel has also unblocked SIGTRAP. So a thread that blocked only SIGTRAP is missed
        // here.
        if ptrace::blocked(tid).is_ok_and(|mask| mask == 0) || self.catches_traps() {
            return;
        }
        if let (Some(start), Some(action)) = (
            self.tracepoints.trap_handler.start(),
            self.tracepoints.trap_handler.action(),
        ) {
            let at = start + SYSTEM_CALL;
            self.call_at(tid, at, SIGACTION, [SIGTRAP, action, 0, MASK_SIZE, 0, 0]);
        }
    }

    fn catches_traps(&self) -> bool {
        let status = self.process.read_proc("status");
        let caught: Option<String> = status_field(&String::from_utf8_lossy(&status), "SigCgt");
        let caught = caught.and_then(|mask| u64::from_str_radix(&mask, 16).ok());
        caught.is_none_or(|mask| mask >> (SIGTRAP - 1) & 1 != 0)
    }

    /// Restores the program's own handler. Every thread must be stopped, and no trap may be left.
    pub(super) fn remove_trap_handler(&mut self) {
        if let (Some(start), Some(former)) = (
            self.tracepoints.trap_handler.start(),
            self.tracepoints.trap_handler.former_action(),
        ) && self.process.end.is_none()
            && !self.process.shares_memory()
            && let Some(present) = self.present_action()
        {
            // Otherwise the program keeps the memory, because its own handler may call ours.
            let ours = handler_of(&present) == start;
            let arguments = [SIGTRAP, former, 0, MASK_SIZE, 0, 0];
            if ours && self.call(SIGACTION, arguments).is_some() {
                for (start, size) in self.tracepoints.trap_handler.mappings() {
                    self.unmap(start, size);
                }
            }
        }
        self.tracepoints.trap_handler.forget();
    }
}
