//! How many threads ran, and how many waited for a processor, over the time of a recording.
//!
//! The levels include the threads of the processes that the program started, because they use the
//! same processors. `sync::Concurrency` counts only the program's own threads, for findings.

use super::Model;
use super::schedule::RunState;

/// Average numbers of threads in a slice of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorLevel {
    /// When the slice begins, nanoseconds since the recording began.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// Threads on a processor.
    pub running: f64,
    /// Threads that were runnable, and waited for a processor.
    pub runnable: f64,
}

impl Model {
    /// The levels in order of time; without the slices for which they are not known.
    pub fn processor_levels(&self) -> Vec<ProcessorLevel> {
        let slices = self.sync.concurrency.slices.iter();
        let own = slices.filter_map(|slice| {
            let (running, runnable) = slice.turns?;
            Some(ProcessorLevel {
                from_ns: slice.from_ns,
                to_ns: slice.to_ns,
                running,
                runnable,
            })
        });
        let mut levels: Vec<ProcessorLevel> = own.collect();
        for interval in self.processes.intervals.iter().flatten() {
            let (from_ns, to_ns) = (interval.from_ns, interval.to_ns);
            let first = levels.partition_point(|level| level.to_ns <= from_ns);
            let later = levels[first..].iter_mut();
            for level in later.take_while(|level| level.from_ns < to_ns) {
                let common_ns = to_ns.min(level.to_ns) - from_ns.max(level.from_ns);
                let length_ns = (level.to_ns - level.from_ns).max(1);
                let share = common_ns as f64 / length_ns as f64;
                match interval.state {
                    RunState::Running { .. } => level.running += share,
                    state if state.is_runnable() => level.runnable += share,
                    _ => {}
                }
            }
        }
        levels
    }
}
