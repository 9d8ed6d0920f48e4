//! The stub's own output on standard output: the output of breakpoint commands, in between the
//! program's output.
//!
//! The reader may be slow, and then the stub blocks as the program would. But clients and threads
//! also need the stub, so it blocks only for a limited time and then drops the text. Later text
//! does not block until the reader takes some again.

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

/// Declares that standard output is the connection, so that output goes to standard error instead.
pub(crate) fn is_connection() {
    IS_CONNECTION.store(true, Ordering::Relaxed);
}

/// Writes text to the same place as the program's output.
pub(crate) fn print(mut text: &[u8]) {
    let (output, error) = (std::io::stdout(), std::io::stderr());
    let to = match IS_CONNECTION.load(Ordering::Relaxed) {
        true => error.as_fd(),
        false => output.as_fd(),
    };
    while !text.is_empty() {
        let late = IS_LATE.load(Ordering::Relaxed);
        let timeout = PollTimeout::from(if late { 0 } else { WRITE_TIMEOUT_MS });
        let ready = poll(&mut [PollFd::new(to, PollFlags::POLLOUT)], timeout);
        let taken = matches!(ready, Ok(1..));
        IS_LATE.store(!taken, Ordering::Relaxed);
        match write(to, &text[..text.len().min(MAX_PIPE_WRITE)]) {
            Ok(written) if taken => text = &text[written..],
            _ => return,
        }
    }
}
