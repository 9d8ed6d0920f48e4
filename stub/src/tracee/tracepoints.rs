//! Inserts the traps of tracepoints, and handles threads that hit them.
//!
//! A hit concerns one thread. The stub reads the thread where it stopped, while all others run, and
//! then takes it past the trap (`step_over`). When tracing ends because the buffer is full or a
//! pass count is reached, the stub removes the traps at the next opportunity, while every thread is
//! stopped. Until then it takes threads past them.

use nix::errno::Errno;

use crate::arch;
use crate::sys::{Tid, maps, monotonic_ns};
use crate::tracepoint::budget::HitCost;
use crate::tracepoint::definition::Key;
use crate::tracepoint::experiment::Ended;

use super::Tracee;
use crate::subscription::role::Role;

impl Tracee {
    /// The address of the trap for a tracepoint at `address`, and its breakpoint kind. On ARM an
    /// odd address means Thumb. For an even one, the text decides, or the mode of the current
    /// thread.
    pub(crate) fn place(&mut self, address: u64) -> (u64, usize) {
        let tid = self.process.current();
        let general = self.process.stopped(tid).and_then(|s| s.general().ok());
        let general = general.map(<[u8]>::to_vec).unwrap_or_default();
        arch::place(address, &general, &|at, into| {
            self.read_memory(at, into) == Ok(into.len())
        })
    }

    /// Inserts a client's tracepoints and starts its trace. If one cannot be inserted, none are.
    pub(crate) fn start_trace(&mut self, role: Role) -> Result<(), Errno> {
        if !self.subscriptions.is_tracing() {
            self.begin_budget();
        }
        self.trace(role).start();
        self.subscriptions.hand_out_early_stalls();
        self.update_probes()
            .inspect_err(|_| self.stop_trace(role, Ended::NotRun))
    }

    /// Ends a client's trace, if it is running.
    pub(crate) fn stop_trace(&mut self, role: Role, why: Ended) {
        self.drain_jump_pads();
        self.trace(role).stop(why);
        self.retire_probes();
    }

