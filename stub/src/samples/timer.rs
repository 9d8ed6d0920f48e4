//! CPU samples by a timer, where the kernel refuses perf events. At each tick, the stub finds the
//! threads that are running, and stops each of them to read its registers and its stack.
//!
//! The kernel counts each thread's processor time. A stop yields one sample for each interval of
//! this time that has passed since the thread's last sample, so that the number of samples stands
//! for the time, as with the kernel's samples. A stack is then the one at the end of these
//! intervals. Threads that end, or that sleep at every tick, leave time without samples; it counts
//! as lost.
//!
//! A thread that was just woken, or that goes to sleep just before it is stopped, has the stack of
//! a wait, which has used no processor time. Such stacks give no samples.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

use crate::sys::schedstat::Schedstat;
use crate::sys::stat::Stat;
use crate::sys::{Tid, monotonic_ns, processor_ns, processor_ns_of};
use crate::thread_events::sample::Sample;
use crate::thread_events::tasks;

use super::Rate;
use super::wire::Encoder;

/// The interval of the ticks is at least this many times the processor time that the last tick
/// took. A stopped thread loses about as much time.
const COST_FACTOR: u32 = 50;

/// A thread that has not run for this many ticks is checked at each `QUIET_INTERVAL`th tick only.
const MAX_QUIET: u32 = 8;
const QUIET_INTERVAL: u32 = 16;

/// Reads a running thread into space for its stack. `None` if it does not run, or may still have
/// the stack of a wait. Keeps the thread's number of waits for the next time.
pub(crate) type Read<'r> = dyn FnMut(Tid, &mut [u8], &mut Option<u64>) -> Option<Reading> + 'r;

/// A thread that was running.
pub(crate) struct Reading {
    /// The values of the registers `arch::SAMPLED`.
    pub(crate) registers: Vec<u64>,
    /// Number of stack bytes.
    pub(crate) length: usize,
    pub(crate) processor: u32,
}

/// A thread as of the last tick that checked it.
#[derive(Default)]
struct Watched {
    /// Its processor time, in nanoseconds.
    used_ns: u64,
    /// The part of it for which there are samples.
    sampled_ns: u64,
    /// The number of ticks since it last ran.
    quiet: u32,
    /// How often it had waited when it was last stopped in a system call.
    waits: Option<u64>,
}

/// A running recording of one process's samples.
pub(crate) struct TimerSamples {
    process: Tid,
    /// Interval of the samples, in nanoseconds of a thread's processor time.
    period_ns: u64,
    threads: HashMap<Tid, Watched>,
    /// When the next tick is due.
    due: Instant,
    /// State of the generator that varies the ticks.
    random: u64,
    /// Processor time of the process when the recording began, and at the last tick.
    first_ns: u64,
    last_ns: u64,
    /// Number of samples taken.
    count: u64,
    /// Number of ticks.
    ticks: u32,
    /// Space for one stack.
    stack: Vec<u8>,
    encoder: Encoder,
}

impl TimerSamples {
    pub(crate) fn new(process: Tid, rate: Rate) -> TimerSamples {
        let first_ns = processor_ns_of(process).unwrap_or(0);
        let watched = |tid| {
            let used_ns = thread_ns(process, tid)?;
            let watched = Watched {
                used_ns,
                sampled_ns: used_ns,
                ..Watched::default()
            };
            Some((tid, watched))
        };
        TimerSamples {
            process,
            period_ns: 1_000_000_000 / rate.hz,
            threads: tasks(process).into_iter().filter_map(watched).collect(),
            due: Instant::now(),
            random: monotonic_ns() | 1,
            first_ns,
            last_ns: first_ns,
            count: 0,
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
        self.threads.retain(|tid, _| alive.contains(tid));
        self.ticks = self.ticks.wrapping_add(1);
        for tid in tids {
            // Most threads of a large program sleep. Check some of them at each tick.
            let watched = self.threads.entry(*tid).or_default();
            watched.quiet = watched.quiet.saturating_add(1);
            let turn = self.ticks.wrapping_add(tid.0.cast_unsigned());
            if watched.quiet > MAX_QUIET && !turn.is_multiple_of(QUIET_INTERVAL) {
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

    /// Samples a thread if its time since the last sample is an interval or more, and if it is
    /// running.
    fn sample(&mut self, tid: Tid, read: &mut Read<'_>, bodies: &mut Bodies) {
        let process = self.process;
        let Some(used_ns) = thread_ns(process, tid) else {
            return;
        };
        let watched = self.threads.entry(tid).or_default();
        if used_ns != std::mem::replace(&mut watched.used_ns, used_ns) {
            watched.quiet = 0;
        }
        let count = used_ns.saturating_sub(watched.sampled_ns) / self.period_ns;
        if count == 0 {
            return;
        }
        let Some(reading) = read(tid, &mut self.stack, &mut watched.waits) else {
            return;
        };
        let time_ns = monotonic_ns();
        watched.sampled_ns += count * self.period_ns;
        self.count += count;
        let [pid, tid] = [self.process, tid].map(|id| id.0.cast_unsigned());
        for earlier in (0..count).rev() {
            let sample = Sample {
                pid,
                tid,
                time_ns: time_ns.saturating_sub(earlier * self.period_ns),
                cpu: reading.processor,
                in_kernel: false,
                registers: reading.registers.clone(),
                stack: &self.stack[..reading.length],
                is_cut: reading.length == self.stack.len(),
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
        let running = self.threads.values();
        let running = running.filter(|watched| watched.quiet <= MAX_QUIET);
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
    let ns = Schedstat::of_thread(process, tid).map(|stat| stat.ran_ns);
    // Kernels without CONFIG_SCHED_INFO have no such statistics.
    ns.or_else(|| {
        let stat = Stat::of_thread(process, tid)?;
        let ticks = stat.number(14)? + stat.number(15)?;
        let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
        Some(ticks * 1_000_000_000 / u64::try_from(per_second).ok()?)
    })
}
