//! Sections by name, decompressed. Without section headers, some are found by program header.

use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;

use object::Endianness;
use object::elf::{CompressionHeader32, CompressionHeader64};
use object::pod;

use super::SharedBytes;
use super::layout::{
    Header, PT_ARM_EXIDX, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_INTERP, SHF_COMPRESSED, SHT_NOBITS,
};
use super::{File, Image};

/// Maximum decompressed size, larger than any debug section.
const DECOMPRESSED_LIMIT: u64 = 4 << 30;

/// A section's address and content.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    /// First address; 0 if it is not mapped.
    pub svma: u64,
    /// Its bytes, decompressed.
    pub data: Cow<'a, [u8]>,
}

impl Image {
    /// A section with content, by name.
    ///
    /// Without section headers, `.eh_frame_hdr`, `.eh_frame`, `.ARM.exidx`, `.dynamic` and
    /// `.interp` are found by program header. Debug sections (`.debug_*`) that the image lacks come
    /// from its debug file.
    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        self.own_section(name).or_else(|| {
            let debug = self.debug_image()?;
            let elsewhere = name.starts_with(".debug_") || name == ".gnu_debugaltlink";
            if elsewhere {
                debug.own_section(name)
            } else {
                None
            }
        })
    }

    /// Whether [`Image::section`] would look for the section's content; does not read it.
    pub fn has_section(&self, name: &str) -> bool {
        self.file.find(name).is_some()
            || self
                .debug_image()
                .is_some_and(|debug| debug.file.find(name).is_some())
    }

    pub(crate) fn own_section(&self, name: &str) -> Option<Section<'_>> {
        if let Some((index, header)) = self.file.find(name) {
            return Some(Section {
                svma: header.svma,
                data: Cow::Borrowed(self.file.content(index)?),
            });
        }
        self.section_by_program(name)
    }

    /// Like [`Image::section`], with shared ownership of the bytes. Needs section headers.
    pub(crate) fn shared_section(&self, name: &str) -> Option<SharedBytes> {
        self.own_shared_section(name)
            .or_else(|| self.debug_image()?.own_shared_section(name))
    }

    pub(crate) fn own_shared_section(&self, name: &str) -> Option<SharedBytes> {
        let (index, header) = self.file.find(name)?;
        if is_compressed(header) {
            return Some(self.file.decompressed(index)?.clone().into());
        }
        self.file.contents.shared(header.offset, header.size)
    }

    fn section_by_program(&self, name: &str) -> Option<Section<'_>> {
        let kind = match name {
            ".eh_frame_hdr" => PT_GNU_EH_FRAME,
            ".ARM.exidx" => PT_ARM_EXIDX,
            ".dynamic" => PT_DYNAMIC,
            ".interp" => PT_INTERP,
            ".eh_frame" => return self.eh_frame_by_header(),
            _ => return None,
        };
        let program = self.file.program(kind)?;
        let data = self.file.contents.get(program.offset, program.file_size)?;
        Some(Section {
            svma: program.svma,
            data: Cow::Borrowed(data),
        })
    }

    /// Finds `.eh_frame` through `.eh_frame_hdr` (LSB Core, "The .eh_frame_hdr section").
    ///
    /// The header starts with version 1, three pointer encodings and the encoded address of
    /// `.eh_frame`. Linkers write `pcrel | sdata4` (0x1b). The end is not stated. The section is
    /// returned up to the end of the segment; the terminator or the first malformed entry ends it.
    fn eh_frame_by_header(&self) -> Option<Section<'_>> {
        let header = self.file.program(PT_GNU_EH_FRAME)?;
        let bytes = self.file.contents.get(header.offset, header.file_size)?;
        let [1, 0x1b, _, _, a, b, c, d, ..] = *bytes else {
            return None;
        };
        let relative = match self.file.layout.endian {
            Endianness::Little => i32::from_le_bytes([a, b, c, d]),
            Endianness::Big => i32::from_be_bytes([a, b, c, d]),
        };
        let svma = header
            .svma
            .checked_add(4)?
            .checked_add_signed(relative.into())?;
        let segment = self.segments().iter().find(|segment| {
            svma.checked_sub(segment.svma)
                .is_some_and(|skip| skip < segment.file_size)
        })?;
        let data = self
            .file
            .bytes_at(svma, segment.file_size - (svma - segment.svma))?;
        Some(Section {
            svma,
            data: Cow::Borrowed(data),
        })
    }
}

