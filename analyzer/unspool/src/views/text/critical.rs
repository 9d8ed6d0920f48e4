//! The critical path: what would shorten the run, and where its time went.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

use super::line::{Ink, Line, Page, clean};
use super::{frames, notes, tree};
use crate::model::critical_path::{Basis, CriticalPath, Group, Impact, Item, PathState};
use crate::model::{LockWaits, Model, ProcessIndex, ThreadIndex, Topic};
use crate::views::call_waits::{self, CallWait, Woken, WokenBy};
use crate::views::{Style, blocking_call, finding_text, names, object_name, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Calls, Topic::Times];

/// Items whose effect is shown.
const MAX_IMPACTS: usize = 8;
/// Groups of segments that are shown.
const MAX_GROUPS: usize = 20;
/// Threads that are shown with those on the path that woke them, if they were blocked for more than
/// the fraction `1 / MIN_WOKEN_DIVISOR` of the path.
const MAX_WOKEN: usize = 2;
const MIN_WOKEN_DIVISOR: u64 = 20;
/// The column of the threads' names.
const SECOND_LINE_INDENT: usize = 34;

/// Writes the critical path as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let about = tree::about(model);
    let lead = Line::new();
    let path = model.critical_path.as_ref();
    let Some(path) = path.filter(|path| !path.segments.is_empty()) else {
        let text = format!(
            "{about}the critical path is not known, because neither the kernel's schedule nor waits were \
             recorded. `unspool record --sync` records waits."
        );
        page.paragraph(&lead, &lead, Ink::Plain, &text)?;
        return notes::last(page, model, TOPICS);
    };
    page.paragraph(&lead, &lead, Ink::Plain, &summary(model, path))?;
    if let Some(text) = unknown(path.basis) {
        page.paragraph(&lead, &lead, Ink::Plain, text)?;
    }
    impacts(page, model, path)?;
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Where the time went"))?;
    let waits = call_waits::of(model);
    let mut identities = Vec::new();
    for group in path.groups.iter().take(MAX_GROUPS) {
        let mut line = group_line(page.width, model, path, group);
        if let Some(call) = &group.call {
            let (words, name) = (" while others waited in", blocking_call::title(call));
            if line.width() + words.len() + 1 + name.len() > page.width {
                page.line(&line)?;
                line = Line::new();
                line.pad(SECOND_LINE_INDENT - 1);
            }
            line.push(Ink::Faint, words);
            line.push(Ink::Name, format!(" {name}"));
        }
        page.line(&line)?;
        if group.state == PathState::Running && !identities.contains(&group.identity) {
            identities.push(group.identity);
            woken(page, model, path, group.identity, &waits)?;
        }
    }
    if let Some(rest) = path
        .groups
        .get(MAX_GROUPS..)
        .filter(|rest| !rest.is_empty())
    {
        let total = rest.iter().map(|group| group.total_ns).sum();
        let text = format!(
            "  {} {:>8}  in {}",
            percent(total, path.length_ns()),
            wording::duration(total),
            wording::count(rest.len(), "more way")
        );
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    notes::last(page, model, TOPICS)
}

fn summary(model: &Model, path: &CriticalPath) -> String {
    let (from_ns, to_ns) = path.span_ns();
    let mut threads: Vec<ThreadIndex> = path.segments.iter().map(|s| s.thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let own = threads
        .iter()
        .filter(|thread| model.thread(**thread).is_some());
    let own = own.count();
    let others = threads
        .iter()
        .filter_map(|thread| Some(model.process(*thread)?.0));
    let others: BTreeSet<ProcessIndex> = others.collect();
    let through = match others.len() {
        0 => String::new(),
        count => format!(
            " and {count} of {}",
            wording::processes(model.processes.all.len())
        ),
    };
    let states = [
        (PathState::Running, "running"),
        (PathState::Runnable, "waiting for a processor"),
        (PathState::Blocked, "waiting for devices and timers"),
        (PathState::Outside, "waiting for other processes"),
        (PathState::Recorder, "stopped by the recorder"),
        (PathState::Unknown, "not known"),
    ];
    let parts = states.iter().filter_map(|(state, words)| {
        let here = path.groups.iter().filter(|group| group.state == *state);
        let ns: u64 = here.map(|group| group.total_ns).sum();
        (ns > 0).then(|| format!("{} {words}", percent(ns, path.length_ns()).trim()))
    });
    format!(
        "{}the critical path takes {}, from {} to {}, through {} of {}{}: {}.",
        tree::about(model),
        wording::duration(path.length_ns()),
        wording::moment(from_ns),
        wording::moment(to_ns),
        own,
        wording::count(model.threads.len(), "thread"),
        through,
        parts.collect::<Vec<String>>().join(", "),
    )
}

/// Says which parts of the path are unknown without the kernel's wake-ups.
pub(in crate::views) fn unknown(basis: Basis) -> Option<&'static str> {
    match basis {
        Basis::Wakers => None,
        Basis::Futexes => Some(
            "The kernel did not report which thread woke which. So a wait outside recorded calls \
             counts as a wait for a device, and a wait for a processor after a wake-up counts as \
             blocked.",
        ),
        Basis::Calls => Some(
            "The kernel's schedule was not recorded, so threads count as running except in recorded waits.",
        ),
    }
}

