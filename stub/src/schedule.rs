//! The schedule of a process: when each of its threads ran, was runnable or was blocked, as the
//! kernel's perf events record it. Recording stops no thread.
//!
//! Each processor has its own ring buffer, into which the kernel writes for all threads. This
//! module merges the records by time. The kernel counts records that do not fit into a ring as
//! lost.

mod record;
mod wire;

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;

use crate::arch;
use crate::sys::perf::{self, Ring, Tracepoints};
use crate::sys::{Tid, monotonic_ns};
use crate::thread_events::record::{HEADER, size_of_record};
use crate::thread_events::{Drains, Refusal, RingLimits, ThreadEvents, apart};

use record::{Event, Parsed, Place, Record, WakingFormat, parse};

/// The rings' sizes, in bytes.
const RINGS: RingLimits = RingLimits {
    total: 8 << 20,
    most: 4 << 20,
    least: 16 << 10,
};
/// Maximum time between two batches of records.
const INTERVAL: Duration = Duration::from_millis(250);
/// Maximum delay between a record's timestamp and its arrival in the ring.
const LATENESS_NS: u64 = 2_000_000;
/// Maximum number of records in one notification.
const MAX_BATCH_RECORDS: usize = 2_000;

/// A running recording of one process's schedule.
pub(crate) struct Schedule {
    process: u32,
    sources: Vec<Source>,
    /// Events that write into the ring of another event.
    events: Vec<OwnedFd>,
    waking: Option<WakingFormat>,
    /// The kernel also records where threads block.
    has_places: bool,
    /// Initial states of the threads, not sent yet.
    initial: VecDeque<Record>,
    /// The threads of the process. Needed because the kernel reports wake-ups of all processes.
    threads: HashSet<u32>,
    drains: Drains,
}

/// Prepares the kernel for a recording that begins within a second, and does not wait for that.
///
/// The first event of the system that needs context switches takes the kernel up to 30 ms, because
/// every processor has to take note. It stays prepared for a second after the last one is closed
/// (Linux, kernel/events/core.c, `account_event`).
pub fn prepare() {
    const OWN_THREAD: Tid = Tid(0);
    apart(|| drop(perf::open_schedule(OWN_THREAD, 0, false, 0)));
}

impl Schedule {
    /// Begins to record. With `places`, also records where threads block, if the kernel permits it.
    pub(crate) fn open(process: Tid, places: bool) -> Result<Schedule, Refusal> {
        let pid = u32::try_from(process.0).map_err(|_| Refusal::Other(Errno::ESRCH))?;
        let mut opened = ThreadEvents::open(process, RINGS, &perf::open_schedule)?;
        let drains = Drains::new(opened.watermarks()?, INTERVAL);
        // An event of one thread would miss wake-ups, because these happen to the thread while it
        // sleeps.
        let waking = waking_tracepoint().and_then(|(id, format)| {
            let open = |cpu, watermark| perf::open_tracepoint(id, cpu, watermark);
            opened.add_for_processors(&open).map(|()| format).ok()
        });
        let blocked = |tid, cpu, threads_only, watermark| {
            perf::open_blocked(tid, cpu, threads_only, watermark, arch::BLOCKED.bits)
        };
        let has_places = places && opened.add_for_threads(&blocked).is_ok();
        let states = opened.threads.iter();
        let states = states.filter_map(|tid| state(process, *tid));
        let initial: VecDeque<Record> = states.collect();
        Ok(Schedule {
            process: pid,
            sources: opened.rings.into_iter().map(Source::new).collect(),
            events: opened.events,
            waking,
            has_places,
            threads: initial.iter().map(|record| record.tid).collect(),
            initial,
            drains,
        })
    }

    /// True if wake-up records are available: they name the waker of each thread.
    pub(crate) fn has_wakers(&self) -> bool {
        self.waking.is_some()
    }

    /// True if the records of blocking threads have the place.
    pub(crate) fn has_places(&self) -> bool {
        self.has_places
    }

