//! Tracepoints whose hits are noted without a stop: where that can be, and threads that stop all the same.
//!
//! A place has a jump to a collector instead of a trap if a client asked for it and if everything that is to be done there can be done
//! later with what the collector notes. That is decided anew whenever everybody stands still and something has changed: nothing is
//! fast while somebody steps, or is to be followed step by step after a hit, watches, catches system calls, or halts threads one by one. Else there is a trap, and nobody
//! but the clock can tell.
//!
//! A thread that stops in a collector is put where it would be without it. If that is in the midst of the jump, the jump must be gone
//! before it goes on (`inside_jumps`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::arch;
use crate::arch::collector;
use crate::arch::fast::{self, Site, Standing};
use crate::sys::memory::Memory;
use crate::sys::ptrace;
use crate::sys::{Tid, maps};
use crate::tracepoint::fast::jump_pad::JumpPads;
use crate::tracepoint::fast::planner::Plan;

use super::Tracee;
use super::remote_syscall::Room;
use super::tracepoints::set_of;
use crate::ptrace::action::Action;
use crate::ptrace::thread::{At, State, Thread};
use crate::subscription::stop_policy::SyscallFilter;

/// `AT_HWCAP`, `AT_HWCAP2`
const CAPABILITIES: [u64; 2] = [16, 26];
/// So far around a place exclusive sequences and IT blocks are looked for, and more.
const NEAR: u64 = 256;
/// So much of stacks is looked through, of all threads together.
const MOST_STACK: u64 = 64 << 20;

/// What can have a jump: what a collector does there, and the instructions that are displaced.
#[derive(Clone)]
struct Fit {
    at: u64,
    kind: usize,
    plan: Plan,
    source: Vec<u8>,
}

impl Tracee {
    /// Has jumps be where they can be, and nowhere else. Everybody stands still. Where one is taken out nothing is planted.
    pub(super) fn place_jumps(&mut self, wanted: &BTreeMap<u64, usize>) {
        if self.jump_pads.is_empty() && !self.subscriptions.want_fast() {
            return;
        }
        self.drain_jump_pads();
        self.lift_occupied_jumps();
        let fit = if self.may_jump() {
            self.fit(wanted)
        } else {
            Vec::new()
        };
        for at in self.jump_pads.places() {
            let known = fit.iter().find(|fit| fit.at == at);
            let stays = known.is_some_and(|fit| {
                self.jump_pads
                    .does(&self.memory, at, &fit.plan, &fit.source)
            });
            if !stays {
                self.jump_pads.lift(&self.memory, at);
            }
        }
        let mut new = fit.clone();
        new.retain(|fit| !self.jump_pads.is_planted(fit.at));
        if new.is_empty() || !self.jumps_can_be_made() {
            return;
        }
        let sizes = fit.iter().map(|fit| fast::slot_size(&fit.plan.blocks));
        let size = sizes.max();
        let size = size.unwrap_or(0);
        if !self.jump_pads.has_room(size) {
            for at in self.jump_pads.places() {
                self.jump_pads.lift(&self.memory, at);
            }
            new = fit;
        }
        let ranges = new.iter().map(|fit| (fit.at, fit.source.len() as u64));
        let busy = self.busy(&ranges.collect::<Vec<_>>());
        new.retain(|fit| !busy.contains(&fit.at));
        if !busy.is_empty() {
            self.jump_placement.try_again();
        }
        let Some(near) = new.first().map(|fit| fit.at) else {
            return;
        };
        // Mapping memory is a thread's doing, and planting maps memory.
        let mut jumps = std::mem::take(&mut self.jump_pads);
        self.make_jumps(&mut jumps, new, (near, size));
        self.jump_pads = jumps;
    }

