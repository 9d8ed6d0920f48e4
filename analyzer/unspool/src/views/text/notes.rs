//! Notes in text: errors before everything else, the rest after it.

use std::io;

use super::line::{Ink, Line, Page};
use crate::model::{Model, Severity};

/// What changes how all the rest is to be read.
pub(in crate::views) fn first(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let mut any = false;
    for note in model
        .notes
        .iter()
        .filter(|note| note.severity == Severity::Error)
    {
        let lead = Line::new().with(Ink::Alarm, "! ");
        page.paragraph(
            &lead,
            &Line::new().with(Ink::Plain, "  "),
            Ink::Alarm,
            &sentence(&note.text),
        )?;
        any = true;
    }
    if any { page.blank() } else { Ok(()) }
}

/// What else is missing or worth knowing.
pub(in crate::views) fn last(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    for (severity, title) in [
        (Severity::Warning, "What is missing"),
        (Severity::Info, "Good to know"),
    ] {
        let mut notes = model
            .notes
            .iter()
            .filter(|note| note.severity == severity)
            .peekable();
        if notes.peek().is_some() {
            page.blank()?;
            page.line(&Line::new().with(Ink::Strong, title))?;
        }
        for note in notes {
            let lead = Line::new().with(Ink::Faint, "  • ");
            page.paragraph(
                &lead,
                &Line::new().with(Ink::Plain, "    "),
                Ink::Plain,
                &sentence(&note.text),
            )?;
        }
    }
    Ok(())
}

/// A capital letter at the beginning, unless that is a name, and a full stop.
fn sentence(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let plain = word.chars().all(|c| c.is_ascii_lowercase());
    let mut sentence = text.trim_end().to_owned();
    if plain && !sentence.is_empty() {
        sentence[..1].make_ascii_uppercase();
    }
    if sentence.ends_with(|c: char| c.is_alphanumeric() || c == ')') {
        sentence.push('.');
    }
    sentence
}
