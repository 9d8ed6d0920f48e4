//! What of a state a rule is made of, and nothing else. Most instructions behind which something changed have a rule that
//! was made before: comparing this costs less than making it again.

use super::State;
use super::slots::MAX_SLOTS;
use super::value::Word;
use crate::code::state::REGISTERS;

/// What [`State::rule`] looks at, as numbers: flags, registers that do not hold what they held at the function's entry, each
/// with its number, and slots. States of one machine of which it is equal have the same rule.
#[derive(Clone, Debug)]
pub(in crate::code) struct RuleKey {
    words: [u64; WORDS],
    count: usize,
    hash: u64,
}

const WORDS: usize = 1 + REGISTERS + 2 * MAX_SLOTS;

impl RuleKey {
    /// Of no state.
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

    /// Become `other`.
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
    /// Put what a rule is made of into `key`. `None`: it depends on more than that.
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
            // Cheap rather than good: what has the same is compared.
            hash = hash.rotate_left(7) ^ word;
        };
        push(u64::from(self.root) | u64::from(self.signed) << 1);
        let machine = self.machine;
        let followed = machine.preserved | 1 << machine.ra;
        // By the stack pointer, if it can be, the CFA is known; then where else it is does not matter.
        let by_sp = self.word(machine.sp).is_cfa();
        for (number, &word) in (0..).zip(self.registers()) {
            let tag = u64::from(number) << 40;
            if word == Word::UNKNOWN || word == Word::entry(number) {
                // That it is lost is what matters of one that calls preserve.
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
