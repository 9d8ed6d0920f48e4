//! The state of a running program over the last seconds: how much each thread ran, was runnable
//! and was blocked, with the latest inspection for what it waits for.
//!
//! Samples of the kernel's counters give exact shares of time without stopping the program. An
//! inspection stops it, so it comes less often and may be older than the shares.

use std::collections::{BTreeMap, HashMap};

use unspool_capture::CpuTimes;

use super::{Creation, FindingKind, Key, Model, ThreadIndex, Wait};
use crate::primitives::Kind;

/// A program that is watched.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The latest inspection.
    pub model: Model,
    /// The live threads, by id.
    pub threads: BTreeMap<u64, LiveThread>,
    /// The current findings, and the time since which they are known.
    pub findings: Vec<(FindingId, u64)>,
    /// Time of the latest sample, in nanoseconds on the target's clock; 0 before the first.
    pub now_ns: u64,
    first_ns: u64,
    /// An inspection has stopped the threads since the latest sample.
    was_stopped: bool,
}

/// The kind and the threads of a finding. Equal in every inspection while the finding lasts.
pub type FindingId = (FindingKind, Vec<u64>);

/// A live thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveThread {
    /// Its kernel id.
    pub tid: u64,
    /// Its name, empty if not known.
    pub name: String,
    /// Its place in the inspection. `None` if the thread is newer than the inspection.
    pub index: Option<ThreadIndex>,
    /// The shares of the last interval. `None` after a single sample.
    pub shares: Option<Shares>,
    /// Time since it last ran, or since Unspool began to watch the program.
    pub idle_ns: u64,
    /// True if it has run since the inspection, so that its wait may have changed.
    pub has_run: bool,
    ran_ns: u64,
    counters: Option<Counters>,
}

/// The kernel's counters of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    time_ns: u64,
    on_cpu_ns: u64,
    runnable_ns: u64,
}

/// Shares of an interval, from 0 to 1. The rest of the time the thread was blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// The thread ran on a processor.
    pub running: f64,
    /// The thread waited for a processor.
    pub runnable: f64,
}

impl Shares {
    /// The share of the time in which the thread was blocked.
    pub fn blocked(self) -> f64 {
        (1.0 - self.running - self.runnable).max(0.0)
    }
}

/// Threads of one identity. An inspection does not know creations, so the identity is the function
/// and the name without its digits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveGroup {
    /// The ids of the threads.
    pub tids: Vec<u64>,
    /// One thread of the inspection. `None` if all are newer.
    pub sample: Option<ThreadIndex>,
    /// The mean of the threads' shares.
    pub shares: Option<Shares>,
    /// Processors that the threads used together.
    pub processors: f64,
}

/// Threads that wait for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct AwaitedObject<'a> {
    /// The wait of one of the threads.
    pub wait: &'a Wait,
    /// The ids of the waiting threads.
    pub tids: Vec<u64>,
    /// The longest time for which one of them has not run.
    pub longest_ns: u64,
}

impl Live {
    /// Adds a sample. `name` gives the name of a thread that is new.
    pub fn sample(&mut self, times: &CpuTimes, mut name: impl FnMut(u64) -> Option<String>) {
        let now_ns = times.time_ns;
        if self.first_ns == 0 {
            self.first_ns = now_ns;
            // Those of an inspection before the first sample.
            for (_, since_ns) in &mut self.findings {
                *since_ns = now_ns;
            }
        }
        self.now_ns = now_ns;
        let was_stopped = std::mem::take(&mut self.was_stopped);
        let mut before = std::mem::take(&mut self.threads);
        for time in &times.threads {
            let mut thread = before.remove(&time.tid).unwrap_or_else(|| LiveThread {
                tid: time.tid,
                name: name(time.tid).unwrap_or_default(),
                ..LiveThread::default()
            });
            let counters = Counters {
                time_ns: now_ns,
                on_cpu_ns: time.on_cpu_ns,
                runnable_ns: time.runnable_ns,
            };
            match thread.counters {
                Some(last) => {
                    thread.shares = shares(last, counters).or(thread.shares);
                    let ran_ns = counters.on_cpu_ns.saturating_sub(last.on_cpu_ns);
                    // A stop costs the thread some time on a processor.
                    let for_stop = was_stopped && ran_ns <= MAX_STOP_COST_NS;
                    if ran_ns > 0 && !for_stop {
                        thread.ran_ns = now_ns;
                        thread.has_run = true;
                    }
                }
                None => thread.ran_ns = now_ns,
            }
            thread.counters = Some(counters);
            thread.idle_ns = now_ns.saturating_sub(thread.ran_ns);
            self.threads.insert(time.tid, thread);
        }
    }

