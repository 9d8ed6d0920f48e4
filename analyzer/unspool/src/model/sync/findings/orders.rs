//! Finds locks that are taken in both orders, whether or not this has already led to a deadlock.

use super::{Words, times};
use crate::model::finding::{Facts, Finding, FindingKind};
use crate::model::sync::replay::Replay;
use crate::model::{Creation, Model, ThreadIndex};

pub(super) fn find(
    words: &Words<'_>,
    replay: &Replay<'_>,
    joins_are_seen: bool,
    findings: &mut Vec<Finding>,
) {
    let joins_are_seen = joins_are_seen && !words.model.recording.joins_are_missing;
    for circle in replay.order.circles(words.model) {
        let doubtful = circle.objects.iter().any(|o| words.objects[o.0].doubtful);
        let seats = circle.seats.filter(|_| circle.possible);
        // A thread's steps before it creates another thread, or after it joins it, never run at the
        // same time as that thread's.
        let mut steps = circle.steps.iter();
        let ancestry = steps.all(|step| is_descent_known(words.model, step.thread));
        let proved = circle.possible
            && seats.is_none()
            && !doubtful
            && words.lossless()
            && ancestry
            && joins_are_seen;
        let mut clauses = Vec::new();
        let mut evidence = Vec::new();
        for (at, step) in circle.steps.iter().enumerate() {
            let held = words.object(circle.objects[at]);
            let taken = words.object(circle.objects[(at + 1) % circle.objects.len()]);
            clauses.push(format!(
                "{} takes {taken}{} while it holds {held} ({})",
                words.thread(step.thread),
                words.at(step.taken),
                times(step.count)
            ));
            evidence.push(words.evidence(step.thread, step.held, format!("takes {held}")));
            evidence.push(words.evidence(
                step.thread,
                step.taken,
                format!("takes {taken} while it holds {held}"),
            ));
        }
        let orders = match circle.objects.len() {
            2 => "Two locks are taken in both orders".to_owned(),
            count => format!("{count} locks are taken in orders that form a circle"),
        };
        let verdict = if proved {
            "Threads that do this at the same time can wait for each other forever.".to_owned()
        } else if let Some(seats) = seats {
            format!(
                "All of these threads had passed {}. If it lets enough of them in at the same \
                 time, they can wait for each other forever.",
                words.object(seats)
            )
        } else if circle.possible {
            "Events are missing, so it is not certain that these locks were held, or that these \
             threads could run at the same time."
                .to_owned()
        } else {
            "In this recording no two threads could do this at the same time. If two ever do, \
             they can wait for each other forever."
                .to_owned()
        };
        let mut threads: Vec<_> = circle.steps.iter().map(|step| step.thread).collect();
        threads.dedup();
        findings.push(Finding {
            kind: FindingKind::LockOrder,
            proved,
            threads,
            circle: false,
            objects: circle.objects.iter().map(|o| words.named(*o)).collect(),
            facts: Facts::Sentences(format!("{orders}: {}. {verdict}", clauses.join("; "))),
            evidence,
        });
    }
}

/// True if the chain of a thread's creators was recorded, as far as the recording goes back.
fn is_descent_known(model: &Model, thread: ThreadIndex) -> bool {
    let mut at = thread;
    // The bound also ends the climb if damaged records form a circle.
    for _ in 0..model.threads.len() {
        at = match model.threads.get(at.0).map(|thread| &thread.creation) {
            Some(Creation::Main | Creation::Before) => return true,
            Some(Creation::Seen {
                creator,
                inferred: false,
                ..
            }) => *creator,
            _ => return false,
        };
    }
    false
}
