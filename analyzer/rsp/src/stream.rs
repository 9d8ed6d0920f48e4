//! The byte stream below a session, with time-outs on both directions.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};

/// Seconds without traffic before the kernel asks whether the other machine is there.
const KEEPALIVE_IDLE_S: u32 = 3;
/// Seconds between two such questions.
const KEEPALIVE_INTERVAL_S: u32 = 2;
/// How many of them remain unanswered before the connection counts as lost.
const KEEPALIVE_PROBES: u32 = 3;

/// A two-way byte stream whose descriptor can be polled.
pub trait Duplex: Read + Write + AsFd + Send {}

impl<T: Read + Write + AsFd + Send> Duplex for T {}

/// The stream of a session. Sockets are set non-blocking; another [`Duplex`] may block in `write`.
pub struct Stream {
    io: Box<dyn Duplex>,
}

impl Stream {
    /// Reads what is there, waiting for it until the deadline (`None`: for ever).
    /// `Ok(None)`: nothing came; `Ok(Some(0))`: closed.
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

    /// Writes a part of `bytes`, at least one. `Ok(0)`: the deadline passed, or input is waiting
    /// and `readable` asked to be told.
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

    /// What the stream is ready for. A hang-up or error counts as both: the next call reports it.
    fn poll(&self, wanted: PollFlags, deadline: Option<Instant>) -> io::Result<PollFlags> {
        let mut fds = [PollFd::new(self.io.as_fd(), wanted)];
        loop {
            let timeout = match deadline {
                None => PollTimeout::NONE,
                // Rounded up, lest the last millisecond is spent spinning.
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
        // Failing here costs speed or, below, a bounded wait; the session works all the same.
        let _ = stream.set_nodelay(true);
        let _ = stream.set_nonblocking(true);
        let _ = keep_alive(&stream);
        Stream {
            io: Box::new(stream),
        }
    }
}

/// Has the kernel find out that the other machine is gone while nothing is sent, within 10 s.
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

    /// A timer 2 in proc(5)'s `net/tcp` is that of keepalive.
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
