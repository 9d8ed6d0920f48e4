//! The code of an image in the form that the engine reads: bytes by address, instructions, known
//! data and functions that do not return. Apart so that a read costs no more than indexing a slice.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use unspool_image::{CodeKind, Image, Symbols};

use super::byte_map::ByteMap;
use super::effect::{Instruction, InstructionBuilder, Target};
use super::handlers::Handler;
use super::machine::Machine;
use super::{a32, a64, t32, x86};

/// The mapped bytes of an image.
pub(crate) struct Text<'i> {
    pub(crate) machine: &'static Machine,
    /// Start and bytes of the mapped pieces, or of a part of one.
    pieces: Vec<(u64, &'i [u8])>,
    /// The image, for bytes outside the pieces.
    image: Option<&'i Image>,
    /// The analysed executable ranges, sorted.
    ranges: Vec<Range<u64>>,
    /// All executable ranges, if only a region of them is analysed.
    all: Vec<Range<u64>>,
    /// The end of the file's headers, where they are mapped.
    headers: u64,
    /// Symbols, if mapping symbols may tell data from code.
    symbols: Option<&'i Symbols>,
    /// Functions that do not return.
    pub(super) noreturn: ByteMap,
    /// Functions outside the analysed ranges that do not return, sorted.
    pub(super) noreturn_elsewhere: Arc<[u64]>,
    /// By function: the caller-saved registers that it preserves, one bit each.
    pub(crate) preserved_by: HashMap<u64, u32>,
    /// Addresses of data that code refers to, sorted.
    pub(crate) references: Vec<u64>,
    /// Prologues that control reaches neither from the instruction before nor by a jump.
    pub(super) prologues: ByteMap,
    /// Addresses of relocated words and their values, sorted.
    pub(crate) relocations: Arc<[(u64, u64)]>,
    /// Landing pads, sorted.
    pub(crate) handlers: Vec<Handler>,
}

