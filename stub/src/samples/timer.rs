//! CPU samples by a timer, where the kernel refuses perf events. At each tick, the stub finds the
//! threads that are running, and stops each of them to read its registers and its stack.
//!
//! The kernel counts each thread's processor time. A stop yields one sample for each interval of
//! this time that has passed since the thread's last sample, so that the number of samples stands
//! for the time, as with the kernel's samples. A stack is then the one at the end of these
//! intervals. Threads that end, or that sleep at every tick, leave time without samples; it counts
//! as lost.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

use crate::sys::stat::Stat;
use crate::sys::{Tid, current_processor, monotonic_ns, processor_ns, processor_ns_of};
use crate::thread_events::tasks;

use super::Rate;
use super::record::Sample;
use super::wire::Encoder;

/// The interval of the ticks is at least this many times the processor time that the last tick
/// took. A stopped thread loses about as much time.
const COST_FACTOR: u32 = 50;

/// A thread on the stub's own processor only waits for it. It is sampled when this many samples are
/// due.
const MAX_DUE: u64 = 4;

/// A thread that has not run at this many ticks is checked at each `QUIET_INTERVAL`th tick only.
const MAX_QUIET: u32 = 8;
const QUIET_INTERVAL: u32 = 16;

/// Reads a thread into space for its stack: the values of the registers `arch::SAMPLED`, and the
/// number of bytes. `None` if the thread is gone.
pub(crate) type Read<'r> = dyn FnMut(Tid, &mut [u8]) -> Option<(Vec<u64>, usize)> + 'r;

/// A running recording of one process's samples.
pub(crate) struct TimerSamples {
    process: Tid,
    /// Interval of the samples, in nanoseconds of a thread's processor time.
    period_ns: u64,
    /// The processor time of each thread for which there are samples, in nanoseconds.
    sampled: HashMap<Tid, u64>,
    /// When the next tick is due.
    due: Instant,
    /// State of the generator that varies the ticks.
    random: u64,
    /// Processor time of the process when the recording began, and at the last tick.
    first_ns: u64,
    last_ns: u64,
    /// Number of samples taken.
    count: u64,
    /// The number of ticks at which each thread has not run since it last ran.
    quiet: HashMap<Tid, u32>,
    /// Number of ticks.
    ticks: u32,
    /// Space for one stack.
    stack: Vec<u8>,
    encoder: Encoder,
}

impl TimerSamples {
    pub(crate) fn new(process: Tid, rate: Rate) -> TimerSamples {
        let first_ns = processor_ns_of(process).unwrap_or(0);
        let threads = tasks(process).into_iter();
        TimerSamples {
            process,
            period_ns: 1_000_000_000 / rate.hz,
            sampled: threads
                .filter_map(|tid| Some((tid, thread_ns(process, tid)?)))
                .collect(),
            due: Instant::now(),
            random: monotonic_ns() | 1,
            first_ns,
            last_ns: first_ns,
            count: 0,
            quiet: HashMap::new(),
            ticks: 0,
            stack: vec![0; rate.stack as usize],
            encoder: Encoder::default(),
        }
    }

    /// The sampled process.
    pub(crate) fn process(&self) -> Tid {
        self.process
    }

    /// When the next tick is due.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Takes samples of all threads of the process, as notification bodies of about `max_bytes`
    /// each.
    pub(crate) fn tick(
        &mut self,
        tids: &[Tid],
        read: &mut Read<'_>,
        max_bytes: usize,
    ) -> Vec<Vec<u8>> {
        let before = processor_ns();
        self.read_total();
        let mut bodies = Bodies {
            body: self.encoder.begin(monotonic_ns()),
            max_bytes,
            full: Vec::new(),
        };
        let alive: HashSet<&Tid> = tids.iter().collect();
        self.sampled.retain(|tid, _| alive.contains(tid));
        self.quiet.retain(|tid, _| alive.contains(tid));
        self.ticks = self.ticks.wrapping_add(1);
        for tid in tids {
            // Most threads of a large program sleep. Check some of them at each tick.
            let quiet = self.quiet.entry(*tid).or_default();
            *quiet += 1;
            let turn = self.ticks.wrapping_add(tid.0.cast_unsigned());
            if *quiet > MAX_QUIET && !turn.is_multiple_of(QUIET_INTERVAL) {
                continue;
            }
            self.sample(*tid, read, &mut bodies);
        }
        let cost = Duration::from_nanos(processor_ns() - before);
        self.due = Instant::now() + self.interval().max(cost * COST_FACTOR);
        bodies.finish(&self.encoder)
    }

