//! System calls that a thread of the program makes for the stub: to map memory near its text, and
//! to unmap it.
//!
//! The instruction stands for that moment in bytes that nothing uses. Every thread is stopped.

use crate::arch::call;
use crate::arch::collector::HAS_VENEERS;
use crate::breakpoint::patch::Patch;
use crate::ptrace::remote_syscall::MOTION;
use crate::sys::{Tid, maps};
use crate::tracepoint::fast::jump_pad::Mapper;

use super::Tracee;
use super::step_in_place::Over;

const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
/// `MAP_PRIVATE | MAP_ANONYMOUS`, and `MAP_FIXED_NOREPLACE`.
const PRIVATE: u64 = 0x22;
const EXACTLY: u64 = 0x10_0000;
/// The gap between what is mapped and what was there; no page is larger.
const MARGIN: u64 = 64 << 10;
/// The most reports that may come before the end of the call.
const MAX_REPORTS: usize = 16;

impl Tracee {
    /// Has a thread of the program make a system call. Every thread must be stopped.
    pub(super) fn call(&mut self, number: u64, arguments: [u64; 6]) -> Option<u64> {
        let tid = self.process.find_caller()?;
        let process = self.process.any_task();
        let code = call::code(self.process.stopped(tid)?.general().ok()?);
        let long = self
            .displaced
            .spare(process, &self.process.memory, code.len() as u64);
        // Where there is little room, a thread is lost if the stub dies within the call.
        let (at, code) = match long {
            Some(at) => (at, code),
            None => {
                let code = call::INSTRUCTION.to_vec();
                let room = code.len() as u64;
                let at = self.displaced.spare(process, &self.process.memory, room)?;
                (at, code)
            }
        };
        let patch = Patch::place(&self.process.memory, at, code).ok()?;
        let answer = self.call_at(tid, at, number, arguments);
        patch.lift(&self.process.memory, at);
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
        let before = self.process.stopped(tid)?.general().ok()?.to_vec();
        let prepared = call::prepare(&before, at, number, arguments)?;
        let behind = at + call::LENGTH;
        let mut answer = None;
        if self.process.stopped(tid)?.set_general(&prepared).is_ok() {
            // Other reports that come meanwhile must not start a thread.
            let blocked = self.process.run.block_starts();
            for _ in 0..MAX_REPORTS {
                let over = self.execute(tid, MOTION);
                let Some(stopped) = self.process.stopped(tid) else {
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
            self.process.run.unblock_starts(blocked);
            if let Some(stopped) = self.process.stopped(tid) {
                let _ = stopped.set_general(&before);
            }
            self.reset_steps();
        }
        answer
    }

    /// Gives memory back that was mapped for us.
    pub(super) fn unmap(&mut self, start: u64, size: u64) {
        let _ = self.call(call::MUNMAP, [start, size, 0, 0, 0, 0]);
    }
}

/// A program in which memory is mapped for jumps. Every thread is stopped, so that the mappings are
/// known until one is added.
pub(super) struct Room<'a> {
    pub(super) tracee: &'a mut Tracee,
    maps: String,
}

impl Room<'_> {
    /// Of this process.
    pub(super) fn of(tracee: &mut Tracee) -> Room<'_> {
        let maps = maps::read(tracee.process.any_task());
        Room { tracee, maps }
    }
}

impl Mapper for Room<'_> {
    fn spare(&mut self, near: u64, reach: u64) -> Option<u64> {
        let text = maps::around(&self.maps, near)?.range;
        let tracee = &mut *self.tracee;
        let room = tracee
            .displaced
            .lend(&self.maps, &tracee.process.memory, &text)?;
        (room.abs_diff(near) < reach).then_some(room)
    }

    fn map(&mut self, near: u64, size: u64, code: bool) -> Option<u64> {
        let start = self.get(near, size, code)?;
        if code {
            let tracee = &mut *self.tracee;
            let handler = &mut tracee.tracepoints.trap_handler;
            handler.add_collectors(&tracee.process.memory, start..start + size);
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
        let answer = self.tracee.call(call::MMAP, arguments)?;
        if answer != start {
            // A kernel before 4.17 takes the address for a wish.
            self.tracee.unmap(answer, size);
        }
        self.maps = maps::read(self.tracee.process.any_task());
        (answer == start).then_some(start)
    }
}
