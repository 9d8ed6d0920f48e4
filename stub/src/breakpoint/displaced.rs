//! Slots: copies of the instructions under traps, which threads execute instead of the originals.
//!
//! A slot belongs to a trap, not to a thread. It is ordinary code, and any number of threads may be
//! in it. It holds one instruction and a jump to the next. A thread in a slot either has executed
//! the instruction or has not; [`left`](DisplacedInstructions::left) computes the address that the
//! thread would have without the slot. The contents of a slot never change while a thread may be in
//! it.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::arch;
use crate::sys::memory::Memory;
use crate::sys::{Tid, maps};

use super::code_caves;
use super::patch::Patch;

/// Size of a slot, in bytes: the longest instruction and the longest jump back.
const SIZE: u64 = 32;

/// All slots of one memory.
#[derive(Default)]
pub(crate) struct DisplacedInstructions {
    /// Unused ranges, and the end of the used part of each.
    caves: Vec<(Range<u64>, u64)>,
    /// Hash of the mappings at the time of the search for unused ranges.
    mapped: Option<u64>,
    /// Slots by their address.
    slots: BTreeMap<u64, Slot>,
    /// The slot of each trap; `None` if its instruction cannot have one.
    of_traps: HashMap<u64, Option<u64>>,
}

struct Slot {
    patch: Patch,
    /// Address of the original instruction.
    at: u64,
    length: usize,
    /// The original instruction, with the bytes after it.
    source: Vec<u8>,
}

impl Slot {
    /// The position of a thread at this offset in the slot.
    fn left(&self, offset: u64) -> Option<SlotExit> {
        match offset {
            0 => Some(SlotExit::Before(self.at)),
            1..SIZE => Some(SlotExit::After(self.at.wrapping_add(self.length as u64))),
            _ => None,
        }
    }
}

/// The address that a thread in a slot would have without the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotExit {
    /// Before the instruction at this address.
    Before(u64),
    /// At this address, after the instruction.
    After(u64),
}

impl DisplacedInstructions {
    /// The slot for the instruction `code` at `at`, under a trap of this kind. `None` if the
    /// instruction must be executed at its address, or if no space is left.
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
            Some(Some(start)) => {
                let slot = self.slots.get(start);
                let stands = slot.is_some_and(|slot| slot.patch.stands(memory, *start));
                if stands && slot.is_some_and(|slot| slot.source == code) {
                    return Some(*start);
                }
                // The slot has been unmapped; or the program has changed its code, in which case a
                // thread may still be in the old slot.
                if !stands {
                    self.slots.remove(start);
                }
            }
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
        // Do not search for space if the instruction cannot be displaced.
        arch::displace(code, at, at & !15, kind)?;
        self.look_for_caves(&maps::read(process), memory);
        let slot = self.room(at)?;
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

    /// The start of an unused range of this size, for temporary use.
    pub(crate) fn spare(&mut self, process: Tid, memory: &Memory, size: u64) -> Option<u64> {
        self.look_for_caves(&maps::read(process), memory);
        let free = |(cave, taken): &&(Range<u64>, u64)| cave.end - taken >= size;
        self.caves.iter().find(free).map(|(_, taken)| *taken)
    }

    /// Reserves a permanent slot in the range `text` for another use. `maps` lists the mappings.
    pub(crate) fn lend(&mut self, maps: &str, memory: &Memory, text: &Range<u64>) -> Option<u64> {
        self.look_for_caves(maps, memory);
        let mut free = self.caves.iter();
        let (_, room) =
            *free.find(|(cave, taken)| cave.end - taken >= SIZE && text.contains(taken))?;
        self.take_room(room);
        Some(room)
    }

    /// The nearest unused slot within reach.
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

    /// Updates the list of unused ranges: they may have been unmapped, or contain other text now.
    fn look_for_caves(&mut self, maps: &str, memory: &Memory) {
        // The search takes hundreds of system calls, so do it only when the mappings have changed.
        let mut hasher = DefaultHasher::new();
        maps.hash(&mut hasher);
        let mapped = hasher.finish();
        if self.mapped.replace(mapped) == Some(mapped) {
            return;
        }
        let known = std::mem::take(&mut self.caves);
        for cave in code_caves::find(maps, memory) {
            let start = cave.start.next_multiple_of(SIZE);
            if start + SIZE <= cave.end {
                let known = known.iter().find(|(known, _)| *known == (start..cave.end));
                let taken = known.map_or(start, |(_, taken)| *taken);
                self.caves.push((start..cave.end, taken));
            }
        }
    }

    /// The address that a thread at `pc` would have without its slot. `None` if `pc` is in no slot.
    pub(crate) fn left(&self, memory: &Memory, pc: u64) -> Option<SlotExit> {
        let (start, slot) = self.slots.range(..=pc).next_back()?;
        let left = slot.left(pc - start)?;
        slot.patch.stands(memory, *start).then_some(left)
    }

    /// Whether there is no slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The patches of all slots, with their addresses.
    pub(crate) fn patches(&self) -> impl Iterator<Item = (u64, &Patch)> {
        self.slots.iter().map(|(start, slot)| (*start, &slot.patch))
    }

    /// Puts the program's bytes into `bytes`, which were read from `address`.
    pub(crate) fn hide(&self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        for (start, slot) in self.slots.range(address.saturating_sub(SIZE)..end) {
            slot.patch.hide(*start, address, bytes);
        }
    }

    /// Stores the bytes that a client is about to write as the program's. No thread may be in a
    /// slot.
    pub(crate) fn absorb(&mut self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        for (start, slot) in self.slots.range_mut(address.saturating_sub(SIZE)..end) {
            slot.patch.absorb(*start, address, bytes);
        }
        // Code that could not be displaced may have changed.
        self.of_traps.retain(|_, slot| slot.is_some());
    }

    /// Restores the original bytes of all slots. No thread may be in a slot.
    pub(crate) fn remove_all(&mut self, memory: &Memory) {
        for (start, slot) in &self.slots {
            slot.patch.lift(memory, *start);
        }
        self.forget();
    }

    /// Forgets all slots, because the memory that contained them is gone.
    pub(crate) fn forget(&mut self) {
        *self = DisplacedInstructions::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_in_a_slot_are_before_or_after() {
        let slot = Slot {
            patch: Patch::over(&[0; 8], &[1; 8]),
            at: 0x1000,
            length: 4,
            source: Vec::new(),
        };
        assert_eq!(slot.left(0), Some(SlotExit::Before(0x1000)));
        assert_eq!(slot.left(4), Some(SlotExit::After(0x1004)));
        assert_eq!(slot.left(0x20), None);
        let slots = DisplacedInstructions {
            slots: BTreeMap::from([(0x2000, slot)]),
            ..DisplacedInstructions::default()
        };
        let mut bytes = [1; 4];
        slots.hide(0x2006, &mut bytes);
        assert_eq!(bytes, [0, 0, 1, 1]);
    }
}
