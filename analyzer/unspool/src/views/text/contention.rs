//! Contention: the objects with the longest waits, and the stacks of waiters and holders.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use super::frames;
use super::line::{Ink, Line, Page};
use super::waits::{holder_name, summary, waiter_name};
use super::{findings, notes};
use crate::model::sync::Waiting;
use crate::model::{LockWaits, Model, Topic};
use crate::views::same_identity::{self, ObjectGroup};
use crate::views::{Style, finding_text, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Stacks, Topic::Calls, Topic::Times];

/// Maximum number of objects whose contention is shown with stacks.
const MAX_STACKS: usize = 10;
/// Locks whose calls were not recorded, and whose waits are less than the fraction
/// `1 / MIN_SHOWN_DIVISOR` of the recording's time, are only counted.
const MIN_SHOWN_DIVISOR: u64 = 1000;

/// Writes contention with the stacks of waiters and holders as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary(model))?;
    let sync = &model.sync;
    let sources = findings::sources(model);
    // The kernel's schedule has all waits then.
    let is_partial = model.recording.too_little_seen();
    if is_partial {
        known_by_waits(page, model)?;
    }
    let all = same_identity::of(sync);
    let contended: Vec<&ObjectGroup> = all.iter().filter(|group| held_ns(group) > 0).collect();
    for group in contended.iter().take(MAX_STACKS) {
        page.blank()?;
        page.line(&Line::new().with(Ink::Strong, group.title(sync, page.width)))?;
        let lead = Line::new().with(Ink::Plain, "  ");
        let mut text = format!(
            "waited for {}, {} in total, at most {}",
            wording::times(group.waits.count),
            wording::duration(group.waits.total_ns),
            wording::duration(group.waits.max_ns),
        );
        if group.holds.count > 0 {
            text.push_str(&format!(
                "; held for {} on average, at most {}",
                wording::duration(group.holds.mean_ns()),
                wording::duration(group.holds.max_ns)
            ));
        }
        page.paragraph(&lead, &lead, Ink::Plain, &text)?;
        for pair in group.contention.iter().take(3) {
            page.blank()?;
            let mut text = format!(
                "{} waited for {}: {}, {}",
                waiter_name(model, pair, page.width / 3),
                holder_name(model, pair, page.width / 3),
                wording::duration(pair.total_ns),
                wording::times(pair.count),
            );
            let calls = &pair.holder_calls;
            if let Some((call, ns)) = finding_text::holder_call(model, calls, pair.total_ns) {
                let ns = wording::duration(ns);
                text.push_str(&format!("; for {ns} of that, the holder was in {call}"));
            }
            page.paragraph(&lead, &lead, Ink::Plain, &text)?;
            let waiter = sync.path(sync.used(pair.waiter));
            let holder = pair.holder.map(|holder| sync.path(sync.used(holder)));
            let ended = pair.ended.map(|ended| &sync.paths[ended.0]);
            let (waited, held) = match (holder, ended) {
                (None, Some(_)) => ("waited at    ", "released at  "),
                _ => ("waited at  ", "taken at   "),
            };
            frames::write(page, &lead, waited, waiter, &sources, false)?;
            if let Some(stack) = holder.or(ended) {
                frames::write(page, &lead, held, stack, &sources, false)?;
            }
        }
    }
    if contended.len() > MAX_STACKS {
        page.blank()?;
        let more = wording::count(contended.len() - MAX_STACKS, "more object");
        page.line(&Line::new().with(Ink::Faint, format!("{more}: --view waits, or JSON")))?;
    }
    if !is_partial {
        known_by_waits(page, model)?;
    }
    notes::last(page, model, TOPICS)
}

/// Locks of which only the waits are known, as those of started processes.
fn known_by_waits(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let lead = Line::new().with(Ink::Plain, "  ");
    let least_ns = model.recording.duration_ns / MIN_SHOWN_DIVISOR;
    let groups = alike(model);
    let long = groups.iter();
    let shown = long.take_while(|locks| total_ns(locks) >= least_ns).count();
    let (shown, rest) = groups.split_at(shown.min(MAX_STACKS));
    for locks in shown {
        let Some((waits, others)) = locks.split_first() else {
            continue;
        };
        page.blank()?;
        page.line(&Line::new().with(Ink::Strong, finding_text::lock_title(waits)))?;
        let mut text = finding_text::lock_waits(model, waits);
        if !others.is_empty() {
            let processes: BTreeSet<_> = others.iter().filter_map(|it| it.process).collect();
            let place = match processes.len() {
                0 => String::new(),
                count => format!(", in {}", wording::count(count, "process")),
            };
            let longest_ns = others.iter().map(|it| it.longest_ns).max();
            text.push_str(&format!(
                " {} like it{place}: {} in total, at most {} at a time.",
                wording::count(others.len(), "more lock"),
                wording::duration(total_ns(others)),
                wording::duration(longest_ns.unwrap_or(0)),
            ));
        }
        page.paragraph(&lead, &lead, Ink::Plain, &text)?;
    }
    if !rest.is_empty() {
        page.blank()?;
        let locks = rest.iter().map(Vec::len).sum();
        let noun = if shown.is_empty() {
            "lock"
        } else {
            "more lock"
        };
        let more = wording::count(locks, noun);
        let text = format!("{more} with short waits: --view waits --each, or JSON");
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

/// These locks in groups: each run of a program has its own lock of a name, or, without a name, of
/// a calling place. Groups and locks with the longest waits are first.
fn alike(model: &Model) -> Vec<Vec<&LockWaits>> {
    let mut groups: BTreeMap<_, Vec<&LockWaits>> = BTreeMap::new();
    for waits in &model.lock_waits {
        let process = waits.process.map(|index| &model.processes.all[index.0]);
        let program = process.map(|process| model.processes.program_name(process));
        let caller = waits
            .caller
            .as_ref()
            .filter(|_| waits.object.name.is_none());
        let caller = caller.map(|it| (&it.module, &it.function, it.line, it.svma));
        let is_alone = caller.is_none() && (process.is_none() || waits.object.name.is_none());
        let own = is_alone.then_some((waits.process, waits.object.address));
        let key = (
            program,
            &waits.module,
            waits.object.kind,
            &waits.object.name,
        );
        groups.entry((key, caller, own)).or_default().push(waits);
    }
    let mut groups: Vec<Vec<&LockWaits>> = groups.into_values().collect();
    groups.sort_by_key(|locks| Reverse(total_ns(locks)));
    groups
}

fn total_ns(locks: &[&LockWaits]) -> u64 {
    locks.iter().map(|waits| waits.total_ns).sum()
}

fn held_ns(group: &ObjectGroup) -> u64 {
    let held = group
        .uses
        .iter()
        .filter(|used| used.sample.waiting == Waiting::Held);
    held.map(|used| used.waits.total_ns).sum()
}
