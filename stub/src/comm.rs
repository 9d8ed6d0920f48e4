//! COMM: the source of connections, and the byte stream to one client.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use nix::sys::termios::{ControlFlags, SetArg, cfmakeraw, tcgetattr, tcsetattr};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::sys::ptrace::close_on_exec;

/// The source of connections, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Comm {
    /// TCP, on this host (loopback if empty) and port.
    Tcp(String, u16),
    /// Standard input and output.
    Stdio,
    /// A socket file.
    Unix(PathBuf),
    /// A serial line.
    Serial(PathBuf),
    /// A descriptor that was open when the stub started.
    Descriptor(i32),
}

/// The reasons why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommError {
    /// The port is not available. Begins as gdbserver's message does, because test boards look for
    /// it.
    #[error("Can't bind address: {0}. Port {1}: choose another, or 0 for any free port")]
    Bind(String, u16),
    /// The host has no address.
    #[error(
        "{0}: cannot resolve name: it is not in /etc/hosts; give an address of this machine, or \
         leave the host out for loopback"
    )]
    Host(String),
    /// The socket file cannot be created.
    #[error("cannot listen at '{0}': {1}; choose another path")]
    Socket(String, String),
    /// The serial line cannot be opened.
    #[error(
        "cannot use '{0}' as the connection: {1}; expected a serial line such as /dev/ttyS1, readable and writable"
    )]
    Serial(String, String),
    /// The descriptor is not open.
    #[error("file descriptor {0} is not open; expected an inherited, connected socket")]
    Descriptor(i32),
    /// The system refused to duplicate a descriptor.
    #[error("cannot use standard input and output as the connection: {0}")]
    Stdio(std::io::Error),
}

impl Comm {
    /// Parses COMM.
    pub(crate) fn parse(text: &str) -> Option<Comm> {
        match text {
            "-" | "stdio" => return Some(Comm::Stdio),
            _ => {}
        }
        match text.strip_prefix("unix:") {
            Some("") => return None,
            Some(path) => return Some(Comm::Unix(path.into())),
            None if text.starts_with('/') => return Some(Comm::Serial(text.into())),
            None => {}
        }
        let (host, port) = text.rsplit_once(':')?;
        if host == "fd" {
            return port
                .parse()
                .ok()
                .filter(|fd| *fd >= 0)
                .map(Comm::Descriptor);
        }
        let host = host.strip_prefix("tcp:").unwrap_or(host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Comm::Tcp(host.to_owned(), port.parse().ok()?))
    }

    /// True if there can be only one client.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Comm::Stdio | Comm::Descriptor(_))
    }

    /// True if the connection uses standard input and output.
    pub(crate) fn is_stdio(&self) -> bool {
        *self == Comm::Stdio
    }

    /// Begins to listen, or takes over the existing connection.
    pub(crate) fn open(&self, peers: Option<Vec<IpAddr>>) -> Result<Endpoint, CommError> {
        match self {
            Comm::Tcp(host, port) => {
                let name = if host.is_empty() { "127.0.0.1" } else { host };
                let addresses: Vec<_> = addresses(name)
                    .into_iter()
                    .map(|address| SocketAddr::new(address, *port))
                    .collect();
                if addresses.is_empty() {
                    return Err(CommError::Host(host.clone()));
                }
                let listener = TcpListener::bind(&addresses[..])
                    .map_err(|error| CommError::Bind(reason(&error), *port))?;
                if peers.is_none() && addresses.iter().any(|address| !address.ip().is_loopback()) {
                    crate::say!(
                        "{}: every client that can reach {host} gets the rights of unspool-stub; \
                         name the permitted clients with --allow",
                        crate::NAME
                    );
                }
                Ok(Endpoint::Listener(listener, peers))
            }
            Comm::Unix(path) => {
                let listener = listen_at(path).map_err(|error| {
                    CommError::Socket(path.display().to_string(), reason(&error))
                })?;
                Ok(Endpoint::Socket(listener, path.clone()))
            }
            Comm::Serial(path) => {
                let line = serial(path).map_err(|error| {
                    CommError::Serial(path.display().to_string(), reason(&error))
                })?;
                Ok(Endpoint::Line(line, path.clone()))
            }
            Comm::Stdio => {
                let dup = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(CommError::Stdio);
                Ok(Endpoint::Open(Some(Stream {
                    input: dup(std::io::stdin().as_fd())?.into(),
                    output: dup(std::io::stdout().as_fd())?.into(),
                    waits: true,
                    peer: None,
                })))
            }
            Comm::Descriptor(number) => {
                let input = crate::sys::inherited(*number).ok_or(CommError::Descriptor(*number))?;
                let _ = close_on_exec(input.as_fd());
                let stream = Stream::socket(input, None).map_err(CommError::Stdio)?;
                Ok(Endpoint::Open(Some(stream)))
            }
        }
    }
}