fn impacts(page: &mut Page<'_>, model: &Model, path: &CriticalPath) -> io::Result<()> {
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "What would shorten the run"))?;
    if path.impacts.is_empty() {
        let text = "  No thread, function or lock alone would make it 1 % shorter.";
        return page.line(&Line::new().with(Ink::Plain, text));
    }
    for impact in path.impacts.iter().take(MAX_IMPACTS) {
        let mut line = Line::new().with(
            Ink::Plain,
            format!(
                "  {} {:>8}  ",
                percent(impact.saved_ns, path.replayed_ns),
                wording::duration(impact.saved_ns)
            ),
        );
        let room = page.width.saturating_sub(line.width() + 24);
        line.push(Ink::Plain, item(model, path, impact, room));
        page.line(&line)?;
    }
    let stops_ns = path.length_ns().saturating_sub(path.replayed_ns);
    let is_by_gain = path
        .impacts
        .is_sorted_by_key(|impact| Reverse(impact.saved_ns));
    let text = format!(
        "Each change alone, in a replay of the recording with {}{}. The replay takes {}.{}",
        wording::count(path.processors, "processor"),
        match stops_ns > path.length_ns() / 100 {
            true => " and without the recorder's stops",
            false => "",
        },
        wording::duration(path.replayed_ns),
        match is_by_gain {
            true => "",
            false => {
                " Locks and processors come before work that would save a little more, because to \
                 halve all work is harder."
            }
        }
    );
    page.paragraph(
        &Line::new().with(Ink::Plain, "  "),
        &Line::new().with(Ink::Plain, "  "),
        Ink::Faint,
        &text,
    )
}

/// `if threads parse were twice as fast`
fn item(model: &Model, path: &CriticalPath, impact: &Impact, room: usize) -> String {
    match impact.item {
        Item::Threads(identity) if let Some((program, count)) = model.program(identity) => {
            let name = wording::program_of(program, 1, room);
            let waits = path.mostly_waits(identity);
            program_item(&name, *count, waits)
        }
        Item::Threads(identity) => {
            let one = model
                .sync
                .identities
                .get(identity)
                .is_some_and(|i| i.2 == 1);
            let (noun, verb) = match one {
                true => ("thread", "was"),
                false => ("threads", "were"),
            };
            let name = wording::told_apart(model, identity, room);
            match path.mostly_waits(identity) {
                true => {
                    format!("if the waits of {noun} {name} took half the time")
                }
                false => format!("if {noun} {name} {verb} twice as fast"),
            }
        }
        Item::Function(function) => {
            let name = frames::function(path.functions.place(function), room);
            format!("if function {name} was twice as fast")
        }
        Item::Lock(object) => {
            let name = object_name::one(&model.sync, object, room);
            format!("if {name} was never contended")
        }
        Item::LockWaits(index) => {
            let name = lock(model, &model.lock_waits[index], room);
            format!("if {name} was never contended")
        }
        Item::Processors => format!(
            "if the program had {} processors for itself",
            2 * path.processors
        ),
    }
}

/// `mutex m of process shop (pid 7)`.
fn lock(model: &Model, waits: &LockWaits, room: usize) -> String {
    let process = finding_text::whose_lock(model, waits);
    let name = finding_text::lock(waits);
    let room = room.saturating_sub(process.len()).max(12);
    names::shorten_object(&name, room) + &clean(&process)
}

