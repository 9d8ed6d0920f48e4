//! System calls that a thread of the program makes for us: to map memory near its text, and to unmap it.
//!
//! Everybody stands still. The thread executes one instruction, in bytes that nothing uses, and has its registers back afterwards, the
//! system call included that it was interrupted in, which the kernel then makes again as it would have.

use crate::arch::collector::HAS_VENEERS;
use crate::arch::{self, call};
use crate::breakpoint::patch::Patch;
use crate::sys::{Tid, maps, ptrace, status_field};
use crate::tracepoint::fast::jump_pad::Mapper;

use super::Tracee;
use super::resume::Over;
use crate::ptrace::thread::{At, Motion};

const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
/// `MAP_PRIVATE | MAP_ANONYMOUS`, and `MAP_FIXED_NOREPLACE`.
const PRIVATE: u64 = 0x22;
const EXACTLY: u64 = 0x10_0000;
/// Between what we map and what was there; no page is larger.
const MARGIN: u64 = 64 << 10;
/// Other reports may come first.
const PATIENCE: usize = 16;

impl Tracee {
    /// Whether the kernel lets the program call what it likes.
    pub(super) fn calls_freely(&self) -> bool {
        let status = self.read_proc("status");
        let filter = status_field(&String::from_utf8_lossy(&status), "Seccomp");
        filter.is_none_or(|mode: String| mode == "0")
    }

    /// Keeps a stopped thread from a call that its filter may not allow: the kernel ends a sleep that
    /// it interrupted by `restart_syscall`, which programs do not list among their own calls.
    pub(super) fn avoid_restart_call(&mut self, tid: Tid) {
        let stopped = self.stopped(tid);
        let changed =
            stopped.and_then(|stopped| call::restarted_as_itself(stopped.general().ok()?));
        if let Some(general) = changed
            && !self.calls_freely()
            && let Some(stopped) = self.stopped(tid)
        {
            let _ = stopped.set_general(&general);
        }
    }

    pub(super) fn call(&mut self, number: u64, arguments: [u64; 6]) -> Option<u64> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        let tid = tids.into_iter().find(|tid| self.can_call(*tid))?;
        let process = self.any_task();
        let code = call::code(self.stopped(tid)?.general().ok()?);
        let long = self
            .displaced
            .spare(process, &self.memory, code.len() as u64);
        // Where there is little room, a thread is lost if the stub dies within the call.
        let (at, code) = match long {
            Some(at) => (at, code),
            None => {
                let code = call::INSTRUCTION.to_vec();
                let room = code.len() as u64;
                let at = self.displaced.spare(process, &self.memory, room)?;
                (at, code)
            }
        };
        let patch = Patch::place(&self.memory, at, code).ok()?;
        let answer = self.call_at(tid, at, number, arguments);
        patch.lift(&self.memory, at);
        answer
    }

    /// The same by this thread, with the instruction that stands at `at`. Others may run.
    pub(super) fn call_at(
        &mut self,
        tid: Tid,
        at: u64,
        number: u64,
        arguments: [u64; 6],
    ) -> Option<u64> {
        let before = self.stopped(tid)?.general().ok()?.to_vec();
        let prepared = call::prepare(&before, at, number, arguments)?;
        let behind = at + call::LENGTH;
        // Else there is a trap behind it.
        let motion = if arch::CAN_STEP {
            Motion::Step
        } else {
            Motion::Continue
        };
        let mut answer = None;
        if self.stopped(tid)?.set_general(&prepared).is_ok() {
            // What else is reported meanwhile must not set anybody going.
            let halting = std::mem::replace(&mut self.halting, true);
            for _ in 0..PATIENCE {
                let over = self.execute(tid, motion);
                let Some(stopped) = self.stopped(tid) else {
                    break;
                };
                if stopped.pc() == Ok(behind) {
                    answer = stopped.general().ok().and_then(call::result);
                    break;
                }
                if over != Over::Stepped {
                    break;
                }
            }
            self.halting = halting;
            if let Some(stopped) = self.stopped(tid) {
                let _ = stopped.set_general(&before);
            }
            self.reset_steps();
        }
        answer
    }

    /// Whether a thread's registers are all that there is to its state: it is about to take a signal, or was interrupted.
    fn can_call(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        if thread.after_call.is_some() || thread.in_call {
            return false;
        }
        let step_reset = thread.step_reset;
        let Some(stopped) = thread.stopped() else {
            return false;
        };
        let all = match stopped.at() {
            At::Signal => true,
            At::Event => {
                let interrupted = |info: ptrace::SignalInfo| info.code() == ptrace::INTERRUPTED;
                step_reset || ptrace::signal_info(tid).is_ok_and(interrupted)
            }
            _ => false,
        };
        let (Ok(pc), Ok(general)) = (stopped.pc(), stopped.general()) else {
            return false;
        };
        let mut code = vec![0; call::LENGTH as usize];
        all && self.memory.read(pc, &mut code).is_ok() && call::may_precede(&code, general)
    }

    /// Gives memory back that was mapped for us.
    pub(super) fn unmap(&mut self, start: u64, size: u64) {
        let _ = self.call(call::MUNMAP, [start, size, 0, 0, 0, 0]);
    }
}