impl<'i> Text<'i> {
    pub(crate) fn new(machine: &'static Machine, image: &'i Image, symbols: bool) -> Text<'i> {
        let pieces = image
            .segments()
            .iter()
            .filter_map(|segment| {
                let len = usize::try_from(segment.file_size).ok()?;
                Some((segment.svma, image.bytes_at(segment.svma, len)?))
            })
            .collect();
        let pieces: Vec<(u64, &[u8])> = pieces;
        let ranges = image.text_ranges();
        Text {
            headers: headers(&pieces),
            pieces,
            noreturn: ByteMap::new(first(&ranges), last(&ranges)),
            ranges,
            ..Text::sparse(machine, image, symbols)
        }
    }

    /// All of `image`, for reading single places.
    pub(crate) fn sparse(machine: &'static Machine, image: &'i Image, symbols: bool) -> Text<'i> {
        let symbols = symbols.then(|| image.symbols());
        Text {
            machine,
            headers: image_headers(image),
            pieces: Vec::new(),
            image: Some(image),
            ranges: image.text_ranges(),
            all: Vec::new(),
            symbols: symbols.filter(|symbols| symbols.code_map().next().is_some()),
            noreturn: ByteMap::default(),
            noreturn_elsewhere: Arc::default(),
            preserved_by: HashMap::new(),
            relocations: Arc::default(),
            references: Vec::new(),
            prologues: ByteMap::default(),
            handlers: Vec::new(),
        }
    }

    /// One range of `image`'s code, which has these bytes.
    pub(crate) fn region(
        machine: &'static Machine,
        image: &'i Image,
        symbols: bool,
        (range, bytes): (Range<u64>, &'i [u8]),
    ) -> Text<'i> {
        Text {
            pieces: vec![(range.start, bytes)],
            noreturn: ByteMap::new(range.start, range.end),
            ranges: vec![range],
            all: image.text_ranges(),
            ..Text::sparse(machine, image, symbols)
        }
    }

    /// Code alone, at address 0.
    #[cfg(test)]
    pub(crate) fn of_bytes(machine: &'static Machine, bytes: &'i [u8]) -> Text<'i> {
        Text {
            machine,
            headers: 0,
            pieces: vec![(0, bytes)],
            image: None,
            ranges: std::iter::once(0..bytes.len() as u64).collect(),
            all: Vec::new(),
            symbols: None,
            noreturn: ByteMap::new(0, bytes.len() as u64),
            noreturn_elsewhere: Arc::default(),
            preserved_by: HashMap::new(),
            relocations: Arc::default(),
            references: Vec::new(),
            prologues: ByteMap::default(),
            handlers: Vec::new(),
        }
    }

    /// The bytes from `svma` on. Analysed text is returned to its end, other memory as far as
    /// available.
    #[inline]
    pub(crate) fn bytes(&self, svma: u64) -> &'i [u8] {
        for &(start, bytes) in &self.pieces {
            if let Some(skip) = svma.checked_sub(start)
                && skip < bytes.len() as u64
            {
                return &bytes[skip as usize..];
            }
        }
        self.bytes_elsewhere(svma)
    }

    #[cold]
    fn bytes_elsewhere(&self, svma: u64) -> &'i [u8] {
        let bytes = self.image.and_then(|image| image.bytes_from(svma));
        bytes.unwrap_or(&[])
    }

    /// The instruction at `svma`.
    pub(crate) fn decode(&self, svma: u64, thumb: bool) -> Option<Instruction> {
        decode(self.machine, self.bytes(svma), svma, thumb)
    }

    /// The halfword at `svma`.
    pub(crate) fn half(&self, svma: u64) -> Option<u16> {
        half(self.bytes(svma))
    }

    /// The word at `svma`.
    pub(crate) fn word(&self, svma: u64) -> Option<u32> {
        word(self.bytes(svma))
    }

    /// The unsigned number of `size` bytes at `svma`.
    pub(crate) fn number(&self, svma: u64, size: u8) -> Option<u64> {
        let bytes = self.bytes(svma).get(..usize::from(size.min(8)))?;
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(value))
    }

    /// The address stored in data at `svma`.
    pub(crate) fn pointer(&self, svma: u64) -> Option<u64> {
        let value = self.number(svma, self.machine.slot as u8)?;
        if value != 0 {
            return Some(value);
        }
        let index = self
            .relocations
            .binary_search_by_key(&svma, |entry| entry.0)
            .ok()?;
        Some(self.relocations[index].1)
    }

    /// The analysed executable ranges, sorted.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether the file has a byte at `svma`.
    pub(crate) fn is_mapped(&self, svma: u64) -> bool {
        !self.bytes(svma).is_empty()
    }

    /// Whether a table may be at `svma`. The file's headers contain no table, and any small number
    /// would look like an address in them.
    pub(crate) fn may_be_table(&self, svma: u64) -> bool {
        svma >= self.headers && self.is_mapped(svma)
    }

    /// The highest possible end of the object at `svma`: the next address that code refers to.
    pub(crate) fn object_end(&self, svma: u64) -> u64 {
        let after = self.references.partition_point(|&other| other <= svma);
        self.references.get(after).copied().unwrap_or(u64::MAX)
    }

    /// The first executable address.
    pub(crate) fn start(&self) -> u64 {
        first(&self.ranges)
    }

    /// One past the last executable address.
    pub(crate) fn end(&self) -> u64 {
        last(&self.ranges)
    }

    /// The analysed range that contains `svma`.
    pub(crate) fn range(&self, svma: u64) -> Option<&Range<u64>> {
        let after = self.ranges.partition_point(|range| range.start <= svma);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(&svma).then_some(range)
    }

    /// Whether `svma` is in analysed text.
    pub(crate) fn is_text(&self, svma: u64) -> bool {
        self.range(svma).is_some()
    }

    /// Whether `svma` is executable, analysed or not.
    pub(crate) fn is_code(&self, svma: u64) -> bool {
        self.is_text(svma) || self.all.iter().any(|range| range.contains(&svma))
    }

    /// Whether `svma` is known to be data.
    pub(crate) fn is_data(&self, svma: u64) -> bool {
        self.symbols
            .is_some_and(|symbols| symbols.code_kind(svma) == Some(CodeKind::Data))
    }

    /// The landing pad for an exception that passes the call at `svma`.
    pub(crate) fn pad(&self, svma: u64) -> Option<u64> {
        let after = self
            .handlers
            .partition_point(|handler| handler.start <= svma);
        let handler = self.handlers.get(after.checked_sub(1)?)?;
        (svma < handler.end).then_some(handler.pad)
    }

    /// The caller-saved registers that the function at `target` is known to preserve, one bit each.
    #[inline]
    pub(crate) fn preserved(&self, target: Option<Target>) -> u32 {
        if self.preserved_by.is_empty() {
            return 0;
        }
        let preserved = target.and_then(|target| self.preserved_by.get(&target.svma));
        preserved.copied().unwrap_or(0)
    }

    /// Whether the function at `target` is known not to return.
    pub(crate) fn never_returns(&self, target: Target) -> bool {
        self.noreturn.contains(target.svma)
            || self.noreturn_elsewhere.binary_search(&target.svma).is_ok()
    }
}

