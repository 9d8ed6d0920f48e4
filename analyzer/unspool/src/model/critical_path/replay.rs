//! Replays the recorded run with parts of it changed, to tell how long it would have taken.
//!
//! Each thread is a list of operations: to run, to wait for a signal that another thread gives when
//! it reaches the recorded place, to wait for a device. The threads that can run share the
//! processors evenly. A wake-up by a condition, semaphore or barrier happens only once the woken
//! thread waits for it, because its own work may be the reason why the waker could wake it: this
//! keeps a bounded queue bounded, and a barrier a barrier.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::crowding::Crowding;
use super::functions::{FunctionIndex, Functions};
use super::steps::{Doing, End, Step, Steps, ThreadSteps};
use super::{Awaited, Facts};
use crate::model::sync::{ObjectIndex, Waiting};
use crate::model::thread::ThreadIndex;

const NO_FUNCTION: u32 = u32::MAX;
const NO_OBJECT: u32 = u32::MAX;

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Run {
        ns: u64,
        function: u32,
    },
    /// Time without a processor.
    Delay {
        ns: u64,
        function: u32,
        kind: Delay,
    },
    Wait(u32),
    Give(u32),
}

/// Why a thread is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delay {
    /// By a device, a timer or another process. A thread that is faster needs less of it.
    Device,
    /// Another process had the processor. A thread that needs less of one is delayed less.
    Preempted,
    /// By something that the replay does not change.
    Fixed,
}

/// A wake-up or a creation.
#[derive(Clone, Copy, Debug)]
struct Signal {
    waiter: u32,
    /// The lock that the waiter wanted.
    lock: u32,
    /// When it was given in the recording, in microseconds.
    at_us: u32,
    /// The thread that gives the signal first waits until the waiter has begun to wait.
    meets: bool,
}

/// The change that a replay applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    /// Threads of this identity are twice as fast.
    Threads(usize),
    /// This function is twice as fast.
    Function(FunctionIndex),
    /// Threads of this identity need half the processor time.
    RunningOfThreads(usize),
    /// This function needs half the processor time.
    RunningOfFunction(FunctionIndex),
    /// This lock is never contended.
    Lock(ObjectIndex),
    /// This lock, whose calls were not recorded, is never contended.
    LockWaits(usize),
    /// There are this many times more processors.
    Processors(usize),
}

impl Change {
    /// The number of the lock that is never contended. Locks with recorded calls have even numbers.
    fn lock(self) -> Option<u32> {
        match self {
            Change::Lock(object) => Some(2 * object.0 as u32),
            Change::LockWaits(index) => Some(2 * index as u32 + 1),
            _ => None,
        }
    }
}

/// A recording in a form that can be replayed.
#[derive(Debug)]
pub(super) struct Replay {
    threads: Vec<Vec<Operation>>,
    identities: Vec<usize>,
    signals: Vec<Signal>,
    processors: usize,
    /// The thread with which the run ends.
    last: ThreadIndex,
}

