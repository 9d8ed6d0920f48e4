//! Samples of a process's threads: registers and stacks, as the kernel's perf events record them.
//! This stops no thread. Where the kernel refuses, [`TimerSamples`] take the place of [`Samples`].
//!
//! CPU samples are taken at a fixed interval of a thread's processor time. On request, the kernel
//! also samples each thread that blocks, into rings of their own, so that a program that
//! blocks often does not lose CPU samples.
//!
//! The kernel reserves the maximum size of a stack in its ring for each sample. This module sends
//! only the bytes that the kernel has copied, and of these only the words that have changed since
//! the thread's previous sample.

mod limit;
mod timer;
mod wire;

use std::ffi::CStr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;

use crate::arch;
use crate::sys::perf::{self, Ring, SampledStack};
use crate::sys::tracefs::Tracepoints;
use crate::sys::{Tid, monotonic_ns};
use crate::thread_events::record::{HEADER, size_of_record};
use crate::thread_events::sample::{Record, parse};
use crate::thread_events::{Drains, Heirs, Refusal, RingLimits, ThreadEvents, apart};

pub(crate) use timer::{Reading, TimerSamples};

use limit::Limit;
use wire::Encoder;

/// Maximum size of all rings together, in bytes.
const MAX_RING_BYTES: u64 = 32 << 20;
/// Maximum size of all rings of an unprivileged stub, which may lock little memory and needs some
/// for the schedule.
const MAX_UNPRIVILEGED_BYTES: u64 = 4 << 20;
/// Maximum size of all rings of off-CPU samples together, in bytes.
const MAX_OFF_CPU_BYTES: u64 = 16 << 20;
/// Filter for context switches of threads that sleep or are stopped: one of these bits of the old
/// state is set. Other bits are set if a tracer stops the thread, or if another thread takes its
/// processor (Linux, `__trace_sched_switch_state`).
const BLOCKS: &CStr = c"prev_state & 7";
/// Maximum size of a ring, in bytes.
const MAX_RING: u64 = 16 << 20;
/// Minimum number of samples that a ring must hold: CPU samples, and off-CPU samples.
const MIN_RING_SAMPLES: u64 = 8;
const MIN_OFF_CPU_SAMPLES: u64 = 5;
/// Minimum size of a ring, in bytes.
const MIN_RING: u64 = 64 << 10;
/// Maximum time between two notifications.
const INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of samples per second of a thread's processor time.
const MAX_HZ: u64 = 10_000;
/// Maximum size of a stack, in bytes. The kernel's records have at most 64 KiB.
const MAX_STACK: u64 = 0xf000;
/// Maximum number of off-CPU samples per second.
const MAX_OFF_CPU_RATE: u64 = 1_000_000;

/// The requested samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Samples per second of a thread's processor time.
    hz: u64,
    /// Maximum number of bytes of each stack.
    stack: u32,
}

impl Rate {
    /// `None` if a value is out of range. The stack's size is rounded down to words.
    pub(crate) fn new(hz: u64, stack: u64) -> Option<Rate> {
        let stack = stack_size(stack)?;
        (1..=MAX_HZ).contains(&hz).then_some(Rate { hz, stack })
    }
}

/// The requested samples of threads that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffCpuRate {
    /// Maximum number of bytes of each stack.
    stack: u32,
    /// Maximum number of samples per second.
    per_second: u64,
}

impl OffCpuRate {
    /// `None` if a value is out of range. The stack's size is rounded down to words.
    pub(crate) fn new(stack: u64, per_second: u64) -> Option<OffCpuRate> {
        let stack = stack_size(stack)?;
        let valid = (1..=MAX_OFF_CPU_RATE).contains(&per_second);
        valid.then_some(OffCpuRate { stack, per_second })
    }
}

fn stack_size(bytes: u64) -> Option<u32> {
    (8..=MAX_STACK)
        .contains(&bytes)
        .then_some(bytes as u32 & !7)
}

/// Sizes of rings that have room for at least `samples` with at most `stack` bytes each.
fn limits(stack: u32, samples: u64, total: u64) -> RingLimits {
    let record = u64::from(stack) + 512;
    let least = (record * samples).next_power_of_two();
    RingLimits {
        total: match nix::unistd::geteuid().is_root() {
            true => total,
            false => total.min(MAX_UNPRIVILEGED_BYTES),
        },
        most: MAX_RING,
        least: least.max(MIN_RING),
    }
}