fn is_compressed(header: &Header) -> bool {
    header.flags & SHF_COMPRESSED != 0 || header.name.starts_with(".zdebug_")
}

impl File {
    /// The section with this name and content in this file. `.debug_x` may be an old GNU
    /// `.zdebug_x`.
    fn find(&self, name: &str) -> Option<(usize, &Header)> {
        let position = |name: &str| {
            let mut sections = self.layout.sections.iter().enumerate();
            sections.find(|(_, section)| section.name == name && section.kind != SHT_NOBITS)
        };
        position(name).or_else(|| {
            position(&format!(
                ".z{}",
                name.strip_prefix(".debug_")
                    .map(|rest| format!("debug_{rest}"))?
            ))
        })
    }

    /// The content of the section with this index, decompressed.
    pub(super) fn content(&self, index: usize) -> Option<&[u8]> {
        let header = self.layout.sections.get(index)?;
        if is_compressed(header) {
            return self.decompressed(index).map(|bytes| &bytes[..]);
        }
        self.contents.get(header.offset, header.size)
    }

    fn decompressed(&self, index: usize) -> Option<&Arc<[u8]>> {
        let cell = self.decompressed.get(index)?;
        cell.get_or_init(|| {
            let header = self.layout.sections.get(index)?;
            let bytes = self.contents.get(header.offset, header.size)?;
            self.decompress(header, bytes)
        })
        .as_ref()
    }

    /// Decompresses a section: gABI "Compressed sections", or GNU's older `ZLIB` + big-endian size.
    fn decompress(&self, header: &Header, bytes: &[u8]) -> Option<Arc<[u8]>> {
        const ZLIB: u32 = 1;
        const ZSTD: u32 = 2;
        let endian = self.layout.endian;
        let (format, size, packed) = if header.flags & SHF_COMPRESSED == 0 {
            let rest = bytes.strip_prefix(b"ZLIB")?;
            let (size, packed) = rest.split_first_chunk::<8>()?;
            (ZLIB, u64::from_be_bytes(*size), packed)
        } else if self.layout.is_64 {
            let (head, packed) = pod::from_bytes::<CompressionHeader64<Endianness>>(bytes).ok()?;
            (head.ch_type.get(endian).0, head.ch_size.get(endian), packed)
        } else {
            let (head, packed) = pod::from_bytes::<CompressionHeader32<Endianness>>(bytes).ok()?;
            (
                head.ch_type.get(endian).0,
                head.ch_size.get(endian).into(),
                packed,
            )
        };
        if size > DECOMPRESSED_LIMIT {
            return None;
        }
        match format {
            ZLIB => unpack(flate2::read::ZlibDecoder::new(packed), packed.len(), size),
            ZSTD => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(packed).ok()?;
                unpack(decoder, packed.len(), size)
            }
            _ => None,
        }
    }
}

/// The whole output of a decoder of `packed` bytes, if it has `size` bytes.
fn unpack(decoder: impl Read, packed: usize, size: u64) -> Option<Arc<[u8]>> {
    let size = usize::try_from(size).ok()?;
    // One more byte than stated is an error, too.
    let mut decoder = decoder.take(size as u64 + 1);
    // Reserve only as much memory as input of this length usually needs, because `size` may be
    // false.
    if size <= packed.saturating_mul(8) {
        let mut whole: Arc<[u8]> = std::iter::repeat_n(0, size).collect();
        decoder.read_exact(Arc::get_mut(&mut whole)?).ok()?;
        return (decoder.read(&mut [0]).ok()? == 0).then_some(whole);
    }
    let mut out = Vec::new();
    decoder.read_to_end(&mut out).ok()?;
    (out.len() == size).then(|| out.into())
}
