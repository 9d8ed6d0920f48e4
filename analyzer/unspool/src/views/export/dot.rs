//! Graphs as Graphviz DOT.

use std::io::Write;

use super::exporter::{Choice, Error, Exporter, Options};
use crate::model::Model;

#[derive(Debug)]
pub(super) struct Dot;

impl Exporter for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn about(&self) -> &'static str {
        "Graphviz DOT"
    }

    fn choices(&self) -> &'static [Choice] {
        &[Choice::Graph]
    }

    fn write(&self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
        Ok(options.graph.write(model, &options.cut, out)?)
    }
}
