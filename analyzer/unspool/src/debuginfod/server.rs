//! One server: sends the answer to a request piece by piece.
//!
//! Separate from the download because it blocks. It runs in a thread of its own, which the download
//! leaves behind when the server does not answer.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Bytes in a piece.
const PIECE_SIZE: usize = 64 << 10;

/// Time from the time limit of a download until its thread ends.
const TIMEOUT_MARGIN: Duration = Duration::from_secs(10);

/// Redirections that are followed.
const MAX_REDIRECTS: u32 = 5;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    url: String,
    failed: AtomicBool,
}

/// A part of an answer.
pub(super) enum Part {
    /// The file follows; its size, if the server says it.
    Begin(Option<u64>),
    Bytes(Vec<u8>),
    End,
    /// The server does not have the file.
    Missing,
    Failed(Failure),
}

/// The reason why a server sends no file.
pub(super) struct Failure {
    /// A clause that the server is the subject of.
    pub(super) clause: String,
    /// Another request would fail as well.
    pub(super) lasts: bool,
}

impl Server {
    pub(super) fn new(url: &str) -> Server {
        Server {
            url: url.trim_end_matches('/').to_owned(),
            failed: AtomicBool::new(false),
        }
    }

    /// False once the server has failed to answer.
    pub(super) fn is_usable(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    pub(super) fn give_up(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Asks for a file. Ends early if `send` returns false.
    pub(super) fn answer(
        &self,
        path: &str,
        timeout: Option<Duration>,
        send: &mut dyn FnMut(Part) -> bool,
    ) {
        let url = format!("{}/{path}", self.url);
        let sent = match url.strip_prefix("file://") {
            Some(path) => from_file(path, send),
            None => from_network(&url, timeout, send),
        };
        if let Err(failure) = sent {
            send(Part::Failed(failure));
        }
    }
}

/// Without user and password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let host = rest.find('/').unwrap_or(rest.len());
        let start = rest[..host].rfind('@').map_or(0, |at| at + 1);
        let separator = if scheme.is_empty() { "" } else { "://" };
        for c in [scheme, separator, &rest[start..]].concat().chars() {
            match c.is_control() {
                true => c.escape_default().fmt(f)?,
                false => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

fn from_file(path: &str, send: &mut dyn FnMut(Part) -> bool) -> Result<(), Failure> {
    match File::open(path) {
        Ok(file) => pieces(file, None, send),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            send(Part::Missing);
            Ok(())
        }
        Err(error) => Err(lasting(&format!(
            "cannot be read: {}",
            super::reason(&error)
        ))),
    }
}

fn from_network(
    url: &str,
    timeout: Option<Duration>,
    send: &mut dyn FnMut(Part) -> bool,
) -> Result<(), Failure> {
    let response = agent(timeout)
        .get(url)
        .call()
        .map_err(|error| failure(&error))?;
    let status = response.status().as_u16();
    let (_, body) = response.into_parts();
    match status {
        200 => {
            let size = body.content_length();
            pieces(body.into_reader(), size, send)
        }
        404 => {
            send(Part::Missing);
            Ok(())
        }
        _ => Err(Failure {
            clause: format!("answered a request with status {status}"),
            lasts: false,
        }),
    }
}

fn pieces(
    mut reader: impl Read,
    size: Option<u64>,
    send: &mut dyn FnMut(Part) -> bool,
) -> Result<(), Failure> {
    if !send(Part::Begin(size)) {
        return Ok(());
    }
    loop {
        let mut piece = vec![0; PIECE_SIZE];
        match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => {
                piece.truncate(len);
                if !send(Part::Bytes(piece)) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
                let inner: Option<&ureq::Error> = inner;
                return Err(inner.map_or_else(|| io_failure(&error), failure));
            }
        }
    }
    send(Part::End);
    Ok(())
}

fn agent(timeout: Option<Duration>) -> Agent {
    // The download keeps the limit. This one ends the thread that the download has left behind.
    let timeout = timeout.map(|timeout| timeout + TIMEOUT_MARGIN);
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(MAX_REDIRECTS)
        .timeout_connect(timeout)
        .timeout_recv_response(timeout)
        .timeout_per_read(timeout)
        .user_agent(concat!("unspool/", env!("CARGO_PKG_VERSION")))
        // A server may redirect from HTTP to HTTPS.
        .tls_config(tls());
    config.build().new_agent()
}

/// TLS with the certificates that this machine trusts.
fn tls() -> TlsConfig {
    static TLS: OnceLock<TlsConfig> = OnceLock::new();
    let new = || {
        let trusted = rustls_native_certs::load_native_certs().certs;
        let trusted = trusted.iter();
        let trusted = trusted.map(|one| Certificate::from_der(one.as_ref()).to_owned());
        TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(trusted.collect())))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build()
    };
    TLS.get_or_init(new).clone()
}

/// Explains an error of the client. No text of the server is part of it.
fn failure(error: &ureq::Error) -> Failure {
    let clause = match error {
        ureq::Error::Io(error) => return io_failure(error),
        ureq::Error::Rustls(error) => return tls_failure(error),
        ureq::Error::TooManyRedirects | ureq::Error::RedirectFailed => {
            return Failure {
                clause: "redirected a request too often".to_owned(),
                lasts: false,
            };
        }
        ureq::Error::Timeout(_) => "did not answer in time",
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => "cannot be reached",
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => "has an address that cannot be used",
        _ => "does not answer as an HTTP server does",
    };
    lasting(clause)
}

fn io_failure(error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    if let Some(error) = inner {
        return tls_failure(error);
    }
    match error.kind() {
        ErrorKind::UnexpectedEof => Failure {
            clause: "ended an answer too early".to_owned(),
            lasts: false,
        },
        ErrorKind::ConnectionRefused => lasting("refused the connection"),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => lasting("closed the connection"),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => lasting("did not answer in time"),
        _ => lasting("cannot be reached"),
    }
}

fn tls_failure(error: &rustls::Error) -> Failure {
    lasting(match error {
        rustls::Error::InvalidCertificate(_) => {
            "has a certificate that this machine does not trust"
        }
        _ => "offers no usable TLS connection",
    })
}

fn lasting(clause: &str) -> Failure {
    Failure {
        clause: clause.to_owned(),
        lasts: true,
    }
}
