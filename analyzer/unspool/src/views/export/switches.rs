//! What the processors ran, as the kernel's events: switches from thread to thread, and wake-ups.
//!
//! Separate because several formats have these events. Other programs and idle time are one more
//! thread.

use std::collections::BTreeMap;

use super::tracks::Tracks;
use crate::model::schedule::{Interval, RunState};
use crate::model::{Model, ThreadIndex};

/// The name of everything on the processors that is neither the program nor started by it.
pub(super) const OTHER: &str = "other programs or idle";

/// States of a thread that leaves a processor, as `sched_switch` has them (include/linux/sched.h).
const STILL_RUNNABLE: u64 = 0;
const BLOCKED: u64 = 1;
const ENDED: u64 = 16;

/// A processor begins to run another thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Switch {
    pub(super) ns: u64,
    /// The id of the thread that leaves the processor, and its state.
    pub(super) from: (u64, u64),
    pub(super) to: u64,
}

/// A thread becomes runnable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) ns: u64,
    /// The waker's id; 0 for an interrupt.
    pub(super) waker: u64,
    pub(super) id: u64,
    /// The processor that runs the thread next, if any does.
    pub(super) cpu: Option<u32>,
}

/// The switches of each processor in order, and all wake-ups, by thread.
pub(super) fn of(model: &Model, tracks: &Tracks) -> (BTreeMap<u32, Vec<Switch>>, Vec<Wake>) {
    let mut turns: BTreeMap<u32, Vec<Turn>> = BTreeMap::new();
    let mut wakes = Vec::new();
    for (index, (thread, track)) in model.any_threads().zip(&tracks.threads).enumerate() {
        let intervals = model.intervals(ThreadIndex(index));
        let (id, has_ended) = (track.id, thread.ended_ns.is_some());
        for (at, interval) in intervals.iter().enumerate() {
            let next = intervals.get(at + 1);
            match interval.state {
                RunState::Running { cpu } => turns.entry(cpu).or_default().push(Turn {
                    from_ns: interval.from_ns,
                    to_ns: interval.to_ns,
                    id,
                    leaves: leaves(interval, next, has_ended),
                }),
                RunState::Woken { waker } => wakes.push(Wake {
                    ns: interval.from_ns,
                    waker: waker.map_or(0, |tid| tracks.id_at(tid, interval.from_ns)),
                    id,
                    cpu: next.and_then(|next| match next.state {
                        RunState::Running { cpu } => Some(cpu),
                        _ => None,
                    }),
                }),
                _ => {}
            }
        }
    }
    let processors = turns.into_iter().map(|(cpu, mut turns)| {
        turns.sort_unstable_by_key(|turn| turn.from_ns);
        (cpu, switches(&turns, tracks.other))
    });
    (processors.collect(), wakes)
}

/// A thread's time on a processor.
struct Turn {
    from_ns: u64,
    to_ns: u64,
    id: u64,
    /// Its state afterwards.
    leaves: u64,
}

fn switches(turns: &[Turn], other: u64) -> Vec<Switch> {
    let mut switches = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| turns.get(before));
        if before.is_none_or(|before| before.to_ns < turn.from_ns) {
            switches.push(Switch {
                ns: turn.from_ns,
                from: (other, BLOCKED),
                to: turn.id,
            });
        }
        let next = turns.get(at + 1).filter(|next| next.from_ns <= turn.to_ns);
        switches.push(Switch {
            ns: turn.to_ns,
            from: (turn.id, turn.leaves),
            to: next.map_or(other, |next| next.id),
        });
    }
    switches
}

/// The state in which a thread leaves its processor.
fn leaves(turn: &Interval, next: Option<&Interval>, has_ended: bool) -> u64 {
    match next
        .filter(|next| next.from_ns == turn.to_ns)
        .map(|next| next.state)
    {
        Some(RunState::Preempted) => STILL_RUNNABLE,
        Some(_) => BLOCKED,
        None if has_ended => ENDED,
        None => STILL_RUNNABLE,
    }
}
