//! The work of a run, on the critical path or not, and the processor time that the path waited for.
//!
//! A comparison of two runs needs both. Of two threads that take equally long, either may have the
//! path. Then the path differs, and the work does not.

use std::collections::{BTreeMap, BTreeSet};

use super::steps::{Doing, End, Steps};
use super::{CriticalPath, Facts, FunctionIndex, PathState};

/// A time, an identity of which a thread begins or ends a step, whether it runs in that step rather
/// than waits for a processor, and whether the step begins.
type Switch = (u64, usize, bool, bool);

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
                    changes.push((step.from_ns, identity, runs, true));
                    changes.push((step.to_ns, identity, runs, false));
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
    fn of(path: &CriticalPath, changes: &[Switch], processors: usize, busiest_ns: u64) -> Runnable {
        let mut running: BTreeMap<usize, i64> = BTreeMap::new();
        let (mut runs, mut waits) = (0_i64, 0_i64);
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
                while let Some((_, identity, is_running, begins)) =
                    changes.get(next).filter(|change| change.0 <= now)
                {
                    let step = if *begins { 1 } else { -1 };
                    match is_running {
                        true => {
                            *running.entry(*identity).or_default() += step;
                            runs += step;
                        }
                        false => waits += step,
                    }
                    next += 1;
                }
                running.retain(|_, count| *count > 0);
                let end_ns = changes.get(next).map_or(u64::MAX, |change| change.0);
                let end_ns = end_ns.min(segment.to_ns);
                let length = end_ns.saturating_sub(now) as f64;
                now = end_ns.max(now + 1);
                let free = i64::try_from(processors).unwrap_or(i64::MAX) - runs;
                let missed = free.min(waits).max(0) as f64;
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
