//! Compiles DWARF call frame information to rows.
//!
//! This is our own interpreter rather than gimli's, because it evaluates every FDE of an image once
//! and in order, and the cost of a row matters. The tests compare it with gimli. It takes section
//! bytes, not images, so that tests and fuzzers can pass any bytes. It skips an entry that it
//! cannot read, and adds a note.

mod entry;
pub(crate) mod index;
mod instruction;
mod state;

use std::collections::HashMap;
use std::ops::Range;

use unspool_image::Arch;

use crate::cursor::Cursor;
use crate::registers::roles;
use crate::rows::Builder;
use crate::rule::Place;
use crate::table::Note;
use entry::{Broken, Cie, Entry, Fde};
use instruction::{Factors, Instruction, decode};
use state::{Stack, State, Unsound};

/// Notes about single entries. Further damage is only counted.
const MAX_NOTES: usize = 16;

/// One section of call frame information.
pub(crate) struct Section<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) svma: u64,
    /// `.debug_frame` rather than `.eh_frame`.
    pub(crate) debug: bool,
    /// The address and the content of `.eh_frame_hdr`.
    pub(crate) header: Option<(u64, &'a [u8])>,
}

/// Compiles every FDE of `section` that lies in `text` (sorted).
pub(crate) fn compile(
    arch: Arch,
    section: &Section<'_>,
    text: &[Range<u64>],
    into: &mut Builder,
    notes: &mut Vec<Note>,
) {
    into.make_room(section.data.len());
    let mut compiler = Compiler::new(arch, section, text, into);
    compiler.entries();
    compiler.listed();
    let unnoted = compiler.unnoted;
    notes.append(&mut compiler.notes);
    if unnoted > 0 {
        notes.push(Note::new(format!(
            "{unnoted} more entries of call frame information are damaged"
        )));
    }
}

struct Compiler<'a, 'b> {
    arch: Arch,
    section: &'b Section<'a>,
    text: &'b [Range<u64>],
    into: &'b mut Builder,
    prepared: Vec<Result<Prepared<'a>, &'static str>>,
    /// Offset of a CIE to its index in `prepared`.
    cies: HashMap<usize, usize>,
    /// The CIE used last: its offset and index.
    last: (usize, usize),
    stack: Stack,
    /// Number of FDEs found by following lengths.
    fdes: usize,
    notes: Vec<Note>,
    unnoted: usize,
}

/// A CIE and the state after its instructions.
struct Prepared<'a> {
    cie: Cie<'a>,
    initial: State,
    factors: Factors,
}

impl<'a, 'b> Compiler<'a, 'b> {
    fn new(
        arch: Arch,
        section: &'b Section<'a>,
        text: &'b [Range<u64>],
        into: &'b mut Builder,
    ) -> Compiler<'a, 'b> {
        Compiler {
            arch,
            section,
            text,
            into,
            prepared: Vec::new(),
            cies: HashMap::new(),
            last: (usize::MAX, 0),
            stack: Stack::default(),
            fdes: 0,
            notes: Vec::new(),
            unnoted: 0,
        }
    }

    fn entries(&mut self) {
        let mut at = 0;
        loop {
            match entry::entry(self.section, at) {
                Ok(Some(found)) => {
                    if let Some(cie) = found.cie {
                        self.fdes += 1;
                        self.fde(&found, cie);
                    }
                    at = found.end;
                }
                Ok(None) => return,
                Err((_, Broken::Length)) => {
                    // Without a valid length, no further entry can be found.
                    self.note(format!(
                        "call frame information ends early: the entry at offset {at:#x} reaches past the end"
                    ));
                    return;
                }
                Err((end, Broken::Pointer)) => {
                    self.note(format!(
                        "the entry at offset {at:#x} of the call frame information has no CIE"
                    ));
                    at = end;
                }
            }
        }
    }

    /// Compiles the FDEs that `.eh_frame_hdr` lists and that the lengths did not lead to. They lie
    /// after a damaged entry.
    fn listed(&mut self) {
        let Some((svma, header)) = self.section.header else {
            return;
        };
        // LSB 5.0, 10.6.2: version 1; .eh_frame's address as pcrel sdata4, a count as udata4, and
        // the table of (function, FDE) as sdata4 relative to the header, as all linkers write it.
        let [1, 0x1b, 0x03, 0x3b, _, _, _, _, a, b, c, d, table @ ..] = header else {
            return;
        };
        let count = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let (table, _) = table.as_chunks::<8>();
        if count <= self.fdes {
            return;
        }
        let seen = self.offsets();
        for &[_, _, _, _, a, b, c, d] in table.iter().take(count) {
            let offset = i64::from(i32::from_le_bytes([a, b, c, d]));
            let at = svma
                .wrapping_add_signed(offset)
                .wrapping_sub(self.section.svma);
            let Ok(at) = usize::try_from(at) else {
                continue;
            };
            if seen.binary_search(&at).is_err()
                && let Ok(Some(found)) = entry::entry(self.section, at)
                && let Some(cie) = found.cie
            {
                self.fde(&found, cie);
            }
        }
    }

