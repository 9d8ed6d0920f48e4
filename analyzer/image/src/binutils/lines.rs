//! The line table of one unit, sorted for lookups.

use gimli::{LineInstruction, LineProgramHeader};

use super::Reader;

/// The line table of a compilation unit. Each row is valid up to the next row's address.
#[derive(Default)]
pub(super) struct Lines {
    rows: Vec<Row>,
    /// The address ranges of the sequences.
    pub(super) ranges: Vec<(u64, u64)>,
}

/// A row of the line table.
#[derive(Clone, Copy)]
pub(super) struct Row {
    address: u64,
    /// Index in the file table; `END` after the last row of a sequence.
    pub(super) file: u64,
    pub(super) line: u32,
    pub(super) discriminator: u32,
}

const END: u64 = u64::MAX;

/// Rows of the table under construction that belong together.
struct Sequence {
    rows: Vec<Row>,
    low: u64,
    high: u64,
}

impl Lines {
    /// Executes a line program (DWARF 5, 6.2). What precedes a damaged instruction counts.
    /// Without `standard`, file 0 counts before the program names one in DWARF 5.
    pub(super) fn read(header: &LineProgramHeader<Reader<'_>>, standard: bool) -> Lines {
        let mut sequences = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        let unit = u64::from(header.minimum_instruction_length());
        let range = u64::from(header.line_range().max(1));
        let base = header.opcode_base();
        let advance = |opcode: u8| u64::from(opcode.wrapping_sub(base)) / range * unit;
        let first = u64::from(standard || header.version() < 5);
        let (mut address, mut file, mut line, mut discriminator) = (0_u64, first, 1_u32, 0_u64);
        let mut instructions = header.instructions();
        while let Ok(Some(instruction)) = instructions.next_instruction(header) {
            let is_end = match instruction {
                LineInstruction::Special(opcode) => {
                    address = address.wrapping_add(advance(opcode));
                    let skip = u64::from(opcode.wrapping_sub(base)) % range;
                    let delta = i64::from(header.line_base()) + skip as i64;
                    line = line.wrapping_add(delta as u32);
                    false
                }
                LineInstruction::Copy => false,
                LineInstruction::EndSequence => true,
                other => {
                    match other {
                        LineInstruction::AdvancePc(count) => {
                            address = address.wrapping_add(count.wrapping_mul(unit));
                        }
                        LineInstruction::ConstAddPc => {
                            address = address.wrapping_add(advance(u8::MAX));
                        }
                        LineInstruction::FixedAddPc(size) => {
                            address = address.wrapping_add(size.into());
                        }
                        LineInstruction::SetAddress(to) => address = to,
                        LineInstruction::AdvanceLine(by) => line = line.wrapping_add(by as u32),
                        LineInstruction::SetFile(to) => file = to,
                        LineInstruction::SetDiscriminator(to) => discriminator = to,
                        _ => {}
                    }
                    continue;
                }
            };
            let new = Row {
                address,
                file: if is_end { END } else { file },
                line,
                discriminator: u32::try_from(discriminator).unwrap_or(u32::MAX),
            };
            discriminator = 0;
            match rows.last_mut() {
                // Of several rows at one address, the last one counts.
                Some(last) if last.address == new.address && !is_end => *last = new,
                Some(last) if last.address > new.address && !is_end => {
                    let at = rows.partition_point(|row| row.address < new.address);
                    rows.insert(at, new);
                }
                _ => rows.push(new),
            }
            if is_end {
                let rows = std::mem::take(&mut rows);
                let low = rows.iter().map(|row| row.address).min().unwrap_or(0);
                sequences.push(Sequence {
                    low,
                    high: address,
                    rows,
                });
                (address, file, line) = (0, first, 1);
            }
        }
        Lines::merge(sequences)
    }

    /// Sorts the sequences. Where they overlap, the one that begins first counts.
    fn merge(mut sequences: Vec<Sequence>) -> Lines {
        let ranges = sequences
            .iter()
            .map(|sequence| (sequence.low, sequence.high))
            .collect();
        sequences.sort_by_key(|sequence| (sequence.low, !sequence.high));
        let count = sequences.iter().map(|sequence| sequence.rows.len()).sum();
        let mut all: Vec<Row> = Vec::with_capacity(count);
        let mut high = 0;
        for sequence in sequences {
            if sequence.high <= high && !all.is_empty() {
                continue;
            }
            let low = sequence.low.max(high);
            let skip = sequence.rows.partition_point(|row| row.address <= low);
            let from = all.len();
            all.extend(&sequence.rows[skip.saturating_sub(1)..]);
            if let Some(first) = all.get_mut(from) {
                first.address = first.address.max(low);
            }
            high = sequence.high;
        }
        Lines { rows: all, ranges }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row that covers an address.
    pub(super) fn at(&self, svma: u64) -> Option<&Row> {
        let after = self.rows.partition_point(|row| row.address <= svma);
        let row = self.rows.get(after.checked_sub(1)?)?;
        (row.file != END).then_some(row)
    }
}

/// The path of a file in the table, with its directories in front.
pub(super) fn path(
    dwarf: &gimli::Dwarf<Reader<'_>>,
    unit: &gimli::Unit<Reader<'_>>,
    header: &LineProgramHeader<Reader<'_>>,
    file: u64,
) -> Vec<u8> {
    let text = |value| dwarf.attr_string(unit, value).ok().map(|text| text.slice());
    path_of(header, unit.comp_dir.map(|dir| dir.slice()), text, file)
        .unwrap_or_else(|| b"<unknown>".to_vec())
}

fn path_of<'a>(
    header: &LineProgramHeader<Reader<'a>>,
    compilation: Option<&'a [u8]>,
    text: impl Fn(gimli::AttributeValue<Reader<'a>>) -> Option<&'a [u8]>,
    file: u64,
) -> Option<Vec<u8>> {
    // DWARF 5 counts files and directories from 0; before, 0 means unknown.
    let first = u64::from(header.version() < 5);
    let index = usize::try_from(file.checked_sub(first)?).ok()?;
    let entry = header.file_names().get(index)?;
    let name = text(entry.path_name())?;
    if name.starts_with(b"/") {
        return Some(name.to_vec());
    }
    let directory = entry
        .directory_index()
        .checked_sub(first)
        .and_then(|index| {
            let index = usize::try_from(index).ok()?;
            text(*header.include_directories().get(index)?)
        });
    let parts = match directory {
        Some(directory) if directory.starts_with(b"/") => [None, Some(directory)],
        _ => [compilation, directory],
    };
    let mut path = Vec::new();
    for part in parts.into_iter().flatten() {
        path.extend_from_slice(part);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    Some(path)
}
