//! Waits: contention first, then waits for other threads, then waits for work, then system calls.

use std::io::{self, Write};

use super::frames::Sources;
use super::line::{Ink, Line, Page};
use super::objects::place;
use super::{findings, notes, system_calls, tree};
use crate::model::sync::{Contention, Sync, TimedOut, Waiting};
use crate::model::{Model, Topic};
use crate::views::call_waits::Threads;
use crate::views::same_identity::{self, GroupUse, ObjectGroup};
use crate::views::{Style, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Calls, Topic::Times];

/// Maximum number of waiter and holder pairs per object.
const MAX_ROWS: usize = 6;

/// Writes the waits and the threads that ended them as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary(model))?;
    let all = same_identity::of(&model.sync);
    let sources = findings::sources(model);
    for (waiting, title) in [
        (Waiting::Held, "Lock waits: another thread held the object"),
        (
            Waiting::Others,
            "Waits for threads: for others to arrive or finish",
        ),
        (Waiting::Idle, "Idle waits: for work, by design"),
    ] {
        let here = |used: &&GroupUse| used.sample.waiting == waiting && used.waits.count > 0;
        let groups: Vec<&ObjectGroup> = all
            .iter()
            .filter(|group| group.uses.iter().any(|u| here(&u)))
            .collect();
        if groups.is_empty() {
            continue;
        }
        page.blank()?;
        page.line(&Line::new().with(Ink::Strong, title))?;
        for group in groups {
            let mut line = Line::new().with(Ink::Plain, "  ");
            let (count, total) = group.uses.iter().filter(here).fold((0, 0), |(c, t), u| {
                (c + u.waits.count, t + u.waits.total_ns)
            });
            let sum = format!("  {}, {}", wording::duration(total), wording::times(count));
            let room = page.width.saturating_sub(line.width() + sum.len());
            line.push(Ink::Name, group.title(&model.sync, room));
            line.push(Ink::Plain, sum);
            page.line(&line)?;
            let mut timed_out = TimedOut::default();
            for used in group.uses.iter().filter(here) {
                timed_out.merge(used.timed_out);
            }
            let pairs: Vec<&Contention> = group
                .contention
                .iter()
                .filter(|pair| model.sync.used(pair.waiter).waiting == waiting)
                .collect();
            // For idle threads, the source of the work says nothing about lost time.
            if waiting != Waiting::Idle && !pairs.is_empty() {
                contention(page, model, &pairs, (total, timed_out), &sources)?;
                continue;
            }
            let rows = page.rows(MAX_ROWS, group.uses.iter().filter(here).count());
            for used in group.uses.iter().filter(here).take(rows) {
                let mut line = Line::new().with(Ink::Plain, "    ");
                let figures = figures(used.waits.count, used.waits.total_ns);
                line.push(Ink::Plain, format!("{figures}  "));
                line.push(
                    Ink::Plain,
                    wording::identities(model, &used.identities(), page.width / 3),
                );
                line.push(Ink::Faint, " in ");
                let room = page.width.saturating_sub(line.width());
                line.push(
                    Ink::Function,
                    place(model, used.sample.path.0, &sources, room),
                );
                page.line(&line)?;
            }
            self::timed_out(page, timed_out)?;
        }
    }
    system_calls::write(page, model)?;
    if page.is_cut() {
        page.blank()?;
        page.line(&Line::new().with(Ink::Faint, "`--each` shows all rows."))?;
    }
    notes::last(page, model, TOPICS)
}

/// The name of the waiting threads, `3 × work`, or of a single one, `work 4711`.
pub(super) fn waiter_name(model: &Model, pair: &Contention, room: usize) -> String {
    let waiters = Threads {
        identity: pair.waiting,
        one: Some(pair.longest.0).filter(|_| pair.by_one),
    };
    wording::threads(model, waiters, room)
}

/// The name of the holders, `3 × work`, or of a single holder, `work 4711`. If threads wait for
/// others of their own kind, `one another`.
pub(super) fn holder_name(model: &Model, pair: &Contention, room: usize) -> String {
    let holders = Threads {
        identity: pair.holding,
        one: Some(pair.longest.1).filter(|_| pair.for_one),
    };
    match model.sync.identities.get(pair.holding) {
        Some((.., 2..)) if holders.one.is_none() && pair.holding == pair.waiting => {
            "one another".to_owned()
        }
        _ => wording::threads(model, holders, room),
    }
}

/// Writes the part of the waits of an object that no thread ended.
fn timed_out(page: &mut Page<'_>, waits: TimedOut) -> io::Result<()> {
    if waits.count == 0 {
        return Ok(());
    }
    let figures = figures(waits.count, waits.total_ns);
    let text = format!("    {figures}  until the time limit");
    page.line(&Line::new().with(Ink::Faint, text))
}

