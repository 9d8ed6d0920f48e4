//! DWARF call frame information to rows, by gimli's evaluation of each FDE.
//!
//! Takes section bytes, not images, so that any bytes can be fed to it. An entry that cannot be read is
//! skipped with a note; the rest serves.

pub(crate) mod expression;

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};
use unspool_image::Arch;

use crate::registers::{COUNT, roles};
use crate::rows::{Builder, Draft};
use crate::rule::{Cfa, Place};
use crate::table::Note;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// One section of call frame information.
pub(crate) struct Section<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) svma: u64,
    /// `.debug_frame` rather than `.eh_frame`.
    pub(crate) debug: bool,
}

/// Compile every FDE of `section` that lies in `text`.
pub(crate) fn compile(
    arch: Arch,
    section: &Section<'_>,
    text: &[Range<u64>],
    into: &mut Builder,
    notes: &mut Vec<Note>,
) {
    let vendor = match arch {
        Arch::Aarch64 => gimli::Vendor::AArch64,
        _ => gimli::Vendor::Default,
    };
    let address_size = roles(arch).pointer as u8;
    if section.debug {
        let mut frames = DebugFrame::new(section.data, LittleEndian);
        frames.set_address_size(address_size);
        frames.set_vendor(vendor);
        entries(arch, &frames, section, text, into, notes);
    } else {
        let mut frames = EhFrame::new(section.data, LittleEndian);
        frames.set_address_size(address_size);
        frames.set_vendor(vendor);
        entries(arch, &frames, section, text, into, notes);
    }
}

fn entries<'a, S>(
    arch: Arch,
    frames: &S,
    section: &Section<'_>,
    text: &[Range<u64>],
    into: &mut Builder,
    notes: &mut Vec<Note>,
) where
    S: UnwindSection<Slice<'a>>,
    S::Offset: gimli::UnwindOffset<usize>,
{
    let bases = BaseAddresses::default()
        .set_eh_frame(section.svma)
        .set_text(text.first().map_or(0, |range| range.start));
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    loop {
        let partial = match entries.next() {
            Ok(Some(CieOrFde::Fde(partial))) => partial,
            Ok(Some(CieOrFde::Cie(_))) => continue,
            Ok(None) => return,
            Err(error) => {
                // The lengths that lead from entry to entry are lost from here on.
                notes.push(Note::new(format!(
                    "call frame information ends early: {error}"
                )));
                return;
            }
        };
        let fde = match partial.parse(S::cie_from_offset) {
            Ok(fde) => fde,
            Err(error) => {
                notes.push(Note::new(format!("unreadable FDE skipped: {error}")));
                continue;
            }
        };
        let start = fde.initial_address();
        // Linkers leave FDEs of discarded functions behind, at address 0 or near it.
        if !text.iter().any(|range| range.contains(&start)) {
            continue;
        }
        let ra = fde.cie().return_address_register();
        let signal_frame = fde.is_signal_trampoline();
        let mut rows = match fde.rows(frames, &bases, &mut context) {
            Ok(rows) => rows,
            Err(error) => {
                notes.push(Note::new(format!("FDE of {start:#x} skipped: {error}")));
                continue;
            }
        };
        loop {
            match rows.next_row() {
                Ok(Some(row)) => push(arch, frames, row, ra, signal_frame, into),
                Ok(None) => break,
                Err(error) => {
                    notes.push(Note::new(format!("FDE of {start:#x} cut short: {error}")));
                    break;
                }
            }
        }
    }
}

fn push<'a, S>(
    arch: Arch,
    frames: &S,
    row: &UnwindTableRow<usize>,
    ra_column: Register,
    signal_frame: bool,
    into: &mut Builder,
) where
    S: UnwindSection<Slice<'a>>,
{
    let bytes = |into: &mut Builder, expression: &gimli::UnwindExpression<usize>| {
        let bytes = expression.get(frames).ok()?;
        Some(into.expression(bytes.0.slice()))
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            match (number(*register), i32::try_from(*offset)) {
                (Some(register), Ok(offset)) => Cfa::Register { register, offset },
                _ => Cfa::Unknown,
            }
        }
        CfaRule::Expression(expression) => match bytes(into, expression) {
            Some(expression) => Cfa::Expression(expression),
            None => Cfa::Unknown,
        },
    };
    let mut saved: Vec<(u8, Place)> = Vec::new();
    // Without a rule the return address is where the architecture's calls leave it: in the
    // link register. x86-64 always states `c-8`.
    let mut ra = Place::Same;
    let mut signed = false;
    for (register, rule) in row.registers() {
        if arch == Arch::Aarch64 && *register == gimli::AArch64::RA_SIGN_STATE {
            signed = matches!(rule, RegisterRule::Constant(1));
            continue;
        }
        let place = match rule {
            RegisterRule::Undefined => Place::Undefined,
            RegisterRule::SameValue => Place::Same,
            RegisterRule::Offset(offset) => match i32::try_from(*offset) {
                Ok(offset) => Place::AtCfa(offset),
                Err(_) => Place::Undefined,
            },
            RegisterRule::ValOffset(offset) => match i32::try_from(*offset) {
                Ok(offset) => Place::CfaPlus(offset),
                Err(_) => Place::Undefined,
            },
            RegisterRule::Register(other) => match number(*other) {
                Some(other) => Place::Register(other),
                None => Place::Undefined,
            },
            RegisterRule::Expression(expression) => match bytes(into, expression) {
                Some(expression) => Place::AtExpression(expression),
                None => Place::Undefined,
            },
            RegisterRule::ValExpression(expression) => match bytes(into, expression) {
                Some(expression) => Place::Value(expression),
                None => Place::Undefined,
            },
            _ => Place::Undefined,
        };
        if *register == ra_column {
            ra = place;
        } else if let Some(register) = number(*register) {
            saved.push((register, place));
        }
    }
    saved.sort_by_key(|(register, _)| *register);
    into.push(
        row.start_address(),
        row.end_address(),
        &Draft {
            cfa,
            ra,
            saved: &saved,
            signal_frame,
            signed,
        },
    );
}

fn number(register: Register) -> Option<u8> {
    (usize::from(register.0) < COUNT - 1).then_some(register.0 as u8)
}
