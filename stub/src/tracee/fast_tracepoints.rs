//! Decides which tracepoints have jumps to collectors instead of traps.
//!
//! A tracepoint has a jump if the client requested one and if the collector can record everything
//! that the tracepoint's actions need. The stub decides again after a change, while every thread is
//! stopped. There are no jumps while a thread steps or its steps are to be recorded after a hit,
//! nor while watchpoints, system calls or non-stop mode need stops. A tracepoint without a jump has
//! a trap, and its hits only take longer.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

use crate::arch;
use crate::arch::collector;
use crate::arch::fast::{self, Site};
use crate::ptrace::thread::{At, State, Thread};
use crate::subscription::stop_policy::SyscallFilter;
use crate::sys::maps::{self, Mapping};
use crate::sys::memory::Memory;
use crate::sys::processor_ns;
use crate::tracepoint::fast::jump_pad::{JumpPads, JumpSite, PoolOrder};
use crate::tracepoint::fast::placement::Placed;

use super::Tracee;
use super::remote_syscall::Room;

/// `AT_HWCAP`, `AT_HWCAP2`
const CAPABILITIES: [u64; 2] = [16, 26];
/// Distance around an address that is searched for exclusive sequences and IT blocks, in bytes.
const NEAR: u64 = 256;
/// Usual cost of a hit, in nanoseconds, and a size of the pool that suits any budget, in bytes.
const USUAL_COST: u64 = 3000;
const SMALL_POOL: u64 = 16 << 20;
/// Maximum number of stack bytes to search, for all threads together.
const MAX_STACK: u64 = 64 << 20;

impl Tracee {
    /// Plants the jumps that are possible, and removes all others without inserting traps. Every
    /// thread must be stopped. True if a new attempt would change nothing.
    pub(super) fn place_jumps(&mut self, wanted: &BTreeMap<u64, usize>) -> bool {
        if self.tracepoints.fast.jump_pads.is_empty() && !self.subscriptions.want_fast() {
            return true;
        }
        self.stop_woken();
        self.drain_jump_pads();
        self.remove_occupied_jumps();
        let (fit, decided) = if self.may_jump() {
            self.fit(wanted)
        } else {
            (Vec::new(), false)
        };
        for at in self.tracepoints.fast.jump_pads.places() {
            let known = fit.iter().find(|fit| fit.at == at);
            let jump_pads = &mut self.tracepoints.fast.jump_pads;
            if !known.is_some_and(|fit| jump_pads.does(&self.process.memory, fit)) {
                jump_pads.lift(&self.process.memory, at);
            }
        }
        let mut new = fit.clone();
        new.retain(|fit| !self.tracepoints.fast.jump_pads.is_planted(fit.at));
        if new.is_empty() {
            return decided;
        }
        if !self.jumps_can_be_made() {
            return false;
        }
        let sizes = fit.iter().map(|fit| fast::slot_size(&fit.plan.blocks));
        let size = sizes.max();
        let size = size.unwrap_or(0);
        if !self.tracepoints.fast.jump_pads.has_room(size) {
            for at in self.tracepoints.fast.jump_pads.places() {
                self.tracepoints
                    .fast
                    .jump_pads
                    .lift(&self.process.memory, at);
            }
            new = fit;
        }
        self.ambush_left(&new);
        let ranges = new.iter().map(|fit| (fit.at, fit.source.len() as u64));
        let busy = self.busy(&ranges.collect::<Vec<_>>());
        new.retain(|fit| !busy.contains(&fit.at));
        if !busy.is_empty() {
            self.tracepoints.fast.placement.retry();
        }
        let Some(near) = new.first().map(|fit| fit.at) else {
            return false;
        };
        let places: Vec<u64> = new.iter().map(|fit| fit.at).collect();
        // Planting maps memory, which needs `self`: a thread of the program makes the system call.
        let mut jumps = std::mem::take(&mut self.tracepoints.fast.jump_pads);
        self.make_jumps(&mut jumps, new, near, size);
        let all_planted = places.iter().all(|at| jumps.is_planted(*at));
        self.tracepoints.fast.jump_pads = jumps;
        decided && busy.is_empty() && all_planted
    }

    /// Inserts traps where jumps are to be planted, if threads were left asleep. So a thread that
    /// wakes cannot be inside the displaced instructions when the jump replaces the trap.
    fn ambush_left(&mut self, new: &[JumpSite]) {
        if !self.process.has_left() {
            return;
        }
        for site in new {
            // Without a trap there is no jump either, because nothing can be written.
            let _ = self.plant_probe(site.at, site.kind);
        }
        self.stop_woken();
    }

    /// The tracepoints, traps and jumps as they are now.
    pub(super) fn placed(&self) -> Placed {
        Placed {
            wanted: self.subscriptions.places(),
            traps: self.breakpoints.places(),
            jumps: self.tracepoints.fast.jump_pads.places(),
        }
    }

