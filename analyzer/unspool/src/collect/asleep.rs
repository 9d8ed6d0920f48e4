//! Whether a thread sleeps in the kernel, as its files in `/proc` show it (proc(5)).

use unspool_image::Arch;

use crate::platform::syscall::Call;

/// `/proc/PID/task/TID/syscall` of a thread that is blocked (proc(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SystemCallState {
    pub(super) number: Option<u64>,
    pub(super) args: Vec<u64>,
    pub(super) sp: u64,
    pub(super) pc: u64,
}

impl SystemCallState {
    /// Parses the number, arguments, stack pointer and program counter: `202 0x7f30 0x80 0x2 0x0
    /// 0x0 0x0 0x7ffd 0x7f31`, or `-1 0x7ffd 0x7f31` in no system call. The file says `running` for
    /// a running thread and for a woken thread that waits for a processor.
    pub(super) fn parse(text: &str) -> Option<SystemCallState> {
        let mut words = text.split_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
        let mut values: Vec<u64> = words.map(hex).collect::<Option<_>>()?;
        let (pc, sp) = (values.pop()?, values.pop()?);
        Some(SystemCallState {
            number: u64::try_from(number).ok(),
            args: values,
            sp,
            pc,
        })
    }

    pub(super) fn call(&self) -> Option<Call> {
        Some(Call {
            number: self.number?,
            args: self.args.as_slice().try_into().ok()?,
        })
    }
}

/// A thread that the kernel has put to sleep in a system call, or that a signal has stopped there.
#[derive(Debug, PartialEq, Eq)]
pub struct Asleep {
    /// True if a signal such as SIGSTOP has stopped it. Then a wake-up may have ended the call.
    pub is_stopped: bool,
    /// Number of voluntary and of involuntary context switches.
    switches: [u64; 2],
    /// The call's number.
    pub number: u64,
    /// The call's first two arguments. For a futex call, the first is the futex word's address.
    pub args: [u64; 2],
    pub(super) sp: u64,
}

/// The state of a thread that executes nothing.
#[derive(PartialEq)]
pub(super) enum Rest {
    Asleep(Asleep),
    /// A tracer has stopped it.
    Stopped,
    /// In a wait that no signal ends.
    Uninterruptible,
}

impl Asleep {
    /// Parses a thread's `status` and `syscall` files (proc(5)).
    pub(super) fn read(status: &str, call: &str) -> Option<Asleep> {
        let state = field(status, "State:")?.trim_start().chars().next()?;
        matches!(state, 'S' | 'T').then_some(())?;
        let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
        let [Some(own), Some(forced)] =
            switches.map(|name| field(status, name)?.trim().parse().ok())
        else {
            return None;
        };
        let call = SystemCallState::parse(call)?;
        Some(Asleep {
            is_stopped: state == 'T',
            switches: [own, forced],
            number: call.number?,
            args: *call.args.first_chunk()?,
            sp: call.sp,
        })
    }
}

impl Rest {
    /// Parses a thread's `status` and `syscall` files. `None` if the thread runs.
    pub(super) fn read(status: &str, call: &str) -> Option<Rest> {
        let is_in = |state: &str| field(status, state).is_some();
        if is_in("State:\tD") {
            return Some(Rest::Uninterruptible);
        }
        if is_in("State:\tt") {
            return Some(Rest::Stopped);
        }
        Asleep::read(status, call).map(Rest::Asleep)
    }

    /// The address of the futex at which the thread is asleep.
    pub(super) fn futex(&self, arch: Arch) -> Option<u64> {
        let Rest::Asleep(asleep) = self else {
            return None;
        };
        let call = Call::with_first(asleep.number, &asleep.args);
        Some(call.futex(arch)?.address)
    }
}

/// Returns the rest of a line of `/proc/PID/status`.
pub(super) fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The id of a thread in the innermost of its PID namespaces, which its own program sees (`NSpid`
/// in proc(5)).
pub(super) fn own_tid(status: &str) -> Option<u64> {
    field(status, "NSpid:")?
        .split_whitespace()
        .next_back()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_syscall_files() {
        let word =
            SystemCallState::parse("0 0x3 0x7ffd10 0x1 0x0 0x0 0x0 0x7ffd00 0x7f0010\n").unwrap();
        assert_eq!((word.number, word.args.len()), (Some(0), 6));
        assert_eq!((word.args[0], word.sp, word.pc), (3, 0x7ffd00, 0x7f0010));
        let fault = SystemCallState::parse("-1 0x7ffd00 0x7f0010\n").unwrap();
        assert_eq!((fault.number, fault.pc), (None, 0x7f0010));
        assert_eq!(SystemCallState::parse("running\n"), None);
        assert_eq!(SystemCallState::parse(""), None);
    }
}
