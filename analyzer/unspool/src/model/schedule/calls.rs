//! The system calls in which threads were blocked.

use std::collections::{BTreeMap, HashMap};

use unspool_capture::{BlockingCall, Schedule as Part, ScheduleEntry, ScheduleKind};
use unspool_image::Arch;

use super::futex_places::{FutexWait, PlacedWait};
use super::{Interval, RunState, Schedule};
use crate::platform::syscall::Call;

/// Position of a call in [`Schedule::calls`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallIndex(pub u32);

/// A system call in which threads were blocked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockedCall {
    /// Its name in the kernel's tables.
    pub name: &'static str,
    /// The file of its descriptor, as `/proc` names it; empty if there is none, or if it is not
    /// known.
    pub file: String,
    /// It waits at a futex, so that recorded calls may name the object.
    pub is_futex: bool,
    /// The object, if the place of the futex call shows it.
    pub waits_for: Option<FutexWait>,
}

/// Time that a thread was blocked in one system call, or for a reason that was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTime {
    /// The call. `None` for the times without a known call: page faults, short stops at
    /// probes, calls whose number is not known, and the end of a thread.
    pub call: Option<CallIndex>,
    /// How often it was blocked.
    pub count: u64,
    /// The sum, in nanoseconds.
    pub blocked_ns: u64,
    /// The longest time, in nanoseconds.
    pub longest_ns: u64,
}

/// The calls that create a thread or a process, and do not wait for it.
const CREATIONS: [&str; 3] = ["clone", "clone3", "fork"];

/// The calls that end a thread or the program.
const EXITS: [&str; 2] = ["exit", "exit_group"];

impl BlockedCall {
    /// True if only a recorded call could tell what the thread waits for.
    pub fn is_unnamed_futex(&self) -> bool {
        self.is_futex && self.waits_for.is_none()
    }
}

impl Schedule {
    /// Adds the calls of a part of the recording.
    pub(super) fn add_calls(
        &mut self,
        part: &Part,
        arch: Option<Arch>,
        (places, known): (
            &HashMap<u64, PlacedWait>,
            &mut HashMap<BlockedCall, CallIndex>,
        ),
    ) {
        for call in &part.calls {
            let place = places.get(&call.id);
            let index = self.add(call, place, arch, known);
            if let Some((index, place)) = index.zip(place) {
                let known = self.places.entry(index).or_insert_with(|| place.at.clone());
                if known.address != place.at.address {
                    known.address = 0;
                }
                if known.caller.is_none() {
                    known.caller.clone_from(&place.at.caller);
                }
            }
            self.call_of_id.insert(call.id, index);
        }
    }

    /// The call in which an entry's thread is blocked.
    pub(super) fn call_of(&self, entry: ScheduleEntry) -> Option<CallIndex> {
        match entry.kind {
            ScheduleKind::Blocks | ScheduleKind::CallKnown => {
                *self.call_of_id.get(&entry.detail)?
            }
            _ => None,
        }
    }

    /// Returns the index of a system call. Adds the call unless reports show an earlier one in the
    /// same words.
    fn add(
        &mut self,
        call: &BlockingCall,
        place: Option<&PlacedWait>,
        arch: Option<Arch>,
        known: &mut HashMap<BlockedCall, CallIndex>,
    ) -> Option<CallIndex> {
        let (number, arch) = call.number.zip(arch)?;
        let asked = Call::with_first(number, &call.args);
        // `anon_inode:[eventpoll]` says no more than `epoll_wait`.
        let file = Some(&call.file).filter(|file| !file.starts_with("anon_inode:"));
        let blocked = BlockedCall {
            name: asked.name(arch)?,
            file: file.cloned().unwrap_or_default(),
            is_futex: asked.futex(arch).is_some(),
            waits_for: place.map(|place| place.wait.clone()),
        };
        // The end of a thread is not a wait in a call.
        if EXITS.contains(&blocked.name) {
            return None;
        }
        if let Some(index) = known.get(&blocked) {
            return Some(*index);
        }
        let index = CallIndex(u32::try_from(self.calls.len()).ok()?);
        known.insert(blocked.clone(), index);
        self.calls.push(blocked);
        Some(index)
    }

