//! Names of functions and variables in DWARF: the linkage name first.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, UnitHeader, UnitOffset};

use super::Reader;
use super::functions::Name;
use crate::locator::unit_headers;

/// Maximum number of DIEs that a name may lead through.
const DIE_LIMIT: usize = 100;

/// The units of one file, found by offset. Those that names refer to stay open.
pub(super) struct Names<'a> {
    files: [Option<File<'a>>; 2],
}

struct File<'a> {
    dwarf: Arc<gimli::Dwarf<Reader<'a>>>,
    headers: Vec<(usize, UnitHeader<Reader<'a>>)>,
    open: HashMap<usize, Option<Arc<Opened<'a>>>>,
}

/// A unit with its language.
pub(super) struct Opened<'a> {
    pub(super) unit: Arc<gimli::Unit<Reader<'a>>>,
    is_plain: bool,
}

/// What DWARF states of a function or variable.
#[derive(Clone, Copy, Default)]
pub(super) struct Described<'a> {
    pub(super) name: Name<'a>,
    /// `DW_AT_decl_file`, with the unit that its number belongs to.
    pub(super) file: Option<u64>,
    pub(super) line: u64,
}

/// The main file or the supplementary one, as an index.
type FileIndex = usize;

impl<'a> Names<'a> {
    pub(super) fn new(dwarf: &Arc<gimli::Dwarf<Reader<'a>>>) -> Names<'a> {
        Names {
            files: [
                Some(File::new(dwarf.clone())),
                dwarf.sup.as_ref().map(|sup| File::new(sup.clone())),
            ],
        }
    }

    /// The headers of all units, sorted by their offset in `.debug_info`.
    pub(super) fn headers(&self) -> &[(usize, UnitHeader<Reader<'a>>)] {
        self.files[0].as_ref().map_or(&[], |file| &file.headers)
    }

    /// The name of the function at an offset in a unit of the main file.
    pub(super) fn function(&mut self, unit: usize, offset: UnitOffset) -> Name<'a> {
        self.described(unit, offset).name
    }

    /// The description by the DIE at an offset in a unit of the main file, and by the DIEs that it
    /// refers to.
    pub(super) fn described(&mut self, unit: usize, offset: UnitOffset) -> Described<'a> {
        let mut described = Described::default();
        // Keep the description up to a damaged part.
        let _ = self.describe((0, unit, offset), &mut 0, &mut described);
        described
    }

    /// Adds the description by a DIE and by the DIEs that it refers to, in the order of its
    /// attributes.
    fn describe(
        &mut self,
        (file, unit, offset): (FileIndex, usize, UnitOffset),
        visited: &mut usize,
        described: &mut Described<'a>,
    ) -> Option<()> {
        *visited += 1;
        if *visited > DIE_LIMIT {
            return None;
        }
        let (dwarf, opened) = self.open(file, unit)?;
        let entry = opened.unit.entry(offset).ok()?;
        for attribute in entry.attrs() {
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    let origin = match value {
                        AttributeValue::UnitRef(offset) => Some((file, unit, offset)),
                        AttributeValue::DebugInfoRef(offset) => self.locate(file, offset.0),
                        AttributeValue::DebugInfoRefSup(offset) => self.locate(1, offset.0),
                        _ => None,
                    };
                    if let Some(origin) = origin {
                        self.describe(origin, visited, described)?;
                    }
                }
                gimli::DW_AT_name if described.name.text.is_none() => {
                    let text = dwarf.attr_string(&opened.unit, value).ok();
                    described.name.text = text.map(|text| text.slice());
                    described.name.is_linkage |= opened.is_plain;
                }
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    if let Ok(text) = dwarf.attr_string(&opened.unit, value) {
                        described.name.text = Some(text.slice());
                        described.name.is_linkage = true;
                    }
                }
                gimli::DW_AT_decl_file => {
                    described.file = match value {
                        AttributeValue::FileIndex(file) => Some(file),
                        value => value.udata_value(),
                    };
                }
                gimli::DW_AT_decl_line => described.line = attribute.udata_value().unwrap_or(0),
                _ => {}
            }
        }
        Some(())
    }

    /// The unit in the main file that starts at an offset.
    pub(super) fn unit(&mut self, start: usize) -> Option<Arc<gimli::Unit<Reader<'a>>>> {
        Some(self.open(0, start)?.1.unit.clone())
    }

    fn locate(&self, file: FileIndex, offset: usize) -> Option<(FileIndex, usize, UnitOffset)> {
        let headers = &self.files[file].as_ref()?.headers;
        let after = headers.partition_point(|(start, _)| *start <= offset);
        let (start, _) = headers.get(after.checked_sub(1)?)?;
        Some((file, *start, UnitOffset(offset - start)))
    }

    fn open(
        &mut self,
        file: FileIndex,
        start: usize,
    ) -> Option<(Arc<gimli::Dwarf<Reader<'a>>>, Arc<Opened<'a>>)> {
        let file = self.files[file].as_mut()?;
        let at = file
            .headers
            .binary_search_by_key(&start, |(start, _)| *start)
            .ok()?;
        let header = &file.headers[at].1;
        let dwarf = &file.dwarf;
        let opened = file.open.entry(start).or_insert_with(|| {
            let unit = dwarf.unit(*header).ok()?;
            let is_plain = is_plain(&unit);
            let unit = Arc::new(unit);
            Some(Arc::new(Opened { unit, is_plain }))
        });
        Some((dwarf.clone(), opened.clone()?))
    }
}

impl<'a> File<'a> {
    fn new(dwarf: Arc<gimli::Dwarf<Reader<'a>>>) -> File<'a> {
        let headers = unit_headers(&dwarf);
        File {
            dwarf,
            headers,
            open: HashMap::new(),
        }
    }
}

/// Whether a unit's language has no mangled names, so that names in DWARF are symbols. The list is
/// that of binutils 2.40, which lacks newer standards of C.
fn is_plain(unit: &gimli::Unit<Reader<'_>>) -> bool {
    let root = unit.entry(unit.header.root_offset()).ok();
    let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
    let Some(AttributeValue::Language(language)) = language else {
        return false;
    };
    matches!(
        language,
        gimli::DW_LANG_C89
            | gimli::DW_LANG_C
            | gimli::DW_LANG_C99
            | gimli::DW_LANG_C11
            | gimli::DW_LANG_Cobol74
            | gimli::DW_LANG_Cobol85
            | gimli::DW_LANG_Fortran77
            | gimli::DW_LANG_Pascal83
            | gimli::DW_LANG_PLI
            | gimli::DW_LANG_UPC
            | gimli::DW_LANG_Mips_Assembler
    )
}
