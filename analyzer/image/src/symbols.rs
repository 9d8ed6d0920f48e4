//! Symbols of an image, merged from every table that has some.

/// What a symbol stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SymbolKind {
    /// Code.
    Function,
    /// Data.
    Object,
    /// Anything else with an address.
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

/// What mapping symbols (`$a`, `$t`, `$d`, `$x`) say of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeKind {
    /// A32 (`$a`) or A64 (`$x`) instructions.
    Arm,
    /// T32 instructions (`$t`).
    Thumb,
    /// Data in text (`$d`).
    Data,
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
}

/// All defined symbols of an image.
#[derive(Debug, Default)]
pub struct Symbols {}

impl Symbols {
    /// The function that contains an address (else the object, else nothing).
    pub fn containing(&self, svma: u64) -> Option<Symbol<'_>> {
        todo!()
    }
    /// All defined symbols of exactly this name, version suffix ignored.
    pub fn named(&self, name: &str) -> Vec<Symbol<'_>> {
        todo!()
    }
    /// All functions, sorted by address; aliases are all there.
    pub fn functions(&self) -> impl Iterator<Item = Symbol<'_>> {
        std::iter::empty()
    }
    /// All symbols, sorted by address.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        std::iter::empty()
    }
    /// What mapping symbols say of an address: `None` without any before it.
    pub fn code_kind(&self, svma: u64) -> Option<CodeKind> {
        todo!()
    }
    /// How many symbols there are.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// No symbols at all.
    pub fn is_empty(&self) -> bool {
        todo!()
    }
}
