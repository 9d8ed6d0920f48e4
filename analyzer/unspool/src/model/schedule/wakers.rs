//! What ended blocked times, by the kernel's records of wake-ups.
//!
//! The kernel names the thread that ran when another one was woken, and whether an interrupt did it
//! meanwhile. Then the thread that ran has nothing to do with the wake-up. Otherwise it usually
//! caused the wake-up by its own call: it wrote, read, closed, sent a signal, or let go of a lock
//! in the kernel.

use foldhash::HashMap;

use super::thread_ids::ThreadIds;
use super::{CallIndex, Interval, RunState, Schedule};
use crate::model::thread::{Creation, Thread};
use crate::model::{Model, ThreadIndex};

/// What woke a blocked thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waker {
    /// A thread of the program or of a process that it started.
    Thread(ThreadIndex),
    /// An interrupt: a device, a timer or the network.
    Interrupt,
    /// A thread of a process that the program did not start, or of the kernel.
    Outside,
    /// The recorder that started the program.
    Recorder,
}

/// Time that a thread was blocked in one system call until one waker woke it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallWake {
    /// The waker.
    pub waker: Waker,
    /// How often it woke the thread.
    pub count: u64,
    /// The sum of the times until then, in nanoseconds.
    pub blocked_ns: u64,
}

/// The wakers of a schedule, as threads of the program or of the processes that it started.
#[derive(Debug)]
pub struct Wakers<'a> {
    are_recorded: bool,
    /// Per thread.
    intervals: Vec<&'a [Interval]>,
    ids: ThreadIds<'a>,
    recorder: Option<u64>,
    /// Per thread.
    lasts: Vec<Lasts>,
}

/// The beginnings of a thread's last interval in a system call, and of its last blocked interval.
#[derive(Clone, Copy, Debug, Default)]
struct Lasts {
    call_ns: Option<u64>,
    blocked_ns: Option<u64>,
}

impl Lasts {
    fn of(intervals: &[Interval]) -> Lasts {
        let last = |is_wanted: &dyn Fn(&Interval) -> bool| {
            let mut found = intervals.iter().rev().filter(|one| is_wanted(one));
            found.next().map(|interval| interval.from_ns)
        };
        Lasts {
            call_ns: last(&|interval| interval.call.is_some()),
            blocked_ns: last(&|interval| interval.state == RunState::Blocked),
        }
    }
}

impl Model {
    /// The wakers of the recorded schedule.
    pub fn wakers(&self) -> Wakers<'_> {
        let launched = self.recording.source == Some(unspool_capture::Source::Launched);
        let others = (&self.processes.threads[..], &self.processes.intervals[..]);
        Wakers::of(&self.schedule, &self.threads, others, launched)
    }
}

