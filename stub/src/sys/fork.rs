//! A second process that is this program, too, and memory that both see.

use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};

use super::Tid;

/// Which of the two this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The one that was made. It is sent `SIGTERM` when the other dies.
    Child,
    /// The one that was there, and the other's id.
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

/// Makes the second process, called `name` in process lists. To be called before anything has been
/// opened or started. It waits until the parent has done what it does when it is `made`.
///
/// The parent has its signals blocked, and no descriptors but the first three.
pub(crate) fn fork(name: &std::ffi::CStr, made: impl FnOnce(Tid)) -> Result<Side, Errno> {
    let parent = std::process::id();
    let (waits, ready) = nix::unistd::pipe()?;
    let mut mask = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&awaited()), Some(&mut mask))?;
    // A child whose SIGCHLD is ignored leaves nothing to wait for.
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: this process has one thread, so the child may do whatever its parent may.
    let child = unsafe { libc::fork() };
    match Errno::result(child) {
        Err(errno) => {
            let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None);
            Err(errno)
        }
        Ok(0) => {
            // SAFETY: integers, and a string that ends.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                libc::prctl(libc::PR_SET_NAME, name.as_ptr());
                // It died before it could be asked for.
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

/// Closes what the other process has inherited: its connections end when it closes them.
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

/// Waits for a signal. Whether a process sent it, and not the kernel (as for the terminal's keys).
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

/// Memory that a child made later shares: zeroes.
pub(crate) fn shared_words(count: usize) -> Result<&'static [AtomicU64], Errno> {
    let length = count * size_of::<AtomicU64>();
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing else.
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
    // SAFETY: mapped for good, aligned to a page, zeroed, and used as these words only.
    Ok(unsafe { std::slice::from_raw_parts(start.cast::<AtomicU64>(), count) })
}

/// Ends this process by a signal, as another did.
pub(crate) fn die_by(signal: i32) -> ! {
    let mut set = SigSet::empty();
    if let Ok(signal) = Signal::try_from(signal) {
        set.add(signal);
    }
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: integers and one rlimit; one core file, the other's, is enough.
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
