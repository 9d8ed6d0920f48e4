//! Rows of the tables of `unspool top`: identities, and the threads of one identity.

use std::cmp::Ordering;

use super::Sort;
use crate::model::live::{Live, LiveThread, Shares};
use crate::model::{Creation, Model, State, StopCause, Thread, ThreadIndex, Wait, start_code};
use crate::primitives::Kind;
use crate::views::text::frames;
use crate::views::text::line::clean;
use crate::views::wording;

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The threads of the row.
    pub(super) tids: Vec<u64>,
    /// Function and name of an identity; id and name of a thread.
    pub(super) title: String,
    pub(super) shares: Option<Shares>,
    /// Processors that the threads used together.
    pub(super) processors: f64,
    /// The state at the latest inspection.
    pub(super) state: String,
}

impl Row {
    /// The text that a filter searches.
    pub(super) fn text(&self) -> String {
        let tids: Vec<String> = self.tids.iter().map(u64::to_string).collect();
        format!("{} {} {}", self.title, self.state, tids.join(" "))
    }
}

/// One row for each identity.
pub(super) fn identities(live: &Live) -> Vec<Row> {
    let groups = live.groups().into_iter();
    let rows = groups.map(|group| Row {
        title: title(live, group.sample, &group.tids),
        state: common_state(live, &group.tids),
        shares: group.shares,
        processors: group.processors,
        tids: group.tids,
    });
    rows.collect()
}

/// One row for each thread of the identity with this thread, or with this title if it has ended.
pub(super) fn threads(live: &Live, identity: &str, tid: u64) -> Vec<Row> {
    let groups = identities(live);
    let has_thread = groups.iter().find(|row| row.tids.contains(&tid));
    let group = has_thread.or_else(|| groups.iter().find(|row| row.title == identity));
    let tids = group.map(|row| row.tids.as_slice()).unwrap_or_default();
    let threads = tids.iter().filter_map(|tid| live.threads.get(tid));
    let rows = threads.map(|thread| Row {
        tids: vec![thread.tid],
        title: match thread.name.as_str() {
            "" => thread.tid.to_string(),
            name => format!("{} {}", thread.tid, clean(name)),
        },
        shares: thread.shares,
        processors: thread.shares.map_or(0.0, |shares| shares.running),
        state: state(live, thread),
    });
    rows.collect()
}

/// Sorts rows. Equal rows keep their order.
pub(super) fn sort(rows: &mut [Row], by: Sort) {
    let largest = |of: fn(&Row) -> f64| {
        move |a: &Row, b: &Row| of(b).partial_cmp(&of(a)).unwrap_or(Ordering::Equal)
    };
    // Smaller differences than a percent are noise that would move rows all the time.
    match by {
        Sort::Cpu => rows.sort_by(largest(|row| (row.processors * 100.0).round())),
        Sort::Runnable => rows.sort_by(largest(|row| {
            row.shares.map_or(0.0, |s| (s.runnable * 100.0).round())
        })),
        Sort::Blocked => rows.sort_by(largest(|row| {
            row.shares.map_or(0.0, |s| (s.blocked() * 100.0).round())
        })),
        Sort::Threads => rows.sort_by_key(|row| std::cmp::Reverse(row.tids.len())),
        Sort::Name => rows.sort_by(|a, b| a.title.cmp(&b.title)),
    }
}

