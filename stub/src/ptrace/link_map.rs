//! The program's shared libraries, from the dynamic linker's list.
//!
//! The path to the list is AT_PHDR -> PT_DYNAMIC -> DT_DEBUG -> `struct r_debug` -> `struct
//! link_map` (System V ABI, "Dynamic Linking"; glibc's `<link.h>`). Each of these is missing in
//! some programs (static ones, or before the linker has run), and then the list is empty.

use std::collections::HashSet;

use super::auxv::{AT_PHDR, AT_PHNUM};
use super::memory::number;
use super::process::Process;
use crate::arch::Word;

/// An entry of the dynamic linker's list.
pub(crate) struct Library {
    /// Address of the entry itself.
    pub(crate) link_map: u64,
    /// Difference between addresses in memory and in the file.
    pub(crate) bias: u64,
    /// Address of the library's dynamic section.
    pub(crate) dynamic: u64,
    /// Path of the library's file.
    pub(crate) path: Vec<u8>,
    /// Address of the namespace's `r_debug`.
    pub(crate) namespace: u64,
}

/// Where to begin in the list.
pub(crate) struct Start {
    /// Address of the entry.
    pub(crate) entry: u64,
    /// Address of the previous entry. Zero: the entry is the first, and the program's own.
    pub(crate) previous: u64,
    /// Address of the namespace's `r_debug`.
    pub(crate) namespace: u64,
}

/// The list of loaded libraries, without the program itself.
#[derive(Default)]
pub(crate) struct Libraries {
    /// Address of the program's own entry.
    pub(crate) main: Option<u64>,
    /// All other entries.
    pub(crate) loaded: Vec<Library>,
}

const WORD: u64 = size_of::<Word>() as u64;
const PT_DYNAMIC: u64 = 2;
const PT_PHDR: u64 = 6;
const DT_DEBUG: u64 = 21;
const PATH_MAX: usize = 4096;
/// Upper limit of the entries of a dynamic section.
const MAX_ENTRIES: usize = 4096;
/// Upper limit of the program headers.
const MAX_HEADERS: usize = 1024;
/// Maximum length of the list. A longer list is damaged.
const MAX_LIBRARIES: usize = 65_536;

impl Process {
    /// Reads the list. `None` if the program's headers will never lead to it, for example if the
    /// dynamic linker was started with the program as its argument.
    pub(crate) fn libraries(&self) -> Option<Libraries> {
        let mut libraries = Libraries::default();
        let mut debug = match self.r_debug() {
            Debug::At(debug) => debug,
            Debug::NotYet => return Some(libraries),
            Debug::Never => return None,
        };
        let mut seen = HashSet::new();
        // r_debug: int version; link_map *map; addr brk; int state; addr ldbase;
        // from version 2: r_debug_extended *next.
        while debug != 0 && seen.insert(debug) {
            let version = self.read_number(debug, 4).unwrap_or(0);
            let head = self.read_number(debug + WORD, WORD as usize).unwrap_or(0);
            self.link_maps(head, debug, &mut libraries);
            debug = if version >= 2 {
                self.read_number(debug + 5 * WORD, WORD as usize)
                    .unwrap_or(0)
            } else {
                0
            };
        }
        Some(libraries)
    }

    /// Reads the list from an entry onwards.
    pub(crate) fn libraries_from(&self, start: Start) -> Libraries {
        let mut libraries = Libraries::default();
        let rest = match start.previous {
            0 => start.entry,
            previous => {
                // The client knows the program already. An address that the previous entry does not
                // link to is not an entry.
                libraries.main = Some(previous);
                let next = self.read_number(previous + 3 * WORD, WORD as usize);
                if next == Some(start.entry) {
                    start.entry
                } else {
                    0
                }
            }
        };
        self.link_maps(rest, start.namespace, &mut libraries);
        if start.previous != 0 {
            libraries.main = None;
        }
        libraries
    }

    fn link_maps(&self, head: u64, namespace: u64, libraries: &mut Libraries) {
        let mut seen = HashSet::new();
        let mut entry = head;
        while entry != 0 && seen.len() < MAX_LIBRARIES && seen.insert(entry) {
            // link_map: addr bias; char *name; dyn *ld; link_map *next, *prev.
            let Some([bias, name, dynamic, next]) = self.read_words(entry) else {
                break;
            };
            if libraries.main.is_none() {
                libraries.main = Some(entry);
            } else {
                let path = self.read_string(name, PATH_MAX).unwrap_or_default();
                if !path.is_empty() {
                    libraries.loaded.push(Library {
                        link_map: entry,
                        bias,
                        dynamic,
                        path,
                        namespace,
                    });
                }
            }
            entry = next;
        }
    }

    fn r_debug(&self) -> Debug {
        let (start, size) = match self.dynamic_section() {
            Some((Some(start), size)) => (start, size),
            // An ELF file without PT_PHDR is the dynamic linker, started directly.
            Some((None, _)) => return Debug::Never,
            None => return Debug::NotYet,
        };
        let entry = 2 * WORD as usize;
        let size = (size as usize).min(MAX_ENTRIES * entry);
        let section = self.read_bytes(start, size).unwrap_or_default();
        for pair in section.chunks_exact(entry) {
            let (tag, value) = pair.split_at(WORD as usize);
            match (number(tag), number(value)) {
                (0, _) => return Debug::Never,
                (DT_DEBUG, 0) => return Debug::NotYet,
                (DT_DEBUG, at) => return Debug::At(at),
                _ => {}
            }
        }
        Debug::NotYet
    }

    /// Address and size of the program's dynamic section, if it has one. The address is missing if
    /// the headers do not say it.
    fn dynamic_section(&self) -> Option<(Option<u64>, u64)> {
        let headers = self.auxv_entry(AT_PHDR)?;
        let count = self.auxv_entry(AT_PHNUM)?;
        // Elf64_Phdr: type 0, vaddr 16, memsz 40, size 56; Elf32_Phdr: type 0, vaddr 8, memsz 20,
        // size 32.
        let (vaddr, memsz, size) = if WORD == 8 { (16, 40, 56) } else { (8, 20, 32) };
        let count = usize::try_from(count).ok()?.min(MAX_HEADERS);
        let mut bias = None;
        let mut dynamic = None;
        for header in self.read_bytes(headers, count * size)?.chunks_exact(size) {
            let word = |at: usize| number(&header[at..at + WORD as usize]);
            match number(&header[..4]) {
                PT_PHDR => bias = Some(headers.wrapping_sub(word(vaddr))),
                PT_DYNAMIC => dynamic = Some((word(vaddr), word(memsz))),
                _ => {}
            }
        }
        dynamic.map(|(address, size)| {
            let start = bias.map(|bias: u64| bias.wrapping_add(address));
            (start, size)
        })
    }
}

/// The location of `r_debug`.
enum Debug {
    At(u64),
    /// It does not exist yet, or never will because the program is static.
    NotYet,
    /// The program's headers do not lead to it.
    Never,
}
