//! A snapshot of a program as text: first the findings, then all threads with their stacks. Equal
//! threads are shown once.

use std::collections::HashMap;
use std::io::{self, Write};

use super::frames::{self, Sources};
use super::line::{Ink, Line, Page, clean, width};
use super::{notes, thread_state, tree};
use crate::model::{Backtrace, Creation, Key, Model, Place, Thread, ThreadIndex};
use crate::views::{Style, names, wording};

/// Writes all threads and their stacks as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let groups = groups(model, (0..model.threads.len()).map(ThreadIndex));
    let mut text = tree::about(model);
    text.push_str(&wording::count(model.threads.len(), "thread"));
    if groups.len() < model.threads.len() {
        text.push_str(&format!(
            " in {}",
            wording::count(groups.len(), "different stack")
        ));
    }
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &(text + "."))?;
    let sources = Sources::of(
        model
            .any_threads()
            .flat_map(|t| t.stack.as_deref().into_iter().chain(t.creation_stack()))
            .flat_map(|stack| &stack.frames),
        &model.target.executable,
    );
    let main = model
        .main()
        .and_then(|main| model.thread(main))
        .map_or("", |main| &main.name);
    thread_state::findings(page, model, &sources)?;
    // Let the user read the findings while the rest is written.
    page.flush()?;
    for group in &groups {
        write_group(page, group, main, &sources)?;
    }
    others(page, model, &sources)?;
    notes::all_but_errors(page, model)
}

/// Writes the threads of other processes for which threads of this one wait.
fn others(page: &mut Page<'_>, model: &Model, sources: &Sources) -> io::Result<()> {
    let awaited = model.awaited_elsewhere();
    let inspected = model.processes.all.iter().filter(|it| it.is_recorded());
    for process in inspected {
        let first = model.threads.len() + process.first_thread;
        let threads = (first..first + process.threads).map(ThreadIndex);
        let (shown, left): (Vec<_>, Vec<_>) = threads.partition(|one| awaited.contains(one));
        page.blank()?;
        let program = clean(model.processes.program_name(process));
        let mut line = Line::new().with(Ink::Strong, format!("process {program}"));
        line.push(Ink::Plain, format!("  pid {}", process.pid));
        page.line(&line)?;
        if !left.is_empty() {
            let text = format!(
                "{} not shown here: `unspool inspect --attach {}`",
                wording::count(left.len(), "other thread"),
                process.pid
            );
            page.paragraph(&lead(), &lead(), Ink::Faint, &text)?;
        }
        let main = model
            .any_thread(ThreadIndex(first))
            .map_or("", |it| &it.name);
        for group in groups(model, shown.into_iter()) {
            write_group(page, &group, main, sources)?;
        }
    }
    Ok(())
}

fn lead() -> Line {
    Line::new().with(Ink::Plain, "  ")
}

/// Writes threads with equal stacks. `main` is the name of the main thread.
fn write_group(
    page: &mut Page<'_>,
    (members, state): &Group<'_>,
    main: &str,
    sources: &Sources,
) -> io::Result<()> {
    let Some(first) = members.first() else {
        return Ok(());
    };
    page.blank()?;
    page.line(&headline(page.width, members, main))?;
    let prefix = lead();
    let tids = wording::tids(members.iter().map(|thread| thread.tid).collect());
    page.paragraph(&prefix, &prefix, Ink::Faint, &tids)?;
    if let Some(state) = state {
        page.paragraph(&prefix, &prefix, Ink::Plain, state)?;
    }
    let lead = "  ";
    match &first.stack {
        Some(stack) => frames::write(page, &prefix, lead, stack, sources, true)?,
        None => {
            let lead = prefix.clone().with(Ink::Plain, "  ");
            page.paragraph(&lead, &lead, Ink::Alarm, "its registers were not read")?;
        }
    }
    if let Creation::Recorded { by, stack } = &first.creation {
        let by = format!("created by {} at", clean(by));
        page.paragraph(&prefix, &prefix, Ink::Faint, &by)?;
        frames::write(page, &prefix, lead, stack, sources, false)?;
    }
    Ok(())
}

fn headline(page: usize, members: &[&Thread], main: &str) -> Line {
    let mut line = Line::new();
    if members.len() > 1 {
        line.push(Ink::Strong, format!("{} × ", members.len()));
    }
    let room = page.saturating_sub(line.width());
    match (&members[0].creation, &members[0].function) {
        (Creation::Main, _) => line.push(Ink::Strong, "main thread"),
        (_, Some(place)) => line.push(Ink::Strong, frames::function(place, room)),
        (_, None) => line.push(Ink::Strong, "thread of unknown function"),
    }
    let names = wording::names(members, main);
    if !names.is_empty() {
        line.push(Ink::Plain, "  ");
        let room = page.saturating_sub(line.width());
        line.push(
            Ink::Name,
            if width(&names) > room {
                names::middle(&names, room)
            } else {
                names
            },
        );
    }
    line
}

/// Threads with an equal state, and this state.
type Group<'a> = (Vec<&'a Thread>, Option<String>);

/// Threads with equal identities, functions, stacks and states, in the order of their first thread.
/// The main thread is alone.
fn groups(model: &Model, threads: impl Iterator<Item = ThreadIndex>) -> Vec<Group<'_>> {
    type Stack<'a> = Option<(Vec<(u64, bool)>, Option<&'a str>)>;
    type Id<'a> = (Key, Option<&'a Place>, Stack<'a>, Option<String>);
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known: HashMap<Id<'_>, usize> = HashMap::new();
    for index in threads {
        let Some(thread) = model.any_thread(index) else {
            continue;
        };
        let stack = thread.stack.as_deref().map(|stack: &Backtrace| {
            let frames = stack
                .frames
                .iter()
                .map(|f| (f.place.avma, f.inlined))
                .collect();
            (frames, stack.truncated.as_deref())
        });
        let state = thread_state::state(model, index);
        let id = (thread.key, thread.function.as_ref(), stack, state.clone());
        let group = *known.entry(id).or_insert(groups.len());
        match groups.get_mut(group) {
            Some((members, _)) => members.push(thread),
            None => groups.push((vec![thread], state)),
        }
    }
    groups
}