/// Creates a socket file that only its owner may use. Replaces a socket file without a listener.
fn listen_at(path: &Path) -> std::io::Result<UnixListener> {
    if path.exists() && UnixStream::connect(path).is_err() {
        // Any other file stays, and then binding fails.
        if std::fs::metadata(path)?.file_type().is_socket() {
            std::fs::remove_file(path)?;
        }
    }
    let former = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let listener = UnixListener::bind(path);
    umask(former);
    listener
}

/// Opens a serial line in raw mode. Keeps its speed.
fn serial(path: &Path) -> std::io::Result<File> {
    let line = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(path)?;
    let mut settings = tcgetattr(&line)?;
    cfmakeraw(&mut settings);
    settings.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
    tcsetattr(&line, SetArg::TCSANOW, &settings)?;
    Ok(line)
}

/// The addresses of a host, which must be this machine. Reads `/etc/hosts`, because the C library's
/// resolver would be a third of a static binary, and could not load its modules there.
fn addresses(host: &str) -> Vec<IpAddr> {
    if let Ok(address) = host.parse() {
        return vec![address];
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let mut found: Vec<IpAddr> = hosts
        .lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words
                .any(|name| name.eq_ignore_ascii_case(host))
                .then_some(address)
        })
        .collect();
    if found.is_empty() && host == "localhost" {
        found.push(Ipv4Addr::LOCALHOST.into());
    }
    found
}

/// The system's text for an error, without the number that Rust appends.
fn reason(error: &std::io::Error) -> String {
    let errno = error.raw_os_error().map(nix::errno::Errno::from_raw);
    errno.map_or_else(|| error.to_string(), |errno| errno.desc().to_owned())
}

/// The place where clients connect.
pub(crate) enum Endpoint {
    /// A listening socket, and the addresses that may connect besides loopback. `None` means all.
    Listener(TcpListener, Option<Vec<IpAddr>>),
    /// A socket file, which is removed at the end.
    Socket(UnixListener, PathBuf),
    /// A serial line and its path. Serves one client after the other.
    Line(File, PathBuf),
    /// The only connection, until it is taken.
    Open(Option<Stream>),
}

impl Endpoint {
    /// The TCP port, if there is one.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Endpoint::Listener(listener, _) => listener.local_addr().ok().map(|a| a.port()),
            Endpoint::Socket(..) | Endpoint::Line(..) | Endpoint::Open(_) => None,
        }
    }

    /// The connection that exists without being accepted, if there is one. Call this only while
    /// there is no client.
    pub(crate) fn permanent_connection(&mut self) -> Option<Stream> {
        match self {
            Endpoint::Listener(..) | Endpoint::Socket(..) => None,
            Endpoint::Open(stream) => stream.take(),
            Endpoint::Line(line, _) => Some(Stream {
                input: line.try_clone().ok()?,
                output: line.try_clone().ok()?,
                waits: true,
                peer: None,
            }),
        }
    }

    /// Accepts a connection.
    pub(crate) fn accept(&mut self) -> Option<Stream> {
        match self {
            Endpoint::Line(..) | Endpoint::Open(_) => None,
            Endpoint::Listener(listener, peers) => {
                let (stream, from) = listener.accept().ok()?;
                let from = from.ip().to_canonical();
                if !admits(peers.as_deref(), from) {
                    crate::say!("{}: refused a connection from {from}", crate::NAME);
                    return None;
                }
                Stream::tcp(stream).ok()
            }
            Endpoint::Socket(listener, _) => {
                Stream::socket(listener.accept().ok()?.0.into(), None).ok()
            }
        }
    }

    /// The descriptor that becomes readable when a client connects.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Endpoint::Listener(listener, _) => Some(listener.as_fd()),
            Endpoint::Socket(listener, _) => Some(listener.as_fd()),
            Endpoint::Line(..) | Endpoint::Open(_) => None,
        }
    }
}

