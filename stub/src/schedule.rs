//! The schedule of a process: when each of its threads ran, was runnable or was blocked, as the
//! kernel's perf events record it. Recording stops no thread.
//!
//! Each processor has its own ring buffer, into which the kernel writes for all threads. This
//! module merges the records by time. The kernel counts records that do not fit into a ring as
//! lost.

mod record;
mod refusal;
mod wire;

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::sys::perf::{self, MoreDescriptors, Ring, Tracepoints, Watermarks};
use crate::sys::{Tid, monotonic_ns};

use record::{Event, HEADER, Record, WakingFormat, parse, size_of_record};
pub(crate) use refusal::Refusal;

/// Maximum size of all rings together, in bytes.
const MAX_RING_BYTES: u64 = 8 << 20;
/// The rings take at most the fraction `1 / MEMORY_PART` of the system's memory.
const MEMORY_PART: u64 = 64;
/// Limits of one ring's size, in bytes.
const MAX_RING: u64 = 4 << 20;
const MIN_RING: u64 = 16 << 10;
/// Maximum time between two batches of records.
const INTERVAL: Duration = Duration::from_millis(250);
/// Maximum delay between a record's timestamp and its arrival in the ring.
const LATENESS_NS: u64 = 2_000_000;
/// Maximum number of records in one notification.
const MAX_BATCH_RECORDS: usize = 2_000;
/// Stack size of the threads that open and close events, in bytes.
const SMALL_STACK: usize = 64 << 10;
/// Maximum number of times that the thread list is read to find new threads.
const MAX_LISTINGS: usize = 16;

/// A running recording of one process's schedule.
pub(crate) struct Schedule {
    process: u32,
    sources: Vec<Source>,
    watermarks: Watermarks,
    /// Events that write into the ring of another event.
    events: Vec<OwnedFd>,
    waking: Option<WakingFormat>,
    /// Initial states of the threads, not sent yet.
    initial: VecDeque<Record>,
    /// The threads of the process. Needed because the kernel reports wake-ups of all processes.
    threads: HashSet<u32>,
    drained: Instant,
    /// The last drain left records behind.
    unfinished: bool,
}

/// Prepares the kernel for a recording that begins within a second, and does not wait for that.
///
/// The first event of the system that needs context switches takes the kernel up to 30 ms, because
/// every processor has to take note. It stays prepared for a second after the last one is closed
/// (Linux, kernel/events/core.c, `account_event`).
pub fn prepare() {
    const OWN_THREAD: Tid = Tid(0);
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
    drop(thread.spawn(|| drop(perf::open_schedule(OWN_THREAD, 0, false, 0))));
}

impl Schedule {
    /// Begins to record.
    pub(crate) fn open(process: Tid) -> Result<Schedule, Refusal> {
        let pid = u32::try_from(process.0).map_err(|_| Refusal::Other(Errno::ESRCH))?;
        let mut opened = Opened::of(process)?;
        let waking = waking_tracepoint()
            .and_then(|(id, format)| opened.add_tracepoint(id).map(|()| format).ok());
        let watermarks = Watermarks::new().map_err(Refusal::Other)?;
        for source in &opened.sources {
            watermarks.watch(&source.ring).map_err(Refusal::Other)?;
        }
        let states = opened.threads.iter();
        let states = states.filter_map(|tid| state(process, *tid));
        let initial: VecDeque<Record> = states.collect();
        Ok(Schedule {
            process: pid,
            sources: opened.sources,
            watermarks,
            events: opened.events,
            waking,
            threads: initial.iter().map(|record| record.tid).collect(),
            initial,
            drained: Instant::now(),
            unfinished: false,
        })
    }

    /// True if wake-up records are available: they name the waker of each thread.
    pub(crate) fn has_wakers(&self) -> bool {
        self.waking.is_some()
    }

    /// The size of all rings, in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.sources.iter().map(|source| source.ring.size()).sum()
    }

    /// Descriptor that becomes readable when a ring is a quarter full.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.watermarks.as_fd()
    }

    /// The time at which records should be sent, unless a ring fills up earlier.
    pub(crate) fn due(&self) -> Instant {
        match self.unfinished {
            true => self.drained,
            false => self.drained + INTERVAL,
        }
    }

    /// True if records should be sent now.
    pub(crate) fn is_due(&mut self) -> bool {
        self.watermarks.clear() || self.due() <= Instant::now()
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
        self.unfinished = false;
        loop {
            let records = self.batch(cutoff_ns);
            if records.is_empty() {
                break;
            }
            let body = wire::notification(&records, monotonic_ns());
            bytes += body.len();
            bodies.push(body);
            if bytes >= max_bytes && !all {
                self.unfinished = true;
                break;
            }
        }
        self.drained = Instant::now();
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
        let close = || drop((sources, events));
        // Where no thread can be created, the closure is dropped here, and closes them.
        let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
        drop(thread.spawn(close));
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
                self.next = parse(bytes, process, waking);
            }
            self.position += size as u64;
            if let Some(record) = &mut self.next {
                if let Event::Lost { since_ns, .. } = &mut record.event {
                    *since_ns = self.last_ns;
                }
                self.last_ns = record.time_ns;
            }
        }
    }
}

