//! What each thread did, step by step: from the kernel's schedule, or else from the recorded waits.

use std::borrow::Cow;

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
pub(super) struct Steps<'a> {
    threads: Vec<ThreadSteps<'a>>,
    /// Per thread, the thread that created it.
    pub(super) creators: Vec<Option<ThreadIndex>>,
    pub(super) basis: Basis,
    /// Number of processors that the program could use; not less than one.
    pub(super) processors: usize,
    /// In order of time: when the numbers of running and of runnable threads changed, and by how
    /// much.
    pub(super) changes: Vec<(u64, i32, i32)>,
}

/// The steps of one thread, each an interval of its schedule. Long recordings have millions, so
/// only what is added to the schedule is stored.
#[derive(Debug, Default)]
pub(super) struct ThreadSteps<'a> {
    /// In order and without gaps.
    intervals: Cow<'a, [Interval]>,
    /// The blocked ones, by their positions.
    blocks: Vec<Block>,
}

/// A blocked step.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Its position in the thread's intervals.
    at: usize,
    end: End,
    used: Option<UseIndex>,
    goes_on: bool,
}

/// A time in which a thread did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) doing: Doing,
    /// The processor that it ran on or waited for, if that is known.
    pub(super) cpu: Option<u32>,
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

impl ThreadSteps<'_> {
    /// All steps in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Step> + '_ {
        let mut blocks = self.blocks.iter().peekable();
        let steps = 0..self.intervals.len();
        steps.map(move |at| Step::of(&self.intervals, at, blocks.next_if(|block| block.at == at)))
    }

    /// The step that ends at a moment or contains it.
    pub(super) fn before(&self, ns: u64) -> Option<Step> {
        let after = self.intervals.partition_point(|it| it.from_ns < ns);
        let at = after.checked_sub(1)?;
        let block = self.blocks.binary_search_by_key(&at, |block| block.at);
        let block = block.ok().map(|found| &self.blocks[found]);
        Some(Step::of(&self.intervals, at, block))
    }

    /// When it began and when it ended.
    pub(super) fn span_ns(&self) -> Option<(u64, u64)> {
        let (first, last) = (self.intervals.first()?, self.intervals.last()?);
        Some((first.from_ns, last.to_ns))
    }

    /// When it ran for the first time and when for the last.
    pub(super) fn ran_ns(&self) -> Option<(u64, u64)> {
        let mut running = self.running();
        let first = running.next()?;
        let last = running.next_back().unwrap_or(first);
        Some((first.from_ns, last.to_ns))
    }

    /// For how long it ran.
    pub(super) fn running_ns(&self) -> u64 {
        self.running().map(Interval::length_ns).sum()
    }

    fn running(&self) -> impl DoubleEndedIterator<Item = &Interval> {
        let runs = |interval: &&Interval| matches!(interval.state, RunState::Running { .. });
        self.intervals.iter().filter(runs)
    }
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

impl Step {
    /// The step at a position. `block`: what is known of the interval, if it is a blocked one.
    fn of(intervals: &[Interval], at: usize, block: Option<&Block>) -> Step {
        let interval = &intervals[at];
        let cpu_at = |at: usize| match intervals.get(at)?.state {
            RunState::Running { cpu } => Some(cpu),
            _ => None,
        };
        let cpu = match interval.state {
            RunState::Running { cpu } => Some(cpu),
            // If it goes on elsewhere, it moved at the end of the wait.
            RunState::Preempted => at.checked_sub(1).and_then(cpu_at),
            RunState::Woken { .. } => cpu_at(at + 1),
            RunState::Blocked | RunState::Stopped | RunState::Unknown => None,
        };
        let doing = match interval.state {
            RunState::Running { .. } => Doing::Running,
            RunState::Preempted => Doing::Runnable { preempted: true },
            RunState::Woken { .. } => Doing::Runnable { preempted: false },
            RunState::Unknown => Doing::Unknown,
            RunState::Blocked | RunState::Stopped => Doing::Blocked {
                end: block.map_or(End::NotKnown, |block| block.end),
                used: block.and_then(|block| block.used),
                goes_on: block.is_some_and(|block| block.goes_on),
                call: interval.call,
            },
        };
        Step {
            from_ns: interval.from_ns,
            to_ns: interval.to_ns,
            doing,
            cpu,
        }
    }
}

