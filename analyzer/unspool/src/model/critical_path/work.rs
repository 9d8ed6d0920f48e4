//! The work of a run, on the critical path or not, and the processor time that the path waited for.
//!
//! A comparison of two runs needs both. Of two threads that take equally long, either may have the
//! path. Then the path differs, and the work does not.

use std::collections::BTreeMap;

use super::steps::{Doing, End, Steps};
use super::{CriticalPath, Facts, FunctionIndex, PathState};

/// The work of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Time that threads ran, or waited for a device or another process, in nanoseconds. By
    /// identity and function.
    pub own_ns: BTreeMap<(usize, Option<FunctionIndex>), u64>,
    /// Time in which the path's thread waited for a processor that threads of an identity had,
    /// nanoseconds. The processors share the time.
    pub taken_ns: BTreeMap<usize, u64>,
    /// Time in which the path's thread waited for a processor that no thread of the program had,
    /// nanoseconds.
    pub taken_by_others_ns: u64,
}

impl Work {
    /// Computes the work of a run with this path.
    pub(in crate::model) fn of(facts: &Facts<'_>, path: &CriticalPath) -> Option<Work> {
        let steps = Steps::of(facts)?;
        let mut work = Work::default();
        let mut changes: Vec<(u64, usize, bool)> = Vec::new();
        for (index, steps) in steps.threads.iter().enumerate() {
            let thread = super::ThreadIndex(index);
            let identity = facts.identity(thread);
            for step in steps {
                let runs = step.doing == Doing::Running;
                let is_outside = matches!(
                    step.doing,
                    Doing::Blocked {
                        end: End::Device | End::Outside,
                        ..
                    }
                );
                if runs {
                    changes.push((step.from_ns, identity, true));
                    changes.push((step.to_ns, identity, false));
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
        work.share_runnable(path, &changes, steps.processors);
        Some(work)
    }

    /// Divides the path's waits for a processor between the threads that ran meanwhile.
    fn share_runnable(
        &mut self,
        path: &CriticalPath,
        changes: &[(u64, usize, bool)],
        processors: usize,
    ) {
        let mut running: BTreeMap<usize, u32> = BTreeMap::new();
        let mut taken: BTreeMap<usize, f64> = BTreeMap::new();
        let mut by_others = 0.0;
        let mut next = 0;
        let waits = path.segments.iter();
        for wait in waits.filter(|segment| segment.state == PathState::Runnable) {
            let mut now = wait.from_ns;
            while now < wait.to_ns {
                while let Some((_, identity, begins)) = changes.get(next).filter(|c| c.0 <= now) {
                    let count = running.entry(*identity).or_default();
                    *count = match begins {
                        true => *count + 1,
                        false => count.saturating_sub(1),
                    };
                    next += 1;
                }
                running.retain(|_, count| *count > 0);
                let end = changes
                    .get(next)
                    .map_or(wait.to_ns, |c| c.0.min(wait.to_ns));
                let length = end.saturating_sub(now) as f64;
                let all: u32 = running.values().sum();
                let share = length / f64::from(all).max(processors as f64);
                for (identity, count) in &running {
                    *taken.entry(*identity).or_default() += share * f64::from(*count);
                }
                by_others += length - share * f64::from(all);
                now = end.max(now + 1);
            }
        }
        let whole = |ns: f64| ns.round() as u64;
        self.taken_ns = taken.into_iter().map(|(at, ns)| (at, whole(ns))).collect();
        self.taken_by_others_ns = whole(by_others);
    }
}