impl<'a> Wakers<'a> {
    /// `launched`: the recorder started the program, so that a stranger that wakes the first thread
    /// first is the recorder.
    pub(in crate::model) fn of(
        schedule: &'a Schedule,
        threads: &'a [Thread],
        (others, other_intervals): (&'a [Thread], &'a [Vec<Interval>]),
        launched: bool,
    ) -> Wakers<'a> {
        let intervals = schedule.threads.iter().chain(other_intervals);
        let intervals: Vec<&[Interval]> = intervals.map(Vec::as_slice).collect();
        let ids = ThreadIds::of(threads, others);
        // Without the long stops on a slow board, programs would seem to be limited by their start.
        let first = launched.then(|| {
            let known = schedule.recorder_tid;
            known.or_else(|| first_waker(schedule, threads))
        });
        let first = first.flatten();
        Wakers {
            recorder: first.filter(|tid| !ids.has(*tid)),
            lasts: intervals.iter().map(|of| Lasts::of(of)).collect(),
            are_recorded: schedule.has_wakers,
            intervals,
            ids,
        }
    }

    /// True if the kernel recorded wake-ups.
    pub fn are_recorded(&self) -> bool {
        self.are_recorded
    }

    fn intervals(&self, thread: ThreadIndex) -> &'a [Interval] {
        self.intervals.get(thread.0).copied().unwrap_or_default()
    }

    /// The thread that had an id at a moment.
    pub(in crate::model) fn thread(&self, tid: u64, ns: u64) -> Option<ThreadIndex> {
        self.ids.at(tid, ns)
    }

    /// What ended the blocked time before this interval; `None` if its wake-up was not recorded.
    pub fn before(&self, next: &Interval) -> Option<Waker> {
        let RunState::Woken { waker } = next.state else {
            return None;
        };
        Some(match waker {
            None => Waker::Interrupt,
            Some(tid) => match self.thread(tid, next.from_ns) {
                Some(thread) => Waker::Thread(thread),
                None if self.recorder == Some(tid) => Waker::Recorder,
                None => Waker::Outside,
            },
        })
    }

    /// What ended each blocked time of a thread in a system call, in order. Leaves out times whose
    /// end is not known, and those that the end of the program ended.
    pub fn of_calls(
        &self,
        thread: ThreadIndex,
    ) -> impl Iterator<Item = (&'a Interval, CallIndex, Waker)> {
        let blocks = self.of_blocks(thread);
        blocks.filter_map(|(blocked, waker)| Some((blocked, blocked.call?, waker)))
    }

    /// Like [`Self::of_calls`], for all blocked times.
    fn of_blocks(&self, thread: ThreadIndex) -> impl Iterator<Item = (&'a Interval, Waker)> {
        let pairs = self.intervals(thread).windows(2);
        let pairs = pairs.filter(|_| self.are_recorded);
        pairs.filter_map(move |pair| {
            let [blocked, next] = pair else { return None };
            (blocked.state == RunState::Blocked).then_some(())?;
            let waker = match next.state {
                RunState::Unknown => return None,
                // Threads' wake-ups are recorded if any are. Kernels leave out those by interrupts
                // when an idle processor handles the interrupt.
                _ => self.before(next).unwrap_or(Waker::Interrupt),
            };
            (!self.is_killed(thread, waker, next.from_ns)).then_some((blocked, waker))
        })
    }

    /// The wakers of a thread in each system call, and in its other blocked times.
    pub fn call_wakes(&self, thread: ThreadIndex) -> HashMap<Option<CallIndex>, Vec<CallWake>> {
        let mut wakes: HashMap<(Option<CallIndex>, Waker), CallWake> = HashMap::default();
        let is_call = |interval: &&Interval| interval.call.is_some();
        let mut calls = self.intervals(thread).iter().filter(is_call);
        let mut next = calls.next();
        let mut before_ns = 0;
        for (blocked, waker) in self.of_blocks(thread) {
            while let Some(this) = next.filter(|_| blocked.call.is_some())
                && this.from_ns <= blocked.from_ns
            {
                next = calls.next();
                if !this.continues {
                    before_ns = 0;
                }
            }
            // A stop by the recorder ends no call that then continues.
            if blocked.call.is_some() && next.is_some_and(|next| next.continues) {
                before_ns += blocked.length_ns();
                continue;
            }
            let wake = wakes.entry((blocked.call, waker)).or_insert(CallWake {
                waker,
                count: 0,
                blocked_ns: 0,
            });
            wake.count += 1;
            let before_ns = blocked.call.map_or(0, |_| before_ns);
            let blocked_ns = before_ns + blocked.length_ns();
            wake.blocked_ns = wake.blocked_ns.saturating_add(blocked_ns);
        }
        let mut by_call: HashMap<Option<CallIndex>, Vec<CallWake>> = HashMap::default();
        for ((call, _), wake) in wakes {
            by_call.entry(call).or_default().push(wake);
        }
        by_call
    }

    fn lasts(&self, thread: ThreadIndex) -> Lasts {
        self.lasts.get(thread.0).copied().unwrap_or_default()
    }

    /// True if a thread begins to wait in a system call at a moment, or later.
    pub(in crate::model) fn is_in_call_after(&self, thread: ThreadIndex, ns: u64) -> bool {
        self.lasts(thread)
            .call_ns
            .is_some_and(|from_ns| from_ns >= ns)
    }

    /// True if a thread was probably woken to be killed, because the waker ended the program. In
    /// that case neither thread makes another call. A waker that ended earlier than the program
    /// cannot have ended it. The wake-up of a first thread that then ends the program itself may
    /// look the same.
    pub(in crate::model) fn is_killed(&self, thread: ThreadIndex, waker: Waker, ns: u64) -> bool {
        let killed = self.ids.thread(thread);
        let is_last = killed.ended_ns.is_none();
        // A timer that wakes the first thread does not end the program.
        let is_main = killed.creation == Creation::Main && waker != Waker::Interrupt;
        let ends_itself =
            |thread: &Thread| thread.creation != Creation::Main && thread.ended_ns.is_some();
        let ends = |thread: ThreadIndex| {
            let last = self.intervals(thread).last();
            last.is_some_and(|last| last.state != RunState::Unknown)
                && !self.is_in_call_after(thread, ns)
        };
        (is_last || is_main)
            && ends(thread)
            && match waker {
                Waker::Thread(waker) => ends(waker) && !ends_itself(self.ids.thread(waker)),
                _ => self
                    .lasts(thread)
                    .blocked_ns
                    .is_none_or(|from_ns| from_ns < ns),
            }
    }
}

/// The id of the thread that woke the first thread first.
fn first_waker(schedule: &Schedule, threads: &[Thread]) -> Option<u64> {
    let is_main = |thread: &Thread| thread.creation == Creation::Main;
    let main = schedule.threads.get(threads.iter().position(is_main)?)?;
    let mut wakers = main.iter().filter_map(|interval| match interval.state {
        RunState::Woken { waker } => Some(waker),
        _ => None,
    });
    wakers.next()?
}
