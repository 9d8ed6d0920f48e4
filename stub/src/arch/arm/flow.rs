//! The effect of one A32 or T32 instruction on the program counter, decoded and executed.
//!
//! `a32` and `t32` decode to an [`Instruction`], for which they need only its code. [`target`] then
//! looks up the values in registers and memory. References are to the ARM Architecture Reference
//! Manual, ARMv7-A and ARMv7-R edition (DDI 0406C).

/// A decoded instruction, with only the flow of control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Instruction {
    /// Length in bytes: 2 or 4.
    pub(super) size: u32,
    /// The condition in the instruction itself (A8.3). [`ALWAYS`] for most of T32, where IT blocks
    /// have the conditions.
    pub(super) condition: u8,
    /// The place where it continues.
    pub(super) flow: Flow,
}

/// The condition that always holds.
pub(super) const ALWAYS: u8 = 14;

/// The place where an instruction continues if its condition holds. Register 15 reads as the
/// architecture defines it: 8 bytes after the instruction in A32, 4 bytes in T32 (A2.3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    /// The next instruction.
    Next,
    /// `pc + offset`.
    Jump {
        offset: i32,
        /// Whether it changes the instruction set, with the program counter aligned to a word: BLX
        /// (immediate).
        exchange: bool,
        link: bool,
    },
    /// `pc + offset` if the register is zero, or if it is not: CBZ, CBNZ.
    JumpIfZero {
        register: u8,
        zero: bool,
        offset: u32,
    },
    /// The value of a register, whose lowest bit is the instruction set: BX, BLX.
    Register { register: u8, link: bool },
    /// The value of a register in the same instruction set: `mov pc, rN` and `add pc, rN` in T32.
    Plain { register: u8, add: bool },
    /// The word at an address: LDR, LDM, POP. Its lowest bit is the instruction set.
    Load { base: u8, offset: Operand },
    /// `pc + 2 * table[index]`: TBB, TBH.
    Table { base: u8, index: u8, wide: bool },
    /// The result of a data-processing instruction in A32; lowest bit as for a load.
    Compute {
        operation: u8,
        first: u8,
        second: Operand,
    },
    /// The kernel.
    Kernel(u32),
    /// The next instruction, with the exclusive monitor set.
    LoadExclusive,
    /// The next instruction, with the monitor cleared.
    StoreExclusive,
    /// The next instruction, in an IT block with this state.
    IfThen(u8),
}

/// The second operand of an addition or computation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operand {
    /// An immediate number.
    Number(u32),
    /// A shifted register (A8.4.1): type and amount as in the encoding.
    Shifted {
        register: u8,
        kind: u8,
        amount: u8,
        negative: bool,
    },
    /// A register, shifted by the value of another one.
    ShiftedBy { register: u8, kind: u8, by: u8 },
}

/// The registers that determine where an instruction continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Registers {
    /// r0 to r15; the last is the instruction's address.
    pub(super) r: [u32; 16],
    /// Flags, IT state and instruction set.
    pub(super) cpsr: u32,
}

/// Reads memory; `false` if not all of it can be read.
pub(super) type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

impl Registers {
    /// Whether the processor executes T32.
    pub(super) fn thumb(&self) -> bool {
        self.cpsr & 1 << 5 != 0
    }

    /// `IT[7:0]`: bits 15-10 and 26-25 of the CPSR (B1.3.3).
    pub(super) fn it_state(&self) -> u8 {
        if self.thumb() {
            (self.cpsr >> 8 & 0xfc | self.cpsr >> 25 & 3) as u8
        } else {
            0
        }
    }

    /// The inverse of [`it_state`](Self::it_state); nothing in A32.
    pub(super) fn set_it_state(&mut self, state: u8) {
        if self.thumb() {
            let state = u32::from(state);
            self.cpsr = self.cpsr & !0x0600_fc00 | (state & 0xfc) << 8 | (state & 3) << 25;
        }
    }

    /// Jumps to an address whose lowest bit is the instruction set.
    pub(super) fn branch(&mut self, to: u32) {
        self.cpsr = self.cpsr & !(1 << 5) | (to & 1) << 5;
        self.r[15] = if to & 1 != 0 { to & !1 } else { to & !3 };
    }

    /// Whether a condition holds (A8.3).
    pub(super) fn passes(&self, condition: u8) -> bool {
        let flag = |bit: u32| self.cpsr >> bit & 1 != 0;
        let (n, z, c, v) = (flag(31), flag(30), flag(29), flag(28));
        let holds = match condition >> 1 {
            0 => z,
            1 => c,
            2 => n,
            3 => v,
            4 => c && !z,
            5 => n == v,
            6 => n == v && !z,
            _ => return true,
        };
        holds == (condition & 1 == 0)
    }

    fn value(&self, register: u8) -> u32 {
        let value = self.r[usize::from(register & 15)];
        match (register, self.thumb()) {
            (15, true) => value.wrapping_add(4),
            (15, false) => value.wrapping_add(8),
            _ => value,
        }
    }

