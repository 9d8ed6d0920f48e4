//! Adds beginnings and ends of threads that only the kernel's schedule has, as records that the
//! server missed.

use std::collections::HashMap;

use unspool_capture::{Record, ScheduleKind, ThreadEnd, ThreadExited, ThreadSeen};

/// Maximum difference between the server's and the kernel's time of the same change.
const APART_NS: u64 = 1_000_000_000;
/// Threads that end within this time of their program end with it.
const WITH_PROGRAM_NS: u64 = 100_000_000;

/// A beginning or end of a thread in the schedule.
struct Change {
    tid: u64,
    time_ns: u64,
    /// The creator, for a beginning.
    creator: Option<u64>,
}

/// The beginnings and ends that no other record has, in order of time. `pid` is the first thread,
/// whose end is the program's.
pub(super) fn missing(records: &[Record], pid: u64) -> Vec<Record> {
    let mut changes: Vec<Change> = Vec::new();
    let mut seen: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut exited: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut ended_ns = None;
    for record in records {
        match record {
            Record::ThreadSeen(thread) if !thread.existed_before => {
                seen.entry(thread.tid).or_default().push(thread.time_ns);
            }
            Record::ThreadExited(thread) => {
                exited.entry(thread.tid).or_default().push(thread.time_ns);
            }
            Record::ProcessEnded(ended) => ended_ns = Some(ended.time_ns),
            Record::Schedule(schedule) => changes.extend(schedule.entries().filter_map(|entry| {
                let creator = match entry.kind {
                    ScheduleKind::Created => Some(entry.detail),
                    ScheduleKind::Ended => None,
                    _ => return None,
                };
                Some(Change {
                    tid: entry.tid,
                    time_ns: entry.time_ns,
                    creator,
                })
            })),
            _ => {}
        }
    }
    let mut missing = Vec::new();
    for change in changes {
        let reported = match change.creator {
            Some(_) => &mut seen,
            None => &mut exited,
        };
        if take_nearest(reported.get_mut(&change.tid), change.time_ns) {
            continue;
        }
        if let Some(creator) = change.creator {
            missing.push(Record::ThreadSeen(ThreadSeen {
                tid: change.tid,
                time_ns: change.time_ns,
                creator_tid: Some(creator),
                ..ThreadSeen::default()
            }));
            continue;
        }
        // A thread that ends with the program counts as alive. The first thread can end before the
        // others.
        let early = |end: u64| change.time_ns + WITH_PROGRAM_NS < end;
        if ended_ns.map_or(change.tid != pid, early) {
            missing.push(Record::ThreadExited(ThreadExited {
                tid: change.tid,
                time_ns: change.time_ns,
                code: None,
                exact: true,
                by: ThreadEnd::Unspecified.into(),
            }));
        }
    }
    missing
}

/// Removes the report nearest to a time from those of a thread id. Returns true if there was one.
fn take_nearest(times: Option<&mut Vec<u64>>, time_ns: u64) -> bool {
    let Some(times) = times else {
        return false;
    };
    let apart = |time: &u64| time.abs_diff(time_ns);
    let nearest = (0..times.len()).min_by_key(|at| apart(&times[*at]));
    match nearest.filter(|at| apart(&times[*at]) <= APART_NS) {
        Some(at) => {
            times.remove(at);
            true
        }
        None => false,
    }
}
