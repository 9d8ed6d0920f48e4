//! Divides a recording into epochs in which no address changes its module.
//!
//! A module may be noticed only after its code ran, so it counts from the beginning of its epoch. A
//! new epoch begins only where a module is unmapped or replaced.
//!
//! A module between another's segments replaces nothing. With 64 KiB pages, as on AArch64, the
//! kernel leaves a gap there that has room for its vDSO.

use std::collections::{BTreeSet, HashMap};

use unspool_capture::{ModuleLoaded, Record};
use unspool_unwind::ModuleMap;

/// A span of records, from `first` to the next epoch's.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    pub(super) first: usize,
    /// Start, end and load number (counted over the capture's `ModuleLoaded` records), sorted,
    /// without overlap.
    ranges: Vec<(u64, u64, usize)>,
    /// Loads whose addresses are unknown without their file.
    pub(super) unplaced: Vec<usize>,
    /// Loads that were added to the map, or tried.
    pub(super) mapped: BTreeSet<usize>,
    pub(super) map: Option<ModuleMap>,
}

impl Epoch {
    /// True if every load that could be added was tried.
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

/// Divides a capture's records into epochs, at least one. `others` says that events may be missing
/// between any two records.
pub(super) fn divide(records: &[Record], others: bool) -> Vec<Epoch> {
    let mut epochs = Vec::new();
    let mut active: Vec<(usize, &ModuleLoaded)> = Vec::new();
    let mut ids: HashMap<u32, usize> = HashMap::new();
    let mut first = 0;
    let mut load = 0;
    // No snapshot lies between an unload and the next snapshot, so one epoch covers a burst of
    // changes.
    let mut used = others;
    for (at, record) in records.iter().enumerate() {
        match record {
            Record::ModuleLoaded(module) => {
                let covers = |other: &&ModuleLoaded| {
                    let between = other.start < module.start && module.end < other.end;
                    module.start < other.end && other.start < module.end && !between
                };
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
            Record::Samples(samples) => used |= !samples.new_stacks.is_empty(),
            _ => {}
        }
    }
    epochs.push(epoch(first, &active));
    epochs
}

/// An epoch with these modules.
pub(super) fn epoch(first: usize, active: &[(usize, &ModuleLoaded)]) -> Epoch {
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
        ranges: pieces(&ranges),
        unplaced: unplaced.iter().map(|(load, _)| *load).collect(),
        ..Epoch::default()
    }
}

/// Splits nested ranges into pieces, so that an inner range is cut out of its outer one.
fn pieces(ranges: &[(u64, u64, usize)]) -> Vec<(u64, u64, usize)> {
    let mut pieces = Vec::new();
    let mut add = |start: u64, end: u64, load: usize| {
        if start < end {
            pieces.push((start, end, load));
        }
    };
    // Open ranges, and the start of the last one's unassigned part.
    let mut open: Vec<(u64, usize)> = Vec::new();
    let mut at = 0;
    for &(start, end, load) in ranges {
        while let Some((ended, outer)) = open.pop_if(|(end, _)| *end <= start) {
            add(at, ended, outer);
            at = ended;
        }
        if let Some((_, outer)) = open.last() {
            add(at, start, *outer);
        }
        at = start;
        open.push((end, load));
    }
    while let Some((end, load)) = open.pop() {
        add(at, end, load);
        at = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(id: u32, start: u64, end: u64) -> Record {
        Record::ModuleLoaded(ModuleLoaded {
            id,
            start,
            end,
            ..ModuleLoaded::default()
        })
    }

    fn owners(records: &[Record], addresses: &[u64]) -> Vec<Option<usize>> {
        let epochs = divide(records, false);
        let last = epochs.last().expect("an epoch");
        addresses.iter().map(|at| last.owner(*at)).collect()
    }

    #[test]
    fn a_module_in_a_gap_of_another_replaces_nothing() {
        let library = loaded(1, 0x10_0000, 0x1c_0000);
        let vdso = loaded(2, 0x1b_b000, 0x1b_c000);
        let next = loaded(3, 0x1c_0000, 0x1d_0000);
        let addresses = [
            0xf_ffff, 0x10_0000, 0x1b_afff, 0x1b_b000, 0x1b_c000, 0x1b_ffff,
        ];
        let expected = [None, Some(0), Some(0), Some(1), Some(0), Some(0)];
        let records = [library, vdso, next];
        assert_eq!(owners(&records, &addresses), expected);
        assert_eq!(owners(&records, &[0x1c_0000, 0x1d_0000]), [Some(2), None]);
    }

    #[test]
    fn a_module_at_the_place_of_another_replaces_it() {
        let records = [
            loaded(1, 0x10_0000, 0x1c_0000),
            loaded(2, 0x18_0000, 0x1d_0000),
        ];
        let addresses = [0x10_0000, 0x18_0000];
        assert_eq!(owners(&records, &addresses), [None, Some(1)]);
    }
}
