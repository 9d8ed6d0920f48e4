//! The schedule of a process: when each of its threads ran, was runnable or was blocked, as the
//! kernel's perf events record it. Recording stops no thread.
//!
//! The processes that it creates inherit its events, so the schedule can include them. They are not
//! traced for that.
//!
//! Each processor has its own ring buffer, into which the kernel writes for all threads. This
//! module merges the records by time. The kernel counts records that do not fit into a ring as
//! lost.

mod creations;
mod record;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;

use crate::arch::{self, STACK_WORDS};
use crate::sys::bpf::Program;
use crate::sys::perf::{self, Mappings, Ring};
use crate::sys::stat::Stat;
use crate::sys::syscall_file::SyscallFile;
use crate::sys::tracefs::Tracepoints;
use crate::sys::{Tid, monotonic_ns};
use crate::thread_events::record::{HEADER, size_of_record};
use crate::thread_events::{Drains, Heirs, Refusal, RingLimits, ThreadEvents, apart};

use creations::Creations;
use record::{Event, Parsed, Place, Record, WakingFormat, parse};

/// The rings' sizes, in bytes.
const RINGS: RingLimits = RingLimits {
    total: 8 << 20,
    most: 4 << 20,
    least: 16 << 10,
};
/// Maximum time between the record of a creation and its stack.
const MAX_CREATION_NS: u64 = 1_000_000_000;
/// Maximum time between two batches of records.
const INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time between two batches while records have system calls. A client can name their files
/// only while they are open.
const CALL_INTERVAL: Duration = Duration::from_millis(25);
/// Maximum delay between a record's timestamp and its arrival in the ring.
const LATENESS_NS: u64 = 2_000_000;
/// Maximum number of records in one notification.
const MAX_BATCH_RECORDS: usize = 2_000;
/// Number of bytes of stacks after which a notification ends.
const MAX_BATCH_STACKS: usize = 128 << 10;

/// Maximum size of a record in bytes: that of a mapped file has its path.
const MAX_RECORD: usize = 4096 + 256;

/// The contents of the records of blocking threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Places {
    /// No registers.
    #[default]
    None,
    /// The registers that show the system call.
    Registers,
    /// Also words of the stack, if no register has the system call's number.
    Words,
    /// Also what shows the callers of futex calls: words of the stack, and the link register.
    Callers,
}

/// The parts of a schedule that a client can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Where threads block, if the kernel permits it.
    pub(crate) places: Places,
    /// Also the processes that the process creates.
    pub(crate) processes: bool,
    /// Also the files that these processes map as code.
    pub(crate) mappings: bool,
    /// The files have build-ids, if the kernel knows these.
    pub(crate) build_ids: bool,
    /// Also the stacks at which these processes create threads, if the kernel permits it.
    pub(crate) creations: bool,
    /// Also the stacks at which the process itself creates threads.
    pub(crate) own_creations: bool,
}

/// The owner of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The process itself.
    Process,
    /// A process that it or one of its descendants created.
    Descendant,
}

/// A running recording of one process's schedule.
pub(crate) struct Schedule {
    process: u32,
    wanted: Wanted,
    sources: Vec<Source>,
    /// Events that write into the ring of another event.
    events: Vec<OwnedFd>,
    /// Writes the creation stacks.
    program: Option<Program>,
    waking: Option<WakingFormat>,
    /// The kernel also records where threads block.
    has_places: bool,
    /// The kernel also records creation stacks.
    has_creations: bool,
    /// By creator, the last thread that it created, and when. Only if there are creation stacks.
    created: HashMap<u32, (u32, u64)>,
    /// Initial states of the threads, not sent yet.
    initial: VecDeque<Record>,
    /// The known threads. Needed because the kernel reports wake-ups of all processes.
    threads: HashMap<u32, Owner>,
    drains: Drains,
}

/// Prepares the kernel for a recording that begins within a second, and does not wait for that.
///
/// The first event of the system that needs context switches takes the kernel up to 30 ms, because
/// every processor has to take note. It stays prepared for a second after the last one is closed
/// (Linux, kernel/events/core.c, `account_event`).
pub fn prepare() {
    const OWN_THREAD: Tid = Tid(0);
    apart(|| drop(perf::open_schedule(OWN_THREAD, 0, false, 0, Mappings::None)));
}

