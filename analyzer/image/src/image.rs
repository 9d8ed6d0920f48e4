//! One ELF file: its headers, segments, sections and bytes.

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::dynamic::Dynamic;
use crate::image::contents::Contents;
use crate::image::layout::{
    Layout, PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, SHF_ALLOC, SHF_EXECINSTR,
};
use crate::{Arch, BuildId, CodeKind, Error, Symbols};

mod contents;
pub(crate) mod layout;
mod relocatable;
mod section;
pub(crate) mod tables;

pub use contents::Identity;
pub(crate) use contents::SharedBytes;
pub use section::Section;

/// Maximum size of a file. The largest debug files in use are smaller.
const SIZE_LIMIT: u64 = 8 << 30;

/// One parsed ELF file; cheap to clone. Bytes are read when needed. All addresses are svma, as
/// stated in the file.
#[derive(Clone)]
pub struct Image {
    file: Arc<File>,
    debug: Option<Box<Image>>,
    supplementary: Option<Box<Image>>,
    symbols: Arc<OnceLock<Symbols>>,
    from_server: bool,
}

pub(crate) struct File {
    name: String,
    pub(crate) contents: Contents,
    pub(crate) layout: Layout,
    segments: Vec<Segment>,
    build_id: Option<BuildId>,
    interpreter: Option<String>,
    dynamic: Dynamic,
    decompressed: Vec<OnceLock<Option<Arc<[u8]>>>>,
    mini_debug: OnceLock<Result<Option<Image>, String>>,
}

/// A `PT_LOAD` segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub svma: u64,
    /// Offset of its bytes in the file.
    pub file_offset: u64,
    /// Number of its bytes in the file.
    pub file_size: u64,
    /// Number of its bytes in memory. Bytes past `file_size` are zero.
    pub mem_size: u64,
    /// `PF_X` 1, `PF_W` 2, `PF_R` 4.
    pub flags: u32,
}

fn svma_of_code(segments: &[Segment], offset: u64, length: u64) -> Option<u64> {
    let end = offset.saturating_add(length);
    let code = segments.iter().find(|segment| {
        let file_end = segment.file_offset.saturating_add(segment.file_size);
        segment.is_executable() && segment.file_offset < end && offset < file_end
    })?;
    Some(
        code.svma
            .wrapping_add(offset.wrapping_sub(code.file_offset)),
    )
}

impl Segment {
    /// Its address range in memory.
    pub fn range(&self) -> Range<u64> {
        self.svma..self.svma.saturating_add(self.mem_size)
    }

    /// Whether its bytes may be executed.
    pub fn is_executable(&self) -> bool {
        self.flags & PF_X != 0
    }
}

/// The type of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageKind {
    /// `ET_EXEC`: mapped at its stated addresses.
    Executable,
    /// `ET_DYN`: a shared library or position-independent executable.
    Dynamic,
    /// Anything else: relocatable, core.
    Other(u16),
}