    /// Plants jumps; slots of this size are needed, and the pool is to be near to that address if there is to be another.
    fn make_jumps(&mut self, jumps: &mut JumpPads, new: Vec<Fit>, (near, size): (u64, u64)) {
        let Ok(memory) = Memory::open(self.any_task()) else {
            return;
        };
        let buffer = self.subscriptions.buffer_size() as u64;
        let mut room = Room::of(self);
        if !jumps.has_room(size) {
            let former = jumps.pool_mapping();
            // Not where the program's own mappings come next: they stay where they would be.
            let renewed = jumps.renew(&memory, (near, size), buffer, &mut room);
            if renewed.is_none() {
                return;
            }
            room.process.registered.clear();
            let pool = jumps.pool_mapping().map_or(0, |(start, _)| start);
            room.process.trap_handler.set_pool(&memory, pool);
            if let Some((start, size)) = former {
                room.process.unmap(start, size);
            }
        }
        for fit in new {
            let process = &mut *room.process;
            // The trap of the same tracepoint.
            process.breakpoints.remove_probe(&process.memory, fit.at);
            jumps.plant(
                &memory,
                (fit.at, fit.kind),
                &fit.plan,
                &fit.source,
                &mut room,
            );
            if room.process.budget.is_paused(fit.at) {
                jumps.switch(&memory, fit.at, false);
            }
        }
    }

    fn jumps_can_be_made(&mut self) -> bool {
        if !self.jump_pads.is_unused() {
            return true;
        }
        self.calls_freely() && collector::can_collect(self.capabilities())
    }

    /// What the processor can, as the program was told.
    fn capabilities(&self) -> [u64; 2] {
        CAPABILITIES.map(|kind| self.auxv_entry(kind).unwrap_or(0))
    }

    /// Whether nothing forbids jumps at all.
    fn may_jump(&self) -> bool {
        let still = |thread: &Thread| {
            matches!(thread.state, State::Stopped(_) | State::Exiting)
                && !thread.steps()
                && thread.vfork_child.is_none()
                && !thread.lends_memory
        };
        self.end.is_none()
            && !self.non_stop
            && self.watches.is_empty()
            && self.stop_policy.calls == SyscallFilter::None
            && !self.subscriptions.want_steps()
            && self.borrowed.is_none()
            && !self.shares_memory()
            && self.threads.values().all(still)
    }

    /// Where there can be jumps.
    fn fit(&mut self, wanted: &BTreeMap<u64, usize>) -> Vec<Fit> {
        let maps = maps::read(self.any_task());
        let capabilities = self.capabilities();
        let mut fit = Vec::new();
        let mut end = 0;
        for (at, kind) in wanted.iter().map(|(at, kind)| (*at, *kind)) {
            let Some((plan, source)) = self.subscriptions.plan(at, &set_of) else {
                continue;
            };
            // What is near is looked at in many places, and there are many of these: it is read at once.
            let near = at.saturating_sub(NEAR);
            let mut around = vec![0; 2 * NEAR as usize];
            let known = self.read_memory(near, &mut around).unwrap_or(0);
            around.truncate(known);
            let read = |at: u64, into: &mut [u8]| {
                let from = usize::try_from(at.wrapping_sub(near)).unwrap_or(usize::MAX);
                let known = around.get(from..).and_then(|rest| rest.get(..into.len()));
                known.map(|known| into.copy_from_slice(known)).is_some()
                    || self.read_memory(at, into) == Ok(into.len())
            };
            let site = Site {
                at,
                kind,
                code: &source,
                capabilities,
                read: &read,
            };
            let Some(length) = collector::displaceable(&site) else {
                continue;
            };
            let range = at..at + length as u64;
            let text = maps::around(&maps, at).is_some_and(|mapping| {
                mapping.executable
                    && !mapping.writable
                    && mapping.path.starts_with('/')
                    && mapping.range.end >= range.end
            });
            let alone = at >= end
                && wanted.range(at + 1..range.end).next().is_none()
                && self.breakpoints.only_probe_in(range.clone());
            let mut now = vec![0; length];
            let same = read(at, &mut now) && now == source[..length];
            if text && alone && same && !self.jump_pads.is_shunned(at) && !self.is_awaited_at(at) {
                end = range.end;
                fit.push(Fit {
                    at,
                    kind,
                    plan,
                    source: now,
                });
            }
        }
        fit
    }

