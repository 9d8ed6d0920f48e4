//! Counts the running and the waiting threads over the time of a recording.

use std::collections::{BTreeMap, HashMap};

use super::objects::{Object, ObjectIndex, Use, Waiting};
use super::processors::{Processors, Turn};
use super::slots::Slots;
use crate::model::Model;

/// Average numbers of threads per activity in a slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// When it begins.
    pub from_ns: u64,
    /// When it ends.
    pub to_ns: u64,
    /// Threads that did not wait in a recorded call.
    pub running: f64,
    /// Of these, threads on a processor and threads runnable, by the kernel's account, if known.
    pub turns: Option<(f64, f64)>,
    /// Threads that waited for an object another thread held.
    pub held: f64,
    /// Threads that waited for other threads to arrive or to finish.
    pub others: f64,
    /// Threads that waited for work.
    pub idle: f64,
    /// The object with the longest waits in the slice; waits for work do not count.
    pub limit: Option<ObjectIndex>,
}

/// The level of concurrency.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Concurrency {
    /// The slices, in order of time and of equal length.
    pub slices: Vec<Slice>,
    /// Nanoseconds by the number of threads that ran, rounded to whole threads.
    pub levels: BTreeMap<usize, u64>,
    /// Threads that did not wait in a recorded call, on average.
    pub running: f64,
    /// Of these, threads on a processor and threads runnable, if known.
    pub turns: Option<(f64, f64)>,
    /// Objects by total waiting time, longest first; waits for work do not count.
    pub limits: Vec<(ObjectIndex, u64)>,
}

pub(super) fn of(
    model: &Model,
    slots: &Slots,
    processors: &Processors,
    objects: &[Object],
    uses: &[Use],
) -> Concurrency {
    let window = slots.window;
    let mut alive = vec![0_u64; window.columns];
    for thread in &model.threads {
        let Some((from, to)) = model.life(thread) else {
            continue;
        };
        for column in window.columns_of(from, to).into_iter().flatten() {
            let begin = window.column_ns(column).max(from);
            let end = window.column_ns(column + 1).min(to);
            if let Some(alive) = alive.get_mut(column) {
                *alive += end.saturating_sub(begin);
            }
        }
    }
    let mut level = Concurrency::default();
    let mut limits: HashMap<ObjectIndex, u64> = HashMap::new();
    let mut ran = 0.0;
    let (mut lived, mut all) = (0, Turn::default());
    for (column, alive) in alive.iter().enumerate() {
        let (from_ns, to_ns) = (window.column_ns(column), window.column_ns(column + 1));
        let length = to_ns.saturating_sub(from_ns).max(1) as f64;
        let mut sums = [0_u64; 3];
        let mut here: BTreeMap<ObjectIndex, u64> = BTreeMap::new();
        for (used, ns) in slots.waits.get(column).into_iter().flatten() {
            let Some(used) = uses.get(used.0) else {
                continue;
            };
            sums[used.waiting as usize] += ns;
            if used.waiting != Waiting::Idle {
                *here.entry(used.object).or_default() += ns;
                *limits.entry(used.object).or_default() += ns;
            }
        }
        let waited: u64 = sums.iter().sum();
        let running = alive.saturating_sub(waited) as f64 / length;
        ran += running * length;
        let turn = processors.slices.get(column).copied().unwrap_or_default();
        lived += alive;
        all.add(turn);
        let turns = turn
            .of(*alive)
            .map(|(on, ready)| (on / length, ready / length));
        level.slices.push(Slice {
            from_ns,
            to_ns,
            running,
            turns,
            held: sums[Waiting::Held as usize] as f64 / length,
            others: sums[Waiting::Others as usize] as f64 / length,
            idle: sums[Waiting::Idle as usize] as f64 / length,
            limit: here
                .iter()
                .filter(|(object, _)| objects.len() > object.0)
                .max_by_key(|(_, ns)| **ns)
                .map(|(object, _)| *object),
        });
        let ran = turns.map_or(running, |(on, _)| on);
        *level.levels.entry(ran.round() as usize).or_default() += length as u64;
    }
    let length = window.length_ns() as f64;
    level.running = ran / length;
    level.turns = all
        .of(lived)
        .map(|(on, ready)| (on / length, ready / length));
    level.limits = limits.into_iter().collect();
    level
        .limits
        .sort_by_key(|(object, ns)| (std::cmp::Reverse(*ns), *object));
    level
}
