//! Who waited for whom: contention first, then waiting for others, then waiting for work.

use std::io::{self, Write};

use super::frames::{self, Sources};
use super::kin::{self, Kin, KinUse};
use super::line::{Ink, Line, Page};
use super::objects::place;
use super::{Style, findings, notes, phrase, tree};
use crate::model::Model;
use crate::model::sync::{Blame, Sync, Waiting};

/// Who made whom wait for one object, at most.
const MOST: usize = 6;
/// Objects whose contention is shown with stacks.
const MOST_STACKS: usize = 10;

/// Writes who waited for whom as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary(model))?;
    let all = kin::of(&model.sync);
    let sources = findings::sources(model);
    for (waiting, title) in [
        (Waiting::Held, "Waiting for what others hold"),
        (Waiting::Others, "Waiting for others to come or to finish"),
        (Waiting::Idle, "Waiting for work, by design"),
    ] {
        let here = |used: &&KinUse| used.sample.waiting == waiting && used.waits.count > 0;
        let kins: Vec<&Kin> = all
            .iter()
            .filter(|kin| kin.uses.iter().any(|u| here(&u)))
            .collect();
        if kins.is_empty() {
            continue;
        }
        page.blank()?;
        page.line(&Line::new().with(Ink::Strong, title))?;
        for kin in kins {
            let mut line = Line::new().with(Ink::Plain, "  ");
            let (count, total) = kin.uses.iter().filter(here).fold((0, 0), |(c, t), u| {
                (c + u.waits.count, t + u.waits.total_ns)
            });
            let sum = format!("  {}, {}", phrase::duration(total), phrase::times(count));
            let room = page.width.saturating_sub(line.width() + sum.len());
            line.push(Ink::Name, kin.title(&model.sync, room));
            line.push(Ink::Plain, sum);
            page.line(&line)?;
            let blamed: Vec<&Blame> = kin
                .blames
                .iter()
                .filter(|blame| model.sync.used(blame.waiter).waiting == waiting)
                .collect();
            // Who gives work is of no interest to whoever looks for lost time.
            if waiting != Waiting::Idle && !blamed.is_empty() {
                blames(page, model, &blamed, total, &sources)?;
                continue;
            }
            for used in kin.uses.iter().filter(here).take(MOST) {
                let mut line = Line::new().with(Ink::Plain, "    ");
                let figures = figures(used.waits.count, used.waits.total_ns);
                line.push(Ink::Plain, format!("{figures}  "));
                line.push(
                    Ink::Plain,
                    phrase::identities(model, &used.identities(), page.width / 3),
                );
                line.push(Ink::Faint, " in ");
                let room = page.width.saturating_sub(line.width());
                line.push(
                    Ink::Function,
                    place(model, used.sample.path.0, &sources, room),
                );
                page.line(&line)?;
            }
        }
    }
    notes::last(page, model)
}

/// Writes contention with the stacks of who waited and of who held as text.
pub fn write_stacks(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary(model))?;
    let sync = &model.sync;
    let sources = findings::sources(model);
    let all = kin::of(sync);
    let contended: Vec<&Kin> = all.iter().filter(|kin| held_ns(kin) > 0).collect();
    for kin in contended.iter().take(MOST_STACKS) {
        page.blank()?;
        page.line(&Line::new().with(Ink::Strong, kin.title(sync, page.width)))?;
        let lead = Line::new().with(Ink::Plain, "  ");
        let mut text = format!(
            "waited for {}, for {} altogether, at most {}",
            phrase::times(kin.waits.count),
            phrase::duration(kin.waits.total_ns),
            phrase::duration(kin.waits.max_ns),
        );
        if kin.holds.count > 0 {
            text.push_str(&format!(
                "; held {} on average, at most {}",
                phrase::duration(kin.holds.mean_ns()),
                phrase::duration(kin.holds.max_ns)
            ));
        }
        page.paragraph(&lead, &lead, Ink::Plain, &text)?;
        for blame in kin.blames.iter().take(3) {
            page.blank()?;
            let text = format!(
                "{} waited for {}: {}, {}",
                phrase::identity(model, blame.waiting, page.width / 3),
                blamed(model, blame, page.width / 3),
                phrase::duration(blame.total_ns),
                phrase::times(blame.count),
            );
            page.paragraph(&lead, &lead, Ink::Plain, &text)?;
            let waiter = sync.path(sync.used(blame.waiter));
            let holder = blame.holder.map(|holder| sync.path(sync.used(holder)));
            let ended = blame.ended.map(|ended| &sync.paths[ended.0]);
            let (waited, held) = match (holder, ended) {
                (None, Some(_)) => ("waited at    ", "given up at  "),
                _ => ("waited at  ", "taken at   "),
            };
            frames::write(page, &lead, waited, waiter, &sources, false)?;
            if let Some(stack) = holder.or(ended) {
                frames::write(page, &lead, held, stack, &sources, false)?;
            }
        }
    }
    if contended.len() > MOST_STACKS {
        page.blank()?;
        let more = phrase::count(contended.len() - MOST_STACKS, "more object");
        page.line(&Line::new().with(Ink::Faint, format!("{more}: --view waits, or JSON")))?;
    }
    notes::last(page, model)
}

