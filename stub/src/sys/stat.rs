//! `/proc/PID/stat` and `/proc/PID/task/TID/stat`.

use super::{Tid, proc_file};

/// The fields of such a file.
pub(crate) struct Stat {
    /// The text, and where the field after the name begins in it.
    text: String,
    after_name: usize,
}

impl Stat {
    /// The fields of a process. `None` if it is gone.
    pub(crate) fn of(process: Tid) -> Option<Stat> {
        Stat::parse(proc_file::read(format!("/proc/{process}/stat")))
    }

    /// The fields of a thread. `None` if it is gone.
    pub(crate) fn of_thread(process: Tid, tid: Tid) -> Option<Stat> {
        Stat::parse(proc_file::read(format!("/proc/{process}/task/{tid}/stat")))
    }

    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Stat> {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // The name may contain anything, even a parenthesis.
        let after_name = text.rfind(") ")? + 2;
        Some(Stat { text, after_name })
    }

    /// A field by its number in proc(5), at least 3.
    pub(crate) fn field(&self, number: usize) -> Option<&str> {
        let fields = self.text[self.after_name..].trim_end();
        fields.split(' ').nth(number.checked_sub(3)?)
    }

    /// A field as a number.
    pub(crate) fn number(&self, number: usize) -> Option<u64> {
        self.field(number)?.parse().ok()
    }

    /// The state's letter, e.g. `b'R'`.
    pub(crate) fn state(&self) -> Option<u8> {
        self.field(3)?.bytes().next()
    }

    /// True for a process that has ended. A first thread that has ended is a zombie, too, but other
    /// threads may be left.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state(), Some(b'Z' | b'X')) && self.number(20).is_none_or(|left| left <= 1)
    }

    /// True for a thread that was killed, by a signal or by the exit of another thread. The kernel
    /// kills it alike in both cases (`PF_SIGNALED` in its `sched.h`).
    pub(crate) fn was_killed(&self) -> bool {
        const SIGNALED: u64 = 0x400;
        self.number(9).is_some_and(|flags| flags & SIGNALED != 0)
    }

    /// When a process was started, in clock ticks.
    pub(crate) fn started(&self) -> Option<u64> {
        self.number(22)
    }

    /// The processor on which the thread ran last.
    pub(crate) fn processor(&self) -> Option<u32> {
        self.field(39)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_name() {
        let stat = |text: &str| Stat::parse(text.into());
        let one = stat("7 (a) R 9) S 1 22\n").unwrap();
        assert_eq!((one.state(), one.number(4)), (Some(b'S'), Some(1)));
        assert_eq!((one.field(5), one.number(6)), (Some("22"), None));
        assert_eq!((one.field(2), one.processor()), (None, None));
        let ended = |state: char, threads: u32| {
            let text = format!(
                "7 (a) b) {state} 1 7 7 0 -1 4194304 103 0 0 0 0 0 0 0 20 0 {threads} 0 987 2621440 211"
            );
            let stat = stat(&text).unwrap();
            (stat.has_ended(), stat.started())
        };
        assert_eq!(ended('S', 1), (false, Some(987)));
        assert_eq!(ended('Z', 1), (true, Some(987)));
        assert_eq!(ended('Z', 2), (false, Some(987)));
        assert!(stat("").is_none() && stat("7 (a)").is_none());
    }
}
