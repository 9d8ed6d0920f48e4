//! Symbols of an image, merged from every table that has some.
//!
//! Apart from the tables' layout: here they are one sorted list, each address has one best name, and
//! sizes are complete.
//!
//! A program of 100 MB has 200,000 symbols, and a look at it asks for fifty. So the list is sorted by address alone, and
//! a name is read from its table when it is asked for: to sort or to compare all names takes ten times as long.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::OnceLock;

use crate::Image;
use crate::image::{SharedBytes, layout};

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
    /// String tables, by [`Entry::table`].
    tables: Vec<SharedBytes>,
    /// Names of PLT stubs.
    stubs: SharedBytes,
    /// Sorted by address. A symbol that two tables have is there twice.
    entries: Vec<Entry>,
    /// Highest end of `entries[..=i]`: how far back a lookup has to look.
    reach: Vec<u64>,
    /// Indices of `entries`: those with a name, each name of an address once, in the order that [`Symbols::iter`] promises.
    ordered: OnceLock<Vec<u32>>,
    /// Hashes of names and indices of `entries`, sorted.
    by_name: OnceLock<Vec<(u32, u32)>>,
    mapping: Mapping,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    svma: u64,
    size: u64,
    /// Where in its table the name starts.
    name: u32,
    table: u8,
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
        let limit = end.saturating_sub(LOOK_BACK);
        let mut at = end;
        while at > limit && self.reach[at - 1] > svma {
            let start = self.entries[at - 1].svma;
            let mut function: Option<(&str, &Entry)> = None;
            let (mut here_label, mut here_object) = (None, None);
            while at > limit && self.entries[at - 1].svma == start {
                at -= 1;
                let entry = &self.entries[at];
                let Some(name) = self.name(entry).filter(|_| entry.range().contains(&svma)) else {
                    continue;
                };
                let best = match (entry.in_text, entry.size_inferred) {
                    (true, false) => &mut function,
                    (true, true) => &mut here_label,
                    (false, _) => &mut here_object,
                };
                if best.is_none_or(|best| aliases((name, entry), best).is_ge()) {
                    *best = Some((name, entry));
                }
            }
            if let Some((name, entry)) = function {
                return Some(symbol(name, entry));
            }
            label = label.or(here_label);
            object = object.or(here_object);
        }
        let (name, entry) = label.or(object)?;
        Some(symbol(name, entry))
    }

    /// All defined symbols of exactly this name, version suffix ignored; sorted by address.
    pub fn named(&self, name: &str) -> Vec<Symbol<'_>> {
        let index = self.by_name.get_or_init(|| self.hashed());
        let wanted = hash(name.as_bytes());
        let start = index.partition_point(|(hash, _)| *hash < wanted);
        let same = index[start..]
            .iter()
            .take_while(|(hash, _)| *hash == wanted);
        let mut found: Vec<Symbol<'_>> = same
            .filter_map(|(_, index)| {
                let entry = &self.entries[*index as usize];
                let own = self.name(entry).filter(|own| *own == name)?;
                Some(symbol(own, entry))
            })
            .collect();
        // Of two tables, the first one counts.
        found.sort_by_key(|symbol| symbol.svma);
        found.dedup_by_key(|symbol| symbol.svma);
        found
    }

    /// All functions, sorted by address; aliases are all there.
    pub fn functions(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.iter()
            .filter(|symbol| symbol.kind == SymbolKind::Function)
    }

    /// All symbols, sorted by address.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.ordered().iter().filter_map(|index| {
            let entry = &self.entries[*index as usize];
            Some(symbol(self.name(entry)?, entry))
        })
    }

    /// All functions in no order, and some twice: without the cost of sorting names.
    pub fn unordered_functions(&self) -> impl Iterator<Item = Symbol<'_>> {
        let functions = self.entries.iter();
        let functions = functions.filter(|entry| entry.kind == SymbolKind::Function);
        functions.filter_map(|entry| Some(symbol(self.name(entry)?, entry)))
    }

    /// Where functions start, in order, and whether the code there is Thumb; without their names.
    pub fn function_starts(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let functions = self.entries.iter();
        let functions = functions.filter(|entry| entry.kind == SymbolKind::Function);
        functions.map(|entry| (entry.svma, entry.thumb))
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
        self.ordered().len()
    }

    /// No symbols at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() || self.ordered().is_empty()
    }

    fn ordered(&self) -> &[u32] {
        self.ordered.get_or_init(|| {
            let mut ordered = Vec::with_capacity(self.entries.len());
            let mut start = 0;
            for run in self.entries.chunk_by(|a, b| a.svma == b.svma) {
                let numbered = run.iter().zip(start..);
                let mut named: Vec<(&str, &Entry, u32)> = numbered
                    .filter_map(|(entry, index)| Some((self.name(entry)?, entry, index)))
                    .collect();
                start += run.len() as u32;
                // Stable, so that of a name that two tables have the first is kept.
                named.sort_by(|a, b| a.0.cmp(b.0));
                named.dedup_by(|next, kept| next.0 == kept.0);
                named.sort_by(|a, b| aliases((a.0, a.1), (b.0, b.1)));
                ordered.extend(named.iter().map(|(_, _, index)| index));
            }
            ordered
        })
    }

    fn hashed(&self) -> Vec<(u32, u32)> {
        let numbered = self.entries.iter().zip(0..);
        let mut hashed: Vec<(u32, u32)> = numbered
            .filter_map(|(entry, index)| Some((hash(self.name(entry)?.as_bytes()), index)))
            .collect();
        hashed.sort_unstable();
        hashed
    }

    /// Without the version; `None` if the table has no such name.
    fn name(&self, entry: &Entry) -> Option<&str> {
        let table = match entry.table {
            PLT_TABLE => &self.stubs,
            table => self.tables.get(usize::from(table))?,
        };
        let name = layout::string_at(table.bytes(), entry.name.into())?;
        // Linkers number `foo@VER` and `foo@@VER` in .symtab. Stubs of the PLT have an @ of their own.
        let end = match entry.table {
            PLT_TABLE => None,
            _ => memchr::memchr(b'@', name),
        };
        let name = std::str::from_utf8(&name[..end.unwrap_or(name.len())]).ok()?;
        (!name.is_empty()).then_some(name)
    }
}

/// The number of the table that holds names of PLT stubs.
const PLT_TABLE: u8 = u8::MAX;

/// The order of two symbols at one address. gdb sorts by name and takes the last; names of the file itself come before
/// those of its debug file, so that an exported name wins over internal aliases.
fn aliases(a: (&str, &Entry), b: (&str, &Entry)) -> Ordering {
    b.1.foreign.cmp(&a.1.foreign).then_with(|| a.0.cmp(b.0))
}

/// FNV-1a, 32 bits.
fn hash(name: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    name.iter().fold(0x811c_9dc5, step)
}

fn symbol<'a>(name: &'a str, entry: &Entry) -> Symbol<'a> {
    Symbol {
        name,
        svma: entry.svma,
        size: entry.size,
        size_inferred: entry.size_inferred,
        kind: entry.kind,
        thumb: entry.thumb,
        binding: entry.binding,
        chooses: entry.chooses,
    }
}
