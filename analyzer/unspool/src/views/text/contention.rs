//! Contention: the objects with the longest waits, and the stacks of waiters and holders.

use std::io::{self, Write};

use super::frames;
use super::line::{Ink, Line, Page};
use super::waits::{holder_name, summary};
use super::{findings, notes};
use crate::model::sync::Waiting;
use crate::model::{Model, Topic};
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
            let text = format!(
                "{} waited for {}: {}, {}",
                wording::identity(model, pair.waiting, page.width / 3),
                holder_name(model, pair, page.width / 3),
                wording::duration(pair.total_ns),
                wording::times(pair.count),
            );
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
    let long = model.lock_waits.iter();
    let shown = long.take_while(|waits| waits.total_ns >= least_ns).count();
    let shown = shown.min(MAX_STACKS);
    for waits in &model.lock_waits[..shown] {
        page.blank()?;
        page.line(&Line::new().with(Ink::Strong, finding_text::lock_title(waits)))?;
        let text = finding_text::lock_waits(model, waits);
        page.paragraph(&lead, &lead, Ink::Plain, &text)?;
    }
    if model.lock_waits.len() > shown {
        page.blank()?;
        let more = wording::count(model.lock_waits.len() - shown, "more lock");
        let text = format!("{more} with shorter waits: --view waits, or JSON");
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

fn held_ns(group: &ObjectGroup) -> u64 {
    let held = group
        .uses
        .iter()
        .filter(|used| used.sample.waiting == Waiting::Held);
    held.map(|used| used.waits.total_ns).sum()
}
