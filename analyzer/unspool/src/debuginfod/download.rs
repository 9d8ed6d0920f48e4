//! One download: asks several servers at the same time, and takes the first that has the file.
//!
//! Separate from the server because this keeps the limits. It never waits for a server itself, only
//! for parts of answers, and so ends on time whatever a server does.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use super::Limits;
use super::server::{Failure, Part, Server};

/// Bytes that a server has to send in each period of the time limit, as elfutils defines it.
const MIN_BYTES: u64 = 100 << 10;

/// Parts of answers that wait to be written.
const MAX_WAITING: usize = 16;

/// Time between two looks at the request to cancel.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Time after which the user should know what the command waits for.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(2);

/// What to download, and how long it may take.
pub(super) struct Download<'a> {
    pub(super) path: &'a str,
    pub(super) limits: Limits,
    /// Bytes that may be stored.
    pub(super) room: u64,
    pub(super) cancelled: &'a AtomicBool,
    /// The user knows of downloads.
    pub(super) announced: &'a AtomicBool,
}

/// The end of a download, with the index of the server.
pub(super) enum Outcome {
    /// The whole file.
    Received(usize, File),
    /// The server that began to send a file failed. Others may have the file.
    Broken(usize),
    /// No server has the file, or the download was cancelled.
    Nothing,
}

/// The state of a download.
struct Progress<'a> {
    servers: &'a [Arc<Server>],
    limits: Limits,
    room: u64,
    file: File,
    size: u64,
    begun: Instant,
    /// The current period of the time limit, and the bytes received in it.
    period: Instant,
    in_period: u64,
    /// Servers that have not answered yet.
    silent: Vec<usize>,
    /// The server that sends the file.
    sender: Option<usize>,
    report: &'a mut dyn FnMut(&Server, String),
}

impl Download<'_> {
    /// Downloads into `file`. Passes each server that fails to `report`, with the reason.
    pub(super) fn run(
        &self,
        servers: &[Arc<Server>],
        file: File,
        report: &mut dyn FnMut(&Server, String),
    ) -> Outcome {
        let (sender, parts) = sync_channel(MAX_WAITING);
        let mut silent = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            match self.ask(index, server.clone(), sender.clone()) {
                Ok(()) => silent.push(index),
                Err(_) => {
                    let why = "was not asked: Unspool cannot start a thread for the download";
                    report(server, why.to_owned());
                }
            }
        }
        drop(sender);
        let begun = Instant::now();
        let mut progress = Progress {
            servers,
            limits: self.limits,
            room: self.room,
            file,
            size: 0,
            begun,
            period: begun,
            in_period: 0,
            silent,
            sender: None,
            report,
        };
        match self.receive(&parts, &mut progress) {
            Some(server) if progress.sender == Some(server) => {
                Outcome::Received(server, progress.file)
            }
            Some(server) => Outcome::Broken(server),
            None => Outcome::Nothing,
        }
    }

    /// Starts a thread that sends the server's answer.
    fn ask(
        &self,
        index: usize,
        server: Arc<Server>,
        sender: SyncSender<(usize, Part)>,
    ) -> std::io::Result<()> {
        let (path, timeout) = (self.path.to_owned(), self.limits.timeout);
        let answer = move || {
            server.answer(&path, timeout, &mut |part| {
                sender.send((index, part)).is_ok()
            });
        };
        let thread = std::thread::Builder::new().name("debuginfod".to_owned());
        thread.spawn(answer).map(|_| ())
    }

    /// Returns the server whose answer ended: it sent the file if it still is the sender.
    fn receive(
        &self,
        parts: &Receiver<(usize, Part)>,
        progress: &mut Progress<'_>,
    ) -> Option<usize> {
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return None;
            }
            match parts.recv_timeout(POLL_INTERVAL) {
                Ok((server, part)) => match progress.take(server, part) {
                    Step::More => {}
                    Step::End(end) => return end,
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            if let Some(end) = progress.check_time() {
                return end;
            }
            if progress.begun.elapsed() > ANNOUNCE_AFTER
                && let Some(say) = super::ANNOUNCE.get()
                && !self.announced.swap(true, Ordering::Relaxed)
            {
                say("downloading debug files, because DEBUGINFOD_URLS is set");
            }
        }
    }
}

