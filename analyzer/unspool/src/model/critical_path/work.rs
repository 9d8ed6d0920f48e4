//! The work of a run, on the critical path or not, and the processor time that the path waited for.
//!
//! A comparison of two runs needs both. Of two threads that take equally long, either may have the
//! path. Then the path differs, and the work does not.

use std::collections::{BTreeMap, BTreeSet};

use super::steps::{Doing, End, Steps};
use super::{CriticalPath, Facts, FunctionIndex, PathState};

/// Time after which the kernel moves a thread that waits behind another one to an idle processor,
/// nanoseconds: a tick of kernels with 250 ticks a second.
const BALANCE_NS: u64 = 4_000_000;

/// A thread begins or ends a step. In order of time; what begins comes first, so that a thread that
/// gets its processor does not seem to leave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Switch {
    ns: u64,
    ends: bool,
    identity: usize,
    /// It runs in that step, and does not wait for a processor.
    runs: bool,
    cpu: Option<u32>,
}

/// The program's threads at a processor.
#[derive(Debug, Default)]
struct Queue {
    runs: i64,
    waits: i64,
    /// Since when a thread has waited although another one of the program had the processor, or
    /// waited as well.
    shared_since_ns: Option<u64>,
}

/// The work of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Time that threads ran, or waited for a device or another process, in nanoseconds. By
    /// identity and function.
    pub own_ns: BTreeMap<(usize, Option<FunctionIndex>), u64>,
    /// The path's waits for a processor.
    pub runnable: Runnable,
}

/// What the path's waits for a processor are due to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runnable {
    /// Time in which threads of an identity had the processor, nanoseconds.
    pub taken_ns: BTreeMap<usize, u64>,
    /// Time that the path lost because other processes had processors, nanoseconds.
    pub others_ns: u64,
}

impl Work {
    /// Computes the work of a run with this path.
    pub(in crate::model) fn of(facts: &Facts<'_>, path: &CriticalPath) -> Option<Work> {
        let steps = Steps::of(facts)?;
        let mut work = Work::default();
        let mut changes: Vec<Switch> = Vec::new();
        for (index, steps) in steps.threads().enumerate() {
            let thread = super::ThreadIndex(index);
            let identity = facts.identity(thread);
            for step in steps.iter() {
                let runs = step.doing == Doing::Running;
                let is_outside = matches!(
                    step.doing,
                    Doing::Blocked {
                        end: End::Device | End::Outside,
                        ..
                    }
                );
                if runs || matches!(step.doing, Doing::Runnable { .. }) {
                    for (ns, ends) in [(step.from_ns, false), (step.to_ns, true)] {
                        changes.push(Switch {
                            ns,
                            ends,
                            identity,
                            runs,
                            cpu: step.cpu,
                        });
                    }
                }
                if runs || is_outside {
                    let parts = path.functions.parts(thread, step.from_ns, step.to_ns);
                    for (from_ns, to_ns, function) in parts {
                        *work.own_ns.entry((identity, function)).or_default() += to_ns - from_ns;
                    }
                }
            }
        }
        changes.sort_unstable();
        let on_path: BTreeSet<_> = path.segments.iter().map(|one| one.thread).collect();
        let on_path = on_path.into_iter().filter_map(|one| steps.of_thread(one));
        let busiest_ns = on_path.map(|one| one.running_ns()).max();
        work.runnable = Runnable::of(
            path,
            &changes,
            steps.processors,
            busiest_ns.unwrap_or_default(),
        );
        Some(work)
    }
}

