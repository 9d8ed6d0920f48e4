//! The recording in the page's format: an index in JSON, then columns of numbers.
//!
//! The layout: the length of the index in bytes (32 bits, little-endian), the index, the columns.
//! All of it is compressed. The index is the document of `report --format json`
//! (docs/reference/report-json.md) with these changes:
//! - a stack is an index into `stacks`, and each stack there lists indices into `frames`;
//! - `threads[].times.waits`, `profile.samples` and `processes` are left out, because the columns
//!   contain each thread's waits, the samples and the processes;
//! - `created` has the threads of these processes whose creation is known: each has its position
//!   among all of their threads, and then its key, creator, creation stack, the reason if that ends
//!   early, function, and the function's place;
//! - `names` has the texts of these processes, for the numbers in a column;
//! - `uses` maps the numbers in a column to objects and their uses;
//! - `calls` has the texts of system calls, for the numbers in a column;
//! - `lock_calls` has, for each of `lock_waits`, the positions of its system calls in `calls`;
//! - `started` is a sentence about the processes that the program started, or null;
//! - `columns` has the size of each column in bytes; `sources` has the texts of source files.

use std::collections::{BTreeSet, HashMap};
use std::io;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{SourceFile, encode, path, processes, samples, states};
use crate::model::Model;
use crate::views::{blocking_call, json, text};

/// The version of the layout; `page/data.js` checks it.
const LAYOUT: u32 = 1;

/// The index and the columns, compressed.
pub(super) fn compressed(model: &Model, sources: &[SourceFile]) -> io::Result<Vec<u8>> {
    let mut columns = states::columns(model);
    columns.extend(states::hold_columns(model));
    columns.extend(path::columns(model));
    columns.extend(samples::columns(model));
    let (processes, names) = processes::columns(model);
    columns.extend(processes);
    let index = index(model, sources, names, &columns)?;
    let index = serde_json::to_vec(&index)?;
    let length = u32::try_from(index.len())
        .map_err(|_| io::Error::other("the recording is too large for one page"))?;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(index);
    for (_, column) in columns {
        bytes.extend(column);
    }
    encode::deflate(&bytes)
}

fn index(
    model: &Model,
    sources: &[SourceFile],
    names: Vec<String>,
    columns: &[(&'static str, Vec<u8>)],
) -> io::Result<Value> {
    let document = serde_json::to_value(json::report::document(model, false))?;
    let mut stacks = Stacks::default();
    let Value::Object(mut index) = stacks.shorten(document) else {
        return Err(io::Error::other("the report is not an object"));
    };
    let processes = index.remove("processes").unwrap_or_default();
    index.insert("created".to_owned(), created(&processes));
    index.insert("names".to_owned(), names.into());
    index.insert("layout".to_owned(), LAYOUT.into());
    index.insert("frames".to_owned(), Value::Array(stacks.frames));
    index.insert("stacks".to_owned(), serde_json::to_value(&stacks.stacks)?);
    index.insert("uses".to_owned(), places_of_uses(model));
    let calls = model.schedule.calls.iter().map(blocking_call::title);
    index.insert("calls".to_owned(), calls.collect());
    let locks = model.lock_waits.iter();
    let locks = locks.map(|waits| {
        let calls: BTreeSet<u32> = waits.calls.iter().map(|(_, call)| call.0).collect();
        calls.into_iter().collect::<Value>()
    });
    index.insert("lock_calls".to_owned(), locks.collect());
    index.insert("started".to_owned(), text::processes::started(model).into());
    let sources = sources.iter().map(Source::from).collect::<Vec<_>>();
    index.insert("sources".to_owned(), serde_json::to_value(sources)?);
    let lengths = columns
        .iter()
        .map(|(name, bytes)| json!([name, bytes.len()]));
    index.insert("columns".to_owned(), lengths.collect());
    Ok(Value::Object(index))
}

/// The threads of processes whose creation is known.
fn created(processes: &Value) -> Value {
    let processes = processes.as_array().into_iter().flatten();
    let threads = processes.flat_map(|process| process["threads"].as_array().into_iter().flatten());
    let created = threads
        .enumerate()
        .filter(|(_, thread)| !thread["key"].is_null());
    let row = |(at, thread): (usize, &Value)| {
        let [key, creator, stack] = ["key", "creator", "creation"].map(|name| &thread[name]);
        let [truncated, function, place] =
            ["creation_truncated", "function", "function_place"].map(|name| &thread[name]);
        json!([at, key, creator, stack, truncated, function, place])
    };
    created.map(row).collect()
}

/// For each use, its object and its index among the uses of this object.
fn places_of_uses(model: &Model) -> Value {
    let mut places = vec![Value::Null; model.sync.uses.len()];
    for (object, described) in model.sync.objects.iter().enumerate() {
        for (at, used) in described.uses.iter().enumerate() {
            if let Some(place) = places.get_mut(used.0) {
                *place = json!([object, at]);
            }
        }
    }
    Value::Array(places)
}

#[derive(Serialize)]
struct Source<'a> {
    path: &'a str,
    text: &'a str,
    changed: bool,
}

impl<'a> From<&'a SourceFile> for Source<'a> {
    fn from(file: &'a SourceFile) -> Source<'a> {
        Source {
            path: &file.path,
            text: &file.text,
            changed: file.changed,
        }
    }
}

/// The distinct frames and stacks of a document.
#[derive(Default)]
struct Stacks {
    frames: Vec<Value>,
    stacks: Vec<Vec<usize>>,
    known_frames: HashMap<String, usize>,
    known_stacks: HashMap<Vec<usize>, usize>,
}

impl Stacks {
    /// Replaces each stack in a document with its number.
    fn shorten(&mut self, value: Value) -> Value {
        match value {
            Value::Array(items) if is_stack(&items) => self.stack(items).into(),
            Value::Array(items) => items.into_iter().map(|item| self.shorten(item)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let shorter = fields.map(|(name, value)| (name, self.shorten(value)));
                Value::Object(shorter.collect::<Map<String, Value>>())
            }
            plain => plain,
        }
    }

    fn stack(&mut self, frames: Vec<Value>) -> usize {
        let frames: Vec<usize> = frames.into_iter().map(|frame| self.frame(frame)).collect();
        if let Some(known) = self.known_stacks.get(&frames) {
            return *known;
        }
        let at = self.stacks.len();
        self.stacks.push(frames.clone());
        self.known_stacks.insert(frames, at);
        at
    }

    fn frame(&mut self, frame: Value) -> usize {
        let all = &mut self.frames;
        *(self.known_frames.entry(frame.to_string())).or_insert_with(|| {
            all.push(frame);
            all.len() - 1
        })
    }
}

/// True if these are frames, the only objects of a report that have a provenance.
fn is_stack(items: &[Value]) -> bool {
    (items.first()).is_some_and(|item| item.get("provenance").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_stored_once() {
        let frame = |name: &str| json!({"function": name, "provenance": "cfi"});
        let document = json!({
            "paths": [
                {"frames": [frame("a"), frame("main")]},
                {"frames": []},
                {"frames": [frame("b"), frame("main")]},
            ],
            "threads": [{"creation": [frame("a"), frame("main")]}],
        });
        let mut stacks = Stacks::default();
        assert_eq!(
            stacks.shorten(document),
            json!({
                "paths": [{"frames": 0}, {"frames": []}, {"frames": 1}],
                "threads": [{"creation": 0}],
            })
        );
        assert_eq!(stacks.stacks, [vec![0, 1], vec![2, 1]]);
        assert_eq!(stacks.frames.len(), 3);
    }
}
