//! The memory of the `SIGTRAP` handler that the program keeps if the stub dies
//! (`arch/*/trap_handler.rs`). `arch/handler_layout.rs` has the layout.
//!
//! The stub writes an entry before it inserts the trap, and keeps the entry after it removes the
//! trap, because the handler may still run for a trap that a thread hit before. The first region
//! has the handler. Further regions have only copies of instructions, near other text.

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
/// The index is the uppermost bits of the hash.
const HASH_SHIFT: u32 = 64 - ENTRIES.ilog2();
/// Maximum number of copies in the table. Half of it stays empty, so that the handler's lookups are
/// short.
const MAX_COPIES: usize = ENTRIES as usize / 2;
/// Size of each region, in bytes.
pub(crate) const REGION: u64 = 128 << 10;
const MAX_REGIONS: usize = 8;

/// The handler in one address space.
#[derive(Default)]
pub(crate) struct TrapHandler {
    /// Each region and its first unused address. The first region has the handler.
    regions: Vec<(Range<u64>, u64)>,
    ranges: u64,
    /// By address of the trap: the original instruction, and the address of its copy.
    copies: BTreeMap<u64, (Vec<u8>, u64)>,
    installed: bool,
    /// Installing the handler failed.
    refused: bool,
}

impl TrapHandler {
    /// True if the program has the handler.
    pub(crate) fn is_installed(&self) -> bool {
        self.installed
    }

    /// True if installing the handler failed.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Records that the handler cannot be installed.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    /// The handler's address, once it has memory.
    pub(crate) fn start(&self) -> Option<u64> {
        self.regions.first().map(|(range, _)| range.start)
    }

    /// True if the copy of an instruction at this address needs another region.
    pub(crate) fn wants_region(&self, at: u64) -> bool {
        self.regions.len() < MAX_REGIONS && self.region(at).is_none()
    }

    fn region(&self, at: u64) -> Option<usize> {
        let near = |(range, used): &(Range<u64>, u64)| {
            range.end - used >= COPY_SIZE as u64 && used.abs_diff(at) < SLOT_REACH
        };
        self.regions.iter().position(near)
    }

    /// Takes over [`REGION`] bytes of memory that are zero and executable.
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

    /// The address of the `sigaction` that installs the handler.
    pub(crate) fn action(&self) -> Option<u64> {
        self.start().map(|start| start + ACTION)
    }

    /// The address of the program's own `sigaction`, which ours replaces.
    pub(crate) fn former_action(&self) -> Option<u64> {
        self.start().map(|start| start + FORMER_ACTION)
    }

    /// Prepares the `sigaction` that replaces the program's own, `former`.
    pub(crate) fn replace(&mut self, memory: &Memory, former: &[u8]) -> Option<()> {
        let start = self.start()?;
        memory.write(start + FORMER_ACTION, former).ok()?;
        memory.write_words(&[start + FORMER], handler_of(former));
        memory.write(start + ACTION, &action(start, former)).ok()?;
        self.installed = true;
        Some(())
    }

    /// Sets the address of the collectors' pool; 0 if there is none.
    pub(crate) fn set_pool(&self, memory: &Memory, pool: u64) {
        if let Some(start) = self.start() {
            memory.write_words(&[start + POOL], pool);
        }
    }

    /// Adds memory that will contain collectors.
    pub(crate) fn add_collectors(&mut self, memory: &Memory, range: Range<u64>) {
        if let Some(start) = self.start()
            && self.ranges < MAX_RANGES
        {
            let entry = start + RANGES + 16 * self.ranges;
            // The handler reads the start first.
            memory.write_words(&[entry + 8], range.end);
            memory.write_words(&[entry], range.start);
            self.ranges += 1;
        }
    }

    /// Adds an entry for a trap that will replace the first instruction of `code`.
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

    /// A region with room at any distance, because most instructions can be copied anywhere.
    fn any_region(&self) -> Option<usize> {
        let room = |(range, used): &(Range<u64>, u64)| range.end - used >= COPY_SIZE as u64;
        self.regions.iter().position(room)
    }

    /// Addresses and sizes of everything that it has mapped in the program.
    pub(crate) fn mappings(&self) -> Vec<(u64, u64)> {
        let regions = self.regions.iter();
        regions.map(|(range, _)| (range.start, REGION)).collect()
    }

    /// Forgets everything: the address space is gone, or the program keeps the memory for good.
    pub(crate) fn forget(&mut self) {
        *self = TrapHandler::default();
    }
}

/// The table entry of a trap, or the free entry for it.
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
