//! The functions of one unit and the address ranges that they cover.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gimli::{AttributeValue, RangeListsOffset, UnitOffset};

use super::Reader;

/// A function: unit and position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionId {
    pub(super) unit: u32,
    pub(super) index: u32,
}

/// A function, out of line or inlined.
pub(super) struct Function<'a> {
    pub(super) offset: UnitOffset,
    /// Start of its first range.
    pub(super) low: u64,
    /// The function that it is inlined into, as an index.
    pub(super) caller: Option<u32>,
    pub(super) call_file: Option<u64>,
    pub(super) call_line: u64,
    /// The name, once it is known.
    pub(super) name: Option<Name<'a>>,
}

/// A function's name.
#[derive(Clone, Copy, Default)]
pub(super) struct Name<'a> {
    pub(super) text: Option<&'a [u8]>,
    /// Whether it is the name in the symbol table, or the function has been named by that already.
    pub(super) is_linkage: bool,
}

/// The functions of a unit.
#[derive(Default)]
pub(super) struct Functions<'a> {
    pub(super) all: Vec<Function<'a>>,
    /// Sorted starts of ranges, with the innermost function, valid up to the next.
    map: Vec<(u64, Option<u32>)>,
}

const DW_TAG_ENTRY_POINT: gimli::DwTag = gimli::DW_TAG_entry_point;

impl<'a> Functions<'a> {
    /// Reads the functions of a unit. `None` if its DIEs are damaged. Without `standard`,
    /// ignores ranges in the form `DW_FORM_rnglistx`.
    pub(super) fn read(
        dwarf: &gimli::Dwarf<Reader<'a>>,
        unit: &gimli::Unit<Reader<'a>>,
        standard: bool,
    ) -> Option<Functions<'a>> {
        let mut all: Vec<Function<'a>> = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        // The function at each depth, for those inlined into it.
        let mut open: Vec<Option<u32>> = Vec::new();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut entries = unit.entries_raw(None).ok()?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let depth = usize::try_from(entries.next_depth()).unwrap_or(0);
            let Some(abbreviation) = entries.read_abbreviation().ok()? else {
                continue;
            };
            open.truncate(depth);
            open.resize(depth, None);
            let is_inlined = match abbreviation.tag() {
                gimli::DW_TAG_inlined_subroutine => true,
                gimli::DW_TAG_subprogram | DW_TAG_ENTRY_POINT => false,
                _ => {
                    entries.skip_attributes(abbreviation.attributes()).ok()?;
                    open.push(None);
                    continue;
                }
            };
            let index = u32::try_from(all.len()).ok()?;
            open.push(Some(index));
            let caller = || open[..depth].iter().rev().find_map(|function| *function);
            let mut function = Function {
                offset,
                low: 0,
                caller: if is_inlined { caller() } else { None },
                call_file: None,
                call_line: 0,
                name: None,
            };
            let (mut low, mut high, mut high_offset) = (0, 0, None);
            let mut list: Option<RangeListsOffset> = None;
            for attribute in abbreviation.attributes() {
                let attribute = entries.read_attribute_inline(*attribute).ok()?;
                match attribute.name() {
                    gimli::DW_AT_low_pc => {
                        low = dwarf
                            .attr_address(unit, attribute.value())
                            .ok()?
                            .unwrap_or(0);
                    }
                    gimli::DW_AT_high_pc => match attribute.value() {
                        AttributeValue::Udata(size) => high_offset = Some(size),
                        value => high = dwarf.attr_address(unit, value).ok()?.unwrap_or(0),
                    },
                    gimli::DW_AT_ranges => {
                        let value = attribute.value();
                        let is_indexed = matches!(value, AttributeValue::DebugRngListsIndex(_));
                        if standard || !is_indexed {
                            list = dwarf.attr_ranges_offset(unit, value).ok()?;
                        }
                    }
                    gimli::DW_AT_call_file => {
                        function.call_file = match attribute.value() {
                            AttributeValue::FileIndex(file) => Some(file),
                            value => value.udata_value(),
                        };
                    }
                    gimli::DW_AT_call_line => {
                        function.call_line = attribute.udata_value().unwrap_or(0);
                    }
                    _ => {}
                }
            }
            ranges.clear();
            if let Some(list) = list {
                let mut list = dwarf.ranges(unit, list).ok()?;
                while let Some(range) = list.next().ok()? {
                    add(&mut ranges, range.begin, range.end);
                }
            }
            if let Some(size) = high_offset {
                high = low.wrapping_add(size);
            }
            if high != 0 {
                add(&mut ranges, low, high);
            }
            function.low = ranges.first().map_or(0, |range| range.0);
            spans.extend(
                ranges
                    .iter()
                    .map(|&(start, end)| Span { start, end, index }),
            );
            all.push(function);
        }
        Some(Functions {
            all,
            map: flatten(spans),
        })
    }

    /// Whether no function covers an address.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The function that covers an address with the smallest range.
    pub(super) fn at(&self, svma: u64) -> Option<u32> {
        let after = self.map.partition_point(|(start, _)| *start <= svma);
        self.map.get(after.checked_sub(1)?)?.1
    }
}

/// Adds a range to a function's. Adjacent ranges become one, because the size of a range decides
/// which function an address belongs to.
fn add(ranges: &mut Vec<(u64, u64)>, low: u64, high: u64) {
    if low == high {
        return;
    }
    for range in ranges.iter_mut() {
        if low == range.1 {
            range.1 = high;
            return;
        }
        if high == range.0 {
            range.0 = low;
            return;
        }
    }
    // New ranges come after the first.
    let at = ranges.len().min(1);
    ranges.insert(at, (low, high));
}

#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
    index: u32,
}

/// Turns overlapping ranges into a sorted map from each address to the function with the smallest
/// range there; of equal ranges, to the function that comes last in DWARF.
fn flatten(mut spans: Vec<Span>) -> Vec<(u64, Option<u32>)> {
    spans.retain(|span| span.start < span.end);
    spans.sort_by_key(|span| span.start);
    let mut map: Vec<(u64, Option<u32>)> = Vec::with_capacity(spans.len() * 2);
    let mut open: BinaryHeap<(Reverse<u64>, u32, u64)> = BinaryHeap::new();
    let mut next = 0;
    let mut at = match spans.first() {
        Some(span) => span.start,
        None => return map,
    };
    loop {
        while let Some(span) = spans.get(next).filter(|span| span.start <= at) {
            open.push((Reverse(span.end - span.start), span.index, span.end));
            next += 1;
        }
        while open.peek().is_some_and(|(_, _, end)| *end <= at) {
            open.pop();
        }
        let best = open.peek().map(|&(_, index, end)| (index, end));
        let index = best.map(|(index, _)| index);
        if map.last().is_none_or(|last| last.1 != index) {
            map.push((at, index));
        }
        let start = spans.get(next).map(|span| span.start);
        at = match (best, start) {
            (Some((_, end)), Some(start)) => end.min(start),
            (Some((_, end)), None) => end,
            (None, Some(start)) => start,
            (None, None) => return map,
        };
    }
}
