//! The signals sent to this process, as a descriptor to poll.
//!
//! The signals stay blocked as long as the server runs. None is lost between two calls of poll(2),
//! and none interrupts a system call. `SIGINT` and `SIGQUIT` are among them: the traced program
//! shares our terminal, and the keys are meant for the program.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

const SIGNALS: [Signal; 5] = [
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
];
const SIZE: usize = size_of::<libc::signalfd_siginfo>();

/// The signals that the C library keeps for itself. posix_spawn(3) starts a program, such as this
/// one, with these signals ignored (glibc 2.36), and a program that is traced would inherit that.
const INTERNAL_SIGNALS: [i32; 2] = [32, 33];

/// Gives an ignored signal its default disposition. glibc's `sigaction` refuses its own signals.
fn stop_ignoring(number: i32) {
    /// Size of the kernel's signal sets, in bytes.
    const SET_SIZE: usize = 8;
    // A `struct sigaction` as the kernel has it. Its first word is the disposition.
    let mut action = [0_usize; 8];
    let none = std::ptr::null_mut::<usize>();
    // SAFETY: the kernel writes at most four words and the set, which is as much as there is.
    let read = unsafe {
        libc::syscall(
            libc::SYS_rt_sigaction,
            number,
            none,
            &raw mut action,
            SET_SIZE,
        )
    };
    if read == 0 && action[0] == libc::SIG_IGN {
        let default = [libc::SIG_DFL; 8];
        // SAFETY: the default disposition runs none of our code.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                &raw const default,
                none,
                SET_SIZE,
            )
        };
    }
}

/// The meaning of a signal to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A traced thread has something to report.
    Child,
    /// A request to end in an orderly way.
    End,
    /// The terminal's interrupt or quit key.
    Key,
}

/// The blocked signals of this process.
pub(crate) struct Signals {
    descriptor: SignalFd,
    original: SigSet,
}

impl Signals {
    /// Blocks the signals and opens the descriptor.
    pub(crate) fn new() -> Result<Signals, Errno> {
        let set: SigSet = SIGNALS.into_iter().collect();
        let mut original = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), Some(&mut original))?;
        // The kernel would discard the exit status of a child if SIGCHLD were ignored.
        // SAFETY: the default disposition runs none of our code.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        INTERNAL_SIGNALS.into_iter().for_each(stop_ignoring);
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals {
            descriptor,
            original,
        })
    }

    /// The signal mask with which this process was started.
    pub(crate) fn original_mask(&self) -> SigSet {
        self.original
    }

    /// Takes all pending signals.
    pub(crate) fn take(&self) -> Vec<Told> {
        // There is at most one of each, and one read returns all. Mostly it is only `SIGCHLD`.
        let mut bytes = [0; SIGNALS.len() * SIZE];
        let got = nix::unistd::read(&self.descriptor, &mut bytes).unwrap_or(0);
        let signals = bytes[..got].chunks_exact(SIZE);
        // `ssi_signo` is the first word of a `struct signalfd_siginfo`.
        let signals = signals.filter_map(|info| info.first_chunk().copied());
        let told = signals.map(|word| match i32::from_ne_bytes(word) {
            libc::SIGCHLD => Told::Child,
            libc::SIGTERM | libc::SIGHUP => Told::End,
            _ => Told::Key,
        });
        told.collect()
    }
}

/// Makes the descriptor report again that traced threads have something to report, because the
/// caller did not read all reports.
pub(crate) fn raise_again() {
    let _ = nix::sys::signal::raise(Signal::SIGCHLD);
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.original), None);
    }
}
