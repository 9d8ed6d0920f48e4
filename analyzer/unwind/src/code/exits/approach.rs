//! The instructions directly before a system call, and the values they give its arguments.
//!
//! A probe before the call needs space for a jump, which may take several instructions. So the run
//! of instructions before the call is evaluated symbolically. Each argument is expressed by the
//! registers at the run's first instruction. Apart because no other module computes values.

use unspool_image::Arch;

use super::movable::Lines;
use super::{Before, Given, SystemCall};
use crate::code::effect::{Effect, Flow, Instruction};
use crate::code::text::Text;

/// Maximum number of instructions in a run.
const MAX_RUN_INSTRUCTIONS: usize = 6;
/// x86-64 machine numbers of registers to DWARF's (System V ABI for AMD64, figure 3.36).
const DWARF_OF_X86: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
const RSI: u8 = 4;

/// The registers of a system call's first arguments (syscall(2), "Architecture calling
/// conventions").
pub(super) fn argument_registers(arch: Arch) -> [u8; 4] {
    match arch {
        // rdi, rsi, rdx, r10
        Arch::X86_64 => [5, 4, 1, 10],
        _ => [0, 1, 2, 3],
    }
}

/// Finds the shortest run before `call` with space for a jump. If there is none, returns the last
/// instruction before it. `None` if even that instruction's effect is unknown.
pub(super) fn before(
    text: &Text<'_>,
    lines: &Lines,
    end: u64,
    call: &SystemCall,
) -> Option<Before> {
    let mut run = Vec::new();
    let mut svma = call.svma;
    let mut found: Option<Before> = None;
    while run.len() < MAX_RUN_INSTRUCTIONS {
        let Some(earlier) = lines.only_predecessor(svma) else {
            break;
        };
        svma = earlier;
        let Some(instruction) = text.decode(svma, call.thumb) else {
            break;
        };
        let continues = instruction.flow == Flow::Next
            && instruction.condition == 14
            && instruction.it == 0
            && !instruction.effects().contains(&Effect::SystemCall);
        if !continues {
            break;
        }
        run.push((svma, instruction));
        let fits = call.svma - svma >= u64::from(super::movable::jump(text.machine.arch));
        if found.is_some() && !fits {
            continue;
        }
        if let Some(sets) = evaluate(text, &run, call.number.is_some()) {
            let movable = match fits {
                true => lines.movable(text, end, svma),
                false => 0,
            };
            let run = Before {
                svma,
                sets,
                movable,
            };
            if movable > 0 {
                return Some(run);
            }
            found.get_or_insert(run);
        }
    }
    found
}

/// The value of a register, expressed by the registers at the start of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Known(Given),
    Unknown,
}

/// The arguments that a run sets. `run` has its last instruction first. `None` if the new value of
/// an argument, of the stack pointer, or of an unknown call's number cannot be expressed.
fn evaluate(
    text: &Text<'_>,
    run: &[(u64, Instruction)],
    number_is_known: bool,
) -> Option<[Option<Given>; 4]> {
    let machine = text.machine;
    let mut values: [Value; 32] =
        std::array::from_fn(|register| Value::Known(Given::Register(register as u8, 0)));
    for (svma, instruction) in run.iter().rev() {
        let writes = instruction.effects().iter();
        let writes = writes.fold(0, |mask, effect| mask | effect.writes());
        let number = writes >> machine.call_number & 1 == 1
            || machine.arch == Arch::Arm && writes >> super::ARM_IP & 1 == 1;
        if writes >> machine.sp & 1 == 1 || number && !number_is_known {
            return None;
        }
        let bits = match machine.arch {
            Arch::X86_64 => BitOperation::decode(text.bytes(*svma)),
            _ => None,
        };
        let copy = match machine.arch {
            Arch::X86_64 => copy_of_32_bits(text.bytes(*svma)),
            _ => None,
        };
        let given = match (bits, instruction.effects()) {
            (Some(operation), _) => Some((operation.register, operation.of(&values))),
            // System calls ignore the upper half of an argument that is copied in this way.
            _ if let Some((to, from)) = copy => Some((to, values[usize::from(from)])),
            (None, [Effect::Constant { to, value }]) => {
                Some((*to, Value::Known(Given::Constant(*value))))
            }
            (None, [Effect::Add { to, from, by }]) => Some((*to, add(&values, *from, *by))),
            _ => None,
        };
        for register in 0..32u8 {
            if writes >> register & 1 == 1 {
                values[usize::from(register)] = Value::Unknown;
            }
        }
        if let Some((to, value)) = given {
            *values.get_mut(usize::from(to))? = value;
        }
    }
    let mut sets = [None; 4];
    for (set, own) in sets.iter_mut().zip(argument_registers(machine.arch)) {
        *set = match values[usize::from(own)] {
            Value::Known(Given::Register(from, 0)) if from == own => None,
            Value::Known(given) => Some(given),
            Value::Unknown => return None,
        };
    }
    Some(sets)
}