    /// Whether a thread stands there that must not run into a jump: a handler is to come first.
    fn is_awaited_at(&mut self, at: u64) -> bool {
        self.threads.values_mut().any(|thread| {
            let waits = !thread.deliver.is_empty();
            let stopped = thread.stopped();
            stopped.is_some_and(|stopped| {
                (waits || stopped.at() == At::GroupStop) && stopped.pc() == Ok(at)
            })
        })
    }

    /// Those of these instructions (where and how many bytes) that some thread is in the midst of, or will return into.
    fn busy(&mut self, places: &[(u64, u64)]) -> BTreeSet<u64> {
        if collector::IN_PLACE_OF_ONE {
            return BTreeSet::new();
        }
        let inside = |address: u64| {
            let index = places.partition_point(|(at, _)| *at < address);
            let (at, length) = *places.get(index.checked_sub(1)?)?;
            (address < at + length).then_some(at)
        };
        let mut busy = BTreeSet::new();
        let maps = maps::read(self.any_task());
        let mut left = MOST_STACK;
        let mut buffer = vec![0; 64 << 10];
        for thread in self.threads.values_mut() {
            let Some(stopped) = thread.stopped() else {
                continue;
            };
            let (Ok(pc), Ok(sp)) = (stopped.pc(), stopped.sp()) else {
                continue;
            };
            busy.extend(inside(pc));
            let Some(stack) = maps::around(&maps, sp) else {
                continue;
            };
            // Only a frame of the kernel's for a handler returns there.
            const WORD: usize = size_of::<arch::Word>();
            let mut at = sp & !(WORD as u64 - 1);
            while at < stack.range.end {
                let length = (stack.range.end - at).min(buffer.len() as u64);
                let Some(rest) = left.checked_sub(length) else {
                    return places.iter().map(|(at, _)| *at).collect();
                };
                left = rest;
                let part = &mut buffer[..length as usize];
                let known = self.memory.read(at, part).unwrap_or(0);
                for word in part[..known].chunks_exact(WORD) {
                    let word = word.first_chunk().copied();
                    let word = word.map_or(0, arch::Word::from_le_bytes);
                    busy.extend(inside(collector::instruction_at(arch::wide(word))));
                }
                at += length;
            }
        }
        busy
    }

    /// Somebody wants these bytes of the program as they are: no jump is there any more, but a trap.
    pub(super) fn make_way(&mut self, range: Range<u64>) {
        if self.jump_pads.is_empty() || self.jump_pads.overlapping(range.clone()).is_empty() {
            return;
        }
        self.standing_still(|process| {
            for at in process.jump_pads.overlapping(range) {
                process.jump_pads.lift(&process.memory, at);
                process.trap_instead(at);
            }
        });
    }

    fn trap_instead(&mut self, at: u64) {
        if let Some(kind) = self.subscriptions.kind(at) {
            // Where that fails, there is nothing to be executed.
            let _ = self.plant_probe(at, kind);
        }
    }

