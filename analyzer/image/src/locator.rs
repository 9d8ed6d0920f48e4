//! From an address to function names and source lines, inlining expanded.

use crate::Image;

/// Looks up addresses of one image.
#[derive(Debug)]
pub struct Locator {}

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The (outermost, not inlined) function.
    pub function: Option<Function>,
    /// Source frames, innermost first; empty without DWARF.
    pub lines: Vec<SourceFrame>,
}

/// A function that contains an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Name as gdb's `bt` shows it.
    pub name: String,
    /// Name as in the symbol table.
    pub raw: String,
    /// First address.
    pub start: u64,
}

/// A source line, in a function or in what was inlined into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// Name as gdb's `bt` shows it.
    pub function: Option<String>,
    /// Path as DWARF has it, made absolute by the compilation directory.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// Column, from 1.
    pub column: Option<u32>,
    /// True if this function was inlined into the next frame's.
    pub inlined: bool,
}

impl Locator {
    /// For an image and its debug file; parses lazily.
    pub fn new(image: &Image) -> Locator {
        todo!()
    }
    /// What is known of an address; never fails.
    pub fn locate(&self, svma: u64) -> Location {
        todo!()
    }
    /// What could not be read.
    pub fn notes(&self) -> Vec<String> {
        todo!()
    }
}