    /// An inspection that may fail is about to stop the threads.
    pub fn inspecting(&mut self) {
        self.was_stopped = true;
    }

    /// Adds an inspection. The caller takes a sample right before the inspection, and one as soon
    /// as the threads have returned to their waits.
    pub fn inspected(&mut self, model: Model) {
        let mut places: HashMap<u64, ThreadIndex> = HashMap::new();
        for (index, thread) in model.threads.iter().enumerate() {
            if let Some(tid) = thread.tid {
                places.insert(tid, ThreadIndex(index));
            }
        }
        for (tid, index) in &places {
            // A server without processor times gives no samples.
            self.threads.entry(*tid).or_insert_with(|| LiveThread {
                tid: *tid,
                ..LiveThread::default()
            });
            if let (Some(live), Some(thread)) = (self.threads.get_mut(tid), model.thread(*index))
                && !thread.name.is_empty()
            {
                live.name.clone_from(&thread.name);
            }
        }
        for (tid, thread) in &mut self.threads {
            thread.index = places.get(tid).copied();
            thread.has_run = false;
        }
        self.was_stopped = true;
        let known = std::mem::take(&mut self.findings);
        let ids = model.findings.iter().map(|finding| {
            let tids = finding.threads.iter();
            let tids = tids.filter_map(|index| model.thread(*index)?.tid);
            (finding.kind, tids.collect())
        });
        self.findings = ids
            .map(|id: FindingId| {
                let since = known.iter().find(|(other, _)| *other == id);
                let since_ns = since.map_or(self.now_ns, |(_, since_ns)| *since_ns);
                (id, since_ns)
            })
            .collect();
        self.model = model;
    }

    /// Time since the first sample.
    pub fn watched_ns(&self) -> u64 {
        self.now_ns.saturating_sub(self.first_ns)
    }

    /// Processors that all threads used together in the last interval. `None` if not known.
    pub fn processors(&self) -> Option<f64> {
        let known = self.threads.values().filter_map(|thread| thread.shares);
        let mut known = known.map(|shares| shares.running).peekable();
        known.peek()?;
        Some(known.sum())
    }

    /// The threads by identity, in the order of their first thread.
    pub fn groups(&self) -> Vec<LiveGroup> {
        let mut groups: Vec<LiveGroup> = Vec::new();
        let mut by_identity: HashMap<(Option<Key>, String), usize> = HashMap::new();
        for thread in self.threads.values() {
            let inspected = thread.index.and_then(|index| self.model.thread(index));
            let is_main = inspected.is_some_and(|thread| thread.creation == Creation::Main);
            let name = match is_main {
                true => String::new(),
                false => thread.name.replace(|c: char| c.is_ascii_digit(), ""),
            };
            let identity = (inspected.map(|thread| thread.key), name);
            let at = *by_identity.entry(identity).or_insert(groups.len());
            if at == groups.len() {
                groups.push(LiveGroup::default());
            }
            groups[at].tids.push(thread.tid);
            groups[at].sample = groups[at].sample.or(thread.index);
        }
        for group in &mut groups {
            let threads = group.tids.iter().filter_map(|tid| self.threads.get(tid));
            let shares: Vec<Shares> = threads.filter_map(|thread| thread.shares).collect();
            let sum = |of: fn(&Shares) -> f64| shares.iter().map(of).sum::<f64>();
            let (running, runnable) = (sum(|s| s.running), sum(|s| s.runnable));
            let count = shares.len() as f64;
            group.processors = running;
            group.shares = (count > 0.0).then(|| Shares {
                running: running / count,
                runnable: runnable / count,
            });
        }
        groups
    }

