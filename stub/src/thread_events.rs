//! The perf events of all threads of a process, and the rings into which the kernel writes their
//! records. New threads inherit the events of their creator.
//!
//! Separate from the schedule and the samples, which record different events in the same way: each
//! thread has an event for each processor, and all events of a processor write into one ring.

mod drains;
pub(crate) mod record;
mod refusal;
pub(crate) mod sample;
pub(crate) mod wire;

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;

use nix::errno::Errno;

use crate::sys::Tid;
use crate::sys::perf::{self, MoreDescriptors, Ring, Watermarks};

pub(crate) use drains::{Drains, apart};
pub(crate) use refusal::Refusal;

/// The rings take at most the fraction `1 / MEMORY_PART` of the system's memory.
const MEMORY_PART: u64 = 64;
/// Maximum number of times that the thread list is read to find new threads.
const MAX_LISTINGS: usize = 16;

/// Sizes of rings in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLimits {
    /// Maximum size of all rings together.
    pub(crate) total: u64,
    /// Maximum size of one ring.
    pub(crate) most: u64,
    /// Minimum size of one ring.
    pub(crate) least: u64,
}

/// Opens the event of a thread on one processor. The third argument is true if only threads, and
/// not processes, should inherit the event; the last is the ring's watermark in bytes.
pub(crate) type Open<'o> = dyn Fn(Tid, u32, bool, u32) -> Result<OwnedFd, Errno> + 'o;

/// The threads that get the events of their creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heirs {
    /// New threads of the process.
    Threads,
    /// Also the processes that it creates.
    Processes,
}

/// The open events of all threads of a process, or of the system.
pub(crate) struct ThreadEvents {
    /// The rings, one for each processor that is online.
    pub(crate) rings: Vec<Ring>,
    /// Events that write into the ring of another event.
    pub(crate) events: Vec<OwnedFd>,
    /// The threads that existed when the events were opened.
    pub(crate) threads: Vec<Tid>,
    /// Processor of each ring.
    processors: Vec<u32>,
    /// Only threads inherit the events, not child processes.
    threads_only: bool,
    limits: RingLimits,
    /// Size of each ring in bytes.
    size: u64,
}

