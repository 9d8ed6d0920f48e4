//! Where instructions are executed whose places are taken by traps.
//!
//! A slot belongs to a trap, not to a thread: it is code like any other, and any number of threads may be
//! in it. It holds one instruction and the jump to the next, so a thread in it either has executed the instruction
//! or has not; [`left`](Slots::left) says where it would be without us. What is
//! in a slot is never changed while anybody might be in it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::arch;
use crate::sys::Tid;
use crate::sys::memory::Memory;

use super::caves;
use super::patch::Patch;

/// Room for the longest instruction and the longest way back.
const SIZE: u64 = 32;

/// All slots of one memory.
#[derive(Default)]
pub(crate) struct Slots {
    /// Unused room, and up to where it is taken.
    caves: Vec<(Range<u64>, u64)>,
    /// By address.
    slots: BTreeMap<u64, Slot>,
    /// The slot of each trap; `None`: its instruction can have none.
    of_traps: HashMap<u64, Option<u64>>,
}

struct Slot {
    patch: Patch,
    /// Where the instruction stands.
    at: u64,
    length: usize,
    /// The instruction this is made of, with what follows.
    source: Vec<u8>,
}

/// Where a thread in a slot would be without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Before the instruction at this address.
    Before(u64),
    /// At this address, the instruction being executed.
    Behind(u64),
}

impl Slots {
    /// The slot for the instruction `code` at `at`, under a trap of this kind. `None`: it must be executed in its
    /// place, or there is no room.
    pub(crate) fn slot(
        &mut self,
        process: Tid,
        memory: &Memory,
        at: u64,
        kind: usize,
        code: &[u8],
    ) -> Option<u64> {
        match self.of_traps.get(&at) {
            None => {}
            Some(None) => return None,
            Some(Some(slot)) if self.slots.get(slot).is_some_and(|s| s.source == code) => {
                return Some(*slot);
            }
            // The program has changed its code; somebody may still be in the old slot.
            Some(Some(_)) => {}
        }
        let made = self.make(process, memory, at, kind, code);
        self.of_traps.insert(at, made);
        made
    }

    fn make(
        &mut self,
        process: Tid,
        memory: &Memory,
        at: u64,
        kind: usize,
        code: &[u8],
    ) -> Option<u64> {
        // Whether there is any use in looking for room.
        arch::displace(code, at, at & !15, kind)?;
        let slot = self.room(at).or_else(|| {
            self.look_for_caves(process, memory);
            self.room(at)
        })?;
        let displaced = arch::displace(code, at, slot, kind)?;
        let patch = Patch::place(memory, slot, displaced.code).ok()?;
        self.take_room(slot);
        let slot_of = Slot {
            patch,
            at,
            length: displaced.length,
            source: code.to_vec(),
        };
        self.slots.insert(slot, slot_of);
        Some(slot)
    }

    /// The nearest room within reach.
    fn room(&self, at: u64) -> Option<u64> {
        let free = self
            .caves
            .iter()
            .filter(|(cave, taken)| cave.end - taken >= SIZE)
            .map(|(_, taken)| *taken);
        free.filter(|slot| slot.abs_diff(at) < arch::SLOT_REACH)
            .min_by_key(|slot| slot.abs_diff(at))
    }

    fn take_room(&mut self, slot: u64) {
        for (cave, taken) in &mut self.caves {
            if cave.contains(&slot) {
                *taken = slot + SIZE;
            }
        }
    }

    fn look_for_caves(&mut self, process: Tid, memory: &Memory) {
        for cave in caves::find(process, memory) {
            let start = cave.start.next_multiple_of(SIZE);
            let known = self.caves.iter().any(|(known, _)| known.end == cave.end);
            if !known && start + SIZE <= cave.end {
                self.caves.push((start..cave.end, start));
            }
        }
    }

    /// Whether a thread with this program counter is in a slot, and where it would be.
    pub(crate) fn left(&self, pc: u64) -> Option<Left> {
        let (start, slot) = self.slots.range(..=pc).next_back()?;
        if pc == *start {
            return Some(Left::Before(slot.at));
        }
        (pc < start + SIZE).then(|| Left::Behind(slot.at.wrapping_add(slot.length as u64)))
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All patches.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        self.slots.iter().map(|(start, slot)| (*start, &slot.patch))
    }

    /// Shows the program's bytes in `bytes`, read from `address`.
    pub(crate) fn hide(&self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        for (start, slot) in self.slots.range(address.saturating_sub(SIZE)..end) {
            slot.patch.hide(*start, address, bytes);
        }
    }

    /// Takes what a client is about to write as the program's bytes. Nobody is in a slot.
    pub(crate) fn absorb(&mut self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        for (start, slot) in self.slots.range_mut(address.saturating_sub(SIZE)..end) {
            slot.patch.absorb(*start, address, bytes);
        }
        // What could not be displaced is other code now, perhaps.
        self.of_traps.retain(|_, slot| slot.is_some());
    }

    /// Restores everything. Nobody is in a slot.
    pub(crate) fn remove_all(&mut self, memory: &Memory) {
        for (start, slot) in &self.slots {
            slot.patch.lift(memory, *start);
        }
        self.forget();
    }

    /// Forgets everything: the memory it was in is gone.
    pub(crate) fn forget(&mut self) {
        *self = Slots::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_in_a_slot_are_before_or_behind() {
        let slot = Slot {
            patch: Patch::over(&[0; 8], &[1; 8]),
            at: 0x1000,
            length: 4,
            source: Vec::new(),
        };
        let slots = Slots {
            slots: BTreeMap::from([(0x2000, slot)]),
            ..Slots::default()
        };
        assert_eq!(slots.left(0x2000), Some(Left::Before(0x1000)));
        assert_eq!(slots.left(0x2004), Some(Left::Behind(0x1004)));
        assert_eq!(slots.left(0x1fff), None);
        assert_eq!(slots.left(0x2020), None);
        let mut bytes = [1; 4];
        slots.hide(0x2006, &mut bytes);
        assert_eq!(bytes, [0, 0, 1, 1]);
    }
}
