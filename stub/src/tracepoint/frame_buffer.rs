//! The trace buffer: frames in the order of the hits, up to a fixed total size.
//!
//! A frame is stored in the format of gdb's trace files (GDB manual, "Experiment File Format"), so
//! that a client can get it as it is: the tracepoint's number in two bytes, the length in four,
//! then blocks.
//!
//! ```text
//! R registers as in the g packet
//! M address (8) length (2) bytes
//! V number (4) value (8)
//! ```
//! Registers of sets that were not collected are zero there. [`Frame::sets`] lists the collected
//! sets. For a client that wants it so, a frame has only the collected registers
//! (docs/reference/protocol.md, "Draining"):
//!
//! ```text
//! P offset in the g packet (2) length (2) bytes
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// The same size as gdbserver's buffer: 1 MiB.
const DEFAULT_SIZE: usize = 1 << 20;
/// Largest size that a client can set, in bytes.
const MAX_SIZE: usize = 256 << 20;
/// Size of a frame's tracepoint number and length, in bytes.
const HEADER: usize = 6;
/// Maximum number of bytes by which frames that must not be dropped may exceed the buffer's size.
const MAX_RESERVE: usize = 16 << 20;
/// Largest memory block, in bytes.
const MAX_BLOCK: usize = 0xffff;

/// The data collected at one hit of one tracepoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// The tracepoint's number.
    pub(crate) tracepoint: u32,
    /// The program counter at the hit.
    pub(crate) pc: u64,
    /// Time of the hit.
    pub(crate) time: Instant,
    /// The register sets that were collected, one bit each.
    pub(crate) sets: u8,
    /// A drained buffer exceeds its size rather than drop this frame.
    pub(crate) needed: bool,
    blocks: Vec<u8>,
}

/// The variable in marks. A mark is a frame without a hit: it shows where in the order of the hits
/// some are missing (docs/reference/protocol.md).
const MARK: u32 = u32::MAX;

/// Meaning of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// The tracepoint resumes, and no further hits are missing.
    Resumed,
    /// The tracepoint is paused from here on.
    Paused,
    /// Hits just before were dropped because the buffer was full.
    Dropped,
}

