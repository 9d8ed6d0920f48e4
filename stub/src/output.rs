//! Standard output, as far as the stub itself writes there: what the commands of breakpoints print,
//! among what the program prints.
//!
//! Whoever reads it may be slow, and is waited for, as by the program; but there are clients and
//! threads to be served, so not for long. Text that is not taken in time is lost, and the next is
//! not waited for until some is taken again.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::write;

/// Time limit for one blocking write, in milliseconds.
const WRITE_TIMEOUT_MS: u16 = 1000;
/// Bytes that a writable pipe accepts without blocking (pipe(7), `PIPE_BUF`).
const MAX_PIPE_WRITE: usize = 4096;

static IS_CONNECTION: AtomicBool = AtomicBool::new(false);
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Standard output is the connection: the program's output is our standard error, and so is ours.
pub(crate) fn is_connection() {
    IS_CONNECTION.store(true, Ordering::Relaxed);
}

/// Writes text to where the program's output goes.
pub(crate) fn print(mut text: &[u8]) {
    let (output, error) = (std::io::stdout(), std::io::stderr());
    let to = match IS_CONNECTION.load(Ordering::Relaxed) {
        true => error.as_fd(),
        false => output.as_fd(),
    };
    while !text.is_empty() {
        let late = IS_LATE.load(Ordering::Relaxed);
        let patience = PollTimeout::from(if late { 0 } else { WRITE_TIMEOUT_MS });
        let ready = poll(&mut [PollFd::new(to, PollFlags::POLLOUT)], patience);
        let taken = matches!(ready, Ok(1..));
        IS_LATE.store(!taken, Ordering::Relaxed);
        match write(to, &text[..text.len().min(MAX_PIPE_WRITE)]) {
            Ok(written) if taken => text = &text[written..],
            _ => return,
        }
    }
}
