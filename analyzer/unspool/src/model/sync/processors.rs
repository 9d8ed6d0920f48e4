//! Processor time of threads over time, by the kernel's account.
//!
//! The schedule gives exact times. Without one, the kernel's counters were read from time to time,
//! and the time between two readings is distributed evenly.

use std::collections::HashMap;

use unspool_capture::Record;

use crate::model::schedule::{RunState, Schedule};
use crate::model::window::Window;
use crate::model::{Model, ThreadIndex};

/// Processor time of a thread in a slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Time on a processor.
    pub on_cpu_ns: u64,
    /// Time in which the thread was runnable, and waited for a processor.
    pub runnable_ns: u64,
    /// The part of the slice for which the kernel's account is known.
    pub known_ns: u64,
}

impl Turn {
    pub(crate) fn add(&mut self, other: Turn) {
        self.on_cpu_ns += other.on_cpu_ns;
        self.runnable_ns += other.runnable_ns;
        self.known_ns += other.known_ns;
    }

    /// Running and runnable time extrapolated to `alive_ns`, if most of that time is known.
    pub(crate) fn of(&self, alive_ns: u64) -> Option<(f64, f64)> {
        if self.known_ns == 0 || self.known_ns < alive_ns / 2 {
            return None;
        }
        let part = |ns: u64| ns as f64 * alive_ns as f64 / self.known_ns as f64;
        Some((part(self.on_cpu_ns), part(self.runnable_ns)))
    }
}

/// Processor times of all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processors {
    /// Per thread, the sum of the whole recording.
    pub totals: Vec<Turn>,
    /// Per slice, the sum of all threads. Slices are those of [`Slots`](super::Slots).
    pub(super) slices: Vec<Turn>,
    /// Per thread, its first known slice, and the values from that slice on.
    threads: Vec<(usize, Vec<Turn>)>,
}

/// A thread's time on a processor and runnable, by the kernel's counters.
type Times = (u64, u64);

