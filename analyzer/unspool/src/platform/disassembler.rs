//! Instructions as text, by Capstone. Apart because only this asks Capstone for an architecture.

use capstone::prelude::*;
use thiserror::Error;
use unspool_image::Arch;

/// The reason why there is no disassembler, or none of an instruction.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The disassembler does not know the architecture.
    #[error("code of {0} cannot be disassembled")]
    Architecture(Arch),
    /// The disassembler failed.
    #[error("the disassembler failed: {0}")]
    Capstone(#[from] capstone::Error),
}

/// A disassembler of one instruction set.
pub(crate) struct Disassembler(Capstone);

/// One instruction.
pub(crate) struct Instruction {
    /// Size in bytes.
    pub(crate) size: usize,
    /// Mnemonic and operands.
    pub(crate) text: String,
}

impl Disassembler {
    /// The disassembler of an architecture, without and with the code bit.
    pub(crate) fn new(arch: Arch, bit: bool) -> Result<Disassembler, Error> {
        let built = match arch {
            Arch::X86_64 => Capstone::new()
                .x86()
                .mode(arch::x86::ArchMode::Mode64)
                .build(),
            Arch::Aarch64 => Capstone::new()
                .arm64()
                .mode(arch::arm64::ArchMode::Arm)
                .build(),
            Arch::Arm => {
                let mode = match bit {
                    true => arch::arm::ArchMode::Thumb,
                    false => arch::arm::ArchMode::Arm,
                };
                let v8 = [arch::arm::ArchExtraMode::V8];
                Capstone::new()
                    .arm()
                    .mode(mode)
                    .extra_mode(v8.into_iter())
                    .build()
            }
            other => return Err(Error::Architecture(other)),
        };
        Ok(Disassembler(built?))
    }

    /// The instruction at the beginning of `bytes`, which stands at `svma`; `None` if it is none.
    pub(crate) fn first(&self, svma: u64, bytes: &[u8]) -> Result<Option<Instruction>, Error> {
        let found = self.0.disasm_count(bytes, svma, 1)?;
        Ok(found.first().map(|found| {
            let mnemonic = found.mnemonic().unwrap_or("");
            let operands = found.op_str().unwrap_or("");
            Instruction {
                size: found.bytes().len(),
                text: format!("{mnemonic} {operands}").trim_end().to_owned(),
            }
        }))
    }
}