impl ThreadEvents {
    /// Opens the events of all threads of a process.
    pub(crate) fn open(
        process: Tid,
        limits: RingLimits,
        heirs: Heirs,
        open: &Open<'_>,
    ) -> Result<ThreadEvents, Refusal> {
        let _more = MoreDescriptors::allow();
        let mut opened = ThreadEvents::new(limits, heirs == Heirs::Threads);
        // New threads inherit the events of their creator. Threads whose creator has no events yet
        // can appear meanwhile, so list again.
        let mut seen = HashSet::new();
        for _ in 0..MAX_LISTINGS {
            let new = tasks(process).into_iter();
            let new: Vec<Tid> = new.filter(|tid| seen.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                let added = match opened.rings.is_empty() {
                    true => opened.add_first(tid, open),
                    false => opened.add(tid, open).map_err(Refusal::of),
                };
                match added {
                    Ok(()) => opened.threads.push(tid),
                    // The thread has ended.
                    Err(Refusal::Other(Errno::ESRCH)) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
        }
        match opened.rings.is_empty() {
            true => Err(Refusal::Other(Errno::ESRCH)),
            false => Ok(opened),
        }
    }

    /// Opens an event for all threads of the system on each processor. `open` gets no thread's id.
    pub(crate) fn open_for_processors(
        limits: RingLimits,
        open: &Open<'_>,
    ) -> Result<ThreadEvents, Refusal> {
        const ALL_THREADS: Tid = Tid(-1);
        let _more = MoreDescriptors::allow();
        let mut opened = ThreadEvents::new(limits, false);
        opened.add_first(ALL_THREADS, open)?;
        Ok(opened)
    }

    fn new(limits: RingLimits, threads_only: bool) -> ThreadEvents {
        ThreadEvents {
            rings: Vec::new(),
            events: Vec::new(),
            threads: Vec::new(),
            processors: (0..perf::processors()).collect(),
            threads_only,
            limits,
            size: ring_size(perf::processors().into(), limits),
        }
    }

    /// Opens the events of the first thread, one for each processor, and their rings. If there is
    /// not enough memory for all rings, all are made smaller.
    fn add_first(&mut self, tid: Tid, open: &Open<'_>) -> Result<(), Refusal> {
        loop {
            match self.open_rings(tid, open) {
                Err(Refusal::LockedMemory) if self.size / 2 >= self.limits.least => self.size /= 2,
                opened => return opened,
            }
        }
    }

    fn open_rings(&mut self, tid: Tid, open: &Open<'_>) -> Result<(), Refusal> {
        let mut rings = Vec::new();
        let mut online = Vec::new();
        for cpu in self.processors.clone() {
            match self.open_ring(tid, cpu, open) {
                Ok(ring) => rings.push(ring),
                // This processor is offline.
                Err(Refusal::Other(Errno::ENODEV)) => continue,
                Err(refusal) => return Err(refusal),
            }
            online.push(cpu);
        }
        (self.rings, self.processors) = (rings, online);
        Ok(())
    }

    fn open_ring(&mut self, tid: Tid, cpu: u32, open: &Open<'_>) -> Result<Ring, Refusal> {
        loop {
            match open(tid, cpu, self.threads_only, self.watermark()) {
                // Before Linux 5.13 child processes inherit events, too. Their records are skipped.
                Err(Errno::EINVAL) if self.threads_only => self.threads_only = false,
                Err(errno) => return Err(Refusal::of(errno)),
                Ok(event) => match Ring::map(event, self.size as usize) {
                    Ok(ring) => return Ok(ring),
                    Err(Errno::EPERM | Errno::ENOMEM) => return Err(Refusal::LockedMemory),
                    Err(errno) => return Err(Refusal::of(errno)),
                },
            }
        }
    }

    /// Opens the events of another thread, which write into the existing rings.
    fn add(&mut self, tid: Tid, open: &Open<'_>) -> Result<(), Errno> {
        let threads_only = self.threads_only;
        self.add_on_each(&|cpu, watermark| open(tid, cpu, threads_only, watermark))
    }

    fn add_on_each(
        &mut self,
        open: &dyn Fn(u32, u32) -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        for (cpu, ring) in self.processors.iter().zip(&self.rings) {
            let event = open(*cpu, self.watermark())?;
            ring.take_output_of(&event)?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Adds events, or none if that fails.
    fn add_all(&mut self, add: impl FnOnce(&mut Self) -> Result<(), Errno>) -> Result<(), Errno> {
        let _more = MoreDescriptors::allow();
        let before = self.events.len();
        let added = add(self);
        if added.is_err() {
            self.events.truncate(before);
        }
        added
    }

    /// Opens another event for each thread, with heirs of its own. Threads that were created since
    /// the first event was opened may have no such event.
    pub(crate) fn add_for_threads(&mut self, heirs: Heirs, open: &Open<'_>) -> Result<(), Errno> {
        match self.add_for(heirs == Heirs::Threads, open) {
            // Before Linux 5.13 child processes inherit events, too.
            Err(Errno::EINVAL) if heirs == Heirs::Threads => self.add_for(false, open),
            added => added,
        }
    }

    fn add_for(&mut self, threads_only: bool, open: &Open<'_>) -> Result<(), Errno> {
        self.add_all(|opened| {
            for tid in opened.threads.clone() {
                match opened.add_on_each(&|cpu, watermark| open(tid, cpu, threads_only, watermark))
                {
                    // The thread has ended.
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(())
        })
    }

    /// Opens an event for all threads of the system on each processor. `open` gets the processor
    /// and the watermark.
    pub(crate) fn add_for_processors(
        &mut self,
        open: &dyn Fn(u32, u32) -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        self.add_all(|opened| opened.add_on_each(open))
    }

    /// The rings with their processors.
    pub(crate) fn by_processor(&self) -> impl Iterator<Item = (u32, &Ring)> {
        self.processors.iter().copied().zip(&self.rings)
    }

    /// A descriptor that becomes readable when a ring has reached its watermark.
    pub(crate) fn watermarks(&self) -> Result<Watermarks, Refusal> {
        let watermarks = Watermarks::new().map_err(Refusal::Other)?;
        for ring in &self.rings {
            watermarks.watch(ring).map_err(Refusal::Other)?;
        }
        Ok(watermarks)
    }

    fn watermark(&self) -> u32 {
        u32::try_from(self.size / 4).unwrap_or(u32::MAX)
    }
}

/// The size of each ring in bytes, a power of two.
fn ring_size(rings: u64, limits: RingLimits) -> u64 {
    let total = limits.total.min(perf::memory_size() / MEMORY_PART);
    let least = limits.least.max(perf::page_size() as u64);
    let size = (total / rings.max(1)).clamp(least, limits.most.max(least));
    match size.is_power_of_two() {
        true => size,
        false => size.next_power_of_two() / 2,
    }
}

/// The threads of a process.
pub(crate) fn tasks(process: Tid) -> Vec<Tid> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let names = entries.into_iter().flatten();
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| name.parse().ok().map(Tid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_into_the_limit() {
        let limits = RingLimits {
            total: 8 << 20,
            most: 4 << 20,
            least: 16 << 10,
        };
        for rings in [1, 2, 3, 4, 64, 1000] {
            let size = ring_size(rings, limits);
            assert!(size.is_power_of_two(), "{size}");
            let least = limits.least.max(perf::page_size() as u64);
            assert!(size * rings <= limits.total || size <= least);
        }
    }
}
