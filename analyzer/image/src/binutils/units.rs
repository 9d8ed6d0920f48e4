//! All units of a file: which ones cover an address, and what they say of it.

use std::sync::Arc;

use super::Reader;
use super::functions::{FunctionId, Name};
use super::names::Names;
use super::unit::Unit;
use super::variables::{self, Variables};

/// The units of a file.
pub(super) struct Units<'a> {
    dwarf: Arc<gimli::Dwarf<Reader<'a>>>,
    names: Names<'a>,
    units: Vec<State<'a>>,
    /// Sorted by start.
    ranges: Vec<UnitRange>,
    /// Ranges of line tables that exceed those of their unit. binutils knows them once it has read
    /// the table, so that the padding after a function has no line at first. Sorted by start.
    exceeding: Vec<(u64, u64, u32)>,
    /// Size of the largest of them.
    largest_exceeding: u64,
    /// Units that state no ranges.
    without_ranges: Vec<u32>,
    variables: Option<Variables>,
    standard: bool,
    /// The function whose callers come next.
    innermost: Option<FunctionId>,
}

enum State<'a> {
    Unread,
    Ignored,
    Read(Box<Unit<'a>>),
}

struct UnitRange {
    start: u64,
    end: u64,
    /// Highest end of this and all ranges before it.
    reach: u64,
    unit: u32,
}

/// What the units say of an address.
pub(super) struct Hit {
    pub(super) function: Option<FunctionId>,
    pub(super) row: Option<HitRow>,
}

/// The line of an address.
pub(super) struct HitRow {
    pub(super) file: Option<Arc<[u8]>>,
    pub(super) line: u64,
    pub(super) discriminator: u64,
}

/// The file and line of a call, and the function that contains it.
type Caller = (Option<Arc<[u8]>>, u64, FunctionId);

impl<'a> Units<'a> {
    pub(super) fn new(mut dwarf: gimli::Dwarf<Reader<'a>>, standard: bool) -> Units<'a> {
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        let dwarf = Arc::new(dwarf);
        let names = Names::new(&dwarf);
        let mut ranges = Vec::new();
        let mut without_ranges = Vec::new();
        for (number, (_, header)) in (0..).zip(names.headers()) {
            let before = ranges.len();
            if let Ok(unit) = dwarf.unit(*header)
                && let Ok(mut covered) = dwarf.unit_ranges(&unit)
            {
                while let Ok(Some(range)) = covered.next() {
                    ranges.push(UnitRange {
                        start: range.begin,
                        end: range.end,
                        reach: 0,
                        unit: number,
                    });
                }
            }
            if ranges.len() == before {
                without_ranges.push(number);
            }
        }
        ranges.sort_by_key(|range| range.start);
        let mut reach = 0;
        for range in &mut ranges {
            reach = range.end.max(reach);
            range.reach = reach;
        }
        Units {
            units: names.headers().iter().map(|_| State::Unread).collect(),
            dwarf,
            names,
            ranges,
            exceeding: Vec::new(),
            largest_exceeding: 0,
            without_ranges,
            variables: None,
            standard,
            innermost: None,
        }
    }

    /// What the first unit that knows an address says of it.
    pub(super) fn find(&mut self, svma: u64) -> Option<Hit> {
        let after = self.ranges.partition_point(|range| range.start <= svma);
        let around = self.ranges[..after].iter().rev();
        let mut covering: Vec<u32> = around
            .take_while(|range| range.reach > svma)
            .filter(|range| range.end > svma)
            .map(|range| range.unit)
            .collect();
        let after = self.exceeding.partition_point(|range| range.0 <= svma);
        let around = self.exceeding[..after].iter().rev();
        let around = around.take_while(|range| svma - range.0 < self.largest_exceeding);
        covering.extend(around.filter(|range| range.1 > svma).map(|range| range.2));
        covering.sort_unstable();
        covering.dedup();
        for unit in covering {
            if let Some(hit) = self.find_in(unit, svma) {
                return Some(hit);
            }
        }
        let mut at = 0;
        while let Some(&unit) = self.without_ranges.get(at) {
            if let Some(hit) = self.find_in(unit, svma) {
                return Some(hit);
            }
            // Such a unit often has no code at all, and needs no second lookup.
            let is_empty = self.parsed(unit).is_none_or(|unit| unit.is_empty());
            if is_empty {
                self.without_ranges.remove(at);
            } else {
                at += 1;
            }
        }
        None
    }

    fn find_in(&mut self, number: u32, svma: u64) -> Option<Hit> {
        let dwarf = self.dwarf.clone();
        let unit = self.parsed(number)?;
        let function = unit.functions.at(svma);
        let row = unit.lines.at(svma).copied();
        if function.is_none() && row.is_none() {
            return None;
        }
        Some(Hit {
            function: function.map(|index| FunctionId {
                unit: number,
                index,
            }),
            row: row.map(|row| HitRow {
                file: Some(unit.path(&dwarf, row.file)).filter(|path| !path.is_empty()),
                line: row.line.into(),
                discriminator: row.discriminator.into(),
            }),
        })
    }

    fn parsed(&mut self, number: u32) -> Option<&mut Unit<'a>> {
        let index = usize::try_from(number).ok()?;
        if let State::Unread = self.units.get(index)? {
            let start = self.names.headers().get(index)?.0;
            let unit = self.names.unit(start);
            let unit = unit.and_then(|unit| Unit::parse(&self.dwarf, unit, self.standard));
            self.units[index] = match unit {
                Some(unit) => {
                    self.note_exceeding(number, &unit.lines.ranges);
                    State::Read(Box::new(unit))
                }
                None => State::Ignored,
            };
        }
        match &mut self.units[index] {
            State::Read(unit) => Some(unit),
            _ => None,
        }
    }

