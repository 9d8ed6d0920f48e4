//! Follows the critical path backwards from the last event.
//!
//! The time that a thread ran or waited for a processor is on the path. A blocked time ended by a
//! wake-up is not: the path goes on in the waker. A thread's beginning leads to its creator.

use super::functions::Functions;
use super::steps::{Doing, End, Steps, ThreadSteps};
use super::{Awaited, Facts, PathState, Segment};
use crate::model::thread::{Creation, ThreadIndex};

/// The main thread ends the path if it ran within the last fraction `1 / NEAR_END_DIVISOR` of the
/// run.
const NEAR_END_DIVISOR: u64 = 100;

/// The path's segments, the earliest first.
pub(super) fn path(facts: &Facts<'_>, steps: &Steps<'_>, functions: &Functions) -> Vec<Segment> {
    let Some((begin_ns, end_ns)) = steps.span_ns() else {
        return Vec::new();
    };
    let Some((thread, end_ns)) = last(facts, steps, begin_ns, end_ns) else {
        return Vec::new();
    };
    let mut walk = Walk {
        facts,
        steps,
        functions,
        begin_ns,
        waited: Vec::new(),
        segments: Vec::new(),
    };
    walk.follow(thread, end_ns);
    walk.segments.reverse();
    walk.segments
}

/// The thread of the last event, and its time. If the program goes on, the thread that ran most.
fn last(
    facts: &Facts<'_>,
    steps: &Steps<'_>,
    begin_ns: u64,
    end_ns: u64,
) -> Option<(ThreadIndex, u64)> {
    let near = (end_ns - begin_ns) / NEAR_END_DIVISOR;
    let all = steps.threads().enumerate();
    let all = all.filter_map(|(index, steps)| Some((ThreadIndex(index), steps.ran_ns()?.1)));
    let is_main = |index: ThreadIndex| facts.threads[index.0].creation == Creation::Main;
    // If the program goes on after the recording, its last event there has no meaning: the recorder
    // wakes all threads as it detaches.
    let mut mains = facts.threads.iter();
    if mains.any(|thread| thread.creation == Creation::Main && thread.ended_ns.is_none()) {
        let running_ns = |index: ThreadIndex| steps.of_thread(index).map(ThreadSteps::running_ns);
        return all.max_by_key(|(index, _)| (running_ns(*index), std::cmp::Reverse(*index)));
    }
    all.max_by_key(|(index, ns)| {
        let ends = is_main(*index) && ns + near >= end_ns;
        (ends, *ns, std::cmp::Reverse(*index))
    })
}

struct Walk<'a> {
    facts: &'a Facts<'a>,
    steps: &'a Steps<'a>,
    functions: &'a Functions,
    begin_ns: u64,
    /// What the path's later threads waited for, each with the wait's beginning.
    waited: Vec<(Awaited, u64)>,
    segments: Vec<Segment>,
}

impl Walk<'_> {
    fn follow(&mut self, mut thread: ThreadIndex, mut now: u64) {
        // Changes of the thread without progress; clocks of processors may differ slightly.
        let mut jumps = 0;
        while now > self.begin_ns {
            let steps = self.steps;
            let step = steps.of_thread(thread).and_then(|mine| mine.before(now));
            let Some(step) = step else {
                let creator = steps.creators.get(thread.0).copied().flatten();
                match creator.filter(|creator| jumps <= steps.threads().len() && *creator != thread)
                {
                    Some(creator) => (thread, jumps) = (creator, jumps + 1),
                    None => {
                        self.add(thread, self.begin_ns, now, PathState::Unknown);
                        return;
                    }
                }
                continue;
            };
            // The thread had ended, or its activity until now is unknown.
            if step.to_ns < now {
                self.add(
                    thread,
                    step.to_ns.max(self.begin_ns),
                    now,
                    PathState::Unknown,
                );
                (now, jumps) = (step.to_ns, 0);
                continue;
            }
            let from_ns = step.from_ns.max(self.begin_ns);
            let state = match step.doing {
                Doing::Running => PathState::Running,
                Doing::Runnable { .. } => PathState::Runnable,
                Doing::Unknown => PathState::Unknown,
                Doing::Blocked {
                    end, used, call, ..
                } => match end {
                    // A wake-up later than now cannot be what the path waited for.
                    End::By(waker) if step.to_ns == now && jumps <= steps.threads().len() => {
                        let awaited = self.facts.awaited(thread, used, call);
                        self.waited.extend(awaited.map(|it| (it, step.from_ns)));
                        (thread, jumps) = (waker, jumps + 1);
                        continue;
                    }
                    End::Device => PathState::Blocked,
                    End::Outside => PathState::Outside,
                    End::Recorder => PathState::Recorder,
                    End::By(_) | End::NotKnown => PathState::Unknown,
                },
            };
            self.add(thread, from_ns, now, state);
            (now, jumps) = (from_ns, 0);
        }
    }

    /// Adds a part of the path, divided where the function or the awaited object changes.
    fn add(&mut self, thread: ThreadIndex, from_ns: u64, to_ns: u64, state: PathState) {
        let first = self.segments.len();
        for (from, to, function) in self.functions.parts(thread, from_ns, to_ns) {
            self.segments.push(Segment {
                thread,
                from_ns: from,
                to_ns: to,
                state,
                function,
                awaited: None,
            });
        }
        self.segments[first..].reverse();
        let mut at = first;
        while at < self.segments.len() {
            let segment = self.segments[at];
            self.waited.retain(|(_, since)| *since < segment.to_ns);
            let (awaited, since) = match self.waited.last() {
                Some((awaited, since)) => (Some(*awaited), *since),
                None => (None, 0),
            };
            self.segments[at].awaited = awaited;
            if since > segment.from_ns {
                self.segments[at].from_ns = since;
                let rest = Segment {
                    to_ns: since,
                    ..segment
                };
                self.segments.insert(at + 1, rest);
            }
            at += 1;
        }
        self.merge(first.max(1));
    }

    /// Joins neighbours that are alike, from this segment on.
    fn merge(&mut self, first: usize) {
        let mut kept = first;
        for at in first..self.segments.len() {
            let segment = self.segments[at];
            let last = &mut self.segments[kept - 1];
            let alike = (last.thread, last.state, last.function, last.awaited)
                == (
                    segment.thread,
                    segment.state,
                    segment.function,
                    segment.awaited,
                );
            if alike && last.from_ns == segment.to_ns {
                last.from_ns = segment.from_ns;
            } else {
                self.segments[kept] = segment;
                kept += 1;
            }
        }
        self.segments.truncate(kept);
    }
}