/// A running recording of one process's samples.
pub(crate) struct Samples {
    process: u32,
    /// The rings of CPU samples, and then those of off-CPU samples.
    rings: Vec<Ring>,
    /// Number of rings of CPU samples.
    cpu_rings: usize,
    /// Limits the off-CPU samples.
    limit: Option<Limit>,
    /// The rings of off-CPU samples are paused.
    is_paused: bool,
    /// Events that write into the ring of another event.
    events: Vec<OwnedFd>,
    /// Threads are also sampled while they run in the kernel.
    in_kernel: bool,
    encoder: Encoder,
    /// Space for one record.
    buffer: Vec<u8>,
    drains: Drains,
    /// Number of drains that left samples behind. Each begins with another ring, so that a slow
    /// client gets samples of all.
    first: usize,
}

impl Samples {
    /// Begins to sample all threads of a process.
    pub(crate) fn open(process: Tid, rate: Rate) -> Result<Samples, Refusal> {
        let pid = u32::try_from(process.0).map_err(|_| Refusal::Other(Errno::ESRCH))?;
        let open = |in_kernel: bool| {
            let sampled = SampledStack {
                period_ns: 1_000_000_000 / rate.hz,
                registers: arch::SAMPLED,
                stack: rate.stack,
                in_kernel,
            };
            ThreadEvents::open(
                process,
                limits(rate.stack, MIN_RING_SAMPLES, MAX_RING_BYTES),
                Heirs::Threads,
                &move |tid, cpu, threads_only, watermark| {
                    perf::open_samples(tid, cpu, threads_only, watermark, sampled)
                },
            )
        };
        // With `perf_event_paranoid` 2 an unprivileged process may sample only user mode.
        let (opened, in_kernel) = match open(true) {
            Err(Refusal::Forbidden) => (open(false)?, false),
            opened => (opened?, true),
        };
        let drains = Drains::new(opened.watermarks()?, INTERVAL);
        Ok(Samples {
            process: pid,
            cpu_rings: opened.rings.len(),
            rings: opened.rings,
            limit: None,
            is_paused: false,
            events: opened.events,
            in_kernel,
            encoder: Encoder::default(),
            buffer: Vec::new(),
            drains,
            first: 0,
        })
    }

    /// Samples also each thread that blocks. Returns the size of the rings, in bytes.
    pub(crate) fn open_off_cpu(&mut self, rate: OffCpuRate) -> Result<usize, Refusal> {
        if self.limit.is_some() {
            return Err(Refusal::Other(Errno::EBUSY));
        }
        // Not the event of context switches, of which the schedule has one. Linux 6.1 and later
        // writes records of a wrong size if a thread has two such events with different contents
        // (kernel/events/core.c, `do_perf_sw_event` shares one `perf_sample_data`).
        let id = Tracepoints::find().and_then(|all| all.id("sched/sched_switch"));
        let id = id.ok_or(Refusal::Tracefs)?;
        let process = Tid(self.process.cast_signed());
        let sampled = SampledStack {
            period_ns: 1,
            registers: arch::SAMPLED,
            stack: rate.stack,
            in_kernel: true,
        };
        let open = |tid, cpu, threads_only, watermark| {
            let tracepoint = (id, BLOCKS);
            perf::open_tracepoint_samples(tid, cpu, threads_only, watermark, tracepoint, sampled)
        };
        let limits = limits(rate.stack, MIN_OFF_CPU_SAMPLES, MAX_OFF_CPU_BYTES);
        let opened = match ThreadEvents::open(process, limits, Heirs::Threads, &open) {
            // The kernel permits the events of user mode.
            Err(Refusal::Forbidden | Refusal::Paranoid(_)) => return Err(Refusal::Tracepoint),
            opened => opened?,
        };
        self.drains.watch(&opened.rings)?;
        let size = opened.rings.iter().map(Ring::size).sum();
        self.rings.extend(opened.rings);
        self.events.extend(opened.events);
        self.limit = Some(Limit::new(rate.per_second, monotonic_ns()));
        Ok(size)
    }

    /// True if threads are also sampled while they run in the kernel.
    pub(crate) fn has_kernel(&self) -> bool {
        self.in_kernel
    }

