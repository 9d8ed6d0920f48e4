//! The lock order: locks that were taken while another one was held. Circles come first.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::frames::Sources;
use super::line::{Ink, Line, Page};
use super::objects::place;
use super::{findings, notes, tree};
use crate::model::sync::{Exclusion, LockOrder, ObjectIndex, OrderEdge};
use crate::model::{Model, ThreadIndex, Topic};
use crate::views::same_identity::{self, ObjectGroup};
use crate::views::{Style, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Calls];

/// Maximum number of rows per section.
const MAX_ROWS: usize = 60;

/// Whether a pair of locks is in a circle. The gravest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// In a circle, about which there is this finding.
    Finding(usize),
    /// In a circle that is no finding.
    Circle(Exclusion),
    /// In no circle.
    None,
}

impl Mark {
    fn finding(self) -> Option<usize> {
        match self {
            Mark::Finding(index) => Some(index),
            Mark::Circle(_) | Mark::None => None,
        }
    }
}

/// Pairs of locks whose identities are equal.
struct Row<'a> {
    /// Groups of objects with equal identities.
    held: usize,
    taken: usize,
    /// The locks of these groups that are in the pairs.
    held_locks: BTreeSet<ObjectIndex>,
    taken_locks: BTreeSet<ObjectIndex>,
    count: u64,
    threads: BTreeSet<ThreadIndex>,
    /// The pair that was seen first.
    first: &'a OrderEdge,
}

/// Writes the lock order as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let summary = format!("{}{}", tree::about(model), summary(model));
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary)?;
    if model.sync.recorded
        && let Some(missing) = wording::missing_circles(model)
    {
        page.paragraph(&Line::new(), &Line::new(), Ink::Alarm, &missing)?;
    }
    let groups = same_identity::of(&model.sync);
    let sources = findings::sources(model);
    for (mark, rows) in rows(model, &groups) {
        page.blank()?;
        let note = rows
            .first()
            .and_then(|row| wording::circle_note(model, row.first, mark.finding()));
        let (ink, title) = title(model, mark, note);
        page.paragraph(&Line::new(), &Line::new(), ink, &title)?;
        let shown = page.rows(MAX_ROWS, rows.len());
        for row in &rows[..shown] {
            write_row(page, model, &groups, row, &sources)?;
        }
        if rows.len() > shown {
            let more = format!("  {} more", rows.len() - shown);
            page.line(&Line::new().with(Ink::Faint, more))?;
        }
    }
    if page.is_cut() {
        page.blank()?;
        page.line(&Line::new().with(Ink::Faint, "`--each` shows all rows."))?;
    }
    notes::last(page, model, TOPICS)
}

fn summary(model: &Model) -> String {
    let sync = &model.sync;
    let edges = &sync.lock_order.edges;
    if !sync.recorded {
        return "no lock order. Synchronization was not recorded; use `unspool record --sync=all`."
            .to_owned();
    }
    if sync.objects.iter().all(|object| object.taken == 0) {
        return "no lock order. No acquisition of a lock was recorded; `unspool record --sync=all` \
                records them."
            .to_owned();
    }
    if edges.is_empty() {
        return "no lock order: no recorded call took a lock while its thread held another."
            .to_owned();
    }
    let locks: BTreeSet<ObjectIndex> = edges.iter().flat_map(|e| [e.held, e.taken]).collect();
    let in_circles = edges.iter().filter(|edge| edge.in_circle).count();
    format!(
        "{} of {}, {} in circles.",
        wording::count(edges.len(), "lock order"),
        wording::count(locks.len(), "lock"),
        match in_circles {
            0 => "none".to_owned(),
            count => count.to_string(),
        }
    )
}

