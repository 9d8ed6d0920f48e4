//! Views of a model: text for people, JSON for programs.
//!
//! Each view is one function that writes a finished [`Model`](crate::model::Model), or a file's
//! [`Table`](unspool_unwind::Table), to any writer. No view repeats another's computation, and none
//! knows the terminal: the caller chooses the [`Style`]. [`top`] draws a program that still runs.

mod activity;
pub mod agreement;
pub mod call_sums;
pub mod disassembly;
pub mod export;
pub mod graph;
pub mod html;
pub mod json;
pub mod table;
pub mod text;
pub mod top;

mod blocking_call;
mod call_waits;
mod container_growth;
mod diff_wording;
pub(crate) mod finding_text;
mod groups;
mod names;
mod object_name;
mod off_cpu;
mod same_identity;
#[cfg(test)]
mod snapshot_tests;
mod states;
mod wording;

/// The style of written text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Use ANSI colours. Text without colours says the same.
    pub color: bool,
    /// Maximum width of a line in columns. Less than 40 counts as 40.
    pub width: usize,
    /// Show also the rows that the view of waits leaves out otherwise.
    pub all_rows: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            color: false,
            width: 100,
            all_rows: false,
        }
    }
}
