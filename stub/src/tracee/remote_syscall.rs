//! Lets a thread of the program make system calls for the stub, to map memory near its text and to
//! unmap it.
//!
//! For that moment the stub writes the instruction to unused bytes. Every thread is stopped.

use std::ops::Range;

use crate::arch::call;
use crate::arch::collector::HAS_VENEERS;
use crate::breakpoint::patch::Patch;
use crate::ptrace::thread::Motion;
use crate::sys::memfd::SharedMemory;
use crate::sys::{Tid, maps, ptrace};
use crate::tracepoint::fast::jump_pad::Mapper;

use super::Tracee;
use super::step_in_place::Over;

/// `AT_PLATFORM`, a name: the file in memory is called by it.
const PLATFORM: u64 = 15;
const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
/// `MAP_PRIVATE | MAP_ANONYMOUS`, and `MAP_FIXED_NOREPLACE`.
const PRIVATE: u64 = 0x22;
const EXACTLY: u64 = 0x10_0000;
/// `MAP_SHARED | MAP_FIXED`
const SHARED_OVER: u64 = 0x11;
/// `MFD_CLOEXEC | MFD_ALLOW_SEALING`
const MEMFD_FLAGS: u64 = 3;
/// `MADV_WIPEONFORK` (Linux 4.14).
const MADV_WIPEONFORK: u64 = 18;
/// Gap between a new mapping and the former ones, in bytes. No page is larger.
const MARGIN: u64 = 64 << 10;

impl Tracee {
    /// Lets a thread of the program make a system call. Every thread must be stopped.
    pub(super) fn call(&mut self, number: u64, arguments: [u64; 6]) -> Option<u64> {
        let tid = self.caller()?;
        let process = self.process.any_task();
        let code = call::code(self.process.stopped(tid)?.general().ok()?);
        let long = self
            .displaced
            .spare(process, &self.process.memory, code.len() as u64);
        // The longer code lets the thread recover if the stub dies during the call, but it may not
        // fit.
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

    /// A thread that can make a system call. If all threads were left asleep, stops one.
    pub(super) fn caller(&mut self) -> Option<Tid> {
        if let Some(tid) = self.process.find_caller() {
            return Some(tid);
        }
        let tid = self.process.interrupt_left()?;
        let blocked = self.process.run.block_starts();
        if let Some(status) = self.process.report_of(tid) {
            self.handle(tid, status);
        }
        self.process.run.unblock_starts(blocked);
        self.process.find_caller()
    }

    /// Like [`call`](Self::call), by this thread and with the instruction at `at`. Other threads
    /// may run.
    ///
    /// The thread does not single-step, because it would step once more if the stub were killed,
    /// and the report of that step would kill it.
    pub(super) fn call_at(
        &mut self,
        tid: Tid,
        at: u64,
        number: u64,
        arguments: [u64; 6],
    ) -> Option<u64> {
        let before = self.process.stopped(tid)?.general().ok()?.to_vec();
        let prepared = call::prepare(&before, at, number, arguments)?;
        let shown = ptrace::signal_info(tid).ok();
        self.process.stopped(tid)?.set_general(&prepared).ok()?;
        // Reports that arrive meanwhile must not resume other threads.
        let blocked = self.process.run.block_starts();
        let mut answer = None;
        let enters = self.execute(tid, Motion::ToSystemCall) == Over::InKernel;
        if enters && self.execute(tid, Motion::ToSystemCall) == Over::InKernel {
            let stopped = self.process.stopped(tid);
            let general = stopped.and_then(|stopped| stopped.general().ok());
            answer = general.and_then(call::result);
            if let Some(status) = self.process.end_call(tid, shown.as_ref()) {
                self.handle(tid, status);
            }
        }
        self.process.run.unblock_starts(blocked);
        if let Some(stopped) = self.process.stopped(tid) {
            let _ = stopped.set_general(&before);
        }
        answer
    }

    /// Unmaps memory that was mapped for the stub.
    pub(super) fn unmap(&mut self, start: u64, size: u64) {
        let _ = self.call(call::MUNMAP, [start, size, 0, 0, 0, 0]);
    }
}

/// Maps memory in the program for jumps. Every thread is stopped, so that the list of mappings
/// stays true until one is added.
pub(super) struct Room<'a> {
    pub(super) tracee: &'a mut Tracee,
    maps: String,
}

impl Room<'_> {
    /// Reads the mappings of this process.
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

    fn share(&mut self, near: u64, size: u64, own: Range<u64>) -> Option<(u64, SharedMemory)> {
        let start = self.get(near, size, false)?;
        match self.share_over(start, size, own) {
            Some(shared) => Some((start, shared)),
            None => {
                self.tracee.unmap(start, size);
                self.maps = maps::read(self.tracee.process.any_task());
                None
            }
        }
    }
}

impl Room<'_> {
    /// Makes the program map a memory file over its own memory at `start`, except over the part
    /// `own`, and maps the file in the stub too.
    fn share_over(&mut self, start: u64, size: u64, own: Range<u64>) -> Option<SharedMemory> {
        let tracee = &mut *self.tracee;
        let length = own.end - own.start;
        let wipe = [start + own.start, length, MADV_WIPEONFORK, 0, 0, 0];
        tracee
            .call(call::MADVISE, wipe)
            .filter(|answer| *answer == 0)?;
        let name = tracee.process.auxv_entry(PLATFORM)?;
        let file = tracee.call(call::MEMFD_CREATE, [name, MEMFD_FLAGS, 0, 0, 0, 0])?;
        let descriptor = i32::try_from(file.cast_signed())
            .ok()
            .filter(|file| *file >= 0)?;
        let process = tracee.process.any_task();
        let shared = SharedMemory::open(process, descriptor, size).ok();
        let mapped = shared.is_some()
            && [0..own.start, own.end..size].into_iter().all(|part| {
                let at = start + part.start;
                // mmap2 counts pages.
                let offset = part.start / call::MMAP_UNIT;
                let length = part.end - part.start;
                let arguments = [at, length, READ_WRITE, SHARED_OVER, file, offset];
                tracee.call(call::MMAP, arguments) == Some(at)
            });
        let _ = tracee.call(call::CLOSE, [file, 0, 0, 0, 0, 0]);
        shared.filter(|_| mapped)
    }

    /// Maps memory as [`Mapper::map`] does.
    pub(super) fn get(&mut self, near: u64, size: u64, code: bool) -> Option<u64> {
        let mut gaps = Vec::new();
        let mut end = 64 << 10;
        for mapping in maps::mappings(&self.maps) {
            let room = mapping.range.start.saturating_sub(end);
            // A stack grows into the gap below it.
            if room >= size + 2 * MARGIN && mapping.path != "[stack]" {
                gaps.push((end, mapping.range.start));
            }
            end = mapping.range.end;
        }
        let start = if HAS_VENEERS {
            // The heap and the program's own mappings will not reach this place soon.
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
            // A kernel before 4.17 treats the address as a hint.
            self.tracee.unmap(answer, size);
        }
        self.maps = maps::read(self.tracee.process.any_task());
        (answer == start).then_some(start)
    }
}
