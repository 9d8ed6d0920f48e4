//! The architecture as gdbstub sees it: gdbstub_arch's description plus the registers that it lacks
//! (`docs/decisions/0007-what-gdbstub-arch-carries.md` lists them).

use std::num::NonZeroUsize;
use std::ops::Range;

use gdbstub::arch::{Arch, RegId, Registers};

use crate::arch::{self, DESCRIBED, Described};

/// The machine this server runs on.
pub(crate) enum Machine {}

impl Arch for Machine {
    type Usize = <Described as Arch>::Usize;
    type Registers = RegisterBlock;
    type BreakpointKind = <Described as Arch>::BreakpointKind;
    type RegId = RegisterNumber;
}

/// The contents of a `g` packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RegisterBlock {
    /// The registers that gdbstub_arch describes.
    described: <Described as Arch>::Registers,
    /// The bytes of all further registers.
    further: Vec<u8>,
    /// Byte ranges of registers that this kernel does not show.
    hidden: Vec<Range<usize>>,
    /// Number of bytes in the packet. A client may send too few.
    length: usize,
}

impl RegisterBlock {
    /// Builds a block from a packet's bytes and the byte ranges of hidden registers.
    pub(super) fn new(bytes: &[u8], hidden: Vec<Range<usize>>) -> RegisterBlock {
        let mut block = RegisterBlock {
            hidden,
            length: bytes.len(),
            ..RegisterBlock::default()
        };
        let mut described = vec![0; block.described_bytes().len()];
        let mut rest = bytes;
        for part in DESCRIBED {
            let (own, next) = rest.split_at(part.len().min(rest.len()));
            described[part.start..part.start + own.len()].copy_from_slice(own);
            rest = next;
        }
        let taken = block.described.gdb_deserialize(&described);
        debug_assert!(
            taken.is_ok(),
            "`described` is as long as the output of `gdb_serialize`"
        );
        block.further = rest.to_vec();
        block
    }

    /// The bytes of the packet. Hidden registers are zero.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let described = self.described_bytes();
        let parts = DESCRIBED.iter().flat_map(|part| &described[part.clone()]);
        let mut bytes: Vec<u8> = parts.chain(&self.further).copied().collect();
        bytes.truncate(self.length);
        bytes
    }

    fn described_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1024);
        let write = |byte: Option<u8>| bytes.push(byte.unwrap_or(0));
        self.described.gdb_serialize(write);
        bytes
    }
}

impl Registers for RegisterBlock {
    type ProgramCounter = arch::Word;

    fn pc(&self) -> arch::Word {
        self.described.pc()
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        for (at, byte) in self.bytes().into_iter().enumerate() {
            let hidden = self.hidden.iter().any(|place| place.contains(&at));
            write_byte((!hidden).then_some(byte));
        }
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        *self = RegisterBlock::new(bytes, Vec::new());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet in which each byte holds its own index.
    fn numbered() -> Vec<u8> {
        (0..arch::layout().size).map(|at| at as u8).collect()
    }

    #[test]
    fn a_packet_survives_the_round_trip() {
        let bytes = numbered();
        let mut block = RegisterBlock::default();
        assert_eq!(block.gdb_deserialize(&bytes), Ok(()));
        let mut seen = Vec::new();
        block.gdb_serialize(|byte| seen.push(byte.expect("shown")));
        assert_eq!(seen, bytes);
        for length in [0, 1, 63, 65, bytes.len() - 1] {
            let short = RegisterBlock::new(&bytes[..length], Vec::new());
            assert_eq!(short.bytes(), bytes[..length]);
        }
    }

    #[test]
    fn described_registers_match_the_table() {
        let bytes = numbered();
        let block = RegisterBlock::new(&bytes, Vec::new());
        let register = arch::layout().register(arch::PC).expect("pc");
        let place = register.offset..register.offset + register.size;
        assert_eq!(block.pc().to_le_bytes(), bytes[place]);
        let described: usize = DESCRIBED.iter().map(Range::len).sum();
        assert_eq!(block.further.len(), bytes.len() - described);
        let ends_here = |register: &arch::Register| register.offset + register.size == described;
        assert!(arch::layout().registers.iter().any(ends_here));
    }

    #[test]
    fn registers_that_the_kernel_hides_are_marked() {
        let block = RegisterBlock::new(&numbered(), Vec::from([Range { start: 8, end: 16 }]));
        let mut seen = Vec::new();
        block.gdb_serialize(|byte| seen.push(byte));
        assert_eq!(seen[7], Some(7));
        assert!(seen[8..16].iter().all(Option::is_none));
        assert_eq!(seen[16], Some(16));
    }
}
