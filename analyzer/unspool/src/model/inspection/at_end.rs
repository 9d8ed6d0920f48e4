//! What the threads of a recorded program were stuck in when its recording ended.
//!
//! The recorder then read all threads as `unspool inspect` does, so what it finds depends neither on a
//! budget nor on gaps, and is said with the same certainty. What was concluded from recorded calls
//! stays where this does not contradict it: it knows holders that no object names.

use std::collections::{BTreeSet, HashSet};

use unspool_capture::{Capture, Record, SNAPSHOT_PROBE};

use super::{Inspection, Program, Scene, State, Wait, findings, inspect};
use crate::model::finding::{self, Finding, FindingKind};
use crate::model::{Model, ThreadIndex};

/// Adds what the last reading of all threads tells, if there was one.
pub(in crate::model) fn add_findings(
    capture: &Capture,
    model: &mut Model,
    program: &mut dyn Program,
) {
    let Some(scene) = scene(capture, model) else {
        return;
    };
    let inspection = inspect(&scene, model, program);
    let found = findings(model, &inspection);
    let alone = &model.sync.stuck_alone;
    model
        .findings
        .retain(|finding| !is_stuck(finding.kind) || !contradicts(&inspection, finding, alone));
    for finding in found {
        let same = model
            .findings
            .iter_mut()
            .find(|other| is_same(other, &finding));
        match same {
            // It says where holders took what they hold.
            Some(known) if known.proved || !finding.proved => {}
            Some(known) => *known = finding,
            None => model.findings.push(finding),
        }
    }
    finding::sort(&mut model.findings);
}

/// Threads that cannot go on.
fn is_stuck(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::Deadlock
            | FindingKind::SelfDeadlock
            | FindingKind::AbandonedLock
            | FindingKind::LostWakeup
    )
}

/// Whether a thread that is said to wait forever did not wait, an object that is said to be abandoned
/// had a holder, or somebody could still wake threads that are said to have nobody.
fn contradicts(inspection: &Inspection, finding: &Finding, alone: &[ThreadIndex]) -> bool {
    let goes_on = |state: &State| *state != State::Unknown && state.wait().is_none();
    let mut states = finding
        .threads
        .iter()
        .map(|thread| inspection.state(*thread));
    match finding.kind {
        FindingKind::AbandonedLock => states.any(|state| match state {
            // Its holder.
            State::Absent => false,
            state => {
                let wait = state.wait();
                let held = |wait: &Wait| wait.holders.iter().any(|holder| holder.thread.is_some());
                goes_on(state) || wait.is_some_and(held)
            }
        }),
        _ if finding.circle || finding.threads.iter().all(|thread| alone.contains(thread)) => {
            states.any(|state| *state == State::Absent || goes_on(state))
        }
        _ => inspection.present().any(goes_on),
    }
}

/// Whether two findings say the same of threads, perhaps of more or fewer of them.
fn is_same(known: &Finding, found: &Finding) -> bool {
    let threads = |finding: &Finding| -> BTreeSet<usize> {
        finding.threads.iter().map(|thread| thread.0).collect()
    };
    let (one, other) = (threads(known), threads(found));
    known.kind == found.kind && (one.is_subset(&other) || other.is_subset(&one))
}

/// What was read of all threads last.
fn scene<'a>(capture: &'a Capture, model: &Model) -> Option<Scene<'a>> {
    let records = &capture.records;
    let (at, inspection) = records.iter().enumerate().rev().find_map(|(at, record)| {
        let Record::Inspection(inspection) = record else {
            return None;
        };
        Some((at, *inspection))
    })?;
    let unspool_capture::Inspection { from_ns, to_ns, .. } = inspection;
    let within = |time_ns: u64| (from_ns..=to_ns).contains(&time_ns);
    let records: Vec<&Record> = records[..at]
        .iter()
        .filter(|record| match record {
            Record::Event(event) => event.probe == SNAPSHOT_PROBE && within(event.time_ns),
            Record::Memory(memory) => within(memory.time_ns),
            Record::ThreadState(state) => within(state.time_ns),
            Record::Standstill(stood) => within(stood.from_ns),
            _ => false,
        })
        .collect();
    let read: HashSet<u64> = records
        .iter()
        .filter_map(|record| match record {
            Record::Event(event) => Some(event.tid),
            _ => None,
        })
        .collect();
    let mut present = vec![false; model.threads.len()];
    let mut known: HashSet<u64> = HashSet::new();
    // Of threads with one id, the last was there.
    for (index, thread) in model.threads.iter().enumerate().rev() {
        let Some(tid) = thread.tid else { continue };
        let begun = thread.started_ns.is_none_or(|started| started <= to_ns);
        let lives = begun && thread.ended_ns.is_none_or(|ended| ended >= from_ns);
        present[index] = (read.contains(&tid) || lives) && begun && known.insert(tid);
    }
    Some(Scene {
        target: &capture.target,
        records,
        present,
    })
}
