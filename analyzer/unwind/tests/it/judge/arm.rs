//! Capstone's statement about an A32 or T32 instruction.

use capstone::RegId;
use capstone::arch::arm::{ArmOpMem, ArmOperand, ArmOperandType, ArmShift};

use super::capstone::Parts;
use super::statement::{Statement, Value, Way};

const SP: u8 = 13;
const LR: u8 = 14;
const PC: u8 = 15;

pub(super) fn state(
    parts: &Parts<'_>,
    operands: &[ArmOperand],
    writeback: bool,
    condition: u8,
) -> Statement {
    let mut said = parts.statement();
    said.condition = condition;
    if is_it(parts.mnemonic) {
        said.condition = 14;
        return said;
    }
    let reader = Operands { parts, operands };
    let mut name = parts.mnemonic.trim_end_matches(".w");
    if condition != 14 {
        name = without_condition(name);
    }
    let target = |index: usize| u64::from(reader.immediate(index).unwrap_or(0) as u32);
    match name {
        "b" if condition == 14 => said.way = Way::Jump(target(0)),
        "b" => said.way = Way::Branch(target(0)),
        "bl" => said.way = Way::Call(Some(target(0))),
        "blx" => said.way = Way::Call(reader.immediate(0).map(|target| u64::from(target as u32))),
        "bx" | "bxj" if reader.register(0) == Some(LR) => said.way = Way::Return,
        "bx" | "bxj" | "tbb" | "tbh" => said.way = Way::Indirect,
        "cbz" | "cbnz" => said.way = Way::Branch(target(1)),
        "udf" | "trap" => said.way = Way::Trap,
        "mov" | "movs" | "movw" | "mvn" | "mvns" | "add" | "adds" | "addw" | "sub" | "subs"
        | "subw" | "adr" => reader.sum(name, &mut said),
        "push" => reader.block(SP, 0, (true, true), true, &mut said),
        "pop" => reader.block(SP, 0, (false, false), true, &mut said),
        "ldm" | "ldmdb" | "ldmib" | "ldmda" | "stm" | "stmdb" | "stmib" | "stmda" => {
            let mode = match &name[3..] {
                "" => (false, false),
                "db" => (true, true),
                "ib" => (true, false),
                _ => (false, true),
            };
            if let Some(base) = reader.register(0) {
                reader.block(base, 1, mode, writeback, &mut said);
            }
        }
        "vpush" | "vpop" => {
            let size = reader.vector_bytes(0);
            let by = if name == "vpush" { -size } else { size };
            said.write(SP, Value::Sum(SP, by));
        }
        "vldmia" | "vstmia" | "vldmdb" | "vstmdb" => {
            if let Some(base) = reader.register(0).filter(|_| writeback) {
                let size = reader.vector_bytes(1);
                let by = if name.ends_with("db") { -size } else { size };
                said.write(base, Value::Sum(base, by));
            }
        }
        _ => reader.memory(name, writeback, &mut said),
    }
    finish(&mut said, &reader, name);
    said
}

/// A write to the program counter is a jump. A call writes the link register by definition.
fn finish(said: &mut Statement, reader: &Operands<'_>, name: &str) {
    if said.written.remove(&PC).is_some() && said.way == Way::Next {
        let returns = matches!(name, "pop" | "ldm" | "ldmdb" | "ldmib" | "ldmda")
            || name == "ldr" && reader.adds_to_sp_after()
            || name == "mov" && reader.register(1) == Some(LR);
        said.way = if returns { Way::Return } else { Way::Indirect };
    }
    if matches!(said.way, Way::Call(_)) {
        said.written.remove(&LR);
    }
    said.moves
        .retain(|moved| moved.register != PC || moved.stored);
}

fn is_it(name: &str) -> bool {
    let rest = name.strip_prefix("it");
    rest.is_some_and(|rest| rest.bytes().all(|letter| matches!(letter, b't' | b'e')))
}

fn without_condition(name: &str) -> &str {
    const CONDITIONS: [&str; 16] = [
        "eq", "ne", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le", "cs",
        "cc",
    ];
    let ends = CONDITIONS.iter().find_map(|end| name.strip_suffix(end));
    ends.unwrap_or(name)
}

struct Operands<'o> {
    parts: &'o Parts<'o>,
    operands: &'o [ArmOperand],
}

