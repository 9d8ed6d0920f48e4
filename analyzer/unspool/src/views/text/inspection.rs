//! A snapshot of programs as text: first the findings, then all threads with their stacks, process
//! by process. Equal threads of a process are shown once.

use std::collections::{HashMap, HashSet};
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
    let processes = processes(model);
    let text = heading(model, &processes);
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &text)?;
    let sources = Sources::of(
        model
            .any_threads()
            .flat_map(|t| t.stack.as_deref().into_iter().chain(t.creation_stack()))
            .flat_map(|stack| &stack.frames),
        &model.target.executable,
    );
    thread_state::findings(page, model, &sources)?;
    // Let the user read the findings while the rest is written.
    page.flush()?;
    for (index, process) in processes.iter().enumerate() {
        if index > 0 || has_several(model) {
            write_process(page, process)?;
        }
        for group in &process.groups {
            write_group(page, group, process.main, &sources)?;
        }
    }
    notes::all_but_errors(page, model)
}

/// True if the user named several processes, of which the first is not special.
fn has_several(model: &Model) -> bool {
    !model.inspection.named.is_empty()
}

/// `server (pid 7, x86_64): 9 threads in 3 different stacks.`, or `3 processes, 12 threads.`
fn heading(model: &Model, processes: &[Shown<'_>]) -> String {
    let own = model.threads.len();
    let named = &model.inspection.named;
    if has_several(model) {
        let others = model.processes.all.iter();
        let others = others.filter(|process| named.contains(&process.pid));
        let threads = own + others.map(|process| process.threads).sum::<usize>();
        let threads = wording::count(threads, "thread");
        return format!("{} processes, {threads}.", named.len() + 1);
    }
    let mut text = tree::about(model) + &wording::count(own, "thread");
    let groups = processes.first().map_or(&[][..], |first| &first.groups);
    let stacks: HashSet<Look<'_>> = groups.iter().filter_map(Group::look).collect();
    let stacks = stacks.len();
    if stacks < own {
        let stacks = wording::count(stacks, "different stack");
        text.push_str(&format!(" in {stacks}"));
    }
    text + "."
}

/// A process, or several ones whose threads are equal.
struct Shown<'a> {
    program: &'a str,
    pids: Vec<u64>,
    /// The name of the main thread.
    main: &'a str,
    groups: Vec<Group<'a>>,
    /// Number of threads that are not shown.
    left: usize,
}

impl<'a> Shown<'a> {
    /// Adds a process if its threads are equal.
    fn merge(&mut self, other: &Shown<'a>) -> bool {
        let is_equal = (self.program, self.left) == (other.program, 0)
            && self.groups.len() == other.groups.len()
            && self.groups.iter().zip(&other.groups).all(|(own, more)| {
                own.members.len() == self.pids.len() * more.members.len() && own.is_equal(more)
            });
        if is_equal {
            self.pids.extend(&other.pids);
            for (group, more) in self.groups.iter_mut().zip(&other.groups) {
                group.members.extend(&more.members);
            }
        }
        is_equal
    }
}

/// The named processes with all their threads. Of further processes, the threads for which threads
/// of the named ones wait.
fn processes(model: &Model) -> Vec<Shown<'_>> {
    let own = model.threads.len();
    let main = model.main().and_then(|main| model.thread(main));
    let mut all = vec![Shown {
        program: &model.target.name,
        pids: vec![model.target.pid],
        main: main.map_or("", |main| &main.name),
        groups: groups(model, (0..own).map(ThreadIndex)),
        left: 0,
    }];
    let awaited = model.awaited_elsewhere();
    for process in model.processes.all.iter().filter(|it| it.is_recorded()) {
        let first = own + process.first_thread;
        let threads = (first..first + process.threads).map(ThreadIndex);
        let is_named = model.inspection.named.contains(&process.pid);
        let shown = threads.filter(|one| is_named || awaited.contains(one));
        let shown: Vec<ThreadIndex> = shown.collect();
        let one = Shown {
            program: model.processes.program_name(process),
            pids: vec![process.pid],
            main: model
                .any_thread(ThreadIndex(first))
                .map_or("", |it| &it.name),
            left: process.threads - shown.len(),
            groups: groups(model, shown.into_iter()),
        };
        // A process without a heading stands alone.
        let with_heading = usize::from(!has_several(model));
        let mut before = all.iter_mut().skip(with_heading);
        if !before.any(|shown| shown.merge(&one)) {
            all.push(one);
        }
    }
    all
}

