//! One unit, parsed when an address in it is looked up first.

use std::sync::Arc;

use super::Reader;
use super::functions::Functions;
use super::lines::{self, Lines};

/// A parsed unit.
pub(super) struct Unit<'a> {
    pub(super) unit: Arc<gimli::Unit<Reader<'a>>>,
    pub(super) lines: Lines,
    pub(super) functions: Functions<'a>,
    /// Paths by file number, as far as they were needed.
    paths: Vec<Option<Arc<[u8]>>>,
}

impl<'a> Unit<'a> {
    /// Parses a unit. `None` if it has no line table or is damaged: binutils ignores it then.
    pub(super) fn parse(
        dwarf: &gimli::Dwarf<Reader<'a>>,
        unit: Arc<gimli::Unit<Reader<'a>>>,
        standard: bool,
    ) -> Option<Unit<'a>> {
        let lines = Lines::read(unit.line_program.as_ref()?.header(), standard);
        let functions = Functions::read(dwarf, &unit, standard)?;
        Some(Unit {
            unit,
            lines,
            functions,
            paths: Vec::new(),
        })
    }

    /// Whether it has neither lines nor functions with code.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.functions.is_empty()
    }

    /// The path of a file by its number in the line table.
    pub(super) fn path(&mut self, dwarf: &gimli::Dwarf<Reader<'a>>, file: u64) -> Arc<[u8]> {
        let Some(program) = &self.unit.line_program else {
            return Arc::from(*b"<unknown>");
        };
        let header = program.header();
        let slot = usize::try_from(file).ok();
        let slot = slot.filter(|slot| *slot <= header.file_names().len());
        let Some(slot) = slot else {
            return Arc::from(*b"<unknown>");
        };
        if self.paths.len() <= slot {
            self.paths.resize(slot + 1, None);
        }
        let path = || lines::path(dwarf, &self.unit, header, file).into();
        self.paths[slot].get_or_insert_with(path).clone()
    }
}
