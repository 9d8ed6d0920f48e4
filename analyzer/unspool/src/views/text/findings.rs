//! Findings: each as a sentence, with its certainty and the stacks that show it.

use std::io::{self, Write};

use super::frames;
pub(in crate::views) use super::frames::sources;
use super::line::{Ink, Line, Page};
use super::{notes, thread_state, tree};
use crate::model::{Finding, FindingKind, Model, Topic};
use crate::views::{Style, finding_text, wording};

/// Topics of the notes that this view shows.
const TOPICS: &[Topic] = &[Topic::Stacks, Topic::Calls, Topic::Times];

/// Writes all findings as text.
pub fn write(model: &Model, out: &mut dyn Write, style: &Style) -> io::Result<()> {
    let mut page = Page::new(out, style);
    let page = &mut page;
    notes::first(page, model)?;
    let about = tree::about(model);
    let summary = match model.findings.len() {
        0 if model.recording.too_little_seen() => {
            format!("{about}no findings, but too little was recorded to judge.")
        }
        0 if model.sync.recorded => format!("{about}no findings."),
        0 => format!(
            "{about}no findings. Synchronization was not recorded; use `unspool record --sync`."
        ),
        count => {
            let proved = model.findings.iter().filter(|f| f.proved).count();
            let proved = match proved {
                0 if count == 1 => "inferred".to_owned(),
                0 => "none of them proved".to_owned(),
                _ if proved == count && count > 1 => "all of them proved".to_owned(),
                _ if proved == count => "proved".to_owned(),
                _ => format!("{proved} of them proved"),
            };
            format!("{about}{}, {proved}.", wording::count(count, "finding"))
        }
    };
    page.paragraph(&Line::new(), &Line::new(), Ink::Plain, &summary)?;
    for (number, finding) in model.findings.iter().enumerate() {
        page.blank()?;
        one(page, model, number + 1, finding)?;
    }
    notes::last(page, model, TOPICS)
}

/// Writes one finding with its evidence.
pub(in crate::views) fn one(
    page: &mut Page<'_>,
    model: &Model,
    number: usize,
    finding: &Finding,
) -> io::Result<()> {
    let sources = sources(model);
    let mut line = Line::new().with(Ink::Alarm, format!("{number}. {}", finding.kind));
    line.push(
        Ink::Faint,
        if finding.proved {
            "  proved"
        } else {
            "  inferred"
        },
    );
    page.line(&line)?;
    let lead = Line::new().with(Ink::Plain, "   ");
    page.paragraph(
        &lead,
        &lead,
        Ink::Plain,
        &finding_text::text(model, finding),
    )?;
    for evidence in &finding.evidence {
        let who = match model.thread(evidence.thread) {
            Some(thread) => match (wording::one(model, thread, 40), thread.tid) {
                (title, Some(tid)) if title != "main" => format!("{title} {tid}"),
                (title, _) => title,
            },
            None => model.thread_name(evidence.thread),
        };
        page.blank()?;
        page.paragraph(
            &lead,
            &lead,
            Ink::Strong,
            &format!("{who} {}", finding_text::evidence(model, evidence)),
        )?;
        if let Some(stack) = &evidence.stack {
            frames::write(page, &lead, "at  ", stack, &sources, false)?;
        }
    }
    // For threads that can never go on, show their creation, which identifies them among many
    // equals.
    if matches!(
        finding.kind,
        FindingKind::Deadlock | FindingKind::SelfDeadlock | FindingKind::LostWakeup
    ) {
        thread_state::creations(page, model, finding, &lead, "at  ", &sources)?;
    }
    Ok(())
}
