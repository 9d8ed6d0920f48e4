//! The tree of threads: creators, places of creation, lifetimes and ends.
//!
//! Threads with the same identity are one entry with a count. The tree is walked without recursion
//! and its indentation is limited, because a program may nest threads to any depth.

use std::io::{self, Write};

use super::frames::{self, Sources};
use super::line::{Ink, Line, Page, clean, width};
use super::processes::ProcessTree;
use super::{notes, processes};
use crate::model::{Creation, Model, ProgramEnd, Thread, Topic};
use crate::views::groups::{Forest, Group};
use crate::views::{Style, container_growth, names, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Threads, Topic::Stacks];

/// Writes the tree as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let forest = Forest::of(model);
    page.paragraph(
        &Line::new(),
        &Line::new(),
        Ink::Plain,
        &summary(model, &forest),
    )?;
    if let Some(parent) = model.recorded_parent() {
        let name = clean(model.processes.program_name(parent));
        let text = format!("Process {} ({name}) had started it.", parent.pid);
        page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &text)?;
    }
    if let Some(started) = processes::started(model) {
        page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &started)?;
    }
    if let Some(found) = wording::findings(model) {
        page.paragraph(&Line::new(), &Line::new(), Ink::Alarm, &found)?;
    }
    let tree = Tree {
        model,
        sources: frames::sources(model),
        main_name: model
            .main()
            .and_then(|main| model.thread(main))
            .map_or("", |main| &main.name),
        processes: ProcessTree::of(model, &forest),
        forest: &forest,
    };
    let threads = forest.roots.iter().map(|root| Node::Threads(*root));
    let processes = tree.processes.roots.iter();
    for root in threads.chain(processes.map(|root| Node::Process(*root))) {
        page.blank()?;
        tree.write(page, root)?;
    }
    notes::last(page, model, TOPICS)
}

fn summary(model: &Model, forest: &Forest) -> String {
    let recording = &model.recording;
    let created = model
        .threads
        .iter()
        .filter(|t| t.creator().is_some())
        .count();
    let places = forest
        .groups
        .iter()
        .filter(|g| {
            model
                .thread(g.members[0])
                .is_some_and(|t| t.creator().is_some())
        })
        .count();
    let others = model.threads.len() - created - usize::from(model.main().is_some());
    let mut text = about(model);
    let processes = &model.processes;
    let in_others = processes.created_in(&processes.all).next().is_some();
    text.push_str(&match (created, places) {
        (0, _) if in_others => "it created no thread itself".to_owned(),
        (0, _) => "no thread was created".to_owned(),
        (1, _) => "1 thread was created".to_owned(),
        (_, 1) => format!("{created} threads were created, all with one creation stack"),
        _ => format!("{created} threads were created with {places} creation stacks"),
    });
    if others > 0 {
        text.push_str(&match others {
            1 => ", 1 other was seen".to_owned(),
            others => format!(", {others} others were seen"),
        });
    }
    // An inspection, or a recording without events, has no length.
    if recording.duration_ns > 0 {
        text.push_str(&format!(" in {}", wording::duration(recording.duration_ns)));
    }
    match recording.program_end {
        Some(ProgramEnd::Exited(code)) => text.push_str(&format!("; exit code {code}")),
        Some(ProgramEnd::Signal(signal)) => {
            text.push_str(&format!("; killed by {}", wording::signal(signal)));
        }
        None => {}
    }
    text + "."
}

/// `orders (pid 7, x86-64): `
pub(in crate::views) fn about(model: &Model) -> String {
    let target = &model.target;
    let name = match target.name.as_str() {
        "" => "The program".to_owned(),
        name => clean(name),
    };
    let mut details = Vec::new();
    if target.pid != 0 {
        details.push(format!("pid {}", target.pid));
    }
    if !target.arch.is_empty() {
        details.push(clean(&target.arch));
    }
    match details.is_empty() {
        true => format!("{name}: "),
        false => format!("{name} ({}): ", details.join(", ")),
    }
}

/// An entry of the tree.
#[derive(Clone, Copy)]
enum Node {
    /// A group of the program's threads.
    Threads(usize),
    /// Processes, as a node of [`ProcessTree`].
    Process(usize),
    /// Threads of processes, in [`ProcessTree::threads`].
    Created(usize),
}

struct Tree<'a> {
    model: &'a Model,
    forest: &'a Forest,
    processes: ProcessTree<'a>,
    sources: Sources,
    main_name: &'a str,
}