impl Schedule {
    /// Begins to record.
    pub(crate) fn open(process: Tid, wanted: Wanted) -> Result<Schedule, Refusal> {
        let pid = u32::try_from(process.0).map_err(|_| Refusal::Other(Errno::ESRCH))?;
        let heirs = match wanted.processes {
            true => Heirs::Processes,
            false => Heirs::Threads,
        };
        let schedule = |tid, cpu, threads_only, watermark| {
            let open = |mappings| perf::open_schedule(tid, cpu, threads_only, watermark, mappings);
            match wanted.processes && wanted.mappings {
                false => open(Mappings::None),
                true if wanted.build_ids => match open(Mappings::BuildIds) {
                    // Before Linux 5.12.
                    Err(Errno::EINVAL) => open(Mappings::Inodes),
                    opened => opened,
                },
                true => open(Mappings::Inodes),
            }
        };
        let mut opened = ThreadEvents::open(process, RINGS, heirs, &schedule)?;
        let interval = match wanted.places {
            Places::None => INTERVAL,
            _ => CALL_INTERVAL,
        };
        let drains = Drains::new(opened.watermarks()?, interval);
        // An event of one thread would miss wake-ups, because these happen to the thread while it
        // sleeps.
        let tracepoints = Tracepoints::find();
        let waking = tracepoints.as_ref().and_then(waking_tracepoint);
        let waking = waking.and_then(|(id, format)| {
            let open = |cpu, watermark| perf::open_tracepoint(id, cpu, watermark);
            opened.add_for_processors(&open).map(|()| format).ok()
        });
        let stack = match wanted.places {
            Places::Words if arch::BLOCKED.number.is_some() => 0,
            Places::Words | Places::Callers => record::STACK_SIZE as u32,
            Places::None | Places::Registers => 0,
        };
        let blocked = |tid, cpu, threads_only, watermark| {
            let registers = arch::BLOCKED.bits;
            perf::open_blocked(tid, cpu, threads_only, watermark, registers, stack)
        };
        let heirs = match wanted.processes && wanted.mappings {
            true => Heirs::Processes,
            false => Heirs::Threads,
        };
        let has_places =
            wanted.places != Places::None && opened.add_for_threads(heirs, &blocked).is_ok();
        let mut creations = Vec::new();
        let mut program = None;
        if (wanted.own_creations || wanted.processes && wanted.creations)
            && let Some(tracepoints) = &tracepoints
            && let Some(stacks) = Creations::open(pid, tracepoints, wanted.own_creations)
            && drains.watch(&stacks.events.rings).is_ok()
        {
            opened.events.extend(stacks.events.events);
            creations = stacks.events.rings;
            program = stacks.program;
        }
        let states = opened.threads.iter();
        let states = states.flat_map(|tid| state(process, *tid));
        let initial: VecDeque<Record> = states.collect();
        Ok(Schedule {
            process: pid,
            wanted,
            has_creations: !creations.is_empty(),
            sources: (opened.rings.into_iter())
                .map(|ring| Source::new(ring, Contents::Schedule))
                .chain((creations.into_iter()).map(|ring| Source::new(ring, Contents::Creations)))
                .collect(),
            events: opened.events,
            program,
            waking,
            has_places,
            created: HashMap::new(),
            threads: (initial.iter())
                .map(|record| (record.tid, Owner::Process))
                .collect(),
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

    /// True if there are creation stacks of other processes.
    pub(crate) fn has_creations(&self) -> bool {
        self.has_creations && self.wanted.processes && self.wanted.creations
    }

    /// True if there are creation stacks of the process itself.
    pub(crate) fn has_own_creations(&self) -> bool {
        self.has_creations && self.wanted.own_creations
    }

    /// The size of all rings, in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.sources.iter().map(|source| source.ring.size()).sum()
    }

    /// When the rings are drained.
    pub(crate) fn drains(&self) -> &Drains {
        &self.drains
    }

    /// Takes records as notification bodies, ordered by time; those of other processes have bodies
    /// of their own. Takes all records if `all` is set; otherwise only those whose order is
    /// certain, and about `max_bytes` at most.
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
            let [own, others] = self.batch(cutoff_ns);
            if own.is_empty() && others.is_empty() {
                break;
            }
            for (name, records) in [("UnspoolSchedule", own), ("UnspoolProcesses", others)] {
                if !records.is_empty() {
                    let body = wire::notification(name, &records, monotonic_ns());
                    bytes += body.len();
                    bodies.push(body);
                }
            }
            if bytes >= max_bytes && !all {
                unfinished = true;
                break;
            }
        }
        self.drains.drained(unfinished);
        bodies
    }

