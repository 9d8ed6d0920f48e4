//! Where threads were blocked: the intervals of the schedule, with the stacks that the kernel
//! sampled when they began.
//!
//! Sums instead of single waits, because a program can block a hundred thousand times per second.

use std::collections::HashMap;

use unspool_capture::Record;

use super::{Lives, Profile, StackTime};
use crate::model::schedule::{CallIndex, Interval, RunState};
use crate::model::sync::ObjectIndex;
use crate::model::{Model, ThreadIndex};

/// The time in which threads were blocked, by stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffCpu {
    /// The sums, the longest first.
    pub sums: Vec<BlockedSum>,
    /// Number of samples that the kernel did not take, because its buffers were full or the rate
    /// was above the limit. Some of them are of threads that did not block.
    pub lost: u64,
    /// Number of samples whose stack continues beyond the bytes that were copied.
    pub cut: u64,
}

/// The waits of a thread with the same stack, reason and waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedSum {
    /// What they have in common.
    pub key: BlockedKey,
    /// Number of waits.
    pub count: u64,
    /// The sum of their lengths, in nanoseconds.
    pub ns: u64,
    /// The longest one, in nanoseconds.
    pub longest_ns: u64,
}

/// What the waits of a [`BlockedSum`] have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockedKey {
    /// The thread that was blocked.
    pub thread: ThreadIndex,
    /// Index into [`Profile::stacks`]; none if the kernel took no sample.
    pub stack: Option<usize>,
    /// The system call, if it is known.
    pub call: Option<CallIndex>,
    /// The synchronization object, if the recorded calls show it.
    pub object: Option<ObjectIndex>,
    /// The thread that ended the wait; none if an interrupt did, or if it is not known.
    pub waker: Option<Waker>,
}

/// A thread that woke another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Waker {
    /// A thread of the program.
    Thread(ThreadIndex),
    /// A thread of another process, by its id.
    Other(u64),
}

impl OffCpu {
    /// Sums the blocked intervals of all threads. `None` if the kernel did not sample threads that
    /// stop running.
    pub(in crate::model) fn of(records: &[Record], model: &Model) -> Option<OffCpu> {
        let mut off_cpu = OffCpu::default();
        let mut is_known = false;
        let span_ns = model.profile.span_ns?;
        let lives = Lives::of(model);
        // The stacks of intervals, by thread and position.
        let mut stacks: HashMap<(ThreadIndex, usize), usize> = HashMap::new();
        for record in records {
            let Record::Samples(part) = record else {
                continue;
            };
            is_known |= part.off_cpu.is_some();
            let lost = part.off_cpu.as_ref().map_or(0, |off_cpu| off_cpu.lost);
            off_cpu.lost = off_cpu.lost.saturating_add(lost);
            for sample in part.off_cpu_samples() {
                let Some(thread) = lives.at(sample.tid, sample.time_ns) else {
                    continue;
                };
                let stack = sample.stack as usize;
                let intervals = model.schedule.of_thread(thread);
                if let Some(at) = stopped(intervals, sample.time_ns)
                    && stack < model.profile.stacks.len()
                {
                    off_cpu.cut += u64::from(sample.is_cut);
                    stacks.entry((thread, at)).or_insert(stack);
                }
            }
        }
        if !is_known || !model.schedule.is_known() {
            return None;
        }
        let objects = Objects::of(model);
        let mut sums: HashMap<BlockedKey, BlockedSum> = HashMap::new();
        for index in 0..model.threads.len() {
            let thread = ThreadIndex(index);
            let intervals = model.schedule.of_thread(thread);
            for (at, interval) in intervals.iter().enumerate() {
                let ns = blocked_ns(interval, span_ns);
                if ns == 0 || model.schedule.is_mostly_halted(interval) {
                    continue;
                }
                let next = intervals.get(at + 1).map(|next| next.state);
                let waker = match next {
                    Some(RunState::Woken { waker: Some(tid) }) => {
                        Some(match lives.at(tid, interval.to_ns) {
                            Some(thread) => Waker::Thread(thread),
                            None => Waker::Other(tid),
                        })
                    }
                    _ => None,
                };
                let key = BlockedKey {
                    thread,
                    stack: stacks.get(&(thread, at)).copied(),
                    call: interval.call,
                    object: objects.within(thread, interval),
                    waker,
                };
                let sum = sums.entry(key).or_insert(BlockedSum {
                    key,
                    count: 0,
                    ns: 0,
                    longest_ns: 0,
                });
                sum.count += 1;
                sum.ns += ns;
                sum.longest_ns = sum.longest_ns.max(ns);
            }
        }
        off_cpu.sums = sums.into_values().collect();
        off_cpu
            .sums
            .sort_by_key(|sum| (std::cmp::Reverse(sum.ns), sum.key));
        Some(off_cpu)
    }

