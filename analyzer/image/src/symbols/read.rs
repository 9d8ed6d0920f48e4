//! Reading the symbol tables of an image and of its debug file into one list.

use std::collections::HashSet;

use super::mapping::{CodeKind, Mapping};
use super::{Binding, Entry, SymbolKind, Symbols, plt};
use crate::image::layout::{self, SHF_ALLOC, SHF_EXECINSTR};
use crate::image::tables;
use crate::{Arch, Image};

// gABI figures 4-15 to 4-18; STT_ARM_TFUNC from the old ARM ABI.
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_COMMON: u8 = 5;
const STT_GNU_IFUNC: u8 = 10;
const STT_ARM_TFUNC: u8 = 13;
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;

pub(super) fn merged(image: &Image) -> Symbols {
    let mut merge = Merge {
        text: image.text_ranges(),
        arch: image.arch(),
        symbols: Symbols::default(),
        mapping: Vec::new(),
        foreign: false,
    };
    // Where two tables have a symbol, the first one counts.
    merge.table(image, ".symtab");
    merge.table(image, ".dynsym");
    merge.foreign = true;
    if let Some(debug) = image.debug_image() {
        merge.table(debug, ".symtab");
    }
    if let Some(mini) = image.mini_debug_image() {
        merge.table(mini, ".symtab");
    }
    for stub in plt::stubs(image) {
        merge.push(&stub.name, stub.entry());
    }
    merge.finish()
}

struct Merge {
    text: Vec<std::ops::Range<u64>>,
    arch: Arch,
    symbols: Symbols,
    mapping: Vec<(u64, CodeKind)>,
    /// The tables read now are not the image's own.
    foreign: bool,
}

impl Merge {
    fn table(&mut self, image: &Image, section: &str) {
        let Some((symbols, strings)) = sections(image, section) else {
            return;
        };
        let layout = image.layout();
        // Names share their tails and repeat, but a damaged table must not multiply them endlessly.
        let limit = self.symbols.names.len() + strings.len().saturating_mul(64).min(1 << 30);
        for raw in tables::symbols(&symbols, layout.is_64, layout.endian) {
            if raw.section == SHN_UNDEF || raw.section == SHN_ABS {
                continue;
            }
            let Some(name) = layout::string_at(&strings, raw.name.into()) else {
                continue;
            };
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            if self.arch != Arch::X86_64
                && raw.kind == STT_NOTYPE
                && let Some(kind) = CodeKind::from_name(name.as_bytes())
            {
                self.mapping.push((raw.value, kind));
                continue;
            }
            // Linkers number `foo@VER` and `foo@@VER` in .symtab.
            let name = name.split_once('@').map_or(name, |(name, _)| name);
            let kind = match raw.kind {
                STT_FUNC | STT_GNU_IFUNC | STT_ARM_TFUNC => SymbolKind::Function,
                STT_OBJECT | STT_COMMON => SymbolKind::Object,
                STT_NOTYPE => SymbolKind::Other,
                _ => continue,
            };
            if name.is_empty() {
                continue;
            }
            if self.symbols.names.len() > limit {
                break;
            }
            // aaelf32 5.5.3: bit 0 of a function's value means Thumb code.
            let is_arm_function = self.arch == Arch::Arm && kind == SymbolKind::Function;
            let thumb = is_arm_function && (raw.value & 1 == 1 || raw.kind == STT_ARM_TFUNC);
            let svma = if is_arm_function {
                raw.value & !1
            } else {
                raw.value
            };
            self.push(
                name,
                Entry {
                    svma,
                    size: raw.size,
                    name: 0,
                    name_len: 0,
                    size_inferred: false,
                    kind,
                    in_text: false,
                    foreign: false,
                    thumb,
                    binding: match raw.binding {
                        0 => Binding::Local,
                        2 => Binding::Weak,
                        _ => Binding::Global,
                    },
                    chooses: raw.kind == STT_GNU_IFUNC,
                },
            );
        }
    }

