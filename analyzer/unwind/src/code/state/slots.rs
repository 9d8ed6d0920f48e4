//! The tracked stack slots, in order of address. They are one flat piece of memory, of which only
//! the used part is copied.

use super::value::Word;

/// Maximum number of tracked slots. If there are more, some are forgotten. Their registers become
/// unknown, but never wrong.
pub(super) const MAX_SLOTS: usize = 28;

/// A stack slot and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// The address of the slot.
    pub(super) at: Word,
    pub(super) value: Word,
}

#[derive(Clone, Debug)]
pub(super) struct Slots {
    slots: [Slot; MAX_SLOTS],
    count: u8,
}

impl Slots {
    pub(super) const NONE: Slots = Slots {
        slots: [Slot {
            at: Word::UNKNOWN,
            value: Word::UNKNOWN,
        }; MAX_SLOTS],
        count: 0,
    };

    pub(super) fn of(slots: &[Slot]) -> Slots {
        let mut all = Slots::NONE;
        let count = slots.len().min(MAX_SLOTS);
        all.slots[..count].copy_from_slice(&slots[..count]);
        all.count = count as u8;
        all
    }

    #[inline]
    pub(super) fn all(&self) -> &[Slot] {
        &self.slots[..usize::from(self.count)]
    }

    pub(super) fn all_mut(&mut self) -> &mut [Slot] {
        &mut self.slots[..usize::from(self.count)]
    }

    #[inline]
    pub(super) fn copy_from(&mut self, other: &Slots) {
        for (mine, theirs) in self.slots.iter_mut().zip(other.all()) {
            *mine = *theirs;
        }
        self.count = other.count;
    }

    #[inline]
    pub(super) fn at(&self, at: Word) -> Word {
        let slot = self.all().iter().find(|slot| slot.at == at);
        slot.map_or(Word::UNKNOWN, |slot| slot.value)
    }

    /// Keeps the slots that pass `keep`. Returns whether any was removed.
    pub(super) fn retain(&mut self, keep: impl Fn(Slot) -> bool) -> bool {
        let mut kept = 0;
        for index in 0..usize::from(self.count) {
            let slot = self.slots[index];
            if keep(slot) {
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        let gone = kept != usize::from(self.count);
        self.count = kept as u8;
        gone
    }

    /// Keeps the slots that `other` also has. Returns whether any was removed.
    pub(super) fn meet(&mut self, other: &Slots) -> bool {
        if self.all() == other.all() {
            return false;
        }
        let mut rest = other.all().iter();
        let (mut kept, mut next) = (0, rest.next());
        for index in 0..usize::from(self.count) {
            let slot = self.slots[index];
            while next.is_some_and(|other| other.at < slot.at) {
                next = rest.next();
            }
            if next == Some(&slot) {
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        let gone = kept != usize::from(self.count);
        self.count = kept as u8;
        gone
    }

    /// Stores a value, or forgets the slot if the value is not worth tracking. Returns whether
    /// anything changed.
    pub(super) fn store(&mut self, at: Word, value: Word, worth: bool) -> bool {
        let last = usize::from(self.count);
        let index = self.all().iter().position(|slot| slot.at >= at);
        let index = index.unwrap_or(last);
        let known = index < last && self.slots[index].at == at;
        match (known, worth) {
            (true, true) => {
                let slot = &mut self.slots[index];
                let changed = slot.value != value;
                slot.value = value;
                changed
            }
            (true, false) => {
                self.slots.copy_within(index + 1..last, index);
                self.count -= 1;
                true
            }
            (false, true) if last < MAX_SLOTS => {
                self.slots.copy_within(index..last, index + 1);
                self.slots[index] = Slot { at, value };
                self.count += 1;
                true
            }
            (false, _) => false,
        }
    }
}
