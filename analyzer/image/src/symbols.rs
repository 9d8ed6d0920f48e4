//! The symbols of an image, merged from all its symbol tables.
//!
//! Separate from the tables' layout: here they are one sorted list, each address has one best name,
//! and sizes are complete.
//!
//! A program of 100 MB has 200,000 symbols, and one inspection needs fifty of them. So the list is
//! sorted by address alone, and a name is read from its table when needed. Sorting or comparing all
//! names takes ten times as long.

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

/// The kind of a symbol.
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

/// The visibility of a symbol to other object files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Binding {
    /// Visible only in its own object file.
    Local,
    /// Visible to all, unless there is a global symbol.
    Weak,
    /// Visible to all.
    Global,
}

/// A defined symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbol<'a> {
    /// The name in the table, without version suffix.
    pub name: &'a str,
    /// Address, thumb bit removed.
    pub svma: u64,
    /// Size. If the table says 0, up to the next symbol or the end of the section.
    pub size: u64,
    /// Whether `size` was inferred.
    pub size_inferred: bool,
    /// The kind of symbol.
    pub kind: SymbolKind,
    /// ARM: the function is Thumb code.
    pub thumb: bool,
    /// The visibility.
    pub binding: Binding,
    /// Whether it is a resolver (`STT_GNU_IFUNC`).
    pub is_ifunc: bool,
}

/// All defined symbols of an image, sorted by address. Of several names at one address, the best is
/// last.
#[derive(Debug, Default)]
pub struct Symbols {
    /// String tables, by [`Entry::table`].
    tables: Vec<SharedBytes>,
    /// Names of PLT stubs.
    stubs: SharedBytes,
    /// Sorted by address. A symbol in two tables appears twice.
    entries: Vec<Entry>,
    /// Highest end of `entries[..=i]`, which limits how far back a lookup must search.
    reach: Vec<u64>,
    /// Indices of `entries` with a name, without duplicates, in the order of [`Symbols::iter`].
    ordered: OnceLock<Vec<u32>>,
    /// Hashes of names and indices of `entries`, sorted.
    by_name: OnceLock<Vec<(u32, u32)>>,
    mapping: Mapping,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    svma: u64,
    size: u64,
    /// Offset of the name in its table.
    name: u32,
    table: u8,
    size_inferred: bool,
    kind: SymbolKind,
    in_text: bool,
    /// Comes from another file's tables.
    foreign: bool,
    thumb: bool,
    binding: Binding,
    is_ifunc: bool,
}

impl Entry {
    fn range(&self) -> Range<u64> {
        self.svma..self.svma.saturating_add(self.size)
    }
}

/// Maximum number of overlapping symbols that a lookup searches.
const MAX_OVERLAPS: usize = 1024;

impl Symbols {
    pub(crate) fn read(image: &Image) -> Symbols {
        read::merged(image)
    }

    /// The symbol of the function that contains an address. Else the label before it in text, else
    /// the object that contains it.
    ///
    /// Of several names at one address, this is the one gdb prints: the last in byte order. Names
    /// from the image's own tables win over those of its debug file.
    pub fn containing(&self, svma: u64) -> Option<Symbol<'_>> {
        let end = self.entries.partition_point(|entry| entry.svma <= svma);
        let mut label = None;
        let mut object = None;
        let limit = end.saturating_sub(MAX_OVERLAPS);
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

    /// All defined symbols with exactly this name, ignoring the version suffix, sorted by address.
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
        // Of two tables, the first one wins.
        found.sort_by_key(|symbol| symbol.svma);
        found.dedup_by_key(|symbol| symbol.svma);
        found
    }

    /// All functions, sorted by address, including aliases.
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

    /// All functions, unordered and some twice; avoids the cost of sorting names.
    pub fn unordered_functions(&self) -> impl Iterator<Item = Symbol<'_>> {
        let functions = self.entries.iter();
        let functions = functions.filter(|entry| entry.kind == SymbolKind::Function);
        functions.filter_map(|entry| Some(symbol(self.name(entry)?, entry)))
    }

    /// The starts of functions in order, and whether the code there is Thumb, without names.
    pub fn function_starts(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let functions = self.entries.iter();
        let functions = functions.filter(|entry| entry.kind == SymbolKind::Function);
        functions.map(|entry| (entry.svma, entry.thumb))
    }

    /// The addresses and kinds of the symbols after an address, in order, without names.
    pub fn after(&self, svma: u64) -> impl Iterator<Item = (u64, SymbolKind)> + '_ {
        let first = self.entries.partition_point(|entry| entry.svma <= svma);
        let entries = self.entries[first..].iter();
        entries.map(|entry| (entry.svma, entry.kind))
    }

    /// The kind of code at an address, from mapping symbols (`$a`, `$t`, `$d`, `$x`). `None` if
    /// none precedes it in its section.
    pub fn code_kind(&self, svma: u64) -> Option<CodeKind> {
        self.mapping.at(svma)
    }

    /// The mapping symbols: sorted starts, each valid up to the next.
    pub fn code_map(&self) -> impl Iterator<Item = (u64, CodeKind)> + '_ {
        self.mapping.iter()
    }

    /// The number of symbols.
    pub fn len(&self) -> usize {
        self.ordered().len()
    }

    /// Whether there are no symbols.
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
                // A stable sort, so that of a name in two tables the first is kept.
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

    /// The name without version suffix. `None` if the table has no such name.
    fn name(&self, entry: &Entry) -> Option<&str> {
        let table = match entry.table {
            PLT_TABLE => &self.stubs,
            table => self.tables.get(usize::from(table))?,
        };
        let name = layout::string_at(table.bytes(), entry.name.into())?;
        // Linkers append versions in .symtab: `foo@VER`, `foo@@VER`. Names of PLT stubs contain
        // their own @.
        let end = match entry.table {
            PLT_TABLE => None,
            _ => memchr::memchr(b'@', name),
        };
        let name = std::str::from_utf8(&name[..end.unwrap_or(name.len())]).ok()?;
        (!name.is_empty()).then_some(name)
    }
}

/// The table number of PLT stub names.
const PLT_TABLE: u8 = u8::MAX;

/// The order of two symbols at one address. gdb sorts by name and takes the last. Names in the file
/// itself win over those in its debug file, so that an exported name wins over internal aliases.
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
        is_ifunc: entry.is_ifunc,
    }
}