impl Image {
    /// Opens a file and parses its headers.
    pub fn open(path: &Path) -> Result<Image, Error> {
        let file = std::fs::File::open(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Image::of_file(file, &path.display().to_string())
    }

    /// Parses the headers of an open file; `name` is for messages.
    pub fn of_file(file: std::fs::File, name: &str) -> Result<Image, Error> {
        let read = |source| Error::Read {
            path: name.into(),
            source,
        };
        let metadata = file.metadata().map_err(read)?;
        if metadata.is_dir() {
            return Err(read(ErrorKind::IsADirectory.into()));
        }
        if metadata.len() > SIZE_LIMIT {
            return Err(Error::TooLarge {
                name: name.to_owned(),
                size: metadata.len(),
                limit: SIZE_LIMIT,
            });
        }
        Image::of(name, Contents::open(file).map_err(read)?)
    }

    /// Parses bytes; `name` is for messages.
    pub fn parse(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Image, Error> {
        let bytes: Arc<[u8]> = bytes.into();
        Image::of(name, Contents::from(bytes))
    }

    fn of(name: &str, contents: Contents) -> Result<Image, Error> {
        let layout = Layout::read(name, &contents)?;
        let segments = layout
            .programs
            .iter()
            .filter(|program| program.kind == PT_LOAD)
            .map(|program| Segment {
                svma: program.svma,
                file_offset: program.offset,
                file_size: program.file_size,
                mem_size: program.mem_size,
                flags: program.flags,
            })
            .collect();
        let decompressed = layout.sections.iter().map(|_| OnceLock::new()).collect();
        let mut file = File {
            name: name.to_owned(),
            contents,
            layout,
            segments,
            build_id: None,
            interpreter: None,
            dynamic: Dynamic::default(),
            decompressed,
            mini_debug: OnceLock::new(),
        };
        file.note_cut_segments();
        file.build_id = file.read_build_id();
        file.interpreter = file.program_bytes(PT_INTERP).and_then(|bytes| {
            let path = layout::string_at(bytes, 0).unwrap_or(bytes);
            (path.len() < 4096).then(|| String::from_utf8_lossy(path).into_owned())
        });
        let (dynamic, notes) = Dynamic::read(&file);
        file.dynamic = dynamic;
        file.layout.notes.extend(notes);
        Ok(Image {
            file: Arc::new(file),
            debug: None,
            supplementary: None,
            symbols: Arc::default(),
            from_server: false,
        })
    }

    /// Whether the file ends before its segments do, as after an incomplete copy.
    pub fn is_truncated(&self) -> bool {
        self.file.cut_segments().next().is_some()
    }

    /// The architecture.
    pub fn arch(&self) -> Arch {
        self.file.layout.arch
    }

    /// The name given when it was opened.
    pub fn name(&self) -> &str {
        &self.file.name
    }

    /// All bytes of the file, which then stay in memory. Empty if the file cannot be read any more.
    pub fn bytes(&self) -> &[u8] {
        let contents = &self.file.contents;
        contents.get(0, contents.len()).unwrap_or(&[])
    }

    /// Size of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.file.contents.len()
    }

    /// An identity that no other file has, even one with the same build-id.
    pub fn identity(&self) -> Identity {
        self.file.contents.identity()
    }

    /// Passes all bytes of the file to `visit`, in order and in pieces, without keeping them in
    /// memory.
    ///
    /// # Errors
    /// The file cannot be read any more.
    pub fn visit_bytes(&self, visit: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
        self.file.contents.visit(visit)
    }

    /// The build-id.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.file.build_id.as_ref()
    }

    /// The type of the file.
    pub fn kind(&self) -> ImageKind {
        match self.file.layout.file_type {
            2 => ImageKind::Executable,
            3 => ImageKind::Dynamic,
            other => ImageKind::Other(other),
        }
    }

    /// Whether it is a position-independent executable: `ET_DYN` with an interpreter or `DF_1_PIE`.
    pub fn is_pie(&self) -> bool {
        self.kind() == ImageKind::Dynamic
            && (self.file.dynamic.is_pie || self.file.interpreter.is_some() && self.entry() != 0)
    }

    /// Whether data is big-endian.
    pub fn is_big_endian(&self) -> bool {
        self.file.layout.endian == object::Endianness::Big
    }

    /// The entry point in the header (ARM: bit 0 means Thumb).
    pub fn entry(&self) -> u64 {
        self.file.layout.entry
    }

    /// `PT_INTERP`: the dynamic linker's path on the target.
    pub fn interpreter(&self) -> Option<&str> {
        self.file.interpreter.as_deref()
    }

    /// The `PT_LOAD` segments, in file order.
    pub fn segments(&self) -> &[Segment] {
        &self.file.segments
    }

    /// The svma of the byte at an offset in the file, if it is loaded.
    pub fn svma_of_offset(&self, offset: u64) -> Option<u64> {
        self.segments().iter().find_map(|segment| {
            let within = offset.checked_sub(segment.file_offset)?;
            (within < segment.file_size).then(|| segment.svma.wrapping_add(within))
        })
    }

    /// The svma at which a mapping of code begins, from its first byte in the file and its length.
    /// Mappings begin with a page, so that byte may belong to the segment before.
    pub fn svma_of_code(&self, offset: u64, length: u64) -> Option<u64> {
        svma_of_code(self.segments(), offset, length)
    }

    /// The svma of the dynamic section.
    pub fn dynamic_svma(&self) -> Option<u64> {
        self.file.program(PT_DYNAMIC).map(|program| program.svma)
    }

    /// The values of the dynamic section.
    pub fn dynamic(&self) -> &Dynamic {
        &self.file.dynamic
    }

    /// `DT_NEEDED` names, in order.
    pub fn needed(&self) -> &[String] {
        &self.file.dynamic.needed
    }

