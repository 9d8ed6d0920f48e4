//! What a state says to an unwinder: the CFA, and where the caller's registers are.

use super::{State, Value, bits};
use crate::rule::{Cfa, Place};

impl State {
    /// Where the return address is kept.
    pub fn return_places(&self) -> impl Iterator<Item = Place> {
        self.places_of(self.machine.ra)
    }

    /// Every place where the entry value of `register` is now: itself, the stack, other registers.
    pub fn places_of(&self, register: u8) -> impl Iterator<Item = Place> {
        let wanted = Value::Entry(register);
        let same = (self.register(register) == wanted).then_some(Place::Same);
        let other = (0..self.machine.registers)
            .filter(move |&n| n != register && self.register(n) == wanted)
            .map(Place::Register);
        let slots = self
            .slots()
            .iter()
            .filter(move |slot| slot.value == wanted)
            .filter_map(|slot| match slot.at {
                Value::Cfa(offset) => Some(Place::AtCfa(offset)),
                at => self
                    .by_base(at)
                    .map(|(register, offset)| Place::AtRegister { register, offset }),
            });
        same.into_iter().chain(slots).chain(other)
    }

    /// A register by which an address relative to the base is known, and the offset from it.
    fn by_base(&self, at: Value) -> Option<(u8, i32)> {
        let Value::Base(at) = at else { return None };
        self.bases().find_map(|number| match self.register(number) {
            Value::Base(offset) => Some((number, at.checked_sub(offset)?)),
            _ => None,
        })
    }

    fn bases(&self) -> impl Iterator<Item = u8> + use<> {
        let machine = self.machine;
        machine.frames.iter().copied().chain([machine.sp])
    }

    /// CFA, return address and saved registers, where all of the first two are known. `expression` keeps a DWARF
    /// expression.
    pub(crate) fn rule(
        &self,
        saved: &mut Vec<(u8, Place)>,
        expression: &mut dyn FnMut(&[u8]) -> crate::rule::Expression,
    ) -> Option<(Cfa, Place)> {
        saved.clear();
        if self.root {
            return Some((Cfa::Unknown, Place::Undefined));
        }
        let machine = self.machine;
        let by_register =
            [machine.sp]
                .iter()
                .chain(machine.frames)
                .find_map(|&register| match self.register(register) {
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
        // A row is looked up inside the call instruction too, which is about to overwrite the link register: the
        // stack, if the return address is there, is the better place.
        let stored = self
            .return_places()
            .find(|place| matches!(place, Place::AtCfa(_) | Place::AtRegister { .. }));
        let ra = match stored.or_else(|| self.return_places().next()) {
            Some(place) => place,
            // Start code clears the link register to say that nothing called it.
            None if self.register(machine.ra) == Value::Constant(0) => Place::Undefined,
            None => return None,
        };
        for register in bits(machine.preserved) {
            match self.places_of(register).next() {
                Some(Place::Same) => {}
                Some(place) => saved.push((register, place)),
                None => saved.push((register, Place::Undefined)),
            }
        }
        Some((cfa, ra))
    }

    /// The CFA as an expression: a slot known by a register holds it.
    pub(super) fn dereference(&self) -> Option<Vec<u8>> {
        self.slots().iter().find_map(|slot| {
            let Value::Cfa(held) = slot.value else {
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

/// Append a signed number.
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
