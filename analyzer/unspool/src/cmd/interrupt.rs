//! Signal handlers.
//!
//! They turn SIGINT, SIGTERM and SIGHUP into bytes in a pipe that the collector watches.
//!
//! A pipe, unlike a flag, wakes up a collector that waits for the program. Under nohup(1), SIGHUP
//! stays ignored here and in the program. SIGINT is handled even if a shell ignores it for a job in
//! the background, because scripts end recordings with it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::debuginfod;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// The signals that are handled.
fn handled() -> impl Iterator<Item = i32> {
    let ignores_hangup = is_ignored(SIGHUP);
    SIGNALS
        .into_iter()
        .filter(move |signal| !ignores_hangup || *signal != SIGHUP)
}

fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

/// Lets writes beyond the limit of file sizes fail, as those to a full disk do. By default the
/// signal ends the process, as it does in programs that are started.
pub(super) fn survive_file_size_limit() -> io::Result<()> {
    let (limit, _) = getrlimit(Resource::RLIMIT_FSIZE)?;
    if limit == RLIM_INFINITY || is_ignored(SIGXFSZ) {
        return Ok(());
    }
    let unused = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, unused).map(drop)
}

/// Signal handlers that are installed for the duration of a recording.
#[derive(Debug)]
pub(super) struct Interrupts {
    read: OwnedFd,
    write: OwnedFd,
    /// A signal has requested the end.
    requested: Arc<AtomicBool>,
}

impl Interrupts {
    pub(super) fn install() -> io::Result<Self> {
        let (read, write) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC | nix::fcntl::OFlag::O_NONBLOCK)?;
        let requested = Arc::new(AtomicBool::new(false));
        for signal in handled() {
            signal_hook::flag::register(signal, requested.clone())?;
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self {
            read,
            write,
            requested,
        })
    }

    /// Requests the end after some time, unless a signal does so before.
    pub(super) fn request_after(&self, time: Duration) -> io::Result<()> {
        let write = self.write.try_clone()?;
        let requested = self.requested.clone();
        let timer = move || {
            std::thread::sleep(time);
            if !requested.load(Ordering::Relaxed) {
                // The pipe is not full: each byte in it is a request.
                let _ = nix::unistd::write(&write, &[0]);
            }
        };
        let builder = std::thread::Builder::new().name("duration".to_owned());
        builder.spawn(timer).map(drop)
    }

    /// Becomes readable when the user requests the end of the recording: one byte per request.
    pub(super) fn requests(&self) -> io::Result<OwnedFd> {
        self.read.try_clone()
    }

    /// From now on a signal also ends downloads, which do not watch the pipe.
    pub(super) fn end_downloads(&self) -> io::Result<()> {
        if let Some(cancelled) = debuginfod::cancelled() {
            for signal in handled() {
                signal_hook::flag::register(signal, cancelled.clone())?;
            }
        }
        Ok(())
    }
}
