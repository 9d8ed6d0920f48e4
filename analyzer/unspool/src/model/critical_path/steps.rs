//! What each thread did, step by step: from the kernel's schedule, or else from the recorded waits.

use foldhash::HashMap;

use super::{Basis, Facts};
use crate::model::schedule::{CallIndex, Interval, RunState, Waker, Wakers};
use crate::model::sync::{UseIndex, WaitSpan};
use crate::model::thread::{Thread, ThreadIndex};

/// A processor counts if it had more than the fraction `1 / MIN_USED_DIVISOR` of the program's
/// running time.
const MIN_USED_DIVISOR: u64 = 50;

/// The steps of all threads.
#[derive(Debug)]
pub(super) struct Steps {
    /// Per thread, in order and without gaps.
    pub(super) threads: Vec<Vec<Step>>,
    /// Per thread, the thread that created it.
    pub(super) creators: Vec<Option<ThreadIndex>>,
    pub(super) basis: Basis,
    /// Number of processors that the program could use; not less than one.
    pub(super) processors: usize,
    /// In order of time: when the numbers of running and of runnable threads changed, and by how
    /// much.
    pub(super) changes: Vec<(u64, i32, i32)>,
}

/// A time in which a thread did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) doing: Doing,
}

/// What a thread did in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Running,
    /// It waited for a processor, because another thread had taken its own if `preempted`.
    Runnable {
        preempted: bool,
    },
    Blocked {
        /// What ended it.
        end: End,
        /// The recorded call that it waited in.
        used: Option<UseIndex>,
        /// It blocked again in the same call.
        goes_on: bool,
        /// The system call, by the schedule.
        call: Option<CallIndex>,
    },
    Unknown,
}

/// What ended a blocked time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum End {
    /// A wake-up by a thread of the program.
    By(ThreadIndex),
    /// A device or a timer.
    Device,
    /// A wake-up by a thread of another process.
    Outside,
    /// The recorder let the thread run on.
    Recorder,
    /// It is unknown what ended the wait, or the wait had not ended.
    NotKnown,
}

impl Steps {
    /// Returns nothing if what threads did is not known at all.
    pub(super) fn of(facts: &Facts<'_>) -> Option<Steps> {
        let waits = waits_by_thread(facts);
        let basis = match (facts.schedule.is_known(), facts.schedule.has_wakers) {
            (true, true) => Basis::Wakers,
            (true, false) => Basis::Futexes,
            (false, _) if facts.waits.is_empty() => return None,
            (false, _) => Basis::Calls,
        };
        let mut steps = Steps {
            threads: vec![Vec::new(); facts.threads.len()],
            creators: facts.threads.iter().map(Thread::creator).collect(),
            basis,
            processors: facts.threads.len().max(1),
            changes: Vec::new(),
        };
        if basis == Basis::Calls {
            for (index, thread) in facts.threads.iter().enumerate() {
                steps.threads[index] = from_waits(facts, thread, &waits[index]);
            }
            steps.changes = steps.changes();
            return Some(steps);
        }
        let mut cpus: HashMap<u32, u64> = HashMap::default();
        let wakers = Wakers::of(facts.schedule, facts.threads, (&[], &[]), facts.launched);
        for (index, intervals) in facts.schedule.threads.iter().enumerate() {
            for interval in intervals {
                if let RunState::Running { cpu } = interval.state {
                    *cpus.entry(cpu).or_default() += interval.length_ns();
                }
            }
            steps.threads[index] = from_schedule(&wakers, intervals, &waits[index]);
            // A thread whose creation was not recorded was woken by its creator.
            if let Some(first) = intervals.first()
                && let RunState::Woken { waker: Some(tid) } = first.state
                && steps.creators[index].is_none()
            {
                steps.creators[index] = wakers.thread(tid, first.from_ns);
            }
        }
        // A program that binds itself to processors has run on others before.
        let all_ns: u64 = cpus.values().sum();
        let used = cpus.values().filter(|ns| **ns > all_ns / MIN_USED_DIVISOR);
        steps.processors = used.count().max(1);
        steps.changes = steps.changes();
        if !steps.is_crowded() {
            steps.processors = steps.processors.max(facts.processors.unwrap_or(2));
        }
        Some(steps)
    }

