//! The operating system: the only place in the workspace with `unsafe` code.
//!
//! Each function is one kernel facility with typed arguments, and an [`Errno`](nix::errno::Errno)
//! on failure. Nothing here knows about breakpoints or packets. `ESRCH` is a normal result
//! everywhere, because a traced thread may be killed between any two calls.

#![allow(unsafe_code)]

pub(crate) mod bpf;
pub(crate) mod fork;
pub(crate) mod launch;
pub(crate) mod maps;
pub(crate) mod memfd;
pub(crate) mod memory;
pub(crate) mod perf;
pub(crate) mod proc_file;
pub(crate) mod ptrace;
pub(crate) mod schedstat;
pub(crate) mod scheduling;
pub(crate) mod signals;
pub(crate) mod stat;
pub(crate) mod syscall_file;
pub(crate) mod tracefs;
pub(crate) mod wait;

use std::fmt;
use std::os::fd::{FromRawFd, OwnedFd};

/// A kernel thread id. The id of a process is that of its first thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Tid(pub(crate) i32);

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Takes over a descriptor that was open when this process started. `None` if it is not open.
///
/// Call it once for each number, before anything else uses that number.
pub(crate) fn inherited(number: i32) -> Option<OwnedFd> {
    // SAFETY: the call only reads flags, and fails if the descriptor is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // SAFETY: the descriptor is open, and the command line says that it is ours.
    (flags >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// The monotonic clock, in nanoseconds. It is the clock of `Instant`, which has no numeric value.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The processor's clock: the time stamp counter, or the virtual counter. On ARM it is readable
/// only if [`ticks_can_be_read`].
pub(crate) fn ticks() -> u64 {
    // SAFETY: it reads a register. Every x86-64 processor has it, and Linux lets AArch64 programs
    // read theirs, or reads it for them.
    unsafe { crate::arch::ticks!() }
}

/// Whether the kernel lets programs read the processor's clock. A child process tries it.
#[allow(dead_code, reason = "only ARM has to ask")]
pub(crate) fn ticks_can_be_read() -> bool {
    // SAFETY: the child only reads a register and exits.
    match unsafe { libc::fork() } {
        0 => {
            ticks();
            // SAFETY: the child exits here.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the kernel writes one int.
            child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child && status == 0
        }
    }
}

/// Processor time that this process has used, in nanoseconds.
pub(crate) fn processor_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time that all threads of another process have used, in nanoseconds. `None` if the
/// process has ended.
pub(crate) fn processor_ns_of(process: Tid) -> Option<u64> {
    // The kernel's clock id, computed as clock_getcpuclockid(3) does.
    const SCHEDULED: libc::clockid_t = 2;
    Some(clock_ns(!process.0 << 3 | SCHEDULED)).filter(|ns| *ns != 0)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A field of `/proc/PID/status`, if it can be parsed as this type.
pub(crate) fn status_field<T: std::str::FromStr>(status: &str, name: &str) -> Option<T> {
    let values = status.lines().find_map(|line| line.strip_prefix(name));
    values?.strip_prefix(':')?.trim().parse().ok()
}

/// A time in seconds since 1970 as text in the local time zone.
pub(crate) fn local_time(seconds: libc::time_t) -> String {
    // ctime_r(3) writes 26 bytes.
    let mut text = [0u8; 32];
    // SAFETY: the buffer is large enough.
    unsafe { libc::ctime_r(&raw const seconds, text.as_mut_ptr().cast()) };
    let text = text.split(|byte| matches!(byte, 0 | b'\n')).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// The output of C's printf for one integer: an `int`, or 64 bits if `wide`.
#[cfg(test)]
pub(crate) fn printed(format: &str, value: i64, wide: bool) -> Vec<u8> {
    let format = std::ffi::CString::new(format).unwrap_or_default();
    let mut text = [0_u8; 256];
    let into = text.as_mut_ptr().cast();
    // SAFETY: snprintf writes at most `text.len()` bytes, and the callers' formats have one
    // directive for one integer of this size.
    let length = unsafe {
        match wide {
            true => libc::snprintf(into, text.len(), format.as_ptr(), value),
            false => libc::snprintf(into, text.len(), format.as_ptr(), value as libc::c_int),
        }
    };
    text[..length as usize].to_vec()
}