/// True if a client at this address may connect.
fn admits(peers: Option<&[IpAddr]>, from: IpAddr) -> bool {
    peers.is_none_or(|peers| peers.contains(&from) || from.is_loopback())
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Endpoint::Socket(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_ready(descriptor: BorrowedFd<'_>, what: PollFlags) -> bool {
    let mut descriptors = [PollFd::new(descriptor, what)];
    poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// The byte stream of one client.
pub(crate) struct Stream {
    input: File,
    output: File,
    /// Writing may block, because other processes share the descriptor and expect that.
    waits: bool,
    peer: Option<SocketAddr>,
}

/// Bytes that a writable pipe or line accepts without blocking (pipe(7), `PIPE_BUF`).
const MAX_PIPE_WRITE: usize = 4096;

impl Stream {
    fn tcp(stream: TcpStream) -> std::io::Result<Stream> {
        stream.set_nodelay(true)?;
        let peer = stream.peer_addr().ok();
        Stream::socket(stream.into(), peer)
    }

    /// A connected socket that no other process uses.
    fn socket(socket: OwnedFd, peer: Option<SocketAddr>) -> std::io::Result<Stream> {
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let output = socket.try_clone()?;
        Ok(Stream {
            input: socket.into(),
            output: output.into(),
            waits: false,
            peer,
        })
    }

    /// Address and port of a TCP client.
    pub(crate) fn peer(&self) -> Option<(IpAddr, u16)> {
        self.peer.map(|peer| (peer.ip(), peer.port()))
    }

    /// Reads available bytes. `None` if there are none now, zero if the client is gone.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Option<usize> {
        loop {
            match self.input.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                other => return Some(other.unwrap_or(0)),
            }
        }
    }

    /// Writes as much as possible without blocking, and returns how much. `None` if the client is
    /// gone.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut done = 0;
        while done < bytes.len() {
            let mut rest = &bytes[done..];
            if self.waits {
                if !self.has_room() {
                    break;
                }
                rest = &rest[..rest.len().min(MAX_PIPE_WRITE)];
            }
            match self.output.write(rest) {
                Ok(0) => return None,
                Ok(some) => done += some,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return None,
            }
        }
        Some(done)
    }

    fn has_room(&self) -> bool {
        is_ready(self.output.as_fd(), PollFlags::POLLOUT)
    }

    /// True if there is input, or the end of input.
    pub(crate) fn has_input(&self) -> bool {
        is_ready(self.input.as_fd(), PollFlags::POLLIN)
    }

    /// The descriptor that becomes writable when there is room.
    pub(crate) fn output(&self) -> BorrowedFd<'_> {
        self.output.as_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::{Comm, admits};

    #[test]
    fn forms() {
        assert_eq!(Comm::parse(":12"), Some(Comm::Tcp(String::new(), 12)));
        assert_eq!(Comm::parse("[::1]:0"), Some(Comm::Tcp("::1".to_owned(), 0)));
        assert_eq!(Comm::parse("fd:3"), Some(Comm::Descriptor(3)));
        assert_eq!(Comm::parse("-"), Some(Comm::Stdio));
        assert_eq!(Comm::parse("unix:/a"), Some(Comm::Unix("/a".into())));
        assert_eq!(
            Comm::parse("/dev/tty"),
            Some(Comm::Serial("/dev/tty".into()))
        );
        for bad in ["", "x", ":", "unix:", ":99999", "fd:x", "fd:-1"] {
            assert_eq!(Comm::parse(bad), None, "{bad}");
        }
    }
    #[test]
    fn peers() {
        let address = |text: &str| text.parse().expect("an address");
        let listed = [address("10.1.2.3"), address("fd00::1")];
        for (from, admitted) in [
            ("10.1.2.3", true),
            ("fd00::1", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("10.1.2.4", false),
        ] {
            assert_eq!(admits(Some(&listed), address(from)), admitted, "{from}");
            assert!(admits(None, address(from)));
        }
    }
}
