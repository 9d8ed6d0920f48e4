//! What ended a thread's wait for a lock: a release, the recorder, or the end of the process.

use super::MAX_INTERRUPTION_NS;
use crate::model::schedule::{Interval, RunState, Waker, Wakers};
use crate::model::{Model, ThreadIndex};

/// Maximum time between the wake-up of a thread that is killed and the end of its process.
const KILL_NS: u64 = 100_000_000;

impl Model {
    /// True if the recorder woke a thread at a moment, also one of a program that it has not
    /// started.
    pub(super) fn is_woken_by_recorder(&self, thread: ThreadIndex, ns: u64) -> bool {
        let intervals = self.intervals(thread);
        let next = intervals.partition_point(|interval| interval.from_ns < ns);
        let waker = match intervals.get(next).map(|interval| interval.state) {
            Some(RunState::Woken { waker }) => waker,
            _ => None,
        };
        waker.is_some() && waker == self.schedule.recorder_tid
    }

    /// True if the end of its process, or of the recording, ended a thread's wait at a moment, and
    /// not a release. A thread that is killed runs for a short time before it ends.
    pub(super) fn is_cut_off(
        &self,
        wakers: &Wakers<'_>,
        (thread, ns): (ThreadIndex, u64),
        ender: Option<Waker>,
    ) -> bool {
        let goes_on = |thread| wakers.is_in_call_after(thread, ns);
        let after = self.intervals(thread).iter().rev();
        let after = after.take_while(|interval| interval.from_ns >= ns);
        let running = after.filter(|it| matches!(it.state, RunState::Running { .. }));
        let is_last = !goes_on(thread)
            && running.map(Interval::length_ns).sum::<u64>() <= MAX_INTERRUPTION_NS;
        is_last
            && match self.process(thread) {
                None => self
                    .any_thread(thread)
                    .is_some_and(|it| it.ended_ns.is_none()),
                Some((index, process)) => {
                    let is_killed = process
                        .ended_ns
                        .is_none_or(|ended_ns| ended_ns.saturating_sub(ns) <= KILL_NS);
                    let releases = |waker: ThreadIndex| {
                        let tid = self.any_thread(waker).and_then(|it| it.tid);
                        // A thread of another process more likely sent a signal.
                        self.process(waker).is_some_and(|(its, _)| its == index)
                            && (goes_on(waker)
                                || tid != Some(process.pid)
                                    && !is_woken_outside(self, wakers, (waker, ns)))
                    };
                    is_killed && !matches!(ender, Some(Waker::Thread(waker)) if releases(waker))
                }
            }
    }
}

/// True if no thread of the recording ended a thread's last system call before a moment, as if a
/// signal had. Such a thread ends its process, and with it the others.
fn is_woken_outside(model: &Model, wakers: &Wakers<'_>, (thread, ns): (ThreadIndex, u64)) -> bool {
    let mut blocks = model.intervals(thread).iter().rev();
    let last = blocks.find(|it| it.to_ns <= ns && it.call.is_some());
    last.is_some_and(|last| {
        let mut enders = wakers.of_calls(thread);
        let ender = enders.find(|(blocked, ..)| blocked.from_ns == last.from_ns);
        matches!(ender, None | Some((.., Waker::Outside | Waker::Recorder)))
    })
}