    /// Decides about jumps before the program resumes, unless the last decision still holds. A
    /// program that loads many libraries stops often, and each decision reads all of its
    /// tracepoints' text.
    pub(super) fn place_jumps_before_resume(&mut self) {
        let matters = !self.tracepoints.fast.jump_pads.is_empty() || self.subscriptions.want_fast();
        if matters && !self.is_placed() {
            // If no trap can be inserted, no instruction can be executed there either.
            let _ = self.complete_probes();
        }
    }

    /// True if a decision about jumps would change nothing. Every thread must be stopped.
    fn is_placed(&self) -> bool {
        let placement = &self.tracepoints.fast.placement;
        placement.is_settled(|| self.placed()) && self.may_jump()
    }

    /// Plants jumps. If slots of this size need another pool, maps it close to the address `near`.
    fn make_jumps(&mut self, jumps: &mut JumpPads, new: Vec<JumpSite>, near: u64, slot_size: u64) {
        let Ok(memory) = Memory::open(self.process.any_task()) else {
            return;
        };
        let mut buffer = self.subscriptions.buffer_size() as u64;
        if let Some(share) = self.tracepoints.budget.share {
            // The budget is applied to a hit when the stub drains it. With room for more hits than
            // the budget allows at once, the stub would be too late.
            let hits = share.capacity().cast_unsigned() / USUAL_COST;
            buffer = buffer.min(SMALL_POOL.max(2 * hits * slot_size));
        }
        let mut room = Room::of(self);
        if !jumps.has_room(slot_size) {
            let former = jumps.pool_mapping();
            let order = PoolOrder {
                near,
                slot_size,
                buffer,
            };
            if jumps.renew(&memory, &order, &mut room).is_none() {
                return;
            }
            let tracepoints = &mut room.tracee.tracepoints;
            tracepoints.fast.forget_registered();
            let pool = jumps.pool_mapping().map_or(0, |(start, _)| start);
            tracepoints.trap_handler.set_pool(&memory, pool);
            if let Some((start, size)) = former {
                room.tracee.unmap(start, size);
            }
        }
        for site in new {
            if jumps.plant(&memory, &site, &mut room).is_none() {
                continue;
            }
            // The trap that this jump replaces.
            let tracee = &mut *room.tracee;
            tracee
                .breakpoints
                .remove_probe(&tracee.process.memory, site.at);
            if room.tracee.tracepoints.budget.is_paused(site.at) {
                jumps.switch(&memory, site.at, false);
            }
        }
    }

    fn jumps_can_be_made(&mut self) -> bool {
        if !self.tracepoints.fast.jump_pads.is_unused() {
            return true;
        }
        self.process.calls_freely() && collector::can_collect(self.capabilities())
    }

    /// The processor's capabilities, as the kernel has passed them to the program.
    fn capabilities(&self) -> [u64; 2] {
        CAPABILITIES.map(|kind| self.process.auxv_entry(kind).unwrap_or(0))
    }

    /// True if nothing forbids all jumps.
    fn may_jump(&self) -> bool {
        let still = |thread: &Thread| {
            let is_stopped = matches!(thread.state, State::Stopped(_) | State::Exiting);
            (thread.is_left || (is_stopped && thread.can_stop())) && !thread.steps()
        };
        self.process.end.is_none()
            && !self.process.run.is_non_stop()
            && self.process.watches().is_empty()
            && self.stop_policy.calls == SyscallFilter::None
            && !self.subscriptions.want_steps()
            && self.forks.borrowed.is_none()
            && !self.process.shares_memory()
            && self.process.threads.values().all(still)
    }

