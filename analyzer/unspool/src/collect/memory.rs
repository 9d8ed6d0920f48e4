//! Reads small structures in target memory: strings, pointers, ELF program headers.
//!
//! Apart from `stack` because these are read completely or not at all, and not kept.

use unspool_image::BuildId;
use unspool_rsp::Client;

use crate::platform::abi::Abi;

/// Maximum length of a string. The dynamic linker's paths are never longer (PATH_MAX).
const STRING_LIMIT: usize = 4096;

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

/// Reads `count` program headers at `address`.
pub(super) fn program_headers(
    client: &mut Client,
    abi: &Abi,
    address: u64,
    count: usize,
) -> Option<Vec<ProgramHeader>> {
    // Elf32_Phdr and Elf64_Phdr (gABI, "Program Header") order their fields differently.
    let wide = abi.pointer == 8;
    let size = if wide { 56 } else { 32 };
    let bytes = read(client, address, count.min(128) * size)?;
    let word =
        |entry: &[u8], at: usize| Some(u32::from_le_bytes(entry.get(at..at + 4)?.try_into().ok()?));
    let long =
        |entry: &[u8], at: usize| Some(u64::from_le_bytes(entry.get(at..at + 8)?.try_into().ok()?));
    bytes
        .chunks_exact(size)
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

/// Reads the program headers of the image whose ELF header is mapped at `address`.
pub(super) fn headers_of_image(
    client: &mut Client,
    abi: &Abi,
    address: u64,
) -> Option<Vec<ProgramHeader>> {
    let header = read(client, address, 64)?;
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    let (offset_at, count_at) = if abi.pointer == 8 { (32, 56) } else { (28, 44) };
    let offset = abi.pointer_at(&header[offset_at..], 0)?;
    let count = u16::from_le_bytes(header[count_at..count_at + 2].try_into().ok()?);
    program_headers(client, abi, address.checked_add(offset)?, count.into())
}

/// Reads the build-id in the notes of a mapped image (gABI, "Note Section"; type 3 of owner GNU).
pub(super) fn build_id(
    client: &mut Client,
    headers: &[ProgramHeader],
    bias: u64,
) -> Option<BuildId> {
    for note in headers.iter().filter(|header| header.kind == PT_NOTE) {
        let len = usize::try_from(note.mem_size.min(4096)).ok()?;
        let Some(bytes) = read(client, bias.wrapping_add(note.svma), len) else {
            continue;
        };
        if let Some(id) = build_id_in_notes(&bytes) {
            return Some(id);
        }
    }
    None
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
