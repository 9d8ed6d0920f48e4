//! The system calls in which threads were blocked, as a part of the view of waits.

use std::collections::BTreeMap;
use std::io;

use super::line::{Ink, Line, Page};
use super::waits::figures;
use crate::model::schedule::CallIndex;
use crate::model::{Model, ThreadIndex};
use crate::views::wording;

/// Maximum number of calls, and of identities for each.
const MAX_CALLS: usize = 10;
const MAX_ROWS: usize = 4;

/// How often threads were blocked, and for how long in total.
#[derive(Clone, Copy, Default)]
struct Blocked {
    count: u64,
    ns: u64,
}

impl Blocked {
    fn add(&mut self, other: Blocked) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

/// Writes the calls by their total time. Leaves out futex calls if the waits at their objects were
/// recorded.
pub(super) fn write(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let recorded = model.sync.recorded && !model.recording.too_little_seen();
    let mut calls: BTreeMap<CallIndex, BTreeMap<usize, Blocked>> = BTreeMap::new();
    for (thread, identity) in model.sync.identity_of.iter().enumerate() {
        for time in model.schedule.call_times(ThreadIndex(thread)) {
            let blocked = Blocked {
                count: time.count,
                ns: time.blocked_ns,
            };
            let identities = calls.entry(time.call).or_default();
            identities.entry(*identity).or_default().add(blocked);
        }
    }
    let mut all = Vec::new();
    for (call, identities) in calls {
        let Some(call) = model.schedule.call(call) else {
            continue;
        };
        if call.is_futex && recorded {
            continue;
        }
        let mut sum = Blocked::default();
        identities.values().for_each(|blocked| sum.add(*blocked));
        let mut identities: Vec<(usize, Blocked)> = identities.into_iter().collect();
        identities.sort_by_key(|(_, blocked)| std::cmp::Reverse(blocked.ns));
        all.push((call, sum, identities));
    }
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|(_, sum, _)| std::cmp::Reverse(sum.ns));
    page.blank()?;
    page.line(&Line::new().with(Ink::Strong, "Blocked in system calls"))?;
    for (call, sum, identities) in all.iter().take(MAX_CALLS) {
        let mut line = Line::new().with(Ink::Plain, "  ");
        line.push(Ink::Name, wording::blocking_call(call));
        let (ns, times) = (wording::duration(sum.ns), wording::times(sum.count));
        line.push(Ink::Plain, format!("  {ns}, {times}"));
        page.line(&line)?;
        for (identity, blocked) in identities.iter().take(MAX_ROWS) {
            let figures = figures(blocked.count, blocked.ns);
            let mut line = Line::new().with(Ink::Plain, format!("    {figures}  "));
            let room = page.width.saturating_sub(line.width());
            line.push(Ink::Plain, wording::identity(model, *identity, room));
            page.line(&line)?;
        }
        rest(
            page,
            "    ",
            identities
                .iter()
                .skip(MAX_ROWS)
                .map(|(_, blocked)| *blocked),
            "more rows",
        )?;
    }
    rest(
        page,
        "  ",
        all.iter().skip(MAX_CALLS).map(|(_, sum, _)| *sum),
        "other calls",
    )
}

/// Writes the sum of the rows that are left out.
fn rest(
    page: &mut Page<'_>,
    indent: &str,
    others: impl ExactSizeIterator<Item = Blocked>,
    noun: &str,
) -> io::Result<()> {
    let count = others.len();
    if count == 0 {
        return Ok(());
    }
    let ns = wording::duration(others.map(|blocked| blocked.ns).sum());
    let text = format!("{indent}{ns} in {count} {noun}");
    page.line(&Line::new().with(Ink::Faint, text))
}
