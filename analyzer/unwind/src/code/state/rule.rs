//! Derives an instruction's unwind rule from its state: the places of the CFA, the return address
//! and the callee-saved registers.

use super::value::{Value, Word};
use super::{State, bits};
use crate::rule::{Cfa, Expression, Place};

/// Number of registers with entry values, including the return address.
const PLACES: usize = 33;
const NOWHERE: u8 = u8::MAX;

impl State {
    /// The places that hold the return address.
    pub fn return_places(&self) -> impl Iterator<Item = Place> {
        self.places_of(self.machine.ra)
    }

    /// Every place that holds the entry value of `register`: itself, stack slots, other registers.
    pub fn places_of(&self, register: u8) -> impl Iterator<Item = Place> {
        let wanted = Word::entry(register);
        let same = (self.word(register) == wanted).then_some(Place::Same);
        let other = (0..self.machine.registers)
            .filter(move |&n| n != register && self.word(n) == wanted)
            .map(Place::Register);
        let slots = self.slots.all().iter();
        let slots = slots
            .filter(move |slot| slot.value == wanted)
            .filter_map(|slot| self.place(slot.at));
        same.into_iter().chain(slots).chain(other)
    }

    /// A slot as rules express it.
    fn place(&self, at: Word) -> Option<Place> {
        match at.unpack() {
            Value::Cfa(offset) => Some(Place::AtCfa(offset)),
            _ => self
                .by_base(at)
                .map(|(register, offset)| Place::AtRegister { register, offset }),
        }
    }

    /// A register that holds an address relative to the base, and the offset of `at` from it.
    fn by_base(&self, at: Word) -> Option<(u8, i32)> {
        let Value::Base(at) = at.unpack() else {
            return None;
        };
        let machine = self.machine;
        let mut registers = machine.frames.iter().copied().chain([machine.sp]);
        registers.find_map(|number| match self.register(number) {
            Value::Base(offset) => Some((number, at.checked_sub(offset)?)),
            _ => None,
        })
    }

    /// The CFA, the return address and the saved registers. `None` if one of the first two is
    /// unknown. `expression` stores a DWARF expression.
    pub(crate) fn rule(
        &self,
        saved: &mut Vec<(u8, Place)>,
        expression: &mut dyn FnMut(&[u8]) -> Expression,
    ) -> Option<(Cfa, Place)> {
        saved.clear();
        if self.root {
            return Some((Cfa::Unknown, Place::Undefined));
        }
        let machine = self.machine;
        let mut registers = std::iter::once(&machine.sp).chain(machine.frames);
        let by_register = registers.find_map(|&register| match self.register(register) {
            Value::Cfa(offset) => Some(Cfa::Register {
                register,
                offset: offset.wrapping_neg(),
            }),
            _ => None,
        });
        let cfa = match by_register {
            Some(cfa) => cfa,
            None => {
                let by_flags = self.either.and_then(|either| either.cfa(machine.sp));
                Cfa::Expression(expression(&by_flags.or_else(|| self.dereference())?))
            }
        };
        // By register: the first slot and the first other register that hold its entry value.
        let mut stored = [NOWHERE; PLACES];
        let mut moved = [NOWHERE; PLACES];
        for (number, slot) in self.slots.all().iter().enumerate() {
            if let Some(of) = slot.value.entry_of()
                && let Some(first) = stored.get_mut(usize::from(of))
                && *first == NOWHERE
                && (slot.at.is_cfa() || self.place(slot.at).is_some())
            {
                *first = number as u8;
            }
        }
        for (number, word) in self.registers().iter().enumerate() {
            if let Some(of) = word.entry_of()
                && usize::from(of) != number
                && let Some(first) = moved.get_mut(usize::from(of))
                && *first == NOWHERE
            {
                *first = number as u8;
            }
        }
        let stored = |register: u8| {
            let number = usize::from(stored[usize::from(register)]);
            self.place(self.slots.all().get(number)?.at)
        };
        let moved = |register: u8| match moved[usize::from(register)] {
            NOWHERE => None,
            number => Some(Place::Register(number)),
        };
        let same = |register: u8| self.word(register) == Word::entry(register);
        // A row is also used inside a call instruction, which is about to overwrite the link
        // register. So a stack slot is the better place for the return address.
        let ra = match stored(machine.ra) {
            Some(place) => place,
            None if same(machine.ra) => Place::Same,
            None => match moved(machine.ra) {
                Some(place) => place,
                // Start code clears the link register to mark the outermost frame.
                None if self.register(machine.ra) == Value::Constant(0) => Place::Undefined,
                None => return None,
            },
        };
        for register in bits(machine.preserved) {
            if !same(register) {
                let place = stored(register).or_else(|| moved(register));
                saved.push((register, place.unwrap_or(Place::Undefined)));
            }
        }
        Some((cfa, ra))
    }

    /// The CFA as an expression: load it from a slot that a register points to.
    pub(super) fn dereference(&self) -> Option<Vec<u8>> {
        self.slots.all().iter().find_map(|slot| {
            let Value::Cfa(held) = slot.value.unpack() else {
                return None;
            };
            let (register, offset) = self.by_base(slot.at)?;
            // DW_OP_bregN, DW_OP_deref, DW_OP_consts, DW_OP_minus
            let mut bytes = vec![0x70 + register];
            leb128(&mut bytes, offset);
            bytes.push(0x06);
            if held != 0 {
                bytes.push(0x11);
                leb128(&mut bytes, held);
                bytes.push(0x1c);
            }
            Some(bytes)
        })
    }
}

/// Appends a signed LEB128 number.
pub(in crate::code) fn leb128(bytes: &mut Vec<u8>, value: i32) {
    let mut value = value;
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        let done = value == 0 && byte & 0x40 == 0 || value == -1 && byte & 0x40 != 0;
        bytes.push(if done { byte } else { byte | 0x80 });
        if done {
            return;
        }
    }
}
