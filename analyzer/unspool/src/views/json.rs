//! The JSON objects that `report` and `inspect` share, as serde structs.
//!
//! The fields are in the order of the output. `docs/reference/report-json.md` documents every
//! field.

mod critical;
pub mod diff;
pub mod inspection;
mod lock_order;
mod lock_waits;
mod profile;
pub mod report;
mod sync;

use std::io::{self, Write};

use serde::Serialize;

use crate::model::{Backtrace, Model, NamedFrame, Note, Place, Severity, ThreadIndex};

/// The version of both schemas. It grows when a field changes its meaning or is removed, not when a
/// field is added.
pub(in crate::views) const SCHEMA_VERSION: u32 = 1;

/// The program and its machine.
#[derive(Debug, Serialize)]
pub(in crate::views) struct Target<'a> {
    pub(in crate::views) arch: &'a str,
    pub(in crate::views) executable: &'a str,
    pub(in crate::views) name: &'a str,
    pub(in crate::views) pid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::views) parent_pid: Option<u64>,
}

impl<'a> Target<'a> {
    pub(in crate::views) fn of(model: &'a Model) -> Target<'a> {
        Target {
            arch: &model.target.arch,
            executable: &model.target.executable,
            name: &model.target.name,
            pid: Some(model.target.pid).filter(|pid| *pid != 0),
            parent_pid: model.target.parent_pid,
        }
    }
}

/// The index of a thread in `threads`; or, if it belongs to another process, that of the process in
/// `processes`.
fn thread_or_process(model: &Model, thread: Option<ThreadIndex>) -> (Option<usize>, Option<usize>) {
    let own = thread.filter(|thread| model.thread(*thread).is_some());
    let process = thread.and_then(|thread| model.process(thread));
    (
        own.map(|ThreadIndex(thread)| thread),
        process.map(|(index, _)| index.0),
    )
}

/// A frame of a stack.
#[derive(Debug, Serialize)]
pub(in crate::views) struct Frame<'a> {
    #[serde(flatten)]
    pub(in crate::views) place: CodePlace<'a>,
    pub(in crate::views) inlined: bool,
    pub(in crate::views) provenance: &'static str,
}

/// The module of code outside all modules. Its `svma` is the mapped address.
pub(in crate::views) const NO_MODULE: &str = "[unknown]";

impl<'a> From<&'a NamedFrame> for Frame<'a> {
    fn from(frame: &'a NamedFrame) -> Frame<'a> {
        Frame {
            place: CodePlace::from(&frame.place),
            inlined: frame.inlined,
            provenance: frame.provenance.as_str(),
        }
    }
}

/// A place in code.
#[derive(Debug, Serialize)]
pub(in crate::views) struct CodePlace<'a> {
    pub(in crate::views) function: Option<&'a str>,
    pub(in crate::views) offset: u64,
    pub(in crate::views) module: &'a str,
    pub(in crate::views) svma: u64,
    pub(in crate::views) file: Option<&'a str>,
    pub(in crate::views) line: Option<u32>,
}

impl<'a> From<&'a Place> for CodePlace<'a> {
    fn from(place: &'a Place) -> CodePlace<'a> {
        CodePlace {
            function: place.function.as_deref(),
            offset: place.offset,
            module: place.module.as_deref().unwrap_or(NO_MODULE),
            svma: place.svma.unwrap_or(place.avma),
            file: place.file.as_deref(),
            line: place.line,
        }
    }
}

/// The frames of a stack, innermost first.
pub(in crate::views) fn frames(stack: Option<&Backtrace>) -> Vec<Frame<'_>> {
    stack
        .into_iter()
        .flat_map(|stack| &stack.frames)
        .map(Frame::from)
        .collect()
}

/// The location of a thread function.
#[derive(Debug, Serialize)]
pub(in crate::views) struct FunctionPlace<'a> {
    pub(in crate::views) module: &'a str,
    pub(in crate::views) svma: u64,
    pub(in crate::views) file: Option<&'a str>,
    pub(in crate::views) line: Option<u32>,
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

/// All notes, and the errors among them.
pub(in crate::views) fn notes(model: &Model) -> (Vec<String>, Vec<String>) {
    let all = model.notes.iter().map(Note::long).collect();
    let errors = model
        .notes
        .iter()
        .filter(|note| note.severity == Severity::Error);
    (all, errors.map(Note::long).collect())
}

/// Writes a document and a final newline.
pub(in crate::views) fn write(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, document).map_err(io::Error::from)?;
    writeln!(out)
}