    /// Offsets of the FDEs that the lengths lead to, in order. Needed only if some are missing.
    fn offsets(&self) -> Vec<usize> {
        let mut offsets = Vec::new();
        let mut at = 0;
        loop {
            at = match entry::entry(self.section, at) {
                Ok(Some(found)) => {
                    offsets.extend(found.cie.map(|_| at));
                    found.end
                }
                Err((end, Broken::Pointer)) => end,
                Ok(None) | Err((_, Broken::Length)) => return offsets,
            };
        }
    }

    fn note(&mut self, text: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(Note::new(text));
        } else {
            self.unnoted += 1;
        }
    }

    /// The index in `prepared` of the CIE at `offset`.
    fn prepare(&mut self, offset: usize) -> usize {
        if self.last.0 == offset {
            return self.last.1;
        }
        let number = match self.cies.get(&offset) {
            Some(&number) => number,
            None => {
                let prepared = self.read_cie(offset);
                self.prepared.push(prepared);
                self.cies.insert(offset, self.prepared.len() - 1);
                self.prepared.len() - 1
            }
        };
        self.last = (offset, number);
        number
    }

    fn read_cie(&mut self, offset: usize) -> Result<Prepared<'a>, &'static str> {
        let text = self.text.first().map_or(0, |range| range.start);
        let pointer = roles(self.arch).pointer;
        let cie = entry::cie(self.section, offset, pointer, text)?;
        let factors = Factors {
            code: cie.code_factor,
            data: cie.data_factor,
            encoding: cie.encoding,
            aarch64: self.arch == Arch::Aarch64,
        };
        // Without a rule, the return address is where the architecture's calls put it, or in the
        // register that hand-written code names. x86-64 CIEs always state `c-8`.
        let roles = roles(self.arch);
        let ra = match u8::try_from(cie.ra) {
            Ok(other) if roles.lr.is_some() && other != roles.ra => Place::Register(other),
            _ => Place::Same,
        };
        let rest = self.into.rest(ra, cie.signal_frame);
        let mut initial = State::new(cie.ra, rest);
        let mut at = Cursor::new(cie.instructions);
        let mut stack = Stack::default();
        while !at.is_empty() {
            let instruction = decode(&mut at, &factors, |_| 0)
                .map_err(|_| "its CIE has an unknown instruction")?;
            initial
                .apply(instruction, None, &mut stack, self.into)
                .map_err(|_| "its CIE has instructions without meaning")?;
        }
        Ok(Prepared {
            cie,
            initial,
            factors,
        })
    }

    /// Evaluates an FDE and returns the addresses it covers. `None` if it is of no use.
    fn fde(&mut self, found: &Entry, cie: usize) -> Option<Range<u64>> {
        let number = self.prepare(cie);
        let prepared = match &self.prepared[number] {
            Ok(prepared) => prepared,
            Err(why) => {
                let note = format!(
                    "the entry that ends at offset {:#x} is skipped: {why}",
                    found.end
                );
                self.note(note);
                return None;
            }
        };
        let Some(mut fde) = prepared.cie.fde(self.section, found) else {
            let note = format!("the entry that ends at offset {:#x} is cut off", found.end);
            self.note(note);
            return None;
        };
        // Linkers leave FDEs of discarded functions at address 0 or near it.
        let after = self.text.partition_point(|range| range.start <= fde.start);
        let text = &self.text[after.checked_sub(1)?];
        if !text.contains(&fde.start) {
            return None;
        }
        let (stated, end) = (fde.end, text.end);
        fde.end = stated.min(end);
        self.stack.clear();
        if let Err(why) = rows(
            prepared,
            &fde,
            self.section.svma,
            &mut self.stack,
            self.into,
        ) {
            self.note(format!("the FDE of {:#x} is cut short: {why}", fde.start));
        }
        if stated > end {
            let start = fde.start;
            self.note(format!(
                "the FDE of {start:#x} ends at {stated:#x}, the code at {end:#x}"
            ));
        }
        Some(fde.start..fde.end)
    }
}

/// Evaluates the instructions of an FDE. Rows before an error are kept.
fn rows(
    prepared: &Prepared<'_>,
    fde: &Fde<'_>,
    svma: u64,
    stack: &mut Stack,
    into: &mut Builder,
) -> Result<(), String> {
    let Prepared {
        initial, factors, ..
    } = prepared;
    let mut state = *initial;
    let mut start = fde.start;
    let mut at = Cursor::new(fde.instructions);
    let place = |position: usize| svma.wrapping_add((fde.position + position) as u64);
    while !at.is_empty() {
        let instruction = decode(&mut at, factors, place)
            .map_err(|opcode| format!("instruction {opcode:#x} is unknown or cut off"))?;
        let next = match instruction {
            Instruction::Advance(delta) => start.checked_add(delta),
            Instruction::SetLocation(location) => Some(location),
            other => {
                state
                    .apply(other, Some(initial), stack, into)
                    .map_err(|why| unsound(why).to_owned())?;
                continue;
            }
        };
        let next = next
            .filter(|&next| next >= start && next <= fde.end)
            .ok_or("a row lies outside the range it states")?;
        state.emit(start, next, into);
        start = next;
    }
    state.emit(start, fde.end, into);
    Ok(())
}

fn unsound(why: Unsound) -> &'static str {
    match why {
        Unsound::NothingRemembered => "it restores a state that it has not remembered",
        Unsound::TooDeep => "it remembers states without end",
        Unsound::NoRegister => {
            "it changes the CFA's offset, but the CFA rule does not use a register"
        }
    }
}