/// The end of the headers that an image has mapped.
fn image_headers(image: &Image) -> u64 {
    let segments = image.segments().iter();
    let pieces: Vec<(u64, &[u8])> = segments
        .filter_map(|segment| Some((segment.svma, image.bytes_from(segment.svma)?)))
        .collect();
    headers(&pieces)
}

/// The end of the ELF header and the program headers at the start of the first piece (gABI, chapter
/// 4: e_phoff, e_phentsize and e_phnum).
fn headers(pieces: &[(u64, &[u8])]) -> u64 {
    let Some(&(start, bytes)) = pieces.iter().find(|piece| piece.1.starts_with(b"\x7fELF")) else {
        return 0;
    };
    let wide = bytes.get(4) == Some(&2);
    let at = |wide_at: usize, narrow_at: usize| bytes.get(if wide { wide_at } else { narrow_at }..);
    let offset = at(32, 28).and_then(word).unwrap_or(0);
    let size = at(54, 42).and_then(half).unwrap_or(0);
    let count = at(56, 44).and_then(half).unwrap_or(0);
    start + u64::from(offset) + u64::from(size) * u64::from(count)
}

fn first(ranges: &[Range<u64>]) -> u64 {
    ranges.first().map_or(0, |range| range.start)
}

fn last(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end).max().unwrap_or(0)
}

/// Decodes the instruction at the start of `bytes`.
#[inline]
pub(crate) fn decode(
    machine: &Machine,
    bytes: &[u8],
    svma: u64,
    thumb: bool,
) -> Option<Instruction> {
    let mut instruction = Instruction::new(0);
    decode_to(machine, bytes, svma, thumb, &mut instruction)?;
    Some(instruction)
}

/// Decodes the instruction at the start of `bytes` into `instruction`. `None` if there is none;
/// `instruction` is then undefined.
#[inline]
pub(crate) fn decode_to(
    machine: &Machine,
    bytes: &[u8],
    svma: u64,
    thumb: bool,
    instruction: &mut Instruction,
) -> Option<()> {
    match machine.arch {
        unspool_image::Arch::X86_64 => {
            return x86::decode(bytes, svma, instruction).then_some(());
        }
        unspool_image::Arch::Aarch64 => {
            let word = word(bytes)?;
            *instruction = Instruction::new(4);
            a64::decode(InstructionBuilder(instruction), word, svma);
        }
        _ if !thumb => {
            let word = word(bytes)?;
            *instruction = Instruction::new(4);
            a32::decode(InstructionBuilder(instruction), word, svma);
        }
        _ => {
            let first = half(bytes)?;
            if t32::is_wide(first) {
                let second = half(bytes.get(2..)?)?;
                *instruction = Instruction::new(4);
                t32::decode_wide(InstructionBuilder(instruction), first, second, svma);
            } else {
                *instruction = Instruction::new(2);
                t32::decode_narrow(InstructionBuilder(instruction), first, svma);
            }
        }
    }
    Some(())
}

fn half(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.first_chunk()?))
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}
