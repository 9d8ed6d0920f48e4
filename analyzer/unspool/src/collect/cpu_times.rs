//! Samples the threads' processor times from the kernel's counters while the program runs.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use unspool_capture::{CpuTime, CpuTimes};

use super::kernel_state;
use super::local_process::text;
use super::schedule::ScheduleRecording;
use super::server_clock::ServerClock;
use super::session::{ANSWER_TIMEOUT, Session};
use super::sink::Sink;
use super::threads::Threads;

/// Interval between samples, unless one sample takes too long.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum ratio of the interval to the processor time of one sample.
const COST_FACTOR: u32 = 100;
/// Minimum ratio of the interval to the response time of a remote server.
const REMOTE_COST_FACTOR: u32 = 10;
/// Maximum number of samples while a recording doubles its length.
const MAX_SAMPLES_PER_DOUBLING: u32 = 2000;

/// The sampling of processor times.
pub(super) struct CpuSampling {
    begun: Instant,
    due: Instant,
    /// The recording's time of the latest sample.
    asked_ns: Option<u64>,
    /// Per thread, its time on a processor and its time waiting for one.
    last: HashMap<u64, (u64, u64)>,
    /// Threads that have not run for some time: since when, and whether their state is recorded.
    idle: HashMap<u64, (u64, bool)>,
    /// Per thread, the program counter and stack pointer of its latest state in the kernel.
    places: HashMap<u64, (u64, u64)>,
}

impl CpuSampling {
    pub(super) fn new() -> CpuSampling {
        let now = Instant::now();
        CpuSampling {
            begun: now,
            due: now,
            asked_ns: None,
            last: HashMap::new(),
            idle: HashMap::new(),
            places: HashMap::new(),
        }
    }

    /// True if the next sample is due.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Skips this sample.
    pub(super) fn skip(&mut self) {
        self.due = Instant::now() + SAMPLE_INTERVAL;
    }

    /// Records why threads wait in the kernel if the schedule shows that they wait for a long time.
    pub(super) fn sample_waits(
        &mut self,
        session: &Session,
        sink: &mut Sink,
        schedule: &mut ScheduleRecording,
    ) {
        self.skip();
        let blocked = schedule.long_blocked(sink.now_ns());
        for tid in kernel_state::record_blocked(session, sink, &mut self.places, &blocked) {
            schedule.was_read(tid);
        }
    }

    /// Records the threads' processor times, if they can be read.
    pub(super) fn sample(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        threads: &Threads,
        clock: &ServerClock,
    ) {
        let (asked, had) = (Instant::now(), own_cpu_time());
        let Some((time_ns, times)) = times(session, sink, threads, clock) else {
            // Most likely the program is about to end.
            self.due = asked + SAMPLE_INTERVAL;
            return;
        };
        let last = &mut self.last;
        let now: HashMap<u64, (u64, u64)> = times
            .iter()
            .map(|time| (time.tid, (time.on_cpu_ns, time.runnable_ns)))
            .collect();
        let has_changed = |time: &CpuTime| last.get(&time.tid) != now.get(&time.tid);
        let changed: Vec<CpuTime> = times.into_iter().filter(has_changed).collect();
        let before = self.asked_ns.replace(time_ns);
        let idle = &mut self.idle;
        idle.retain(|tid, _| now.contains_key(tid));
        self.places.retain(|tid, _| now.contains_key(tid));
        for tid in changed.iter().map(|time| &time.tid) {
            idle.remove(tid);
        }
        let ran: HashSet<u64> = changed.iter().map(|time| time.tid).collect();
        let since = before.unwrap_or(time_ns);
        for tid in now.keys().filter(|tid| !ran.contains(*tid)) {
            idle.entry(*tid).or_insert((since, false));
        }
        let unknown = idle.iter().filter(|(_, (_, noted))| !noted);
        let unknown: Vec<(u64, u64)> = unknown.map(|(tid, (since, _))| (*tid, *since)).collect();
        *last = now;
        sink.record(CpuTimes {
            time_ns,
            threads: changed,
        });
        for tid in kernel_state::record_blocked(session, sink, &mut self.places, &unknown) {
            if let Some((_, noted)) = self.idle.get_mut(&tid) {
                *noted = true;
            }
        }
        let cost = match session.local {
            true => own_cpu_time().saturating_sub(had) * COST_FACTOR,
            false => asked.elapsed() * REMOTE_COST_FACTOR,
        };
        let pause = cost
            .max(self.begun.elapsed() / MAX_SAMPLES_PER_DOUBLING)
            .max(SAMPLE_INTERVAL);
        self.due = Instant::now() + pause;
    }
}

/// The threads' processor times, and the time at which they were read.
fn times(
    session: &mut Session,
    sink: &Sink,
    threads: &Threads,
    clock: &ServerClock,
) -> Option<(u64, Vec<CpuTime>)> {
    if session.local {
        let pid = session.pid?;
        let time_ns = sink.now_ns();
        let ids = threads.ids();
        let times = ids.iter().filter_map(|id| local(pid, id.tid));
        let times: Vec<CpuTime> = times.collect();
        return (!times.is_empty()).then_some((time_ns, times));
    }
    if !session.observes {
        // A client that controls the program cannot send requests while it runs.
        return None;
    }
    let (server_ns, times) = session.client.thread_times(ANSWER_TIMEOUT).ok()??;
    let time_ns = clock.sent(Some(server_ns), Duration::ZERO);
    Some((time_ns, times.into_iter().map(of_server).collect()))
}

/// A server's answer as a record.
pub(super) fn of_server(times: unspool_rsp::ThreadTimes) -> CpuTime {
    CpuTime {
        tid: times.tid,
        on_cpu_ns: times.on_cpu_ns,
        runnable_ns: times.runnable_ns,
    }
}

/// Processor time of the current thread.
fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Processor times of a local thread.
pub(super) fn local(pid: u64, tid: u64) -> Option<CpuTime> {
    let text = text(&format!("/proc/{pid}/task/{tid}/schedstat"))?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(CpuTime {
        tid,
        on_cpu_ns: numbers.next()?.ok()?,
        runnable_ns: numbers.next()?.ok()?,
    })
}
