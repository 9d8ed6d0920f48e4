//! Notes in text: errors come first, notes about the shown data come last.

use std::io;

use super::line::{Ink, Line, Page};
use crate::model::{Model, Note, Severity, Topic};
use crate::views::Style;

const SECTIONS: [(Severity, &str); 2] = [
    (Severity::Warning, "What is missing"),
    (Severity::Info, "Good to know"),
];

/// Writes the errors, which affect the meaning of the whole output.
pub(super) fn first(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    let mut any = false;
    for note in with(model, Severity::Error) {
        let lead = Line::new().with(Ink::Alarm, "! ");
        let rest = Line::new().with(Ink::Plain, "  ");
        page.paragraph(&lead, &rest, Ink::Alarm, &sentence(&note.text))?;
        any = true;
    }
    if any { page.blank() } else { Ok(()) }
}

/// Writes the other notes about `topics` in short form, and the command that shows all.
pub(super) fn last(page: &mut Page<'_>, model: &Model, topics: &[Topic]) -> io::Result<()> {
    let is_shown = |note: &&Note| note.topic == Topic::Recording || topics.contains(&note.topic);
    for (severity, title) in SECTIONS {
        let notes = with(model, severity).filter(is_shown);
        section(page, title, notes.map(|note| note.text.clone()))?;
    }
    let has_more = |note: &&Note| !note.details.is_empty();
    let others = model.notes.iter();
    let hidden = others.filter(|note| note.severity != Severity::Error && !is_shown(note));
    let (hidden, detailed) = (hidden.count(), model.notes.iter().filter(has_more).count());
    let file = &model.recording.file;
    let hint = match (hidden, detailed) {
        (0, 0) => return Ok(()),
        (0, _) => format!("`unspool report --notes{file}` says more about these notes."),
        (1, _) => format!("1 more note: `unspool report --notes{file}`"),
        (more, _) => format!("{more} more notes: `unspool report --notes{file}`"),
    };
    page.blank()?;
    page.line(&Line::new().with(Ink::Faint, &hint))
}

/// Writes all other notes with their details.
pub(super) fn all_but_errors(page: &mut Page<'_>, model: &Model) -> io::Result<()> {
    for (severity, title) in SECTIONS {
        section(page, title, with(model, severity).map(Note::long))?;
    }
    Ok(())
}

/// Writes all notes of a recording, for `report --notes`.
///
/// # Errors
/// Returns an error if `out` cannot be written.
pub fn write(model: &Model, out: &mut dyn io::Write, style: &Style) -> io::Result<()> {
    let page = &mut Page::new(out, style);
    if model.notes.is_empty() {
        return page.line(&Line::new().with(Ink::Plain, "There are no notes on this recording."));
    }
    for note in with(model, Severity::Error) {
        let lead = Line::new().with(Ink::Alarm, "! ");
        let rest = Line::new().with(Ink::Plain, "  ");
        page.paragraph(&lead, &rest, Ink::Alarm, &sentence(&note.long()))?;
    }
    all_but_errors(page, model)
}

fn with(model: &Model, severity: Severity) -> impl Iterator<Item = &Note> {
    let notes = model.notes.iter();
    notes.filter(move |note| note.severity == severity)
}

fn section(
    page: &mut Page<'_>,
    title: &str,
    texts: impl Iterator<Item = String>,
) -> io::Result<()> {
    for (index, text) in texts.enumerate() {
        if index == 0 {
            page.blank()?;
            page.line(&Line::new().with(Ink::Strong, title))?;
        }
        let lead = Line::new().with(Ink::Faint, "  • ");
        let rest = Line::new().with(Ink::Plain, "    ");
        page.paragraph(&lead, &rest, Ink::Plain, &sentence(&text))?;
    }
    Ok(())
}

/// Capitalizes the first word unless it is a name, and adds a full stop.
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
