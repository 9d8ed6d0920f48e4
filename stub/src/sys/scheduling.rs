//! One turn of the event loop, and the time since when an event may have waited for it.
//!
//! A thread that traps is stopped until this process runs, which may take a while on a busy
//! machine. The kernel does not report when this process became runnable. But it counts the total
//! time that a thread has waited for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::monotonic_ns;
use super::schedstat::Schedstat;

/// Minimum duration of a sleep after which a late wake-up matters, in nanoseconds.
const MIN_LATE_SLEEP: u64 = 1_000_000;

pub(crate) struct Turn {
    schedstat: Option<File>,
    /// Total time that the thread had waited for a processor before it slept, in nanoseconds.
    waited: u64,
    asleep: u64,
    begun: u64,
}

impl Turn {
    /// Begins the first turn.
    pub(crate) fn new() -> Turn {
        Turn {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            waited: 0,
            asleep: 0,
            begun: monotonic_ns(),
        }
    }

    /// Ends the turn: the thread is about to wait for an event.
    pub(crate) fn sleep(&mut self) {
        self.waited = self.has_waited();
        self.asleep = monotonic_ns();
    }

    /// Begins a turn when the event came: the wait for a processor counts as part of it.
    pub(crate) fn wake(&mut self) {
        let now = monotonic_ns();
        self.begun = now;
        if now - self.asleep >= MIN_LATE_SLEEP {
            let late = self.has_waited().saturating_sub(self.waited);
            self.begun = now.saturating_sub(late).max(self.asleep);
        }
    }

    /// The start of this turn, and the current time, in nanoseconds of the monotonic clock.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        (self.begun, monotonic_ns())
    }

    fn has_waited(&self) -> u64 {
        let mut bytes = [0; 64];
        let read = self
            .schedstat
            .as_ref()
            .map(|file| file.read_at(&mut bytes, 0));
        let Some(Ok(length)) = read else { return 0 };
        Schedstat::parse(&bytes[..length]).map_or(0, |stat| stat.waited_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    /// This thread has low priority, and shares one processor with three busy threads.
    #[test]
    fn late_wake_up_is_measured() {
        let mut one = [0u8; 128];
        // SAFETY: the kernel writes at most the given number of bytes.
        unsafe { libc::sched_getaffinity(0, one.len(), one.as_mut_ptr().cast()) };
        let first = one.iter().position(|byte| *byte != 0).unwrap();
        let bit = one[first] & one[first].wrapping_neg();
        one.fill(0);
        one[first] = bit;
        // SAFETY: the kernel reads at most the given number of bytes.
        unsafe { libc::sched_setaffinity(0, one.len(), one.as_ptr().cast()) };
        let over = Arc::new(AtomicBool::new(false));
        let busy = [(); 3].map(|()| {
            let over = over.clone();
            std::thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        });
        // SAFETY: the call only changes the priority of this thread.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        let mut turn = Turn::new();
        let late = (0..1000).any(|_| {
            turn.sleep();
            std::thread::sleep(Duration::from_millis(2));
            turn.wake();
            let (begun, now) = turn.so_far();
            now - begun >= MIN_LATE_SLEEP
        });
        over.store(true, Ordering::Relaxed);
        for thread in busy {
            thread.join().unwrap();
        }
        assert!(late);
    }
}