fn add(values: &[Value; 32], from: u8, by: i32) -> Value {
    match values.get(usize::from(from)) {
        Some(Value::Known(Given::Register(from, offset))) => match offset.checked_add(by) {
            Some(offset) => Value::Known(Given::Register(*from, offset)),
            None => Value::Unknown,
        },
        Some(Value::Known(Given::Constant(value))) => {
            Value::Known(Given::Constant(value.wrapping_add_signed(by)))
        }
        Some(Value::Known(given)) if by == 0 => Value::Known(*given),
        _ => Value::Unknown,
    }
}

/// The registers of an x86-64 32-bit `mov` (Intel SDM vol. 2, opcode 89): destination and source.
fn copy_of_32_bits(bytes: &[u8]) -> Option<(u8, u8)> {
    let (prefix, opcode, modrm) = match bytes {
        [prefix @ 0x40..=0x47, opcode, modrm, ..] => (*prefix, *opcode, *modrm),
        [opcode, modrm, ..] => (0, *opcode, *modrm),
        _ => return None,
    };
    // mod = 11: both operands are registers.
    let copies = opcode == 0x89 && modrm >> 6 == 0b11;
    let register = |number: u8, extended: u8| DWARF_OF_X86[usize::from(number & 7 | extended << 3)];
    let (to, from) = (
        register(modrm, prefix & 1),
        register(modrm >> 3, prefix >> 2 & 1),
    );
    copies.then_some((to, from))
}

/// An x86-64 instruction that combines a 32-bit register with a constant:
/// `register = ((register << shift) & mask) ^ flipped`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BitOperation {
    register: u8,
    shift: u8,
    mask: u32,
    flipped: u32,
}

impl BitOperation {
    /// Decodes 32-bit `or`, `and` and `xor` with a constant, `shl` by a constant, and `xor
    /// $constant, %sil` (Intel SDM vol. 2, opcodes 80, 81, 83 and c1).
    fn decode(bytes: &[u8]) -> Option<BitOperation> {
        let (prefix, rest) = match bytes {
            [prefix @ (0x40 | 0x41), rest @ ..] => (*prefix, rest),
            rest => (0, rest),
        };
        let (opcode, modrm, rest) = match rest {
            [opcode, modrm, rest @ ..] => (*opcode, *modrm, rest),
            _ => return None,
        };
        // mod = 11: the operand is a register.
        if modrm >> 6 != 0b11 {
            return None;
        }
        let number = modrm & 7 | (prefix & 1) << 3;
        let register = DWARF_OF_X86[usize::from(number)];
        let (value, is_shift) = match opcode {
            // Without a prefix 80 /6 f6 means %dh.
            0x80 if prefix == 0x40 && register == RSI && modrm >> 3 & 7 == 6 => {
                (u32::from(*rest.first()?), false)
            }
            0x81 => (u32::from_le_bytes(*rest.first_chunk()?), false),
            0x83 => (i32::from(*rest.first()? as i8).cast_unsigned(), false),
            0xc1 => (u32::from(*rest.first()?), true),
            _ => return None,
        };
        let (shift, mask, flipped) = match (is_shift, modrm >> 3 & 7) {
            (false, 1) => (0, !value, value),
            (false, 4) => (0, value, 0),
            (false, 6) => (0, u32::MAX, value),
            (true, 4) if value < 32 => (value as u8, u32::MAX, 0),
            _ => return None,
        };
        Some(BitOperation {
            register,
            shift,
            mask,
            flipped,
        })
    }

