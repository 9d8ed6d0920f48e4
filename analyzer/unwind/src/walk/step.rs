//! Evaluates one rule on one frame's registers and memory.

use unspool_image::Arch;

use super::{StackEnd, State};
use crate::expression::evaluate;
use crate::memory::{StackMemory, read_pointer};
use crate::registers::{RegisterFile, roles};
use crate::rows::Rows;
use crate::rule::{Cfa, Place, Rule};

/// The caller's registers.
pub(super) struct Step {
    pub(super) registers: RegisterFile,
    pub(super) signal_frame: bool,
    /// The return address was in a register.
    pub(super) linked: bool,
}

/// The reason why a rule gave no caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fail {
    Outermost,
    NullReturn,
    NoRule,
    Memory(u64),
    /// A register with this name is not known.
    Register(&'static str),
    NotAdvancing,
    OutsideText(u64),
}

impl Fail {
    /// A register (DWARF number) is not known.
    fn missing(arch: Arch, register: u8) -> Fail {
        Fail::Register(RegisterFile::name(arch, register).unwrap_or("?"))
    }

    pub(super) fn into_end(self, pc: u64) -> StackEnd {
        match self {
            Fail::Outermost => StackEnd::Complete,
            Fail::NullReturn => StackEnd::NullReturn,
            Fail::NoRule => StackEnd::NoRule { pc },
            Fail::Memory(avma) => StackEnd::MemoryMissing { avma },
            Fail::Register(register) => StackEnd::RegisterMissing { register },
            Fail::NotAdvancing => StackEnd::NotAdvancing,
            Fail::OutsideText(pc) => StackEnd::OutsideText { pc },
        }
    }
}

impl Step {
    /// The caller resumes at `ra` with its stack pointer at `sp`. Registers that a call preserves
    /// keep their values.
    pub(super) fn new(here: &State, sp: u64, ra: u64) -> Step {
        let arch = here.registers.arch();
        let roles = roles(arch);
        let mut registers = here.registers.clone();
        registers.forget_volatile();
        registers.set(roles.sp, sp);
        if arch == Arch::Arm {
            // Interworking: bit 0 of the return address selects the caller's instruction set.
            registers.set_thumb(ra & 1 == 1);
            registers.set(roles.pc, ra & 0xffff_fffe);
        } else {
            registers.set(roles.pc, ra);
        }
        Step {
            registers,
            signal_frame: false,
            linked: false,
        }
    }
}

