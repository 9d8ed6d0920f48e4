//! Where a server listens: the addresses a user may name.

use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::stream::Stream;

/// The address of a server: `host:port`, `:port` (this machine), `[v6]:port` or `unix:PATH`.
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
    /// A Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// Connects, trying every address a name stands for.
    pub fn open(&self, timeout: Duration) -> io::Result<Stream> {
        match self {
            Endpoint::Unix(path) => UnixStream::connect(path).map(Stream::from),
            Endpoint::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
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

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
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
        // gdb's own spelling of a TCP address may be pasted here.
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
#[error("expected an address HOST:PORT, :PORT or unix:PATH, got {text:?}")]
pub struct EndpointError {
    /// What was given.
    text: String,
}
