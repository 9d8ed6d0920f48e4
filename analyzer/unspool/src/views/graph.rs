//! Graphs as Graphviz DOT: one file per graph, and their shared parts here.
//!
//! All text from the target is cleaned and escaped. Labels are cut; JSON has everything.

pub mod calls;
pub mod sync;
pub mod threads;
pub mod waits;

use std::io::{self, Write};

use clap::ValueEnum;

use super::call_sums::Cut;
use super::names::shorten;
use super::text::line::{clean, width};
use crate::model::Model;

/// A graph of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Graph {
    /// Which thread created which, with the stack of each creation
    #[default]
    Threads,
    /// Threads and the objects they use; wider lines mean longer waits
    Sync,
    /// Which threads blocked which others, and deadlocks
    Waits,
    /// Which functions called which (`record --calls`), with counts and times
    Calls,
}

impl Graph {
    /// Writes it as DOT. `cut` is for calls.
    pub fn write(self, model: &Model, cut: &Cut, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Graph::Threads => threads::write(model, out),
            Graph::Sync => sync::write(model, out),
            Graph::Waits => waits::write(model, out),
            Graph::Calls => calls::write(model, cut, out),
        }
    }
}

/// Maximum width of a label. Longer names are cut, longer texts are broken into lines.
const MAX_LABEL_WIDTH: usize = 44;
/// Maximum number of lines of one text in a label.
const MAX_LINES: usize = 3;

/// Begins a graph that reads from left to right.
fn begin(out: &mut dyn Write, title: &str) -> io::Result<()> {
    writeln!(out, "digraph unspool {{")?;
    writeln!(
        out,
        "  rankdir=LR; nodesep=0.25; ranksep=0.6; fontname=\"Helvetica\";"
    )?;
    writeln!(out, "  label={}; labelloc=t; labeljust=l;", quoted(title))?;
    writeln!(
        out,
        "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"Helvetica\", fontsize=11];"
    )?;
    writeln!(
        out,
        "  edge [fontname=\"Helvetica\", fontsize=9, color=gray40, fontcolor=gray25, arrowsize=0.7];"
    )
}

/// A DOT string. Only quotes and backslashes are special in it, and `\n` is a line break.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push_str("\\n");
        }
        out.push_str(&clean(line).replace('\\', "\\\\").replace('"', "\\\""));
    }
    out.push('"');
    out
}

/// Shortens a name to the width of a label.
fn label(name: &str) -> String {
    shorten(&clean(name), MAX_LABEL_WIDTH)
}

/// Breaks a text into lines that fit into a label, and cuts it between two words after some lines.
fn lines(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in clean(text).split_whitespace() {
        let word = shorten(word, MAX_LABEL_WIDTH);
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            *line = word;
        } else if width(line) + 1 + width(&word) <= MAX_LABEL_WIDTH {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(word);
        }
    }
    if lines.len() > MAX_LINES {
        lines.truncate(MAX_LINES);
        let last = lines.iter_mut().next_back();
        last.into_iter().for_each(|last| last.push_str(" …"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn texts_are_broken_and_cut_between_words() {
        assert_eq!(lines("mutex journal"), "mutex journal");
        assert_eq!(
            lines("condition variable first used in rust::look (rust.rs:18)"),
            "condition variable first used in rust::look\n(rust.rs:18)"
        );
        let names = ["one-thread-of-many"; 12].join(", ");
        let three = lines(&names);
        assert_eq!(three.lines().count(), 3);
        assert!(three.ends_with("one-thread-of-many, …"), "{three}");
    }
}