    /// True if for half of the run more threads could run than the processors that were seen. Then
    /// the program was not allowed to use others.
    fn is_crowded(&self) -> bool {
        let first_ns = self.changes.first().map_or(0, |(ns, ..)| *ns);
        let (mut threads, mut crowded_ns, mut last_ns) = (0, 0, first_ns);
        for (ns, running, runnable) in &self.changes {
            if threads > self.processors as i32 {
                crowded_ns += ns - last_ns;
            }
            threads += running + runnable;
            last_ns = *ns;
        }
        crowded_ns > (last_ns - first_ns) / 2
    }

    fn changes(&self) -> Vec<(u64, i32, i32)> {
        let mut changes: Vec<(u64, i32, i32)> = Vec::new();
        for step in self.threads.iter().flatten() {
            let (running, runnable) = match step.doing {
                Doing::Running => (1, 0),
                Doing::Runnable { .. } => (0, 1),
                _ => continue,
            };
            changes.push((step.from_ns, running, runnable));
            changes.push((step.to_ns, -running, -runnable));
        }
        changes.sort_unstable_by_key(|(ns, ..)| *ns);
        changes
    }
}

/// A blocked interval of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct Blocking {
    /// Its position in the thread's intervals.
    pub(in crate::model) at: usize,
    /// What ended it.
    pub(in crate::model) end: End,
    /// The recorded call that its thread waited in.
    pub(in crate::model) used: Option<UseIndex>,
}

/// Per thread, its blocked intervals.
pub(in crate::model) fn blocking(facts: &Facts<'_>, wakers: &Wakers<'_>) -> Vec<Vec<Blocking>> {
    let waits = waits_by_thread(facts);
    let threads = facts.schedule.threads.iter().zip(&waits);
    let blocking = threads.map(|(intervals, waits)| {
        let steps = from_schedule(wakers, intervals, waits);
        let blocked = steps.into_iter().enumerate();
        let blocked = blocked.filter_map(|(at, step)| match step.doing {
            Doing::Blocked { end, used, .. } => Some(Blocking { at, end, used }),
            _ => None,
        });
        blocked.collect()
    });
    blocking.collect()
}

/// Per thread, its recorded waits in order.
fn waits_by_thread<'w>(facts: &Facts<'w>) -> Vec<Vec<&'w WaitSpan>> {
    let mut waits: Vec<Vec<&WaitSpan>> = vec![Vec::new(); facts.threads.len()];
    for wait in facts.waits {
        if let Some(mine) = waits.get_mut(wait.thread.0) {
            mine.push(wait);
        }
    }
    for mine in &mut waits {
        mine.sort_by_key(|wait| (wait.from_ns, wait.to_ns));
    }
    waits
}