impl Processors {
    pub(super) fn of(records: &[Record], model: &Model, window: &Window) -> Processors {
        let mut processors = Processors {
            totals: vec![Turn::default(); model.threads.len()],
            slices: vec![Turn::default(); window.columns],
            threads: vec![(0, Vec::new()); model.threads.len()],
        };
        if model.schedule.is_known() {
            processors.take_schedule(&model.schedule, window);
            return processors;
        }
        let lives = Lives::of(model);
        // The current counters by thread id.
        let mut latest: HashMap<u64, Times> = HashMap::new();
        // The thread, time and counters of the previous report, by thread id.
        let mut heard: HashMap<u64, (ThreadIndex, u64, Times)> = HashMap::new();
        // Counters of threads at the first report.
        let mut before: Option<(u64, HashMap<u64, Times>)> = None;
        let mut now_ns = 0;
        for record in records {
            let Record::CpuTimes(times) = record else {
                continue;
            };
            now_ns = times.time_ns.max(now_ns);
            let news = times.threads.iter();
            latest.extend(news.map(|time| (time.tid, (time.on_cpu_ns, time.runnable_ns))));
            let (begun_ns, before) = before.get_or_insert_with(|| (now_ns, latest.clone()));
            latest.retain(|tid, now| {
                let Some((thread, from_ns)) = lives.at(*tid, now_ns) else {
                    // The kernel may report a thread before its beginning is recorded.
                    return !lives.are_over(*tid, now_ns);
                };
                let since = match heard.get(tid) {
                    Some((known, at_ns, times)) if *known == thread => (*at_ns, *times),
                    None if before.contains_key(tid) => (from_ns.max(*begun_ns), before[tid]),
                    _ => (from_ns, (0, 0)),
                };
                let (from_ns, then) = since;
                let had = (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1));
                processors.had(thread, window, (from_ns, now_ns), had);
                heard.insert(*tid, (thread, now_ns, *now));
                true
            });
        }
        processors
    }

    fn take_schedule(&mut self, schedule: &Schedule, window: &Window) {
        for (index, intervals) in schedule.threads.iter().enumerate() {
            for interval in intervals {
                let length = interval.length_ns();
                let had = match interval.state {
                    RunState::Running { .. } => (length, 0),
                    RunState::Preempted | RunState::Woken { .. } => (0, length),
                    RunState::Blocked | RunState::Stopped => (0, 0),
                    RunState::Unknown => continue,
                };
                let span = (interval.from_ns, interval.to_ns);
                self.had(ThreadIndex(index), window, span, had);
            }
        }
    }

    fn had(
        &mut self,
        thread: ThreadIndex,
        window: &Window,
        (from_ns, to_ns): (u64, u64),
        (on_cpu_ns, runnable_ns): Times,
    ) {
        let length = to_ns.saturating_sub(from_ns);
        // The counters' clock differs slightly from the recording's.
        let on_cpu_ns = on_cpu_ns.min(length);
        let runnable_ns = runnable_ns.min(length - on_cpu_ns);
        let whole = Turn {
            on_cpu_ns,
            runnable_ns,
            known_ns: length,
        };
        if let Some(total) = self.totals.get_mut(thread.0) {
            total.add(whole);
        }
        let columns = window.columns_of(from_ns, to_ns).into_iter().flatten();
        let Some((first, turns)) = self.threads.get_mut(thread.0).filter(|_| length > 0) else {
            return;
        };
        for column in columns {
            let begin = window.column_ns(column).max(from_ns);
            let end = window.column_ns(column + 1).min(to_ns);
            let here = end.saturating_sub(begin);
            let part = |ns: u64| {
                let part = u128::from(ns) * u128::from(here) / u128::from(length);
                u64::try_from(part).unwrap_or(u64::MAX)
            };
            let turn = Turn {
                on_cpu_ns: part(on_cpu_ns),
                runnable_ns: part(runnable_ns),
                known_ns: here,
            };
            if let Some(slice) = self.slices.get_mut(column) {
                slice.add(turn);
            }
            if turns.is_empty() {
                *first = column;
            }
            // Times rise, unless the clock is wrong.
            let Some(at) = column.checked_sub(*first) else {
                continue;
            };
            if turns.len() <= at {
                turns.resize(at + 1, Turn::default());
            }
            turns[at].add(turn);
        }
    }

    /// The processor time of a thread in a slice.
    pub(crate) fn turn(&self, thread: usize, column: usize) -> Turn {
        let turn = self.threads.get(thread).and_then(|(first, turns)| {
            let at = column.checked_sub(*first)?;
            turns.get(at)
        });
        turn.copied().unwrap_or_default()
    }
}

/// The threads that had each thread id over time: the kernel uses them again.
struct Lives(HashMap<u64, Vec<(u64, u64, ThreadIndex)>>);

impl Lives {
    fn of(model: &Model) -> Lives {
        let mut lives: HashMap<u64, Vec<(u64, u64, ThreadIndex)>> = HashMap::new();
        for (index, thread) in model.threads.iter().enumerate() {
            if let (Some(tid), Some((from, to))) = (thread.tid, model.life(thread)) {
                let mine = (from, to, ThreadIndex(index));
                lives.entry(tid).or_default().push(mine);
            }
        }
        Lives(lives)
    }

    /// The thread that had the id, and the time from which it had it.
    fn at(&self, tid: u64, ns: u64) -> Option<(ThreadIndex, u64)> {
        let lives = self.0.get(&tid)?.iter().rev();
        let mut there = lives.filter(|(from, to, _)| (*from..=*to).contains(&ns));
        there.next().map(|(from, _, thread)| (*thread, *from))
    }

    /// True if no thread has the id from this time on.
    fn are_over(&self, tid: u64, ns: u64) -> bool {
        let lives = self.0.get(&tid).into_iter().flatten();
        lives.map(|(_, to, _)| *to).max().is_none_or(|to| to < ns)
    }
}