    /// Puts a thread that has stopped in a collector where it would be without it. `None`: it has not.
    pub(super) fn leave_collector(&mut self, tid: Tid, held: bool) -> Option<(u64, Standing)> {
        if self.jump_pads.is_unused() {
            return None;
        }
        let stopped = self.threads.get_mut(&tid).and_then(Thread::stopped)?;
        let pc = stopped.pc().ok()?;
        let mut general = stopped.general().ok()?.to_vec();
        let (at, position) = self.jump_pads.back(&self.memory, pc, &mut general)?;
        let mut standing = position.standing;
        if held && matches!(standing, Standing::Slow | Standing::Alarmed) {
            if ptrace::trap_is_pending(tid) {
                // That is reported next, and dealt with then.
                return None;
            }
            // The trap has been reported; or it has not been executed.
            standing = match standing {
                Standing::Slow if arch::TRAP_ADVANCE == 0 => Standing::Before,
                _ => Standing::Dealt,
            };
        }
        stopped.set_general(&general).ok()?;
        if let Some(state) = position.claimed {
            self.memory.write_words(&[state], 0);
        }
        match standing {
            Standing::Dealt | Standing::Alarmed => {
                // This hit is to be told from the one that is noted if it comes there again for the same execution.
                self.drain_jump_pads();
                self.remember_hit(tid, at);
            }
            Standing::Inside if self.jump_pads.is_planted(at) => self.inside_jumps.push((tid, at)),
            _ => {}
        }
        Some((at, standing))
    }

    /// A thread has stopped in a collector by a signal, and has left it. Whether that was the collector's affair.
    pub(super) fn collector_stop(
        &mut self,
        tid: Tid,
        signal: i32,
        at: u64,
        standing: Standing,
    ) -> bool {
        let Ok(info) = ptrace::signal_info(tid) else {
            return true;
        };
        let by_itself = info.is_fault();
        if signal == libc::SIGTRAP && by_itself {
            self.keep_trap_handler(tid);
        }
        match (signal, standing) {
            (libc::SIGTRAP, Standing::Alarmed) if by_itself => {
                self.alarmed = true;
                self.drain_jump_pads();
                self.continue_unreported(tid);
                true
            }
            (libc::SIGTRAP, Standing::Slow) if by_itself => {
                self.register_with_collectors(tid);
                self.slow_hit(tid, at);
                true
            }
            (_, Standing::Before) if by_itself => {
                if self.jump_pads.faulted(at) {
                    self.schedule_placement();
                }
                self.slow_hit(tid, at);
                true
            }
            _ => false,
        }
    }

    /// A hit that a collector has left to us.
    fn slow_hit(&mut self, tid: Tid, at: u64) {
        let again = self.forget_hit(tid, at);
        let stops = !again && self.probe_hit(tid, at);
        if stops {
            self.remember_hit(tid, at);
            self.report(tid, crate::ptrace::thread::Pending::Tracepoint(at));
        } else if self.is_held(tid) {
            self.remember_hit(tid, at);
        } else {
            self.pass(tid, at);
        }
    }

    /// Tells the collectors of a thread.
    fn register_with_collectors(&mut self, tid: Tid) {
        if self.shares_memory() || self.jump_pads.is_empty() {
            return;
        }
        let Some(stopped) = self.threads.get_mut(&tid).and_then(Thread::stopped) else {
            return;
        };
        let (Ok(pointer), Ok(sp)) = (stopped.thread_pointer(), stopped.sp()) else {
            return;
        };
        if pointer == 0 {
            return;
        }
        let is_registered = self.registered.get(&tid) == Some(&pointer);
        if is_registered
            && let Some(pool) = self.jump_pads.pool()
            && pool.knows(&self.memory, pointer, sp)
        {
            // There was no free slot for its hit.
            return;
        }
        let maps = maps::read(self.any_task());
        let Some(stack) = maps::around(&maps, sp) else {
            return;
        };
        // The first thread's grows.
        let grows = stack.path == "[stack]";
        let low = if grows {
            stack.range.end.saturating_sub(1 << 30)
        } else {
            stack.range.start
        };
        if let Some(former) = self.registered.insert(tid, pointer)
            && let Some(pool) = self.jump_pads.pool()
        {
            pool.leave(&self.memory, former);
        }
        if let Some(pool) = self.jump_pads.pool() {
            let processor = ptrace::processor_word(tid);
            let bounds = (low, stack.range.end);
            pool.enter(&self.memory, pointer, tid.0, processor, bounds);
        }
    }