/// A part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block<'a> {
    /// As in the `g` packet.
    Registers(&'a [u8]),
    /// The bytes from an offset in the `g` packet on.
    Part { offset: usize, bytes: &'a [u8] },
    /// Memory.
    Memory { address: u64, bytes: &'a [u8] },
    /// A trace state variable.
    Variable { number: u32, value: i64 },
}

impl Frame {
    /// An empty frame.
    pub(crate) fn new(tracepoint: u32, pc: u64) -> Frame {
        Frame::with_room(tracepoint, pc, Instant::now(), 0)
    }

    /// An empty frame of a hit at `time`, with memory reserved for a [`size`](Self::size) of `size`
    /// bytes.
    pub(crate) fn with_room(tracepoint: u32, pc: u64, time: Instant, size: usize) -> Frame {
        Frame {
            tracepoint,
            pc,
            time,
            sets: 0,
            needed: false,
            blocks: Vec::with_capacity(size.saturating_sub(HEADER)),
        }
    }

    /// A mark instead of a hit.
    pub(crate) fn mark(tracepoint: u32, pc: u64, mark: Mark) -> Frame {
        let mut frame = Frame::new(tracepoint, pc);
        frame.needed = true;
        frame.add_variable(MARK, mark as i64);
        frame
    }

    /// Adds registers of these sets, unless the frame already has registers.
    pub(crate) fn add_registers(&mut self, sets: u8, registers: &[u8]) {
        if self.sets == 0 {
            self.sets = sets;
            self.blocks.push(b'R');
            self.blocks.extend_from_slice(registers);
        }
    }

    /// Adds the registers of these sets, unless the frame already has registers. `all` is as in
    /// [`add_registers`](Self::add_registers), and `parts` has the places of these registers in it.
    pub(crate) fn add_register_parts(
        &mut self,
        sets: u8,
        all: &[u8],
        parts: impl Iterator<Item = Range<usize>>,
    ) {
        if self.sets != 0 {
            return;
        }
        self.sets = sets;
        for part in parts {
            let bytes = all.get(part.clone()).unwrap_or_default();
            self.blocks.push(b'P');
            for number in [part.start, bytes.len()] {
                self.blocks
                    .extend_from_slice(&(number as u16).to_le_bytes());
            }
            self.blocks.extend_from_slice(bytes);
        }
    }

    /// Replaces parts of the registers with all registers.
    fn complete_registers(&mut self, registers: usize) {
        let mut all = vec![0; registers];
        let mut complete = Frame {
            blocks: Vec::new(),
            ..*self
        };
        complete.sets = 0;
        for block in self.blocks(registers) {
            if let Block::Part { offset, bytes } = block
                && let Some(into) = all.get_mut(offset..offset + bytes.len())
            {
                into.copy_from_slice(bytes);
            }
        }
        for block in self.blocks(registers) {
            match block {
                Block::Registers(bytes) => complete.add_registers(self.sets, bytes),
                Block::Part { .. } => complete.add_registers(self.sets, &all),
                Block::Memory { address, bytes } => complete.add_memory(address, bytes),
                Block::Variable { number, value } => complete.add_variable(number, value),
            }
        }
        *self = complete;
    }

    /// Adds memory.
    pub(crate) fn add_memory(&mut self, address: u64, bytes: &[u8]) {
        for (index, part) in bytes.chunks(MAX_BLOCK).enumerate() {
            let at = address.wrapping_add((index * MAX_BLOCK) as u64);
            self.blocks.push(b'M');
            self.blocks.extend_from_slice(&at.to_le_bytes());
            self.blocks
                .extend_from_slice(&(part.len() as u16).to_le_bytes());
            self.blocks.extend_from_slice(part);
        }
    }

    /// Adds the value of a variable.
    #[inline]
    pub(crate) fn add_variable(&mut self, number: u32, value: i64) {
        self.blocks.push(b'V');
        self.blocks.extend_from_slice(&number.to_le_bytes());
        self.blocks.extend_from_slice(&value.to_le_bytes());
    }

    /// The blocks of the frame. `registers` is the size of a `g` packet.
    pub(crate) fn blocks(&self, registers: usize) -> Vec<Block<'_>> {
        let mut rest = &self.blocks[..];
        let mut blocks = Vec::new();
        while let Some((kind, after)) = rest.split_first() {
            let (block, after) = match kind {
                b'R' => {
                    let (bytes, after) = after.split_at(registers.min(after.len()));
                    (Block::Registers(bytes), after)
                }
                b'P' => {
                    let Some((head, after)) = after.split_at_checked(4) else {
                        break;
                    };
                    let half =
                        |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
                    let (bytes, after) = after.split_at(half(2).min(after.len()));
                    let offset = half(0);
                    (Block::Part { offset, bytes }, after)
                }
                b'M' => {
                    let Some((head, after)) = after.split_at_checked(10) else {
                        break;
                    };
                    let length = usize::from(u16::from_le_bytes([head[8], head[9]]));
                    let (bytes, after) = after.split_at(length.min(after.len()));
                    let address = number(head);
                    (Block::Memory { address, bytes }, after)
                }
                _ => {
                    let Some((head, after)) = after.split_at_checked(12) else {
                        break;
                    };
                    let variable = Block::Variable {
                        number: u32::from_le_bytes([head[0], head[1], head[2], head[3]]),
                        value: number(&head[4..]).cast_signed(),
                    };
                    (variable, after)
                }
            };
            blocks.push(block);
            rest = after;
        }
        blocks
    }

    /// Size in the buffer, in bytes.
    pub(crate) fn size(&self) -> usize {
        HEADER + self.blocks.len()
    }

    /// The two parts of the frame in the format of trace files.
    pub(crate) fn parts(&self) -> ([u8; HEADER], &[u8]) {
        let number = (self.tracepoint as u16).to_le_bytes();
        let length = (self.blocks.len() as u32).to_le_bytes();
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&number);
        header[2..].copy_from_slice(&length);
        (header, &self.blocks)
    }
}

/// Decodes the first eight bytes.
fn number(bytes: &[u8]) -> u64 {
    let bytes = bytes.first_chunk().copied().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

/// The frames of one trace run.
pub(crate) struct Buffer {
    frames: VecDeque<Frame>,
    size: usize,
    used: usize,
    /// Old frames make room for new ones.
    pub(crate) circular: bool,
    /// A client takes the frames out as they come. Frames are then sorted by time, and needed
    /// frames may exceed the size. Without such a client, frames keep their numbers.
    pub(crate) drained: bool,
    /// Number of frames that were ever added.
    pub(crate) created: u64,
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer {
            frames: VecDeque::new(),
            size: DEFAULT_SIZE,
            used: 0,
            circular: false,
            drained: false,
            created: 0,
        }
    }
}