    /// The index of a system call of another recording, which may be new.
    pub(in crate::model) fn index_of(&mut self, call: &BlockedCall) -> CallIndex {
        let known = self.calls.iter().position(|other| other == call);
        let index = known.unwrap_or(self.calls.len());
        if known.is_none() {
            self.calls.push(call.clone());
        }
        CallIndex(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// True if these are the same call, whose file may be unknown once: a recorder that has just
    /// detached could not name it.
    pub(in crate::model) fn may_be_same(&self, one: CallIndex, other: CallIndex) -> bool {
        let calls = self.call(one).zip(self.call(other));
        let is_one_unnamed = |(one, other): (&BlockedCall, &BlockedCall)| {
            let unnamed = one.file.is_empty() || other.file.is_empty();
            one.name == other.name && !one.is_futex && unnamed
        };
        one == other || calls.is_some_and(is_one_unnamed)
    }

    /// A system call.
    pub fn call(&self, call: CallIndex) -> Option<&BlockedCall> {
        self.calls.get(call.0 as usize)
    }

    /// The system calls in which a thread with these intervals was blocked, the longest sum first,
    /// and then its other blocked times. Empty if the recording has no calls.
    pub fn call_times(&self, intervals: &[Interval]) -> Vec<CallTime> {
        let mut times: BTreeMap<Option<CallIndex>, CallTime> = BTreeMap::new();
        let mut call_ns = 0;
        let blocked = intervals
            .iter()
            .filter(|one| one.state == RunState::Blocked);
        for interval in blocked.filter(|_| !self.calls.is_empty()) {
            let call = interval.call;
            // A call may continue after a time without a known call.
            let length_ns = match (call, interval.continues) {
                (None, _) => interval.length_ns(),
                (Some(_), continues) => {
                    call_ns = if continues { call_ns } else { 0 } + interval.length_ns();
                    call_ns
                }
            };
            let time = times.entry(call).or_insert(CallTime {
                call,
                count: 0,
                blocked_ns: 0,
                longest_ns: 0,
            });
            time.count += u64::from(!interval.continues);
            time.blocked_ns += interval.length_ns();
            time.longest_ns = time.longest_ns.max(length_ns);
        }
        let mut times: Vec<CallTime> = times.into_values().collect();
        times.sort_by_key(|time| (time.call.is_none(), std::cmp::Reverse(time.blocked_ns)));
        times
    }
}

/// The system call that blocked a thread with these intervals for the longest time within a span.
/// `None` if the calls of more than half of the blocked time are unknown.
pub fn call_within(intervals: &[Interval], from_ns: u64, to_ns: u64) -> Option<CallIndex> {
    let mut times: Vec<(CallIndex, u64)> = Vec::new();
    let (mut known_ns, mut unknown_ns) = (0, 0);
    for (call, ns) in blocked_within(intervals, from_ns, to_ns) {
        let Some(call) = call else {
            unknown_ns += ns;
            continue;
        };
        known_ns += ns;
        add_time(&mut times, call, ns);
    }
    let (call, _) = times.into_iter().max_by_key(|(_, ns)| *ns)?;
    (known_ns >= unknown_ns).then_some(call)
}

/// The times within a span for which a thread with these intervals was blocked, and in which calls.
pub fn blocked_within(
    intervals: &[Interval],
    from_ns: u64,
    to_ns: u64,
) -> impl Iterator<Item = (Option<CallIndex>, u64)> + '_ {
    let first = intervals.partition_point(|interval| interval.to_ns <= from_ns);
    let within = intervals[first..].iter();
    within
        .take_while(move |interval| interval.from_ns < to_ns)
        .filter(|interval| interval.state == RunState::Blocked)
        .map(move |interval| {
            let ns = interval.to_ns.min(to_ns) - interval.from_ns.max(from_ns);
            (interval.call, ns)
        })
}

/// Adds a time in a call to the sums by call.
pub fn add_time(times: &mut Vec<(CallIndex, u64)>, call: CallIndex, ns: u64) {
    match times.iter_mut().find(|(known, _)| *known == call) {
        Some((_, sum)) => *sum = sum.saturating_add(ns),
        None => times.push((call, ns)),
    }
}

/// Time within a span for which the recorder had stopped a thread with these intervals.
pub fn stopped_within(intervals: &[Interval], from_ns: u64, to_ns: u64) -> u64 {
    let first = intervals.partition_point(|interval| interval.to_ns <= from_ns);
    let within = intervals[first..].iter();
    within
        .take_while(|interval| interval.from_ns < to_ns)
        .filter(|interval| interval.state == RunState::Stopped)
        .map(|interval| interval.to_ns.min(to_ns) - interval.from_ns.max(from_ns))
        .sum()
}

/// Marks blocks that continue the one before them: in the same system call, and after wake-ups by
/// the recorder alone. Each stop by the recorder takes a thread out of its call, and the kernel
/// then repeats the call.
pub(super) fn join_blocks(intervals: &mut [Interval], recorder: u64) {
    // The call of the last block, and whether the recorder has woken the thread since. Wake-ups by
    // an interrupt may be missing.
    let (mut before, mut is_woken) = (None, false);
    for interval in intervals {
        match interval.state {
            RunState::Blocked => {
                let last = before.filter(|_| is_woken);
                interval.continues = interval.call.is_some() && interval.call == last;
                // A stop of which the call is not known.
                (before, is_woken) = (interval.call.or(last), false);
            }
            RunState::Woken { waker } => is_woken = waker == Some(recorder),
            RunState::Unknown => is_woken = false,
            RunState::Running { .. } | RunState::Preempted | RunState::Stopped => {}
        }
    }
}

/// Marks blocked intervals that are mostly halts of the program as stops. They get no calls,
/// because the recorder makes its own system calls in a halted program.
pub(super) fn mark_stops(intervals: &mut [Interval], halts: &[(u64, u64)]) {
    let mut past = 0;
    for interval in intervals {
        while halts
            .get(past)
            .is_some_and(|(_, to_ns)| *to_ns <= interval.from_ns)
        {
            past += 1;
        }
        let halted_ns = halted_ns(interval, &halts[past..]);
        if interval.state == RunState::Blocked && halted_ns > interval.length_ns() / 2 {
            interval.state = RunState::Stopped;
            interval.call = None;
        }
    }
}

/// Marks blocked intervals in which a thread created another one, or was created, as stops: there,
/// only the recorder blocks it.
pub(super) fn mark_creation_stops(
    intervals: &mut [Interval],
    recorder: u64,
    calls: &[BlockedCall],
) {
    let is_creation = |call: CallIndex| {
        let name = calls.get(call.0 as usize).map(|call| call.name);
        name.is_some_and(|name| CREATIONS.contains(&name))
    };
    for at in 0..intervals.len() {
        let next = intervals.get(at + 1).map(|next| next.state);
        let waker = Some(recorder);
        let interval = &mut intervals[at];
        if interval.state == RunState::Blocked
            && next == Some(RunState::Woken { waker })
            && interval.call.is_some_and(is_creation)
        {
            interval.state = RunState::Stopped;
            interval.call = None;
        }
    }
}

/// The part of an interval in which the program was halted. `halts` begin with the first one that
/// ends in the interval or later.
fn halted_ns(interval: &Interval, halts: &[(u64, u64)]) -> u64 {
    let within = halts.iter();
    within
        .take_while(|(from_ns, _)| *from_ns < interval.to_ns)
        .map(|(from_ns, to_ns)| {
            let to_ns = interval.to_ns.min(*to_ns);
            to_ns.saturating_sub(interval.from_ns.max(*from_ns))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_recorder_blocks_a_creation() {
        let (recorder, other) = (7, 8);
        let called = |name| BlockedCall {
            name,
            file: String::new(),
            is_futex: false,
            waits_for: None,
        };
        let states = |call, waker| {
            let interval = |from_ns, state, call| Interval {
                from_ns,
                to_ns: from_ns + 10,
                state,
                call,
                continues: false,
            };
            let waker = Some(waker);
            let mut intervals = [
                interval(0, RunState::Blocked, Some(CallIndex(call))),
                interval(10, RunState::Woken { waker }, None),
            ];
            let calls = [called("clone3"), called("read")];
            mark_creation_stops(&mut intervals, recorder, &calls);
            intervals[0].state
        };
        assert_eq!(states(0, recorder), RunState::Stopped);
        assert_eq!(states(0, other), RunState::Blocked);
        assert_eq!(states(1, recorder), RunState::Blocked);
    }
}
