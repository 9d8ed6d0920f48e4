//! The trace buffer: frames in the order of the hits, of bounded size.
//!
//! A frame is kept as gdb's trace files have it (GDB manual, "Experiment File Format"), so that it
//! can be handed out as it is: the tracepoint's number in two bytes, the length in four, then
//! blocks.
//!
//! ```text
//! R registers as in the g packet
//! M address (8) length (2) bytes
//! V number (4) value (8)
//! ```
//! A register set that was not collected is zeroes there; [`Frame::sets`] tells.

use std::collections::VecDeque;
use std::time::Instant;

/// What gdbserver has, too: a MiB.
const DEFAULT_SIZE: usize = 1 << 20;
/// The largest one may ask for.
const LARGEST: usize = 256 << 20;
/// Number and length.
const HEADER: usize = 6;
/// By how much needed frames may exceed the size at most.
const MAX_RESERVE: usize = 16 << 20;
/// What one block of memory can hold.
const LONGEST_BLOCK: usize = 0xffff;

/// What was collected at one hit of one tracepoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// The tracepoint's number.
    pub(crate) tracepoint: u32,
    /// Where it was hit.
    pub(crate) pc: u64,
    /// When.
    pub(crate) time: Instant,
    /// The register sets that the registers were taken from, one bit each.
    pub(crate) sets: u8,
    /// A buffer that is drained keeps it beyond its size, rather than lose it.
    pub(crate) needed: bool,
    blocks: Vec<u8>,
}

/// The variable of frames that are no hits: a place in the order of the hits behind which some are
/// missing (docs/reference/protocol.md).
const MARK: u32 = u32::MAX;

/// Why hits are missing behind a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// None any more: the tracepoint goes on.
    Resumed,
    /// The tracepoint is paused.
    Paused,
    /// There was no room for some, just before.
    Dropped,
}

/// A part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block<'a> {
    /// As in the `g` packet.
    Registers(&'a [u8]),
    /// Memory.
    Memory { address: u64, bytes: &'a [u8] },
    /// A trace state variable.
    Variable { number: u32, value: i64 },
}

impl Frame {
    /// A frame with nothing in it.
    pub(crate) fn new(tracepoint: u32, pc: u64) -> Frame {
        Frame {
            tracepoint,
            pc,
            time: Instant::now(),
            sets: 0,
            needed: false,
            blocks: Vec::new(),
        }
    }

    /// No hit, but a mark among them.
    pub(crate) fn mark(tracepoint: u32, pc: u64, mark: Mark) -> Frame {
        let mut frame = Frame::new(tracepoint, pc);
        frame.needed = true;
        frame.add_variable(MARK, mark as i64);
        frame
    }

    /// Adds registers of these sets, unless there are some.
    pub(crate) fn add_registers(&mut self, sets: u8, registers: &[u8]) {
        if self.sets == 0 {
            self.sets = sets;
            self.blocks.push(b'R');
            self.blocks.extend_from_slice(registers);
        }
    }

    /// Adds memory.
    pub(crate) fn add_memory(&mut self, address: u64, bytes: &[u8]) {
        for (index, part) in bytes.chunks(LONGEST_BLOCK).enumerate() {
            let at = address.wrapping_add((index * LONGEST_BLOCK) as u64);
            self.blocks.push(b'M');
            self.blocks.extend_from_slice(&at.to_le_bytes());
            self.blocks
                .extend_from_slice(&(part.len() as u16).to_le_bytes());
            self.blocks.extend_from_slice(part);
        }
    }

    /// Adds the value of a variable.
    pub(crate) fn add_variable(&mut self, number: u32, value: i64) {
        self.blocks.push(b'V');
        self.blocks.extend_from_slice(&number.to_le_bytes());
        self.blocks.extend_from_slice(&value.to_le_bytes());
    }

    /// What it holds, given the size of a `g` packet.
    pub(crate) fn blocks(&self, registers: usize) -> Vec<Block<'_>> {
        let mut rest = &self.blocks[..];
        let mut blocks = Vec::new();
        while let Some((kind, after)) = rest.split_first() {
            let (block, after) = match kind {
                b'R' => {
                    let (bytes, after) = after.split_at(registers.min(after.len()));
                    (Block::Registers(bytes), after)
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

    /// Bytes it takes of the buffer.
    pub(crate) fn size(&self) -> usize {
        HEADER + self.blocks.len()
    }

    /// Appends it as trace files have it.
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&(self.tracepoint as u16).to_le_bytes());
        into.extend_from_slice(&(self.blocks.len() as u32).to_le_bytes());
        into.extend_from_slice(&self.blocks);
    }
}

/// The first eight bytes.
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
    /// A client takes the frames out as they come. They are put in the order of their times, and
    /// those that are needed may exceed the size. Without such a client frames keep their numbers.
    pub(crate) drained: bool,
    /// Frames ever added.
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

    /// Sets the size, within reason; `None`: as it was in the beginning.
    pub(crate) fn resize(&mut self, size: Option<u64>) {
        let size = size.map_or(DEFAULT_SIZE, |size| {
            usize::try_from(size).unwrap_or(usize::MAX).min(LARGEST)
        });
        self.size = size;
        while self.used > self.size && self.drop_first().is_some() {}
    }

    /// Adds a frame; `false`: there is no room.
    pub(crate) fn add(&mut self, mut frame: Frame) -> bool {
        // It grew as it was filled; what it holds is what counts.
        frame.blocks.shrink_to_fit();
        if !self.fits(&frame) {
            return false;
        }
        let size = frame.size();
        while self.used + size > self.limit(&frame) && self.drop_first().is_some() {}
        self.used += size;
        self.created += 1;
        // A hit that was noted in the program may come after later ones.
        let not_later = |known: &Frame| known.time <= frame.time || !self.drained;
        let later = self.frames.iter().rev().position(not_later);
        let at = self.frames.len() - later.unwrap_or(self.frames.len());
        self.frames.insert(at, frame);
        true
    }

    /// Whether there is room for a frame, or can be made.
    pub(crate) fn fits(&self, frame: &Frame) -> bool {
        let used = if self.circular { 0 } else { self.used };
        used + frame.size() <= self.limit(frame)
    }

    /// How many bytes may be used once the frame is there.
    fn limit(&self, frame: &Frame) -> usize {
        match frame.needed && self.drained {
            true => self.size + self.reserve(),
            false => self.size,
        }
    }

    /// Takes the oldest frame out.
    pub(crate) fn drop_first(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.used -= frame.size();
        Some(frame)
    }

    /// All frames, by their numbers.
    pub(crate) fn frames(&self) -> &VecDeque<Frame> {
        &self.frames
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes that are free.
    pub(crate) fn free(&self) -> usize {
        self.size.saturating_sub(self.used)
    }

    /// Bytes that only needed frames may use.
    fn reserve(&self) -> usize {
        self.size.min(MAX_RESERVE)
    }

    /// Whether half of what is reserved for needed frames is used.
    pub(crate) fn reserve_is_short(&self) -> bool {
        self.used > self.size + self.reserve() / 2
    }

    /// Up to `length` bytes from `offset` on, of all frames one behind the other.
    pub(crate) fn part(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut part = Vec::new();
        for frame in &self.frames {
            if skip >= frame.size() {
                skip -= frame.size();
                continue;
            }
            let mut bytes = Vec::with_capacity(frame.size());
            frame.write(&mut bytes);
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
