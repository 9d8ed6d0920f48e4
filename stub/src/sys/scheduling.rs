//! One turn of the event loop: since when something may have waited for it.
//!
//! A thread that traps stands until this process runs, and on a machine with much to do it is not
//! this process's turn at once. When it became ready to run nobody tells it, but how long it has
//! waited for processors altogether the kernel does: in the second number of `schedstat`
//! (Documentation/scheduler/sched-stats), where it keeps that.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::monotonic_ns;

/// Shorter turns are the usual ones.
const LONG: u64 = 1_000_000;

pub(crate) struct Turn {
    schedstat: Option<File>,
    /// Total time it had waited for processors when it went to sleep.
    waited: u64,
    asleep: u64,
    begun: u64,
}

impl Turn {
    /// The first one, which begins now.
    pub(crate) fn new() -> Turn {
        Turn {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            waited: 0,
            asleep: 0,
            begun: monotonic_ns(),
        }
    }

    /// It is over, until something comes.
    pub(crate) fn sleep(&mut self) {
        self.waited = self.has_waited();
        self.asleep = monotonic_ns();
    }

    /// Something has come: when is told from how late it is.
    pub(crate) fn wake(&mut self) {
        let now = monotonic_ns();
        self.begun = now;
        if now - self.asleep >= LONG {
            let late = self.has_waited().saturating_sub(self.waited);
            self.begun = now.saturating_sub(late).max(self.asleep);
        }
    }

    /// From when to now it has been.
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
        let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
        let second = text.split_ascii_whitespace().nth(1);
        second.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    /// One processor for this thread, which is in no hurry, and three that are.
    #[test]
    fn who_gets_its_turn_late_knows_since_when() {
        let mut one = [0u8; 128];
        // SAFETY: the kernel writes as many bytes as there are, for this thread.
        unsafe { libc::sched_getaffinity(0, one.len(), one.as_mut_ptr().cast()) };
        let first = one.iter().position(|byte| *byte != 0).unwrap();
        let bit = one[first] & one[first].wrapping_neg();
        one.fill(0);
        one[first] = bit;
        // SAFETY: the same, read.
        unsafe { libc::sched_setaffinity(0, one.len(), one.as_ptr().cast()) };
        let over = Arc::new(AtomicBool::new(false));
        let busy = [(); 3].map(|()| {
            let over = over.clone();
            std::thread::spawn(move || while !over.load(Ordering::Relaxed) {})
        });
        // SAFETY: it changes a number of this thread's.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
        let mut turn = Turn::new();
        let late = (0..1000).any(|_| {
            turn.sleep();
            std::thread::sleep(Duration::from_millis(2));
            turn.wake();
            let (begun, now) = turn.so_far();
            now - begun >= LONG
        });
        over.store(true, Ordering::Relaxed);
        for thread in busy {
            thread.join().unwrap();
        }
        assert!(late);
    }
}