    fn operand(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Number(number) => number,
            Operand::Shifted {
                register,
                kind,
                amount,
                negative,
            } => {
                let value = self.value(register);
                let carry = self.cpsr >> 29 & 1;
                let value = match (kind, amount) {
                    (0, amount) => value << amount,
                    (1, 0) => 0,
                    (1, amount) => value >> amount,
                    (2, 0) => ((value as i32) >> 31) as u32,
                    (2, amount) => ((value as i32) >> amount) as u32,
                    // Rotate right with extend.
                    (_, 0) => carry << 31 | value >> 1,
                    (_, amount) => value.rotate_right(amount.into()),
                };
                if negative {
                    value.wrapping_neg()
                } else {
                    value
                }
            }
            Operand::ShiftedBy { register, kind, by } => {
                let (value, by) = (self.value(register), self.value(by) & 0xff);
                match kind {
                    0 => value.checked_shl(by).unwrap_or(0),
                    1 => value.checked_shr(by).unwrap_or(0),
                    2 => ((value as i32) >> by.min(31)) as u32,
                    _ => value.rotate_right(by % 32),
                }
            }
        }
    }

    /// The result of a data-processing operation, by its A32 opcode (A5.2.1).
    fn compute(&self, operation: u8, first: u32, second: u32) -> u32 {
        let carry = self.cpsr >> 29 & 1;
        match operation {
            0 => first & second,
            1 => first ^ second,
            2 => first.wrapping_sub(second),
            3 => second.wrapping_sub(first),
            4 => first.wrapping_add(second),
            5 => first.wrapping_add(second).wrapping_add(carry),
            6 => first.wrapping_add(!second).wrapping_add(carry),
            7 => second.wrapping_add(!first).wrapping_add(carry),
            12 => first | second,
            13 => second,
            14 => first & !second,
            _ => !second,
        }
    }
}

/// The target of an instruction whose condition holds, as a place where a trap is possible. A trap
/// is impossible in the kernel's helper page, so a jump into that page counts as a complete call.
/// Otherwise like [`target`].
pub(super) fn next_place(
    instruction: &Instruction,
    registers: &Registers,
    read: Read<'_>,
) -> Option<u32> {
    let to = target(instruction, registers, read)?;
    if to < KERNEL_HELPERS {
        return Some(to);
    }
    // One call, which returns.
    let link = matches!(
        instruction.flow,
        Flow::Jump { link: true, .. } | Flow::Register { link: true, .. }
    );
    let same = u32::from(registers.thumb());
    let back = registers.r[15].wrapping_add(instruction.size) | same;
    Some(if link { back } else { registers.r[14] })
}

/// The target of an instruction whose condition holds, with the instruction set in the lowest bit.
/// `None` if the instruction does not jump, or if it will fault because memory cannot be read.
pub(super) fn target(
    instruction: &Instruction,
    registers: &Registers,
    read: Read<'_>,
) -> Option<u32> {
    let same = u32::from(registers.thumb());
    let pc = registers.value(15);
    let to = match instruction.flow {
        Flow::Jump {
            offset, exchange, ..
        } => {
            if exchange {
                (pc & !3).wrapping_add_signed(offset) | (same ^ 1)
            } else {
                pc.wrapping_add_signed(offset) | same
            }
        }
        Flow::JumpIfZero {
            register,
            zero,
            offset,
        } => {
            let jumps = (registers.value(register) == 0) == zero;
            return jumps.then_some(pc.wrapping_add(offset) | 1);
        }
        Flow::Register { register, .. } => registers.value(register),
        Flow::Plain { register, add } => {
            let value = registers.value(register);
            let to = if add { pc.wrapping_add(value) } else { value };
            to | same
        }
        Flow::Load { base, offset } => {
            let base = match base {
                // Literals are relative to the aligned program counter.
                15 => pc & !3,
                _ => registers.value(base),
            };
            let mut word = [0; 4];
            let at = base.wrapping_add(registers.operand(offset));
            if !read(at.into(), &mut word) {
                return None;
            }
            u32::from_le_bytes(word)
        }
        Flow::Table { base, index, wide } => {
            let (base, index) = (registers.value(base), registers.value(index));
            let mut entry = [0; 2];
            let readable = if wide {
                read(base.wrapping_add(index << 1).into(), &mut entry)
            } else {
                read(base.wrapping_add(index).into(), &mut entry[..1])
            };
            if !readable {
                return None;
            }
            let entry = u32::from(u16::from_le_bytes(entry));
            pc.wrapping_add(2 * entry) | 1
        }
        Flow::Compute {
            operation,
            first,
            second,
        } => {
            let second = registers.operand(second);
            let first = registers.value(first);
            registers.compute(operation, first, second)
        }
        Flow::Next
        | Flow::Kernel(_)
        | Flow::LoadExclusive
        | Flow::StoreExclusive
        | Flow::IfThen(_) => return None,
    };
    Some(to)
}

/// Start of the page with Linux's user helpers, at the top of every process's memory (its
/// `Documentation/arm/kernel_user_helpers.rst`).
pub(super) const KERNEL_HELPERS: u32 = 0xffff_0000;