fn held_ns(kin: &Kin) -> u64 {
    let held = kin
        .uses
        .iter()
        .filter(|used| used.sample.waiting == Waiting::Held);
    held.map(|used| used.waits.total_ns).sum()
}

/// `3 × work`, or the one of them that it always was: `work 4711`. Of threads that wait for others
/// of their own kind, `one another`.
fn blamed(model: &Model, blame: &Blame, room: usize) -> String {
    let one = model.thread(blame.longest.1).filter(|_| blame.for_one);
    let several = model.sync.identities.get(blame.holding);
    match (one, several) {
        (None, Some((.., 2..))) if blame.holding == blame.waiting => "one another".to_owned(),
        (Some(thread), Some((.., 2..))) => match thread.tid {
            Some(tid) => format!("{} {tid}", phrase::one(model, thread, room)),
            None => phrase::one(model, thread, room),
        },
        _ => phrase::identity(model, blame.holding, room),
    }
}

/// Of waits that took `total_ns`, those of which it is known who ended them.
fn blames(
    page: &mut Page<'_>,
    model: &Model,
    blames: &[&Blame],
    total_ns: u64,
    sources: &Sources,
) -> io::Result<()> {
    let sync: &Sync = &model.sync;
    for blame in blames.iter().take(MOST) {
        let used = sync.used(blame.waiter);
        let held = used.waiting == Waiting::Held;
        let mut line = Line::new().with(Ink::Plain, "    ");
        let figures = figures(blame.count, blame.total_ns);
        line.push(Ink::Plain, format!("{figures}  "));
        line.push(
            Ink::Plain,
            phrase::identity(model, blame.waiting, page.width / 3),
        );
        line.push(Ink::Faint, " in ");
        let room = page.width.saturating_sub(line.width());
        line.push(Ink::Function, place(model, used.path.0, sources, room));
        page.line(&line)?;
        let mut line = Line::new();
        line.pad(4 + super::line::width(&figures) + 2);
        line.push(Ink::Faint, if held { "for " } else { "ended by " });
        let room = page.width / 3;
        line.push(Ink::Plain, blamed(model, blame, room));
        let taken = blame.holder.map(|holder| sync.used(holder).path);
        let verb = match (taken, held) {
            (Some(_), _) => ", taken in ",
            (None, true) => ", given up in ",
            (None, false) => " in ",
        };
        if let Some(path) = taken.or(blame.ended) {
            line.push(Ink::Faint, verb);
            let room = page.width.saturating_sub(line.width());
            line.push(Ink::Function, place(model, path.0, sources, room));
        }
        page.line(&line)?;
    }
    let blamed: u64 = blames.iter().map(|blame| blame.total_ns).sum();
    let rest = total_ns.saturating_sub(blamed);
    if rest > 0 {
        let text = format!(
            "    {:>8} for threads that were not seen",
            phrase::duration(rest)
        );
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    if blames.len() > MOST {
        let rest: u64 = blames.iter().skip(MOST).map(|b| b.total_ns).sum();
        let text = format!(
            "    {} in {} more ways",
            phrase::duration(rest),
            blames.len() - MOST
        );
        page.line(&Line::new().with(Ink::Faint, text))?;
    }
    Ok(())
}

fn figures(count: u64, total_ns: u64) -> String {
    format!(
        "{:>8} {:<12}",
        phrase::duration(total_ns),
        phrase::times(count)
    )
}

/// How the threads' time was spent.
fn summary(model: &Model) -> String {
    let about = tree::about(model);
    let sync = &model.sync;
    if !sync.recorded {
        return format!("{about}synchronization was not recorded: `unspool record --sync` does.");
    }
    let sum = |of: fn(&crate::model::sync::ThreadTimes) -> u64| sync.threads.iter().map(of).sum();
    let (alive, held, others, idle): (u64, u64, u64, u64) = (
        sum(|t| t.alive_ns),
        sum(|t| t.held_ns),
        sum(|t| t.others_ns),
        sum(|t| t.idle_ns),
    );
    if model.recording.too_little_seen() {
        let kernel = sync.concurrency.turns.map_or(String::new(), |(running, runnable)| {
            format!(
                " By the kernel's account {running:.1} threads ran and {runnable:.1} waited for a processor on \
                 average."
            )
        });
        return format!(
            "{about}{} lived {} altogether. How much of it they waited is not known: of what was seen, {} was \
             waiting for what others held, {} for others to come or to finish, {} for work.{kernel}",
            phrase::count(model.threads.len(), "thread"),
            phrase::duration(alive),
            phrase::duration(held),
            phrase::duration(others),
            phrase::duration(idle),
        );
    }
    let part = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / alive.max(1) as f64);
    // Where waits are missing, the rest is not all running.
    let unseen = match model.recording.misses_calls() {
        false => "in system calls that are not recorded",
        true => "in what was not recorded, waits among it",
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
        "{about}{} lived {} altogether: {} waiting for what others held, {} for others to come or to finish, {} \
         for work; {rest}",
        phrase::count(model.threads.len(), "thread"),
        phrase::duration(alive),
        part(held),
        part(others),
        part(idle),
    )
}