    fn note_exceeding(&mut self, unit: u32, lines: &[(u64, u64)]) {
        for &(start, end) in lines {
            let after = self.ranges.partition_point(|range| range.start <= start);
            let around = self.ranges[..after].iter().rev();
            let mut around = around.take_while(|range| range.reach > start);
            if start >= end || around.any(|range| range.unit == unit && range.end >= end) {
                continue;
            }
            let at = self.exceeding.partition_point(|range| range.0 < start);
            self.exceeding.insert(at, (start, end, unit));
            self.largest_exceeding = self.largest_exceeding.max(end - start);
        }
    }

    /// The file and line of a variable's declaration.
    pub(super) fn variable(&mut self, symbol: &[u8], svma: u64) -> Option<(Arc<[u8]>, u64)> {
        if self.variables.is_none() {
            let mut variables = Variables::new();
            for (number, (_, header)) in (0..).zip(self.names.headers()) {
                if let Ok(unit) = self.dwarf.unit(*header) {
                    // What precedes a damaged DIE counts.
                    let _ = variables::read(&self.dwarf, &unit, number, &mut variables);
                }
            }
            self.variables = Some(variables);
        }
        let places = self.variables.as_ref()?.get(&svma)?.clone();
        for (number, offset) in places {
            let start = self.names.headers().get(usize::try_from(number).ok()?)?.0;
            let described = self.names.described(start, offset);
            let named = described
                .name
                .text
                .is_some_and(|name| contains(symbol, name));
            let dwarf = self.dwarf.clone();
            if let (true, Some(file)) = (named, described.file)
                && let Some(unit) = self.parsed(number)
            {
                return Some((unit.path(&dwarf, file), described.line));
            }
        }
        None
    }

    /// A function's name in DWARF, or in the symbol table if binutils takes that name instead.
    pub(super) fn name(&mut self, id: FunctionId) -> Option<&'a [u8]> {
        self.named(id).text
    }

    /// Whether a function's name is final, so that the symbol table need not be searched.
    pub(super) fn is_linkage(&mut self, id: FunctionId) -> bool {
        self.named(id).is_linkage
    }

    /// Notes the symbol that was found for an address in a function. It becomes the function's name
    /// if both start at the same address. In any case the symbols are not searched again.
    pub(super) fn use_symbol(&mut self, id: FunctionId, start: u64, symbol: &'a [u8]) {
        let mut name = self.named(id);
        let Some(function) = self.function(id) else {
            return;
        };
        if function.low == start {
            name.text = Some(symbol);
        }
        name.is_linkage = true;
        function.name = Some(name);
    }

    /// Begins the walk from a function to the functions that it is inlined into.
    pub(super) fn set_innermost(&mut self, function: Option<FunctionId>) {
        self.innermost = function;
    }

    /// The next caller: the file and line of the call, and the function that contains it.
    pub(super) fn next_caller(&mut self) -> Option<Caller> {
        let id = self.innermost.take()?;
        let function = self.function(id)?;
        let (caller, file, line) = (function.caller?, function.call_file, function.call_line);
        let caller = FunctionId {
            index: caller,
            ..id
        };
        let dwarf = self.dwarf.clone();
        let unit = self.parsed(id.unit)?;
        let file = file.map(|file| unit.path(&dwarf, file));
        self.innermost = Some(caller);
        Some((file, line, caller))
    }

    fn function(&mut self, id: FunctionId) -> Option<&mut super::functions::Function<'a>> {
        let index = usize::try_from(id.index).ok()?;
        self.parsed(id.unit)?.functions.all.get_mut(index)
    }

    fn named(&mut self, id: FunctionId) -> Name<'a> {
        let Some(function) = self.function(id) else {
            return Name::default();
        };
        if let Some(name) = function.name {
            return name;
        }
        let offset = function.offset;
        let unit = usize::try_from(id.unit).unwrap_or(usize::MAX);
        let start = self.names.headers().get(unit).map_or(0, |header| header.0);
        let name = self.names.function(start, offset);
        if let Some(function) = self.function(id) {
            function.name = Some(name);
        }
        name
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}
