//! When the rings are drained.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::Refusal;
use crate::sys::perf::{Ring, Watermarks};

/// Stack size of the threads that open and close events, in bytes.
const SMALL_STACK: usize = 64 << 10;

/// The drains of all rings of a recording.
pub(crate) struct Drains {
    watermarks: Watermarks,
    /// Maximum time between two drains.
    interval: Duration,
    last: Instant,
    /// The last drain left records behind.
    unfinished: bool,
}

impl Drains {
    pub(crate) fn new(watermarks: Watermarks, interval: Duration) -> Drains {
        Drains {
            watermarks,
            interval,
            last: Instant::now(),
            unfinished: false,
        }
    }

    /// Adds rings.
    pub(crate) fn watch(&self, rings: &[Ring]) -> Result<(), Refusal> {
        let mut rings = rings.iter();
        rings
            .try_for_each(|ring| self.watermarks.watch(ring))
            .map_err(Refusal::Other)
    }

    /// Descriptor that becomes readable when a ring is a quarter full.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.watermarks.as_fd()
    }

    /// The time of the next drain, unless a ring fills up earlier.
    pub(crate) fn due(&self) -> Instant {
        match self.unfinished {
            true => self.last,
            false => self.last + self.interval,
        }
    }

    /// True if the rings should be drained now.
    pub(crate) fn is_due(&self) -> bool {
        self.watermarks.clear() || self.due() <= Instant::now()
    }

    /// Notes the end of a drain, and whether it left records behind.
    pub(crate) fn drained(&mut self, unfinished: bool) {
        (self.last, self.unfinished) = (Instant::now(), unfinished);
    }
}

/// Calls a function on a thread of its own, because the kernel may take 50 ms to open or close
/// events. If no thread can be created, `spawn` drops the function with all that it owns.
pub(crate) fn apart(call: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
    drop(thread.spawn(call));
}
