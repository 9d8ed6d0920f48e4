//! Views of a model: text for people, JSON for programs.
//!
//! Each view is one function over a finished [`Model`](crate::model::Model) (or a file's
//! [`Table`](unspool_unwind::Table)) and any writer; none
//! computes what another would have to compute again, and none knows the terminal: the caller
//! decides on [`Style`].

pub mod agreement;
pub mod disassembly;
pub mod graph;
pub mod html;
pub mod json;
pub mod table;
pub mod text;

mod container_growth;
mod finding_text;
mod groups;
mod names;
mod same_identity;
#[cfg(test)]
mod snapshot_tests;
mod wording;

/// How text is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// With ANSI colours. Text is as readable without.
    pub color: bool,
    /// Columns; no line is longer. Less than 40 counts as 40.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            color: false,
            width: 100,
        }
    }
}