impl Replay {
    pub(super) fn of(
        facts: &Facts<'_>,
        steps: &Steps<'_>,
        functions: &Functions,
        last: ThreadIndex,
        span_ns: (u64, u64),
    ) -> Replay {
        let mut signals: Vec<Signal> = Vec::new();
        // Per thread, when it gives which signal, or checks for one.
        let mut moments: Vec<Vec<(u64, Operation)>> = vec![Vec::new(); steps.threads().len()];
        let mut give = |by: ThreadIndex, ns: u64, signal: Signal| -> Option<u32> {
            let number = u32::try_from(signals.len()).ok()?;
            let mine = moments.get_mut(by.0)?;
            mine.push((ns, Operation::Give(number)));
            signals.push(signal);
            Some(number)
        };
        // Per thread, the signals that it waits for, in order.
        let mut awaited: Vec<Vec<u32>> = vec![Vec::new(); steps.threads().len()];
        let mut started: Vec<Option<u32>> = vec![None; steps.threads().len()];
        for (index, mine) in steps.threads().enumerate() {
            let waiter = u32::try_from(index).unwrap_or(u32::MAX);
            let first = mine.span_ns().map(|(from_ns, _)| from_ns);
            if let (Some(creator), Some(first)) = (steps.creators[index], first)
                && creator.0 != index
                && first > span_ns.0
            {
                let signal = Signal {
                    waiter,
                    lock: NO_OBJECT,
                    at_us: microseconds(first),
                    meets: false,
                };
                started[index] = give(creator, first, signal);
            }
            for step in mine.iter() {
                let Doing::Blocked {
                    end: End::By(waker),
                    used,
                    call,
                    ..
                } = step.doing
                else {
                    continue;
                };
                let waiting = used
                    .and_then(|used| facts.uses.get(used.0))
                    .map(|u| u.waiting);
                let object = used.and_then(|used| facts.object(used));
                let lock = object.filter(|_| waiting == Some(Waiting::Held));
                let lock = match (lock, facts.awaited(ThreadIndex(index), used, call)) {
                    (Some(object), _) => Change::Lock(object).lock(),
                    (None, Some(Awaited::LockWaits(waits, _))) => Change::LockWaits(waits).lock(),
                    (None, Some(Awaited::Object(object))) if used.is_none() => {
                        Change::Lock(object).lock()
                    }
                    _ => None,
                };
                let signal = Signal {
                    waiter,
                    lock: lock.unwrap_or(NO_OBJECT),
                    at_us: microseconds(step.to_ns),
                    meets: object.is_some() && lock.is_none(),
                };
                let number = give(waker, step.to_ns, signal);
                awaited[index].push(number.unwrap_or(u32::MAX));
            }
        }
        // A thread that was joined after its end did not make the other one wait.
        let mut joins: Vec<(ThreadIndex, u64, u32)> = Vec::new();
        for (index, thread) in facts.threads.iter().enumerate() {
            let mine = steps.of_thread(ThreadIndex(index));
            let end_ns = mine.and_then(ThreadSteps::span_ns).map(|(_, to_ns)| to_ns);
            if let (Some(joiner), Some(joined_ns), Some(end_ns)) =
                (thread.joiner, thread.joined_ns, end_ns)
                && end_ns <= joined_ns
            {
                let signal = Signal {
                    waiter: u32::try_from(joiner.0).unwrap_or(u32::MAX),
                    lock: NO_OBJECT,
                    at_us: microseconds(end_ns),
                    meets: false,
                };
                let number = give(ThreadIndex(index), end_ns, signal);
                joins.extend(number.map(|number| (joiner, joined_ns, number)));
            }
        }
        for (joiner, joined_ns, number) in joins {
            if let Some(mine) = moments.get_mut(joiner.0) {
                mine.push((joined_ns, Operation::Wait(number)));
            }
        }
        for mine in &mut moments {
            mine.sort_by_key(|(ns, _)| *ns);
        }
        let shared = Crowding::of(steps);
        let mut threads = Vec::with_capacity(steps.threads().len());
        for (index, mine) in steps.threads().enumerate() {
            let mut list = List {
                operations: Vec::with_capacity(moments[index].len()),
                moments: &moments[index],
                passed: 0,
            };
            match (started[index], mine.span_ns()) {
                (Some(signal), _) => list.operations.push(Operation::Wait(signal)),
                (None, Some((first_ns, _))) if first_ns > span_ns.0 => {
                    list.delay(first_ns - span_ns.0, None, Delay::Fixed);
                }
                _ => {}
            }
            let mut next = awaited[index].iter();
            for step in mine.iter() {
                let thread = ThreadIndex(index);
                list.step(&step, thread, functions, &shared, span_ns, || {
                    next.next().copied()
                });
            }
            list.pass_until(u64::MAX);
            list.operations.shrink_to_fit();
            threads.push(list.operations);
        }
        Replay {
            threads,
            identities: facts.identity_of.to_vec(),
            signals,
            processors: steps.processors,
            last,
        }
    }

    /// Number of operations of all threads.
    pub(super) fn size(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// The length of the run, nanoseconds.
    pub(super) fn length_ns(&self, change: Change) -> u64 {
        let processors = match change {
            Change::Processors(times) => self.processors * times,
            _ => self.processors,
        };
        let mut run = Run {
            replay: self,
            change,
            processors: processors as f64,
            next: vec![0; self.threads.len()],
            given: vec![false; self.signals.len()],
            there: vec![false; self.signals.len()],
            giver: foldhash::HashMap::default(),
            now: 0.0,
            service: 0.0,
            running: BinaryHeap::new(),
            delayed: BinaryHeap::new(),
            ready: (0..self.threads.len() as u32).rev().collect(),
            end: 0.0,
        };
        run.run_to_end();
        run.end as u64
    }
}

fn microseconds(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}

/// The operations of a thread while they are collected.
struct List<'a> {
    operations: Vec<Operation>,
    moments: &'a [(u64, Operation)],
    passed: usize,
}