/// The open events of all threads of a process.
struct Opened {
    sources: Vec<Source>,
    events: Vec<OwnedFd>,
    threads: Vec<Tid>,
    /// Processor of each source.
    processors: Vec<u32>,
    /// Only threads inherit the events, not child processes.
    threads_only: bool,
    /// Size of each ring in bytes.
    size: u64,
}

impl Opened {
    fn of(process: Tid) -> Result<Opened, Refusal> {
        let _more = MoreDescriptors::allow();
        let mut opened = Opened {
            sources: Vec::new(),
            events: Vec::new(),
            threads: Vec::new(),
            processors: (0..perf::processors()).collect(),
            threads_only: true,
            size: ring_size(perf::processors().into()),
        };
        // New threads inherit the events of their creator. Threads whose creator has no events yet
        // can appear meanwhile, so list again.
        for _ in 0..MAX_LISTINGS {
            let new = tasks(process).into_iter();
            let new: Vec<Tid> = new.filter(|tid| !opened.threads.contains(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let added = match opened.sources.is_empty() {
                    true => opened.add_first(tid),
                    false => opened.add(tid),
                };
                match added {
                    Ok(()) => opened.threads.push(tid),
                    // The thread has ended.
                    Err(Refusal::Other(Errno::ESRCH)) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        match opened.sources.is_empty() {
            true => Err(Refusal::Other(Errno::ESRCH)),
            false => Ok(opened),
        }
    }

    /// Opens the events of the first thread, one for each processor, and their rings.
    fn add_first(&mut self, tid: Tid) -> Result<(), Refusal> {
        let mut sources = Vec::new();
        let mut online = Vec::new();
        for cpu in self.processors.clone() {
            match self.open_ring(tid, cpu) {
                Ok(ring) => sources.push(Source::new(ring)),
                // This processor is offline.
                Err(Refusal::Other(Errno::ENODEV)) => continue,
                Err(refusal) => return Err(refusal),
            }
            online.push(cpu);
        }
        (self.sources, self.processors) = (sources, online);
        Ok(())
    }

    fn open_ring(&mut self, tid: Tid, cpu: u32) -> Result<Ring, Refusal> {
        loop {
            match perf::open_schedule(tid, cpu, self.threads_only, self.watermark()) {
                // Before Linux 5.13 child processes inherit events, too. Their records are skipped.
                Err(Errno::EINVAL) if self.threads_only => self.threads_only = false,
                Err(errno) => return Err(Refusal::of(errno)),
                Ok(event) => match Ring::map(event, self.size as usize) {
                    Ok(ring) => return Ok(ring),
                    Err(Errno::EPERM | Errno::ENOMEM) if self.size / 2 >= MIN_RING => {
                        self.size /= 2;
                    }
                    Err(Errno::EPERM) => return Err(Refusal::LockedMemory),
                    Err(errno) => return Err(Refusal::of(errno)),
                },
            }
        }
    }

    /// Opens the events of another thread, which write into the existing rings.
    fn add(&mut self, tid: Tid) -> Result<(), Refusal> {
        for (cpu, source) in self.processors.iter().zip(&self.sources) {
            let event = perf::open_schedule(tid, *cpu, self.threads_only, self.watermark())
                .map_err(Refusal::of)?;
            source.ring.take_output_of(&event).map_err(Refusal::of)?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Opens events for a tracepoint's hits on all processors. An event of one thread would miss
    /// wake-ups, because these happen to the thread while it sleeps.
    fn add_tracepoint(&mut self, id: u64) -> Result<(), Errno> {
        let mut events = Vec::new();
        for (cpu, source) in self.processors.iter().zip(&self.sources) {
            let event = perf::open_tracepoint(id, *cpu, self.watermark())?;
            source.ring.take_output_of(&event)?;
            events.push(event);
        }
        self.events.append(&mut events);
        Ok(())
    }

    fn watermark(&self) -> u32 {
        u32::try_from(self.size / 4).unwrap_or(u32::MAX)
    }
}

/// The size of each ring in bytes, a power of two.
fn ring_size(rings: u64) -> u64 {
    let limit = MAX_RING_BYTES.min(perf::memory_size() / MEMORY_PART);
    let page = perf::page_size() as u64;
    let size = (limit / rings.max(1)).clamp(MIN_RING.max(page), MAX_RING);
    match size.is_power_of_two() {
        true => size,
        false => size.next_power_of_two() / 2,
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
    let id = tracepoints.read("sched/sched_waking/id")?;
    let format = tracepoints.read("sched/sched_waking/format")?;
    Some((id.trim().parse().ok()?, WakingFormat::parse(&format)?))
}

fn tasks(process: Tid) -> Vec<Tid> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let names = entries.into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| name.parse().ok().map(Tid))
        .collect()
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

    #[test]
    fn rings_fit_into_the_limit() {
        for rings in [1, 2, 3, 4, 64, 1000] {
            let size = ring_size(rings);
            assert!(size.is_power_of_two(), "{size}");
            assert!(
                size * rings <= MAX_RING_BYTES || size <= MIN_RING.max(perf::page_size() as u64)
            );
        }
    }

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
