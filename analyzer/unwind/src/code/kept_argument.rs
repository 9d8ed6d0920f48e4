//! Where a function keeps an argument while it calls another function.
//!
//! A stack shows the stack slots and callee-saved registers of every frame. Compilers keep an
//! argument in one of them if the function needs it after a call, and often longer.

use std::ops::Range;

use unspool_image::{Arch, Image};

use super::States;
use super::effect::Target;
use super::flow::{Engine, Memory, Shown};
use super::machine::{self, Machine};
use super::state::{State, Value, bits};
use super::text::Text;

/// Maximum size of a function. A damaged symbol table may state any.
const MAX_SIZE: u64 = 64 << 10;

/// A place that keeps its value during a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The word at this distance from the canonical frame address (CFA).
    Slot(i32),
    /// A callee-saved register (DWARF number).
    Register(u8),
}

/// Finds where the function in `range` keeps an argument, counted from 0, during the call that
/// contains the address `call`. Only arguments that are passed in registers are found.
///
/// `thumb` says that the function is T32 code.
pub fn kept_argument(
    image: &Image,
    (range, thumb): (Range<u64>, bool),
    argument: usize,
    call: u64,
) -> Vec<Kept> {
    let Some(machine) = machine::machine(image.arch()) else {
        return Vec::new();
    };
    let Some(bytes) = image.bytes_from(range.start) else {
        return Vec::new();
    };
    let size = range.end.saturating_sub(range.start).min(MAX_SIZE);
    let bytes = &bytes[..bytes.len().min(size as usize)];
    let range = range.start..range.start + bytes.len() as u64;
    let text = Text::region(machine, image, true, (range, bytes));
    in_text(&text, thumb, argument, call)
}

/// Like [`kept_argument`], for a function that fills the first range of `text`.
pub(super) fn in_text(text: &Text<'_>, thumb: bool, argument: usize, call: u64) -> Vec<Kept> {
    let machine = text.machine;
    let (Some(range), Some(&register)) = (text.ranges().first(), arguments(machine).get(argument))
    else {
        return Vec::new();
    };
    let start = Target {
        svma: range.start,
        thumb,
    };
    let entry = State::with_argument(machine, register);
    let mut memory = Memory::new(machine);
    let mut engine = Engine::new(text, &mut memory, false);
    let function = engine.follow(start, range.end, &entry, true, &mut States);
    let state = function.shown.iter().find_map(|shown| match shown {
        Shown::State(svma, len, state) => (*svma..*svma + u64::from(*len))
            .contains(&call)
            .then_some(state),
        Shown::Run(..) => None,
    });
    let Some(state) = state else {
        return Vec::new();
    };
    let wanted = Value::Argument(register);
    let slots = state.slots_with(wanted).map(Kept::Slot);
    let registers = bits(machine.preserved).filter(|number| state.register(*number) == wanted);
    slots.chain(registers.map(Kept::Register)).collect()
}

/// The registers of a function's first arguments (System V ABI for x86-64, 3.2.3; AAPCS32 and
/// AAPCS64, "Parameter passing").
fn arguments(machine: &Machine) -> [u8; 4] {
    match machine.arch {
        Arch::X86_64 => [5, 4, 1, 2],
        _ => [0, 1, 2, 3],
    }
}
