//! What threads have of the processors, by the kernel's account: asked for now and then, while the program runs.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use unspool_capture::{CpuTime, CpuTimes};

use super::link::ANSWER_TIMEOUT;
use super::recorder::Recorder;

/// Interval between samples, unless one sample takes too long.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// The interval is at least the processor time of one sample times this.
const COST_FACTOR: u32 = 100;
/// The same for a remote server, in terms of the time until the answer.
const REMOTE_COST_FACTOR: u32 = 10;
/// Samples taken while a recording doubles its length, at most.
const MAX_SAMPLES_PER_DOUBLING: u32 = 2000;

/// When it is asked for next, and what was heard last.
pub(super) struct CpuSampling {
    begun: Instant,
    due: Instant,
    /// When it was asked last, in the recording's time.
    asked_ns: Option<u64>,
    /// Per thread, its time on a processor and waiting for one.
    last: HashMap<u64, (u64, u64)>,
    /// Threads that have not run since that time, and whether it is noted what they do meanwhile.
    idle: HashMap<u64, (u64, bool)>,
    /// Per thread, program counter and stack pointer when it was last seen in the kernel.
    pub(super) places: HashMap<u64, (u64, u64)>,
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
}

impl Recorder {
    /// Notes what threads have had of the processors, if it is time to.
    pub(super) fn note_cpu_times_if_due(&mut self) {
        if Instant::now() >= self.cpu.due {
            self.note_cpu_times();
            self.note_short_stops();
        }
    }

    /// The same at any time. Where nobody knows, nothing is noted.
    pub(super) fn note_cpu_times(&mut self) {
        if self.schedule.is_on {
            self.note_kernel_waits();
            self.cpu.due = Instant::now() + SAMPLE_INTERVAL;
            return;
        }
        if !self.calls.are_wanted() {
            return;
        }
        let (asked, had) = (Instant::now(), own_cpu_time());
        let Some((time_ns, times)) = self.cpu_times() else {
            // Neither will they know later; but the program may be about to end.
            self.cpu.due = asked + SAMPLE_INTERVAL;
            return;
        };
        let last = &mut self.cpu.last;
        let now: HashMap<u64, (u64, u64)> = times
            .iter()
            .map(|time| (time.tid, (time.on_cpu_ns, time.runnable_ns)))
            .collect();
        let is_news = |time: &CpuTime| last.get(&time.tid) != now.get(&time.tid);
        let threads: Vec<CpuTime> = times.into_iter().filter(is_news).collect();
        let before = self.cpu.asked_ns.replace(time_ns);
        let idle = &mut self.cpu.idle;
        idle.retain(|tid, _| now.contains_key(tid));
        self.cpu.places.retain(|tid, _| now.contains_key(tid));
        for tid in threads.iter().map(|time| &time.tid) {
            idle.remove(tid);
        }
        let ran: HashSet<u64> = threads.iter().map(|time| time.tid).collect();
        let since = before.unwrap_or(time_ns);
        for tid in now.keys().filter(|tid| !ran.contains(*tid)) {
            idle.entry(*tid).or_insert((since, false));
        }
        let unknown = idle.iter().filter(|(_, (_, noted))| !noted);
        let unknown: Vec<(u64, u64)> = unknown.map(|(tid, (since, _))| (*tid, *since)).collect();
        *last = now;
        self.sink.record(CpuTimes { time_ns, threads });
        for tid in self.note_blocked(&unknown) {
            if let Some((_, noted)) = self.cpu.idle.get_mut(&tid) {
                *noted = true;
            }
        }
        let cost = match self.session.local {
            true => own_cpu_time().saturating_sub(had) * COST_FACTOR,
            false => asked.elapsed() * REMOTE_COST_FACTOR,
        };
        let pause = cost
            .max(self.cpu.begun.elapsed() / MAX_SAMPLES_PER_DOUBLING)
            .max(SAMPLE_INTERVAL);
        self.cpu.due = Instant::now() + pause;
    }

    fn cpu_times(&mut self) -> Option<(u64, Vec<CpuTime>)> {
        if self.session.local {
            let pid = self.session.pid?;
            let time_ns = self.sink.now_ns();
            let threads = self.threads.ids();
            let times = threads.iter().filter_map(|id| local(pid, id.tid));
            let times: Vec<CpuTime> = times.collect();
            return (!times.is_empty()).then_some((time_ns, times));
        }
        if !self.session.observes {
            // One who controls the program cannot ask while it runs.
            return None;
        }
        let (server_ns, times) = self.session.client.thread_times(ANSWER_TIMEOUT).ok()??;
        let time_ns = self.clock.sent(Some(server_ns), Duration::ZERO);
        let time = |times: unspool_rsp::ThreadTimes| CpuTime {
            tid: times.tid,
            on_cpu_ns: times.on_cpu_ns,
            runnable_ns: times.runnable_ns,
        };
        Some((time_ns, times.into_iter().map(time).collect()))
    }
}

/// What this thread has had of the processors.
fn own_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Of a thread of this machine.
fn local(pid: u64, tid: u64) -> Option<CpuTime> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(CpuTime {
        tid,
        on_cpu_ns: numbers.next()?.ok()?,
        runnable_ns: numbers.next()?.ok()?,
    })
}