    /// A thread is about to end, or has ended; others of its process will be heard of.
    pub(super) fn leave_collectors(&mut self, tid: Tid, others_remain: bool) {
        if self.jump_pads.is_unused() {
            return;
        }
        // Of others collectors have noted nothing; but a hit that was noted twice is told by what its thread remembers, which may not be
        // known to collectors any more.
        let thread = self.threads.get(&tid);
        let remembers = thread.is_some_and(|thread| !thread.dealt_with.is_empty());
        if remembers || self.registered.contains_key(&tid) || !others_remain {
            self.drain_jump_pads();
        }
        self.leave_collector(tid, true);
        self.unregister(tid);
    }

    /// A thread begins that has this pointer to its own data: whoever had it has ended, even if that was not reported yet; or shares it, and is told
    /// of again.
    pub(super) fn unregister_pointer(&mut self, pointer: u64) {
        let known = self.registered.iter().find(|(_, known)| **known == pointer);
        if let Some(former) = known.map(|(tid, _)| *tid) {
            self.unregister(former);
        }
    }

    fn unregister(&mut self, tid: Tid) {
        if let (Some(pointer), Some(pool)) = (self.registered.remove(&tid), self.jump_pads.pool()) {
            pool.leave(&self.memory, pointer);
        }
    }

    /// Whether a thread that is about to end does so by its own call for that, and its process goes on.
    pub(super) fn ends_alone(&mut self, tid: Tid) -> bool {
        let stopped = self.threads.get_mut(&tid).and_then(Thread::stopped);
        let general = stopped.and_then(|stopped| stopped.general().ok());
        let call = general.and_then(arch::system_call);
        call == Some(libc::SYS_exit as u64)
    }

    /// Another process runs in this memory: what a thread is told by its pointer to its own data is two.
    pub(super) fn unregister_all(&mut self) {
        self.registered.clear();
        if let Some(pool) = self.jump_pads.pool() {
            pool.leave_all(&self.memory);
        }
    }

    /// Takes jumps out in the midst of which threads stand, with everybody held.
    pub(super) fn pass_inside_jumps(&mut self) {
        if !self.inside_jumps.is_empty() {
            self.standing_still(Tracee::lift_occupied_jumps);
        }
    }

    /// The same, once everybody is held.
    pub(super) fn lift_occupied_jumps(&mut self) {
        for (_, at) in std::mem::take(&mut self.inside_jumps) {
            if self.jump_pads.is_planted(at) {
                self.jump_pads.lift(&self.memory, at);
                self.trap_instead(at);
            }
        }
    }

    /// Whether a thread must not go on yet.
    pub(super) fn is_inside_jump(&self, tid: Tid) -> bool {
        self.inside_jumps.iter().any(|(other, _)| *other == tid)
    }

    /// Where a thread goes on that stands at a jump and whose hit has been dealt with.
    pub(super) fn through_collector(&mut self, tid: Tid) -> Option<u64> {
        if self.jump_pads.is_empty() {
            return None;
        }
        let thread = self.threads.get_mut(&tid)?;
        if thread.dealt_with.is_empty()
            || !thread.deliver.is_empty()
            || !matches!(thread.action, Action::Continue(_))
        {
            return None;
        }
        let stopped = thread.stopped().filter(|s| s.at() != At::GroupStop)?;
        let pc = stopped.pc().ok()?;
        let copy = self.jump_pads.copy(pc)?;
        self.forget_hit(tid, pc).then_some(copy)
    }

    /// All that is in the program for jumps goes. Everybody stands still.
    pub(super) fn remove_jumps(&mut self) {
        for at in self.jump_pads.places() {
            self.jump_pads.lift(&self.memory, at);
        }
        self.jump_pads.remove_veneers(&self.memory);
        self.trap_handler.set_pool(&self.memory, 0);
        // Somebody may still be in a collector.
        if self.end.is_none() && !self.shares_memory() {
            for (start, size) in self.jump_pads.mappings() {
                self.unmap(start, size);
            }
        }
        self.jump_pads.forget();
    }
}

#[cfg(test)]
mod tests;
