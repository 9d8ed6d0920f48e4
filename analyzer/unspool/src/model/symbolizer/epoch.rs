//! What was mapped when: stretches of a recording in which no address changes its owner.
//!
//! A module may be noticed only after code of it ran, so within an epoch it counts from the
//! epoch's beginning; a new epoch begins only where a module goes away or another takes its place.

use std::collections::{BTreeSet, HashMap};

use unspool_capture::{ModuleLoaded, Record};
use unspool_unwind::ModuleMap;

/// A stretch of records, from `first` to the next epoch's.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) first: usize,
    /// Start, end and load (counted over the capture's `ModuleLoaded` records), sorted.
    ranges: Vec<(u64, u64, usize)>,
    /// Loads whose addresses are not known without their file.
    pub(super) unplaced: Vec<usize>,
    /// Loads that were put into the map, or tried.
    pub(super) mapped: BTreeSet<usize>,
    pub(super) map: Option<ModuleMap>,
}

impl Epoch {
    /// Whether all that could be put into the map was tried.
    pub(super) fn is_mapped(&self) -> bool {
        let loads = self.ranges.iter().map(|(.., load)| load);
        loads
            .chain(&self.unplaced)
            .all(|load| self.mapped.contains(load))
    }

    /// The load that an address belongs to.
    pub(super) fn owner(&self, avma: u64) -> Option<usize> {
        let after = self.ranges.partition_point(|(start, ..)| *start <= avma);
        let (_, end, load) = self.ranges.get(after.checked_sub(1)?)?;
        (avma < *end).then_some(*load)
    }
}

/// Divides a capture's records into epochs; there is always one. `others`: between any two there may be events that are not here.
pub(super) fn divide(records: &[Record], others: bool) -> Vec<Epoch> {
    let mut epochs = Vec::new();
    let mut active: Vec<(usize, &ModuleLoaded)> = Vec::new();
    let mut ids: HashMap<u32, usize> = HashMap::new();
    let mut first = 0;
    let mut load = 0;
    // Nothing is learned between an unload and the next snapshot: one epoch is enough for a burst.
    let mut used = others;
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::ModuleLoaded(module) => {
                let covers =
                    |other: &&ModuleLoaded| module.start < other.end && other.start < module.end;
                let displaced = active.iter().any(|(_, other)| covers(other));
                if displaced && used {
                    epochs.push(epoch(first, &active));
                    (first, used) = (at, others);
                }
                active.retain(|(_, other)| !covers(other));
                active.push((load, module));
                ids.insert(module.id, load);
                load += 1;
            }
            Record::ModuleUnloaded(unloaded) => {
                let gone = ids.remove(&unloaded.id);
                if gone.is_some_and(|gone| active.iter().any(|(load, _)| *load == gone)) {
                    if used {
                        epochs.push(epoch(first, &active));
                        (first, used) = (at, others);
                    }
                    active.retain(|(load, _)| Some(*load) != gone);
                }
            }
            Record::Event(_) => used = true,
            _ => {}
        }
    }
    epochs.push(epoch(first, &active));
    epochs
}

fn epoch(first: usize, active: &[(usize, &ModuleLoaded)]) -> Epoch {
    let (placed, unplaced): (Vec<_>, Vec<_>) = active
        .iter()
        .partition(|(_, module)| module.start < module.end);
    let mut ranges: Vec<(u64, u64, usize)> = placed
        .iter()
        .map(|(load, module)| (module.start, module.end, *load))
        .collect();
    ranges.sort_unstable();
    Epoch {
        first,
        ranges,
        unplaced: unplaced.iter().map(|(load, _)| *load).collect(),
        ..Epoch::default()
    }
}
