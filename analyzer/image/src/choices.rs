//! Functions of which an image has several versions, one of which is chosen when the program starts (`STT_GNU_IFUNC`).
//!
//! The symbol is that of the function that chooses. Where the choice is kept, a relocation says: `R_*_IRELATIVE`, with the address
//! of the choosing function; or, where others may put a function of their own in its place, one by the function's name.

use crate::image::tables;
use crate::symbols::plt;
use crate::{Arch, Image};

/// A function that chooses, and where its choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// The choosing function's address, that of its symbol; thumb bit removed.
    pub resolver_svma: u64,
    /// Where the chosen function's address, as mapped, is when the program runs.
    pub slot_svma: u64,
}

/// The psABIs' numbers of `R_*_IRELATIVE`.
fn relocation(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 37,
        Arch::Aarch64 => 1032,
        Arch::Arm => 160,
    }
}

/// Sections with such relocations, and whether these have addends of their own; the last ones are those of static programs.
const SECTIONS: [(&str, bool); 6] = [
    (".rela.plt", true),
    (".rela.dyn", true),
    (".rela.iplt", true),
    (".rel.plt", false),
    (".rel.dyn", false),
    (".rel.iplt", false),
];

impl Image {
    /// The functions that are chosen when the program starts, by the address of what chooses them.
    pub fn choices(&self) -> Vec<Choice> {
        let wanted = relocation(self.arch());
        let layout = self.layout();
        let mut choices = Vec::new();
        for (name, addends) in SECTIONS {
            let Some(section) = self.own_section(name) else {
                continue;
            };
            let all = tables::relocations(&section.data, layout.is_64, layout.endian, addends);
            for one in all.into_iter().filter(|one| one.kind == wanted) {
                // Without an addend, the slot itself has it.
                let Some(resolver) = one.addend.or_else(|| self.word_at(one.offset)) else {
                    continue;
                };
                let bits = u64::from(self.arch() == Arch::Arm);
                choices.push(Choice {
                    resolver_svma: resolver & !bits,
                    slot_svma: one.offset,
                });
            }
        }
        choices.sort_unstable();
        choices.dedup_by_key(|choice| choice.resolver_svma);
        choices
    }

    /// Where this image keeps addresses of functions, and maybe of data, that it uses by name: its own and others'.
    pub fn slots(&self) -> Vec<(u64, String)> {
        let mut slots: Vec<_> = plt::slots(self).into_iter().collect();
        slots.sort_unstable();
        slots
    }
}
