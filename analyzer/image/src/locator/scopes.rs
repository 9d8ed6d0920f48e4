//! Qualified names of functions: `DW_AT_name` with the names of the enclosing scopes.
//!
//! This is the name in gdb's backtraces. For C++, gdb shows the demangled linkage name, but local
//! functions such as lambdas have none. For Rust it never does, and the names differ: `{impl#0}`
//! and `{closure#1}` with their type arguments.
//!
//! DIEs do not know their parents. So one pass over a unit's DIEs records the enclosing scope of
//! every scope and function.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, DwTag, Reader as _, UnitHeader, UnitOffset};

use super::dwarf::{Reader, unit_headers};
use crate::demangle::{self, function_name};

/// Maximum number of references and scopes that a name may lead through.
const DEPTH_LIMIT: usize = 32;
/// Maximum length of a name. Type arguments can make one longer than a screen.
const NAME_LIMIT: usize = 16 << 10;

pub(super) struct Scopes {
    main: File,
    supplementary: Option<File>,
    ranges: Vec<UnitRange>,
    names: HashMap<(bool, usize), Option<String>>,
}

struct File {
    dwarf: Arc<gimli::Dwarf<Reader>>,
    is_supplementary: bool,
    /// Sorted by their offset in `.debug_info`.
    headers: Vec<(usize, UnitHeader<Reader>)>,
    units: HashMap<usize, Option<Unit>>,
}

/// An address range of a unit.
struct UnitRange {
    start: u64,
    end: u64,
    /// Highest end of this and all earlier ranges in the sorted list.
    reach: u64,
    unit: usize,
}

struct Unit {
    unit: gimli::Unit<Reader>,
    may_be_cpp: bool,
    /// By scope or function: the enclosing scope.
    parents: HashMap<usize, usize>,
    /// The nesting depth of its DIEs.
    depth: usize,
}

/// A DIE: its file, and its offset in `.debug_info`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    supplementary: bool,
    offset: usize,
}

/// The parts of a DIE that a name needs.
struct Die {
    tag: DwTag,
    name: Option<String>,
    /// `DW_AT_linkage_name`, for C++ only.
    linkage: Option<String>,
    /// `DW_AT_specification` or `DW_AT_abstract_origin`.
    origin: Option<Place>,
    parent: Option<Place>,
}

impl Scopes {
    pub(super) fn new(dwarf: &Arc<gimli::Dwarf<Reader>>) -> Scopes {
        let supplementary = dwarf.sup.as_ref().map(|sup| File::new(sup, true));
        let main = File::new(dwarf, false);
        Scopes {
            ranges: main.ranges(),
            main,
            supplementary,
            names: HashMap::new(),
        }
    }

    /// The nesting depth of the DIEs in the units that cover an address.
    pub(super) fn deepest_at(&mut self, svma: u64) -> usize {
        let end = self.ranges.partition_point(|range| range.start <= svma);
        let mut deepest = 0;
        for range in self.ranges[..end]
            .iter()
            .rev()
            .take_while(|range| range.reach > svma)
        {
            if range.end > svma {
                let unit = self.main.unit(range.unit).map_or(0, |(_, unit)| unit.depth);
                deepest = deepest.max(unit);
            }
        }
        deepest
    }

    /// The qualified name of the function at an offset in `.debug_info`.
    pub(super) fn qualified_name(&mut self, offset: usize) -> Option<String> {
        self.name_at(
            Place {
                supplementary: false,
                offset,
            },
            0,
        )
    }

    fn name_at(&mut self, place: Place, depth: usize) -> Option<String> {
        let key = (place.supplementary, place.offset);
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        if depth > DEPTH_LIMIT {
            return None;
        }
        let name = self.build(place, depth);
        self.names.insert(key, name.clone());
        name
    }

