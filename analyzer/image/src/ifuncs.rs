//! Indirect functions (`STT_GNU_IFUNC`): the program chooses one of several versions when it
//! starts.
//!
//! The symbol is that of the resolver, the function that chooses. A relocation names the slot with
//! the choice. It is `R_*_IRELATIVE` with the resolver's address, or, for functions that other
//! modules may replace, a relocation with the function's name.

use crate::image::tables;
use crate::symbols::plt;
use crate::{Arch, Image};

/// An indirect function: its resolver, and the slot with the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ifunc {
    /// The resolver's address, which its symbol has; thumb bit removed.
    pub resolver_svma: u64,
    /// The slot that holds the mapped address of the chosen function while the program runs.
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

/// Sections with such relocations, and whether they have addends. The last ones are those of static
/// programs.
const SECTIONS: [(&str, bool); 6] = [
    (".rela.plt", true),
    (".rela.dyn", true),
    (".rela.iplt", true),
    (".rel.plt", false),
    (".rel.dyn", false),
    (".rel.iplt", false),
];

impl Image {
    /// All indirect functions, by their resolvers.
    pub fn ifuncs(&self) -> Vec<Ifunc> {
        let wanted = relocation(self.arch());
        let layout = self.layout();
        let mut ifuncs = Vec::new();
        for (name, addends) in SECTIONS {
            let Some(section) = self.own_section(name) else {
                continue;
            };
            let all = tables::relocations(&section.data, layout.is_64, layout.endian, addends);
            for one in all.into_iter().filter(|one| one.kind == wanted) {
                // Without an addend in the relocation, the slot itself holds it.
                let Some(resolver) = one.addend.or_else(|| self.word_at(one.offset)) else {
                    continue;
                };
                let bits = u64::from(self.arch() == Arch::Arm);
                ifuncs.push(Ifunc {
                    resolver_svma: resolver & !bits,
                    slot_svma: one.offset,
                });
            }
        }
        ifuncs.sort_unstable();
        ifuncs.dedup_by_key(|ifunc| ifunc.resolver_svma);
        ifuncs
    }

    /// The slots that hold addresses of functions, and possibly data, that this image uses by name.
    pub fn slots(&self) -> Vec<(u64, String)> {
        let mut slots: Vec<_> = plt::slots(self).into_iter().collect();
        slots.sort_unstable();
        slots
    }

    /// The name of the function whose address is in the slot at `svma`.
    pub fn slot_name(&self, svma: u64) -> Option<String> {
        plt::named_slots(self, &|slot| slot == svma).remove(&svma)
    }
}
