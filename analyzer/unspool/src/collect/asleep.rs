//! Whether a thread sleeps in the kernel, as its files in `/proc` show it (proc(5)).

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
    /// A tracer has stopped it, or it is in an uninterruptible wait.
    Stopped,
}

impl Asleep {
    /// Parses a thread's `status` and `syscall` files (proc(5)). `syscall` holds the number,
    /// arguments, stack pointer and program counter: `202 0x7f30 0x80 0x2 0x0 0x0 0x0 0x7ffd
    /// 0x7f31`. It says `running` for a running thread and for a woken thread that waits for a
    /// processor.
    pub(super) fn read(status: &str, call: &str) -> Option<Asleep> {
        let state = field(status, "State:")?.trim_start().chars().next()?;
        matches!(state, 'S' | 'T').then_some(())?;
        let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
        let [Some(own), Some(forced)] =
            switches.map(|name| field(status, name)?.trim().parse().ok())
        else {
            return None;
        };
        let words: Vec<&str> = call.split_whitespace().collect();
        let [number, first, second, .., sp, _] = words[..] else {
            return None;
        };
        let hexadecimal = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        Some(Asleep {
            is_stopped: state == 'T',
            switches: [own, forced],
            number: number.parse().ok()?,
            args: [hexadecimal(first)?, hexadecimal(second)?],
            sp: hexadecimal(sp)?,
        })
    }
}

impl Rest {
    /// Parses a thread's `status` and `syscall` files. `None` if the thread runs.
    pub(super) fn read(status: &str, call: &str) -> Option<Rest> {
        let is_in = |state: &str| field(status, state).is_some();
        match is_in("State:\tD") || is_in("State:\tt") {
            true => Some(Rest::Stopped),
            false => Asleep::read(status, call).map(Rest::Asleep),
        }
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
