//! The comparison of recordings as a page.
//!
//! The page's data is the JSON of `diff --format json`, and sentences that the text view has, too.

use std::io::{self, Write};

use serde::Serialize;

use super::{encode, page};
use crate::model::diff::Diff;
use crate::views::{diff_wording, json};

#[derive(Serialize)]
struct Data<D> {
    diff: D,
    headline: String,
    left_out: Option<String>,
    doubts: Vec<&'static str>,
    noise: String,
    compared_as_one: &'static str,
}

/// Writes the page.
///
/// # Errors
/// Returns an error if `out` cannot be written.
pub fn write(diff: &Diff, out: &mut dyn Write) -> io::Result<()> {
    let doubts = diff.doubts.iter();
    let data = Data {
        diff: json::diff::document(diff),
        headline: diff_wording::headline(diff),
        left_out: diff_wording::left_out(diff),
        doubts: doubts.map(|doubt| diff_wording::doubt(*doubt)).collect(),
        noise: diff_wording::noise(diff),
        compared_as_one: diff_wording::COMPARED_AS_ONE,
    };
    let data = encode::deflate(&serde_json::to_vec(&data)?)?;
    page::write(&page::DIFF, &diff.programs.1, &data, out)
}
