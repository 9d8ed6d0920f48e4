//! Graphs as pictures, drawn by Graphviz's program `dot`.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use super::exporter::{Choice, Error, Exporter, Options};
use crate::model::Model;

#[derive(Debug)]
pub(super) struct Svg;

impl Exporter for Svg {
    fn name(&self) -> &'static str {
        "svg"
    }

    fn about(&self) -> &'static str {
        "A picture; needs Graphviz's program `dot`"
    }

    fn choices(&self) -> &'static [Choice] {
        &[Choice::Graph]
    }

    fn write(&self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
        let mut graph = Vec::new();
        options.graph.write(model, &options.cut, &mut graph)?;
        out.write_all(&draw(&graph)?)?;
        Ok(())
    }
}

/// The picture that Graphviz makes of a graph.
fn draw(graph: &[u8]) -> Result<Vec<u8>, Error> {
    let child = Command::new("dot")
        .arg("-Tsvg")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|error| {
        Error::Missing(match error.kind() {
            io::ErrorKind::NotFound => {
                "--format svg needs Graphviz's program dot, which was not found; \
                 install graphviz, or write the graph with --format dot and draw it elsewhere"
                    .to_owned()
            }
            _ => format!("cannot run Graphviz's program dot: {error}"),
        })
    })?;
    // It reads all before it writes, and its warnings are short: no pipe fills up meanwhile.
    let sent = child.stdin.take().map(|mut input| input.write_all(graph));
    let output = child
        .wait_with_output()
        .map_err(|error| Error::Missing(format!("Graphviz's program dot ended early: {error}")))?;
    if !output.status.success() || output.stdout.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        let text = format!("Graphviz could not draw the graph: {}", why.trim());
        return Err(Error::Missing(text));
    }
    if let Some(Err(error)) = sent {
        let text = format!("Graphviz did not read the whole graph: {error}");
        return Err(Error::Missing(text));
    }
    Ok(output.stdout)
}