impl<'a> Steps<'a> {
    /// Returns nothing if what threads did is not known at all.
    pub(super) fn of(facts: &Facts<'a>) -> Option<Steps<'a>> {
        let waits = waits_by_thread(facts);
        let basis = match (facts.schedule.is_known(), facts.schedule.has_wakers) {
            (true, true) => Basis::Wakers,
            (true, false) => Basis::Futexes,
            (false, _) if facts.waits.is_empty() => return None,
            (false, _) => Basis::Calls,
        };
        let mut steps = Steps {
            threads: Vec::new(),
            creators: facts.threads.iter().map(Thread::creator).collect(),
            basis,
            processors: facts.threads.len().max(1),
            changes: Vec::new(),
        };
        if basis == Basis::Calls {
            let threads = facts.threads.iter().zip(&waits);
            let threads = threads.map(|(thread, waits)| from_waits(facts, thread, waits));
            steps.threads = threads.collect();
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
            let mut blocks = blocks(facts, &wakers, ThreadIndex(index), &waits[index]);
            join_repeated(facts, intervals, &mut blocks);
            steps.threads.push(ThreadSteps {
                intervals: Cow::Borrowed(intervals),
                blocks,
            });
            // A thread whose creation was not recorded was woken by its creator.
            if let Some(first) = intervals.first()
                && let RunState::Woken { waker: Some(tid) } = first.state
                && steps.creators[index].is_none()
            {
                steps.creators[index] = wakers.thread(tid, first.from_ns);
            }
        }
        let missing = facts.threads.len().saturating_sub(steps.threads.len());
        let missing = std::iter::repeat_with(ThreadSteps::default).take(missing);
        steps.threads.extend(missing);
        // A program that binds itself to processors has run on others before.
        let all_ns: u64 = cpus.values().sum();
        cpus.retain(|_, ns| *ns > all_ns / MIN_USED_DIVISOR);
        steps.processors = cpus.len().max(1);
        steps.changes = steps.changes();
        let is_other = |cpu: u32| !cpus.contains_key(&cpu);
        if !steps.is_crowded() || steps.runs_after_crowding(is_other) {
            steps.processors = steps.processors.max(facts.processors.unwrap_or(2));
        }
        Some(steps)
    }

    /// The steps of all threads, in their order.
    pub(super) fn threads(&self) -> impl ExactSizeIterator<Item = &ThreadSteps<'a>> {
        self.threads.iter()
    }

    /// The steps of a thread.
    pub(super) fn of_thread(&self, thread: ThreadIndex) -> Option<&ThreadSteps<'a>> {
        self.threads.get(thread.0)
    }

    /// The first and the last moment in which a thread ran.
    pub(super) fn span_ns(&self) -> Option<(u64, u64)> {
        let ran = self.threads.iter().filter_map(ThreadSteps::ran_ns);
        ran.reduce(|(from, to), (first, last)| (from.min(first), to.max(last)))
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

    /// True if a thread ran on one of these processors after more threads could run than the
    /// processors that were seen. A bound program cannot do that. A program on a busy machine can
    /// have few processors most of the time.
    fn runs_after_crowding(&self, is_other: impl Fn(u32) -> bool) -> bool {
        let mut threads = 0;
        let mut changes = self.changes.iter();
        let first = changes.find(|(_, running, runnable)| {
            threads += running + runnable;
            threads > self.processors as i32
        });
        let Some((crowded_ns, ..)) = first else {
            return false;
        };
        let mut intervals = self.threads.iter().flat_map(|one| one.intervals.iter());
        intervals.any(|interval| {
            let is_other = matches!(interval.state, RunState::Running { cpu } if is_other(cpu));
            is_other && interval.from_ns > *crowded_ns
        })
    }

    fn changes(&self) -> Vec<(u64, i32, i32)> {
        let mut changes: Vec<(u64, i32, i32)> = Vec::new();
        for thread in &self.threads {
            let (mut before, mut last_ns) = ((0, 0), 0);
            let mut change = |ns: u64, now: (i32, i32)| {
                if now != before {
                    changes.push((ns, now.0 - before.0, now.1 - before.1));
                    before = now;
                }
            };
            for interval in thread.intervals.iter() {
                if interval.from_ns > last_ns {
                    change(last_ns, (0, 0));
                }
                let now = match interval.state {
                    RunState::Running { .. } => (1, 0),
                    RunState::Preempted | RunState::Woken { .. } => (0, 1),
                    RunState::Blocked | RunState::Stopped | RunState::Unknown => (0, 0),
                };
                change(interval.from_ns, now);
                last_ns = interval.to_ns;
            }
            change(last_ns, (0, 0));
        }
        // This sort uses that the changes of each thread are in order.
        changes.sort_by_key(|(ns, ..)| *ns);
        changes.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                (kept.1, kept.2) = (kept.1 + next.1, kept.2 + next.2);
            }
            is_same
        });
        changes.retain(|(_, running, runnable)| (*running, *runnable) != (0, 0));
        changes.shrink_to_fit();
        changes
    }
}

