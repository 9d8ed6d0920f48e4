//! A graph of thread creation: a node for each identity with its number of threads, and edges
//! labelled with the creation path.
//!
//! Three hundred threads of five kinds are five nodes. If there are hundreds of kinds, kinds with
//! equal function and creator become one node, too.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::model::{Backtrace, Creation, Model, Thread, ThreadIndex, start_code};
use crate::views::groups::Forest;
use crate::views::text::findings;
use crate::views::text::frames::{self, Sources};
use crate::views::{text::tree, wording};

use super::{begin, label, lines, quoted};

/// Maximum number of identities with their own nodes. More are merged by function.
const MAX_NODES: usize = 60;
/// Maximum number of frames of a creation path on its edge. The middle is left out.
const MAX_FRAMES: usize = 5;

/// Writes the thread hierarchy.
pub fn write(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let sources = findings::sources(model);
    let nodes = nodes(model, &sources);
    let title = format!(
        "{}{}",
        tree::about(model),
        wording::count(model.threads.len(), "thread")
    );
    begin(out, &title)?;
    for (at, node) in nodes.iter().enumerate() {
        let color = match node.first(model).map(|thread| &thread.creation) {
            Some(Creation::Main) => "lightgoldenrod1",
            Some(Creation::Seen { .. } | Creation::Recorded { .. }) => "white",
            _ => "gray92",
        };
        let several = if node.members.len() > 1 {
            ", peripheries=2"
        } else {
            ""
        };
        writeln!(
            out,
            "  n{at} [label={}, fillcolor={color}{several}];",
            quoted(&node.text(model, &sources))
        )?;
    }
    for (at, node) in nodes.iter().enumerate() {
        let Some(parent) = node.parent else { continue };
        let path = match (
            node.paths,
            node.first(model).and_then(Thread::creation_stack),
        ) {
            (1, Some(stack)) => path(stack, &sources),
            (paths, _) => format!("{paths} paths"),
        };
        writeln!(out, "  n{parent} -> n{at} [label={}];", quoted(&path))?;
    }
    writeln!(out, "}}")
}

/// Threads that share a node.
struct Node {
    members: Vec<ThreadIndex>,
    parent: Option<usize>,
    /// Number of paths on which they were created.
    paths: usize,
}

impl Node {
    fn first<'a>(&self, model: &'a Model) -> Option<&'a Thread> {
        self.members.first().and_then(|index| model.thread(*index))
    }

    fn text(&self, model: &Model, sources: &Sources) -> String {
        let threads: Vec<&Thread> = self
            .members
            .iter()
            .filter_map(|index| model.thread(*index))
            .collect();
        let Some(first) = threads.first() else {
            return String::new();
        };
        let mut text = match threads.len() {
            1 => String::new(),
            count => format!("{count} × "),
        };
        text.push_str(&match &first.creation {
            Creation::Main => format!("main thread of {}", model.target.name),
            _ => label(&wording::title(model, first, usize::MAX)),
        });
        let main = model.main().and_then(|main| model.thread(main));
        let names = wording::names(&threads, main.map_or("", |main| &main.name));
        if !names.is_empty() {
            text.push('\n');
            text.push_str(&lines(&names));
        }
        if let Some(place) = first.function.as_ref().filter(|place| place.line.is_some()) {
            text.push('\n');
            text.push_str(&sources.location(place, super::MAX_LABEL_WIDTH));
        }
        text
    }
}

fn nodes(model: &Model, sources: &Sources) -> Vec<Node> {
    let forest = Forest::of(model);
    let mut parents = vec![None; forest.groups.len()];
    for (at, group) in forest.groups.iter().enumerate() {
        for child in &group.children {
            parents[*child] = Some(at);
        }
    }
    let merge = forest.groups.len() > MAX_NODES;
    let mut nodes: Vec<Node> = Vec::new();
    // Creators come before created threads, so a parent already has its node.
    let mut node_of: Vec<usize> = Vec::new();
    // An unrolled loop creates threads at several addresses that look like one place.
    let mut looking_alike: HashMap<(Option<usize>, String, String), usize> = HashMap::new();
    for (at, group) in forest.groups.iter().enumerate() {
        let parent = parents[at].and_then(|parent| node_of.get(parent).copied());
        let first = model.thread(group.members[0]);
        let title = first.map_or(String::new(), |thread| {
            wording::title(model, thread, usize::MAX)
        });
        let way = match first.and_then(Thread::creation_stack) {
            Some(stack) if !merge => path(stack, sources),
            _ => String::new(),
        };
        let looks = (parent, title, way);
        let node = match looking_alike.get(&looks) {
            Some(node) => *node,
            None => {
                looking_alike.insert(looks, nodes.len());
                nodes.push(Node {
                    members: Vec::new(),
                    parent,
                    paths: 0,
                });
                nodes.len() - 1
            }
        };
        nodes[node].members.extend(&group.members);
        nodes[node].paths += usize::from(merge || nodes[node].paths == 0);
        node_of.push(node);
    }
    nodes
}

/// A creation path, from the call of the creation function outwards.
fn path(stack: &Backtrace, sources: &Sources) -> String {
    let shown = stack.frames.len() - start_code(stack);
    let mut lines: Vec<String> = stack.frames[..shown]
        .iter()
        .map(|frame| {
            let function = label(&frames::function(&frame.place, super::MAX_LABEL_WIDTH));
            match sources.location(&frame.place, super::MAX_LABEL_WIDTH) {
                place if place.is_empty() => function,
                place => format!("{function}  {place}"),
            }
        })
        .collect();
    if lines.len() > MAX_FRAMES {
        let left = lines.len() - MAX_FRAMES + 1;
        lines.splice(
            MAX_FRAMES - 2..MAX_FRAMES - 2 + left,
            [format!("… {left} more")],
        );
    }
    if stack.truncated.is_some() {
        lines.push("… callers are not known".to_owned());
    }
    lines.join("\n")
}