impl Tree<'_> {
    /// Writes a root and all entries below it.
    fn write(&self, page: &mut Page<'_>, root: Node) -> io::Result<()> {
        // (entry, prefix of its first line, prefix of all lines below)
        let mut todo = vec![(root, String::new(), String::new())];
        while let Some((node, lead, below)) = todo.pop() {
            let children = self.children(node);
            match node {
                Node::Threads(group) => self.group(page, group, &lead, &below)?,
                Node::Process(node) => self.process(page, node, &lead, &below)?,
                Node::Created(at) => {
                    let members = &self.processes.threads[at].members;
                    let members = (members.iter())
                        .filter_map(|index| self.model.any_thread(*index))
                        .collect();
                    self.threads(page, node, members, &lead, &below)?;
                }
            }
            for (at, child) in children.iter().enumerate().rev() {
                let last = at + 1 == children.len();
                let (branch, beside) = if last {
                    ("└─ ", "   ")
                } else {
                    ("├─ ", "│  ")
                };
                todo.push((
                    *child,
                    format!("{below}{branch}"),
                    format!("{below}{beside}"),
                ));
            }
        }
        Ok(())
    }

    fn children(&self, node: Node) -> Vec<Node> {
        fn nodes(indices: &[usize], node: fn(usize) -> Node) -> impl Iterator<Item = Node> {
            indices.iter().map(move |index| node(*index))
        }
        let of = &self.processes;
        match node {
            Node::Threads(group) => nodes(&self.forest.groups[group].children, Node::Threads)
                .chain(nodes(&of.of_group[group], Node::Process))
                .collect(),
            Node::Process(node) => nodes(&of.nodes[node].threads, Node::Created)
                .chain(nodes(&of.nodes[node].children, Node::Process))
                .collect(),
            Node::Created(at) => nodes(&of.threads[at].children, Node::Created).collect(),
        }
    }

    fn process(&self, page: &mut Page<'_>, at: usize, lead: &str, below: &str) -> io::Result<()> {
        let node = &self.processes.nodes[at];
        stem_above(page, lead)?;
        let mut line = Line::new().with(Ink::Faint, limit(lead, page.width));
        let room = page.width.saturating_sub(line.width());
        line.push(Ink::Strong, node.headline(room));
        page.line(&line)?;
        let prefix = self.beside(Node::Process(at), below, page.width);
        list(page, &prefix, node.facts(self.model))
    }

    /// The beginning of the lines under an entry's first line.
    fn beside(&self, node: Node, below: &str, page: usize) -> Line {
        let stem = match self.children(node).is_empty() {
            true => "  ",
            false => "│ ",
        };
        Line::new().with(Ink::Faint, limit(below, page) + stem)
    }

    fn group(&self, page: &mut Page<'_>, at: usize, lead: &str, below: &str) -> io::Result<()> {
        let members = &self.forest.groups[at].members;
        let members = (members.iter())
            .filter_map(|index| self.model.thread(*index))
            .collect();
        self.threads(page, Node::Threads(at), members, lead, below)
    }

    fn threads(
        &self,
        page: &mut Page<'_>,
        node: Node,
        members: Vec<&Thread>,
        lead: &str,
        below: &str,
    ) -> io::Result<()> {
        let Some(first) = members.first() else {
            return Ok(());
        };
        stem_above(page, lead)?;
        page.line(&self.headline(page.width, node, &members, &limit(lead, page.width)))?;
        let prefix = self.beside(node, below, page.width);
        self.facts(page, &prefix, &members)?;
        if let Node::Threads(group) = node
            && let Some(text) = self.apart(group)
        {
            page.paragraph(&prefix, &prefix, Ink::Faint, &text)?;
        }
        if let Some(stack) = first.creation_stack() {
            let guess = matches!(first.creation, Creation::Seen { inferred: true, .. });
            let label = if guess {
                "probably created by  "
            } else {
                "created by  "
            };
            // On a narrow page the label has its own line.
            if page.width < prefix.width() + width(label) + 40 {
                page.line(&prefix.clone().with(Ink::Faint, label))?;
                return frames::write(page, &prefix, "  ", stack, &self.sources, false);
            }
            frames::write(page, &prefix, label, stack, &self.sources, false)?;
        }
        Ok(())
    }

    /// The difference between a group and an earlier group that the same line created. It exists
    /// only if nothing but C++ library code between that line and the thread's creation differs.
    fn apart(&self, group: usize) -> Option<String> {
        let groups = &self.forest.groups;
        let first = |group: &Group| self.model.thread(*group.members.first()?);
        let mut families = groups.iter().map(|parent| &parent.children);
        let family = families.find(|children| children.contains(&group))?;
        let mine = first(&groups[group])?;
        let earlier = family.iter().take_while(|sibling| **sibling != group);
        let mut alike = earlier.filter_map(|sibling| {
            let group = &groups[*sibling];
            let other = first(group).filter(|other| other.function == mine.function)?;
            let of = (mine.creation_stack()?, other.creation_stack()?);
            container_growth::differs_in_library_only(of.0, of.1).then_some((group, other, of))
        });
        let (group, other, (ours, theirs)) = alike.next()?;
        let title = wording::title(self.model, other, 40);
        let (them, their) = match group.members.len() {
            1 => (title, "its"),
            count => (format!("{count} × {title}"), "their"),
        };
        let reason = match (
            container_growth::growth(ours),
            container_growth::growth(theirs),
        ) {
            (Some(by), None) => format!("here a container grew (`{by}`)"),
            (None, Some(by)) => format!("{their} container grew (`{by}`)"),
            _ if container_growth::has_equal_functions(ours, theirs) => {
                "that line has several calls in the machine code".to_owned()
            }
            _ => "the C++ library took another path".to_owned(),
        };
        Some(format!(
            "created by the same line as {them} above, but listed apart because {reason}"
        ))
    }

    /// `3 × worker  "billing"  orders.c:33`
    fn headline(&self, page: usize, node: Node, members: &[&Thread], lead: &str) -> Line {
        let first = members[0];
        let mut line = Line::new().with(Ink::Faint, lead);
        if members.len() > 1 {
            line.push(Ink::Strong, format!("{} × ", members.len()));
        }
        let room = page.saturating_sub(line.width());
        if first.creation == Creation::Main {
            let name = match self.model.target.name.as_str() {
                "" => clean(&first.name),
                name => clean(name),
            };
            line.push(Ink::Strong, "main thread");
            if !name.is_empty() {
                line.push(Ink::Plain, format!(" of {name}"));
            }
            return line;
        }
        match (&first.function, node) {
            (Some(place), _) => line.push(Ink::Strong, frames::function(place, room)),
            // Their functions are not recorded.
            (None, Node::Created(_)) => line.push(Ink::Strong, "thread"),
            (None, _) => line.push(Ink::Strong, "thread of unknown function"),
        }
        let names = wording::names(members, self.known_name(node, first));
        if !names.is_empty() && line.width() + 2 + width(&names) <= page {
            line.push(Ink::Plain, "  ");
            line.push(Ink::Name, names);
        } else if !names.is_empty() {
            line.push(Ink::Plain, "  ");
            let room = page.saturating_sub(line.width());
            line.push(Ink::Name, names::middle(&names, room));
        }
        if let Some(place) = first.function.as_ref().filter(|place| place.line.is_some()) {
            let location = self.sources.location(place, page / 2);
            if line.width() + 2 + width(&location) <= page {
                line.push(Ink::Faint, format!("  {location}"));
            }
        }
        line
    }

    /// The name of the first thread in the same process, which the reader knows.
    fn known_name(&self, node: Node, thread: &Thread) -> &str {
        let Node::Created(_) = node else {
            return self.main_name;
        };
        let process = thread
            .creator()
            .and_then(|creator| self.model.process(creator));
        let first =
            process.and_then(|(_, process)| self.model.processes.threads.get(process.first_thread));
        first.map_or("", |first| &first.name)
    }

    fn facts(&self, page: &mut Page<'_>, prefix: &Line, members: &[&Thread]) -> io::Result<()> {
        let mut facts = vec![wording::tids(
            members.iter().map(|thread| thread.tid).collect(),
        )];
        facts.extend(wording::life(members));
        facts.push(wording::endings(self.model, members));
        if members[0].creation == Creation::Unseen {
            facts.push("its creation was not seen".to_owned());
        }
        list(page, prefix, facts)
    }
}

