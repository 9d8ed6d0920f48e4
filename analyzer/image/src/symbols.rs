//! Symbols of an image, merged from every table that has some.
//!
//! Apart from the tables' layout: here they are one sorted list, each address has one best name, and
//! sizes are complete.

use std::ops::Range;

use crate::Image;

mod mapping;
pub(crate) mod mini_debug;
pub(crate) mod plt;
pub(crate) mod read;

pub use mapping::CodeKind;
use mapping::Mapping;

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SymbolKind {
    /// Code: `STT_FUNC`, `STT_GNU_IFUNC`, and the `name@plt` stubs of the procedure linkage table.
    Function,
    /// Data: `STT_OBJECT`, `STT_COMMON`.
    Object,
    /// Anything else with an address: labels of hand-written assembly (`STT_NOTYPE`).
    Other,
}

/// Who sees a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binding {
    /// Only its own object file.
    Local,
    /// All, unless there is a global one.
    Weak,
    /// All.
    Global,
}

/// A defined symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol<'a> {
    /// As in the table, without version suffix.
    pub name: &'a str,
    /// Address, thumb bit removed.
    pub svma: u64,
    /// Size; where the table says 0, up to the next symbol or the end of the section.
    pub size: u64,
    /// True if `size` was inferred.
    pub size_inferred: bool,
    /// What it stands for.
    pub kind: SymbolKind,
    /// ARM: the function is Thumb code.
    pub thumb: bool,
    /// Who sees it.
    pub binding: Binding,
    /// It chooses which function is used by its name (`STT_GNU_IFUNC`).
    pub chooses: bool,
}

/// All defined symbols of an image, sorted by address; of several names at one address, the best is
/// last.
#[derive(Debug, Default)]
pub struct Symbols {
    names: String,
    entries: Vec<Entry>,
    /// Highest end of `entries[..=i]`: how far back a lookup has to look.
    reach: Vec<u64>,
    /// Indices of `entries`, sorted by name.
    by_name: Vec<u32>,
    mapping: Mapping,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    svma: u64,
    size: u64,
    name: u32,
    name_len: u32,
    size_inferred: bool,
    kind: SymbolKind,
    in_text: bool,
    /// Not from the image's own tables.
    foreign: bool,
    thumb: bool,
    binding: Binding,
    chooses: bool,
}

impl Entry {
    fn range(&self) -> Range<u64> {
        self.svma..self.svma.saturating_add(self.size)
    }
}

/// How many overlapping symbols a lookup looks back over before it gives up.
const LOOK_BACK: usize = 1024;

impl Symbols {
    pub(crate) fn read(image: &Image) -> Symbols {
        read::merged(image)
    }

    /// The symbol whose function contains an address; else the label in text before it; else the
    /// object that contains it. Of several names at one address the one that gdb prints is taken:
    /// the last in byte order, names of the image's own tables before those of its debug file.
    pub fn containing(&self, svma: u64) -> Option<Symbol<'_>> {
        let end = self.entries.partition_point(|entry| entry.svma <= svma);
        let mut label = None;
        let mut object = None;
        for index in (end.saturating_sub(LOOK_BACK)..end).rev() {
            if self.reach[index] <= svma {
                break;
            }
            let entry = &self.entries[index];
            if !entry.range().contains(&svma) {
                continue;
            }
            if entry.in_text && !entry.size_inferred {
                return Some(self.symbol(entry));
            }
            let place = if entry.in_text {
                &mut label
            } else {
                &mut object
            };
            place.get_or_insert(entry);
        }
        label.or(object).map(|entry| self.symbol(entry))
    }

    /// All defined symbols of exactly this name, version suffix ignored.
    pub fn named(&self, name: &str) -> Vec<Symbol<'_>> {
        let name_of = |index: &u32| self.name(&self.entries[*index as usize]);
        let start = self.by_name.partition_point(|index| name_of(index) < name);
        self.by_name[start..]
            .iter()
            .take_while(|index| name_of(index) == name)
            .map(|&index| self.symbol(&self.entries[index as usize]))
            .collect()
    }

    /// All functions, sorted by address; aliases are all there.
    pub fn functions(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.iter()
            .filter(|symbol| symbol.kind == SymbolKind::Function)
    }

    /// All symbols, sorted by address.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.entries.iter().map(|entry| self.symbol(entry))
    }

    /// What mapping symbols (`$a`, `$t`, `$d`, `$x`) say of an address: `None` without any before it
    /// in its section.
    pub fn code_kind(&self, svma: u64) -> Option<CodeKind> {
        self.mapping.at(svma)
    }

    /// The map that the mapping symbols draw: sorted starts, each valid up to the next.
    pub fn code_map(&self) -> impl Iterator<Item = (u64, CodeKind)> + '_ {
        self.mapping.iter()
    }

    /// How many symbols there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No symbols at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn name(&self, entry: &Entry) -> &str {
        &self.names[entry.name as usize..][..entry.name_len as usize]
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        Symbol {
            name: self.name(entry),
            svma: entry.svma,
            size: entry.size,
            size_inferred: entry.size_inferred,
            kind: entry.kind,
            thumb: entry.thumb,
            binding: entry.binding,
            chooses: entry.chooses,
        }
    }
}