/// A thread repeats a wait if it does less in between than this fraction of it.
const MIN_REPEATED_DIVISOR: u64 = 20;

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
    let threads = (0..facts.schedule.threads.len()).zip(&waits);
    let blocking = threads.map(|(thread, waits)| {
        let blocks = blocks(facts, wakers, ThreadIndex(thread), waits).into_iter();
        let blocking = blocks.map(|Block { at, end, used, .. }| Blocking { at, end, used });
        blocking.collect()
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

/// The blocked ones of a thread's intervals.
fn blocks(
    facts: &Facts<'_>,
    wakers: &Wakers<'_>,
    thread: ThreadIndex,
    waits: &[&WaitSpan],
) -> Vec<Block> {
    let intervals = &facts.schedule.threads[thread.0];
    let is_killed = |ns| wakers.is_killed(thread, Waker::Outside, ns);
    let mut blocks = Vec::new();
    let mut next_wait = 0;
    for (at, interval) in intervals.iter().enumerate() {
        if !is_blocked(interval) {
            continue;
        }
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
            _ => {
                let call = interval.call.and_then(|call| facts.schedule.call(call));
                let is_sync = wait.is_some() || call.is_some_and(|call| call.is_futex);
                match end(wakers, intervals.get(at + 1), wait.copied()) {
                    // Another process ended the program, and not what the thread waited for.
                    End::Outside if is_sync && is_killed(interval.to_ns) => End::NotKnown,
                    end => end,
                }
            }
        };
        let end = match (ended, wait.and_then(|wait| wait.waker)) {
            // A signal or the recorder interrupted the wait, and a thread ended it before this one
            // blocked again.
            (End::Device | End::Outside | End::Recorder, Some(waker)) if !goes_on => End::By(waker),
            (end, _) => end,
        };
        blocks.push(Block {
            at,
            end,
            used: wait.map(|wait| wait.used),
            goes_on,
        });
    }
    pass_interruptions(intervals, &mut blocks);
    blocks
}

/// The recorder interrupts calls. A thread in a call did not wait for the recorder, but for the end
/// of the call, if that was recorded.
fn pass_interruptions(intervals: &[Interval], blocks: &mut [Block]) {
    // The next call that a thread was blocked in, and what ended it.
    let mut next: Option<(&Interval, End)> = None;
    for block in blocks.iter_mut().rev() {
        let interval = &intervals[block.at];
        if interval.call.is_none() {
            continue;
        }
        if block.end == End::Recorder {
            block.end = match next.filter(|(next, _)| next.continues) {
                Some((_, End::By(_))) => End::Outside,
                Some((_, end)) => end,
                None => End::NotKnown,
            };
        }
        next = Some((interval, block.end));
    }
}

/// Marks waits with a time limit that a thread repeated until another one ended them. Such a thread
/// waits for the other one, whatever the limit.
fn join_repeated(facts: &Facts<'_>, intervals: &[Interval], blocks: &mut [Block]) {
    let is_same = |one: &Block, next: &Block| match [one.used, next.used] {
        [Some(one), Some(next)] => {
            let object = facts.object(one);
            object.is_some() && object == facts.object(next)
        }
        [None, None] => {
            let index = intervals[one.at].call;
            let call = index.and_then(|index| facts.schedule.call(index));
            call.is_some_and(|call| call.waits_for.is_some()) && index == intervals[next.at].call
        }
        _ => false,
    };
    let mut later: Option<usize> = None;
    // For how long the recorder stopped the thread before `later`.
    let mut stopped_ns = 0;
    for at in (0..blocks.len()).rev() {
        let (one, wait) = (&blocks[at], &intervals[blocks[at].at]);
        if wait.state == RunState::Stopped {
            stopped_ns += wait.length_ns();
            continue;
        }
        let repeats = later.is_some_and(|later| {
            let next = &blocks[later];
            let apart_ns = intervals[next.at].from_ns.saturating_sub(wait.to_ns);
            one.end == End::Device
                && (matches!(next.end, End::By(_)) || next.goes_on && next.end == End::Device)
                && apart_ns.saturating_sub(stopped_ns) < wait.length_ns() / MIN_REPEATED_DIVISOR
                && is_same(one, next)
        });
        blocks[at].goes_on |= repeats;
        (later, stopped_ns) = (Some(at), 0);
    }
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
            None if next.state == RunState::Unknown => End::NotKnown,
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
fn from_waits(facts: &Facts<'_>, thread: &Thread, waits: &[&WaitSpan]) -> ThreadSteps<'static> {
    let Some(from_ns) = thread.started_ns.or(thread.created_ns) else {
        return ThreadSteps::default();
    };
    let end_ns = thread.ended_ns.unwrap_or(facts.duration_ns).max(from_ns);
    let mut intervals: Vec<Interval> = Vec::with_capacity(2 * waits.len() + 1);
    let mut blocks: Vec<Block> = Vec::new();
    let mut now = from_ns;
    let mut add = |to_ns: u64, state: RunState| {
        let to_ns = to_ns.min(end_ns);
        let is_later = to_ns > now;
        if is_later {
            intervals.push(Interval {
                from_ns: now,
                to_ns,
                state,
                call: None,
                continues: false,
            });
            now = to_ns;
        }
        is_later.then(|| intervals.len() - 1)
    };
    let running = RunState::Running { cpu: 0 };
    for wait in waits {
        add(wait.from_ns, running);
        if let Some(at) = add(wait.to_ns, RunState::Blocked) {
            blocks.push(Block {
                at,
                end: wait.waker.map_or(End::NotKnown, End::By),
                used: Some(wait.used),
                goes_on: false,
            });
        }
    }
    add(end_ns, running);
    ThreadSteps {
        intervals: Cow::Owned(intervals),
        blocks,
    }
}
