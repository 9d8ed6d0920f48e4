//! One look at a program as JSON: every thread with its stack.
//!
//! Fields a thread's state and waits will take later are left out until something fills them.

use std::io::{self, Write};

use serde::Serialize;

use super::Style;
use super::json::{self, Frame, Target};
use crate::model::{Model, Thread};

/// Writes the threads as one JSON document.
pub fn write(model: &Model, out: &mut dyn Write, _style: &Style) -> io::Result<()> {
    let (notes, errors) = json::notes(model);
    let inspection = Inspection {
        schema_version: json::SCHEMA_VERSION,
        target: Target::of(model),
        threads: model.threads.iter().map(InspectedThread::of).collect(),
        errors,
        notes,
    };
    json::write(out, &inspection)
}

#[derive(Serialize)]
struct Inspection<'a> {
    schema_version: u32,
    target: Target<'a>,
    threads: Vec<InspectedThread<'a>>,
    errors: Vec<&'a str>,
    notes: Vec<&'a str>,
}

#[derive(Serialize)]
struct InspectedThread<'a> {
    tid: Option<u64>,
    name: &'a str,
    key: String,
    function: Option<&'a str>,
    stack: Vec<Frame<'a>>,
    stack_truncated: Option<&'a str>,
}

impl<'a> InspectedThread<'a> {
    fn of(thread: &'a Thread) -> InspectedThread<'a> {
        let stack = thread.stack.as_deref();
        InspectedThread {
            tid: thread.tid,
            name: &thread.name,
            key: thread.key.to_string(),
            function: thread
                .function
                .as_ref()
                .and_then(|place| place.function.as_deref()),
            stack: json::frames(stack),
            stack_truncated: match stack {
                Some(stack) => stack.truncated.as_deref(),
                None => Some("the thread's registers were not read"),
            },
        }
    }
}
