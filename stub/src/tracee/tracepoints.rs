//! Tracepoints in the program: their traps, and what a thread that runs into one leaves behind.
//!
//! A hit is the affair of one thread: it is looked at where it stopped, all others run on, and it
//! goes on by itself (`step_over`). When tracing ends by itself, because of a full buffer or a
//! count, the traps come out at the next opportunity, while every thread is stopped; until then
//! threads are taken past them.

use nix::errno::Errno;

use crate::arch;
use crate::sys::{Tid, maps, monotonic_ns};
use crate::tracepoint::budget::HitCost;
use crate::tracepoint::experiment::Ended;

use super::Tracee;
use crate::subscription::role::Role;

impl Tracee {
    /// Where the trap of a tracepoint at `address` goes, and its breakpoint kind. On ARM an odd
    /// address means Thumb, and of an even one the text tells, or what the current thread executes.
    pub(crate) fn place(&mut self, address: u64) -> (u64, usize) {
        let tid = self.process.current();
        let general = self.process.stopped(tid).and_then(|s| s.general().ok());
        let general = general.map(<[u8]>::to_vec).unwrap_or_default();
        arch::place(address, &general, &|at, into| {
            self.read_memory(at, into) == Ok(into.len())
        })
    }

    /// Plants a client's tracepoints and begins. Nothing is planted if one cannot be.
    pub(crate) fn start_trace(&mut self, role: Role) -> Result<(), Errno> {
        if !self.subscriptions.is_tracing() {
            self.begin_budget();
        }
        self.trace(role).start();
        self.subscriptions.hand_out_early_stalls();
        self.update_probes()
            .inspect_err(|_| self.stop_trace(role, Ended::NotRun))
    }

    /// Ends a client's trace, if it runs.
    pub(crate) fn stop_trace(&mut self, role: Role, why: Ended) {
        self.drain_jump_pads();
        self.trace(role).stop(why);
        self.retire_probes();
    }

    /// A client has changed one of its tracepoints at a place: it has a trap, or none any more.
    /// Whether it gets a jump is decided when the program goes on, or when it has gone on for a
    /// moment (`jump_placement`).
    pub(crate) fn tracepoint_changed(&mut self, role: Role, at: u64) -> Result<(), Errno> {
        if !self.trace(role).running {
            return Ok(());
        }
        self.schedule_placement();
        let here = at..at + 1;
        if !self.process.run.is_going()
            && !self
                .tracepoints
                .fast
                .jump_pads
                .overlapping(here.clone())
                .is_empty()
        {
            return Ok(());
        }
        self.make_way(here);
        let probed = self.breakpoints.probed(at);
        match self.subscriptions.kind(at) {
            // It comes back by itself.
            Some(_) if probed && self.tracepoints.budget.is_paused(at) => Ok(()),
            Some(_) if probed && self.breakpoints.is_whole(&self.process.memory, at) => Ok(()),
            Some(kind) => {
                self.prepare_for_trap(at, kind);
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

    /// Has the traps and jumps be what the tracepoints say.
    fn update_probes(&mut self) -> Result<(), Errno> {
        let none =
            self.breakpoints.probes().is_empty() && self.tracepoints.fast.jump_pads.is_empty();
        if none && self.subscriptions.places().is_empty() {
            return Ok(());
        }
        self.while_halted(Tracee::set_probes)
    }

    /// The same. Every thread must be stopped.
    pub(super) fn set_probes(&mut self) -> Result<(), Errno> {
        self.place_probes(false)
    }

    /// Has jumps be where they can be, and traps where they cannot be any more. Where a trap or
    /// jump has gone by itself, the program has put something else in its place, which may be data.
    pub(super) fn complete_probes(&mut self) -> Result<(), Errno> {
        self.place_probes(true)
    }

    fn place_probes(&mut self, only_new: bool) -> Result<(), Errno> {
        self.tracepoints.fast.placement.begin();
        let wanted = self.subscriptions.places();
        self.provide_trap_handler(&wanted);
        self.place_jumps(&wanted);
        for at in self.breakpoints.probes() {
            if !wanted.contains_key(&at) || self.tracepoints.fast.jump_pads.is_planted(at) {
                self.breakpoints.remove_probe(&self.process.memory, at);
            }
        }
        for (at, kind) in wanted {
            let probed = self.breakpoints.probed(at);
            // One that is paused comes back by itself.
            let stays = match only_new {
                true => probed || !self.is_as_defined(at),
                false => probed && self.tracepoints.budget.is_paused(at),
            };
            if !stays && !self.tracepoints.fast.jump_pads.is_planted(at) {
                self.plant_probe(at, kind)?;
            }
        }
        let jumps = &self.tracepoints.fast.jump_pads;
        for trace in self.subscriptions.traces() {
            for tracepoint in trace.tracepoints.values_mut() {
                tracepoint.has_jump = jumps.is_planted(tracepoint.at);
            }
        }
        Ok(())
    }

    /// Whether the text at a tracepoint is what it was.
    fn is_as_defined(&self, at: u64) -> bool {
        let source = self.subscriptions.source(at);
        source.is_none_or(|source| {
            let mut now = vec![0; source.len()];
            self.read_memory(at, &mut now) == Ok(now.len()) && now == source
        })
    }

    /// The end of the memory around `address` that does not change: the client says so, or it
    /// cannot be written. (gdb says so with the addresses of a file that is loaded elsewhere.)
    pub(crate) fn constant_until(&self, role: Role, address: u64) -> Option<u64> {
        let told = self.subscriptions.get(role)?.trace.read_only.iter();
        if let Some(range) = told.clone().find(|range| range.contains(&address)) {
            return Some(range.end);
        }
        let maps = String::from_utf8(self.process.read_proc("maps")).ok()?;
        let mapping = maps::around(&maps, address)?;
        (!mapping.writable).then_some(mapping.range.end)
    }

    /// Removes traps that no client wants any more, because a trace has ended.
    pub(super) fn retire_probes(&mut self) {
        let mut ended = false;
        for trace in self.subscriptions.traces() {
            ended |= std::mem::take(&mut trace.to_retire);
        }
        if ended && self.process.end.is_none() {
            // Nothing is planted: that cannot fail.
            let _ = self.update_probes();
        }
        if ended && !self.subscriptions.is_tracing() {
            self.tracepoints.budget.end(monotonic_ns());
        }
    }

    /// A thread stands at a tracepoint, for the first time with this execution of the instruction.
    /// Every trace that runs takes it. Whether it is to stop there for the client that controls it;
    /// it may also be held for an observer.
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
            let asked = subscription.trace.hit(at, arch::register_set_of, &mut hit);
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
            // It is to wait for a client, and is no hit that a recorder could do without: a pause
            // might be all it misses.
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
