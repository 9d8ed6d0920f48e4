//! The system calls in which threads were blocked, and what ended that, as a part of the view of
//! waits.

use std::collections::BTreeMap;
use std::io;

use super::line::{Ink, Line, Page};
use super::waits::figures;
use crate::model::Model;
use crate::model::schedule::CallIndex;
use crate::views::call_waits::{self, Blocked, CallWait, WokenBy};
use crate::views::{blocking_call, wording};

/// Maximum number of calls, of identities for each, and of wakers for each identity.
const MAX_CALLS: usize = 10;
const MAX_ROWS: usize = 4;
const MAX_WAKERS: usize = 3;

/// Page faults, calls whose number is not known, and the end of a thread.
const OTHER_TIMES: &str = "not in a known system call";

/// Writes the calls by their total time.
pub(super) fn write(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let mut calls: BTreeMap<Option<CallIndex>, Vec<CallWait>> = BTreeMap::new();
    let mut stops = Vec::new();
    for wait in call_waits::of_report(model) {
        match is_by_recorder(&wait) {
            true => stops.push(wait),
            false => calls.entry(wait.call).or_default().push(wait),
        }
    }
    if calls.is_empty() {
        return Ok(());
    }
    let other_times = calls.remove(&None);
    let mut calls: Vec<_> = calls
        .into_iter()
        .filter_map(|(call, waits)| Some((model.schedule.call(call?)?, sum_of(&waits), waits)))
        .collect();
    calls.sort_by_key(|(_, sum, _)| std::cmp::Reverse(sum.ns));
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Blocked in system calls"))?;
    let shown = page.rows(MAX_CALLS, calls.len());
    for (call, sum, waits) in calls.iter().take(shown) {
        rows(page, model, &blocking_call::title(call), *sum, waits)?;
    }
    let others = calls.iter().skip(shown).map(|(_, sum, _)| *sum);
    rest(page, 2, others, "other call")?;
    if let Some(waits) = other_times {
        rows(page, model, OTHER_TIMES, sum_of(&waits), &waits)?;
    }
    let mut stopped = sum_of(&stops);
    stopped.add(call_waits::stopped(model));
    match stopped {
        Blocked { count: 0, .. } => Ok(()),
        sum => title(page, "stopped by the recorder", sum),
    }
}

/// True if the recorder ended all of these times. It stops threads in calls that it records, such
/// as the `clone3` of a thread's creation.
fn is_by_recorder(wait: &CallWait) -> bool {
    matches!(&wait.wakers[..], [woken] if woken.by == WokenBy::Recorder
        && woken.blocked == wait.blocked)
}

fn sum_of(waits: &[CallWait]) -> Blocked {
    let mut sum = Blocked::default();
    waits.iter().for_each(|wait| sum.add(wait.blocked));
    sum
}

/// Writes the threads that were blocked for one reason, by identity.
fn rows(
    page: &mut Page<'_>,
    model: &Model,
    reason: &str,
    sum: Blocked,
    waits: &[CallWait],
) -> io::Result<()> {
    title(page, reason, sum)?;
    let shown = page.rows(MAX_ROWS, waits.len());
    for wait in waits.iter().take(shown) {
        row(page, model, wait)?;
    }
    let others = waits.iter().skip(shown).map(|wait| wait.blocked);
    rest(page, 4, others, "more row")
}

/// Writes a reason and its sum.
fn title(page: &mut Page<'_>, reason: &str, sum: Blocked) -> io::Result<()> {
    let mut line = Line::new().with(Ink::Plain, "  ");
    line.push(Ink::Name, reason);
    let (ns, times) = (wording::duration(sum.ns), wording::times(sum.count));
    line.push(Ink::Plain, format!("  {ns}, {times}"));
    page.line(&line)
}

/// Writes the threads of one identity, and their wakers: one that ended all their times on the same
/// line, others on lines of their own.
fn row(page: &mut Page<'_>, model: &Model, wait: &CallWait) -> io::Result<()> {
    let figures = figures(wait.blocked.count, wait.blocked.ns);
    let mut line = Line::new().with(Ink::Plain, format!("    {figures}  "));
    let indent = line.width();
    let room = page.width.saturating_sub(indent);
    if let [woken] = &wait.wakers[..]
        && woken.blocked == wait.blocked
    {
        line.push(Ink::Plain, wording::threads(model, wait.threads, room / 2));
        line.push(Ink::Faint, ", woken by ");
        let room = page.width.saturating_sub(line.width());
        line.push(Ink::Plain, wording::waker(model, woken, wait.threads, room));
        return page.line(&line);
    }
    line.push(Ink::Plain, wording::threads(model, wait.threads, room));
    page.line(&line)?;
    let wakers = page.rows(MAX_WAKERS, wait.wakers.len());
    for woken in wait.wakers.iter().take(wakers) {
        let blocked = woken.blocked;
        let (ns, times) = (wording::duration(blocked.ns), wording::times(blocked.count));
        let sum = format!(": {ns}, {times}");
        let mut line = Line::new();
        line.pad(indent);
        line.push(Ink::Faint, "woken by ");
        let room = page.width.saturating_sub(line.width() + sum.len());
        line.push(Ink::Plain, wording::waker(model, woken, wait.threads, room));
        line.push(Ink::Plain, sum);
        page.line(&line)?;
    }
    let others = wait.wakers.iter().skip(wakers);
    rest(
        page,
        indent,
        others.map(|woken| woken.blocked),
        "more waker",
    )
}

/// Writes the sum of the rows that are left out. `noun` is for one of them.
fn rest(
    page: &mut Page<'_>,
    indent: usize,
    others: impl ExactSizeIterator<Item = Blocked>,
    noun: &str,
) -> io::Result<()> {
    let count = others.len();
    if count == 0 {
        return Ok(());
    }
    let mut sum = Blocked::default();
    others.for_each(|blocked| sum.add(blocked));
    let ns = wording::duration(sum.ns);
    let mut line = Line::new();
    line.pad(indent);
    line.push(
        Ink::Faint,
        format!("{ns} in {}", wording::count(count, noun)),
    );
    page.line(&line)
}
