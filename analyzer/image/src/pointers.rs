//! The targets of pointers in an image's data.
//!
//! The dynamic linker writes them when the program starts, as relocations say. Without a relocation
//! the file contains the pointer itself, as with packed relocations (`DT_RELR`).

use crate::image::tables::{self, Relocation};
use crate::symbols::read;
use crate::{Arch, Image};

/// The psABIs' numbers of `R_*_RELATIVE`, and of the relocation that sets a word to a symbol's
/// address.
fn relocations(arch: Arch) -> (u32, u32) {
    match arch {
        Arch::X86_64 => (8, 1),
        Arch::Aarch64 => (1027, 257),
        Arch::Arm => (23, 2),
    }
}

impl Image {
    /// The address (svma) that the word at `svma` holds while the program runs, if it is in this
    /// image.
    ///
    /// Replacements of exported symbols by other modules are not considered. Bit 0 is set for a
    /// Thumb function.
    pub fn pointer_at(&self, svma: u64) -> Option<u64> {
        let (relative, absolute) = relocations(self.arch());
        let layout = self.layout();
        for (name, addends) in [(".rela.dyn", true), (".rel.dyn", false)] {
            let Some(section) = self.own_section(name) else {
                continue;
            };
            let all = tables::relocations(&section.data, layout.is_64, layout.endian, addends);
            let here = |one: &Relocation| one.offset == svma;
            let Some(found) = all.into_iter().find(here) else {
                continue;
            };
            let addend = found.addend.or_else(|| self.word_at(svma))?;
            return match found.kind {
                kind if kind == relative => Some(addend),
                kind if kind == absolute => {
                    let defined = self.dynamic_symbol(found.symbol)?;
                    Some(defined.wrapping_add(addend))
                }
                _ => None,
            };
        }
        self.word_at(svma).filter(|address| *address != 0)
    }

    /// The word in the file at an address.
    pub(crate) fn word_at(&self, svma: u64) -> Option<u64> {
        let size = self.arch().address_size();
        let mut word = [0; 8];
        word[..size].copy_from_slice(self.bytes_at(svma, size)?);
        Some(u64::from_le_bytes(word))
    }

    /// The address of a dynamic symbol, if it is in this image.
    fn dynamic_symbol(&self, number: u32) -> Option<u64> {
        let (symbols, _) = read::sections(self, ".dynsym")?;
        let layout = self.layout();
        let mut symbols = tables::symbols(symbols.bytes(), layout.is_64, layout.endian);
        let symbol = symbols.nth(usize::try_from(number).ok()?)?;
        (symbol.section != 0).then_some(symbol.value)
    }
}
