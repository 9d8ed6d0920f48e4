//! Describes an address inside a variable by the variable's type: `l[13]`, `acc[1].m`.
//!
//! Debug information has no index of variable addresses, so the first lookup reads all DIEs once.
//! The type is followed down to the requested offset, as far as it concerns a reader of the source.
//! Members of library types with reserved names are internal and are not shown.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use gimli::{AttributeValue, DwTag, Operation, Reader as _, UnitHeader, UnitOffset};

use super::dwarf::Reader;

/// Maximum size of debug information that is read for variable names.
const INFO_LIMIT: usize = 64 << 20;
/// Maximum number of types, bases and references on the way to a member.
const DEPTH_LIMIT: usize = 64;
/// Maximum length of a name.
const NAME_LIMIT: usize = 256;

/// The variables of an image.
pub(super) struct Variables {
    dwarf: Arc<gimli::Dwarf<Reader>>,
    /// Sorted by their offset in `.debug_info`.
    headers: Vec<(usize, UnitHeader<Reader>)>,
    units: HashMap<usize, Arc<gimli::Unit<Reader>>>,
    /// The DIEs of variables, by address.
    by_address: Option<HashMap<u64, usize>>,
    /// The ranges of `.debug_info` with types of standard libraries.
    standard: Vec<(usize, usize)>,
}

/// The parts of a DIE that the search needs.
#[derive(Default)]
struct Die {
    tag: Option<DwTag>,
    name: Option<String>,
    /// `DW_AT_type`
    of: Option<usize>,
    /// `DW_AT_specification` or `DW_AT_abstract_origin`
    origin: Option<usize>,
    size: Option<u64>,
    /// `DW_AT_data_member_location`
    at: Option<u64>,
    /// `DW_AT_count`, or one more than `DW_AT_upper_bound`
    count: Option<u64>,
    /// Defined elsewhere, like a static member.
    is_elsewhere: bool,
}

impl Variables {
    pub(super) fn new(dwarf: &Arc<gimli::Dwarf<Reader>>) -> Variables {
        Variables {
            dwarf: dwarf.clone(),
            headers: Vec::new(),
            units: HashMap::new(),
            by_address: None,
            standard: Vec::new(),
        }
    }

    /// The part of the variable at `start` that lies `offset` bytes after its start, as it is
    /// written in the source after the variable's name: `[13]`, `[1].m`. Empty for the variable
    /// itself. `None` if no type is known.
    pub(super) fn part(&mut self, start: u64, offset: u64) -> Option<String> {
        if self.by_address.is_none() {
            let all = self.read_all();
            self.by_address = Some(all);
        }
        let at = *self.by_address.as_ref()?.get(&start)?;
        let mut variable = self.die(at)?;
        for _ in 0..DEPTH_LIMIT {
            match (variable.of, variable.origin) {
                (None, Some(origin)) => variable = self.die(origin)?,
                _ => break,
            }
        }
        let mut name = String::new();
        self.descend(variable.of?, offset, &mut name, false, 0)?;
        Some(name)
    }