    /// Records of the process, and of its descendants.
    fn batch(&mut self, cutoff_ns: u64) -> [Vec<Record>; 2] {
        let mut own: Vec<Record> = Vec::new();
        let mut others: Vec<Record> = Vec::new();
        let mut stacks = 0;
        while own.len() + others.len() < MAX_BATCH_RECORDS
            && stacks < MAX_BATCH_STACKS
            && let Some((process, mut record)) = self.next(cutoff_ns)
        {
            let batch = match self.owner(process, &record) {
                // Other notifications report what the process itself maps.
                Some(Owner::Process) if matches!(record.event, Event::Mapping(_)) => continue,
                Some(Owner::Process) => {
                    if matches!(record.event, Event::Creation(_)) && !self.wanted.own_creations {
                        continue;
                    }
                    // `exec` notifications report what the process itself executes.
                    if let Event::Exec(name) = record.event {
                        record.event = Event::Name(name);
                    }
                    &mut own
                }
                Some(Owner::Descendant) if self.wanted.processes => {
                    // Without mappings, the place means nothing to the client.
                    if let Event::SwitchOut { place, .. } = &mut record.event
                        && !self.wanted.mappings
                    {
                        *place = None;
                    }
                    &mut others
                }
                _ => continue,
            };
            if let Event::Creation(creation) = &record.event {
                let Some(created) = self.last_created(&record) else {
                    continue;
                };
                stacks += creation.stack.len();
                record.tid = created;
            }
            // A thread that was found while it was being created has two events.
            if batch.last() != Some(&record) {
                batch.push(record);
            }
        }
        for source in &self.sources {
            source.ring.release(source.position);
        }
        [own, others]
    }

    /// The earliest record and its process, unless its time is after `cutoff_ns`.
    fn next(&mut self, cutoff_ns: u64) -> Option<(u32, Record)> {
        for source in &mut self.sources {
            source.fill(self.waking);
        }
        let times = self
            .sources
            .iter()
            .enumerate()
            .filter_map(|(index, source)| {
                let (_, record) = source.next.as_ref()?;
                Some((record.time_ns, index))
            });
        let earliest = times.min();
        let initial_ns = self.initial.front().map(|record| record.time_ns);
        if let Some(initial_ns) = initial_ns
            && earliest.is_none_or(|(time_ns, _)| initial_ns <= time_ns)
        {
            return Some((self.process, self.initial.pop_front()?));
        }
        let (time_ns, index) = earliest?;
        if time_ns > cutoff_ns {
            return None;
        }
        self.sources.get_mut(index)?.next.take()
    }

    /// The owner of a record's thread; none for wake-ups of strangers. Updates the known threads.
    fn owner(&mut self, process: u32, record: &Record) -> Option<Owner> {
        let owner = match process == self.process {
            true => Owner::Process,
            false => Owner::Descendant,
        };
        match record.event {
            Event::Waking { .. } => return self.threads.get(&record.tid).copied(),
            Event::Lost { .. } => return Some(Owner::Process),
            Event::Exit => {
                self.threads.remove(&record.tid);
                self.created.remove(&record.tid);
            }
            Event::Name(_)
            | Event::Exec(_)
            | Event::State(_)
            | Event::Mapping(_)
            | Event::Creation(_) => {}
            Event::SwitchIn
            | Event::SwitchOut { .. }
            | Event::Fork { .. }
            | Event::Process { .. } => {
                self.threads.insert(record.tid, owner);
                if let Event::Fork { creator } = record.event
                    && match owner {
                        Owner::Process => self.has_own_creations(),
                        Owner::Descendant => self.has_creations(),
                    }
                {
                    let created = (record.tid, record.time_ns);
                    self.created.insert(creator, created);
                }
            }
        }
        Some(owner)
    }

    /// The thread to which a creation stack belongs. The kernel records the creation just before
    /// the stack, unless it lost one of both records.
    fn last_created(&mut self, stack: &Record) -> Option<u32> {
        let (created, time_ns) = self.created.remove(&stack.tid)?;
        let after_ns = stack.time_ns.checked_sub(time_ns)?;
        (after_ns <= MAX_CREATION_NS).then_some(created)
    }
}