impl List<'_> {
    fn step(
        &mut self,
        step: &Step,
        thread: ThreadIndex,
        functions: &Functions,
        crowding: &Crowding,
        (begin_ns, end_ns): (u64, u64),
        mut awaited: impl FnMut() -> Option<u32>,
    ) {
        let (from_ns, to_ns) = (step.from_ns.max(begin_ns), step.to_ns.min(end_ns));
        let length_ns = to_ns.saturating_sub(from_ns);
        // A blocked thread gives no signal. If it seems to have given one, because the time of a
        // wake-up is not exact, that was before.
        self.pass_until(match step.doing {
            Doing::Blocked {
                end: End::By(_), ..
            } => to_ns,
            _ => from_ns.saturating_add(1),
        });
        let function = || functions.at(thread, from_ns);
        match step.doing {
            Doing::Running => {
                for (from, to, function) in functions.parts(thread, from_ns, to_ns) {
                    let mut now = from;
                    while let Some((ns, _)) =
                        self.moments.get(self.passed).filter(|(ns, _)| *ns < to)
                    {
                        self.run(ns.saturating_sub(now), function);
                        now = now.max(*ns);
                        self.pass_until(ns + 1);
                    }
                    self.run(to - now, function);
                }
            }
            Doing::Runnable { preempted } => {
                let (alone, shared) = crowding.taken_ns(from_ns, to_ns);
                let kind = match preempted {
                    true => Delay::Preempted,
                    false => Delay::Fixed,
                };
                self.delay(alone, function(), kind);
                // The other process takes a processor from all of the program's threads.
                self.run(shared, function());
            }
            // The thread went back to the same wait.
            Doing::Blocked {
                end: End::Device | End::Outside | End::Recorder,
                goes_on: true,
                ..
            } => {}
            Doing::Blocked { end, .. } => match end {
                End::By(_) => {
                    if let Some(signal) = awaited().filter(|signal| *signal != u32::MAX) {
                        self.operations.push(Operation::Wait(signal));
                    }
                }
                End::Device | End::Outside => self.delay(length_ns, function(), Delay::Device),
                End::Recorder => {}
                End::NotKnown => self.delay(length_ns, None, Delay::Fixed),
            },
            Doing::Unknown => self.delay(length_ns, None, Delay::Fixed),
        }
    }

    /// Does what the thread did before a moment.
    fn pass_until(&mut self, ns: u64) {
        while let Some((_, operation)) = self.moments.get(self.passed).filter(|(at, _)| *at < ns) {
            self.operations.push(*operation);
            self.passed += 1;
        }
    }

    fn run(&mut self, ns: u64, function: Option<FunctionIndex>) {
        let function = function.map_or(NO_FUNCTION, |function| function.0 as u32);
        match self.operations.last_mut() {
            _ if ns == 0 => {}
            Some(Operation::Run {
                ns: before,
                function: same,
            }) if *same == function => *before += ns,
            _ => self.operations.push(Operation::Run { ns, function }),
        }
    }

    fn delay(&mut self, ns: u64, function: Option<FunctionIndex>, kind: Delay) {
        if ns > 0 {
            let function = function.map_or(NO_FUNCTION, |function| function.0 as u32);
            self.operations
                .push(Operation::Delay { ns, function, kind });
        }
    }
}

/// A replay under way. Times are nanoseconds.
struct Run<'a> {
    replay: &'a Replay,
    change: Change,
    processors: f64,
    next: Vec<usize>,
    given: Vec<bool>,
    there: Vec<bool>,
    /// Threads that wait to give a signal.
    giver: foldhash::HashMap<u32, u32>,
    now: f64,
    /// Time that each thread which could always run has had of a processor.
    service: f64,
    /// Threads that can run, by the service at which they have finished. Positive numbers are
    /// ordered like their bits.
    running: BinaryHeap<Reverse<(u64, u32)>>,
    delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Threads that go on at this moment.
    ready: Vec<u32>,
    end: f64,
}

