//! Synchronization objects: their users, places, hold times and wait times.

use std::io::{self, Write};

use super::frames::Sources;
use super::line::{Ink, Line, Page};
use super::{findings, notes, tree};
use crate::model::sync::caller;
use crate::model::{Model, Topic};
use crate::views::same_identity::{self, ObjectGroup};
use crate::views::{Style, names, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Calls, Topic::Times];

/// Maximum number of identities shown. The others are added up.
const MAX_OBJECTS: usize = 60;
/// Maximum number of places per object.
const MAX_USES: usize = 8;

/// Writes all objects as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let sync = &model.sync;
    let all = same_identity::of(sync);
    let about = tree::about(model);
    let mut summary = match sync.objects.len() {
        0 if !sync.recorded => format!("{about}no synchronization objects"),
        count => format!("{about}{}", wording::count(count, "synchronization object")),
    };
    if all.len() < sync.objects.len() {
        summary.push_str(&format!(" of {}", wording::count(all.len(), "identity")));
        summary = summary.replace("identitys", "identities");
    }
    if !sync.recorded {
        summary.push_str(". Synchronization was not recorded; use `unspool record --sync`");
    }
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &(summary + "."))?;
    let sources = findings::sources(model);
    for group in all.iter().take(MAX_OBJECTS) {
        page.blank()?;
        object(page, model, group, &sources)?;
    }
    if all.len() > MAX_OBJECTS {
        page.blank()?;
        let more = wording::count(all.len() - MAX_OBJECTS, "more object");
        let text = format!("{more} with shorter waits; JSON has all.");
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    notes::last(page, model, TOPICS)
}

fn object(
    page: &mut Page<'_>,
    model: &Model,
    group: &ObjectGroup,
    sources: &Sources,
) -> io::Result<()> {
    let sync = &model.sync;
    let mut line = Line::new().with(
        Ink::Strong,
        group.title(sync, page.width.saturating_sub(12)),
    );
    if group.is_idle() {
        line.push(Ink::Faint, "  idle by design");
    }
    if group.used_as_lock {
        line.push(Ink::Faint, "  used as a lock");
    }
    page.line(&line)?;
    let lead = Line::new().with(Ink::Plain, "  ");
    let misses_events = group.doubtful || model.recording.misses_calls();
    let unseen = group.waits.count == 0 && misses_events;
    let mut facts = Vec::new();
    if group.taken > 0 {
        facts.push(format!("taken {}", wording::times(group.taken)));
    }
    if group.waits.count > 0 {
        facts.push(format!(
            "waited for {}, {} in total, at most {}",
            wording::times(group.waits.count),
            wording::duration(group.waits.total_ns),
            wording::duration(group.waits.max_ns)
        ));
    } else if unseen {
        facts.push("no complete wait was recorded".to_owned());
    } else {
        facts.push("never waited for".to_owned());
    }
    if group.holds.count > 0 {
        facts.push(format!(
            "held for {} on average, at most {}",
            wording::duration(group.holds.mean_ns()),
            wording::duration(group.holds.max_ns)
        ));
    }
    if group.longest_queue > 1 {
        facts.push(format!(
            "up to {} threads waited at a time",
            group.longest_queue
        ));
    }
    if group.doubtful || unseen {
        facts.push("events are missing".to_owned());
    }
    page.paragraph(&lead, &lead, Ink::Plain, &facts.join(" · "))?;
    for (label, lengths) in [("waits", &group.waits), ("holds", &group.holds)] {
        if lengths.count > 1 {
            let mut line = lead.clone().with(Ink::Faint, format!("{label}  "));
            line.push(Ink::Name, wording::bars(lengths));
            page.line(&line)?;
        }
    }
    // The others are only sleeps within calls that other rows have.
    let called: Vec<_> = group.uses.iter().filter(|used| used.calls > 0).collect();
    let shown = called.iter().take(MAX_USES);
    let calls: Vec<String> = shown
        .clone()
        .map(|used| wording::often(used.calls))
        .collect();
    let column = calls
        .iter()
        .map(|c| super::line::width(c))
        .max()
        .unwrap_or(0);
    for (used, calls) in shown.zip(&calls) {
        let mut line = lead.clone();
        line.pad(2 + column.saturating_sub(super::line::width(calls)));
        line.push(Ink::Plain, calls.as_str());
        line.push(Ink::Faint, format!("  {} ", verb(used.sample.operation)));
        let room = page.width.saturating_sub(line.width());
        line.push(
            Ink::Function,
            place(model, used.sample.path.0, sources, room),
        );
        let who = wording::identities(model, &used.identities(), page.width / 3);
        if line.width() + 2 + super::line::width(&who) <= page.width {
            line.push(Ink::Faint, format!("  {who}"));
        }
        page.line(&line)?;
    }
    if called.len() > MAX_USES {
        let more = wording::count(called.len() - MAX_USES, "more place");
        page.line(&lead.with(Ink::Faint, more))?;
    }
    Ok(())
}

/// The operation, for a column of the table.
fn verb(operation: crate::primitives::Operation) -> &'static str {
    use crate::primitives::Operation;
    match operation {
        Operation::Lock => "lock in",
        Operation::TryLock => "try to lock in",
        Operation::ReadLock => "read-lock in",
        Operation::TryReadLock => "try to read-lock in",
        Operation::WriteLock => "write-lock in",
        Operation::TryWriteLock => "try to write-lock in",
        Operation::Unlock => "unlock in",
        Operation::Wait => "wait in",
        Operation::TryWait => "try to take in",
        Operation::Signal => "signal in",
        Operation::Broadcast => "broadcast in",
        Operation::Post => "post in",
        Operation::Arrive => "arrive in",
        Operation::Once => "once in",
        Operation::Join => "join in",
        Operation::TryJoin => "try to join in",
        Operation::Init => "made in",
        Operation::Destroy => "destroyed in",
    }
}

/// The place that calls the primitive, such as `push queue.c:31`.
pub(in crate::views) fn place(
    model: &Model,
    path: usize,
    sources: &Sources,
    room: usize,
) -> String {
    let frame = model.sync.paths.get(path).and_then(|path| caller(path));
    let Some(frame) = frame else {
        return "unknown code".to_owned();
    };
    let location = sources.location(&frame.place, room / 2);
    let gap = usize::from(!location.is_empty());
    let left = room.saturating_sub(super::line::width(&location) + gap);
    let function = names::shorten(&super::frames::function(&frame.place, left), left);
    match location.is_empty() {
        true => function,
        false => format!("{function} {location}"),
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::Missed;

    use crate::model::fixture::PID;
    use crate::model::fixture::sync::Acting;
    use crate::views::Style;

    #[test]
    fn a_missed_wait_is_not_denied() {
        for missed in [false, true] {
            let mut acting = Acting::new();
            acting.stage.data.insert(0xa000, "queue");
            acting.on(PID, &["orders!main@orders.c:9"]);
            acting.lock(PID, 2000, 0xa000).unlock(PID, 2010, 0xa000);
            if missed {
                acting.stage.add(Missed {
                    probe: 100,
                    hits: 3,
                    ..Missed::default()
                });
            }
            acting.stage.end(10);
            let mut out = Vec::new();
            super::write(&acting.stage.model(), &mut out, &Style::default()).unwrap();
            let text = String::from_utf8(out).unwrap().replace("\n  ", " ");
            assert_eq!(text.contains("never waited for"), !missed, "{text}");
            assert_eq!(
                text.contains("no complete wait was recorded"),
                missed,
                "{text}"
            );
            assert_eq!(text.contains("events are"), missed, "{text}");
        }
    }
}
