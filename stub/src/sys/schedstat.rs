//! `/proc/PID/task/TID/schedstat` (Documentation/scheduler/sched-stats), if the kernel has these
//! statistics.

use super::{Tid, proc_file};

/// What a thread has had of the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Schedstat {
    /// Time on a processor, in nanoseconds.
    pub(crate) ran_ns: u64,
    /// Time waiting for a processor, in nanoseconds.
    pub(crate) waited_ns: u64,
    /// How often it got a processor.
    pub(crate) turns: u64,
}

impl Schedstat {
    /// `None` if the thread is gone, or if the kernel has no such files.
    pub(crate) fn of_thread(process: Tid, tid: Tid) -> Option<Schedstat> {
        let text = proc_file::read(format!("/proc/{process}/task/{tid}/schedstat"));
        Schedstat::parse(&text)
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Schedstat> {
        let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut next = || numbers.next()?.parse().ok();
        Some(Schedstat {
            ran_ns: next()?,
            waited_ns: next()?,
            turns: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_numbers() {
        let stat = Schedstat::parse(b"812 34 5\n").unwrap();
        assert_eq!((stat.ran_ns, stat.waited_ns, stat.turns), (812, 34, 5));
        assert_eq!(Schedstat::parse(b""), None);
    }
}
