//! Finds objects that are used in forbidden or risky ways.

use super::{Words, times};
use crate::model::finding::{Facts, Finding, FindingKind};
use crate::model::sync::misuse::{Mistake, MistakeKind};
use crate::model::sync::replay::Replay;

pub(super) fn find(words: &Words<'_>, replay: &Replay<'_>, findings: &mut Vec<Finding>) {
    // Where events are missing, the acquisition of a lock may be missing too.
    if !words.lossless() {
        return;
    }
    for mistake in &replay.misuse.mistakes {
        // Contradictory observations prove nothing about the program.
        if mistake.sure {
            findings.push(done_wrong(words, mistake));
        }
    }
    unlocked_signals(words, replay, findings);
}

fn done_wrong(words: &Words<'_>, mistake: &Mistake) -> Finding {
    let object = words.object(mistake.object);
    let thread = words.thread(mistake.thread);
    let place = words.at(mistake.used);
    let often = times(mistake.count);
    let (kind, verb) = match mistake.kind {
        MistakeKind::Unlock => (FindingKind::WrongUnlock, "unlocks"),
        MistakeKind::Destroy => (FindingKind::DestroyedHeld, "destroys"),
    };
    let text = match mistake.holder {
        Some((holder, taken)) if holder == mistake.thread => format!(
            "{thread} {verb} {object}{place} while it still holds it, taken{} ({often}).",
            words.at(taken)
        ),
        Some((holder, taken)) => format!(
            "{thread} {verb} {object}{place} while {} holds it, taken{} ({often}).",
            words.thread(holder),
            words.at(taken)
        ),
        None => format!("{thread} {verb} {object}{place}, which no thread holds ({often})."),
    };
    let mut evidence =
        vec![words.evidence(mistake.thread, mistake.used, format!("{verb} {object}"))];
    if let Some((holder, taken)) = mistake.holder {
        evidence.push(words.evidence(holder, taken, format!("took {object}")));
    }
    let mut threads = vec![mistake.thread];
    threads.extend(mistake.holder.map(|(holder, _)| holder));
    threads.dedup();
    Finding {
        kind,
        proved: words.lossless(),
        threads,
        circle: false,
        objects: vec![words.named(mistake.object)],
        facts: Facts::Sentences(text),
        evidence,
    }
}

fn unlocked_signals(words: &Words<'_>, replay: &Replay<'_>, findings: &mut Vec<Finding>) {
    let mut conditions: Vec<_> = replay.misuse.signals.iter().collect();
    conditions.sort_by_key(|(object, _)| **object);
    for (condition, signals) in conditions {
        let Some(mutex) = replay.mutex_of.get(condition) else {
            continue;
        };
        let without: Vec<_> = signals.iter().filter(|s| s.is_without(*mutex)).collect();
        let Some(first) = without.first() else {
            continue;
        };
        let count: u64 = without.iter().map(|signalled| signalled.count).sum();
        let all: u64 = signals.iter().map(|signalled| signalled.count).sum();
        let doubtful = words.objects[mutex.0].doubtful;
        findings.push(Finding {
            kind: FindingKind::UnlockedSignal,
            proved: words.lossless() && !doubtful,
            threads: vec![first.thread],
            circle: false,
            objects: vec![words.named(*condition), words.named(*mutex)],
            facts: Facts::Sentences(format!(
                "Threads wait at {} with {}. But {count} of {all} signals came from a thread \
                 that had not locked this mutex since its previous signal, for example {}{}. If \
                 that thread changed the state that the others wait for, it did so without the \
                 mutex, and a wake-up can be lost.",
                words.object(*condition),
                words.object(*mutex),
                words.thread(first.thread),
                words.at(first.used),
            )),
            evidence: without
                .iter()
                .take(4)
                .map(|s| {
                    words.evidence(
                        s.thread,
                        s.used,
                        format!("signals {}", words.object(*condition)),
                    )
                })
                .collect(),
        });
    }
}