/// Writes the waits with a known holder or waker, and the parts of all waits without one.
fn contention(
    page: &mut Page<'_>,
    model: &Model,
    contention: &[&Contention],
    (total_ns, timed_out): (u64, TimedOut),
    sources: &Sources,
) -> io::Result<()> {
    let sync: &Sync = &model.sync;
    let rows = page.rows(MAX_ROWS, contention.len());
    for pair in contention.iter().take(rows) {
        let used = sync.used(pair.waiter);
        let held = used.waiting == Waiting::Held;
        let mut line = Line::new().with(Ink::Plain, "    ");
        let figures = figures(pair.count, pair.total_ns);
        line.push(Ink::Plain, format!("{figures}  "));
        line.push(Ink::Plain, waiter_name(model, pair, page.width / 3));
        line.push(Ink::Faint, " in ");
        let room = page.width.saturating_sub(line.width());
        line.push(Ink::Function, place(model, used.path.0, sources, room));
        page.line(&line)?;
        let mut line = Line::new();
        line.pad(4 + super::line::width(&figures) + 2);
        line.push(Ink::Faint, if held { "for " } else { "ended by " });
        let room = page.width / 3;
        line.push(Ink::Plain, holder_name(model, pair, room));
        let taken = pair.holder.map(|holder| sync.used(holder).path);
        let verb = match (taken, held) {
            (Some(_), _) => ", taken in ",
            (None, true) => ", released in ",
            (None, false) => " in ",
        };
        if let Some(path) = taken.or(pair.ended) {
            line.push(Ink::Faint, verb);
            let room = page.width.saturating_sub(line.width());
            line.push(Ink::Function, place(model, path.0, sources, room));
        }
        page.line(&line)?;
    }
    let explained: u64 = contention.iter().map(|pair| pair.total_ns).sum();
    self::timed_out(page, timed_out)?;
    let rest = total_ns.saturating_sub(explained.saturating_add(timed_out.total_ns));
    if rest > 0 {
        let text = format!("    {:>8} for unknown threads", wording::duration(rest));
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    let others = contention.iter().skip(rows);
    if others.len() > 0 {
        let text = format!(
            "    {} in {}",
            wording::duration(others.clone().map(|pair| pair.total_ns).sum()),
            wording::count(others.len(), "more row")
        );
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

pub(super) fn figures(count: u64, total_ns: u64) -> String {
    format!(
        "{:>8} {:<12}",
        wording::duration(total_ns),
        wording::times(count)
    )
}

/// The summary of the threads' time.
pub(super) fn summary(model: &Model) -> String {
    let about = tree::about(model);
    let sync = &model.sync;
    if !sync.recorded {
        return match model.lock_waits.is_empty() {
            true => {
                format!("{about}synchronization was not recorded; use `unspool record --sync`.")
            }
            false => format!(
                "{about}the kernel's schedule shows who waited for which lock; `unspool record \
                 --sync` records more about it."
            ),
        };
    }
    let sum = |of: fn(&crate::model::sync::ThreadTimes) -> u64| sync.threads.iter().map(of).sum();
    let (alive, held, others, idle): (u64, u64, u64, u64) = (
        sum(|t| t.alive_ns),
        sum(|t| t.held_ns),
        sum(|t| t.others_ns),
        sum(|t| t.idle_ns),
    );
    if model.recording.too_little_seen() {
        let kernel = sync
            .concurrency
            .turns
            .map_or(String::new(), |(running, runnable)| {
                format!(
                    " On average {running:.1} threads ran and {runnable:.1} waited for a processor."
                )
            });
        let own = model.lock_waits.iter().filter(|it| it.process.is_none());
        let of_kernel = match own.map(|waits| waits.total_ns).sum() {
            0 => "Unspool does not know for how much of it they waited.".to_owned(),
            ns => format!(
                "The kernel's schedule shows {} of waits for locks.",
                wording::duration(ns)
            ),
        };
        return format!(
            "{about}{} lived {} in total. {of_kernel} The recorded waits add up to {} of lock \
             waits, {} of waits for threads and {} of idle waits.{kernel}",
            wording::count(model.threads.len(), "thread"),
            wording::duration(alive),
            wording::duration(held),
            wording::duration(others),
            wording::duration(idle),
        );
    }
    let part = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / alive.max(1) as f64);
    // If waits are missing, the remaining time is not all spent running.
    let unseen = match (
        model.schedule.calls.is_empty(),
        model.recording.misses_calls(),
    ) {
        (false, false) => "blocked in system calls",
        (false, true) => "blocked in system calls, or in waits that were not recorded",
        (true, false) => "in system calls that are not recorded",
        (true, true) => "in system calls and waits that were not recorded",
    };
    let rest = alive.saturating_sub(held + others + idle);
    let turns = sync.concurrency.turns.zip(sync.turns());
    let rest = match turns {
        None => format!(
            "{} running, or {unseen}. On average at most {:.1} threads ran.",
            part(rest),
            sync.concurrency.running
        ),
        Some(((running, runnable), (on_cpu, ready))) => format!(
            "{} running, {} runnable (waiting for a processor), the rest {unseen}. On average {running:.1} threads ran and \
             {runnable:.1} were runnable.",
            part(on_cpu),
            part(ready),
        ),
    };
    format!(
        "{about}{} lived {} in total: {} in lock waits, {} in waits for threads, {} in idle \
         waits; {rest}",
        wording::count(model.threads.len(), "thread"),
        wording::duration(alive),
        part(held),
        part(others),
        part(idle),
    )
}

#[cfg(test)]
mod tests {
    use unspool_capture::ProbeKind;

    use super::*;
    use crate::model::fixture::{PID, Stage};

    #[test]
    fn a_time_limit_is_no_unknown_thread() {
        let mut stage = Stage::new();
        stage.instrument(90, "libc.so.6!__futex_wait", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        let wait = "libc.so.6!pthread_cond_timedwait";
        let path = ["libc.so.6!__futex_wait", wait, "orders!main@orders.c:21"];
        stage.enter(PID, 2_000_000, 90, 0x7000, &[0xd028, 0x189, 0], &path);
        stage.leave(PID, 4_000_000, 91, 0x7000, -110_i64 as u64);
        stage.end(10);
        let mut out = Vec::new();
        write(&stage.model(), &mut out, &Style::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("2.00 ms once          until the time limit"),
            "{text}"
        );
    }
}