fn group_line(room: usize, model: &Model, path: &CriticalPath, group: &Group) -> Line {
    let mut line = Line::new().with(
        Ink::Plain,
        format!(
            "  {} {:>8} {:<12} ",
            percent(group.total_ns, path.length_ns()),
            wording::duration(group.total_ns),
            wording::times(group.count),
        ),
    );
    let words = match group.state {
        PathState::Running => "ran",
        PathState::Runnable => "waited for a processor",
        PathState::Blocked => "waited for a device or timer",
        PathState::Outside => "waited for another process",
        PathState::Recorder => "stopped by the recorder",
        PathState::Unknown => "not known",
    };
    let name = wording::told_apart(model, group.identity, room / 4);
    line.push(Ink::Plain, name);
    line.push(Ink::Faint, format!(" {words}"));
    if let Some(function) = group.function {
        let left = room.saturating_sub(line.width() + 4);
        let own = match group.object {
            Some(_) => (left / 2).max(12),
            None => left,
        };
        line.push(Ink::Faint, " in ");
        let name = frames::function(path.functions.place(function), own);
        line.push(Ink::Function, name);
    }
    if let Some(object) = group.object {
        let words = " while others waited for ";
        let left = room.saturating_sub(line.width() + words.len());
        line.push(Ink::Faint, words);
        line.push(Ink::Name, object_name::one(&model.sync, object, left));
    }
    line
}

/// Writes which threads were blocked longest in system calls until threads of this identity woke
/// them.
fn woken(
    page: &mut Page<'_>,
    model: &Model,
    path: &CriticalPath,
    identity: usize,
    waits: &[CallWait],
) -> io::Result<()> {
    let woken = waits.iter().filter_map(|wait| {
        let call = model.schedule.call(wait.call?)?;
        (!call.is_unnamed_futex()).then_some(())?;
        let mut wakers = wait.wakers.iter();
        let Woken { blocked, .. } = wakers.find(|it| it.by == WokenBy::Threads(identity))?;
        let is_long = blocked.ns >= path.length_ns() / MIN_WOKEN_DIVISOR;
        is_long.then_some((&wait.threads, call, blocked))
    });
    let mut woken: Vec<_> = woken.collect();
    woken.sort_by_key(|(_, _, blocked)| std::cmp::Reverse(blocked.ns));
    for (threads, call, blocked) in woken.into_iter().take(MAX_WOKEN) {
        let mut line = Line::new();
        line.pad(SECOND_LINE_INDENT);
        line.push(Ink::Faint, "woke ");
        let name = wording::threads(model, *threads, page.width / 5);
        line.push(Ink::Plain, name);
        line.push(Ink::Faint, " in ");
        let sum = format!(
            ": {}, {}",
            wording::duration(blocked.ns),
            wording::times(blocked.count)
        );
        let left = page.width.saturating_sub(line.width() + sum.len());
        let name = blocking_call::title(call);
        line.push(Ink::Name, names::shorten(&name, left));
        line.push(Ink::Plain, sum);
        page.line(&line)?;
    }
    Ok(())
}

/// A share with one decimal, in a column of its own.
fn percent(part: u64, whole: u64) -> String {
    format!("{:>5.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// ``if the 3 `cc` processes were twice as fast``. `name` is that of one process.
fn program_item(name: &str, count: usize, waits: bool) -> String {
    let (name, verb) = match count {
        1 => (name.to_owned(), "was"),
        count => {
            let program = name.strip_prefix("process ").unwrap_or(name);
            // A program without a known name is called `of unknown program`.
            let processes = match program.starts_with("of ") {
                true => format!("processes {program}"),
                false => format!("`{program}` processes"),
            };
            (format!("the {count} {processes}"), "were")
        }
    };
    match waits {
        true => format!("if the waits of {name} took half the time"),
        false => format!("if {name} {verb} twice as fast"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_processes_do_not_get_faster() {
        let item = |count, waits| program_item("process sleep", count, waits);
        assert_eq!(
            item(1, true),
            "if the waits of process sleep took half the time"
        );
        assert_eq!(
            item(3, true),
            "if the waits of the 3 `sleep` processes took half the time"
        );
        assert_eq!(
            item(3, false),
            "if the 3 `sleep` processes were twice as fast"
        );
    }
}
