//! The memory of the handler for `SIGTRAP` that the program keeps if the stub dies
//! (`arch/*/trap_handler.rs`). The layout is in `arch/handler_layout.rs`.
//!
//! Entries are written before their traps, and stay when those are taken out: the handler may run
//! for a trap that a thread met before. Further regions hold copies only, near other text.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::arch::SLOT_REACH;
use crate::arch::fast::GOLDEN;
use crate::arch::handler_layout::{COPY_SIZE, FORMER, POOL, RANGES, TABLE};
use crate::arch::trap_handler::{HANDLER, action, copy, handler_of};
use crate::sys::memory::Memory;

const ACTION: u64 = 0x540;
const FORMER_ACTION: u64 = 0x580;
const COPIES: u64 = TABLE + ENTRIES * ENTRY_SIZE;

const MAX_RANGES: u64 = 16;
const ENTRIES: u64 = 4096;
const ENTRY_SIZE: u64 = 16;
/// Of the hash, the uppermost bits count.
const HASH_SHIFT: u32 = 64 - ENTRIES.ilog2();
/// The table stays sparse, so that the handler finds what is there, and what is not, soon.
const MAX_COPIES: usize = ENTRIES as usize / 2;
/// The size of each region.
pub(crate) const REGION: u64 = 128 << 10;
const MAX_REGIONS: usize = 8;

/// The handler in one memory.
#[derive(Default)]
pub(crate) struct TrapHandler {
    /// Regions, and up to where each is used; the first has the handler.
    regions: Vec<(Range<u64>, u64)>,
    ranges: u64,
    /// By the address of the trap: the instruction that was copied, and where its copy is.
    copies: BTreeMap<u64, (Vec<u8>, u64)>,
    installed: bool,
    /// The program could not get it.
    refused: bool,
}

impl TrapHandler {
    /// Whether the program has it.
    pub(crate) fn is_installed(&self) -> bool {
        self.installed
    }

    /// Whether the program could not get it.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// The program cannot get it.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// Where the handler is, once it has memory.
    pub(crate) fn start(&self) -> Option<u64> {
        self.regions.first().map(|(range, _)| range.start)
    }

    /// Whether a copy for a trap at this address needs another region.
    pub(crate) fn wants_region(&self, at: u64) -> bool {
        self.regions.len() < MAX_REGIONS && self.region(at).is_none()
    }

    fn region(&self, at: u64) -> Option<usize> {
        let near = |(range, used): &(Range<u64>, u64)| {
            range.end - used >= COPY_SIZE as u64 && used.abs_diff(at) < SLOT_REACH
        };
        self.regions.iter().position(near)
    }

    /// Takes memory of [`REGION`] bytes that is full of zeroes and that the program can execute.
    pub(crate) fn add_region(&mut self, memory: &Memory, start: u64) -> Option<()> {
        let used = if self.regions.is_empty() {
            memory.write(start, HANDLER).ok()?;
            start + COPIES
        } else {
            start
        };
        self.regions.push((start..start + REGION, used));
        Some(())
    }

    /// The address of the action that installs it.
    pub(crate) fn action(&self) -> Option<u64> {
        self.start().map(|start| start + ACTION)
    }

    /// The address of the program's own action, which ours replaces.
    pub(crate) fn former_action(&self) -> Option<u64> {
        self.start().map(|start| start + FORMER_ACTION)
    }

    /// Prepares the action that installs it in the place of this one.
    pub(crate) fn replace(&mut self, memory: &Memory, former: &[u8]) -> Option<()> {
        let start = self.start()?;
        memory.write(start + FORMER_ACTION, former).ok()?;
        memory.write_words(&[start + FORMER], handler_of(former));
        memory.write(start + ACTION, &action(start, former)).ok()?;
        self.installed = true;
        Some(())
    }

    /// The collectors' pool is here, or nowhere (0).
    pub(crate) fn set_pool(&self, memory: &Memory, pool: u64) {
        if let Some(start) = self.start() {
            memory.write_words(&[start + POOL], pool);
        }
    }

    /// Collectors will be in this memory.
    pub(crate) fn add_collectors(&mut self, memory: &Memory, range: Range<u64>) {
        if let Some(start) = self.start()
            && self.ranges < MAX_RANGES
        {
            let entry = start + RANGES + 16 * self.ranges;
            // The handler looks at the start first.
            memory.write_words(&[entry + 8], range.end);
            memory.write_words(&[entry], range.start);
            self.ranges += 1;
        }
    }

    /// A trap will stand over the first instruction of `code`.
    pub(crate) fn enter(&mut self, memory: &Memory, at: u64, kind: usize, code: &[u8]) {
        let known = self.copies.get(&at);
        if known.is_some_and(|(known, _)| known == code) {
            return;
        }
        let (Some(table), Some(region)) = (
            self.start().map(|start| start + TABLE),
            self.region(at).or_else(|| self.any_region()),
        ) else {
            return;
        };
        let is_known = known.is_some();
        if !is_known && self.copies.len() >= MAX_COPIES {
            return;
        }
        let (_, used) = &mut self.regions[region];
        let to = *used;
        let Some(copied) = copy(code, at, to, kind) else {
            return;
        };
        if memory.write(to, &copied).is_err() {
            return;
        }
        *used += COPY_SIZE as u64;
        if let Some(entry) = find(memory, table, at) {
            memory.write_words(&[entry + 8], to);
            memory.write_words(&[entry], at);
            self.copies.insert(at, (code.to_vec(), to));
        }
    }

    /// Most instructions can be copied to anywhere.
    fn any_region(&self) -> Option<usize> {
        let room = |(range, used): &(Range<u64>, u64)| range.end - used >= COPY_SIZE as u64;
        self.regions.iter().position(room)
    }

    /// What it has of the program's memory.
    pub(crate) fn mappings(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.iter();
        regions.map(|(range, _)| (range.start, REGION)).collect()
    }

    /// Forgets everything: the memory is gone, or is the program's for good.
    pub(crate) fn forget(&mut self) {
        *self = TrapHandler::default();
    }
}

/// The entry of a trap, or the one that it will have.
fn find(memory: &Memory, table: u64, at: u64) -> Option<u64> {
    let mut index = at.wrapping_mul(GOLDEN) >> HASH_SHIFT;
    for _ in 0..ENTRIES {
        let entry = table + index * ENTRY_SIZE;
        let mut key = [0; 8];
        if memory.read(entry, &mut key) != Ok(key.len()) {
            return None;
        }
        let key = u64::from_le_bytes(key);
        if key == 0 || key == at {
            return Some(entry);
        }
        index = (index + 1) % ENTRIES;
    }
    None
}
