//! The source lines or the instructions of a function, with the CPU samples on each.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{percent, seconds};
use crate::model::disassembly::Disassembly;
use crate::model::profile::{Hits, Profile};
use crate::views::Style;
use crate::views::text::line::{Ink, Line, Page, clean};

/// Number of lines shown before the first and after the last line with samples.
const CONTEXT_LINES: u32 = 3;

/// Writes the lines of a file from the first to the last one with samples. `text` is the file's
/// text, if it could be read.
pub fn source(
    profile: &Profile,
    file: &str,
    lines: &BTreeMap<u32, Hits>,
    text: Option<&str>,
    doubt: Option<&str>,
    out: &mut dyn Write,
    style: &Style,
) -> io::Result<()> {
    let page = &mut Page::new(out, style);
    page.line(&Line::new().with(Ink::Strong, clean(file)))?;
    if let Some(doubt) = doubt {
        page.paragraph(&Line::new(), &Line::new(), Ink::Alarm, doubt)?;
    }
    let head = format!("{:>9} {:>6} {:>9} {:>6}", "flat", "flat%", "cum", "cum%");
    page.line(&Line::new().with(Ink::Faint, head))?;
    let texts: Vec<&str> = text.unwrap_or_default().lines().collect();
    let (Some(first), Some(last)) = (lines.keys().next(), lines.keys().last()) else {
        return Ok(());
    };
    // Debug information may name lines that the file does not have.
    let known = u32::try_from(texts.len()).unwrap_or(u32::MAX);
    let end = last.saturating_add(CONTEXT_LINES).min(known);
    let unknown = lines.keys().copied().filter(|number| *number > end);
    let start = first.saturating_sub(CONTEXT_LINES).max(1);
    for number in (start..=end).chain(unknown) {
        let source = texts.get(number as usize - 1);
        let hits = lines.get(&number);
        if source.is_none() && hits.is_none() {
            continue;
        }
        let mut line = columns(profile, hits);
        line.push(Ink::Faint, format!("{number:>6}  "));
        let source = source.map_or(String::new(), |text| clean(&text.replace('\t', "    ")));
        let ink = if hits.is_some() {
            Ink::Plain
        } else {
            Ink::Faint
        };
        line.push(ink, source);
        page.line(&line)?;
    }
    Ok(())
}

/// Writes the instructions of a function.
pub fn disassembly(
    profile: &Profile,
    name: &str,
    code: &Disassembly,
    addresses: &BTreeMap<u64, Hits>,
    out: &mut dyn Write,
    style: &Style,
) -> io::Result<()> {
    let page = &mut Page::new(out, style);
    page.line(&Line::new().with(Ink::Strong, clean(name)))?;
    let head = format!(
        "{:>9} {:>6} {:>9} {:>6}  address  instruction",
        "flat", "flat%", "cum", "cum%"
    );
    page.line(&Line::new().with(Ink::Faint, head))?;
    for instruction in &code.lines {
        let end = instruction.svma + instruction.bytes.len().max(1) as u64;
        let mut sum = Hits::default();
        for hits in addresses.range(instruction.svma..end).map(|(_, hits)| hits) {
            sum.flat += hits.flat;
            sum.cum += hits.cum;
        }
        let mut line = columns(profile, Some(&sum).filter(|sum| sum.cum > 0));
        line.push(Ink::Faint, format!("{:>9x}  ", instruction.svma));
        let ink = if sum.cum > 0 { Ink::Plain } else { Ink::Faint };
        line.push(ink, clean(&instruction.text));
        page.line(&line)?;
    }
    Ok(())
}

/// The times of a line, or blanks.
fn columns(profile: &Profile, hits: Option<&Hits>) -> Line {
    let total = profile.samples.len() as u64;
    let time = |count: u64| match count {
        0 => (String::new(), String::new()),
        count => (seconds(profile.time_ns(count)), percent(count, total)),
    };
    let (flat, flat_share) = time(hits.map_or(0, |hits| hits.flat));
    let (cum, cum_share) = time(hits.map_or(0, |hits| hits.cum));
    Line::new().with(
        Ink::Strong,
        format!("{flat:>9} {flat_share:>6} {cum:>9} {cum_share:>6} "),
    )
}
