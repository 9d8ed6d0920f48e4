//! Capstone's statement about an A64 instruction.

use capstone::arch::arm64::{Arm64Operand, Arm64OperandType, Arm64Shift};

use super::capstone::Parts;
use super::statement::{Statement, Value, Way};

const LR: u8 = 30;

pub(super) fn state(parts: &Parts<'_>, operands: &[Arm64Operand], writeback: bool) -> Statement {
    let mut said = parts.statement();
    let any = |index: usize| match operands.get(index)?.op_type {
        Arm64OperandType::Reg(id) => Some((parts.number(id)?, parts.name(id))),
        _ => None,
    };
    let is_wide = |name: &str| !name.starts_with('w') && name != "wsp";
    let register = |index: usize| any(index).filter(|(_, name)| is_wide(name)).map(|it| it.0);
    let immediate = |index: usize| match operands.get(index)?.op_type {
        Arm64OperandType::Imm(value) => Some(match operands[index].shift {
            Arm64Shift::Lsl(by) => value << by,
            _ => value,
        }),
        _ => None,
    };
    let target = |index: usize| immediate(index).map_or(0, |target| target as u64);
    match parts.mnemonic {
        "b" | "b.al" | "b.nv" | "bc.al" | "bc.nv" => said.way = Way::Jump(target(0)),
        "bl" => said.way = Way::Call(Some(target(0))),
        "blr" | "blraa" | "blraaz" | "blrab" | "blrabz" => said.way = Way::Call(None),
        "br" | "braa" | "braaz" | "brab" | "brabz" => said.way = Way::Indirect,
        "ret" | "retaa" | "retab" | "eret" | "eretaa" | "eretab" => said.way = Way::Return,
        "cbz" | "cbnz" => said.way = Way::Branch(target(1)),
        "tbz" | "tbnz" => said.way = Way::Branch(target(2)),
        "brk" | "hlt" | "udf" => said.way = Way::Trap,
        name if name.starts_with("b.") || name.starts_with("bc.") => {
            said.way = Way::Branch(target(0))
        }
        "mov" | "movz" | "movn" | "adr" | "adrp" => {
            let value = match (register(1), immediate(1)) {
                (Some(from), _) => Value::Sum(from, 0),
                (_, Some(constant)) if parts.mnemonic == "movn" => {
                    Value::Constant(!constant as u64)
                }
                (_, Some(constant)) => Value::Constant(constant as u64),
                _ => Value::Other,
            };
            match any(0) {
                Some((to, name)) if is_wide(&name) => said.write(to, value),
                Some((to, _)) => {
                    let narrow = match value {
                        Value::Constant(value) => Value::Constant(u64::from(value as u32)),
                        _ => Value::Other,
                    };
                    said.write(to, narrow);
                }
                None => {}
            }
        }
        "add" | "sub" | "adds" | "subs" => {
            if let (Some(to), Some(from), Some(by)) = (register(0), register(1), immediate(2)) {
                let by = if parts.mnemonic.starts_with("sub") {
                    -by
                } else {
                    by
                };
                said.write(to, Value::Sum(from, by));
            }
        }
        _ => memory(parts, operands, writeback, &mut said),
    }
    if matches!(said.way, Way::Call(_)) {
        said.written.remove(&LR);
    }
    said
}

fn memory(parts: &Parts<'_>, operands: &[Arm64Operand], writeback: bool, said: &mut Statement) {
    let mem = operands
        .iter()
        .enumerate()
        .find_map(|(index, operand)| match operand.op_type {
            Arm64OperandType::Mem(mem) => Some((index, mem)),
            _ => None,
        });
    let Some((index, mem)) = mem else {
        return;
    };
    let Some(base) = parts.number(mem.base()) else {
        return;
    };
    let post = match operands.get(index + 1).map(|operand| &operand.op_type) {
        Some(Arm64OperandType::Imm(by)) => Some(*by),
        _ => None,
    };
    let by_register = mem.index().0 != 0;
    let stored = parts.mnemonic.starts_with("st");
    let whole = matches!(
        parts.mnemonic,
        "ldr" | "ldur" | "ldtr" | "ldp" | "ldnp" | "str" | "stur" | "sttr" | "stp" | "stnp"
    );
    let at = if post.is_some() {
        0
    } else {
        i64::from(mem.disp())
    };
    if writeback {
        let indexed = operands.len() > index + 1 && post.is_none();
        let value = if by_register || indexed {
            Value::Other
        } else {
            Value::Sum(base, post.unwrap_or(i64::from(mem.disp())))
        };
        said.write(base, value);
    }
    if by_register || !whole {
        return;
    }
    for (position, operand) in operands[..index].iter().enumerate() {
        let Arm64OperandType::Reg(id) = operand.op_type else {
            continue;
        };
        let name = parts.name(id);
        // x0 to x30, "fp" and "lr": whole registers.
        if let Some(register) = parts.number(id)
            && !name.starts_with('w')
        {
            said.moves(stored, register, base, at + position as i64 * 8);
            if !stored {
                said.write(register, Value::Other);
            }
        }
    }
}
