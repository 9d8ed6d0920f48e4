//! What the code that notes hits inside the program has in common on all architectures: what it is
//! asked to note, where a thread in it stands, and what it reads and writes of the pool.
//!
//! Each architecture has a file `collector.rs` with the same constants and functions: how it is
//! generated, and how a thread is brought back out of it.

use super::collector;

/// The pool: who comes next; up to where the stub has drained; whether it has been told to.
pub(crate) const TICKET: u64 = 0;
pub(crate) const DRAINED: u64 = 64;
pub(crate) const ALARM: u64 = 96;
/// Not 0 once the stub has died: collectors note nothing any more.
pub(crate) const GONE: u64 = 128;
/// A word for each slot: 0, free; twice a ticket: being filled; that and one: to be drained.
pub(crate) const STATES: u64 = 256;
/// Threads: thread pointer, id, lowest address and end of the stack. An entry stands at the place
/// of its hash, or beside it. The upper half of the id's word says how far from the thread pointer
/// the kernel keeps the number of its processor; 0 if it does not.
pub(crate) const TABLE: u64 = 16 << 10;
pub(crate) const THREADS: u64 = 1024;
pub(crate) const THREAD_SIZE: u64 = 32;
/// The slots themselves.
pub(crate) const SLOTS: u64 = TABLE + THREADS * THREAD_SIZE;
pub(crate) const MAX_SLOTS: u64 = 1024;
/// As many blocks as their lengths have room for.
pub(crate) const MAX_BLOCKS: usize = 8;

/// A slot: which collector, which thread, its thread pointer, its stack's end and pointer, clocks,
/// processor, lengths of blocks; then what the architecture has; then the blocks.
pub(super) const ID: u8 = 0;
pub(super) const THREAD: u8 = 8;
pub(super) const POINTER: u8 = 16;
pub(super) const STACK_END: u8 = 24;
pub(super) const STACK_POINTER: u8 = 32;
pub(crate) const BEGIN: u8 = 40;
pub(super) const END: u8 = 48;
pub(super) const PROCESSOR: u8 = 56;
pub(super) const LENGTHS: u8 = 64;
pub(super) const OWN: u8 = 96;

/// The size of the first page, which is never mapped but often pointed into.
pub(super) const FIRST_PAGE: u32 = 4096;
/// Number of slots that a collector tries.
pub(super) const TRIES: u32 = 8;
/// Multiplier of the hash: 2^64 by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Of the product, the uppermost bits count.
pub(super) const HASH_SHIFT: u8 = 54;

/// The two places where a thread with this thread pointer may be entered, from the pool's start.
pub(crate) fn entries(pointer: u64) -> [u64; 2] {
    let hash = pointer.wrapping_mul(GOLDEN) >> HASH_SHIFT;
    [hash, hash ^ 1].map(|index| TABLE + index * THREAD_SIZE)
}

/// The base of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    /// The register with this number in the `g` packet.
    Register(usize),
    /// Nothing.
    Absolute,
}

/// Memory to be noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) base: Base,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Block {
    /// Whether it begins at the stack pointer or above: then it ends at the stack's end.
    pub(crate) fn is_stack(&self) -> bool {
        self.base == Base::Register(super::SP) && self.offset < 1 << 30
    }

    /// The room that it takes.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.length).next_multiple_of(16)
    }
}

/// How much room a slot needs for these blocks.
pub(crate) fn slot_size(blocks: &[Block]) -> u64 {
    let blocks: u64 = blocks.iter().map(Block::room).sum();
    (collector::BLOCKS as u64 + blocks).next_multiple_of(64)
}

/// What a collector is made of.
pub(crate) struct Order<'a> {
    /// Its number, which it writes into slots.
    pub(crate) id: u32,
    /// Where it will be, and where the pool is.
    pub(crate) start: u64,
    pub(crate) pool: u64,
    /// Slots, a power of two, and the size of each.
    pub(crate) slots: u64,
    pub(crate) slot_size: u64,
    /// Where the jump is, the breakpoint kind there, and the instructions that it displaces.
    pub(crate) at: u64,
    pub(crate) kind: usize,
    pub(crate) displaced: &'a [u8],
    pub(crate) blocks: &'a [Block],
    /// With more of the stack left than this a hit is the stub's.
    pub(crate) stack_left: Option<u32>,
}