pub(super) fn apply(
    rows: &Rows,
    rule: &Rule<'_>,
    here: &State,
    memory: &mut dyn StackMemory,
) -> Result<Step, Fail> {
    let arch = here.registers.arch();
    let roles = roles(arch);
    let mask = if roles.pointer == 4 {
        0xffff_ffff
    } else {
        u64::MAX
    };
    let frame = &here.registers;
    let register = |number: u8| frame.get(number).ok_or_else(|| Fail::missing(arch, number));
    if rule.ra == Place::Undefined {
        return Err(Fail::Outermost);
    }
    let cfa = match rule.cfa {
        Cfa::Register {
            register: base,
            offset,
        } => register(base)?.wrapping_add_signed(i64::from(offset)) & mask,
        Cfa::Expression(expression) => {
            evaluate(rows.expression(expression), None, frame, memory).ok_or(Fail::NoRule)?
        }
        Cfa::Unknown => return Err(Fail::NoRule),
    };
    let value =
        |memory: &mut dyn StackMemory, number: u8, place: Place| -> Result<Option<u64>, Fail> {
            let load = |memory: &mut dyn StackMemory, address: u64| {
                read_pointer(memory, address & mask, roles.pointer)
                    .map_err(|gap| Fail::Memory(gap.avma))
            };
            Ok(Some(match place {
                Place::Same => match frame.get(number) {
                    Some(value) => value,
                    None => return Ok(None),
                },
                Place::Undefined => return Ok(None),
                Place::AtCfa(offset) => load(memory, cfa.wrapping_add_signed(i64::from(offset)))?,
                Place::CfaPlus(offset) => cfa.wrapping_add_signed(i64::from(offset)) & mask,
                Place::AtRegister {
                    register: base,
                    offset,
                } => load(
                    memory,
                    register(base)?.wrapping_add_signed(i64::from(offset)),
                )?,
                Place::Register(other) => register(other)?,
                Place::AtExpression(expression) => {
                    let address = evaluate(rows.expression(expression), Some(cfa), frame, memory)
                        .ok_or(Fail::NoRule)?;
                    load(memory, address)?
                }
                Place::Value(expression) => {
                    evaluate(rows.expression(expression), Some(cfa), frame, memory)
                        .ok_or(Fail::NoRule)?
                }
            }))
        };
    // Above frame 0, the frame is inside a call, which has overwritten the link register. A rule
    // that relies on it holds only in leaf functions.
    if rule.ra == Place::Same && !here.exact {
        return Err(Fail::NoRule);
    }
    let mut ra = value(memory, roles.ra, rule.ra)?.ok_or_else(|| Fail::missing(arch, roles.ra))?;
    if rule.signed || arch == Arch::Aarch64 {
        ra = strip_pac(ra);
    }
    let mut step = Step::new(here, caller_sp(rule, cfa, roles.pointer), ra);
    step.signal_frame = rule.signal_frame;
    step.linked = matches!(rule.ra, Place::Register(_));
    if rule.signal_frame {
        // The kernel saved all registers, so none keeps its value by convention.
        for number in 0..crate::registers::COUNT as u8 {
            if let (Some(value), true) =
                (frame.get(number), number != roles.sp && number != roles.pc)
            {
                step.registers.set(number, value);
            }
        }
    }
    let sp = frame.sp().unwrap_or(0);
    let red_zone = if arch == Arch::X86_64 { 128 } else { 0 };
    for &(number, place) in rule.saved {
        if let Place::AtCfa(offset) = place {
            let at = cfa.wrapping_add_signed(i64::from(offset)) & mask;
            // A register saved below sp has been popped again, even if the compiler's rule does not
            // say so. (x86-64's leaf functions may use 128 bytes there, which a snapshot need not
            // contain.)
            let popped = at.wrapping_add(red_zone) < sp;
            let gone = at < sp && read_pointer(memory, at, roles.pointer).is_err();
            if popped || gone {
                continue;
            }
        }
        // A register that cannot be read is forgotten. It matters only if a later rule needs it.
        match value(memory, number, place) {
            Ok(Some(value)) => step.registers.set(number, value),
            _ => step.registers.forget(number),
        }
    }
    Ok(step)
}

/// The caller's stack pointer: the CFA, but at least above a return address on the stack. The words
/// of a frame always lie below its caller's stack pointer. (glibc's CFI for AArch64's
/// `_dl_runtime_resolve` ignores the 16 bytes that the PLT has pushed.)
fn caller_sp(rule: &Rule<'_>, cfa: u64, pointer: usize) -> u64 {
    match rule.ra {
        Place::AtCfa(offset) if offset >= 0 && !rule.signal_frame => {
            cfa.wrapping_add(offset as u64 + pointer as u64)
        }
        _ => cfa,
    }
}

/// AArch64: removes a pointer authentication code or tag. User addresses have at most 48 bits with
/// Linux's default layout, and bit 55 is clear.
fn strip_pac(address: u64) -> u64 {
    address & 0x0000_ffff_ffff_ffff
}

#[cfg(test)]
mod tests {
    use unspool_image::Arch;

    use super::Fail;

    #[test]
    fn a_missing_register_has_its_name() {
        let end = Fail::missing(Arch::X86_64, 6).into_end(0);
        assert_eq!(end.to_string(), "register rbp is needed and not known");
    }
}
