//! The reasons why the kernel does not record perf events, and the settings that would help.
//! Separate from the events because this file reads system settings.

use std::fs;

use nix::errno::Errno;

/// The reason why there are no events. The message says what to set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The setting `perf_event_paranoid` forbids it.
    #[error(
        "the kernel refuses perf events (kernel.perf_event_paranoid is {0}): set it to 2, or give the \
         stub CAP_PERFMON"
    )]
    Paranoid(i32),
    /// Something other than the setting forbids it.
    #[error(
        "a container, a seccomp filter or a missing right refuses perf_event_open(2): allow it, or give \
         the stub CAP_PERFMON"
    )]
    Forbidden,
    /// The process cannot read the kernel's list of tracepoints, or the kernel has none.
    #[error(
        "the stub cannot read the tracepoint sched_switch in /sys/kernel/tracing: run it as root, \
         and in a container mount tracefs there"
    )]
    Tracefs,
    /// The process may not open events of tracepoints.
    #[error("the kernel does not permit its tracepoint sched_switch: give the stub CAP_PERFMON")]
    Tracepoint,
    /// The kernel was built without perf events.
    #[error("this kernel has no perf events: it needs CONFIG_PERF_EVENTS")]
    Missing,
    /// The process may not lock enough memory for the rings.
    #[error(
        "there is no memory for the kernel's records: raise kernel.perf_event_mlock_kb, or 'ulimit -l'"
    )]
    LockedMemory,
    /// There are not enough file descriptors for all threads and processors.
    #[error(
        "each thread needs a file descriptor for each processor, and the limit is too low: raise \
         'ulimit -n'"
    )]
    Descriptors,
    /// Any other error.
    #[error("the kernel cannot record perf events: {0}")]
    Other(Errno),
}

impl Refusal {
    /// Interprets an error of perf_event_open(2).
    pub(super) fn of(errno: Errno) -> Refusal {
        match errno {
            Errno::EACCES | Errno::EPERM => match paranoid() {
                Some(level) if level > 2 => Refusal::Paranoid(level),
                _ => Refusal::Forbidden,
            },
            Errno::ENOSYS | Errno::ENOENT | Errno::EOPNOTSUPP => Refusal::Missing,
            Errno::EMFILE | Errno::ENFILE => Refusal::Descriptors,
            errno => Refusal::Other(errno),
        }
    }
}

fn paranoid() -> Option<i32> {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}