    /// The time to the next tick. It varies, so that ticks do not follow a timer of the program.
    fn interval(&mut self) -> Duration {
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_nanos(self.period_ns * 3 / 4 + self.random % (self.period_ns / 2 + 1))
    }

    /// Samples a thread if it is running, and if its time since the last sample is an interval or
    /// more.
    fn sample(&mut self, tid: Tid, read: &mut Read<'_>, bodies: &mut Bodies) {
        let stat = Stat::of_thread(self.process, tid);
        let Some(stat) = stat.filter(|stat| stat.state() == Some(b'R')) else {
            return;
        };
        self.quiet.insert(tid, 0);
        let Some(used_ns) = thread_ns(self.process, tid) else {
            return;
        };
        let sampled = self.sampled.entry(tid).or_default();
        let count = used_ns.saturating_sub(*sampled) / self.period_ns;
        // The timer that wakes the stub may wake a thread for the same processor. It has not run
        // yet, and its stack is that of the wait.
        let processor = stat.processor();
        if count == 0 || count < MAX_DUE && processor == current_processor() {
            return;
        }
        let Some((registers, length)) = read(tid, &mut self.stack) else {
            return;
        };
        let time_ns = monotonic_ns();
        *sampled += count * self.period_ns;
        self.count += count;
        let [pid, tid] = [self.process, tid].map(|id| id.0.cast_unsigned());
        for earlier in (0..count).rev() {
            let sample = Sample {
                pid,
                tid,
                time_ns: time_ns.saturating_sub(earlier * self.period_ns),
                cpu: processor.unwrap_or(0),
                in_kernel: false,
                registers: registers.clone(),
                stack: &self.stack[..length],
                is_cut: length == self.stack.len(),
            };
            match earlier + 1 == count {
                true => self.encoder.sample(&sample, false, &mut bodies.body),
                false => self.encoder.repeat(&sample, &mut bodies.body),
            }
            bodies.send_full(&mut self.encoder);
        }
    }

    fn read_total(&mut self) {
        if let Some(ns) = processor_ns_of(self.process) {
            self.last_ns = ns;
        }
    }

    /// Ends the recording with the number of missing samples, if any is missing.
    pub(crate) fn end(mut self) -> Option<Vec<u8>> {
        self.read_total();
        let all = self.last_ns.saturating_sub(self.first_ns) / self.period_ns;
        // Each thread that runs has used a part of the next interval.
        let running = self.quiet.values().filter(|quiet| **quiet <= MAX_QUIET);
        let lost = all.saturating_sub(self.count + running.count() as u64);
        let mut body = self.encoder.begin(monotonic_ns());
        (lost > 0).then(|| {
            self.encoder.lost(0, lost, false, &mut body);
            body
        })
    }
}

/// Notification bodies that are written.
struct Bodies {
    body: Vec<u8>,
    max_bytes: usize,
    full: Vec<Vec<u8>>,
}

impl Bodies {
    fn send_full(&mut self, encoder: &mut Encoder) {
        if self.body.len() >= self.max_bytes {
            let next = encoder.begin(monotonic_ns());
            self.full.push(std::mem::replace(&mut self.body, next));
        }
    }

    fn finish(mut self, encoder: &Encoder) -> Vec<Vec<u8>> {
        if !encoder.is_empty(&self.body) {
            self.full.push(self.body);
        }
        self.full
    }
}

/// Processor time of a thread, in nanoseconds.
fn thread_ns(process: Tid, tid: Tid) -> Option<u64> {
    let schedstat = fs::read_to_string(format!("/proc/{process}/task/{tid}/schedstat"));
    let schedstat = schedstat.unwrap_or_default();
    let ns = schedstat.split(' ').next().and_then(|ns| ns.parse().ok());
    // Kernels without CONFIG_SCHED_INFO have no such file.
    ns.or_else(|| {
        let stat = Stat::of_thread(process, tid)?;
        let ticks = stat.number(14)? + stat.number(15)?;
        let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
        Some(ticks * 1_000_000_000 / u64::try_from(per_second).ok()?)
    })
}
