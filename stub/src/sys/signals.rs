//! The signals sent to this process, as a descriptor to poll.
//!
//! They stay blocked for the whole life of the server, so that none is lost between two calls of
//! poll(2) and none interrupts a system call. `SIGINT` and `SIGQUIT` are among them: the traced
//! program shares our terminal, and the keys are meant for it.

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

/// What the server was told by signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A traced thread has something to report.
    Child,
    /// To end, in good order.
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
        // A child whose SIGCHLD is ignored leaves nothing to wait for.
        // SAFETY: the default disposition runs no code of ours.
        unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
        let descriptor =
            SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Signals {
            descriptor,
            original,
        })
    }

    /// The signal mask this process was started with.
    pub(crate) fn original_mask(&self) -> SigSet {
        self.original
    }

    /// Takes all that have come.
    pub(crate) fn take(&self) -> Vec<Told> {
        // Of each there is one at most, and all are read at once: most of the time it is `SIGCHLD`
        // alone.
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

/// Has the descriptor say once more that traced threads have something to report: not all that came
/// was read.
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
