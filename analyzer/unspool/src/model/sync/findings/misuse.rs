//! Finds objects that are used in forbidden or risky ways.

use super::Basis;
use crate::model::finding::{Act, Facts, Finding, FindingKind};
use crate::model::sync::misuse::{Mistake, MistakeKind};
use crate::model::sync::replay::Replay;

pub(super) fn find(basis: &Basis<'_>, replay: &Replay<'_>, findings: &mut Vec<Finding>) {
    // Where events are missing, the acquisition of a lock may be missing too.
    if !basis.lossless() {
        return;
    }
    for mistake in &replay.misuse.mistakes {
        // Contradictory observations prove nothing about the program.
        if mistake.sure {
            findings.push(done_wrong(basis, mistake));
        }
    }
    unlocked_signals(basis, replay, findings);
}

fn done_wrong(basis: &Basis<'_>, mistake: &Mistake) -> Finding {
    let (kind, act) = match mistake.kind {
        MistakeKind::Unlock => (FindingKind::WrongUnlock, Act::Unlocks),
        MistakeKind::Destroy => (FindingKind::DestroyedHeld, Act::Destroys),
    };
    let object = mistake.object;
    let mut evidence = vec![basis.evidence(mistake.thread, mistake.used, act, object)];
    if let Some((holder, taken)) = mistake.holder {
        evidence.push(basis.evidence(holder, taken, Act::Took, object));
    }
    let mut threads = vec![mistake.thread];
    threads.extend(mistake.holder.map(|(holder, _)| holder));
    threads.dedup();
    Finding {
        kind,
        proved: basis.lossless(),
        threads,
        circle: false,
        objects: vec![basis.named(object)],
        facts: Facts::Misuse {
            thread: mistake.thread,
            used: mistake.used,
            object,
            count: mistake.count,
            holder: mistake.holder,
        },
        evidence,
    }
}

fn unlocked_signals(basis: &Basis<'_>, replay: &Replay<'_>, findings: &mut Vec<Finding>) {
    let mut conditions: Vec<_> = replay.misuse.signals.iter().collect();
    conditions.sort_by_key(|(object, _)| **object);
    for (condition, signals) in conditions {
        // Waits may use another mutex while no other thread waits.
        let mutexes = replay.misuse.mutexes(*condition);
        let Some(mutex) = mutexes.last() else {
            continue;
        };
        let without: Vec<_> = signals.iter().filter(|s| s.is_without(mutexes)).collect();
        let Some(first) = without.first() else {
            continue;
        };
        let count: u64 = without.iter().map(|signalled| signalled.count).sum();
        let all: u64 = signals.iter().map(|signalled| signalled.count).sum();
        findings.push(Finding {
            kind: FindingKind::UnlockedSignal,
            // Another thread may have changed the condition's data under the mutex.
            proved: false,
            threads: vec![first.thread],
            circle: false,
            objects: vec![basis.named(*condition), basis.named(*mutex)],
            facts: Facts::UnlockedSignal {
                condition: *condition,
                mutex: *mutex,
                without: count,
                all,
                example: (first.thread, first.used),
            },
            evidence: without
                .iter()
                .take(4)
                .map(|s| basis.evidence(s.thread, s.used, Act::Signals, *condition))
                .collect(),
        });
    }
}
