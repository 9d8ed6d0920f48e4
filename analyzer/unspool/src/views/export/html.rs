//! The call graph as an HTML page.

use std::io::Write;

use super::exporter::{Choice, Error, Exporter, Options};
use crate::model::Model;
use crate::views::graph::Graph;
use crate::views::html::calls;

#[derive(Debug)]
pub(super) struct Html;

impl Exporter for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn about(&self) -> &'static str {
        "A page for searching a call graph: one file that needs no network"
    }

    fn choices(&self) -> &'static [Choice] {
        &[Choice::Graph]
    }

    fn graphs(&self) -> &'static [Graph] {
        &[Graph::Calls]
    }

    fn write(&self, model: &Model, options: &Options, out: &mut dyn Write) -> Result<(), Error> {
        Ok(calls::write(model, &options.cut, out)?)
    }
}