    /// The objects that threads wait for, those with the longest waits for a holder first. Leaves
    /// out threads that have run since the inspection.
    pub fn awaited(&self) -> Vec<AwaitedObject<'_>> {
        let mut objects: Vec<AwaitedObject<'_>> = Vec::new();
        let mut known: HashMap<(Kind, u64), usize> = HashMap::new();
        for thread in self.threads.values().filter(|thread| !thread.has_run) {
            let state = thread.index.map(|index| self.model.inspection.state(index));
            let Some(wait) = state.and_then(|state| state.wait()) else {
                continue;
            };
            let object = (wait.object.kind, wait.object.address);
            let at = *known.entry(object).or_insert(objects.len());
            if at == objects.len() {
                objects.push(AwaitedObject {
                    wait,
                    tids: Vec::new(),
                    longest_ns: 0,
                });
            }
            objects[at].tids.push(thread.tid);
            objects[at].longest_ns = objects[at].longest_ns.max(thread.idle_ns);
        }
        objects.sort_by_key(|object| {
            let is_held = !object.wait.holders.is_empty() && object.wait.object.kind != Kind::Join;
            std::cmp::Reverse((is_held, object.tids.len(), object.longest_ns))
        });
        objects
    }
}

/// A thread runs for less when it stops for an inspection and goes back to its wait.
const MAX_STOP_COST_NS: u64 = 200_000;

fn shares(last: Counters, now: Counters) -> Option<Shares> {
    let span = now.time_ns.checked_sub(last.time_ns).filter(|ns| *ns > 0)? as f64;
    let share = |now: u64, last: u64| (now.saturating_sub(last) as f64 / span).min(1.0);
    let running = share(now.on_cpu_ns, last.on_cpu_ns);
    Some(Shares {
        running,
        runnable: share(now.runnable_ns, last.runnable_ns).min(1.0 - running),
    })
}

#[cfg(test)]
mod tests {
    use unspool_capture::CpuTime;

    use super::*;

    fn times(time_ns: u64, threads: &[(u64, u64, u64)]) -> CpuTimes {
        let time = |&(tid, on_cpu_ns, runnable_ns): &(u64, u64, u64)| CpuTime {
            tid,
            on_cpu_ns,
            runnable_ns,
        };
        CpuTimes {
            time_ns,
            threads: threads.iter().map(time).collect(),
        }
    }

    #[test]
    fn shares_are_of_the_last_interval() {
        let mut live = Live::default();
        let name = |tid| Some(format!("worker-{tid}"));
        live.sample(&times(1000, &[(7, 0, 0), (8, 50, 0)]), name);
        assert_eq!(live.threads[&7].shares, None);
        live.sample(&times(2000, &[(7, 500, 250), (8, 50, 0)]), name);
        let shares = live.threads[&7].shares.unwrap();
        assert_eq!((shares.running, shares.runnable), (0.5, 0.25));
        assert_eq!(shares.blocked(), 0.25);
        assert_eq!(live.threads[&8].idle_ns, 1000);
        assert_eq!(live.processors(), Some(0.5));
        // Names that differ in digits are one identity.
        let groups = live.groups();
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].tids, [7, 8]);
        assert_eq!(groups[0].shares.unwrap().running, 0.25);
    }

    #[test]
    fn a_stop_is_no_run() {
        let mut live = Live::default();
        live.sample(&times(1_000, &[(7, 0, 0), (8, 0, 0)]), |_| None);
        live.inspecting();
        live.sample(&times(2_000, &[(7, 90_000, 0), (8, 900_000, 0)]), |_| None);
        assert_eq!(
            (live.threads[&7].idle_ns, live.threads[&8].idle_ns),
            (1_000, 0)
        );
        assert!(!live.threads[&7].has_run && live.threads[&8].has_run);
        live.sample(&times(3_000, &[(7, 90_001, 0), (8, 900_000, 0)]), |_| None);
        assert_eq!(
            (live.threads[&7].idle_ns, live.threads[&8].idle_ns),
            (0, 1_000)
        );
    }

    #[test]
    fn ended_threads_leave_and_counters_may_overshoot() {
        let mut live = Live::default();
        live.sample(&times(1000, &[(7, 0, 0), (8, 0, 0)]), |_| None);
        live.sample(&times(2000, &[(8, 1010, 20)]), |_| None);
        assert_eq!(live.threads.len(), 1);
        let shares = live.threads[&8].shares.unwrap();
        assert_eq!((shares.running, shares.runnable), (1.0, 0.0));
        assert_eq!(live.watched_ns(), 1000);
    }

    #[test]
    fn findings_are_known_since_the_first_sample() {
        let mut live = Live::default();
        let id = (FindingKind::Deadlock, vec![7, 8]);
        live.findings.push((id, 0));
        live.sample(&times(1000, &[(7, 0, 0), (8, 0, 0)]), |_| None);
        assert_eq!(live.findings[0].1, 1000);
    }
}