impl Operands<'_> {
    fn id(&self, index: usize) -> Option<RegId> {
        match self.operands.get(index)?.op_type {
            ArmOperandType::Reg(id) => Some(id),
            _ => None,
        }
    }

    fn register(&self, index: usize) -> Option<u8> {
        self.parts.number(self.id(index)?)
    }

    /// A constant, which a second one may rotate.
    fn immediate(&self, index: usize) -> Option<i32> {
        let constant = |index: usize| match self.operands.get(index)?.op_type {
            ArmOperandType::Imm(value) => Some(value),
            _ => None,
        };
        let value = constant(index)?;
        let rotation = constant(index + 1).unwrap_or(0) as u32;
        Some((value as u32).rotate_right(rotation & 31) as i32)
    }

    fn is_plain(&self, index: usize) -> bool {
        let operand = self.operands.get(index);
        operand.is_some_and(|operand| operand.shift == ArmShift::Invalid)
    }

    /// The memory operand and its index.
    fn mem(&self) -> Option<(usize, ArmOpMem)> {
        let mut operands = self.operands.iter().enumerate();
        operands.find_map(|(index, operand)| match operand.op_type {
            ArmOperandType::Mem(mem) => Some((index, mem)),
            _ => None,
        })
    }

    /// Whether this loads from sp and then adds a constant to it.
    fn adds_to_sp_after(&self) -> bool {
        let Some((index, mem)) = self.mem() else {
            return false;
        };
        self.parts.number(mem.base()) == Some(SP) && self.immediate(index + 1).is_some()
    }

    /// Moves, and sums of a register and a constant.
    fn sum(&self, name: &str, said: &mut Statement) {
        let Some(to) = self.register(0) else {
            return;
        };
        let here = self.parts.svma + if self.parts.thumb { 4 } else { 8 };
        let value = match name {
            "mvn" | "mvns" => match self.immediate(1) {
                Some(value) => Value::Constant(i64::from(!value) as u64),
                None => Value::Other,
            },
            "adr" => match self.immediate(1) {
                Some(by) => Value::Constant((here & !3).wrapping_add_signed(by.into())),
                None => Value::Other,
            },
            name if name.starts_with("mov") => match (self.register(1), self.immediate(1)) {
                (Some(from), _) if self.is_plain(1) => Value::Sum(from, 0),
                (_, Some(value)) => Value::Constant(i64::from(value) as u64),
                _ => Value::Other,
            },
            _ => {
                let (from, by) = match self.operands.len() {
                    2 => (Some(to), self.immediate(1)),
                    _ => (self.register(1), self.immediate(2)),
                };
                if let Some(sum) = self
                    .sum_with_pc(to, here)
                    .filter(|_| name.starts_with("add"))
                {
                    said.write(to, sum);
                    return;
                }
                match (from, by) {
                    (Some(from), Some(by)) => {
                        let by = i64::from(by);
                        let by = if name.starts_with("sub") { -by } else { by };
                        if from == PC {
                            Value::Constant((here & !3).wrapping_add_signed(by))
                        } else {
                            Value::Sum(from, by)
                        }
                    }
                    _ => Value::Other,
                }
            }
        };
        let value = match value {
            Value::Sum(PC, by) => Value::Constant(here.wrapping_add_signed(by)),
            value => value,
        };
        said.write(to, value);
    }

    /// The sum of pc and another register, in an addition of two registers.
    fn sum_with_pc(&self, to: u8, here: u64) -> Option<Value> {
        let (one, other) = match self.operands.len() {
            2 => (Some(to), self.register(1)),
            _ => (self.register(1), self.register(2)),
        };
        let plain = (1..self.operands.len()).all(|index| self.is_plain(index));
        match (one?, other?) {
            (PC, PC) => None,
            (PC, from) | (from, PC) if plain => Some(Value::Sum(from, here as i64)),
            _ => None,
        }
    }

    /// Several registers. `mode`: before, down.
    fn block(
        &self,
        base: u8,
        first: usize,
        mode: (bool, bool),
        writeback: bool,
        said: &mut Statement,
    ) {
        let stored =
            !self.parts.mnemonic.starts_with('l') && !self.parts.mnemonic.starts_with("pop");
        let mut registers: Vec<u8> = (first..self.operands.len())
            .filter_map(|index| self.register(index))
            .collect();
        registers.sort_unstable();
        let size = 4 * registers.len() as i64;
        let start = match mode {
            (false, false) => 0,
            (true, false) => 4,
            (true, true) => -size,
            (false, true) => 4 - size,
        };
        for (index, &register) in registers.iter().enumerate() {
            said.moves(stored, register, base, start + 4 * index as i64);
            if !stored {
                said.write(register, Value::Other);
            }
        }
        if writeback && (stored || !registers.contains(&base)) {
            let by = if mode.1 { -size } else { size };
            said.write(base, Value::Sum(base, by));
        }
    }

    /// Size of the vector registers from an operand on.
    fn vector_bytes(&self, first: usize) -> i64 {
        (first..self.operands.len())
            .filter_map(|index| self.id(index))
            .map(|id| match self.parts.name(id).as_bytes().first() {
                Some(b's') => 4,
                Some(b'd') => 8,
                _ => 16,
            })
            .sum()
    }

    /// Loads and stores of one or two registers.
    fn memory(&self, name: &str, writeback: bool, said: &mut Statement) {
        let Some((index, mem)) = self.mem() else {
            return;
        };
        let Some(base) = self.parts.number(mem.base()) else {
            return;
        };
        let by_register = mem.index().0 != 0;
        let sign = |index: usize| {
            if self.operands[index].subtracted {
                -1
            } else {
                1
            }
        };
        let post = self
            .immediate(index + 1)
            .map(|by| i64::from(by) * sign(index + 1));
        let has_more = self.operands.len() > index + 1;
        let is_post = has_more || writeback && post.is_some();
        let offset = i64::from(mem.disp());
        if writeback {
            let value = match post {
                Some(by) => Value::Sum(base, by),
                None if has_more || by_register => Value::Other,
                None => Value::Sum(base, offset),
            };
            said.write(base, value);
        }
        let stored = name.starts_with("st");
        if base == PC && !by_register {
            let here = self.parts.svma + if self.parts.thumb { 4 } else { 8 };
            let at = (here & !3).wrapping_add_signed(offset);
            let words = if matches!(name, "ldr") { 1 } else { 2 };
            said.literals = (0..words).map(|word| at + 4 * word).collect();
        }
        if by_register
            || !matches!(name, "ldr" | "str" | "ldrt" | "strt" | "ldrd" | "strd")
            || base == PC
        {
            return;
        }
        let at = if is_post { 0 } else { offset };
        for position in 0..index {
            if let Some(register) = self.register(position) {
                said.moves(stored, register, base, at + 4 * position as i64);
                if !stored {
                    said.write(register, Value::Other);
                }
            }
        }
    }
}