    fn build(&mut self, place: Place, depth: usize) -> Option<String> {
        let mut die = self.die(place)?;
        // The declaration is in its class or namespace, the definition elsewhere.
        for _ in 0..DEPTH_LIMIT {
            let Some(origin) = die.origin else { break };
            let declared = self.die(origin)?;
            die = Die {
                name: declared.name.or(die.name),
                linkage: die.linkage.or(declared.linkage),
                ..declared
            };
        }
        if let Some(linkage) = &die.linkage {
            let name = function_name(linkage);
            if name != *linkage {
                return Some(name);
            }
        }
        let name = match die.name {
            Some(name) => name,
            None if die.tag == gimli::DW_TAG_namespace => "(anonymous namespace)".to_owned(),
            None => return None,
        };
        let is_function = die.tag == gimli::DW_TAG_subprogram;
        let prefix = die.parent.and_then(|parent| {
            // A function inside a function is named without it; a type inside a function is named
            // with it.
            if is_function && self.die(parent)?.tag == gimli::DW_TAG_subprogram {
                return None;
            }
            self.name_at(parent, depth + 1)
        });
        let name = match prefix {
            Some(prefix) => format!("{prefix}::{name}"),
            None => name,
        };
        (name.len() <= NAME_LIMIT).then(|| with_short_integers(name))
    }

    fn die(&mut self, place: Place) -> Option<Die> {
        let file = if place.supplementary {
            self.supplementary.as_mut()?
        } else {
            &mut self.main
        };
        file.die(place.offset)
    }
}

impl File {
    fn new(dwarf: &Arc<gimli::Dwarf<Reader>>, is_supplementary: bool) -> File {
        File {
            dwarf: dwarf.clone(),
            is_supplementary,
            headers: unit_headers(dwarf),
            units: HashMap::new(),
        }
    }

    fn ranges(&self) -> Vec<UnitRange> {
        let mut ranges = Vec::new();
        for (start, header) in &self.headers {
            let Ok(unit) = self.dwarf.unit(header.clone()) else {
                continue;
            };
            let Ok(mut covered) = self.dwarf.unit_ranges(&unit) else {
                continue;
            };
            while let Ok(Some(range)) = covered.next() {
                let (start, unit) = (range.begin, *start);
                ranges.push(UnitRange {
                    start,
                    end: range.end,
                    reach: 0,
                    unit,
                });
            }
        }
        ranges.sort_by_key(|range| range.start);
        let mut reach = 0;
        for range in &mut ranges {
            reach = range.end.max(reach);
            range.reach = reach;
        }
        ranges
    }

    /// The unit that contains an offset in `.debug_info`, and the unit's start.
    fn unit(&mut self, offset: usize) -> Option<(usize, &Unit)> {
        let index = self
            .headers
            .partition_point(|(start, _)| *start <= offset)
            .checked_sub(1)?;
        let (start, header) = self.headers.get(index)?;
        let parse = || Unit::parse(&self.dwarf, header.clone());
        let unit = self.units.entry(*start).or_insert_with(parse).as_ref()?;
        Some((*start, unit))
    }