    fn push(&mut self, name: &str, entry: Entry) {
        let names = &mut self.symbols.names;
        let (Ok(start), Ok(len)) = (u32::try_from(names.len()), u32::try_from(name.len())) else {
            return;
        };
        if start.checked_add(len).is_none() {
            return;
        }
        names.push_str(name);
        let foreign = self.foreign;
        self.symbols.entries.push(Entry {
            name: start,
            name_len: len,
            foreign,
            ..entry
        });
    }

    fn finish(mut self) -> Symbols {
        let Symbols {
            names, mut entries, ..
        } = std::mem::take(&mut self.symbols);
        let name = |entry: &Entry| &names[entry.name as usize..][..entry.name_len as usize];
        let mut seen = HashSet::new();
        entries.retain(|entry| seen.insert((entry.svma, name(entry))));
        drop(seen);
        // gdb sorts by address, then by name, and takes the last; names of the file itself come
        // before those of its debug file, so that an exported name wins over internal aliases.
        entries.sort_by(|a, b| {
            let aliases = b.foreign.cmp(&a.foreign).then_with(|| name(a).cmp(name(b)));
            a.svma.cmp(&b.svma).then(aliases)
        });
        for entry in &mut entries {
            entry.in_text =
                entry.kind != SymbolKind::Object && range_of(&self.text, entry.svma).is_some();
        }
        infer_sizes(&mut entries, &self.text);
        let mut reach: Vec<u64> = Vec::with_capacity(entries.len());
        for entry in &entries {
            let before = reach.last().copied().unwrap_or(0);
            reach.push(before.max(entry.range().end));
        }
        let mut by_name: Vec<u32> = (0..).take(entries.len()).collect();
        by_name.sort_by(|a, b| {
            name(&entries[*a as usize])
                .cmp(name(&entries[*b as usize]))
                .then(a.cmp(b))
        });
        Symbols {
            mapping: Mapping::new(self.mapping),
            reach,
            by_name,
            names,
            entries,
        }
    }
}

fn range_of(text: &[std::ops::Range<u64>], svma: u64) -> Option<&std::ops::Range<u64>> {
    let end = text.partition_point(|range| range.start <= svma);
    text.get(end.checked_sub(1)?)
        .filter(|range| range.contains(&svma))
}

/// A symbol in text without a size reaches to the next symbol or the end of its section. Data without
/// a size stays so.
fn infer_sizes(entries: &mut [Entry], text: &[std::ops::Range<u64>]) {
    let mut next = u64::MAX;
    let mut start = u64::MAX;
    for entry in entries.iter_mut().rev().filter(|entry| entry.in_text) {
        if entry.svma < start {
            next = start;
            start = entry.svma;
        }
        if entry.size == 0 {
            let end = range_of(text, entry.svma).map_or(entry.svma, |range| range.end);
            entry.size = next.min(end).saturating_sub(entry.svma);
            entry.size_inferred = true;
        }
    }
}

type Bytes<'a> = std::borrow::Cow<'a, [u8]>;

/// A symbol table and its strings. Without section headers, `.dynsym` is found through the dynamic
/// section.
pub(crate) fn sections<'a>(image: &'a Image, name: &str) -> Option<(Bytes<'a>, Bytes<'a>)> {
    let header = image
        .layout()
        .sections
        .iter()
        .find(|section| section.name == name);
    if let Some(header) = header {
        let strings = image
            .layout()
            .sections
            .get(usize::try_from(header.link).ok()?)?;
        let strings = strings.name.clone();
        return Some((
            image.own_section(name)?.data,
            image.own_section(&strings)?.data,
        ));
    }
    if name != ".dynsym" {
        return None;
    }
    let (symbols, strings) = image.dynamic().symbol_table(image)?;
    Some((symbols.into(), strings.into()))
}

/// True for a section that is code in memory.
pub(super) fn is_code(section: &layout::Header) -> bool {
    section.flags & (SHF_ALLOC | SHF_EXECINSTR) == SHF_ALLOC | SHF_EXECINSTR
}
