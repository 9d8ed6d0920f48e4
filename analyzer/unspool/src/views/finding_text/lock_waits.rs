//! Locks of which only the waits are known.

use std::collections::BTreeSet;

use super::load::matters;
use super::{thread, times};
use crate::model::schedule::takes_again;
use crate::model::sync::{length, place_text};
use crate::model::{LockWaits, Model, ProcessIndex, ThreadIndex};
use crate::views::text::line::clean;
use crate::views::wording;

/// Holders of less than the fraction `1 / MIN_PART_DIVISOR` of the waits are only counted.
const MIN_PART_DIVISOR: u64 = 20;
/// The holders that are only counted are left out if their part is at most this fraction.
const MIN_REST_DIVISOR: u64 = 100;
/// Maximum number of functions in the sentence.
const MAX_FUNCTIONS: usize = 3;
/// Maximum number of holders in the sentence.
const MAX_HOLDERS: usize = 3;

pub(in crate::views) fn text(model: &Model, waits: &LockWaits) -> String {
    let mut object = object(waits);
    if waits.processes > 1 {
        object.push_str(&whose(model, waits));
    }
    let who = waiters(model, waits);
    let mut text = match waits.count {
        1 => {
            let ns = length(waits.total_ns);
            let got = if waits.unended == 0 {
                ""
            } else {
                ", and did not get it"
            };
            format!("{who} waited once for {object}, for {ns}{got}.")
        }
        count => {
            let unended = match waits.unended {
                0 => String::new(),
                all if all == count => " None of these waits ended.".to_owned(),
                some => format!(" {some} of these waits did not end."),
            };
            format!(
                "{who} waited {} for {object}: {} in total, at most {} at a time.\
                 {unended}",
                times(count),
                length(waits.total_ns),
                length(waits.longest_ns),
            )
        }
    };
    let who = if waits.waiters.len() == 1 {
        "It"
    } else {
        "They"
    };
    let named = waits.functions.iter().take(MAX_FUNCTIONS);
    let mut functions: Vec<String> = named
        .map(|name| {
            let again = if takes_again(waits.object.kind, name) {
                " (to take it again)"
            } else {
                ""
            };
            format!("{name}(){again}")
        })
        .collect();
    if waits.functions.len() > MAX_FUNCTIONS {
        functions.push("others".to_owned());
    }
    text.push_str(&format!(" {who} waited in {}", wording::list(&functions)));
    match &waits.caller {
        Some(caller) => text.push_str(&format!(", called for example in {}.", place_text(caller))),
        None => text.push('.'),
    }
    if let Some(((first, ns), rest)) = waits.holders.split_first() {
        let first = format!(
            "{} of that was spent waiting for {}",
            length(*ns),
            any_thread(model, *first)
        );
        let is_large = |holder: &&(ThreadIndex, u64)| holder.1 >= waits.total_ns / MIN_PART_DIVISOR;
        let named = rest.iter().take(MAX_HOLDERS - 1).take_while(is_large);
        let named: Vec<String> = named
            .map(|(holder, ns)| format!("{} for {}", length(*ns), any_thread(model, *holder)))
            .collect();
        let others = &rest[named.len()..];
        let others_ns: u64 = others.iter().map(|(_, ns)| ns).sum();
        let others = (others_ns > waits.total_ns / MIN_REST_DIVISOR).then(|| {
            let others = wording::count(others.len(), "other thread");
            format!("the rest for {others}")
        });
        let all: Vec<String> = [first].into_iter().chain(named).chain(others).collect();
        text.push_str(&format!(" Going by the wake-ups, {}.", wording::list(&all)));
        if matters(waits.runnable_ns, waits.total_ns) {
            let ns = length(waits.runnable_ns);
            text.push_str(&format!(
                " For {ns} of it, the holder only waited for a processor."
            ));
        }
    }
    text
}

/// `mutex m`, `mutex at 0x5000`, `mutex main_arena of the C library`, or `internal lock of the C
/// library (0x5000)`.
pub(in crate::views) fn title(waits: &LockWaits) -> String {
    let object = &waits.object;
    match (&object.name, waits.is_internal) {
        (Some(_), true) => format!("{} of the C library", clean(&object.to_string())),
        (None, true) => format!("internal lock of the C library ({:#x})", object.address),
        (_, false) => clean(&object.to_string()),
    }
}

/// The title in a sentence: with an article if it is not a name.
pub(in crate::views) fn object(waits: &LockWaits) -> String {
    let article = match (&waits.object.name, waits.is_internal) {
        (Some(_), _) => "",
        (None, true) => "an ",
        (None, false) => "the ",
    };
    article.to_owned() + &title(waits)
}

/// ` of process NAME (pid 7)`, or ` that 4 processes share`; empty for the program itself.
pub(in crate::views) fn whose(model: &Model, waits: &LockWaits) -> String {
    match waits.processes {
        0 | 1 => of_process(model, waits.process),
        processes => format!(" that {processes} processes share"),
    }
}

fn of_process(model: &Model, process: Option<ProcessIndex>) -> String {
    let process = process.map(|index| &model.processes.all[index.0]);
    process.map_or(String::new(), |process| {
        let name = model.processes.program_name(process);
        format!(" of process {name} (pid {})", process.pid)
    })
}

/// The threads that waited, with their process if all are of the same one.
fn waiters(model: &Model, waits: &LockWaits) -> String {
    let process = |&(thread, _): &(ThreadIndex, u64)| model.process(thread).map(|it| it.0);
    let processes: BTreeSet<_> = waits.waiters.iter().map(process).collect();
    let only = processes.first().filter(|_| processes.len() == 1);
    let whose = of_process(model, only.copied().flatten());
    match &waits.waiters[..] {
        [(one, _)] => any_thread(model, *one) + &whose,
        all => format!("{} threads{whose}", all.len()),
    }
}

/// Names a thread of the program or of another process.
fn any_thread(model: &Model, index: ThreadIndex) -> String {
    if index.0 < model.threads.len() {
        return thread(model, index);
    }
    let name = match wording::of_other(model, index) {
        name if name.is_empty() => "thread".to_owned(),
        name => name,
    };
    match model.any_thread(index).and_then(|thread| thread.tid) {
        Some(tid) => format!("{name} {tid}"),
        None => name,
    }
}
