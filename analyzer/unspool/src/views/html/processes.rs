//! The processes that the program started as columns, because they may be many. `page/data.js`
//! makes the objects of the JSON report from them.
//!
//! Their ends and times are not in the columns, because those of their threads give them.

use std::collections::HashMap;

use super::encode::Column;
use crate::model::{Model, ThreadIndex};
use crate::views::text::line::clean;
use crate::views::wording;

/// The processes as named columns, and the texts that the columns refer to.
pub(super) fn columns(model: &Model) -> (Vec<(&'static str, Vec<u8>)>, Vec<String>) {
    let mut names = Names::default();
    let [mut count, mut pid, mut creator, mut creator_tid] = [const { Column::new() }; 4];
    let [mut program, mut file, mut executed, mut executed_name] = [const { Column::new() }; 4];
    let [mut from, mut threads, mut tid, mut name] = [const { Column::new() }; 4];
    let [mut thread_from, mut thread_length] = [const { Column::new() }; 2];
    let all = &model.processes;
    count.push(all.all.len() as u64);
    let mut before = (0, 0);
    for process in &all.all {
        let (pid_before, from_before) = before;
        before = (process.pid, process.started_ns);
        pid.push_signed(process.pid.wrapping_sub(pid_before) as i64);
        creator.push_index(process.creator.map(|creator| creator.0));
        creator_tid.push(process.creator_tid.map_or(0, |tid| tid.saturating_add(1)));
        program.push_index(all.program(process).map(|(name, _)| names.index(name)));
        file.push_index(names.some(&process.executable));
        executed.push(process.executed.len() as u64);
        for name in &process.executed {
            executed_name.push(names.index(name) as u64);
        }
        from.push_signed(process.started_ns.wrapping_sub(from_before) as i64);
        threads.push(process.threads as u64);
        for (at, thread) in all.threads_of(process).iter().enumerate() {
            let index = ThreadIndex(model.threads.len() + process.first_thread + at);
            let started_ns = thread.started_ns.unwrap_or(process.started_ns);
            let id = thread.tid.unwrap_or(process.pid);
            tid.push_signed(id.wrapping_sub(process.pid) as i64);
            // `created` has the functions of the others.
            let shown = match thread.creation_stack() {
                Some(_) => clean(&thread.name),
                None => wording::of_other(model, index),
            };
            name.push(names.index(&shown) as u64);
            thread_from.push_signed(started_ns.wrapping_sub(process.started_ns) as i64);
            // One more than the length, or 0 if the end is not known.
            let ended_ns = thread.ended_ns;
            let length_ns =
                ended_ns.map_or(0, |ns| ns.saturating_sub(started_ns).saturating_add(1));
            thread_length.push(length_ns);
        }
    }
    let columns = [
        ("process.count", count),
        ("process.pid", pid),
        ("process.creator", creator),
        ("process.creator_tid", creator_tid),
        ("process.program", program),
        ("process.file", file),
        ("process.executed", executed),
        ("process.executed_name", executed_name),
        ("process.from", from),
        ("process.threads", threads),
        ("process.thread.tid", tid),
        ("process.thread.name", name),
        ("process.thread.from", thread_from),
        ("process.thread.length", thread_length),
    ];
    let columns = columns.map(|(name, column)| (name, column.into_bytes()));
    (columns.into(), names.all)
}

/// The distinct texts.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    known: HashMap<String, usize>,
}

impl Names {
    fn index(&mut self, name: &str) -> usize {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        self.all.push(name.to_owned());
        self.known.insert(name.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }

    /// None for no text.
    fn some(&mut self, name: &str) -> Option<usize> {
        (!name.is_empty()).then(|| self.index(name))
    }
}
