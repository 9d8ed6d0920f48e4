//! The system calls in which threads were blocked, and what ended that, as a part of the view of
//! waits.

use std::collections::BTreeMap;
use std::io;

use super::line::{Ink, Line, Page};
use super::waits::figures;
use crate::model::Model;
use crate::model::schedule::CallIndex;
use crate::views::call_waits::{self, Blocked, CallWait};
use crate::views::wording;

/// Maximum number of calls, of identities for each, and of wakers for each identity.
const MAX_CALLS: usize = 10;
const MAX_ROWS: usize = 4;
const MAX_WAKERS: usize = 3;

/// Writes the calls by their total time.
pub(super) fn write(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let mut calls: BTreeMap<Option<CallIndex>, Vec<CallWait>> = BTreeMap::new();
    for wait in call_waits::of(model) {
        calls.entry(wait.call).or_default().push(wait);
    }
    let mut all = Vec::new();
    for (call, waits) in calls {
        let call = call.and_then(|call| model.schedule.call(call));
        let mut sum = Blocked::default();
        waits.iter().for_each(|wait| sum.add(wait.blocked));
        all.push((call, sum, waits));
    }
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|(call, sum, _)| (call.is_none(), std::cmp::Reverse(sum.ns)));
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Blocked in system calls"))?;
    let calls = page.rows(MAX_CALLS, all.len());
    for (call, sum, waits) in all.iter().take(calls) {
        let mut line = Line::new().with(Ink::Plain, "  ");
        let name = call.map(wording::blocking_call);
        line.push(
            Ink::Name,
            name.unwrap_or_else(|| "reason not recorded".to_owned()),
        );
        let (ns, times) = (wording::duration(sum.ns), wording::times(sum.count));
        line.push(Ink::Plain, format!("  {ns}, {times}"));
        page.line(&line)?;
        let rows = page.rows(MAX_ROWS, waits.len());
        for wait in waits.iter().take(rows) {
            row(page, model, wait)?;
        }
        let others = waits.iter().skip(rows).map(|wait| wait.blocked);
        rest(page, 4, others, "more row")?;
    }
    let others = all.iter().skip(calls).map(|(_, sum, _)| *sum);
    rest(page, 2, others, "other call")
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
