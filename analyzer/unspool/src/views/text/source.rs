//! Part of a source file, with the events on its lines.

use std::io::{self, Write};

use super::line::{Ink, Line, Page, clean, width};
use super::notes;
use crate::model::sync::UseIndex;
use crate::model::{Happening, Listing, Model, ThreadIndex};
use crate::views::{Style, object_name, wording};

/// Number of lines shown before and after the selected line.
const CONTEXT_LINES: u32 = 12;
/// Number of lines shown before and after lines with events, if no line is selected.
const EVENT_CONTEXT_LINES: u32 = 2;

/// The part of a file to show.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a> {
    /// The events on its lines.
    pub listing: &'a Listing,
    /// The file's text, if it could be read.
    pub text: Option<&'a str>,
    /// The selected line.
    pub line: Option<u32>,
    /// A warning about the text.
    pub doubt: Option<&'a str>,
}

/// Writes an excerpt as text.
pub fn write(
    model: &Model,
    excerpt: &Excerpt<'_>,
    out: &mut dyn Write,
    style: &Style,
) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    page.line(&Line::new().with(Ink::Strong, clean(&excerpt.listing.file)))?;
    if let Some(doubt) = excerpt.doubt {
        page.paragraph(&Line::new(), &Line::new(), Ink::Alarm, doubt)?;
    }
    let lines: Option<Vec<&str>> = excerpt.text.map(|text| text.lines().collect());
    let shown = shown(excerpt, lines.as_ref().map(Vec::len));
    if shown.is_empty() {
        return page.line(&Line::new().with(
            Ink::Plain,
            "Nothing was recorded on the lines of this file.",
        ));
    }
    let digits = shown.last().map_or(1, |last| last.to_string().len());
    let mut before = None;
    for number in shown {
        if before.is_none_or(|before| before + 1 != number) {
            page.blank()?;
        }
        before = Some(number);
        let happenings = excerpt.listing.lines.get(&number);
        let uses = excerpt.listing.uses.get(&number);
        let ink = match happenings.is_some() || uses.is_some() {
            true => Ink::Strong,
            false => Ink::Faint,
        };
        let mark = if excerpt.line == Some(number) {
            ">"
        } else {
            " "
        };
        let mut line = Line::new().with(ink, format!("{mark} {number:digits$}"));
        let text = lines
            .as_ref()
            .and_then(|lines| lines.get(number as usize - 1));
        if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
            line.push(Ink::Plain, "  ");
            line.push(Ink::Plain, clean(&text.replace('\t', "    ")));
        }
        page.line(&line)?;
        let indent = text.map_or(0, |text| {
            let text = text.replace('\t', "    ");
            width(&text) - width(text.trim_start())
        });
        // Deep indentation would leave no room for the text.
        let lead = " ".repeat(digits + 4 + indent.min(page.width / 3));
        let happened = happenings.into_iter().flatten();
        let sentences = happened.map(|(what, threads)| sentence(model, *what, threads));
        for text in sentences.chain(self::uses(model, uses)) {
            page.paragraph(
                &Line::new().with(Ink::Faint, format!("{lead}↑ ")),
                &Line::new().with(Ink::Faint, format!("{lead}  ")),
                Ink::Name,
                &text,
            )?;
        }
    }
    Ok(())
}

/// The numbers of the lines to show.
fn shown(excerpt: &Excerpt<'_>, length: Option<usize>) -> Vec<u32> {
    let events = excerpt.listing.numbers().filter(|line| *line > 0);
    let Some(length) = length else {
        return match excerpt.line {
            Some(line) => events
                .filter(|event| event.abs_diff(line) <= CONTEXT_LINES)
                .collect(),
            None => events.collect(),
        };
    };
    let last = u32::try_from(length).unwrap_or(u32::MAX);
    let around =
        |line: u32, by: u32| line.saturating_sub(by).max(1)..=line.saturating_add(by).min(last);
    match excerpt.line {
        Some(line) => around(line, CONTEXT_LINES).collect(),
        None => {
            let mut lines: Vec<u32> = events
                .flat_map(|line| around(line, EVENT_CONTEXT_LINES))
                .collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        }
    }
}

/// `creates 43 threads: 40 × connection, 3 × worker`
fn sentence(model: &Model, what: Happening, threads: &[ThreadIndex]) -> String {
    let count = wording::count(threads.len(), "thread");
    match what {
        Happening::Begins if threads.len() == 1 => "1 thread begins here".to_owned(),
        Happening::Begins => format!("{count} begin here"),
        Happening::Creates => format!("creates {count}: {}", kinds(model, threads)),
        Happening::LeadsToCreation => {
            format!(
                "leads to the creation of {count}: {}",
                kinds(model, threads)
            )
        }
    }
}

/// `lock mutex lock 12 times, waited 3.2 ms for it`
fn uses(model: &Model, uses: Option<&Vec<UseIndex>>) -> Vec<String> {
    let sync = &model.sync;
    let mut sums: Vec<(String, u64, u64)> = Vec::new();
    for used in uses.into_iter().flatten() {
        let used = sync.used(*used);
        let object = object_name::shared(sync, used.object, 60);
        let what = format!("{} {object}", used.operation.as_str());
        match sums.iter_mut().find(|(known, ..)| *known == what) {
            Some((_, calls, waited)) => {
                *calls += used.calls;
                *waited += used.waits.total_ns;
            }
            None => sums.push((what, used.calls, used.waits.total_ns)),
        }
    }
    const MAX_NAMES: usize = 6;
    let left = sums.len().saturating_sub(MAX_NAMES);
    let mut texts: Vec<String> = sums
        .into_iter()
        .take(MAX_NAMES)
        .map(|(what, calls, waited)| match waited {
            0 => format!("{what}: {}", wording::times(calls)),
            _ => format!(
                "{what}: {}, waited {}",
                wording::times(calls),
                wording::duration(waited)
            ),
        })
        .collect();
    if left > 0 {
        texts.push(format!("and {left} more objects"));
    }
    texts
}

/// Thread functions and the numbers of their threads, largest first.
fn kinds(model: &Model, threads: &[ThreadIndex]) -> String {
    const MAX_NAMES: usize = 4;
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for thread in threads.iter().filter_map(|index| model.any_thread(*index)) {
        let title = wording::title(model, thread, 60);
        match kinds.iter_mut().find(|(kind, _)| *kind == title) {
            Some((_, count)) => *count += 1,
            None => kinds.push((title, 1)),
        }
    }
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let others: usize = kinds.iter().skip(MAX_NAMES).map(|(_, count)| count).sum();
    let mut parts: Vec<String> = kinds
        .iter()
        .take(MAX_NAMES)
        .map(|(title, count)| match count {
            1 => title.clone(),
            count => format!("{count} × {title}"),
        })
        .collect();
    if others > 0 {
        parts.push(format!("{others} more"));
    }
    parts.join(", ")
}