    /// Executable address ranges, sorted: executable sections, else executable segments.
    pub fn text_ranges(&self) -> Vec<Range<u64>> {
        let wanted = SHF_ALLOC | SHF_EXECINSTR;
        let mut ranges: Vec<Range<u64>> = self
            .file
            .layout
            .sections
            .iter()
            .filter(|section| section.flags & wanted == wanted)
            .map(|section| section.svma..section.svma.saturating_add(section.size))
            .collect();
        if ranges.is_empty() {
            let executable = self
                .segments()
                .iter()
                .filter(|segment| segment.is_executable());
            ranges = executable.map(Segment::range).collect();
        }
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        ranges
    }

    /// Bytes of a loaded segment in the file. `None` if not all `len` bytes are in the file.
    pub fn bytes_at(&self, svma: u64, len: usize) -> Option<&[u8]> {
        self.file.bytes_at(svma, u64::try_from(len).ok()?)
    }

    /// Bytes of a loaded segment from `svma` on, as many as are in memory. At least 4 KiB unless
    /// the segment ends.
    pub fn bytes_from(&self, svma: u64) -> Option<&[u8]> {
        self.file.segments.iter().find_map(|segment| {
            let skip = svma.checked_sub(segment.svma)?;
            let left = segment
                .file_size
                .checked_sub(skip)
                .filter(|left| *left > 0)?;
            let bytes = self
                .file
                .contents
                .tail(segment.file_offset.checked_add(skip)?)?;
            Some(&bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))])
        })
    }

    /// Copies bytes of a loaded segment from `svma` on, for reading large parts once. Returns their
    /// number, which is smaller than `into` if the segment ends.
    pub fn copy_bytes(&self, svma: u64, into: &mut [u8]) -> usize {
        let found = self.segments().iter().find_map(|segment| {
            let skip = svma.checked_sub(segment.svma)?;
            let left = segment
                .file_size
                .checked_sub(skip)
                .filter(|left| *left > 0)?;
            Some((segment.file_offset.checked_add(skip)?, left))
        });
        let Some((offset, left)) = found else {
            return 0;
        };
        let len = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.file.contents.copy(offset, &mut into[..len])
    }

    /// Symbols of `.symtab`, `.dynsym`, `.gnu_debugdata` and the attached debug file, merged.
    pub fn symbols(&self) -> &Symbols {
        self.symbols.get_or_init(|| Symbols::read(self))
    }

    /// Attaches a separate debug file. This image then uses its symbols, DWARF and `.debug_frame`.
    pub fn with_debug_file(mut self, debug: Image) -> Image {
        self.supplementary = self.supplementary.or_else(|| debug.supplementary.clone());
        self.debug = Some(Box::new(debug));
        self.symbols = Arc::default();
        self
    }

    /// The attached debug file.
    pub fn debug_image(&self) -> Option<&Image> {
        self.debug.as_deref()
    }

    /// Attaches the supplementary file (made by dwz) that `.gnu_debugaltlink` of this image or of
    /// its debug file names.
    pub fn with_supplementary_file(mut self, supplementary: Image) -> Image {
        self.supplementary = Some(Box::new(supplementary));
        self
    }

    /// The attached supplementary file.
    pub fn supplementary_image(&self) -> Option<&Image> {
        self.supplementary.as_deref()
    }

    /// Marks the file as sent by a server, now or before.
    pub(crate) fn downloaded(mut self) -> Image {
        self.from_server = true;
        self
    }

    /// Whether a server sent the file, its debug file or its supplementary file. The build-id does
    /// not prove the contents: the server may have chosen both.
    pub fn is_downloaded(&self) -> bool {
        let parts = [self.debug_image(), self.supplementary_image()];
        self.from_server || parts.into_iter().flatten().any(Image::is_downloaded)
    }

    /// Whether the code at an address is Thumb: from mapping symbols, else from bit 0 of the
    /// function symbol. `None` if it is unknown or not ARM.
    pub fn thumb_at(&self, svma: u64) -> Option<bool> {
        if self.arch() != Arch::Arm {
            return None;
        }
        match self.symbols().code_kind(svma) {
            Some(CodeKind::Thumb) => return Some(true),
            Some(CodeKind::Arm) => return Some(false),
            Some(CodeKind::Data) | None => {}
        }
        let symbol = self.symbols().containing(svma)?;
        (symbol.kind == crate::SymbolKind::Function).then_some(symbol.thumb)
    }

    /// Damaged or missing parts, a clause each, including those of the debug file.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.file.layout.notes.clone();
        if let Some(Err(note)) = self.file.mini_debug.get() {
            notes.push(note.clone());
        }
        if let Some(debug) = &self.debug {
            let name = debug.name();
            notes.extend(
                debug
                    .notes()
                    .into_iter()
                    .map(|note| format!("{name}: {note}")),
            );
        }
        notes
    }

    /// The ELF file inside `.gnu_debugdata`.
    pub(crate) fn mini_debug_image(&self) -> Option<&Image> {
        let found = self
            .file
            .mini_debug
            .get_or_init(|| crate::symbols::mini_debug::unpack(self));
        found.as_ref().ok()?.as_ref()
    }

    /// Like [`Image::bytes_at`], with shared ownership of the bytes.
    pub(crate) fn shared_at(&self, svma: u64, len: u64) -> Option<SharedBytes> {
        let offset = self.file.offset_of(svma, len)?;
        self.file.contents.shared(offset, len)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.file.layout
    }
}