/// A place that a jump is wanted at.
pub(crate) struct Site<'a> {
    pub(crate) at: u64,
    /// The breakpoint kind there: on ARM it tells the instruction set.
    pub(crate) kind: usize,
    /// The code there that may be moved.
    pub(crate) code: &'a [u8],
    /// `AT_HWCAP`, `AT_HWCAP2`
    pub(crate) capabilities: [u64; 2],
    /// The program's text.
    pub(crate) read: &'a dyn Fn(u64, &mut [u8]) -> bool,
}

/// The word that says whether a collector is on. It changes while threads are in the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switch {
    pub(crate) on: [u8; 4],
    pub(crate) off: [u8; 4],
}

/// Where a thread in such code stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// The hit has not been noted.
    Before,
    /// It has, and the displaced instructions have not been executed.
    Dealt,
    /// The same; and the code has told the stub that there is much to be drained.
    Alarmed,
    /// Some of the displaced instructions have been executed: its place is in the midst of the
    /// jump.
    Inside,
    /// All have.
    After,
    /// The code has left the hit to the stub.
    Slow,
}

/// A thread's place without us is in its registers; this is the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) standing: Standing,
    /// The state of a slot that it has taken and not filled: it is to be free again.
    pub(crate) claimed: Option<u64>,
}

impl Position {
    /// `mine`: where the state is of the slot that a thread may have taken, and how that begins if
    /// it has.
    pub(super) fn claiming(
        standing: Standing,
        (pool, slots): (u64, u64),
        mine: Option<(u64, Vec<u8>)>,
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Position {
        let is_taken = |(state, begins): &(u64, Vec<u8>)| {
            let index = state.checked_sub(pool.wrapping_add(STATES));
            let mut bytes = vec![0; begins.len()];
            index.is_some_and(|index| index / 8 < slots)
                && read(*state, &mut bytes)
                && bytes == *begins
        };
        Position {
            standing,
            claimed: mine.filter(is_taken).map(|(state, _)| state),
        }
    }
}

/// A slot as it was read.
pub(crate) struct Noted<'a>(pub(crate) &'a [u8]);

impl<'a> Noted<'a> {
    pub(super) fn at(&self, offset: u8) -> u64 {
        let bytes = self.0.get(usize::from(offset)..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(super) fn half(&self, offset: u8) -> u32 {
        let bytes = self.0.get(usize::from(offset)..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The collector's number.
    pub(crate) fn id(&self) -> u32 {
        self.half(ID)
    }

    pub(crate) fn thread(&self) -> i32 {
        self.half(THREAD).cast_signed()
    }

    pub(crate) fn stack_pointer(&self) -> u64 {
        self.at(STACK_POINTER)
    }

    pub(crate) fn stack_left(&self) -> u64 {
        self.at(STACK_END).wrapping_sub(self.stack_pointer())
    }

    /// The processor; -1 if nothing told.
    pub(crate) fn processor(&self) -> i32 {
        self.half(PROCESSOR).cast_signed()
    }

    /// The processor's clock at the beginning and at the end.
    pub(crate) fn ticks(&self) -> (u64, u64) {
        (self.at(BEGIN), self.at(END))
    }

    /// The register sets that were noted, with their indices: as the kernel has them at a trap.
    pub(crate) fn sets(&self, at: u64) -> Vec<(usize, Vec<u8>)> {
        collector::sets(self, at)
    }

    /// What was read of each of these blocks.
    pub(crate) fn blocks(&self, blocks: &[Block]) -> Vec<&'a [u8]> {
        let mut offset = collector::BLOCKS as u64;
        let mut noted = Vec::new();
        for (index, block) in blocks.iter().enumerate() {
            let length = self.half(LENGTHS + 4 * index as u8).min(block.length);
            let start = offset as usize;
            let bytes = self.0.get(start..start + length as usize);
            noted.push(bytes.unwrap_or_default());
            offset += block.room();
        }
        noted
    }
}
