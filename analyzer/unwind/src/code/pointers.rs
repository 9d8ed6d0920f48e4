//! Code addresses in an image's data: initializers, function tables, labels of computed jumps.
//!
//! An address in relocations or data words may be a function start. Only the code there can tell.

use unspool_image::Image;

use super::text::Text;

/// Relocation types that add the load address to an addend: R_X86_64_RELATIVE, R_X86_64_IRELATIVE,
/// R_AARCH64_RELATIVE, R_AARCH64_IRELATIVE.
const RELATIVE: [u64; 4] = [8, 37, 1027, 1032];

/// `PF_W`
const WRITABLE: u32 = 2;

/// Functions that the dynamic linker calls.
pub(super) fn initializers(image: &Image, text: &Text<'_>) -> Vec<u64> {
    let mut found = Vec::new();
    for name in [".init_array", ".fini_array", ".preinit_array"] {
        if let Some(section) = image.section(name) {
            found.extend(words(&section.data, text.machine.pointer()));
            let inside = section.svma..section.svma + section.data.len() as u64;
            let addends = text.relocations.iter();
            let addends = addends.filter(|entry| inside.contains(&entry.0));
            found.extend(addends.map(|entry| entry.1));
        }
    }
    for name in [".init", ".fini"] {
        found.extend(image.section(name).map(|section| section.svma));
    }
    found
}

/// Every value in data that may be a code address, sorted.
pub(super) fn candidates(image: &Image, text: &Text<'_>) -> Vec<u64> {
    let mut found: Vec<u64> = text.relocations.iter().map(|entry| entry.1).collect();
    for segment in image.segments() {
        // Read-only data holds jump tables rather than addresses of functions.
        if segment.is_executable() || segment.flags & WRITABLE == 0 {
            continue;
        }
        let size = usize::try_from(segment.file_size).unwrap_or(0);
        if let Some(bytes) = image.bytes_at(segment.svma, size) {
            found.extend(words(bytes, text.machine.pointer()));
        }
    }
    found.retain(|&svma| text.is_text(svma & !1) || text.is_text(svma));
    found.sort_unstable();
    found.dedup();
    found
}

fn words(bytes: &[u8], size: u64) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(size as usize).map(|chunk| {
        let mut value = [0; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(value)
    })
}

/// Place and addend of the relative relocations in `.rela.dyn` and `.rela.plt`, 24 bytes each
/// (gABI, chapter 4). Relocations without addends have them in place, where [`candidates`] finds
/// them.
pub(super) fn relocations(image: &Image) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = [".rela.dyn", ".rela.plt", ".rela.iplt"]
        .into_iter()
        .filter_map(|name| image.section(name))
        .flat_map(|section| {
            let numbers: Vec<u64> = words(&section.data, 8).collect();
            numbers
                .chunks_exact(3)
                .filter(|entry| RELATIVE.contains(&(entry[1] & 0xffff_ffff)))
                .map(|entry| (entry[0], entry[2]))
                .collect::<Vec<_>>()
        })
        .collect();
    found.sort_unstable();
    found
}
