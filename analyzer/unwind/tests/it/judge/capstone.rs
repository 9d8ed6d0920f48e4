//! Capstone as a judge: decodes an instruction and hands its parts to the architecture's statement.

use capstone::arch::ArchDetail;
use capstone::prelude::*;
use capstone::{InsnDetail, RegId};

use super::statement::{Statement, Value};
use super::{aarch64, arm, x86_64};

/// An instruction set, as the judge is set up for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    X86,
    A64,
    A32,
    T32,
}

/// Capstone, set up for one instruction set.
pub(super) struct Judge {
    pub(super) capstone: Capstone,
    set: Set,
    /// DWARF's numbers and the names of registers, by Capstone's numbers.
    registers: Vec<(Option<u8>, String)>,
}

/// The parts of one decoded instruction.
pub(super) struct Parts<'j> {
    judge: &'j Judge,
    detail: InsnDetail<'j>,
    pub(super) svma: u64,
    pub(super) mnemonic: &'j str,
    pub(super) thumb: bool,
    len: usize,
}

impl Judge {
    pub(super) fn new(set: Set) -> Judge {
        let mut capstone = match set {
            Set::X86 => Capstone::new()
                .x86()
                .mode(arch::x86::ArchMode::Mode64)
                .build(),
            Set::A64 => Capstone::new()
                .arm64()
                .mode(arch::arm64::ArchMode::Arm)
                .build(),
            Set::A32 => Capstone::new()
                .arm()
                .mode(arch::arm::ArchMode::Arm)
                .extra_mode([arch::arm::ArchExtraMode::V8].into_iter())
                .build(),
            Set::T32 => Capstone::new()
                .arm()
                .mode(arch::arm::ArchMode::Thumb)
                .extra_mode([arch::arm::ArchExtraMode::V8].into_iter())
                .build(),
        }
        .expect("Capstone for this instruction set");
        capstone.set_detail(true).expect("details");
        let registers = (0..1024)
            .map(|id| {
                let name = capstone.reg_name(RegId(id)).unwrap_or_default();
                (number(set, &name), name)
            })
            .collect();
        Judge {
            capstone,
            set,
            registers,
        }
    }

    /// Capstone's statement about `instruction`.
    pub(super) fn state(&self, instruction: &capstone::Insn<'_>) -> Statement {
        let detail = self.capstone.insn_detail(instruction).expect("details");
        let parts = Parts {
            judge: self,
            svma: instruction.address(),
            mnemonic: instruction.mnemonic().unwrap_or(""),
            thumb: self.set == Set::T32,
            len: instruction.len(),
            detail,
        };
        match parts.detail.arch_detail() {
            ArchDetail::X86Detail(detail) => {
                x86_64::state(&parts, &detail.operands().collect::<Vec<_>>())
            }
            // The crate panics on the operands of system registers that it does not name.
            ArchDetail::Arm64Detail(_) if matches!(parts.mnemonic, "mrs" | "msr") => {
                parts.statement()
            }
            ArchDetail::Arm64Detail(detail) => aarch64::state(
                &parts,
                &detail.operands().collect::<Vec<_>>(),
                detail.writeback(),
            ),
            ArchDetail::ArmDetail(detail) => arm::state(
                &parts,
                &detail.operands().collect::<Vec<_>>(),
                detail.writeback(),
                (detail.cc() as u8).wrapping_sub(1) & 15,
            ),
        }
    }
}

impl Parts<'_> {
    /// A statement of the length and of the registers that Capstone lists as written.
    pub(super) fn statement(&self) -> Statement {
        let mut said = Statement::new(self.len);
        for &id in self.detail.regs_write() {
            if let Some(number) = self.number(id) {
                said.write(number, Value::Other);
            }
        }
        said
    }

    /// DWARF's number of a general register.
    pub(super) fn number(&self, id: RegId) -> Option<u8> {
        self.judge.registers.get(usize::from(id.0))?.0
    }

    pub(super) fn name(&self, id: RegId) -> String {
        let found = self.judge.registers.get(usize::from(id.0));
        found.map(|entry| entry.1.clone()).unwrap_or_default()
    }
}

/// DWARF's number of a register, whole or a part of it.
fn number(set: Set, name: &str) -> Option<u8> {
    const X86: [[&str; 5]; 16] = [
        ["rax", "eax", "ax", "al", "ah"],
        ["rdx", "edx", "dx", "dl", "dh"],
        ["rcx", "ecx", "cx", "cl", "ch"],
        ["rbx", "ebx", "bx", "bl", "bh"],
        ["rsi", "esi", "si", "sil", "-"],
        ["rdi", "edi", "di", "dil", "-"],
        ["rbp", "ebp", "bp", "bpl", "-"],
        ["rsp", "esp", "sp", "spl", "-"],
        ["r8", "r8d", "r8w", "r8b", "-"],
        ["r9", "r9d", "r9w", "r9b", "-"],
        ["r10", "r10d", "r10w", "r10b", "-"],
        ["r11", "r11d", "r11w", "r11b", "-"],
        ["r12", "r12d", "r12w", "r12b", "-"],
        ["r13", "r13d", "r13w", "r13b", "-"],
        ["r14", "r14d", "r14w", "r14b", "-"],
        ["r15", "r15d", "r15w", "r15b", "-"],
    ];
    let plain = |prefix: char, end: u8| {
        let number = name.strip_prefix(prefix)?.parse::<u8>().ok()?;
        (number < end).then_some(number)
    };
    match set {
        Set::X86 => {
            let found = X86.iter().position(|names| names.contains(&name));
            found.map(|number| number as u8)
        }
        Set::A64 => match name {
            "sp" | "wsp" => Some(31),
            "fp" => Some(29),
            "lr" => Some(30),
            _ => plain('x', 31).or_else(|| plain('w', 31)),
        },
        Set::A32 | Set::T32 => match name {
            "sb" => Some(9),
            "sl" => Some(10),
            "fp" => Some(11),
            "ip" => Some(12),
            "sp" => Some(13),
            "lr" => Some(14),
            "pc" => Some(15),
            _ => plain('r', 16),
        },
    }
}