    /// The blocked time of each thread and stack. Time without a stack has the index
    /// [`Profile::no_stack`].
    pub fn stack_times(&self, profile: &Profile) -> Vec<StackTime> {
        let sums = self.sums.iter();
        sums.map(|sum| StackTime {
            thread: Some(sum.key.thread),
            stack: sum.key.stack.unwrap_or(profile.no_stack()),
            ns: sum.ns,
        })
        .collect()
    }

    /// Number and total time, in nanoseconds, of the waits that meet a condition.
    pub fn total(&self, is_counted: impl Fn(&BlockedKey) -> bool) -> (u64, u64) {
        let counted = self.sums.iter().filter(|sum| is_counted(&sum.key));
        counted.fold((0, 0), |(count, ns), sum| (count + sum.count, ns + sum.ns))
    }
}

/// The part of an interval in which its thread was blocked and samples were taken.
fn blocked_ns(interval: &Interval, (from_ns, to_ns): (u64, u64)) -> u64 {
    match interval.state {
        RunState::Blocked => {
            let to_ns = interval.to_ns.min(to_ns);
            to_ns.saturating_sub(interval.from_ns.max(from_ns))
        }
        _ => 0,
    }
}

/// The blocked interval to which the sample of a stopping thread belongs. The kernel takes the
/// sample shortly before it records the switch. `None` if the thread did not block.
fn stopped(intervals: &[Interval], ns: u64) -> Option<usize> {
    let after = intervals.partition_point(|interval| interval.from_ns <= ns);
    let at = after.checked_sub(1)?;
    let before = at.checked_sub(1).map(|before| intervals[before].state);
    let at = match (intervals[at].state, before) {
        (RunState::Running { .. }, _) => at + 1,
        // Two notices of a remote target may differ slightly in their time.
        (RunState::Woken { .. }, Some(RunState::Blocked)) => at - 1,
        _ => at,
    };
    let interval = intervals.get(at)?;
    (interval.state == RunState::Blocked).then_some(at)
}

/// The recorded waits for objects, by thread, in the order of their times.
struct Objects(HashMap<ThreadIndex, Vec<(u64, u64, ObjectIndex)>>);

impl Objects {
    fn of(model: &Model) -> Objects {
        let mut waits: HashMap<ThreadIndex, Vec<(u64, u64, ObjectIndex)>> = HashMap::new();
        for wait in model.sync.journal.iter().flat_map(|journal| &journal.waits) {
            let object = model.sync.used(wait.used).object;
            let span = (wait.from_ns, wait.to_ns, object);
            waits.entry(wait.thread).or_default().push(span);
        }
        waits.values_mut().for_each(|spans| spans.sort_unstable());
        Objects(waits)
    }

    /// The object of the wait that covers most of a blocked interval.
    fn within(&self, thread: ThreadIndex, interval: &Interval) -> Option<ObjectIndex> {
        let middle_ns = interval.from_ns + interval.length_ns() / 2;
        let spans = self.0.get(&thread)?;
        let after = spans.partition_point(|(from_ns, ..)| *from_ns <= middle_ns);
        let (_, to_ns, object) = spans.get(after.checked_sub(1)?)?;
        (middle_ns <= *to_ns).then_some(*object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(states: &[(u64, RunState)]) -> Vec<Interval> {
        let ends = states.iter().skip(1).map(|(from_ns, _)| *from_ns);
        let ends = ends.chain([1000]);
        let all = states.iter().zip(ends);
        all.map(|((from_ns, state), to_ns)| Interval {
            from_ns: *from_ns,
            to_ns,
            state: *state,
            call: None,
        })
        .collect()
    }

    #[test]
    fn samples_belong_to_the_next_block() {
        let running = RunState::Running { cpu: 0 };
        let woken = RunState::Woken { waker: None };
        let all = intervals(&[
            (0, running),
            (100, RunState::Blocked),
            (200, woken),
            (210, running),
            (300, RunState::Preempted),
            (310, running),
        ]);
        // While it still runs, at the switch, and after it by a clock that is slightly ahead.
        for ns in [99, 100, 101, 205] {
            assert_eq!(stopped(&all, ns), Some(1), "{ns}");
        }
        for ns in [299, 305, 500] {
            assert_eq!(stopped(&all, ns), None, "{ns}");
        }
        assert_eq!(stopped(&[], 5), None);
    }
}