/// A process in which memory is got for jumps. Everybody stands still, so that what is mapped is known until we map something.
pub(super) struct Room<'a> {
    pub(super) process: &'a mut Tracee,
    maps: String,
}

impl Room<'_> {
    /// Of this process.
    pub(super) fn of(process: &mut Tracee) -> Room<'_> {
        let maps = maps::read(process.any_task());
        Room { process, maps }
    }
}

impl Mapper for Room<'_> {
    fn spare(&mut self, near: u64, reach: u64) -> Option<u64> {
        let text = maps::around(&self.maps, near)?.range;
        let process = &mut *self.process;
        let room = process.displaced.lend(&self.maps, &process.memory, &text)?;
        (room.abs_diff(near) < reach).then_some(room)
    }

    fn map(&mut self, near: u64, size: u64, code: bool) -> Option<u64> {
        let start = self.get(near, size, code)?;
        if code {
            let process = &mut *self.process;
            let handler = &mut process.trap_handler;
            handler.add_collectors(&process.memory, start..start + size);
        }
        Some(start)
    }
}

impl Room<'_> {
    /// Maps memory as [`Mapper::map`] says.
    pub(super) fn get(&mut self, near: u64, size: u64, code: bool) -> Option<u64> {
        let mut gaps = Vec::new();
        let mut end = 64 << 10;
        for mapping in maps::mappings(&self.maps) {
            let room = mapping.range.start.saturating_sub(end);
            // Stacks grow.
            if room >= size + 2 * MARGIN && mapping.path != "[stack]" {
                gaps.push((end, mapping.range.start));
            }
            end = mapping.range.end;
        }
        let start = if HAS_VENEERS {
            // Where neither the heap nor the program's own mappings will come so soon.
            let (start, end) = gaps.into_iter().max_by_key(|(start, end)| end - start)?;
            start.midpoint(end)
        } else {
            let last = gaps.into_iter().map(|(_, end)| end - MARGIN - size);
            last.min_by_key(|start| start.abs_diff(near))?
        };
        let start = start & !(MARGIN - 1);
        let rights = if code { READ_EXECUTE } else { READ_WRITE };
        let arguments = [start, size, rights, PRIVATE | EXACTLY, u64::MAX, 0];
        let answer = self.process.call(call::MMAP, arguments)?;
        if answer != start {
            // A kernel before 4.17 takes the address for a wish.
            self.process.unmap(answer, size);
        }
        self.maps = maps::read(self.process.any_task());
        (answer == start).then_some(start)
    }
}
