//! Pictures as Graphviz DOT: one file a graph, and here what they share.
//!
//! Everything from the target is cleaned and escaped; labels are cut, JSON has everything.

pub mod sync;
pub mod threads;
pub mod waits;

use std::io::{self, Write};

use super::line::clean;
use super::names::shorten;

/// Longer labels are cut.
const LABEL: usize = 44;

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

/// A DOT string: only quotes and backslashes are special in it, and `\n` is a line break.
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

/// A name that fits into a label.
fn label(name: &str) -> String {
    shorten(&clean(name), LABEL)
}
