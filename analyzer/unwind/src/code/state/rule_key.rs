//! The parts of a state that determine its rule.
//!
//! After most instructions that change something, the rule is one that was computed before.
//! Comparing this key costs less than computing the rule again.

use super::State;
use super::slots::MAX_SLOTS;
use super::value::Word;
use crate::code::state::REGISTERS;

/// The inputs of [`State::rule`] as numbers. They are flags, registers that changed since entry
/// with their numbers, and slots. States of one machine with equal keys have the same rule.
#[derive(Clone, Debug)]
pub(in crate::code) struct RuleKey {
    words: [u64; WORDS],
    count: usize,
    hash: u64,
}

const WORDS: usize = 1 + REGISTERS + 2 * MAX_SLOTS;

impl RuleKey {
    /// The key of no state.
    pub(in crate::code) const NONE: RuleKey = RuleKey {
        words: [0; WORDS],
        count: 0,
        hash: 0,
    };

    pub(in crate::code) fn hash(&self) -> u64 {
        self.hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn words(&self) -> &[u64] {
        &self.words[..self.count]
    }

    /// Copies `other`.
    pub(in crate::code) fn copy_from(&mut self, other: &RuleKey) {
        self.words[..other.count].copy_from_slice(other.words());
        (self.count, self.hash) = (other.count, other.hash);
    }
}

impl PartialEq for RuleKey {
    fn eq(&self, other: &RuleKey) -> bool {
        self.hash == other.hash && self.words() == other.words()
    }
}

impl State {
    /// Writes the key of this state. `None` if its rule depends on more than the key.
    pub(in crate::code) fn write_rule_key(&self, key: &mut RuleKey) -> Option<()> {
        if self.either.is_some() {
            return None;
        }
        let mut words = key.words.iter_mut();
        let mut hash = 0u64;
        let mut push = |word: u64| {
            if let Some(place) = words.next() {
                *place = word;
            }
            // The hash is cheap rather than good, because keys with equal hashes are compared.
            hash = hash.rotate_left(7) ^ word;
        };
        push(u64::from(self.root) | u64::from(self.signed) << 1);
        let machine = self.machine;
        let followed = machine.preserved | 1 << machine.ra;
        // If the stack pointer gives the CFA, other registers and slots that hold it do not matter.
        let by_sp = self.word(machine.sp).is_cfa();
        for (number, &word) in (0..).zip(self.registers()) {
            let tag = u64::from(number) << 40;
            if word == Word::UNKNOWN || word == Word::entry(number) {
                // For a callee-saved register, it matters that its value is lost.
                if word == Word::UNKNOWN && followed >> number & 1 == 1 {
                    push(tag);
                }
                continue;
            }
            let zero = number == machine.ra && word == Word::constant(0);
            let spare = by_sp && word.is_cfa() && number != machine.sp;
            let says = match (zero, spare) {
                (true, _) => word,
                (_, true) => Word::UNKNOWN,
                _ => word.places(followed),
            };
            if says != Word::UNKNOWN || followed >> number & 1 == 1 {
                push(tag | says.bits());
            }
        }
        for slot in self.slots.all() {
            let value = slot.value.places(followed);
            if value != Word::UNKNOWN && !(by_sp && value.is_cfa()) {
                push(slot.at.bits());
                push(value.bits());
            }
        }
        key.count = WORDS - words.len();
        key.hash = hash;
        Some(())
    }
}
