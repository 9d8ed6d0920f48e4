//! Capstone's statement about an x86-64 instruction.

use capstone::arch::x86::{X86Operand, X86OperandType};

use super::capstone::Parts;
use super::statement::{Statement, Value, Way};

const RBP: u8 = 6;
const RSP: u8 = 7;

pub(super) fn state(parts: &Parts<'_>, operands: &[X86Operand]) -> Statement {
    let mut said = parts.statement();
    let next = parts.svma + said.len as u64;
    let register = |index: usize| match operands.get(index)?.op_type {
        X86OperandType::Reg(id) if operands[index].size == 8 => parts.number(id),
        _ => None,
    };
    let immediate = |index: usize| match operands.get(index)?.op_type {
        X86OperandType::Imm(value) => Some(value),
        _ => None,
    };
    // A memory operand without index and segment: base register, or none, and displacement.
    let place = |index: usize| match operands.get(index)?.op_type {
        X86OperandType::Mem(mem)
            if mem.index().0 == 0 && !matches!(&*parts.name(mem.segment()), "fs" | "gs") =>
        {
            Some((mem.base(), mem.disp(), operands[index].size))
        }
        _ => None,
    };
    let target = immediate(0).map(|target| target as u64);
    let mut name = parts.mnemonic;
    for prefix in [
        "lock ", "rep ", "repne ", "repe ", "repz ", "repnz ", "bnd ", "notrack ", "data16 ",
    ] {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    match name {
        "call" | "lcall" => {
            said.way = Way::Call(target);
            said.written.remove(&RSP);
        }
        "ret" | "retf" | "retfq" | "iret" | "iretd" | "iretq" => {
            said.way = Way::Return;
            said.written.remove(&RSP);
        }
        "jmp" | "ljmp" => said.way = target.map_or(Way::Indirect, Way::Jump),
        "hlt" | "int3" | "int1" | "ud0" | "ud1" | "ud2" => said.way = Way::Trap,
        "xbegin" | "loop" | "loope" | "loopne" => said.way = Way::Branch(target.unwrap_or(0)),
        _ if name.starts_with('j') => said.way = Way::Branch(target.unwrap_or(0)),
        "push" | "pushfq" | "pushf" => {
            let size = operands.first().map_or(8, |operand| operand.size);
            let size = if name == "pushf" { 2 } else { size };
            said.write(RSP, Value::Sum(RSP, -i64::from(size)));
            if let Some(register) = register(0) {
                said.moves(true, register, RSP, -8);
            }
        }
        "pop" | "popfq" | "popf" => {
            let size = operands.first().map_or(8, |operand| operand.size);
            let size = if name == "popf" { 2 } else { size };
            said.write(RSP, Value::Sum(RSP, i64::from(size)));
            if let Some(register) = register(0) {
                said.moves(false, register, RSP, 0);
                said.write(register, Value::Other);
            }
        }
        "leave" => {
            said.moves(false, RBP, RBP, 0);
            said.write(RBP, Value::Other);
            said.write(RSP, Value::Sum(RBP, 8));
        }
        "enter" => {
            said.moves(true, RBP, RSP, -8);
            said.write(RBP, Value::Sum(RSP, -8));
            said.write(
                RSP,
                Value::Sum(RSP, -8 - (immediate(0).unwrap_or(0) & 0xffff)),
            );
        }
        "mov" | "movabs" => {
            let value = match (register(1), immediate(1), place(1)) {
                (Some(from), ..) => Value::Sum(from, 0),
                (_, Some(constant), _) => Value::Constant(constant as u64),
                _ => Value::Other,
            };
            if let Some(to) = register(0) {
                said.write(to, value);
                if let Some((base, offset, _)) = place(1)
                    && let Some(base) = parts.number(base)
                {
                    said.moves(false, to, base, offset);
                }
            } else if let (Some(from), Some((base, offset, 8))) = (register(1), place(0))
                && let Some(base) = parts.number(base)
            {
                said.moves(true, from, base, offset);
            } else if let (X86OperandType::Reg(to), Some(constant)) =
                (&operands[0].op_type, immediate(1))
                && operands[0].size == 4
                && let Some(to) = parts.number(*to)
            {
                said.write(to, Value::Constant(u64::from(constant as u32)));
            }
        }
        "xor" => {
            if let (X86OperandType::Reg(one), X86OperandType::Reg(other)) =
                (&operands[0].op_type, &operands[1].op_type)
                && one == other
                && operands[0].size >= 4
                && let Some(to) = parts.number(*one)
            {
                said.write(to, Value::Constant(0));
            }
        }
        "lea" => {
            if let (Some(to), Some((base, offset, _))) = (register(0), place(1)) {
                let value = match parts.number(base) {
                    Some(base) => Value::Sum(base, offset),
                    None if parts.name(base) == "rip" => {
                        Value::Constant(next.wrapping_add_signed(offset))
                    }
                    None => Value::Other,
                };
                said.write(to, value);
            }
        }
        "add" | "sub" => {
            if let (Some(to), Some(by)) = (register(0), immediate(1)) {
                let by = if name == "sub" { -by } else { by };
                said.write(to, Value::Sum(to, by));
            }
        }
        _ => {}
    }
    said
}
