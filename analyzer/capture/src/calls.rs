//! A summary of call events, of which a capture may have millions.
//!
//! It keeps the first and the last event of each thread, and the number of events of each probe.
//! Separate from the reader because it depends on the records' meaning: which probes are those of
//! calls, and when a thread id is reused. Callers that need all events read them one by one from
//! the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::record::{Event, Record};

/// The call events in a capture's file that are not among its records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// Number of events of each probe.
    pub hits: BTreeMap<u32, u64>,
    /// The lowest and the highest sequence number, if there are any.
    pub numbers: Option<(u64, u64)>,
    /// The first event of each thread, and the last without arguments and snapshot. Each comes with
    /// the index of the record before it.
    pub ends: Vec<(usize, Event)>,
}

impl Calls {
    /// The number of events.
    pub fn count(&self) -> u64 {
        self.hits.values().sum()
    }
}

/// The call probes declared so far, which decide whether an event belongs to a call.
#[derive(Debug, Default)]
pub(crate) struct DeclaredProbes(BTreeSet<u32>);

impl DeclaredProbes {
    /// Processes a record.
    pub(crate) fn see(&mut self, record: &Record) {
        if let Record::Probe(probe) = record {
            if probe.kind().is_of_calls() {
                self.0.insert(probe.id);
            } else {
                self.0.remove(&probe.id);
            }
        }
    }

    pub(crate) fn is_of_calls(&self, probe: u32) -> bool {
        self.0.contains(&probe)
    }
}

/// The fields that are decoded of most events.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(crate) struct Head {
    #[prost(uint64, tag = "1")]
    pub(crate) seq: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) time_ns: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) tid: u64,
    #[prost(uint32, tag = "5")]
    pub(crate) probe: u32,
}

/// Builds [`Calls`] while a file is read for the first time.
#[derive(Debug, Default)]
pub(crate) struct CallSummary {
    pub(crate) declared: DeclaredProbes,
    calls: Calls,
    /// Threads with call events, and the last one of each after the first.
    last: HashMap<u64, Option<(usize, Head)>>,
}

impl CallSummary {
    /// Processes a record that is kept.
    pub(crate) fn keep(&mut self, record: &Record) {
        self.declared.see(record);
        match record {
            Record::ThreadSeen(seen) => self.leave(seen.tid),
            Record::ThreadExited(exited) => self.leave(exited.tid),
            _ => {}
        }
    }

    /// Processes a call event after the record at `at`. Returns true if it is its thread's first,
    /// which is needed completely.
    pub(crate) fn skip(&mut self, at: usize, head: Head) -> bool {
        *self.calls.hits.entry(head.probe).or_default() += 1;
        if head.seq != 0 {
            let (low, high) = self.calls.numbers.unwrap_or((head.seq, head.seq));
            self.calls.numbers = Some((low.min(head.seq), high.max(head.seq)));
        }
        match self.last.get_mut(&head.tid) {
            Some(last) => {
                *last = Some((at, head));
                false
            }
            None => {
                self.last.insert(head.tid, None);
                true
            }
        }
    }

    /// Stores the first event of a thread.
    pub(crate) fn first(&mut self, at: usize, event: Event) {
        self.calls.ends.push((at, event));
    }

    /// The thread id is reused from here on.
    fn leave(&mut self, tid: u64) {
        if let Some(Some((at, head))) = self.last.remove(&tid) {
            let event = Event {
                seq: head.seq,
                time_ns: head.time_ns,
                tid: head.tid,
                probe: head.probe,
                ..Event::default()
            };
            self.calls.ends.push((at, event));
        }
    }

    pub(crate) fn finish(mut self) -> Calls {
        let mut threads: Vec<u64> = self.last.keys().copied().collect();
        threads.sort_unstable();
        for tid in threads {
            self.leave(tid);
        }
        self.calls.ends.sort_by_key(|(at, event)| (*at, event.seq));
        self.calls
    }
}