    /// The sites that can have jumps. Also returns whether all others never can.
    fn fit(&mut self, wanted: &BTreeMap<u64, usize>) -> (Vec<JumpSite>, bool) {
        let maps = maps::read(self.process.any_task());
        let maps: Vec<Mapping<'_>> = maps::mappings(&maps).collect();
        let capabilities = self.capabilities();
        let mut fit = Vec::new();
        let mut decided = true;
        let mut end = 0;
        for (at, kind) in wanted.iter().map(|(at, kind)| (*at, *kind)) {
            let Some((plan, source)) = self.subscriptions.plan(at) else {
                continue;
            };
            // One read serves the many lookups around this address.
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
            let text = maps::find(&maps, at).is_some_and(|mapping| {
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
            let ready = text && same && !self.is_awaited_at(at);
            decided &= ready;
            if ready && alone && !self.tracepoints.fast.jump_pads.is_shunned(at) {
                end = range.end;
                fit.push(JumpSite {
                    at,
                    kind,
                    plan,
                    source: now,
                });
            }
        }
        (fit, decided)
    }

    /// True if a thread at `at` must not run into a jump, because a signal handler comes first.
    fn is_awaited_at(&mut self, at: u64) -> bool {
        self.process.threads.values_mut().any(|thread| {
            let waits = !thread.deliver.is_empty();
            let stopped = thread.stopped();
            stopped.is_some_and(|stopped| {
                (waits || stopped.at() == At::GroupStop) && stopped.pc() == Ok(at)
            })
        })
    }

    /// The ranges (address and size) that a thread is inside of, or may return into.
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
        let maps = maps::read(self.process.any_task());
        let maps: Vec<Mapping<'_>> = maps::mappings(&maps).collect();
        let mut left = MAX_STACK;
        let mut buffer = vec![0; 64 << 10];
        for thread in self.process.threads.values_mut() {
            let place = match thread.unstoppable {
                Some(call) => call.place(),
                None => thread
                    .stopped()
                    .and_then(|it| it.pc().ok().zip(it.sp().ok())),
            };
            let Some((pc, sp)) = place else {
                continue;
            };
            busy.extend(inside(pc));
            let Some(stack) = maps::find(&maps, sp) else {
                continue;
            };
            // Only the kernel's frame for a signal handler can return there.
            const WORD: usize = size_of::<arch::Word>();
            let mut at = sp & !(WORD as u64 - 1);
            while at < stack.range.end {
                let length = (stack.range.end - at).min(buffer.len() as u64);
                let Some(rest) = left.checked_sub(length) else {
                    return places.iter().map(|(at, _)| *at).collect();
                };
                left = rest;
                let part = &mut buffer[..length as usize];
                let known = self.process.memory.read(at, part).unwrap_or(0);
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

    /// Replaces jumps that overlap these bytes of the program with traps.
    pub(super) fn make_way(&mut self, range: Range<u64>) {
        if self.tracepoints.fast.jump_pads.is_empty()
            || self
                .tracepoints
                .fast
                .jump_pads
                .overlapping(range.clone())
                .is_empty()
        {
            return;
        }
        self.while_halted(|tracee| {
            for at in tracee.tracepoints.fast.jump_pads.overlapping(range) {
                tracee
                    .tracepoints
                    .fast
                    .jump_pads
                    .lift(&tracee.process.memory, at);
                tracee.trap_instead(at);
            }
        });
    }

    /// Inserts the trap of a tracepoint whose jump was removed.
    pub(super) fn trap_instead(&mut self, at: u64) {
        if let Some(kind) = self.subscriptions.kind(at) {
            // If no trap can be inserted, no instruction can be executed there either.
            let _ = self.plant_probe(at, kind);
        }
    }

    /// Removes everything that jumps need from the program. Every thread must be stopped.
    pub(super) fn remove_jumps(&mut self) {
        for at in self.tracepoints.fast.jump_pads.places() {
            self.tracepoints
                .fast
                .jump_pads
                .lift(&self.process.memory, at);
        }
        self.tracepoints
            .fast
            .jump_pads
            .remove_veneers(&self.process.memory);
        self.tracepoints
            .trap_handler
            .set_pool(&self.process.memory, 0);
        // A thread that was left asleep may have run into a collector.
        self.stop_woken();
        // A thread may still be in a collector.
        if self.process.end.is_none() && !self.process.shares_memory() {
            for (start, size) in self.tracepoints.fast.jump_pads.mappings() {
                self.unmap(start, size);
            }
        }
        self.tracepoints.fast.jump_pads.forget();
    }

    /// Addresses and sizes of the memory in the program that has the stub's own code.
    pub(crate) fn own_code(&self) -> Vec<(u64, u64)> {
        let mut code = self.tracepoints.fast.jump_pads.code_mappings();
        code.extend(self.tracepoints.trap_handler.mappings());
        code
    }

    /// Schedules a decision about jumps after a change.
    pub(super) fn schedule_placement(&mut self) {
        let fast = &mut self.tracepoints.fast;
        fast.placement.unsettle();
        let matters = !fast.jump_pads.is_empty() || self.subscriptions.want_fast();
        if self.process.is_going() && matters {
            fast.placement.schedule();
        }
    }

    /// Time of the next decision about jumps.
    pub(crate) fn placement_due(&self) -> Option<Instant> {
        let due = self.tracepoints.fast.placement.due();
        due.filter(|_| self.process.is_going())
    }

    pub(super) fn place_jumps_if_due(&mut self) {
        let due = self.placement_due();
        if due.is_some_and(|due| due <= Instant::now()) {
            let before = processor_ns();
            self.place_jumps_halted();
            self.tracepoints.budget.exclude(processor_ns() - before);
        }
    }

    /// Makes pending decisions about jumps now, so that the client sees the final state.
    pub(crate) fn place_pending_jumps(&mut self) {
        let placed = match self.process.is_going() {
            true => self.placement_due().is_none(),
            false => self.is_placed(),
        };
        if !placed && self.process.end.is_none() && self.subscriptions.is_tracing() {
            self.place_jumps_halted();
        }
    }

    fn place_jumps_halted(&mut self) {
        let since = Instant::now();
        // If no trap can be inserted, no instruction can be executed there either.
        let _ = self.while_halted(Tracee::complete_probes);
        self.tracepoints.fast.placement.finish(since.elapsed());
    }
}

#[cfg(test)]
mod tests;
