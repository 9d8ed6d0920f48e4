//! One turn of the event loop, and the time since when an event may have waited for it.
//!
//! A thread that traps is stopped until this process looks for stopped threads. A turn may be long,
//! so a stop that this turn sees may have waited since the last turn looked. If the process slept
//! in between, no stop waited when it fell asleep. But it may wake up late on a busy machine. The
//! kernel does not report when this process became runnable. It counts the total time that a
//! thread has waited for a processor.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::monotonic_ns;
use super::schedstat::Schedstat;

/// Minimum duration of a sleep after which a late wake-up matters, in nanoseconds.
const MIN_LATE_SLEEP: u64 = 1_000_000;
/// Maximum duration of a sleep that may have been none, in nanoseconds: an event waited already.
const MAX_NO_SLEEP: u64 = 50_000;

pub(crate) struct Turn {
    schedstat: Option<File>,
    /// Total time that the thread had waited for a processor before it slept, in nanoseconds.
    waited: u64,
    asleep: u64,
    /// The time since which an event may have waited for this turn.
    begun: u64,
    /// The time of the last look for stopped threads.
    looked: u64,
    /// This turn has looked for stopped threads.
    has_looked: bool,
}

impl Turn {
    /// Begins the first turn.
    pub(crate) fn new() -> Turn {
        let now = monotonic_ns();
        Turn {
            schedstat: File::open("/proc/thread-self/schedstat").ok(),
            waited: 0,
            asleep: 0,
            begun: now,
            looked: now,
            has_looked: true,
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
        let slept = now.saturating_sub(self.asleep);
        self.begun = if !std::mem::take(&mut self.has_looked) || slept <= MAX_NO_SLEEP {
            self.looked
        } else if slept >= MIN_LATE_SLEEP {
            let late = self.has_waited().saturating_sub(self.waited);
            now.saturating_sub(late).max(self.asleep)
        } else {
            now
        };
    }

    /// Notes that this turn is about to look for stopped threads.
    pub(crate) fn look(&mut self) {
        self.looked = monotonic_ns();
        self.has_looked = true;
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

    #[test]
    fn a_stop_may_have_waited_since_the_last_look() {
        let nap = || std::thread::sleep(Duration::from_millis(5));
        let mut turn = Turn::new();
        turn.look();
        let looked = monotonic_ns();
        // A long turn, and no sleep after it.
        nap();
        turn.sleep();
        turn.wake();
        assert!(turn.so_far().0 <= looked);
        // A turn that does not look, because a client must read first.
        turn.sleep();
        nap();
        turn.wake();
        assert!(turn.so_far().0 <= looked);
        turn.look();
        let looked = monotonic_ns();
        nap();
        turn.sleep();
        nap();
        turn.wake();
        assert!(turn.so_far().0 > looked);
    }

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
            turn.look();
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
