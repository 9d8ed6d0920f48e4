//! gdbstub's view of the architecture, derived from the register table.

use std::num::NonZeroUsize;

use gdbstub::arch::{Arch, RegId, Registers};

use crate::arch;

/// The machine this server runs on.
pub(crate) enum Machine {}

impl Arch for Machine {
    type Usize = arch::Word;
    type Registers = RegisterBlock;
    type BreakpointKind = usize;
    type RegId = RegisterNumber;
}

/// The contents of a `g` packet; `None` for bytes this kernel does not show.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RegisterBlock(pub(super) Vec<Option<u8>>);

impl Registers for RegisterBlock {
    type ProgramCounter = arch::Word;

    fn pc(&self) -> arch::Word {
        let Some(register) = arch::layout().register(arch::PC) else {
            return 0;
        };
        let bytes = self.0.iter().skip(register.offset).take(register.size);
        bytes
            .rev()
            .fold(0, |pc, byte| pc << 8 | arch::Word::from(byte.unwrap_or(0)))
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        for byte in &self.0 {
            write_byte(*byte);
        }
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        self.0 = bytes.iter().map(|byte| Some(*byte)).collect();
        Ok(())
    }
}

/// A register by its number in target.xml.
#[derive(Debug)]
pub(crate) struct RegisterNumber(pub(super) usize);

impl RegId for RegisterNumber {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        let register = arch::layout().register(id)?;
        Some((RegisterNumber(id), NonZeroUsize::new(register.size)))
    }

    fn to_raw_id(&self) -> Option<usize> {
        Some(self.0)
    }
}
