//! Reads small structures in target memory: strings, pointers, ELF program headers.
//!
//! Separate from `stack` because these are read completely or not at all, and not kept.

use unspool_image::BuildId;
use unspool_rsp::Client;

use crate::platform::abi::Abi;

/// Maximum length of a string. The dynamic linker's paths are never longer (PATH_MAX).
const STRING_LIMIT: usize = 4096;
/// Maximum number of program headers.
const MAX_HEADERS: usize = 128;
/// Size of the start of an image, in bytes. Linkers map at least a page.
const IMAGE_START: usize = 2048;

/// Reads exactly `len` bytes; `None` if some cannot be read.
pub(super) fn read(client: &mut Client, address: u64, len: usize) -> Option<Vec<u8>> {
    client
        .read_memory(address, len)
        .ok()
        .filter(|bytes| bytes.len() == len)
}

/// Reads `count` consecutive pointers.
pub(super) fn pointers(
    client: &mut Client,
    abi: &Abi,
    address: u64,
    count: usize,
) -> Option<Vec<u64>> {
    let bytes = read(client, address, count * abi.pointer)?;
    (0..count)
        .map(|index| abi.pointer_at(&bytes, index))
        .collect()
}

/// Reads a string that ends in NUL.
pub(super) fn string(client: &mut Client, address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < STRING_LIMIT {
        // Use short reads: most strings are short, and the next page may not be mapped.
        let more = client
            .read_memory(address.checked_add(bytes.len() as u64)?, 128)
            .ok()?;
        let end = more.iter().position(|byte| *byte == 0);
        bytes.extend_from_slice(&more[..end.unwrap_or(more.len())]);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    None
}

/// One ELF program header.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProgramHeader {
    pub(super) kind: u32,
    pub(super) offset: u64,
    pub(super) svma: u64,
    pub(super) file_size: u64,
    pub(super) mem_size: u64,
}

pub(super) const PT_LOAD: u32 = 1;
pub(super) const PT_DYNAMIC: u32 = 2;
pub(super) const PT_INTERP: u32 = 3;
pub(super) const PT_NOTE: u32 = 4;
pub(super) const PT_PHDR: u32 = 6;

/// Size of a program header in bytes.
fn header_size(abi: &Abi) -> usize {
    if abi.pointer == 8 { 56 } else { 32 }
}

/// Reads `count` program headers at `address`.
pub(super) fn program_headers(
    client: &mut Client,
    abi: &Abi,
    address: u64,
    count: usize,
) -> Option<Vec<ProgramHeader>> {
    let size = header_size(abi);
    let bytes = read(client, address, count.min(MAX_HEADERS) * size)?;
    parse_headers(abi, &bytes)
}

fn parse_headers(abi: &Abi, bytes: &[u8]) -> Option<Vec<ProgramHeader>> {
    let wide = abi.pointer == 8;
    let word =
        |entry: &[u8], at: usize| Some(u32::from_le_bytes(entry.get(at..at + 4)?.try_into().ok()?));
    let long =
        |entry: &[u8], at: usize| Some(u64::from_le_bytes(entry.get(at..at + 8)?.try_into().ok()?));
    // Elf32_Phdr and Elf64_Phdr (gABI, "Program Header") order their fields differently.
    bytes
        .chunks_exact(header_size(abi))
        .map(|entry| {
            let narrow = |at| word(entry, at).map(u64::from);
            Some(ProgramHeader {
                kind: word(entry, 0)?,
                offset: if wide { long(entry, 8)? } else { narrow(4)? },
                svma: if wide { long(entry, 16)? } else { narrow(8)? },
                file_size: if wide { long(entry, 32)? } else { narrow(16)? },
                mem_size: if wide { long(entry, 40)? } else { narrow(20)? },
            })
        })
        .collect()
}

/// The start of a mapped image. Linkers place the program headers and the build-id there, so that
/// one read has them all.
pub(super) struct ImageStart {
    address: u64,
    bytes: Vec<u8>,
}

impl ImageStart {
    /// Reads the start of the image whose ELF header is mapped at `address`.
    pub(super) fn read(client: &mut Client, address: u64) -> Option<Self> {
        let bytes = read(client, address, IMAGE_START)?;
        let is_image = bytes.starts_with(b"\x7fELF");
        is_image.then_some(Self { address, bytes })
    }

    pub(super) fn program_headers(
        &self,
        client: &mut Client,
        abi: &Abi,
    ) -> Option<Vec<ProgramHeader>> {
        let (offset_at, count_at) = if abi.pointer == 8 { (32, 56) } else { (28, 44) };
        let offset = abi.pointer_at(&self.bytes[offset_at..], 0)?;
        let count = u16::from_le_bytes(*self.bytes[count_at..].first_chunk()?);
        let len = usize::from(count).min(MAX_HEADERS) * header_size(abi);
        parse_headers(
            abi,
            &self.at(client, self.address.checked_add(offset)?, len)?,
        )
    }

    /// The build-id in the image's notes (gABI, "Note Section"; type 3 of owner GNU).
    pub(super) fn build_id(
        &self,
        client: &mut Client,
        headers: &[ProgramHeader],
        bias: u64,
    ) -> Option<BuildId> {
        let mut notes = headers.iter().filter(|header| header.kind == PT_NOTE);
        notes.find_map(|note| {
            let len = usize::try_from(note.mem_size.min(4096)).ok()?;
            build_id_in_notes(&self.at(client, bias.wrapping_add(note.svma), len)?)
        })
    }

    fn at(&self, client: &mut Client, address: u64, len: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(address.wrapping_sub(self.address)).ok();
        let known = start.and_then(|start| self.bytes.get(start..start.checked_add(len)?));
        match known {
            Some(bytes) => Some(bytes.to_vec()),
            None => read(client, address, len),
        }
    }
}

fn build_id_in_notes(mut notes: &[u8]) -> Option<BuildId> {
    loop {
        let word =
            |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?) as usize);
        let (name_len, desc_len, kind) = (word(0)?, word(4)?, word(8)?);
        let desc_at = 12 + name_len.checked_next_multiple_of(4)?;
        let desc_end = desc_at.checked_add(desc_len)?;
        if kind == 3 && notes.get(12..12 + name_len)? == b"GNU\0" {
            return notes
                .get(desc_at..desc_end)?
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
                .parse()
                .ok();
        }
        notes = notes.get(desc_end.checked_next_multiple_of(4)?..)?;
    }
}