    /// The size of all rings, in bytes.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.rings.iter().map(Ring::size).sum()
    }

    /// When the rings are drained.
    pub(crate) fn drains(&self) -> &Drains {
        &self.drains
    }

    /// Takes samples as notification bodies of about `max_bytes` each: all samples if `all` is set,
    /// otherwise one body at most.
    pub(crate) fn take(&mut self, all: bool, max_bytes: usize) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        let mut unfinished = false;
        let mut off_cpu = 0;
        let mut body = self.encoder.begin(monotonic_ns());
        // CPU samples first, because off-CPU samples can be more than the client reads.
        let off_cpu_rings = self.cpu_rings..self.rings.len();
        let order = rotated(0..self.cpu_rings, self.first);
        for at in order.chain(rotated(off_cpu_rings, self.first)) {
            let ring = &self.rings[at];
            let is_off_cpu = at >= self.cpu_rings;
            let (mut position, head) = (ring.tail(), ring.head());
            while position < head {
                let left = usize::try_from(head - position).unwrap_or(usize::MAX);
                let mut header = [0; HEADER];
                ring.copy(position, &mut header);
                let Some(size) = size_of_record(header).filter(|size| *size <= left) else {
                    // The kernel does not write such records. The rest cannot be parsed.
                    self.encoder.lost(0, 1, is_off_cpu, &mut body);
                    position = head;
                    break;
                };
                self.buffer.resize(size, 0);
                ring.copy(position, &mut self.buffer);
                position += size as u64;
                ring.release(position);
                let record = parse(&self.buffer);
                // The samples of child processes count, because they take the kernel as much time.
                let is_sample = matches!(record, Some(Record::Sample(_)));
                off_cpu += u64::from(is_off_cpu && is_sample);
                match record {
                    Some(Record::Sample(sample)) if sample.pid == self.process => {
                        self.encoder.sample(&sample, is_off_cpu, &mut body);
                    }
                    Some(Record::Lost { cpu, count }) => {
                        self.encoder.lost(cpu, count, is_off_cpu, &mut body);
                    }
                    _ => {}
                }
                if body.len() >= max_bytes {
                    let next = self.encoder.begin(monotonic_ns());
                    bodies.push(std::mem::replace(&mut body, next));
                    if !all {
                        unfinished = true;
                        break;
                    }
                }
            }
            ring.release(position);
            if unfinished {
                self.first = self.first.wrapping_add(1);
                break;
            }
        }
        if !self.encoder.is_empty(&body) {
            bodies.push(body);
        }
        self.limit_off_cpu(off_cpu);
        self.drains.drained(unfinished);
        bodies
    }

    /// Pauses or resumes the rings of off-CPU samples, after some samples of them were taken.
    fn limit_off_cpu(&mut self, samples: u64) {
        let Some(limit) = &mut self.limit else { return };
        let is_reached = limit.is_reached(monotonic_ns(), samples);
        if is_reached != self.is_paused {
            self.is_paused = is_reached;
            for ring in &self.rings[self.cpu_rings..] {
                // A kernel that cannot pause loses what does not fit into the rings.
                let _ = ring.pause(is_reached);
            }
        }
    }
}

/// The positions of a range, beginning with another one each time that `first` changes.
fn rotated(range: Range<usize>, first: usize) -> impl Iterator<Item = usize> {
    let length = range.len().max(1);
    let start = range.start;
    range.map(move |at| start + (at - start + first % length) % length)
}

impl Drop for Samples {
    /// Closes the events on a thread of its own, because the kernel takes some time for each.
    fn drop(&mut self) {
        let rings = std::mem::take(&mut self.rings);
        let events = std::mem::take(&mut self.events);
        apart(|| drop((rings, events)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_limited() {
        assert_eq!(Rate::new(0, 8192), None);
        assert_eq!(Rate::new(MAX_HZ + 1, 8192), None);
        assert_eq!(Rate::new(199, 7), None);
        assert_eq!(Rate::new(199, MAX_STACK + 1), None);
        let rate = Rate {
            hz: 199,
            stack: 8192,
        };
        assert_eq!(Rate::new(199, 8199), Some(rate));
        assert_eq!(OffCpuRate::new(8192, 0), None);
        assert_eq!(OffCpuRate::new(8192, MAX_OFF_CPU_RATE + 1), None);
        assert_eq!(OffCpuRate::new(0, 100), None);
    }
    #[test]
    fn each_ring_is_the_first_one_in_turn() {
        let all = |first| rotated(2..5, first).collect::<Vec<_>>();
        assert_eq!((all(0), all(4)), (vec![2, 3, 4], vec![3, 4, 2]));
        assert_eq!(rotated(2..2, 1).count(), 0);
    }
}