    /// Finds all variables with an address, and the ranges of the standard libraries' types.
    fn read_all(&mut self) -> HashMap<u64, usize> {
        let mut all = HashMap::new();
        let mut read = 0usize;
        let mut units = self.dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let Some(start) = header.debug_info_offset() else {
                continue;
            };
            read = read.saturating_add(header.length_including_self());
            if read > INFO_LIMIT {
                break;
            }
            self.headers.push((start.0, header.clone()));
            if let Ok(unit) = self.dwarf.unit(header) {
                // The DIEs before a damaged one are usable.
                let _ = self.read_unit(start.0, &unit, &mut all);
            }
        }
        all
    }

    fn read_unit(
        &mut self,
        start: usize,
        unit: &gimli::Unit<Reader>,
        all: &mut HashMap<u64, usize>,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(None)?;
        let mut standard_since = None;
        while !entries.is_empty() {
            let offset = start + entries.next_offset().0;
            let depth = entries.next_depth();
            if depth <= 1
                && let Some(since) = standard_since.take()
            {
                self.standard.push((since, offset));
            }
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            let is_space = depth == 1 && abbreviation.tag() == gimli::DW_TAG_namespace;
            if abbreviation.tag() != gimli::DW_TAG_variable && !is_space {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification)?;
                match (attribute.name(), attribute.value()) {
                    (gimli::DW_AT_location, AttributeValue::Exprloc(expression)) if !is_space => {
                        let mut operations = expression.operations(unit.encoding());
                        let address = match operations.next()? {
                            Some(Operation::Address { address }) => Some(address),
                            Some(Operation::AddressIndex { index }) => {
                                self.dwarf.address(unit, index).ok()
                            }
                            _ => None,
                        };
                        if let Some(address) = address.filter(|_| operations.next() == Ok(None)) {
                            all.entry(address).or_insert(offset);
                        }
                    }
                    (gimli::DW_AT_name, value) if is_space => {
                        let name = self.text(unit, value);
                        let standard = ["std", "__gnu_cxx", "core", "alloc"];
                        if name.is_some_and(|name| standard.contains(&&*name)) {
                            standard_since = Some(offset);
                        }
                    }
                    _ => {}
                }
            }
        }
        if let Some(since) = standard_since {
            let end = start + unit.header.length_including_self();
            self.standard.push((since, end));
        }
        Ok(())
    }

    /// Descends in the type at `at` to the part at `offset`. `hidden` means inside a library type's
    /// internals.
    fn descend(
        &mut self,
        at: usize,
        offset: u64,
        name: &mut String,
        hidden: bool,
        depth: usize,
    ) -> Option<()> {
        if depth > DEPTH_LIMIT || name.len() > NAME_LIMIT {
            return None;
        }
        let die = self.die(at)?;
        match die.tag? {
            gimli::DW_TAG_typedef if die.name.as_deref().is_some_and(is_primitive) => Some(()),
            gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => self.descend(die.of?, offset, name, hidden, depth + 1),
            gimli::DW_TAG_array_type => {
                let of = die.of?;
                let size = self.size(of, depth + 1).filter(|size| *size > 0)?;
                let mut counts = self.bounds(at);
                // All but the last dimension count in elements of the later ones.
                let mut index = offset / size;
                let mut indices = Vec::new();
                while let Some(count) = counts.pop() {
                    match count.filter(|count| *count > 0) {
                        Some(count) if !counts.is_empty() => {
                            indices.push(index % count);
                            index /= count;
                        }
                        _ => indices.push(std::mem::take(&mut index)),
                    }
                }
                if !hidden {
                    for index in indices.iter().rev() {
                        write!(name, "[{index}]").ok()?;
                    }
                }
                self.descend(of, offset % size, name, hidden, depth + 1)
            }
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type => {
                self.member(at, offset, name, hidden, depth)
            }
            _ => (offset == 0).then_some(()),
        }
    }

    /// Descends to a member of a structure.
    fn member(
        &mut self,
        at: usize,
        offset: u64,
        name: &mut String,
        hidden: bool,
        depth: usize,
    ) -> Option<()> {
        let is_standard = self.is_standard(at);
        let is_union = self.die(at)?.tag == Some(gimli::DW_TAG_union_type);
        let mut found = None;
        for member in self.members(at) {
            let die = self.die(member)?;
            let from = die.at.or(is_union.then_some(0));
            let place = die.of.zip(from);
            let place = place.filter(|(_, from)| *from <= offset && !die.is_elsewhere);
            let Some((of, from)) = place else {
                continue;
            };
            let size = self.size(of, depth + 1);
            let is_in = size.is_some_and(|size| offset - from < size);
            // If the type is only declared, the next member shows its end.
            if is_in || size.is_none() {
                found = Some((die.name, of, from));
            }
            if is_in {
                break;
            }
        }
        let Some((called, of, from)) = found else {
            return (offset == 0).then_some(());
        };
        let mut hidden = hidden;
        match called.as_deref() {
            // A base class or an anonymous structure.
            None => {}
            Some(own) if own.starts_with('_') => hidden |= !is_standard,
            Some(_) if hidden || is_standard && self.is_rust(at) => {}
            Some(told) => write!(name, ".{told}").ok()?,
        }
        self.descend(of, offset - from, name, hidden, depth + 1)
    }

    /// The size of a value of the type at `at`.
    fn size(&mut self, at: usize, depth: usize) -> Option<u64> {
        let die = self.die(at).filter(|_| depth <= DEPTH_LIMIT)?;
        if die.size.is_some() {
            return die.size;
        }
        match die.tag? {
            gimli::DW_TAG_array_type => {
                let size = self.size(die.of?, depth + 1)?;
                let mut counts = self.bounds(at).into_iter();
                counts.try_fold(size, |size, count| size.checked_mul(count?))
            }
            gimli::DW_TAG_typedef
            | gimli::DW_TAG_const_type
            | gimli::DW_TAG_volatile_type
            | gimli::DW_TAG_restrict_type
            | gimli::DW_TAG_atomic_type => self.size(die.of?, depth + 1),
            gimli::DW_TAG_pointer_type | gimli::DW_TAG_reference_type => {
                let (_, unit) = self.unit(at)?;
                Some(unit.encoding().address_size.into())
            }
            _ => None,
        }
    }

    /// The number of elements in each dimension of an array.
    fn bounds(&mut self, at: usize) -> Vec<Option<u64>> {
        let ranges = self.children(at, &[gimli::DW_TAG_subrange_type]);
        let count = |range| self.die(range).and_then(|die| die.count);
        ranges.into_iter().map(count).collect()
    }

    fn members(&mut self, at: usize) -> Vec<usize> {
        self.children(at, &[gimli::DW_TAG_member, gimli::DW_TAG_inheritance])
    }

    /// The direct children with these tags of the DIE at `at`.
    fn children(&mut self, at: usize, tags: &[DwTag]) -> Vec<usize> {
        let mut all = Vec::new();
        let Some((start, unit)) = self.unit(at) else {
            return all;
        };
        let Ok(mut entries) = unit.entries_raw(Some(UnitOffset(at - start))) else {
            return all;
        };
        while !entries.is_empty() {
            let offset = start + entries.next_offset().0;
            let depth = entries.next_depth();
            if depth <= 0 && offset != at {
                break;
            }
            let Ok(abbreviation) = entries.read_abbreviation() else {
                break;
            };
            let Some(abbreviation) = abbreviation else {
                continue;
            };
            if depth == 1 && tags.contains(&abbreviation.tag()) {
                all.push(offset);
            }
            if entries.skip_attributes(abbreviation.attributes()).is_err() {
                break;
            }
        }
        all
    }

    fn die(&mut self, at: usize) -> Option<Die> {
        let (start, unit) = self.unit(at)?;
        let entry = unit.entry(UnitOffset(at - start)).ok()?;
        let mut die = Die {
            tag: Some(entry.tag()),
            ..Die::default()
        };
        for attribute in entry.attrs() {
            let value = attribute.value();
            let reference = match value {
                AttributeValue::UnitRef(offset) => Some(start + offset.0),
                AttributeValue::DebugInfoRef(offset) => Some(offset.0),
                _ => None,
            };
            match attribute.name() {
                gimli::DW_AT_name => die.name = self.text(&unit, value),
                gimli::DW_AT_type => die.of = reference,
                gimli::DW_AT_specification | gimli::DW_AT_abstract_origin => die.origin = reference,
                gimli::DW_AT_byte_size => die.size = attribute.udata_value(),
                gimli::DW_AT_count => die.count = attribute.udata_value(),
                gimli::DW_AT_upper_bound => {
                    die.count = attribute.udata_value().and_then(|last| last.checked_add(1));
                }
                // A computed offset, such as that of a virtual base, is unknown.
                gimli::DW_AT_data_member_location => die.at = attribute.udata_value(),
                gimli::DW_AT_external | gimli::DW_AT_declaration => die.is_elsewhere = true,
                _ => {}
            }
        }
        Some(die)
    }

    /// The unit that contains an offset in `.debug_info`, and the unit's start.
    fn unit(&mut self, at: usize) -> Option<(usize, Arc<gimli::Unit<Reader>>)> {
        let after = self.headers.partition_point(|(start, _)| *start <= at);
        let (start, header) = self.headers.get(after.checked_sub(1)?)?;
        if let Some(unit) = self.units.get(start) {
            return Some((*start, unit.clone()));
        }
        let unit = Arc::new(self.dwarf.unit(header.clone()).ok()?);
        self.units.insert(*start, unit.clone());
        Some((*start, unit))
    }

    fn is_standard(&self, at: usize) -> bool {
        let after = self.standard.partition_point(|(start, _)| *start <= at);
        let around = after
            .checked_sub(1)
            .and_then(|index| self.standard.get(index));
        around.is_some_and(|(_, end)| at < *end)
    }

    fn is_rust(&mut self, at: usize) -> bool {
        let Some((_, unit)) = self.unit(at) else {
            return false;
        };
        let root = unit.entry(unit.header.root_offset()).ok();
        let language = root.and_then(|root| root.attr_value(gimli::DW_AT_language));
        language == Some(AttributeValue::Language(gimli::DW_LANG_Rust))
    }

    fn text(&self, unit: &gimli::Unit<Reader>, value: AttributeValue<Reader>) -> Option<String> {
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    }
}

/// Whether a type is a C library's synchronization object, whose content is internal.
fn is_primitive(name: &str) -> bool {
    let known = ["sem_t", "mtx_t", "cnd_t", "once_flag"];
    name.starts_with("pthread_") || known.contains(&name)
}