    /// The size of all rings, in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.sources.iter().map(|source| source.ring.size()).sum()
    }

    /// When the rings are drained.
    pub(crate) fn drains(&self) -> &Drains {
        &self.drains
    }

    /// Takes records as notification bodies, ordered by time. Takes all records if `all` is set;
    /// otherwise only those whose order is certain, and about `max_bytes` at most.
    pub(crate) fn take(&mut self, all: bool, max_bytes: usize) -> Vec<Vec<u8>> {
        let cutoff_ns = match all {
            true => u64::MAX,
            false => monotonic_ns().saturating_sub(LATENESS_NS),
        };
        for source in &mut self.sources {
            source.head = source.ring.head();
        }
        let mut bodies = Vec::new();
        let mut bytes = 0;
        let mut unfinished = false;
        loop {
            let records = self.batch(cutoff_ns);
            if records.is_empty() {
                break;
            }
            let body = wire::notification(&records, monotonic_ns());
            bytes += body.len();
            bodies.push(body);
            if bytes >= max_bytes && !all {
                unfinished = true;
                break;
            }
        }
        self.drains.drained(unfinished);
        bodies
    }

    fn batch(&mut self, cutoff_ns: u64) -> Vec<Record> {
        let mut batch: Vec<Record> = Vec::new();
        while batch.len() < MAX_BATCH_RECORDS
            && let Some(record) = self.next(cutoff_ns)
        {
            // A thread that was found while it was being created has two events.
            if batch.last() != Some(&record) && self.is_of_process(&record) {
                batch.push(record);
            }
        }
        for source in &self.sources {
            source.ring.release(source.position);
        }
        batch
    }

    /// The earliest record, unless its time is after `cutoff_ns`.
    fn next(&mut self, cutoff_ns: u64) -> Option<Record> {
        for source in &mut self.sources {
            source.fill(self.process, self.waking);
        }
        let times = self
            .sources
            .iter()
            .enumerate()
            .filter_map(|(index, source)| {
                let record = source.next.as_ref()?;
                Some((record.time_ns, index))
            });
        let earliest = times.min();
        let initial_ns = self.initial.front().map(|record| record.time_ns);
        if let Some(initial_ns) = initial_ns
            && earliest.is_none_or(|(time_ns, _)| initial_ns <= time_ns)
        {
            return self.initial.pop_front();
        }
        let (time_ns, index) = earliest?;
        if time_ns > cutoff_ns {
            return None;
        }
        self.sources.get_mut(index)?.next.take()
    }

    /// True if a record belongs to a thread of the process. Updates the set of threads.
    fn is_of_process(&mut self, record: &Record) -> bool {
        match record.event {
            Event::Waking { .. } => self.threads.contains(&record.tid),
            Event::Exit => {
                self.threads.remove(&record.tid);
                true
            }
            Event::Lost { .. } | Event::Name(_) | Event::State(_) => true,
            Event::SwitchIn | Event::SwitchOut { .. } | Event::Fork { .. } => {
                self.threads.insert(record.tid);
                true
            }
        }
    }
}

impl Drop for Schedule {
    /// Closes the events on a thread of its own, because the kernel takes up to 50 ms to let go of
    /// a tracepoint.
    fn drop(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        let events = std::mem::take(&mut self.events);
        apart(|| drop((sources, events)));
    }
}

/// A ring and the next record in it.
struct Source {
    ring: Ring,
    /// End of the data when the kernel's position was last read.
    head: u64,
    /// End of the data that has been parsed.
    position: u64,
    next: Option<Record>,
    /// The thread that is about to stop running, and its place. The record of the switch follows.
    stopping: Option<(u32, Place)>,
    /// The time of the last parsed record.
    last_ns: u64,
}

impl Source {
    fn new(ring: Ring) -> Source {
        Source {
            head: ring.head(),
            position: ring.tail(),
            ring,
            next: None,
            stopping: None,
            last_ns: monotonic_ns(),
        }
    }

    /// Parses the next record of the process, unless one is waiting already.
    fn fill(&mut self, process: u32, waking: Option<WakingFormat>) {
        let mut buffer = [0; 256];
        while self.next.is_none() && self.position < self.head {
            let left = usize::try_from(self.head - self.position).unwrap_or(usize::MAX);
            let mut header = [0; HEADER];
            self.ring.copy(self.position, &mut header);
            let Some(size) = size_of_record(header).filter(|size| *size <= left) else {
                // The kernel does not write such records. Without a valid size the rest cannot be
                // parsed.
                self.position = self.head;
                return;
            };
            // A longer record has a kind that this module does not use.
            if let Some(bytes) = buffer.get_mut(..size) {
                self.ring.copy(self.position, bytes);
                match parse(bytes, process, waking) {
                    Some(Parsed::Record(record)) => self.next = Some(record),
                    Some(Parsed::Stopping(tid, place)) => self.stopping = Some((tid, place)),
                    None => {}
                }
            }
            self.position += size as u64;
            if let Some(record) = &mut self.next {
                match &mut record.event {
                    Event::Lost { since_ns, .. } => {
                        *since_ns = self.last_ns;
                        self.stopping = None;
                    }
                    Event::SwitchOut { place, .. } => {
                        let here = self.stopping.filter(|(tid, _)| *tid == record.tid);
                        *place = here.map(|(_, place)| place);
                    }
                    Event::SwitchIn => self.stopping = None,
                    _ => {}
                }
                self.last_ns = record.time_ns;
            }
        }
    }
}

/// The id and format of the tracepoint `sched_waking`, if this process may read them.
fn waking_tracepoint() -> Option<(u64, WakingFormat)> {
    // `PROC_PID_INIT_INO`. In other namespaces the tracepoint's thread ids differ from ours.
    const FIRST_NAMESPACE: &str = "pid:[4026531836]";
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    if namespace.to_str() != Some(FIRST_NAMESPACE) {
        return None;
    }
    let tracepoints = Tracepoints::find()?;
    let id = tracepoints.id("sched/sched_waking")?;
    let format = tracepoints.read("sched/sched_waking/format")?;
    Some((id, WakingFormat::parse(&format)?))
}

/// The current state of a thread, as a record.
fn state(process: Tid, tid: Tid) -> Option<Record> {
    let stat = fs::read(format!("/proc/{process}/task/{tid}/stat")).ok()?;
    // `TID (NAME) S ...`; the name may contain anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let letter = *stat.get(end + 2)?;
    Some(Record {
        time_ns: monotonic_ns(),
        tid: u32::try_from(tid.0).ok()?,
        cpu: 0,
        event: Event::State(letter),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_events::tasks;

    #[test]
    fn own_state() {
        let process = Tid(std::process::id() as i32);
        let tids = tasks(process);
        assert!(tids.contains(&process));
        let here = tids.iter().filter_map(|tid| state(process, *tid));
        assert!(here.count() > 0);
        assert_eq!(state(process, Tid(0)), None);
    }
}
