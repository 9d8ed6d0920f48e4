//! The parts that collectors have in common on all architectures: their input, the layout of the
//! pool, and the state of a thread inside a collector.
//!
//! A collector is generated code that records hits inside the program. Each architecture has a
//! file `collector.rs` with the same constants and functions: it generates the code, and computes
//! where a thread inside it would be without it.

use std::ops::Range;

use super::collector;

/// The pool's head: the next ticket, the ticket up to which the stub has drained, and whether a
/// collector has asked the stub to drain.
pub(crate) const TICKET: u64 = 0;
pub(crate) const DRAINED: u64 = 64;
pub(crate) const ALARM: u64 = 96;
/// Number of slots that collectors use, less one, and the number of hits since the last drain at
/// which a collector asks the stub to drain.
pub(crate) const MASK: u64 = 104;
pub(crate) const HALF: u64 = 112;
/// Not 0 once the stub has died: collectors then record nothing.
pub(crate) const GONE: u64 = 128;
/// One word for each slot: 0 if it is free, `2 * ticket` while a collector fills it,
/// `2 * ticket + 1` when it is ready to be drained.
pub(crate) const STATES: u64 = 256;
/// The thread table: thread pointer, id, lowest address and end of the stack. An entry is at the
/// index of its hash, or next to it. The upper half of the id's word is the distance from the
/// thread pointer to the kernel's processor number; 0 if the kernel does not store one.
pub(crate) const TABLE: u64 = 40 << 10;
pub(crate) const THREADS: u64 = 1024;
pub(crate) const THREAD_SIZE: u64 = 32;
/// Start of the slots.
pub(crate) const SLOTS: u64 = TABLE + THREADS * THREAD_SIZE;
pub(crate) const MAX_SLOTS: u64 = 4096;
const _: () = assert!(
    STATES + 8 * MAX_SLOTS <= TABLE,
    "the states end before the table"
);
/// Maximum number of blocks: a slot has room for this number of lengths.
pub(crate) const MAX_BLOCKS: usize = 8;

/// Layout of a slot: collector, thread, thread pointer, end of the stack, stack pointer, clock
/// values, processor, lengths of the blocks; then the architecture's part; then the blocks.
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
/// Size of the part of a slot that all architectures have.
pub(crate) const SLOT_HEAD: usize = OWN as usize;

/// Size of the first page, in bytes. It is never mapped, but pointers often point into it.
pub(super) const FIRST_PAGE: u32 = 4096;
/// Number of slots that a collector tries to take.
pub(super) const TRIES: u32 = 8;
/// Multiplier of the hash: 2^64 divided by the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Shift that keeps the uppermost bits of the product.
pub(super) const HASH_SHIFT: u8 = 54;

/// The two possible offsets in the pool of the entry for this thread pointer.
pub(crate) fn entries(pointer: u64) -> [u64; 2] {
    let hash = pointer.wrapping_mul(GOLDEN) >> HASH_SHIFT;
    [hash, hash ^ 1].map(|index| TABLE + index * THREAD_SIZE)
}

/// The base of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    /// The register with this number in the `g` packet.
    Register(usize),
    /// No base: the offset is the address.
    Absolute,
}

/// Memory to record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) base: Base,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Block {
    /// Whether it begins at or above the stack pointer. Such a block ends where the stack ends.
    pub(crate) fn is_stack(&self) -> bool {
        self.base == Base::Register(super::SP) && self.offset < 1 << 30
    }

    /// Space that it takes in a slot, in bytes.
    pub(crate) fn room(&self) -> u64 {
        u64::from(self.length).next_multiple_of(16)
    }
}

/// Size of a slot with these blocks, in bytes.
pub(crate) fn slot_size(blocks: &[Block]) -> u64 {
    let blocks: u64 = blocks.iter().map(Block::room).sum();
    (collector::BLOCKS as u64 + blocks).next_multiple_of(64)
}

/// The parameters of a collector.
pub(crate) struct Order<'a> {
    /// Number that the collector writes into slots.
    pub(crate) id: u32,
    /// Address of its code, and of the pool.
    pub(crate) start: u64,
    pub(crate) pool: u64,
    /// Maximum number of slots, and the size of each.
    pub(crate) slots: u64,
    pub(crate) slot_size: u64,
    /// Address of the jump, the breakpoint kind there, and the instructions that it displaces.
    pub(crate) at: u64,
    pub(crate) kind: usize,
    pub(crate) displaced: &'a [u8],
    pub(crate) blocks: &'a [Block],
    /// Bytecode. The collector may leave out hits for which it gives 0, and the stub evaluates it
    /// again.
    pub(crate) condition: Option<&'a [u8]>,
    /// Maximum number of bytes in use on the stack: the collector leaves other hits to the stub.
    pub(crate) stack_left: Option<u32>,
}