/// An empty line that continues the branch of an entry.
fn stem_above(page: &mut Page<'_>, lead: &str) -> io::Result<()> {
    if lead.is_empty() {
        return Ok(());
    }
    let stem = format!("{}│", limit(&lead[..lead.len() - "├─ ".len()], page.width));
    page.line(&Line::new().with(Ink::Faint, stem))
}

/// Writes facts with dots between them.
fn list(page: &mut Page<'_>, prefix: &Line, facts: Vec<String>) -> io::Result<()> {
    let room = page.width.saturating_sub(prefix.width());
    let mut line = String::new();
    for fact in facts {
        if !line.is_empty() && width(&line) + 3 + width(&fact) > room {
            page.paragraph(prefix, prefix, Ink::Faint, &std::mem::take(&mut line))?;
        }
        if !line.is_empty() {
            line.push_str(" · ");
        }
        line.push_str(&fact);
    }
    page.paragraph(prefix, prefix, Ink::Faint, &line)
}

/// Limits indentation to half of the page. Deeper entries keep their innermost branches.
fn limit(lead: &str, page: usize) -> String {
    let most = page / 2;
    if width(lead) <= most {
        return lead.to_owned();
    }
    format!("⋯ {}", super::line::tail(lead, most - 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::Stage;

    #[test]
    fn a_recording_without_length_has_no_duration() {
        let mut stage = Stage::new();
        let model = stage.model();
        let text = summary(&model, &Forest::of(&model));
        assert!(text.ends_with("no thread was created."), "{text}");
        stage.end(7);
        let model = stage.model();
        let text = summary(&model, &Forest::of(&model));
        assert!(text.contains("no thread was created in 7.00 ms;"), "{text}");
    }
}
