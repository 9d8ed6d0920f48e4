//! SIGINT, SIGTERM and SIGHUP become bytes in a pipe that the collector watches.
//!
//! A pipe and not a flag, so that a collector that waits for the program wakes up at once.

use std::io;
use std::os::fd::OwnedFd;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signal handlers for as long as a recording lasts.
#[derive(Debug)]
pub(super) struct Interrupts {
    read: OwnedFd,
}

impl Interrupts {
    pub(super) fn install() -> io::Result<Self> {
        let (read, write) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self { read })
    }

    /// Readable whenever somebody asks for the end; one byte for each time.
    pub(super) fn requests(&self) -> io::Result<OwnedFd> {
        self.read.try_clone()
    }
}
