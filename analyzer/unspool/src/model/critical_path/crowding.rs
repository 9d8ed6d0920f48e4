//! The time that other programs took from a program that wants to run.
//!
//! Separate from the replay, which uses it for each runnable step.

use super::steps::Steps;

/// The time that other processes and the kernel took from a runnable thread, summed from the
/// beginning of the recording.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// The end of the sums, in nanoseconds.
    ns: u64,
    /// Sum of the times in which a processor was free for each runnable thread.
    alone: f64,
    /// Sum of the thread's shares of the other times.
    shared: f64,
    /// The thread's share of the free processors from `ns` on; 1 if each runnable thread has one.
    part: f64,
}

/// When the program's own threads had all its processors.
pub(super) struct Crowding {
    /// An entry for each moment in which the share changed.
    taken: Vec<Taken>,
}

impl Crowding {
    pub(super) fn of(steps: &Steps<'_>) -> Crowding {
        let mut taken: Vec<Taken> = Vec::new();
        let (mut running, mut runnable) = (0, 0);
        let mut now = Taken::default();
        for &(ns, more_running, more_runnable) in &steps.changes {
            now = now.at(ns);
            running += more_running;
            runnable += more_runnable;
            let free = (steps.processors as i32 - running).max(0);
            now.part = (f64::from(free) / f64::from(runnable.max(1))).min(1.0);
            if taken.last().is_none_or(|before| before.part != now.part) {
                taken.push(now);
            }
        }
        Crowding { taken }
    }

    /// Time for which a runnable thread waited between two moments although processors were free of
    /// the program's own threads. Another process or the kernel used these. The second number is
    /// the thread's share of the time in which there were fewer free processors than runnable
    /// threads.
    pub(super) fn taken_ns(&self, from_ns: u64, to_ns: u64) -> (u64, u64) {
        let (from, to) = (self.until(from_ns), self.until(to_ns));
        let alone = (to.alone - from.alone).max(0.0);
        (alone as u64, (to.shared - from.shared).max(0.0) as u64)
    }

    fn until(&self, ns: u64) -> Taken {
        let at = self.taken.partition_point(|taken| taken.ns <= ns);
        let before = at.checked_sub(1).map(|at| self.taken[at]);
        before.unwrap_or_default().at(ns)
    }
}

impl Taken {
    /// The sums at a later moment, if no thread starts or stops running in between.
    fn at(self, ns: u64) -> Taken {
        let length = ns.saturating_sub(self.ns) as f64 * self.part;
        let (alone, shared) = match self.part < 1.0 {
            true => (0.0, length),
            false => (length, 0.0),
        };
        Taken {
            ns,
            alone: self.alone + alone,
            shared: self.shared + shared,
            part: self.part,
        }
    }
}
