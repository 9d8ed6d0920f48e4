//! A trace experiment: its tracepoints, variables and frames, and the handling of a hit.

mod frame_builder;

use std::mem;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use super::budget::{Budget, Missed};
use super::definition::{Definitions, Key, Tracepoint};
use super::frame_buffer::{Buffer, Frame, Mark};
use super::stack_key::KnownStacks;
use super::variable::Variables;
use crate::bytecode;
use crate::sys::monotonic_ns;
use frame_builder::FrameBuilder;
pub(crate) use frame_builder::HitContext;

/// The effects of a hit beyond its frame.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// The thread must stop and the client gets a report.
    pub(crate) stop: bool,
    /// The budget must not pause the tracepoint, and the frame must not be dropped.
    pub(crate) needed: bool,
    /// The steps to record after the hit.
    pub(crate) series: Vec<StepSeries>,
}

/// The instructions that a thread executes step by step after a hit, each of which is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StepSeries {
    /// The address of the hit.
    pub(crate) at: u64,
    tracepoint: Key,
    left: u64,
    /// The trace ends with this series, because the hit was the last requested one.
    last: bool,
    /// Number of the trace run.
    run: u64,
}

/// The reason why an experiment does not run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It has not been started.
    NotRun,
    /// The client ended it.
    Stopped,
    /// The buffer is full.
    Full,
    /// The client left.
    Disconnected,
    /// The pass count of this tracepoint is reached.
    Passes(u32),
    /// An expression of this tracepoint failed.
    Error(u32, String),
    /// The process executed another program.
    Gone,
}

/// An experiment.
pub(crate) struct Experiment {
    pub(crate) tracepoints: Definitions,
    pub(crate) variables: Variables,
    pub(crate) buffer: Buffer,
    pub(crate) ended: Ended,
    pub(crate) running: bool,
    /// Number of times that it was started.
    runs: u64,
    /// It continues after the client has disconnected.
    pub(crate) disconnected: bool,
    /// Memory that does not change, so that it need not be recorded.
    pub(crate) read_only: Vec<Range<u64>>,
    pub(crate) user: Vec<u8>,
    pub(crate) notes: Vec<u8>,
    pub(crate) stop_note: Vec<u8>,
    /// Microseconds since 1970.
    pub(crate) started_us: u64,
    pub(crate) stopped_us: u64,
    /// The experiment has ended, but its traps are not removed yet.
    pub(crate) to_retire: bool,
    /// A client takes frames out as they come. A full buffer then drops frames, and the trace
    /// continues.
    pub(crate) drained: bool,
    /// The program is blocked while the buffer is full, so that nothing is dropped.
    pub(crate) waits: bool,
    /// Frames have only the registers that are collected.
    pub(crate) register_parts: bool,
    /// The stacks that the client already has.
    pub(crate) known_stacks: KnownStacks,
    /// Tracepoints with dropped hits for which no mark has been added yet.
    unmarked: Vec<Key>,
    /// The client does not know all hits that these deleted tracepoints have dropped or missed.
    deleted: Deleted,
}

/// The total dropped and missed hits of deleted tracepoints, with the tracepoints' numbers.
#[derive(Default)]
struct Deleted {
    dropped: Vec<(u32, u64)>,
    missed: Vec<(u32, Missed)>,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            tracepoints: Definitions::default(),
            variables: Variables::default(),
            buffer: Buffer::default(),
            ended: Ended::NotRun,
            running: false,
            runs: 0,
            disconnected: false,
            read_only: Vec::new(),
            user: Vec::new(),
            notes: Vec::new(),
            stop_note: Vec::new(),
            started_us: 0,
            stopped_us: 0,
            to_retire: false,
            drained: false,
            waits: false,
            register_parts: false,
            known_stacks: KnownStacks::default(),
            unmarked: Vec::new(),
            deleted: Deleted::default(),
        }
    }
}

impl Experiment {
    /// Forgets tracepoints, variables and frames (`QTinit`).
    pub(crate) fn clear(&mut self) {
        self.tracepoints = Definitions::default();
        self.variables = Variables::default();
        self.buffer.clear();
        self.ended = Ended::NotRun;
        self.running = false;
        self.read_only.clear();
        self.drained = false;
        self.waits = false;
        self.register_parts = false;
        self.unmarked.clear();
        self.deleted = Deleted::default();
        self.known_stacks.clear();
    }