impl Runnable {
    /// Divides the path's waits for a processor between other processes and the threads that ran
    /// meanwhile.
    ///
    /// While other processes have processors that the program could use, it advances more slowly:
    /// with `R` of `R + S` processors, it needs `S / (R + S)` of the time for what it would have
    /// done otherwise. The path cannot lose more than it waited. It does not become shorter than
    /// the time that its busiest thread ran.
    ///
    /// The program could use a processor that its threads wait for, and that none of them has. A
    /// thread behind another one of the program needs a second processor. The kernel gives it one
    /// only if it waits for longer than [`BALANCE_NS`]: threads that wake each other share one.
    fn of(path: &CriticalPath, changes: &[Switch], processors: usize, busiest_ns: u64) -> Runnable {
        let mut running: BTreeMap<usize, i64> = BTreeMap::new();
        let mut queues: BTreeMap<Option<u32>, Queue> = BTreeMap::new();
        let mut runs = 0_i64;
        let mut had: BTreeMap<usize, f64> = BTreeMap::new();
        let (mut waited, mut lost, mut most_lost) = (0.0, 0.0, 0.0);
        let mut next = 0;
        for segment in &path.segments {
            let is_waiting = match segment.state {
                PathState::Running => false,
                PathState::Runnable => true,
                _ => continue,
            };
            let mut now = segment.from_ns;
            while now < segment.to_ns {
                while let Some(change) = changes.get(next).filter(|change| change.ns <= now) {
                    let step = if change.ends { -1 } else { 1 };
                    let queue = queues.entry(change.cpu).or_default();
                    match change.runs {
                        true => {
                            *running.entry(change.identity).or_default() += step;
                            queue.runs += step;
                            runs += step;
                        }
                        false => queue.waits += step,
                    }
                    queue.settle(change.ns);
                    next += 1;
                }
                running.retain(|_, count| *count > 0);
                let end_ns = changes.get(next).map_or(u64::MAX, |change| change.ns);
                let balances = queues.values().filter_map(Queue::balance_ns);
                let balance_ns = balances.filter(|ns| *ns > now).min();
                let end_ns = end_ns
                    .min(balance_ns.unwrap_or(u64::MAX))
                    .min(segment.to_ns);
                let length = end_ns.saturating_sub(now) as f64;
                let free = i64::try_from(processors).unwrap_or(i64::MAX) - runs;
                let usable: i64 = queues.values().map(|queue| queue.usable(now)).sum();
                let missed = free.min(usable).max(0) as f64;
                now = end_ns.max(now + 1);
                if missed > 0.0 {
                    lost += length * missed / (runs as f64 + missed);
                }
                if !is_waiting {
                    continue;
                }
                waited += length;
                if missed > 0.0 {
                    most_lost += length;
                }
                for (identity, count) in &running {
                    *had.entry(*identity).or_default() += length * *count as f64 / runs as f64;
                }
            }
        }
        let stopped_ns = path.time_in(PathState::Recorder);
        let spare_ns = path.length_ns().saturating_sub(stopped_ns + busiest_ns);
        let lost: f64 = f64::min(lost, most_lost).min(spare_ns as f64);
        let all: f64 = had.values().sum();
        let rest = (waited - lost).max(0.0);
        let taken = had.into_iter();
        let taken = taken.map(|(identity, ns)| (identity, (rest * ns / all).round() as u64));
        Runnable {
            taken_ns: taken.collect(),
            others_ns: lost.round() as u64,
        }
    }
}

impl Queue {
    /// Takes note of the state since a moment.
    fn settle(&mut self, ns: u64) {
        match self.waits > 0 && self.runs + self.waits > 1 {
            true => _ = self.shared_since_ns.get_or_insert(ns),
            false => self.shared_since_ns = None,
        }
    }

    /// When the kernel would give the threads that wait here other processors.
    fn balance_ns(&self) -> Option<u64> {
        self.shared_since_ns.map(|ns| ns.saturating_add(BALANCE_NS))
    }

    /// Number of processors that the threads which wait here could use.
    fn usable(&self, ns: u64) -> i64 {
        match self.balance_ns().is_some_and(|at| at <= ns) {
            true => self.waits,
            false => self.waits.min(1 - self.runs).max(0),
        }
    }
}