/// A place that is to get a jump.
pub(crate) struct Site<'a> {
    pub(crate) at: u64,
    /// The breakpoint kind there; on ARM it implies the instruction set.
    pub(crate) kind: usize,
    /// The code there that may be moved.
    pub(crate) code: &'a [u8],
    /// `AT_HWCAP`, `AT_HWCAP2`
    pub(crate) capabilities: [u64; 2],
    /// Reads the program's text.
    pub(crate) read: &'a dyn Fn(u64, &mut [u8]) -> bool,
}

/// The word that enables a collector. It may change while threads are in the collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switch {
    pub(crate) on: [u8; 4],
    pub(crate) off: [u8; 4],
}

/// The progress of a thread in a collector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// The hit is not recorded.
    Before,
    /// The hit is recorded, and the displaced instructions have not been executed.
    Dealt,
    /// As `Dealt`, and the collector has trapped to ask the stub to drain.
    Alarmed,
    /// Some of the displaced instructions have been executed: without the collector, the thread
    /// would be in the middle of the bytes that the jump replaces.
    Inside,
    /// All displaced instructions have been executed.
    After,
    /// The collector has left the hit to the stub.
    Slow,
}

/// The state of a thread in a collector, apart from the registers that it would have without it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) standing: Standing,
    /// Address of the state of a slot that the thread has taken and not filled: it must be freed.
    pub(crate) claimed: Option<u64>,
}

impl Position {
    /// The position of a thread that may have taken a slot. `mine` is the address of that slot's
    /// state, and the bytes with which the state begins if the thread has taken it.
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

/// Register sets with their indices, in the kernel's format at a trap.
#[derive(Default)]
pub(crate) struct Sets(Vec<(usize, Vec<u8>)>);

impl Sets {
    /// The set with this index, to be filled. Its size is always the same.
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize, size: usize) -> &mut [u8] {
        let known = self.0.iter().position(|(known, _)| *known == index);
        let known = known.unwrap_or_else(|| {
            self.0.push((index, vec![0; size]));
            self.0.len() - 1
        });
        &mut self.0[known].1
    }

    /// The set with this index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        let set = self.0.iter().find(|(known, _)| *known == index);
        set.map(|(_, bytes)| &bytes[..])
    }

    /// The sets there are, one bit each.
    #[inline]
    pub(crate) fn known(&self) -> u8 {
        self.0
            .iter()
            .fold(0, |known, (index, _)| known | 1 << index)
    }
}

/// The contents of a slot.
pub(crate) struct Noted<'a>(pub(crate) &'a [u8]);

impl<'a> Noted<'a> {
    #[inline]
    pub(super) fn at(&self, offset: u8) -> u64 {
        let bytes = self.0.get(usize::from(offset)..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(super) fn half(&self, offset: u8) -> u32 {
        let bytes = self.0.get(usize::from(offset)..);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// The collector's number.
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.half(ID)
    }

    #[inline]
    pub(crate) fn thread(&self) -> i32 {
        self.half(THREAD).cast_signed()
    }

    #[inline]
    pub(crate) fn stack_pointer(&self) -> u64 {
        self.at(STACK_POINTER)
    }

    #[inline]
    pub(crate) fn stack_left(&self) -> u64 {
        self.at(STACK_END).wrapping_sub(self.stack_pointer())
    }

    /// The processor; -1 if it is unknown.
    #[inline]
    pub(crate) fn processor(&self) -> i32 {
        self.half(PROCESSOR).cast_signed()
    }

    /// The processor's clock at the beginning and at the end of the recording.
    #[inline]
    pub(crate) fn ticks(&self) -> (u64, u64) {
        (self.at(BEGIN), self.at(END))
    }

    /// Reads the recorded register sets.
    pub(crate) fn read_sets(&self, at: u64, into: &mut Sets) {
        collector::sets(self, at, into);
    }

    /// The bytes recorded of each of these blocks.
    #[inline]
    pub(crate) fn blocks(&self, blocks: &[Block]) -> impl Iterator<Item = &'a [u8]> {
        let places = self.places(blocks);
        places.map(|place| self.0.get(place).unwrap_or_default())
    }

    /// Number of bytes of the slot that are used if these blocks were recorded.
    #[inline]
    pub(crate) fn used(&self, blocks: &[Block]) -> u64 {
        let end = self.places(blocks).last().map(|last| last.end);
        end.unwrap_or(collector::BLOCKS) as u64
    }

    #[inline]
    fn places(&self, blocks: &[Block]) -> impl Iterator<Item = Range<usize>> {
        let mut offset = collector::BLOCKS as u64;
        blocks.iter().enumerate().map(move |(index, block)| {
            let length = self.half(LENGTHS + 4 * index as u8).min(block.length);
            let start = offset as usize;
            offset += block.room();
            start..start + length as usize
        })
    }
}
