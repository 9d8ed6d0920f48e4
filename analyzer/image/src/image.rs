//! One ELF file: its headers, segments, sections and the bytes behind them.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::{Arch, BuildId, Dynamic, Error, Symbols};

/// One parsed ELF file, owning its bytes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Image {}

/// A `PT_LOAD` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub svma: u64,
    /// Where its bytes are in the file.
    pub file_offset: u64,
    /// How many bytes the file has for it.
    pub file_size: u64,
    /// How many bytes it has in memory; those past `file_size` are zero.
    pub mem_size: u64,
    /// `PF_X` 1, `PF_W` 2, `PF_R` 4.
    pub flags: u32,
}

/// What kind of ELF file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageKind {
    /// `ET_EXEC`: mapped where it says.
    Executable,
    /// `ET_DYN`: a shared library or position-independent executable.
    Dynamic,
    /// Anything else: relocatable, core.
    Other(u16),
}

/// A section's place and content.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// First address; 0 if it is not mapped.
    pub svma: u64,
    /// Its bytes, decompressed.
    pub data: Cow<'a, [u8]>,
}

impl Image {
    /// Reads and parses a file.
    pub fn open(path: &Path) -> Result<Image, Error> {
        todo!()
    }
    /// Parses bytes; `name` is for messages.
    pub fn parse(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Image, Error> {
        todo!()
    }
    /// Its architecture.
    pub fn arch(&self) -> Arch {
        todo!()
    }
    /// The name given when it was opened.
    pub fn name(&self) -> &str {
        todo!()
    }
    /// All bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        todo!()
    }
    /// Its build-id.
    pub fn build_id(&self) -> Option<&BuildId> {
        todo!()
    }
    /// What kind of file it is.
    pub fn kind(&self) -> ImageKind {
        todo!()
    }
    /// True for a position-independent executable: `ET_DYN` with an interpreter or `DF_1_PIE`.
    pub fn is_pie(&self) -> bool {
        todo!()
    }
    /// True if data is big endian.
    pub fn is_big_endian(&self) -> bool {
        todo!()
    }
    /// Entry point, as the header has it (ARM: bit 0 means Thumb).
    pub fn entry(&self) -> u64 {
        todo!()
    }
    /// `PT_INTERP`.
    pub fn interpreter(&self) -> Option<&str> {
        todo!()
    }
    /// The `PT_LOAD` segments, in file order.
    pub fn segments(&self) -> &[Segment] {
        todo!()
    }
    /// Where the dynamic section is mapped.
    pub fn dynamic_svma(&self) -> Option<u64> {
        todo!()
    }
    /// Values of the dynamic section.
    pub fn dynamic(&self) -> &Dynamic {
        todo!()
    }
    /// `DT_NEEDED` names.
    pub fn needed(&self) -> &[String] {
        todo!()
    }
    /// A section by name; `.eh_frame_hdr`, `.ARM.exidx` and `.dynamic` are found by program header,
    /// too.
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        todo!()
    }
    /// Executable address ranges: executable sections, else executable segments.
    pub fn text_ranges(&self) -> Vec<Range<u64>> {
        todo!()
    }
    /// Bytes of a loaded segment, as the file has them.
    pub fn bytes_at(&self, svma: u64, len: usize) -> Option<&[u8]> {
        todo!()
    }
    /// Merged symbols.
    pub fn symbols(&self) -> &Symbols {
        todo!()
    }
    /// Attaches a separate debug file: its symbols, DWARF and `.debug_frame` serve this image.
    pub fn with_debug_file(self, debug: Image) -> Image {
        todo!()
    }
    /// The attached debug file.
    pub fn debug_image(&self) -> Option<&Image> {
        todo!()
    }
    /// Attaches the supplementary file (dwz) that `.gnu_debugaltlink` names.
    pub fn with_supplementary_file(self, supplementary: Image) -> Image {
        todo!()
    }
    /// The attached supplementary file.
    pub fn supplementary_image(&self) -> Option<&Image> {
        todo!()
    }
    /// Whether the code at an address is Thumb; `None` if not known (or not ARM).
    pub fn thumb_at(&self, svma: u64) -> Option<bool> {
        todo!()
    }
    /// What was damaged or missing.
    pub fn notes(&self) -> &[String] {
        todo!()
    }
}
