//! Forking this program, and memory that both processes share.

use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::Tid;

/// The side of the fork on which the current process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The new process. The kernel sends it `SIGTERM` when the parent dies.
    Child,
    /// The original process, with the child's id.
    Parent(Tid),
}

/// The signals that [`next_signal`] waits for.
fn awaited() -> SigSet {
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
    ] {
        set.add(signal);
    }
    set
}

/// Creates the child, called `name` in process lists. Call it before this process opens or starts
/// anything. The child waits until the parent has returned from `made`.
///
/// The parent has its signals blocked, and no descriptors except the first three.
pub(crate) fn fork(name: &std::ffi::CStr, made: impl FnOnce(Tid)) -> Result<Side, Errno> {
    let parent = std::process::id();
    let (waits, ready) = nix::unistd::pipe()?;
    let mut mask = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&awaited()), Some(&mut mask))?;
    // The kernel would discard the exit status of a child if SIGCHLD were ignored.
    // SAFETY: the default disposition runs none of our code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: this process has one thread, so the child may call any function.
    let child = unsafe { libc::fork() };
    match Errno::result(child) {
        Err(errno) => {
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None);
            Err(errno)
        }
        Ok(0) => {
            // SAFETY: the arguments are integers, and a NUL-terminated string.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                // The parent died before the first prctl.
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
            }
            drop(ready);
            let _ = nix::unistd::read(&waits, &mut [0]);
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
            Ok(Side::Child)
        }
        Ok(child) => {
            made(Tid(child));
            drop((waits, ready));
            close_all();
            Ok(Side::Parent(Tid(child)))
        }
    }
}

/// Closes the descriptors that the child has inherited, so that a connection ends when the child
/// closes it.
fn close_all() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: nothing in this process uses any of these descriptors.
    unsafe {
        if libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) != 0 {
            // Before Linux 5.9.
            let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(0, 65_536) as libc::c_int;
            for descriptor in FIRST as libc::c_int..most {
                libc::close(descriptor);
            }
        }
    }
}

/// Waits for a signal. Returns it, and whether a process sent it rather than the kernel (which
/// sends the terminal's keys).
pub(crate) fn next_signal() -> Result<(i32, bool), Errno> {
    loop {
        // SAFETY: siginfo_t is plain data: all zeroes is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel reads a set and writes one siginfo_t.
        let signal = unsafe { libc::sigwaitinfo(awaited().as_ref(), &raw mut info) };
        match Errno::result(signal) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(signal) => return Ok((signal, info.si_code <= 0)),
        }
    }
}

/// Zeroed memory that this process shares with children forked later.
pub(crate) fn shared_words(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let length = count * size_of::<AtomicU64>();
    // SAFETY: the kernel chooses an unused address for the new mapping.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: the mapping is permanent, aligned to a page, zeroed, and used only as these words.
    Ok(unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), count) })
}

/// Ends this process by the signal that ended another one.
pub(crate) fn die_by(signal: i32) -> ! {
    let mut set = SigSet::empty();
    if let Ok(signal) = Signal::try_from(signal) {
        set.add(signal);
    }
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: integers and one rlimit. No core file, because the other process has one.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(signal, libc::SIG_DFL);
    }
    let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None);
    // SAFETY: integers only.
    unsafe {
        libc::kill(libc::getpid(), signal);
        libc::_exit(128 + signal)
    }
}