impl Drop for Schedule {
    /// Closes the events on a thread of its own, because the kernel takes up to 50 ms to let go of
    /// a tracepoint.
    fn drop(&mut self) {
        let sources = std::mem::take(&mut self.sources);
        let events = std::mem::take(&mut self.events);
        let program = self.program.take();
        apart(|| drop((sources, events, program)));
    }
}

/// The kind of records in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    Schedule,
    Creations,
}

/// A ring and the next record in it.
struct Source {
    ring: Ring,
    contents: Contents,
    /// End of the data when the kernel's position was last read.
    head: u64,
    /// End of the data that has been parsed.
    position: u64,
    /// Its process, and the record.
    next: Option<(u32, Record)>,
    /// The thread that is about to stop running, and its place. The record of the switch follows.
    stopping: Option<(u32, Box<Place>)>,
    /// The time of the last parsed record.
    last_ns: u64,
    /// The record that is being parsed.
    buffer: Box<[u8]>,
}

impl Source {
    fn new(ring: Ring, contents: Contents) -> Source {
        let largest = match contents {
            Contents::Schedule => MAX_RECORD,
            Contents::Creations => creations::MAX_RECORD,
        };
        Source {
            contents,
            head: ring.head(),
            position: ring.tail(),
            ring,
            next: None,
            stopping: None,
            last_ns: monotonic_ns(),
            buffer: vec![0; largest].into(),
        }
    }

    /// Parses the next record, unless one is waiting already.
    fn fill(&mut self, waking: Option<WakingFormat>) {
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
            if let Some(bytes) = self.buffer.get_mut(..size) {
                self.ring.copy(self.position, bytes);
                let parsed = match self.contents {
                    Contents::Schedule => parse(bytes, waking),
                    Contents::Creations => creations::parse(bytes),
                };
                match parsed {
                    Some(Parsed::Record(process, record)) => self.next = Some((process, record)),
                    Some(Parsed::Stopping(tid, place)) => self.stopping = Some((tid, place)),
                    None => {}
                }
            }
            self.position += size as u64;
            if let Some((_, record)) = &mut self.next {
                match &mut record.event {
                    Event::Lost { since_ns, .. } => {
                        *since_ns = self.last_ns;
                        self.stopping = None;
                    }
                    Event::SwitchOut { place, .. } => {
                        let here = self.stopping.take_if(|(tid, _)| *tid == record.tid);
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
fn waking_tracepoint(tracepoints: &Tracepoints) -> Option<(u64, WakingFormat)> {
    const WAKING: &str = "sched/sched_waking";
    is_in_first_namespace().then_some(())?;
    let offset = tracepoints.offset(WAKING, "pid")?;
    Some((tracepoints.id(WAKING)?, WakingFormat { offset }))
}

/// In other namespaces, the thread ids of tracepoints differ from ours.
fn is_in_first_namespace() -> bool {
    // `PROC_PID_INIT_INO`
    const FIRST: &str = "pid:[4026531836]";
    let namespace = fs::read_link("/proc/self/ns/pid");
    namespace.is_ok_and(|namespace| namespace.to_str() == Some(FIRST))
}

/// The current state of a thread, as records: if it is blocked in a system call, also its place.
fn state(process: Tid, tid: Tid) -> Vec<Record> {
    let letter = Stat::of_thread(process, tid).and_then(|stat| stat.state());
    let (Some(letter), Ok(id)) = (letter, u32::try_from(tid.0)) else {
        return Vec::new();
    };
    let time_ns = monotonic_ns();
    let record = |event| Record {
        time_ns,
        tid: id,
        cpu: 0,
        event,
    };
    let mut records = vec![record(Event::State(letter))];
    if matches!(letter, b'S' | b'D')
        && let Some(call) = SyscallFile::read(process, tid)
        && let Some(number) = call.number()
    {
        let place = Place {
            pc: call.pc,
            number: Some(number),
            args: [call.arguments[0], call.arguments[1]],
            link: None,
            stack: [None; STACK_WORDS],
        };
        records.push(record(Event::SwitchOut {
            preempted: false,
            place: Some(Box::new(place)),
        }));
    }
    records
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
        let here = tids.iter().flat_map(|tid| state(process, *tid));
        assert!(here.count() > 0);
        assert_eq!(state(process, Tid(0)), []);
    }
}