impl Run<'_> {
    fn run_to_end(&mut self) {
        loop {
            while let Some(thread) = self.ready.pop() {
                if self.go_on(thread) && thread as usize == self.replay.last.0 {
                    self.end = self.now;
                    return;
                }
            }
            let rate = (self.processors / self.running.len().max(1) as f64).min(1.0);
            let ran = self.running.peek().map(|Reverse((at, _))| {
                self.now + (f64::from_bits(*at) - self.service).max(0.0) / rate
            });
            let waited = self
                .delayed
                .peek()
                .map(|Reverse((at, _))| f64::from_bits(*at));
            let runs_first = match (ran, waited) {
                (Some(ran), Some(waited)) => ran <= waited,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => match self.release_first() {
                    Some(thread) => {
                        self.ready.push(thread);
                        continue;
                    }
                    None => {
                        self.end = self.now;
                        return;
                    }
                },
            };
            let then = if runs_first { ran } else { waited };
            let then = then.unwrap_or(self.now).max(self.now);
            if !self.running.is_empty() {
                self.service += (then - self.now) * rate;
            }
            self.now = then;
            let heap = if runs_first {
                &mut self.running
            } else {
                &mut self.delayed
            };
            if let Some(Reverse((at, thread))) = heap.pop() {
                if runs_first {
                    self.service = self.service.max(f64::from_bits(at));
                }
                self.ready.push(thread);
            }
        }
    }

    /// All threads wait for each other: the order of the recorded wake-ups is not exact. Lets the
    /// one go on that did so first in the recording.
    fn release_first(&mut self) -> Option<u32> {
        let replay = self.replay;
        let waits = replay.threads.iter().zip(&self.next).enumerate();
        let waits =
            waits.filter_map(
                |(thread, (operations, next))| match operations.get(*next)? {
                    Operation::Wait(number) | Operation::Give(number) => {
                        let at_us = replay.signals[*number as usize].at_us;
                        Some((at_us, thread as u32, *number as usize))
                    }
                    Operation::Run { .. } | Operation::Delay { .. } => None,
                },
            );
        let (_, thread, number) = waits.min()?;
        match replay.threads[thread as usize][self.next[thread as usize]] {
            Operation::Give(_) => {
                self.there[number] = true;
                self.giver.remove(&(number as u32));
            }
            _ => self.given[number] = true,
        }
        Some(thread)
    }

    /// Executes a thread's operations until it has to wait. Returns true if none is left.
    fn go_on(&mut self, thread: u32) -> bool {
        let replay = self.replay;
        let operations = &replay.threads[thread as usize];
        while let Some(operation) = operations.get(self.next[thread as usize]) {
            match *operation {
                Operation::Run { ns, function } => {
                    self.next[thread as usize] += 1;
                    let until = self.service + ns as f64 * self.factor(thread, function, true);
                    self.running.push(Reverse((until.to_bits(), thread)));
                    return false;
                }
                Operation::Delay { ns, function, kind } => {
                    self.next[thread as usize] += 1;
                    let factor = match kind {
                        Delay::Fixed => 1.0,
                        Delay::Device => self.factor(thread, function, false),
                        Delay::Preempted => self.factor(thread, function, true),
                    };
                    let until = self.now + ns as f64 * factor;
                    self.delayed.push(Reverse((until.to_bits(), thread)));
                    return false;
                }
                Operation::Wait(number) => {
                    let (at, signal) = (number as usize, replay.signals[number as usize]);
                    if !self.there[at] {
                        self.there[at] = true;
                        if let Some(giver) = self.giver.remove(&number) {
                            self.ready.push(giver);
                        }
                    }
                    if !self.given[at] && !self.is_free(signal) {
                        return false;
                    }
                    self.next[thread as usize] += 1;
                }
                Operation::Give(number) => {
                    let (at, signal) = (number as usize, replay.signals[number as usize]);
                    if signal.meets && !self.there[at] {
                        self.giver.insert(number, thread);
                        return false;
                    }
                    self.next[thread as usize] += 1;
                    let waits = self.there[at] && !self.given[at] && !self.is_free(signal);
                    self.given[at] = true;
                    if waits {
                        self.ready.push(signal.waiter);
                    }
                }
            }
        }
        true
    }

    /// True if no thread waits for the signal in this replay.
    fn is_free(&self, signal: Signal) -> bool {
        self.change.lock() == Some(signal.lock)
    }

    fn factor(&self, thread: u32, function: u32, runs: bool) -> f64 {
        let is_of = |identity: usize| {
            self.replay.identities.get(thread as usize).copied() == Some(identity)
        };
        let faster = match self.change {
            Change::Threads(identity) => is_of(identity),
            Change::RunningOfThreads(identity) => runs && is_of(identity),
            Change::Function(changed) => changed.0 as u32 == function,
            Change::RunningOfFunction(changed) => runs && changed.0 as u32 == function,
            Change::Nothing | Change::Lock(_) | Change::LockWaits(_) | Change::Processors(_) => {
                false
            }
        };
        if faster { 0.5 } else { 1.0 }
    }
}
