//! The operating system: the only place in the workspace with `unsafe` code.
//!
//! Each function is one kernel facility with typed arguments and an [`Errno`](nix::errno::Errno)
//! on failure; nothing here knows what a breakpoint or a packet is. `ESRCH` is an ordinary
//! answer everywhere: a traced thread may be killed between any two calls.

#![allow(unsafe_code)]

pub(crate) mod fork;
pub(crate) mod launch;
pub(crate) mod maps;
pub(crate) mod memory;
pub(crate) mod perf;
pub(crate) mod ptrace;
pub(crate) mod scheduling;
pub(crate) mod signals;
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

/// Takes over a descriptor that was open when this process was started; `None` if it is not open.
///
/// To be called once for a number, before anything else uses it.
pub(crate) fn inherited(number: i32) -> Option<OwnedFd> {
    // SAFETY: asks only; a descriptor that is not open is an error.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    // SAFETY: it is open, and by the command line's word it is ours.
    (flags >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number) })
}

/// The monotonic clock, in nanoseconds: the one that `Instant` shows no number of.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// The processor's clock: the time stamp counter, the virtual counter. On ARM only where
/// [`ticks_can_be_read`].
pub(crate) fn ticks() -> u64 {
    // SAFETY: it reads a register, which every x86-64 processor has; Linux lets AArch64 programs
    // read theirs, or reads it for them.
    unsafe { crate::arch::ticks!() }
}

/// Whether the kernel lets programs read that clock: a child tries.
#[allow(dead_code, reason = "only ARM has to ask")]
pub(crate) fn ticks_can_be_read() -> bool {
    // SAFETY: the child does nothing but read a register and end.
    match unsafe { libc::fork() } {
        0 => {
            ticks();
            // SAFETY: it ends here.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = -1;
            // SAFETY: the kernel writes one int.
            child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child && status == 0
        }
    }
}

/// The processor time that this process has used.
pub(crate) fn processor_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// The processor time that another process has used, all its threads; `None` if it is gone.
pub(crate) fn processor_ns_of(process: Tid) -> Option<u64> {
    // clock_getcpuclockid(3): the kernel's name for that clock.
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

/// A field of what `/proc/PID/status` says, if it is of this kind.
pub(crate) fn status_field<T: std::str::FromStr>(status: &str, name: &str) -> Option<T> {
    let values = status.lines().find_map(|line| line.strip_prefix(name));
    values?.strip_prefix(':')?.trim().parse().ok()
}

/// A time in seconds since 1970 as people here write it.
pub(crate) fn local_time(seconds: libc::time_t) -> String {
    // ctime_r(3): 26 bytes.
    let mut text = [0u8; 32];
    // SAFETY: there is room for what it writes.
    unsafe { libc::ctime_r(&raw const seconds, text.as_mut_ptr().cast()) };
    let text = text.split(|byte| matches!(byte, 0 | b'\n')).next();
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// What C's printf prints for one integer, as an `int` or, if it is wide, in 64 bits.
#[cfg(test)]
pub(crate) fn printed(format: &str, value: i64, wide: bool) -> Vec<u8> {
    let format = std::ffi::CString::new(format).unwrap_or_default();
    let mut text = [0_u8; 256];
    let into = text.as_mut_ptr().cast();
    // SAFETY: it writes no more than it is told there is room for, and the callers' formats have
    // one directive for one integer of this size.
    let length = unsafe {
        match wide {
            true => libc::snprintf(into, text.len(), format.as_ptr(), value),
            false => libc::snprintf(into, text.len(), format.as_ptr(), value as libc::c_int),
        }
    };
    text[..length as usize].to_vec()
}