/// `main`, `worker "billing"`.
fn title(live: &Live, sample: Option<ThreadIndex>, tids: &[u64]) -> String {
    let thread = sample.and_then(|index| live.model.thread(index));
    let name = |tid: &u64| live.threads.get(tid).map(|thread| thread.name.as_str());
    let mut names: Vec<&str> = tids.iter().filter_map(name).collect();
    names.dedup();
    // The main thread's name is the program's, and threads inherit it.
    let inherited = live.model.main().and_then(|main| live.model.thread(main));
    let inherited = inherited.map_or("", |main| main.name.as_str());
    let name = match names[..] {
        [] | [""] => String::new(),
        [only] if only == inherited => String::new(),
        [only] => format!(" \"{}\"", clean(only)),
        [first, ..] => format!(
            " \"{}…\"",
            clean(first.trim_end_matches(|c: char| c.is_ascii_digit()))
        ),
    };
    let own = |function: String| match names[..] {
        [only] if clean(only) == function => function,
        _ => function + &name,
    };
    match thread {
        None => format!("new threads{name}"),
        Some(thread) if thread.creation == Creation::Main => "main".to_owned(),
        Some(thread) => match &thread.function {
            Some(place) => own(frames::function(place, 60)),
            None => match module(thread) {
                Some(module) => format!("function in {}{name}", clean(module)),
                None => format!("unknown function{name}"),
            },
        },
    }
}

/// The file of the outermost frame below the start code, for programs that do not name functions.
fn module(thread: &Thread) -> Option<&str> {
    let stack = thread.stack.as_deref()?;
    let last = stack.frames.len().checked_sub(start_code(stack) + 1)?;
    stack.frames.get(last)?.place.shown_module()
}

/// The most frequent state of these threads, with the number of threads if there are others.
fn common_state(live: &Live, tids: &[u64]) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for thread in tids.iter().filter_map(|tid| live.threads.get(tid)) {
        let state = state(live, thread);
        match counts.iter_mut().find(|(text, _)| *text == state) {
            Some((_, count)) => *count += 1,
            None => counts.push((state, 1)),
        }
    }
    // A stable sort, so that the text changes only with the states.
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match &counts[..] {
        [] => String::new(),
        [(only, _)] => only.clone(),
        all => {
            let each = all.iter().map(|(text, count)| format!("{count} {text}"));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

/// The state of a thread at the latest inspection: `mutex a, held by 7 (writer)`.
pub(super) fn state(live: &Live, thread: &LiveThread) -> String {
    let Some(index) = thread.index else {
        return "not inspected yet".to_owned();
    };
    short_state(&live.model, live.model.inspection.state(index))
}

fn short_state(model: &Model, state: &State) -> String {
    match state {
        State::Unknown => "not known".to_owned(),
        State::Absent => "ended".to_owned(),
        State::Running => "running".to_owned(),
        State::Sleeping => "sleeps".to_owned(),
        State::InCall {
            name: Some(name), ..
        } => format!("in {name}()"),
        State::InCall { number, .. } => format!("in system call {number}"),
        State::Stopped(stop, before) => {
            let stop = match stop {
                StopCause::Signal => "stopped",
                StopCause::Frozen => "frozen",
            };
            format!("{stop}: {}", short_state(model, before))
        }
        State::Waiting(wait) => match holder(model, wait) {
            Some(holder) => clean(&format!("{}, {holder}", object(model, wait))),
            None => clean(&object(model, wait)),
        },
    }
}

/// `mutex settings`, `the end of worker 7`.
pub(super) fn object(model: &Model, wait: &Wait) -> String {
    match wait.holders[..] {
        [joined] if wait.object.kind == Kind::Join => match joined.thread {
            Some(index) => format!("end of {}", model.thread_name(index)),
            None => wait.what(),
        },
        _ => wait.what(),
    }
}

/// `held by 7 (writer)`. `None` if no holder is known.
pub(super) fn holder(model: &Model, wait: &Wait) -> Option<String> {
    if wait.object.kind == Kind::Join {
        return None;
    }
    let names = wait.holders.iter().map(|holder| match holder.thread {
        Some(index) => model.thread_name(index),
        None => holder.tid.to_string(),
    });
    // Rows are short.
    let short = |name: String| {
        name.strip_prefix("thread ")
            .map(str::to_owned)
            .unwrap_or(name)
    };
    let names: Vec<String> = names.map(short).collect();
    match (&names[..], wait.readers) {
        ([], Some(count)) => {
            let readers = wording::count(count as usize, "reader");
            Some(format!("held by {readers}"))
        }
        ([], None) => None,
        (names, _) => Some(format!("held by {}", names.join(", "))),
    }
}