    fn of(self, values: &[Value; 32]) -> Value {
        let BitOperation {
            register,
            shift,
            mask,
            flipped,
        } = self;
        let apply = |value: u32| value << shift & mask ^ flipped;
        match values[usize::from(register)] {
            Value::Known(Given::Constant(value)) => Value::Known(Given::Constant(apply(value))),
            Value::Known(Given::Register(from, 0)) => Value::Known(Given::Bits {
                from,
                shift,
                mask,
                flipped,
            }),
            Value::Known(Given::Bits {
                from,
                shift: before,
                mask: earlier,
                flipped: toggled,
            }) if before + shift < 32 => Value::Known(Given::Bits {
                from,
                shift: before + shift,
                mask: earlier << shift & mask,
                flipped: apply(toggled),
            }),
            _ => Value::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_operations_are_decoded() {
        let operation = |register, shift, mask, flipped| {
            Some(BitOperation {
                register,
                shift,
                mask,
                flipped,
            })
        };
        let all = u32::MAX;
        // xor $0x81,%sil; and $0x80,%esi; shl $0x7,%esi; or $0x2,%eax; and $-8,%r12d
        let cases: [(&[u8], _); 5] = [
            (&[0x40, 0x80, 0xf6, 0x81], operation(4, 0, all, 0x81)),
            (&[0x81, 0xe6, 0x80, 0, 0, 0], operation(4, 0, 0x80, 0)),
            (&[0xc1, 0xe6, 0x07], operation(4, 7, all, 0)),
            (&[0x83, 0xc8, 0x02], operation(0, 0, !2, 2)),
            (&[0x41, 0x83, 0xe4, 0xf8], operation(12, 0, !7, 0)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(BitOperation::decode(bytes), expected, "{bytes:x?}");
        }
        // xor $0x81,%dh; and $0x80,(%rsi); and $0x80,%rsi; shr $0x7,%esi
        let others: [&[u8]; 4] = [
            &[0x80, 0xf6, 0x81],
            &[0x81, 0x26, 0x80, 0, 0, 0],
            &[0x48, 0x81, 0xe6, 0x80, 0, 0, 0],
            &[0xc1, 0xee, 0x07],
        ];
        for bytes in others {
            assert_eq!(BitOperation::decode(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn copies_are_decoded() {
        // mov %eax,%edx; mov %r12d,%eax; mov %ebx,%r8d
        assert_eq!(copy_of_32_bits(&[0x89, 0xc2]), Some((1, 0)));
        assert_eq!(copy_of_32_bits(&[0x44, 0x89, 0xe0]), Some((0, 12)));
        assert_eq!(copy_of_32_bits(&[0x41, 0x89, 0xd8]), Some((8, 3)));
        // mov %rax,%rdx; mov %eax,(%rdx); mov (%rdx),%eax
        let others: [&[u8]; 3] = [&[0x48, 0x89, 0xc2], &[0x89, 0x02], &[0x8b, 0x02]];
        for bytes in others {
            assert_eq!(copy_of_32_bits(bytes), None, "{bytes:x?}");
        }
    }

    #[test]
    fn bit_operations_combine() {
        let start: [Value; 32] =
            std::array::from_fn(|register| Value::Known(Given::Register(register as u8, 0)));
        let mut values = start;
        let codes: [&[u8]; 2] = [&[0xc1, 0xe6, 0x07], &[0x40, 0x80, 0xf6, 0x81]];
        for code in codes {
            let operation = BitOperation::decode(code).expect("an operation on bits");
            values[usize::from(RSI)] = operation.of(&values);
        }
        let given = Given::Bits {
            from: RSI,
            shift: 7,
            mask: u32::MAX,
            flipped: 0x81,
        };
        // shl $7; xor $0x81: 1 becomes 0x80 ^ 0x81.
        assert_eq!(given.value(|_| Some(1)), Some(1));
        let Value::Known(combined) = values[usize::from(RSI)] else {
            panic!("it is known");
        };
        assert_eq!(combined.value(|_| Some(1)), Some(1));
        assert_eq!(combined.known_bits(), (0x7f, 1));
    }
}
