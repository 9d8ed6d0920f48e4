//! The addresses at which a server may listen.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::termios::{
    BaudRate, ControlFlags, SetArg, cfmakeraw, cfsetspeed, tcgetattr, tcsetattr,
};

use crate::stream::{Duplex, Stream};

/// The address of a server.
///
/// It is `host:port`, `:port` (this machine), `[v6]:port`, `unix:PATH`, or a serial line such as
/// `/dev/ttyUSB0` or `/dev/ttyUSB0,115200`. The number is the speed in bits per second; without it
/// the speed is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP port.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix-domain socket.
    Unix(PathBuf),
    /// A serial line.
    Serial {
        /// The device.
        path: PathBuf,
        /// Bits per second.
        speed: Option<u32>,
    },
}

impl Endpoint {
    /// Connects. Tries every address that a host name has.
    pub fn open(&self, timeout: Duration) -> io::Result<Stream> {
        match self {
            Endpoint::Serial { path, speed } => serial(path, *speed),
            Endpoint::Unix(path) => UnixStream::connect(path).map(Stream::from),
            Endpoint::Tcp { host, port } => {
                let mut last =
                    io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => return Ok(stream.into()),
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

/// Opens a serial line in raw mode.
fn serial(path: &Path, speed: Option<u32>) -> io::Result<Stream> {
    let line = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags((OFlag::O_NOCTTY | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    let mut settings = tcgetattr(&line)?;
    cfmakeraw(&mut settings);
    settings.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
    if let Some(speed) = speed {
        let known = SPEEDS.iter().find(|(bits, _)| *bits == speed);
        let (_, rate) = known.ok_or_else(|| {
            let known: Vec<String> = SPEEDS.iter().map(|(bits, _)| bits.to_string()).collect();
            let message = format!("no speed {speed}; expected one of {}", known.join(", "));
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        cfsetspeed(&mut settings, *rate)?;
    }
    tcsetattr(&line, SetArg::TCSANOW, &settings)?;
    let line: Box<dyn Duplex> = Box::new(line);
    Ok(line.into())
}

const SPEEDS: &[(u32, BaudRate)] = &[
    (9600, BaudRate::B9600),
    (19_200, BaudRate::B19200),
    (38_400, BaudRate::B38400),
    (57_600, BaudRate::B57600),
    (115_200, BaudRate::B115200),
    (230_400, BaudRate::B230400),
    (460_800, BaudRate::B460800),
    (921_600, BaudRate::B921600),
    (1_500_000, BaudRate::B1500000),
    (3_000_000, BaudRate::B3000000),
];

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Serial { path, speed: None } => path.display().fmt(f),
            Endpoint::Serial {
                path,
                speed: Some(speed),
            } => write!(f, "{},{speed}", path.display()),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = || EndpointError {
            text: text.to_owned(),
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong()),
                path => Ok(Endpoint::Unix(path.into())),
            };
        }
        if text.starts_with('/') {
            let (path, speed) = match text.split_once(',') {
                Some((path, speed)) => (path, Some(speed.parse().map_err(|_| wrong())?)),
                None => (text, None),
            };
            return Ok(Endpoint::Serial {
                path: path.into(),
                speed,
            });
        }
        // Users may paste gdb's spelling of a TCP address.
        let address = text.strip_prefix("tcp:").unwrap_or(text);
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host {
            "" => "localhost",
            host => match host.strip_prefix('[') {
                Some(host) => host.strip_suffix(']').ok_or_else(wrong)?,
                None if host.contains(':') => return Err(wrong()),
                None => host,
            },
        };
        match port.parse() {
            Ok(0) | Err(_) => Err(wrong()),
            Ok(port) => Ok(Endpoint::Tcp {
                host: host.to_owned(),
                port,
            }),
        }
    }
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected an address HOST:PORT, :PORT, unix:PATH or a serial line such as /dev/ttyUSB0,115200, got {text:?}"
)]
pub struct EndpointError {
    /// The given text.
    text: String,
}