impl File {
    pub(crate) fn program(&self, kind: u32) -> Option<&layout::Program> {
        self.layout
            .programs
            .iter()
            .find(|program| program.kind == kind)
    }

    fn program_bytes(&self, kind: u32) -> Option<&[u8]> {
        let program = self.program(kind)?;
        self.contents.get(program.offset, program.file_size)
    }

    pub(crate) fn bytes_at(&self, svma: u64, len: u64) -> Option<&[u8]> {
        self.contents.get(self.offset_of(svma, len)?, len)
    }

    /// Offset in the file of `len` bytes of a loaded segment.
    fn offset_of(&self, svma: u64, len: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let skip = svma.checked_sub(segment.svma)?;
            let inside = skip.checked_add(len)? <= segment.file_size;
            segment.file_offset.checked_add(skip).filter(|_| inside)
        })
    }

    /// The note section comes first, because the program headers of a debug file have unreliable
    /// offsets.
    fn read_build_id(&self) -> Option<BuildId> {
        let big_endian = self.layout.endian == object::Endianness::Big;
        let sections = self
            .layout
            .sections
            .iter()
            .filter(|section| section.kind == 7);
        let programs = self
            .layout
            .programs
            .iter()
            .filter(|program| program.kind == PT_NOTE);
        sections
            .map(|section| (section.offset, section.size))
            .chain(programs.map(|program| (program.offset, program.file_size)))
            .filter_map(|(offset, size)| self.contents.get(offset, size))
            .find_map(|notes| BuildId::from_notes(notes, big_endian))
    }

    fn note_cut_segments(&mut self) {
        let size = self.contents.len();
        let note = |segment: &Segment| {
            format!(
                "the segment at virtual address {:#x} reaches past the end of the file ({size:#x} \
                 bytes): the file is truncated",
                segment.svma
            )
        };
        let notes: Vec<String> = self.cut_segments().map(note).collect();
        self.layout.notes.extend(notes);
    }

    /// The segments that extend past the end of the file, which means that it is truncated. None
    /// for a debug file, whose segments are empty.
    fn cut_segments(&self) -> impl Iterator<Item = &Segment> {
        let is_shell = self.layout.sections.iter().any(|section| {
            section.kind == layout::SHT_NOBITS && section.flags & SHF_EXECINSTR != 0
        });
        let size = self.contents.len();
        let segments = if is_shell { &[][..] } else { &self.segments };
        segments
            .iter()
            .filter(move |segment| segment.file_offset.saturating_add(segment.file_size) > size)
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("name", &self.file.name)
            .field("arch", &self.file.layout.arch)
            .field("build_id", &self.file.build_id)
            .field("debug", &self.debug)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments as lld lays them out: code follows constants within a page of the file.
    #[test]
    fn code_that_shares_a_page_with_constants() {
        let segment = |svma, file_offset, file_size, flags| Segment {
            svma,
            file_offset,
            file_size,
            mem_size: file_size,
            flags,
        };
        let segments = [
            segment(0, 0, 0x599c0, 4),
            segment(0x5a9c0, 0x599c0, 0x1000, PF_X | 4),
        ];
        assert_eq!(svma_of_code(&segments, 0x59000, 0x2000), Some(0x5a000));
        assert_eq!(svma_of_code(&segments, 0x5a000, 0x1000), Some(0x5b000));
        assert_eq!(svma_of_code(&segments, 0, 0x59000), None);
    }
}
