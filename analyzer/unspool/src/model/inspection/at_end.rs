//! Inspects the threads of a recorded program when its recording ends.
//!
//! The recorder then reads all threads as `unspool inspect` does. So these findings depend neither
//! on a budget nor on gaps, and are proved to the same degree.

use std::collections::HashSet;

use unspool_capture::{Capture, Record, SNAPSHOT_PROBE};

use super::{Inspection, Program, Scene, inspect, take_recorded};
use crate::model::Model;

/// The inspection at the end of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AtEnd {
    /// When it began.
    pub(in crate::model) from_ns: u64,
    pub(in crate::model) inspection: Inspection,
    /// The threads that still waited after other processes were inspected.
    pub(in crate::model) stood: HashSet<u64>,
}

/// The inspection at the end of a recording, if there was one.
pub(in crate::model) fn at_end(
    capture: &Capture,
    model: &Model,
    program: &mut dyn Program,
) -> Option<AtEnd> {
    let (from_ns, scene, later) = scene(capture, model)?;
    let mut inspection = inspect(&scene, model, program);
    take_recorded(&model.threads, &mut inspection.states, later);
    let stood = later.iter().filter_map(|record| match record {
        Record::Unchanged(unchanged) => Some(&unchanged.tids),
        _ => None,
    });
    Some(AtEnd {
        from_ns,
        stood: stood.flatten().copied().collect(),
        inspection,
    })
}

/// The last reading of all threads: its start, what was read, and the records after it.
fn scene<'a>(capture: &'a Capture, model: &Model) -> Option<(u64, Scene<'a>, &'a [Record])> {
    let records = &capture.records;
    let (at, inspection) = records.iter().enumerate().rev().find_map(|(at, record)| {
        let Record::Inspection(inspection) = record else {
            return None;
        };
        Some((at, *inspection))
    })?;
    let unspool_capture::Inspection { from_ns, to_ns, .. } = inspection;
    let within = |time_ns: u64| (from_ns..=to_ns).contains(&time_ns);
    let (records, later) = records.split_at(at);
    let records: Vec<&Record> = records
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
    // Among threads with one id, the last one was present.
    for (index, thread) in model.threads.iter().enumerate().rev() {
        let Some(tid) = thread.tid else { continue };
        let begun = thread.started_ns.is_none_or(|started| started <= to_ns);
        let lives = begun && thread.ended_ns.is_none_or(|ended| ended >= from_ns);
        present[index] = (read.contains(&tid) || lives) && begun && known.insert(tid);
    }
    let scene = Scene {
        target: &capture.target,
        records,
        present,
    };
    Some((from_ns, scene, later))
}
