//! An image's unwind rules, row by row: text for people, JSON for programs
//! (`docs/internals/unwinding.md`).

use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;
use unspool_unwind::{Cfa, Place, RegisterFile, Row, Source, Table};

use super::json;
use crate::platform::Architecture;

/// The rows to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The rows of one source.
    Of(Source),
    /// The rows of the frame-pointer convention.
    FramePointer,
    /// The best row for each address.
    All,
}

/// Writes the rows as lines.
pub fn write_text(table: &Table, selection: Selection, out: &mut dyn Write) -> io::Result<()> {
    let mut count = 0usize;
    for_each(table, selection, &mut |row, source| {
        if count == 0 {
            writeln!(
                out,
                "{:<23} {:<12} {:<10} {:<10} source",
                "addresses", "cfa", "ra", "fp"
            )?;
        }
        count += 1;
        let addresses = format!("{:#x}..{:#x}", row.start, row.end);
        let listed = Listed::of(table, selection, row, source);
        writeln!(
            out,
            "{addresses:<23} {:<12} {:<10} {:<10} {source}",
            text(listed.cfa.as_ref()),
            text(listed.ra.as_ref()),
            text(listed.fp.as_ref()),
        )
    })?;
    for note in table.notes().iter().chain(&table.doubts()) {
        writeln!(out, "note: {note}")?;
    }
    writeln!(out, "{count} rows of {} code", table.arch())
}

/// Writes the rows as one JSON document.
pub fn write_json(table: &Table, selection: Selection, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = Vec::new();
    for_each(table, selection, &mut |row, source| {
        rows.push(Listed::of(table, selection, row, source));
        Ok(())
    })?;
    let listing = Listing {
        schema_version: json::SCHEMA_VERSION,
        arch: table.arch().name(),
        rows,
        notes: table
            .notes()
            .iter()
            .chain(&table.doubts())
            .map(ToString::to_string)
            .collect(),
    };
    json::write(out, &listing)
}

/// The rows that cover a part of `range`, in order of address.
pub(super) fn rows_in(table: &Table, selection: Selection, range: &Range<u64>) -> Vec<Listed> {
    let mut rows = Vec::new();
    let visited = for_each(table, selection, &mut |row, source| {
        if row.start < range.end && range.start < row.end {
            rows.push(Listed::of(table, selection, row, source));
        }
        Ok(())
    });
    debug_assert!(visited.is_ok(), "the visitor never fails");
    rows
}

fn for_each(
    table: &Table,
    selection: Selection,
    visit: &mut dyn FnMut(&Row<'_>, &'static str) -> io::Result<()>,
) -> io::Result<()> {
    match selection {
        Selection::Of(source) => table
            .rows_from(source)
            .try_for_each(|row| visit(&row, source.as_str())),
        Selection::FramePointer => table
            .rows_of_frame_pointer()
            .iter()
            .try_for_each(|row| visit(row, "fp")),
        Selection::All => table
            .rows_of_all()
            .try_for_each(|row| visit(&row, row.source.as_str())),
    }
}

#[derive(Serialize)]
struct Listing {
    schema_version: u32,
    arch: &'static str,
    rows: Vec<Listed>,
    notes: Vec<String>,
}

/// A row, in words that text and JSON share.
#[derive(Clone, Serialize)]
pub(super) struct Listed {
    pub(super) start: u64,
    pub(super) end: u64,
    cfa: Option<Where>,
    ra: Option<Where>,
    fp: Option<Where>,
    pub(super) source: &'static str,
}

/// The location of a value.
#[derive(Clone, Serialize)]
#[serde(untagged)]
enum Where {
    /// The value is the register's content plus the offset.
    RegisterPlus { reg: String, offset: i32 },
    /// The value is the register's content.
    Register { reg: String },
    /// The value is in memory, at the CFA plus the offset.
    AtCfa { cfa_offset: i32 },
    /// The value is unchanged.
    Same { same: bool },
    /// The value is the result of the expression.
    Expression { expr: String },
}

impl Listed {
    /// The columns of a row in text: CFA, return address and frame pointer.
    pub(super) fn columns(&self) -> [String; 3] {
        [&self.cfa, &self.ra, &self.fp].map(|place| text(place.as_ref()))
    }

    fn of(table: &Table, selection: Selection, row: &Row<'_>, source: &'static str) -> Listed {
        let namer = Namer { table, selection };
        let platform = Architecture::of(table.arch());
        let ra_register = platform.and_then(|platform| platform.return_register);
        let fp_register = platform.map(|platform| platform.frame_register);
        let ra = match row.rule.ra {
            Place::Same => ra_register.map(|number| Where::Register {
                reg: namer.register(number),
            }),
            place => namer.place(place),
        };
        let saved = row
            .rule
            .saved
            .iter()
            .find(|saved| Some(saved.0) == fp_register);
        Listed {
            start: row.start,
            end: row.end,
            cfa: match row.rule.cfa {
                Cfa::Register { register, offset } => Some(Where::RegisterPlus {
                    reg: namer.register(register),
                    offset,
                }),
                Cfa::Expression(expression) => Some(Where::Expression {
                    expr: namer.expression(expression),
                }),
                Cfa::Unknown => None,
            },
            ra,
            fp: match saved {
                None => Some(Where::Same { same: true }),
                Some(&(_, place)) => namer.place(place),
            },
            source,
        }
    }
}

/// Converts the numbers in rules to names.
#[derive(Clone, Copy)]
struct Namer<'t> {
    table: &'t Table,
    selection: Selection,
}

impl Namer<'_> {
    fn register(self, number: u8) -> String {
        RegisterFile::name(self.table.arch(), number)
            .map_or_else(|| format!("r{number}"), str::to_owned)
    }

    fn expression(self, expression: unspool_unwind::Expression) -> String {
        let source = match self.selection {
            Selection::Of(source) => Some(source),
            _ => None,
        };
        self.table.expression_text(source, expression)
    }

    fn place(self, place: Place) -> Option<Where> {
        let expr = match place {
            Place::Undefined => return None,
            Place::Same => return Some(Where::Same { same: true }),
            Place::AtCfa(cfa_offset) => return Some(Where::AtCfa { cfa_offset }),
            Place::Register(number) => {
                let reg = self.register(number);
                return Some(Where::Register { reg });
            }
            Place::CfaPlus(offset) => format!("cfa{offset:+}"),
            Place::AtRegister { register, offset } => {
                format!("*({}{offset:+})", self.register(register))
            }
            Place::AtExpression(expression) => format!("*({})", self.expression(expression)),
            Place::Value(expression) => self.expression(expression),
        };
        Some(Where::Expression { expr })
    }
}

fn text(place: Option<&Where>) -> String {
    match place {
        None => "unknown".to_owned(),
        Some(Where::RegisterPlus { reg, offset }) => format!("{reg}{offset:+}"),
        Some(Where::Register { reg }) => reg.clone(),
        Some(Where::AtCfa { cfa_offset }) => format!("c{cfa_offset:+}"),
        Some(Where::Same { .. }) => "same".to_owned(),
        Some(Where::Expression { expr }) => format!("({expr})"),
    }
}
