//! What a capture keeps of the events of calls, which may be millions: of each thread the first and the last, and how many
//! there are of each probe.
//!
//! Apart from the reader because it decides by the records' meaning: which probes are those of calls, and when a thread id
//! begins to mean another thread. Those who want all events are shown them one by one, from the file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::record::{Event, Record};

/// The events of calls that are in a capture's file, and not among its records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// How many there are of each probe.
    pub hits: BTreeMap<u32, u64>,
    /// The lowest and the highest of their numbers, if they have any.
    pub numbers: Option<(u64, u64)>,
    /// Of each thread the first, and the last without arguments and snapshot; with each the place of the record it follows.
    pub ends: Vec<(usize, Event)>,
}

impl Calls {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.hits.values().sum()
    }
}

/// What decides whether an event is one of a call: the probes that were declared.
#[derive(Debug, Default)]
pub(crate) struct Declared(BTreeSet<u32>);

impl Declared {
    /// Takes in a record.
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

/// The little that is read of most events.
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

/// Gathers [`Calls`] while a file is read for the first time.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) declared: Declared,
    calls: Calls,
    /// Threads that have had calls, and the last of these behind the first.
    last: HashMap<u64, Option<(usize, Head)>>,
}

impl Gathering {
    /// A record that is kept.
    pub(crate) fn keep(&mut self, record: &Record) {
        self.declared.see(record);
        match record {
            Record::ThreadSeen(seen) => self.leave(seen.tid),
            Record::ThreadExited(exited) => self.leave(exited.tid),
            _ => {}
        }
    }

    /// An event of a call behind the record at `at`. `true`: it is the first of its thread, and wanted whole.
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

    /// The first event of a thread.
    pub(crate) fn first(&mut self, at: usize, event: Event) {
        self.calls.ends.push((at, event));
    }

    /// A thread id means another thread from here on.
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