enum Step {
    More,
    End(Option<usize>),
}

impl Progress<'_> {
    fn take(&mut self, server: usize, part: Part) -> Step {
        if self.sender.is_some_and(|sender| sender != server) {
            return Step::More;
        }
        self.silent.retain(|&silent| silent != server);
        match part {
            Part::Begin(size) => {
                self.sender = Some(server);
                self.unless_too_large(server, size.unwrap_or(0))
            }
            Part::Bytes(bytes) => {
                self.size += bytes.len() as u64;
                self.in_period += bytes.len() as u64;
                if let end @ Step::End(_) = self.unless_too_large(server, self.size) {
                    return end;
                }
                match self.file.write_all(&bytes) {
                    Ok(()) => Step::More,
                    Err(error) => {
                        let reason = super::reason(&error);
                        self.broken(
                            server,
                            format!("sent a file that cannot be stored: {reason}"),
                        )
                    }
                }
            }
            Part::End => Step::End(Some(server)),
            Part::Failed(failure) if self.sender.is_some() => {
                self.failed(server, failure);
                self.sender = None;
                Step::End(Some(server))
            }
            Part::Failed(failure) => {
                self.failed(server, failure);
                self.unless_all_answered()
            }
            Part::Missing => self.unless_all_answered(),
        }
    }

    fn unless_all_answered(&self) -> Step {
        match self.silent.is_empty() {
            true => Step::End(None),
            false => Step::More,
        }
    }

    /// Ends the download if this part of the file is already too large.
    fn unless_too_large(&mut self, server: usize, size: u64) -> Step {
        let limit = self.limits.max_size;
        let clause = if size > limit {
            format!(
                "sent a file of more than {limit} bytes, which is the limit (DEBUGINFOD_MAXSIZE)"
            )
        } else if size > self.room {
            format!(
                "sent a file of more than {} bytes, for which the cache has no room",
                self.room
            )
        } else {
            return Step::More;
        };
        self.broken(server, clause)
    }

    /// Ends the download. Later downloads may still use the server.
    fn broken(&mut self, server: usize, clause: String) -> Step {
        self.sender = None;
        let lasts = false;
        self.failed(server, Failure { clause, lasts });
        Step::End(Some(server))
    }

    fn failed(&mut self, server: usize, failure: Failure) {
        let Failure { mut clause, lasts } = failure;
        if lasts {
            self.servers[server].give_up();
            clause += "; it is not asked again";
        }
        (self.report)(&self.servers[server], clause);
    }

    /// Ends the download if a limit is exceeded.
    fn check_time(&mut self) -> Option<Option<usize>> {
        if self.in_period >= MIN_BYTES {
            self.period = Instant::now();
            self.in_period = 0;
        }
        let exceeds = |since: Instant, limit: Option<Duration>| {
            limit.filter(|&limit| since.elapsed() > limit)
        };
        let slow = exceeds(self.period, self.limits.timeout);
        let long = exceeds(self.begun, self.limits.max_time);
        let (limit, name) = slow
            .map(|limit| (limit, "DEBUGINFOD_TIMEOUT"))
            .or_else(|| long.map(|limit| (limit, "DEBUGINFOD_MAXTIME")))?;
        let seconds = limit.as_secs();
        let Some(sender) = self.sender.take() else {
            for server in std::mem::take(&mut self.silent) {
                let clause = format!("did not answer within {seconds} seconds ({name})");
                self.failed(
                    server,
                    Failure {
                        clause,
                        lasts: true,
                    },
                );
            }
            return Some(None);
        };
        let clause = match slow {
            Some(_) => format!("sent less than 100 KB within {seconds} seconds ({name})"),
            None => format!("did not send a whole file within {seconds} seconds ({name})"),
        };
        let lasts = slow.is_some();
        self.failed(sender, Failure { clause, lasts });
        Some(Some(sender))
    }
}