impl Buffer {
    /// Forgets all frames.
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.used = 0;
        self.created = 0;
    }

    /// Sets the size, up to [`MAX_SIZE`]. `None` restores the default.
    pub(crate) fn resize(&mut self, size: Option<u64>) {
        let size = size.map_or(DEFAULT_SIZE, |size| {
            usize::try_from(size).unwrap_or(usize::MAX).min(MAX_SIZE)
        });
        self.size = size;
        while self.used > self.size && self.drop_first().is_some() {}
    }

    /// Adds a frame. Returns `false` if there is no room.
    pub(crate) fn add(&mut self, mut frame: Frame) -> bool {
        // Filling the frame left spare capacity, and only its size is counted.
        frame.blocks.shrink_to_fit();
        if !self.fits(&frame) {
            return false;
        }
        let size = frame.size();
        while self.used + size > self.limit(&frame) && self.drop_first().is_some() {}
        self.used += size;
        self.created += 1;
        // A hit that the program recorded may be drained after later hits.
        let not_later = |known: &Frame| known.time <= frame.time || !self.drained;
        let later = self.frames.iter().rev().position(not_later);
        let at = self.frames.len() - later.unwrap_or(self.frames.len());
        self.frames.insert(at, frame);
        true
    }

    /// True if there is room for a frame, or if older frames can be dropped for it.
    pub(crate) fn fits(&self, frame: &Frame) -> bool {
        let used = if self.circular { 0 } else { self.used };
        used + frame.size() <= self.limit(frame)
    }

    /// Maximum number of bytes used once the frame is added.
    fn limit(&self, frame: &Frame) -> usize {
        match frame.needed && self.drained {
            true => self.size + self.reserve(),
            false => self.size,
        }
    }

    /// Replaces parts of the registers with all registers in each frame.
    pub(crate) fn complete_registers(&mut self, registers: usize) {
        for frame in &mut self.frames {
            self.used -= frame.size();
            frame.complete_registers(registers);
            self.used += frame.size();
        }
    }

    /// Takes out the oldest frame.
    pub(crate) fn drop_first(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.used -= frame.size();
        Some(frame)
    }

    /// All frames, in the order of their numbers.
    pub(crate) fn frames(&self) -> &VecDeque<Frame> {
        &self.frames
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Number of free bytes.
    pub(crate) fn free(&self) -> usize {
        self.size.saturating_sub(self.used)
    }

    /// Number of bytes that only needed frames may use.
    fn reserve(&self) -> usize {
        self.size.min(MAX_RESERVE)
    }

    /// True if more than half of the reserve for needed frames is used.
    pub(crate) fn reserve_is_short(&self) -> bool {
        self.used > self.size + self.reserve() / 2
    }

    /// Up to `length` bytes from `offset`, as if all frames stood one behind the other.
    pub(crate) fn part(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut part = Vec::new();
        for frame in &self.frames {
            if skip >= frame.size() {
                skip -= frame.size();
                continue;
            }
            let (header, blocks) = frame.parts();
            let bytes = [&header[..], blocks].concat();
            let rest = &bytes[skip..];
            skip = 0;
            part.extend_from_slice(&rest[..rest.len().min(length - part.len())]);
            if part.len() == length {
                break;
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tracepoint: u32, bytes: usize) -> Frame {
        let mut frame = Frame::new(tracepoint, 0x1000);
        frame.add_memory(0x2000, &vec![7; bytes]);
        frame
    }

    #[test]
    fn blocks_come_back() {
        let mut frame = Frame::new(3, 0x1000);
        frame.add_registers(1, &[1, 2, 3, 4]);
        frame.add_registers(1, &[9, 9, 9, 9]);
        frame.add_memory(0x2000, &[5; 0x10001]);
        frame.add_variable(7, -2);
        let blocks = frame.blocks(4);
        assert_eq!(blocks[0], Block::Registers(&[1, 2, 3, 4]));
        let Block::Memory { address, bytes } = blocks[2] else {
            panic!("{:?}", blocks.len());
        };
        assert_eq!((address, bytes), (0x2000 + 0xffff, &[5, 5][..]));
        let variable = Block::Variable {
            number: 7,
            value: -2,
        };
        assert_eq!(blocks[3..], [variable]);
    }

    #[test]
    fn parts_of_registers_become_all_registers() {
        let all = [1, 2, 3, 4, 0, 0, 7, 8];
        let mut buffer = Buffer::default();
        let mut short = Frame::new(3, 0x1000);
        short.add_register_parts(5, &all, [0..4, 6..8].into_iter());
        short.add_register_parts(5, &[9; 8], std::iter::once(0..8));
        short.add_variable(7, -2);
        let parts = short.blocks(8);
        let second = Block::Part {
            offset: 6,
            bytes: &[7, 8],
        };
        assert_eq!((parts.len(), parts[1]), (3, second));
        assert!(buffer.add(short));
        buffer.complete_registers(8);
        let frame = &buffer.frames()[0];
        let variable = Block::Variable {
            number: 7,
            value: -2,
        };
        assert_eq!(frame.blocks(8), [Block::Registers(&all), variable]);
        assert_eq!((frame.sets, buffer.used), (5, frame.size()));
        assert!(buffer.drop_first().is_some() && buffer.used == 0);
    }

    #[test]
    fn full_or_circular() {
        let mut buffer = Buffer::default();
        buffer.resize(Some(300));
        for number in 0..3 {
            assert_eq!(buffer.add(frame(number, 100)), number < 2);
        }
        buffer.circular = true;
        assert!(buffer.add(frame(3, 100)) && !buffer.add(frame(4, 400)));
        let numbers: Vec<u32> = buffer.frames().iter().map(|f| f.tracepoint).collect();
        assert_eq!((numbers, buffer.created), (vec![1, 3], 3));
        assert_eq!(buffer.free(), 300 - 2 * 117);
    }

    #[test]
    fn needed_frames_have_room_of_their_own() {
        let mut buffer = Buffer {
            drained: true,
            ..Buffer::default()
        };
        buffer.resize(Some(300));
        let needed = |number| Frame {
            needed: true,
            ..frame(number, 100)
        };
        let added = [frame(1, 100), frame(2, 100), frame(3, 100)].map(|f| buffer.add(f));
        assert_eq!(added, [true, true, false]);
        let added = [4, 5, 6, 7].map(|number| {
            let added = buffer.add(needed(number));
            (added, buffer.reserve_is_short())
        });
        assert_eq!(
            added,
            [(true, false), (true, true), (true, true), (false, true)]
        );
        assert!(!buffer.add(frame(8, 1)) && buffer.free() == 0);
        buffer.drained = false;
        assert!(!buffer.add(needed(9)));
    }

    #[test]
    fn in_the_order_of_their_times() {
        let now = Instant::now();
        let at = |number: u32, seconds| {
            let mut frame = frame(number, 1);
            frame.time = now + std::time::Duration::from_secs(seconds);
            frame
        };
        let all = [(1, 5), (2, 5), (3, 4), (4, 6), (5, 5), (6, 1)];
        for (drained, order) in [(true, [6, 3, 1, 2, 5, 4]), (false, [1, 2, 3, 4, 5, 6])] {
            let mut buffer = Buffer {
                drained,
                ..Buffer::default()
            };
            for (number, seconds) in all {
                assert!(buffer.add(at(number, seconds)));
            }
            let numbers: Vec<u32> = buffer.frames().iter().map(|f| f.tracepoint).collect();
            assert_eq!(numbers, order);
        }
    }

    #[test]
    fn parts_are_of_the_whole() {
        let mut buffer = Buffer::default();
        (0..3).for_each(|number| assert!(buffer.add(frame(number, 10 + number as usize))));
        let whole = buffer.part(0, 1000);
        assert_eq!(whole.len(), 27 + 28 + 29);
        assert_eq!(whole[..6], [0, 0, 21, 0, 0, 0]);
        for (offset, length) in [(0, 5), (26, 3), (30, 40), (84, 1), (80, 100)] {
            let end = (offset + length).min(whole.len());
            assert_eq!(buffer.part(offset as u64, length), whole[offset..end]);
        }
    }
}
