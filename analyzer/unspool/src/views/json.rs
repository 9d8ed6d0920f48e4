//! The JSON objects that `report` and `inspect` share, as serde structs.
//!
//! Field order here is the order in the output; `docs/reference/report-json.md` documents every field.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::{Backtrace, Model, NamedFrame, Place, Severity};

/// The version of both schemas. Grows when a field changes its meaning or goes, not when one is added.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// The program and its machine.
#[derive(Debug, Serialize)]
pub(super) struct Target<'a> {
    pub(super) arch: &'a str,
    pub(super) executable: &'a str,
    pub(super) name: &'a str,
    pub(super) pid: Option<u64>,
}

impl<'a> Target<'a> {
    pub(super) fn of(model: &'a Model) -> Target<'a> {
        Target {
            arch: &model.target.arch,
            executable: &model.target.executable,
            name: &model.target.name,
            pid: Some(model.target.pid).filter(|pid| *pid != 0),
        }
    }
}

/// A frame of a stack.
#[derive(Debug, Serialize)]
pub(super) struct Frame<'a> {
    pub(super) function: Option<&'a str>,
    pub(super) offset: u64,
    pub(super) module: &'a str,
    pub(super) svma: u64,
    pub(super) file: Option<&'a str>,
    pub(super) line: Option<u32>,
    pub(super) inlined: bool,
    pub(super) provenance: &'static str,
}

/// Code that no module holds: its `svma` is the address as mapped.
pub(super) const NO_MODULE: &str = "[unknown]";

impl<'a> From<&'a NamedFrame> for Frame<'a> {
    fn from(frame: &'a NamedFrame) -> Frame<'a> {
        let place = &frame.place;
        Frame {
            function: place.function.as_deref(),
            offset: place.offset,
            module: place.module.as_deref().unwrap_or(NO_MODULE),
            svma: place.svma.unwrap_or(place.avma),
            file: place.file.as_deref(),
            line: place.line,
            inlined: frame.inlined,
            provenance: frame.provenance.as_str(),
        }
    }
}

/// The frames of a stack, innermost first.
pub(super) fn frames(stack: Option<&Backtrace>) -> Vec<Frame<'_>> {
    stack
        .into_iter()
        .flat_map(|stack| &stack.frames)
        .map(Frame::from)
        .collect()
}

/// Where a thread function is.
#[derive(Debug, Serialize)]
pub(super) struct FunctionPlace<'a> {
    pub(super) module: &'a str,
    pub(super) svma: u64,
    pub(super) file: Option<&'a str>,
    pub(super) line: Option<u32>,
}

impl<'a> From<&'a Place> for FunctionPlace<'a> {
    fn from(place: &'a Place) -> FunctionPlace<'a> {
        FunctionPlace {
            module: place.module.as_deref().unwrap_or(NO_MODULE),
            svma: place.svma.unwrap_or(place.avma),
            file: place.file.as_deref(),
            line: place.line,
        }
    }
}

/// All notes, and those that change how the rest is to be read.
pub(super) fn notes(model: &Model) -> (Vec<&str>, Vec<&str>) {
    let all = model.notes.iter().map(|note| note.text.as_str()).collect();
    let errors = model
        .notes
        .iter()
        .filter(|note| note.severity == Severity::Error);
    (all, errors.map(|note| note.text.as_str()).collect())
}

/// Writes a document, and ends its last line.
pub(super) fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document).map_err(io::Error::from)?;
    writeln!(out)
}
