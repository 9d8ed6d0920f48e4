//! Reads a hit that a collector has recorded as if its thread were still there.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::arch;
use crate::arch::fast::{Base, Block, MAX_BLOCKS, Noted, Sets};
use crate::sys::monotonic_ns;
use crate::tracepoint::experiment::HitContext;
use crate::tracepoint::stack_key::CodeMap;
use crate::tracepoint::variable::Computed;

use super::pool::Hit;

/// Memory that every hit uses again.
#[derive(Default)]
pub(crate) struct Scratch {
    sets: Sets,
    /// As in the `g` packet.
    registers: Vec<u8>,
}

/// A hit that a collector has recorded.
pub(crate) struct RecordedHit<'a> {
    noted: &'a Noted<'a>,
    time_ns: u64,
    time: Instant,
    scratch: &'a mut Scratch,
    /// The addresses and bytes of its blocks of memory, and then empty ones.
    blocks: [(u64, &'a [u8]); MAX_BLOCKS],
    code_map: &'a CodeMap,
    at: u64,
}

impl<'a> RecordedHit<'a> {
    /// A hit at `at` with these recorded blocks of memory.
    pub(crate) fn new(
        hit: &Hit,
        noted: &'a Noted<'a>,
        at: u64,
        blocks: &[Block],
        code_map: &'a CodeMap,
        scratch: &'a mut Scratch,
    ) -> Self {
        noted.read_sets(at, &mut scratch.sets);
        let mut known = [(0, &[][..]); MAX_BLOCKS];
        let recorded = blocks.iter().zip(noted.blocks(blocks));
        for (into, (block, bytes)) in known.iter_mut().zip(recorded) {
            *into = (address(block, &scratch.sets), bytes);
        }
        RecordedHit {
            noted,
            time_ns: hit.time_ns,
            time: hit.time,
            blocks: known,
            scratch,
            code_map,
            at,
        }
    }
}

impl HitContext for RecordedHit<'_> {
    fn time(&self) -> Instant {
        self.time
    }

    fn registers(&mut self, _: u8) -> (u8, &[u8]) {
        let layout = arch::layout();
        let Scratch { sets, registers } = &mut *self.scratch;
        registers.resize(layout.size, 0);
        let known = sets.known();
        for run in layout.runs(known) {
            for register in &layout.registers[run.registers.clone()] {
                if let Some(from) = part(sets, register.place) {
                    registers[register.offset..register.offset + from.len()].copy_from_slice(from);
                }
            }
        }
        (known, registers)
    }

    #[inline]
    fn register(&mut self, number: usize) -> Option<u64> {
        register(&self.scratch.sets, number)
    }

    fn read(&mut self, address: u64, into: &mut [u8]) -> usize {
        let mut known = 0;
        for (start, bytes) in &self.blocks {
            let rest = address
                .checked_sub(*start)
                .and_then(|skip| bytes.get(skip as usize..));
            let rest = rest.unwrap_or_default();
            let length = rest.len().min(into.len());
            if length > known {
                into[..length].copy_from_slice(&rest[..length]);
                known = length;
            }
        }
        known
    }

    fn stack_key(&mut self, address: u64, length: u64) -> Option<u64> {
        let block = self.blocks.iter().find(|(start, _)| *start == address);
        let stack = block.filter(|_| address == self.noted.stack_pointer());
        let stack = stack.and_then(|(_, bytes)| bytes.get(..usize::try_from(length).ok()?))?;
        let registers = self.scratch.sets.get(0).unwrap_or_default();
        Some(self.code_map.key(self.at, address, registers, stack))
    }

    fn compute(&mut self, computed: Computed) -> i64 {
        match computed {
            Computed::Timestamp => {
                let ago = monotonic_ns().saturating_sub(self.time_ns);
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| {
                    (since.as_micros() as u64 - ago / 1000).cast_signed()
                })
            }
            Computed::Time => self.time_ns.cast_signed(),
            Computed::Stop | Computed::Needed | Computed::StackKey => 0,
            Computed::Thread => self.noted.thread().into(),
            Computed::Cpu => self.noted.processor().into(),
            Computed::StackLeft => self.noted.stack_left().cast_signed(),
        }
    }
}

/// The address at which a block began.
fn address(block: &Block, sets: &Sets) -> u64 {
    let base = match block.base {
        Base::Absolute => 0,
        Base::Register(number) => register(sets, number).unwrap_or(0),
    };
    base.wrapping_add(block.offset) & arch::wide(arch::Word::MAX)
}

fn register(sets: &Sets, number: usize) -> Option<u64> {
    let bytes = part(sets, arch::layout().register(number)?.place)?;
    let mut value = [0; 8];
    value.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(value))
}

#[inline]
fn part(sets: &Sets, place: arch::Place) -> Option<&[u8]> {
    let set = sets.get(place.set)?;
    set.get(place.offset..place.offset + place.size)
}
