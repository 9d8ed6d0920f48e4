//! A function's instructions with the unwind rule that applies before each: text for people, JSON
//! for programs (`docs/internals/unwinding.md`).

use std::io::{self, Write};

use serde::Serialize;
use unspool_unwind::Table;

use super::json;
use super::table::{Listed, Selection, rows_in};
use crate::model::disassembly::{Disassembly, Line};

/// Width of the instruction column. A longer instruction shifts the columns behind it.
const TEXT_WIDTH: usize = 40;

/// Writes one line per instruction.
pub fn write_text(
    code: &Disassembly,
    table: &Table,
    selection: Selection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = rows_in(table, selection, &code.range);
    let bytes = code.lines.iter().map(|line| line.bytes.len()).max();
    let bytes_width = 2 * bytes.unwrap_or(0).max(3);
    if let Some(name) = &code.name {
        writeln!(out, "{name}:")?;
    }
    writeln!(
        out,
        "{:<10} {:<bytes_width$} {:<TEXT_WIDTH$} {:<12} {:<10} {:<10} source",
        "address", "bytes", "instruction", "cfa", "ra", "fp"
    )?;
    for line in &code.lines {
        let address = format!("{:#x}", line.svma);
        let (bytes, text) = (hex(line), &line.text);
        let line = match rule(&rows, line) {
            Some(row) => {
                let [cfa, ra, fp] = row.columns();
                let rule = format!("{cfa:<12} {ra:<10} {fp:<10} {}", row.source);
                format!("{address:<10} {bytes:<bytes_width$} {text:<TEXT_WIDTH$} {rule}")
            }
            None => format!("{address:<10} {bytes:<bytes_width$} {text}"),
        };
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Writes the instructions as one JSON document.
pub fn write_json(
    code: &Disassembly,
    table: &Table,
    selection: Selection,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = rows_in(table, selection, &code.range);
    let instructions = code.lines.iter().map(|line| Instruction {
        address: line.svma,
        bytes: hex(line),
        text: line.text.clone(),
        data: line.is_data,
        rule: rule(&rows, line).cloned(),
    });
    let document = Document {
        schema_version: json::SCHEMA_VERSION,
        arch: table.arch().name(),
        function: code.name.clone(),
        start: code.range.start,
        end: code.range.end,
        instructions: instructions.collect(),
    };
    json::write(out, &document)
}

#[derive(Serialize)]
struct Document {
    schema_version: u32,
    arch: &'static str,
    function: Option<String>,
    start: u64,
    end: u64,
    instructions: Vec<Instruction>,
}

#[derive(Serialize)]
struct Instruction {
    address: u64,
    bytes: String,
    text: String,
    data: bool,
    rule: Option<Listed>,
}

/// The row that applies before the instruction of `line`.
fn rule<'r>(rows: &'r [Listed], line: &Line) -> Option<&'r Listed> {
    let after = rows.partition_point(|row| row.start <= line.svma);
    let row = rows.get(after.checked_sub(1)?)?;
    (line.svma < row.end && !line.is_data).then_some(row)
}

fn hex(line: &Line) -> String {
    line.bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
