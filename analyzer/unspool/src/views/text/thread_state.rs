//! Sentences about thread states: a thread's wait, the chain of holders behind it, and the findings
//! of an inspection with their stacks.

use std::io;

use super::frames::{self, Sources};
use super::line::{Ink, Line, Page, clean};
use crate::model::{Creation, Finding, FindingKind, Model, ThreadIndex, Wait};
use crate::primitives::Kind;
use crate::views::activity::doing;
use crate::views::{finding_text, wording};

/// Maximum number of stacks shown per finding. JSON has all.
const MAX_STACKS: usize = 6;
/// Maximum number of waits in a chain.
const LONGEST_CHAIN: usize = 4;

/// Writes all findings, the most serious first.
pub(in crate::views) fn findings(
    page: &mut Page<'_>,
    model: &Model,
    sources: &Sources,
) -> io::Result<()> {
    for finding in &model.findings {
        page.blank()?;
        write(page, model, finding, sources)?;
    }
    Ok(())
}

fn write(
    page: &mut Page<'_>,
    model: &Model,
    finding: &Finding,
    sources: &Sources,
) -> io::Result<()> {
    let sure = if finding.proved { "proved" } else { "inferred" };
    let ink = if finding.proved {
        Ink::Alarm
    } else {
        Ink::Strong
    };
    page.line(&Line::new().with(ink, format!("{} ({sure})", title(finding))))?;
    let indent = Line::new().with(Ink::Plain, "  ");
    page.paragraph(
        &indent,
        &indent,
        Ink::Plain,
        &finding_text::text(model, finding),
    )?;
    for evidence in finding.evidence.iter().take(MAX_STACKS) {
        page.blank()?;
        let mut line = indent.clone();
        line.push(Ink::Strong, clean(&model.thread_name(evidence.thread)));
        line.push(
            Ink::Plain,
            format!(" {}", clean(&finding_text::evidence(model, evidence))),
        );
        page.line(&line)?;
        if let Some(stack) = &evidence.stack {
            frames::write(page, &indent, "  ", stack, sources, false)?;
        }
        if let Some(origin) = origin(model, evidence.thread) {
            page.paragraph(&indent, &indent, Ink::Faint, &clean(&origin))?;
        }
    }
    let more = finding.evidence.len().saturating_sub(MAX_STACKS);
    if more > 0 {
        page.line(&indent.clone().with(
            Ink::Faint,
            format!("┊ {more} more threads, all of them in JSON"),
        ))?;
    }
    creations(page, model, finding, &indent, "  ", sources)
}

/// Writes the creations of a finding's threads, as far as they were recorded.
pub(in crate::views) fn creations(
    page: &mut Page<'_>,
    model: &Model,
    finding: &Finding,
    indent: &Line,
    lead: &str,
    sources: &Sources,
) -> io::Result<()> {
    for index in finding.threads.iter().take(MAX_STACKS) {
        let Some(thread) = model.any_thread(*index) else {
            continue;
        };
        let (creator, stack) = match &thread.creation {
            Creation::Seen { creator, stack, .. } => (model.thread_name(*creator), stack),
            Creation::Recorded { by, stack } => (by.to_string(), stack),
            _ => continue,
        };
        page.blank()?;
        let text = format!("{} was created by {creator}", model.thread_name(*index));
        page.paragraph(indent, indent, Ink::Strong, &clean(&text))?;
        frames::write(page, indent, lead, stack, sources, false)?;
    }
    Ok(())
}

/// `it runs work, its identity is 1f2e3d4c`
fn origin(model: &Model, index: ThreadIndex) -> Option<String> {
    let thread = model.any_thread(index)?;
    if thread.creation == Creation::Main {
        return None;
    }
    let function = thread.function.as_ref();
    let function = match function.and_then(|place| place.function.as_ref()) {
        Some(function) => format!("it runs {function}, "),
        None => String::new(),
    };
    Some(format!("{function}its identity is {}", thread.key))
}

/// `Deadlock`
pub(in crate::views) fn title(finding: &Finding) -> &'static str {
    match finding.kind {
        FindingKind::Deadlock => "Deadlock",
        FindingKind::SelfDeadlock => "Deadlock of one thread",
        FindingKind::AbandonedLock => "Lock without an owner",
        FindingKind::LostWakeup if finding.proved => "Wake-up that cannot come",
        FindingKind::LostWakeup => "Wake-up that may not come",
        FindingKind::LockOrder => "Lock order",
        FindingKind::LongHold => "Long hold",
        FindingKind::Convoy => "Convoy",
        FindingKind::Contention => "Contention",
        FindingKind::Bottleneck => "Bottleneck",
        FindingKind::UnlockedSignal => "Signal without the mutex",
        FindingKind::WrongUnlock => "Unlock by another thread",
        FindingKind::DestroyedHeld => "Destroyed while held",
        FindingKind::Unjoined => "Never joined",
        FindingKind::Churn => "Thread churn",
    }
}

/// The state of a thread, such as `waiting for mutex a, held by thread 7 (writer), which is in the
/// system call read`. `None` if it is unknown.
pub(in crate::views) fn state(model: &Model, thread: ThreadIndex) -> Option<String> {
    let mut text = doing(model, thread)?;
    let mut at = thread;
    let mut passed = vec![thread];
    while let Some(wait) = model.inspection.state(at).wait() {
        let [holder] = wait.holders[..] else {
            if let Some(why) = unknown(wait) {
                text.push_str(&why);
            }
            break;
        };
        let joins = wait.object.kind == Kind::Join;
        let Some(next) = holder.thread else {
            if !joins {
                let id = holder.tid;
                text.push_str(&match (holder.is_gone, wait.shared) {
                    (true, _) => {
                        format!(", held by a thread that has ended (it stored the id {id})")
                    }
                    (_, true) => {
                        format!(", held by thread {id} of another process that shares it")
                    }
                    _ => format!(", held by thread {id}, which this process does not have"),
                });
            }
            break;
        };
        if !joins {
            let who = if next == thread {
                "this thread".to_owned()
            } else {
                model.thread_name(next)
            };
            text.push_str(&format!(", held by {who}"));
        }
        if passed.contains(&next) {
            break;
        }
        if passed.len() == LONGEST_CHAIN {
            text.push_str(", and so on");
            break;
        }
        passed.push(next);
        match doing(model, next) {
            Some(doing) => text.push_str(&format!(", which is {doing}")),
            None => break,
        }
        at = next;
    }
    Some(text)
}

fn unknown(wait: &Wait) -> Option<String> {
    if let Some(count) = wait.readers {
        let readers = wording::count(count as usize, "reader");
        return Some(format!(", held by {readers}"));
    }
    let why = wait.unknown.as_ref()?;
    Some(format!(" ({why})"))
}
