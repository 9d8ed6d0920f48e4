//! Decides whether what limits the run is a finding.
//!
//! Something always limits a run. It is worth a finding only if the program could use its
//! processors better: a lock that makes threads wait, or code that runs while processors are free.
//! Time that threads wait for devices and timers does not count, because a recording cannot tell a
//! slow disk from a server without requests.

use super::steps::Steps;
use super::{Basis, CriticalPath, Facts, Impact, Item, PathState, Segment};

/// What limits the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    /// The lock, threads or function.
    pub item: Item,
    /// By how much the run would be shorter without it, nanoseconds.
    pub saved_ns: u64,
    /// Length of the run in the replay, nanoseconds.
    pub run_ns: u64,
    /// The item's part of the path, in nanoseconds.
    pub path_ns: u64,
    /// The number of processors.
    pub processors: usize,
    /// The number of processors that the program used or could have used in that part of the path,
    /// on average.
    pub usable: f64,
}

/// A bottleneck makes the run longer by at least the fraction `1 / MIN_SAVED_DIVISOR`.
const MIN_SAVED_DIVISOR: u64 = 5;
/// Minimum saving that makes a bottleneck a finding, in nanoseconds.
const MIN_SAVED_NS: u64 = 50_000_000;
/// Threads limit a run only if they leave this share of the processors free.
const MIN_FREE: f64 = 0.15;

/// The first item that limits the run, if it is worth a finding.
pub(super) fn of(
    facts: &Facts<'_>,
    steps: &Steps<'_>,
    path: &CriticalPath,
    saved_by_running_ns: impl Fn(&Impact) -> u64,
) -> Option<Bottleneck> {
    if path.basis == Basis::Calls || path.has_much_unknown() {
        return None;
    }
    let much = (path.replayed_ns / MIN_SAVED_DIVISOR).max(MIN_SAVED_NS);
    let mut impacts = path.impacts.iter().filter(|impact| impact.saved_ns >= much);
    let crowding = Busy::of(steps);
    impacts.find_map(|impact| {
        let is_own = |segment: &&Segment| match impact.item {
            Item::Threads(identity) => facts.identity(segment.thread) == identity,
            Item::Function(function) => segment.function == Some(function),
            Item::Lock(lock) => segment.object() == Some(lock),
            Item::LockWaits(index) => segment.lock_waits() == Some(index),
            Item::Processors => false,
        };
        let runs = |segment: &&Segment| segment.state == PathState::Running;
        let own = path.segments.iter().filter(is_own);
        let (mut busy, mut whole) = (0, 0);
        for segment in own.filter(runs) {
            busy += crowding.between(segment.from_ns, segment.to_ns);
            whole += segment.length_ns();
        }
        let usable = busy as f64 / whole.max(1) as f64;
        let saved_ns = match impact.item {
            Item::Processors => return None,
            // Other programs are not what a recording is about.
            Item::Threads(identity) if identity >= facts.own_identities => return None,
            Item::Lock(_) | Item::LockWaits(_) => impact.saved_ns,
            Item::Threads(_) | Item::Function(_) => {
                let most = path.processors as f64 * (1.0 - MIN_FREE);
                if facts.own_threads() < 2 || usable > most {
                    return None;
                }
                saved_by_running_ns(impact)
            }
        };
        (saved_ns >= much).then_some(Bottleneck {
            item: impact.item,
            saved_ns,
            run_ns: path.replayed_ns,
            path_ns: impact.path_ns,
            processors: path.processors,
            usable,
        })
    })
}

/// How many threads ran or could have run, at most one for each processor, summed up over time.
struct Busy {
    /// Times in which the number of threads changed, this number, and the sum until then.
    changes: Vec<(u64, u64, u64)>,
}

impl Busy {
    fn of(steps: &Steps<'_>) -> Busy {
        let most = steps.processors as u64;
        let (mut count, mut sum, mut last) = (0_i64, 0_u64, 0);
        let mut changes: Vec<(u64, u64, u64)> = Vec::new();
        for (ns, running, runnable) in &steps.changes {
            sum += count.max(0).cast_unsigned().min(most) * (ns - last);
            last = *ns;
            count += i64::from(running + runnable);
            let used = count.max(0).cast_unsigned().min(most);
            if changes.last().is_none_or(|(_, before, _)| *before != used) {
                changes.push((*ns, used, sum));
            }
        }
        Busy { changes }
    }

    fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.until(to_ns).saturating_sub(self.until(from_ns))
    }

    fn until(&self, ns: u64) -> u64 {
        let at = self.changes.partition_point(|(time, ..)| *time <= ns);
        let before = at.checked_sub(1).map(|at| self.changes[at]);
        before.map_or(0, |(time, count, sum)| sum + count * (ns - time))
    }
}