/// The rows by mark, the most frequent first.
fn rows<'a>(model: &'a Model, groups: &[ObjectGroup]) -> BTreeMap<Mark, Vec<Row<'a>>> {
    let mut group_of = vec![0; model.sync.objects.len()];
    for (at, group) in groups.iter().enumerate() {
        for member in &group.members {
            group_of[member.0] = at;
        }
    }
    let finding_of = LockOrder::findings(&model.findings);
    let mut sums: BTreeMap<(Mark, usize, usize), Row<'_>> = BTreeMap::new();
    for edge in &model.sync.lock_order.edges {
        let mark = match finding_of.get(&(edge.held, edge.taken)) {
            Some(finding) => Mark::Finding(*finding),
            None => edge.exclusion.map_or(Mark::None, Mark::Circle),
        };
        let (held, taken) = (group_of[edge.held.0], group_of[edge.taken.0]);
        let row = sums.entry((mark, held, taken)).or_insert_with(|| Row {
            held,
            taken,
            held_locks: BTreeSet::new(),
            taken_locks: BTreeSet::new(),
            count: 0,
            threads: BTreeSet::new(),
            first: edge,
        });
        row.count += edge.count;
        row.held_locks.insert(edge.held);
        row.taken_locks.insert(edge.taken);
        row.threads.extend(&edge.threads);
        if edge.first_ns < row.first.first_ns {
            row.first = edge;
        }
    }
    let mut by_mark: BTreeMap<Mark, Vec<Row<'_>>> = BTreeMap::new();
    for ((mark, ..), row) in sums {
        by_mark.entry(mark).or_default().push(row);
    }
    for rows in by_mark.values_mut() {
        rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    }
    by_mark
}

/// The title of a section; `note` says what speaks against a deadlock.
fn title(model: &Model, mark: Mark, note: Option<String>) -> (Ink, String) {
    let (ink, title) = match mark {
        Mark::Finding(index) => {
            let proved = model.findings.get(index).is_some_and(|f| f.proved);
            let proved = if proved { "proved" } else { "inferred" };
            (
                Ink::Alarm,
                format!("Circle: finding {}, {proved}", index + 1),
            )
        }
        Mark::Circle(_) => (Ink::Strong, "Circles without a finding".to_owned()),
        Mark::None => (Ink::Strong, "In no circle".to_owned()),
    };
    match note {
        Some(note) => (ink, format!("{title}: {note}")),
        None => (ink, title),
    }
}

fn write_row(
    page: &mut Page<'_>,
    model: &Model,
    groups: &[ObjectGroup],
    row: &Row<'_>,
    sources: &Sources,
) -> io::Result<()> {
    let sync = &model.sync;
    let room = page.width.saturating_sub(6) / 2;
    let named = |group: usize, locks: &BTreeSet<ObjectIndex>| {
        let group = &groups[group];
        let title = group.title(sync, room);
        match locks.len() < group.members.len() {
            true => format!("{} of {title}", locks.len()),
            false => title,
        }
    };
    let held = named(row.held, &row.held_locks);
    let taken = match row.held == row.taken {
        true => "another of them".to_owned(),
        false => named(row.taken, &row.taken_locks),
    };
    let line = Line::new().with(Ink::Name, format!("  {held} → {taken}"));
    page.line(&line)?;
    let lead = Line::new().with(Ink::Plain, "      ");
    let path = |used| place(model, sync.used(used).path.0, sources, room);
    let mut text = format!(
        "taken {} by {}, first at {} in {}, held since {}",
        wording::times(row.count),
        threads(model, &row.threads, page.width / 2),
        wording::moment(row.first.first_ns),
        path(row.first.taken_at),
        path(row.first.held_at),
    );
    let is_doubtful = |group: usize| groups[group].doubtful;
    if is_doubtful(row.held) || is_doubtful(row.taken) {
        text.push_str(" · events are missing");
    }
    page.paragraph(&lead, &lead, Ink::Plain, &text)
}

/// `worker 4711`, `3 × worker`, `2 threads of 3 × worker`.
fn threads(model: &Model, threads: &BTreeSet<ThreadIndex>, room: usize) -> String {
    if let Some(thread) = threads.first().filter(|_| threads.len() == 1) {
        let thread = model.thread(*thread);
        return thread.map_or_else(String::new, |thread| wording::one(model, thread, room));
    }
    let sync = &model.sync;
    let of = |thread: &ThreadIndex| sync.identity_of.get(thread.0).copied();
    let identities: BTreeSet<usize> = threads.iter().filter_map(of).collect();
    let identities: Vec<usize> = identities.into_iter().collect();
    let size = |identity: &usize| sync.identities.get(*identity).map_or(0, |(.., n)| *n);
    let named = wording::identities(model, &identities, room);
    match identities.iter().map(size).sum::<usize>() == threads.len() {
        true => named,
        false => format!("{} of {named}", wording::count(threads.len(), "thread")),
    }
}
