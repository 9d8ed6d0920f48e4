//! The byte stream of a session, with time limits in both directions.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

/// Seconds without traffic before the kernel sends a keepalive probe.
const KEEPALIVE_IDLE_S: u32 = 3;
/// Seconds between keepalive probes.
const KEEPALIVE_INTERVAL_S: u32 = 2;
/// Number of unanswered probes after which the connection is lost.
const KEEPALIVE_PROBES: u32 = 3;

/// A two-way byte stream with a descriptor that can be polled.
pub trait Duplex: Read + Write + AsFd + Send {}

impl<T: Read + Write + AsFd + Send> Duplex for T {}

/// The stream of a session. Sockets are non-blocking; another [`Duplex`] may block in `write`.
pub struct Stream {
    io: Box<dyn Duplex>,
}

impl Stream {
    /// Reads available bytes, waiting for them until the deadline (`None`: no limit). `Ok(None)` if
    /// none came; `Ok(Some(0))` if the stream is closed.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> io::Result<Option<usize>> {
        loop {
            if !self
                .poll(PollFlags::POLLIN, deadline)?
                .contains(PollFlags::POLLIN)
            {
                return Ok(None);
            }
            match self.io.read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(e) if is_transient(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes a part of `bytes`, at least one. `Ok(0)` if the deadline passed, or if `readable` is
    /// set and input is waiting.
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        deadline: Instant,
        readable: bool,
    ) -> io::Result<usize> {
        let wanted = match readable {
            true => PollFlags::POLLIN | PollFlags::POLLOUT,
            false => PollFlags::POLLOUT,
        };
        loop {
            if !self
                .poll(wanted, Some(deadline))?
                .contains(PollFlags::POLLOUT)
            {
                return Ok(0);
            }
            match self.io.write(bytes) {
                Ok(count) => return Ok(count),
                Err(e) if is_transient(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The readiness of the stream. A hang-up or error counts as both, so that the next call
    /// reports it.
    fn poll(&self, wanted: PollFlags, deadline: Option<Instant>) -> io::Result<PollFlags> {
        let mut fds = [PollFd::new(self.io.as_fd(), wanted)];
        loop {
            let timeout = match deadline {
                None => PollTimeout::NONE,
                // Rounded up, so that the last millisecond is not spent in a busy loop.
                Some(deadline) => deadline
                    .saturating_duration_since(Instant::now())
                    .as_micros()
                    .div_ceil(1000)
                    .try_into()
                    .unwrap_or(PollTimeout::MAX),
            };
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(e.into()),
                Ok(_) => {}
            }
            let seen = fds[0].revents().unwrap_or(PollFlags::empty());
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
            return Ok(match seen.intersects(gone) {
                true => PollFlags::POLLIN | PollFlags::POLLOUT,
                false => seen,
            });
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.io.as_fd())
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        // The session works even if these calls fail. But it is slower without `TCP_NODELAY`, and
        // without keepalive probes only the time limits detect that the other machine is gone.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_nonblocking(true);
        let _ = keep_alive(&stream);
        Stream {
            io: Box::new(stream),
        }
    }
}

/// Makes the kernel detect within 10 s that the other machine is gone, even if nothing is sent.
fn keep_alive(stream: &TcpStream) -> Result<(), Errno> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        let _ = stream.set_nonblocking(true);
        Stream {
            io: Box::new(stream),
        }
    }
}

impl From<Box<dyn Duplex>> for Stream {
    fn from(io: Box<dyn Duplex>) -> Stream {
        Stream { io }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};

    use super::Stream;

    /// In proc(5)'s `net/tcp`, timer 2 is the keepalive timer.
    #[test]
    fn tcp_connections_are_kept_alive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _accepted = listener.accept().unwrap();
        let port = stream.local_addr().unwrap().port();
        let timer = || {
            let table = fs::read_to_string("/proc/net/tcp").unwrap();
            let mut rows = table.lines().map(|row| row.split_whitespace());
            let ours = |local: &str| local.ends_with(&format!(":{port:04X}"));
            let row = rows.find(|row| row.clone().nth(1).is_some_and(ours));
            row.unwrap().nth(5).unwrap().to_owned()
        };
        assert!(timer().starts_with("00:"));
        let _stream = Stream::from(stream);
        assert!(timer().starts_with("02:"), "{}", timer());
    }
}