/// Writes the heading of processes.
fn write_process(page: &mut Page<'_>, process: &Shown<'_>) -> io::Result<()> {
    page.blank()?;
    let mut line = Line::new();
    if process.pids.len() > 1 {
        line.push(Ink::Strong, format!("{} × ", process.pids.len()));
    }
    line.push(Ink::Strong, format!("process {}", clean(process.program)));
    let pids = wording::ids("pid", process.pids.clone());
    line.push(Ink::Plain, format!("  {pids}"));
    page.line(&line)?;
    if process.left > 0 {
        let left = wording::count(process.left, "other thread");
        let text = format!(
            "{left} not shown here: `unspool inspect --attach {}`",
            process.pids[0]
        );
        page.paragraph(&lead(), &lead(), Ink::Faint, &text)?;
    }
    Ok(())
}

fn lead() -> Line {
    Line::new().with(Ink::Plain, "  ")
}

/// Writes threads with equal stacks. `main` is the name of the main thread.
fn write_group(
    page: &mut Page<'_>,
    group: &Group<'_>,
    main: &str,
    sources: &Sources,
) -> io::Result<()> {
    let Group { members, state, .. } = group;
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
    if group.states > 1 {
        let text = format!(
            "┊ the same stack as above, in {} other states, all of them in JSON",
            group.states
        );
        return page.paragraph(&prefix, &prefix, Ink::Faint, &text);
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

/// Maximum number of groups that differ only in their states, such as the objects that they wait
/// for.
const MAX_ALIKE: usize = 8;

/// Threads that look equal.
struct Group<'a> {
    members: Vec<&'a Thread>,
    /// Their state. `None` if it is not known, or if there are several.
    state: Option<String>,
    /// Number of different states.
    states: usize,
}

impl Group<'_> {
    fn look(&self) -> Option<Look<'_>> {
        self.members.first().map(|first| look(first))
    }

    /// True if the first threads of two groups look equal.
    fn is_equal(&self, other: &Group<'_>) -> bool {
        self.state == other.state && self.states == other.states && self.look() == other.look()
    }
}

/// Threads with equal identities, functions, stacks and states, in the order of their first thread.
/// The main thread is alone. If there are many groups of one stack, the last one has several
/// states.
fn groups(model: &Model, threads: impl Iterator<Item = ThreadIndex>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known: HashMap<(Look<'_>, Option<String>), usize> = HashMap::new();
    for index in threads {
        let Some(thread) = model.any_thread(index) else {
            continue;
        };
        let state = thread_state::state(model, index);
        let group = *known
            .entry((look(thread), state.clone()))
            .or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.members.push(thread),
            None => groups.push(Group {
                members: vec![thread],
                state,
                states: 1,
            }),
        }
    }
    join_alike(groups)
}

/// Joins the groups of one stack after the first [`MAX_ALIKE`].
fn join_alike(groups: Vec<Group<'_>>) -> Vec<Group<'_>> {
    let mut alike: HashMap<Look<'_>, Vec<usize>> = HashMap::new();
    let mut joined: Vec<Group<'_>> = Vec::new();
    for group in groups {
        let look = group.members.first().map(|first| look(first));
        let known = look.map(|look| alike.entry(look).or_default());
        match known {
            Some(known) if known.len() > MAX_ALIKE => {
                let rest = &mut joined[known[MAX_ALIKE]];
                rest.members.extend(group.members);
                (rest.state, rest.states) = (None, rest.states + 1);
            }
            known => {
                known.into_iter().for_each(|known| known.push(joined.len()));
                joined.push(group);
            }
        }
    }
    joined
}

/// The addresses of a stack's frames, and the reason why the stack ends early.
type Stack<'a> = Option<(Vec<(u64, bool)>, Option<&'a str>)>;
/// The parts of a thread that the report shows, apart from its state.
type Look<'a> = (Key, Option<&'a Place>, Stack<'a>);

fn look(thread: &Thread) -> Look<'_> {
    let stack = thread.stack.as_deref().map(|stack: &Backtrace| {
        let frames = stack
            .frames
            .iter()
            .map(|f| (f.place.avma, f.inlined))
            .collect();
        (frames, stack.truncated.as_deref())
    });
    (thread.key, thread.function.as_ref(), stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_states_of_one_stack_are_joined() {
        let thread = Thread::new(None);
        let group = |state: usize| Group {
            members: vec![&thread],
            state: Some(state.to_string()),
            states: 1,
        };
        let shown = |count| {
            let joined = join_alike((0..count).map(group).collect());
            let last = joined.last().unwrap();
            (joined.len(), last.members.len(), last.states)
        };
        assert_eq!(shown(MAX_ALIKE), (MAX_ALIKE, 1, 1));
        assert_eq!(shown(MAX_ALIKE + 1), (MAX_ALIKE + 1, 1, 1));
        assert_eq!(
            shown(2000),
            (MAX_ALIKE + 1, 2000 - MAX_ALIKE, 2000 - MAX_ALIKE)
        );
    }
}