    /// The addresses that need traps, and their breakpoint kinds.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, usize)> {
        let enabled = self.tracepoints.values();
        enabled
            .filter(|tracepoint| tracepoint.enabled)
            .map(|tracepoint| (tracepoint.at, tracepoint.kind))
    }

    /// Starts a run. The traps are already planted.
    pub(crate) fn start(&mut self) {
        for tracepoint in self.tracepoints.values_mut() {
            (tracepoint.hits, tracepoint.usage) = (0, 0);
            (tracepoint.dropped, tracepoint.told) = (0, 0);
            tracepoint.told_missed = Missed::default();
        }
        self.deleted = Deleted::default();
        self.buffer.clear();
        self.known_stacks.clear();
        self.running = true;
        self.runs += 1;
        self.stop_note.clear();
        self.started_us = now_us();
        self.stopped_us = 0;
    }

    /// Ends the run, if there is one. The caller removes the traps.
    pub(crate) fn stop(&mut self, why: Ended) {
        if self.running {
            self.running = false;
            self.to_retire = true;
            self.ended = why;
            self.stopped_us = now_us();
        }
    }

    /// Records that the tracepoints at `at` were paused or resumed.
    pub(crate) fn mark(&mut self, at: u64, mark: Mark) {
        if !self.running || !self.drained {
            return;
        }
        let here = self.tracepoints.values().filter(|t| t.at == at);
        let numbers: Vec<u32> = here.map(|t| t.number).collect();
        for number in numbers {
            self.mark_one(number, at, mark);
        }
    }

    fn mark_one(&mut self, number: u32, at: u64, mark: Mark) {
        if !self.keep(Frame::mark(number, at, mark)) {
            self.is_unmarked(number, at);
        }
    }

    /// Deletes a tracepoint that has missed these hits. Its pause, if any, ends with it.
    pub(crate) fn forget(&mut self, key: &Key, missed: Missed, is_paused: bool) {
        let Some(tracepoint) = self.tracepoints.remove(key) else {
            return;
        };
        if is_paused && self.running {
            self.mark_one(tracepoint.number, tracepoint.at, Mark::Resumed);
        }
        let Tracepoint {
            number, dropped, ..
        } = tracepoint;
        if dropped > tracepoint.told {
            self.deleted.dropped.push((number, dropped));
        }
        if missed != tracepoint.told_missed {
            self.deleted.missed.push((number, missed));
        }
    }

    /// Adds a frame, after the missing marks, if there is room for all of them.
    fn keep(&mut self, frame: Frame) -> bool {
        self.buffer.drained = self.drained;
        if !self.buffer.fits(&frame) {
            return false;
        }
        while let Some((number, at)) = self.unmarked.last().copied() {
            let mut mark = Frame::mark(number, at, Mark::Dropped);
            mark.time = frame.time;
            if !self.buffer.add(mark) {
                return false;
            }
            self.unmarked.pop();
        }
        self.buffer.add(frame)
    }

    fn is_unmarked(&mut self, number: u32, at: u64) {
        if !self.unmarked.contains(&(number, at)) {
            self.unmarked.push((number, at));
        }
    }

    /// The number of tracepoints with a jump, and the tracepoint numbers of those with a trap.
    pub(crate) fn kinds(&self) -> (usize, Vec<u32>) {
        let enabled = self.tracepoints.values().filter(|t| t.enabled);
        let (jumps, traps): (Vec<&Tracepoint>, Vec<_>) = enabled.partition(|t| t.has_jump);
        (jumps.len(), traps.iter().map(|t| t.number).collect())
    }

    /// The tracepoints that dropped more hits since the last call, and how many they have dropped
    /// in total.
    pub(crate) fn newly_dropped(&mut self) -> Vec<(u32, u64)> {
        let mut dropped = mem::take(&mut self.deleted.dropped);
        let more = self.tracepoints.values_mut();
        let more = more.filter(|tracepoint| tracepoint.dropped > tracepoint.told);
        dropped.extend(more.map(|tracepoint| {
            tracepoint.told = tracepoint.dropped;
            (tracepoint.number, tracepoint.dropped)
        }));
        dropped
    }

    /// The tracepoints that have paused since the last call, and the total that each has missed.
    /// `all` adds tracepoints that have missed more hits during an earlier pause.
    pub(crate) fn newly_missed(&mut self, budget: &mut Budget, all: bool) -> Vec<(u32, Missed)> {
        let now = monotonic_ns();
        let mut news = mem::take(&mut self.deleted.missed);
        for tracepoint in self.tracepoints.values_mut() {
            let missed = budget.missed(now, tracepoint.at);
            let told = &mut tracepoint.told_missed;
            if missed.pauses != told.pauses || (all && missed != *told) {
                *told = missed;
                news.push((tracepoint.number, missed));
            }
        }
        news
    }

    /// Handles a thread's arrival at `pc` for every tracepoint there.
    pub(crate) fn hit(&mut self, pc: u64, context: &mut dyn HitContext) -> Asked {
        let mut asked = Asked::default();
        if !self.running {
            return asked;
        }
        let mut tracepoints = mem::take(&mut self.tracepoints);
        tracepoints.each_at(pc, |tracepoint| {
            if tracepoint.enabled {
                let here = self.take(tracepoint, context);
                asked.stop |= here.stop;
                asked.needed |= here.needed;
                asked.series.extend(here.series);
            }
        });
        self.tracepoints = tracepoints;
        asked
    }

    fn take(&mut self, tracepoint: &mut Tracepoint, context: &mut dyn HitContext) -> Asked {
        // A frame that is overwritten is never sent.
        let once = self.drained && !self.buffer.circular;
        let mut builder = FrameBuilder::new(
            tracepoint,
            tracepoint.at,
            &mut self.variables,
            context,
            self.register_parts,
            once.then_some(&self.known_stacks),
        );
        if let Some(condition) = &tracepoint.condition {
            match bytecode::evaluate(condition, &mut builder) {
                Ok(0) => {
                    return Asked {
                        stop: false,
                        ..builder.asked
                    };
                }
                Ok(_) => {}
                Err(fault) => {
                    let why = Ended::Error(tracepoint.number, fault.to_string());
                    self.stop(why);
                    return Asked::default();
                }
            }
        }
        tracepoint.hits += 1;
        let error = builder.note(&tracepoint.actions);
        let FrameBuilder {
            mut asked,
            mut frame,
            new_key,
            ..
        } = builder;
        if asked.stop {
            return asked;
        }
        frame.needed = asked.needed;
        let time = frame.time;
        let kept = self.add(tracepoint, frame, error);
        if let Some(key) = new_key.filter(|_| kept) {
            self.known_stacks.add(key, time);
        }
        if self.running && tracepoint.steps > 0 {
            asked.series.push(StepSeries {
                at: tracepoint.at,
                tracepoint: (tracepoint.number, tracepoint.address),
                left: tracepoint.steps,
                last: tracepoint.is_done(),
                run: self.runs,
            });
        } else if tracepoint.is_done() {
            self.stop(Ended::Passes(tracepoint.number));
        }
        asked
    }

    /// Records a thread that has executed one more instruction after a hit and is now at `pc`. True
    /// if the thread must be stepped further.
    pub(crate) fn step(
        &mut self,
        one_series: &mut StepSeries,
        pc: u64,
        context: &mut dyn HitContext,
    ) -> bool {
        if !self.is_for(one_series) {
            return false;
        }
        let mut tracepoints = mem::take(&mut self.tracepoints);
        let stepped = tracepoints.get_mut(&one_series.tracepoint);
        let goes_on = stepped.is_some_and(|tracepoint| {
            let variables = &mut self.variables;
            let parts = self.register_parts;
            let mut builder = FrameBuilder::new(tracepoint, pc, variables, context, parts, None);
            let error = builder.note(&tracepoint.step_actions);
            let frame = builder.frame;
            self.add(tracepoint, frame, error);
            one_series.left -= 1;
            if one_series.left == 0 {
                self.end_series(one_series);
            }
            self.running && one_series.left > 0
        });
        self.tracepoints = tracepoints;
        goes_on
    }

    /// Ends a series, because all its steps are recorded or the thread has ended.
    pub(crate) fn end_series(&mut self, one_series: &StepSeries) {
        if one_series.last && self.is_for(one_series) {
            self.stop(Ended::Passes(one_series.tracepoint.0));
        }
    }

    /// True if the thread's steps must still be recorded.
    pub(crate) fn is_for(&self, one_series: &StepSeries) -> bool {
        self.running && one_series.run == self.runs
    }

    /// Adds a frame, or notes why it is missing. `error` is what failed while the frame was built.
    fn add(
        &mut self,
        tracepoint: &mut Tracepoint,
        frame: Frame,
        error: Option<bytecode::Fault>,
    ) -> bool {
        let size = frame.size();
        let kept = self.keep(frame);
        if kept {
            tracepoint.usage += size as u64;
            tracepoint.frame_size = size;
        } else if self.drained {
            tracepoint.dropped += 1;
            self.is_unmarked(tracepoint.number, tracepoint.at);
        } else {
            self.stop(Ended::Full);
            return false;
        }
        if let Some(fault) = error {
            self.stop(Ended::Error(tracepoint.number, fault.to_string()));
        }
        kept
    }
}

/// Microseconds since 1970.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests;