    fn die(&mut self, offset: usize) -> Option<Die> {
        let is_supplementary = self.is_supplementary;
        let dwarf = self.dwarf.clone();
        let (start, unit) = self.unit(offset)?;
        let here = |offset: usize| Place {
            supplementary: is_supplementary,
            offset: start + offset,
        };
        let local = offset - start;
        let entry = unit.unit.entry(UnitOffset(local)).ok()?;
        let mut die = Die {
            tag: entry.tag(),
            name: None,
            linkage: None,
            origin: None,
            parent: unit.parents.get(&local).map(|&parent| here(parent)),
        };
        for attribute in entry.attrs() {
            match attribute.name() {
                gimli::DW_AT_name => {
                    die.name = text(&dwarf, &unit.unit, attribute.value());
                }
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    die.linkage = text(&dwarf, &unit.unit, attribute.value())
                        .filter(|name| unit.may_be_cpp && name.starts_with("_Z"))
                        .filter(|name| demangle::rust(name).is_none());
                }
                gimli::DW_AT_specification | gimli::DW_AT_abstract_origin => {
                    die.origin = match attribute.value() {
                        AttributeValue::UnitRef(offset) => Some(here(offset.0)),
                        AttributeValue::DebugInfoRef(offset) => Some(Place {
                            supplementary: is_supplementary,
                            offset: offset.0,
                        }),
                        AttributeValue::DebugInfoRefSup(offset) => Some(Place {
                            supplementary: true,
                            offset: offset.0,
                        }),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
        Some(die)
    }
}

/// Shortens integer types in template arguments like gdb; gcc writes them out.
fn with_short_integers(name: String) -> String {
    const TYPES: [(&str, &str); 6] = [
        ("long long unsigned int", "unsigned long long"),
        ("long unsigned int", "unsigned long"),
        ("short unsigned int", "unsigned short"),
        ("long long int", "long long"),
        ("long int", "long"),
        ("short int", "short"),
    ];
    if !name.contains('<') {
        return name;
    }
    TYPES
        .iter()
        .fold(name, |name, (long, short)| name.replace(long, short))
}

fn text(
    dwarf: &gimli::Dwarf<Reader>,
    unit: &gimli::Unit<Reader>,
    value: AttributeValue<Reader>,
) -> Option<String> {
    let text = dwarf.attr_string(unit, value).ok()?;
    let text = text.to_string_lossy().ok()?;
    (!text.is_empty() && text.len() <= NAME_LIMIT).then(|| text.into_owned())
}

impl Unit {
    fn parse(dwarf: &gimli::Dwarf<Reader>, header: UnitHeader<Reader>) -> Option<Unit> {
        let unit = dwarf.unit(header).ok()?;
        let mut parents = HashMap::new();
        // The scopes around the current DIE, with their depths.
        let mut open: Vec<(isize, usize)> = Vec::new();
        let mut deepest = 0;
        let mut entries = unit.entries_raw(None).ok()?;
        while !entries.is_empty() {
            let offset = entries.next_offset().0;
            let depth = entries.next_depth();
            deepest = deepest.max(depth);
            // The DIEs before a damaged one are usable.
            let Ok(abbreviation) = entries.read_abbreviation() else {
                break;
            };
            let Some(abbreviation) = abbreviation else {
                continue;
            };
            while open.last().is_some_and(|&(scope, _)| scope >= depth) {
                open.pop();
            }
            if is_scope(abbreviation.tag()) {
                if let Some(&(_, parent)) = open.last() {
                    parents.insert(offset, parent);
                }
                if abbreviation.has_children() {
                    open.push((depth, offset));
                }
            }
            if entries.skip_attributes(abbreviation.attributes()).is_err() {
                break;
            }
        }
        let depth = usize::try_from(deepest).unwrap_or(usize::MAX);
        Some(Unit {
            depth,
            may_be_cpp: may_be_cpp(&unit),
            unit,
            parents,
        })
    }
}

/// Whether a unit may be C++. Partial units made by dwz state no language.
fn may_be_cpp(unit: &gimli::Unit<Reader>) -> bool {
    let root = unit.entry(unit.header.root_offset()).ok();
    let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
    matches!(
        language,
        None | Some(AttributeValue::Language(
            gimli::DW_LANG_C_plus_plus
                | gimli::DW_LANG_C_plus_plus_03
                | gimli::DW_LANG_C_plus_plus_11
                | gimli::DW_LANG_C_plus_plus_14
                | gimli::DW_LANG_C_plus_plus_17
                | gimli::DW_LANG_C_plus_plus_20
        ))
    )
}

fn is_scope(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_namespace
            | gimli::DW_TAG_module
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_interface_type
            | gimli::DW_TAG_enumeration_type
            | gimli::DW_TAG_subprogram
    )
}