    /// Inserts or removes the trap at `at` after a client has changed a tracepoint there. Whether
    /// the tracepoint gets a jump is decided when the program resumes or has run for a moment
    /// (`placement`).
    pub(crate) fn tracepoint_changed(&mut self, role: Role, at: u64) -> Result<(), Errno> {
        if !self.trace(role).running {
            return Ok(());
        }
        self.schedule_placement();
        let here = at..at + 1;
        if !self.process.run.is_going()
            && (self.waits_for_placement(at)
                || !self
                    .tracepoints
                    .fast
                    .jump_pads
                    .overlapping(here.clone())
                    .is_empty())
        {
            return Ok(());
        }
        self.make_way(here);
        let probed = self.breakpoints.probed(at);
        match self.subscriptions.kind(at) {
            // A paused trap comes back when its pause ends.
            Some(_) if probed && self.tracepoints.budget.is_paused(at) => Ok(()),
            Some(_) if probed && self.breakpoints.is_whole(&self.process.memory, at) => Ok(()),
            Some(kind) => {
                self.prepare_for_trap(at);
                self.changing_text(|tracee| tracee.plant_probe(at, kind))
            }
            None if probed => {
                self.while_halted(|tracee| {
                    tracee.breakpoints.remove_probe(&tracee.process.memory, at);
                });
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Deletes a disabled tracepoint. Other code may later be at its address, so the budget forgets
    /// the address with its last tracepoint.
    pub(crate) fn forget_tracepoint(&mut self, role: Role, key: Key) {
        let Some(at) = self.trace(role).tracepoints.get(&key).map(|t| t.at) else {
            return;
        };
        let budget = &mut self.tracepoints.budget;
        let is_paused = budget.is_paused(at);
        let missed = budget.missed(monotonic_ns(), at);
        self.trace(role).forget(&key, missed, is_paused);
        let mut traces = self.subscriptions.traces();
        if !traces.any(|trace| trace.tracepoints.are_at(at)) {
            self.tracepoints.budget.forget(at);
        }
    }

    /// True for a new fast tracepoint. The resume plants its jump, or its trap if there can be no
    /// jump. A trap before that would be inserted only to be removed.
    fn waits_for_placement(&self, at: u64) -> bool {
        self.subscriptions.want_fast()
            && self.subscriptions.kind(at).is_some()
            && self.subscriptions.source(at).is_some()
            && !self.breakpoints.probed(at)
            && !self.process.has_untraced_child_inside()
    }

    /// Inserts and removes traps and jumps to match the tracepoints.
    fn update_probes(&mut self) -> Result<(), Errno> {
        let none =
            self.breakpoints.probes().is_empty() && self.tracepoints.fast.jump_pads.is_empty();
        if none && self.subscriptions.places().is_empty() {
            return Ok(());
        }
        self.while_halted(Tracee::set_probes)
    }

    /// Like `update_probes`, but every thread must already be stopped.
    pub(super) fn set_probes(&mut self) -> Result<(), Errno> {
        self.place_probes(false)
    }

    /// Plants jumps where they are possible, and traps where jumps are not possible any more.
    /// Replaces no trap or jump that the program has overwritten, because the new bytes may be
    /// data.
    pub(super) fn complete_probes(&mut self) -> Result<(), Errno> {
        self.place_probes(true)
    }

    fn place_probes(&mut self, only_new: bool) -> Result<(), Errno> {
        self.tracepoints.fast.placement.begin();
        let wanted = self.subscriptions.places();
        let places: Vec<u64> = wanted.keys().copied().collect();
        self.provide_trap_handler(&places);
        let decided = self.place_jumps(&wanted);
        let mut placed = Ok(());
        for at in self.breakpoints.probes() {
            if !wanted.contains_key(&at) || self.tracepoints.fast.jump_pads.is_planted(at) {
                self.breakpoints.remove_probe(&self.process.memory, at);
            }
        }
        for (at, kind) in wanted {
            let probed = self.breakpoints.probed(at);
            // A paused trap comes back when its pause ends.
            let stays = match only_new {
                true => probed || !self.is_as_defined(at),
                false => probed && self.tracepoints.budget.is_paused(at),
            };
            if !stays && !self.tracepoints.fast.jump_pads.is_planted(at) {
                placed = self.plant_probe(at, kind).and(placed);
            }
        }
        let jumps = &self.tracepoints.fast.jump_pads;
        for trace in self.subscriptions.traces() {
            for tracepoint in trace.tracepoints.values_mut() {
                tracepoint.has_jump = jumps.is_planted(tracepoint.at);
            }
        }
        if decided && placed.is_ok() {
            let placed = self.placed();
            self.tracepoints.fast.placement.settle(placed);
        }
        placed
    }

    /// True if the text at a tracepoint is as the client defined it.
    fn is_as_defined(&self, at: u64) -> bool {
        let source = self.subscriptions.source(at);
        source.is_none_or(|source| {
            let mut now = vec![0; source.len()];
            self.read_memory(at, &mut now) == Ok(now.len()) && now == source
        })
    }

    /// The end of the constant memory around `address`. Memory is constant if the client says so or
    /// if it is not writable. (gdb may send the addresses of a file that is loaded elsewhere.)
    pub(crate) fn constant_until(&self, role: Role, address: u64) -> Option<u64> {
        let told = self.subscriptions.get(role)?.trace.read_only.iter();
        if let Some(range) = told.clone().find(|range| range.contains(&address)) {
            return Some(range.end);
        }
        let maps = String::from_utf8(self.process.read_proc("maps")).ok()?;
        let mapping = maps::around(&maps, address)?;
        (!mapping.writable).then_some(mapping.range.end)
    }

    /// Removes traps that no client needs any more, because a trace has ended.
    pub(super) fn retire_probes(&mut self) {
        let mut ended = false;
        for trace in self.subscriptions.traces() {
            ended |= std::mem::take(&mut trace.to_retire);
        }
        if ended && self.process.end.is_none() {
            // This only removes traps, which cannot fail.
            let _ = self.update_probes();
        }
        if ended && !self.subscriptions.is_tracing() {
            self.tracepoints.budget.end(monotonic_ns());
        }
    }

    /// Handles a thread's hit of the tracepoints at `at`, once for each execution of the
    /// instruction. Every running trace records it. True if the thread must stop for the client in
    /// control. It may also be held for an observer.
    pub(super) fn probe_hit(&mut self, tid: Tid, at: u64) -> bool {
        let since = monotonic_ns();
        self.drain_jump_pads();
        self.tracepoints.hit_cost = Some(HitCost {
            at,
            draining: monotonic_ns().saturating_sub(since),
            is_step: false,
        });
        let Some((mut hit, subscriptions)) = self.live_hit(tid) else {
            return false;
        };
        let mut series = Vec::new();
        let mut stops = Vec::new();
        let mut needed = false;
        for (role, subscription) in subscriptions.each() {
            let asked = subscription.trace.hit(at, &mut hit);
            needed |= asked.needed;
            if asked.stop {
                stops.push(role);
            }
            series.extend(asked.series.into_iter().map(|series| (role, series)));
        }
        if needed {
            self.tracepoints.budget.need(at);
        }
        self.begin_series(tid, series);
        if !stops.is_empty() {
            // The budget leaves such hits out, because the thread waits for a client. A pause could
            // hide the only hit that there is.
            self.tracepoints.hit_cost = None;
        }
        let for_control = stops.contains(&Role::Control);
        for role in stops {
            if role != Role::Control {
                self.subscriptions.hold(tid, role, Some(at));
            }
        }
        for_control
    }
}