/// The steps of a thread by the schedule.
fn from_schedule(wakers: &Wakers<'_>, intervals: &[Interval], waits: &[&WaitSpan]) -> Vec<Step> {
    let mut steps = Vec::with_capacity(intervals.len());
    let mut next_wait = 0;
    for (at, interval) in intervals.iter().enumerate() {
        let doing = match interval.state {
            RunState::Running { .. } => Doing::Running,
            RunState::Preempted => Doing::Runnable { preempted: true },
            RunState::Woken { .. } => Doing::Runnable { preempted: false },
            RunState::Unknown => Doing::Unknown,
            RunState::Blocked | RunState::Stopped => {
                while waits
                    .get(next_wait)
                    .is_some_and(|wait| wait.to_ns <= interval.from_ns)
                {
                    next_wait += 1;
                }
                let wait = waits.get(next_wait);
                let wait = wait.filter(|wait| covers(wait, interval));
                let goes_on = wait.is_some_and(|wait| {
                    let later = intervals[at + 1..].iter();
                    let mut later = later.take_while(|it| it.from_ns < wait.to_ns);
                    later.any(|it| is_blocked(it) && covers(wait, it))
                });
                let ended = match interval.state {
                    RunState::Stopped => End::Recorder,
                    _ => match end(wakers, intervals.get(at + 1), wait.copied()) {
                        // The thread did not wait for the recorder, which interrupted its call.
                        End::Recorder if interval.call.is_some() => End::Outside,
                        end => end,
                    },
                };
                let end = match (ended, wait.and_then(|wait| wait.waker)) {
                    // A signal or the recorder interrupted the wait, and a thread ended it
                    // before this one blocked again.
                    (End::Device | End::Outside | End::Recorder, Some(waker)) if !goes_on => {
                        End::By(waker)
                    }
                    (end, _) => end,
                };
                Doing::Blocked {
                    end,
                    used: wait.map(|wait| wait.used),
                    goes_on,
                    call: interval.call,
                }
            }
        };
        steps.push(Step {
            from_ns: interval.from_ns,
            to_ns: interval.to_ns,
            doing,
        });
    }
    steps
}

/// What ended a blocked time, by the interval after it.
fn end(wakers: &Wakers<'_>, next: Option<&Interval>, wait: Option<&WaitSpan>) -> End {
    let Some(next) = next else {
        return End::NotKnown;
    };
    match wakers.before(next) {
        Some(Waker::Thread(waker)) => End::By(waker),
        Some(Waker::Interrupt) => End::Device,
        Some(Waker::Outside) => End::Outside,
        Some(Waker::Recorder) => End::Recorder,
        // Without a record of the wake-up, the recorded call tells the waker. Threads' wake-ups
        // are recorded if any are, but those by interrupts may not be: kernels leave them out
        // when an idle processor handles the interrupt.
        None => match wait {
            Some(wait) => wait.waker.map_or(End::NotKnown, End::By),
            None => End::Device,
        },
    }
}

/// True if a thread was blocked, or if the recorder had stopped it.
fn is_blocked(interval: &Interval) -> bool {
    matches!(interval.state, RunState::Blocked | RunState::Stopped)
}

/// True if a thread was blocked in a call, and not elsewhere.
fn covers(wait: &WaitSpan, blocked: &Interval) -> bool {
    let common = wait.to_ns.min(blocked.to_ns);
    let common = common.saturating_sub(wait.from_ns.max(blocked.from_ns));
    common > 0 && common >= blocked.length_ns() / 2
}

/// The steps of a thread if only its waits are known. Between them it counts as running.
fn from_waits(facts: &Facts<'_>, thread: &Thread, waits: &[&WaitSpan]) -> Vec<Step> {
    let Some(from_ns) = thread.started_ns.or(thread.created_ns) else {
        return Vec::new();
    };
    let end_ns = thread.ended_ns.unwrap_or(facts.duration_ns).max(from_ns);
    let mut steps = Vec::with_capacity(2 * waits.len() + 1);
    let mut now = from_ns;
    let mut add = |now: &mut u64, to_ns: u64, doing: Doing| {
        let to_ns = to_ns.min(end_ns);
        if to_ns > *now {
            steps.push(Step {
                from_ns: *now,
                to_ns,
                doing,
            });
            *now = to_ns;
        }
    };
    for wait in waits {
        add(&mut now, wait.from_ns, Doing::Running);
        let doing = Doing::Blocked {
            end: wait.waker.map_or(End::NotKnown, End::By),
            used: Some(wait.used),
            goes_on: false,
            call: None,
        };
        add(&mut now, wait.to_ns, doing);
    }
    add(&mut now, end_ns, Doing::Running);
    steps
}
