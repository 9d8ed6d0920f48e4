//! Records several processes that already run into one capture.
//!
//! Each process has a stub, and a recorder on a thread of its own, as in a recording of one
//! process. The recorders share the file and the clock. They begin one after the other, so that a
//! process that cannot be recorded is known before the last one is stopped.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;
use unspool_capture::{Header, MAX_FURTHER_PROCESSES};

use super::ending::consume;
use super::error::Error;
use super::event_loop;
use super::launch;
use super::options::{Options, Outcome};
use super::sink::{CaptureFile, Sink};

/// What a recorder reports while it begins.
enum Message {
    /// It has attached to the process, and needs a sink.
    Attached(Box<Header>),
    /// The recording has begun.
    Begun,
}

/// The recorder of one process.
struct Recorder<'scope> {
    thread: ScopedJoinHandle<'scope, Result<Outcome, Error>>,
    stop: OwnedFd,
}

/// See [`super::record_several`].
pub(super) fn record(
    pids: &[u32],
    options: &(impl Fn(u32, OwnedFd) -> Options + Sync),
    requests: &OwnedFd,
    open: impl FnOnce() -> io::Result<File>,
) -> Result<Vec<Outcome>, Error> {
    let max = MAX_FURTHER_PROCESSES as usize + 1;
    if pids.len() > max {
        return Err(Error::TooManyProcesses(pids.len(), max));
    }
    // Report a mistake before any process is stopped.
    for pid in pids {
        launch::check_traceable(*pid)?;
    }
    // Its writing ends are closed when all recorders have ended.
    let (ended, end) = new_pipe()?;
    thread::scope(|scope| {
        let mut recorders: Vec<Recorder<'_>> = Vec::new();
        let mut open = Some(open);
        let mut file: Option<CaptureFile> = None;
        let mut failure = None;
        for pid in pids.iter().copied() {
            let (requested, stop) = new_pipe()?;
            let end = end.try_clone().map_err(Error::Output)?;
            let (to_us, messages) = sync_channel(1);
            let (to_recorder, sinks) = sync_channel(1);
            let thread = scope.spawn(move || {
                let options = options(pid, requested);
                let outcome = run(options, &to_us, &sinks);
                drop(end);
                outcome.map_err(|error| launch::unless_ended(Some(pid), error))
            });
            recorders.push(Recorder { thread, stop });
            let mut new_sink = |header: Header| match (&file, open.take()) {
                (Some(file), _) => {
                    let sink = file.clone().further(header);
                    sink.map_err(Error::Write)
                }
                (None, Some(open)) => {
                    let opened = open().map_err(Error::Output)?;
                    let opened = CaptureFile::new(opened, header).map_err(Error::Write)?;
                    Ok(file.insert(opened).clone().first())
                }
                (None, None) => Err(Error::Output(io::ErrorKind::NotFound.into())),
            };
            if !begins(&messages, &to_recorder, &mut new_sink) {
                failure = recorders.pop();
                break;
            }
        }
        drop(end);
        if failure.is_none() {
            wait(&recorders, requests, &ended);
        } else {
            ask(&recorders);
        }
        let failure = failure.and_then(|failed| join(failed.thread).err());
        let outcomes = recorders.into_iter();
        let outcomes: Result<Vec<Outcome>, Error> =
            outcomes.map(|recorder| join(recorder.thread)).collect();
        match failure {
            Some(error) => Err(error),
            None => outcomes,
        }
    })
}

/// Runs one recorder to its end.
fn run(
    options: Options,
    messages: &SyncSender<Message>,
    sinks: &Receiver<Result<Sink, Error>>,
) -> Result<Outcome, Error> {
    let gone = || Error::Output(io::ErrorKind::BrokenPipe.into());
    let sink = |header| {
        let attached = messages.send(Message::Attached(Box::new(header)));
        attached.map_err(|_| gone())?;
        sinks.recv().map_err(|_| gone())?
    };
    let begun = || drop(messages.send(Message::Begun));
    event_loop::record(options, sink, begun)
}

/// Waits until a recorder has begun. False if it fails.
fn begins(
    messages: &Receiver<Message>,
    sinks: &SyncSender<Result<Sink, Error>>,
    new_sink: &mut dyn FnMut(Header) -> Result<Sink, Error>,
) -> bool {
    loop {
        match messages.recv() {
            Ok(Message::Attached(header)) => drop(sinks.send(new_sink(*header))),
            Ok(Message::Begun) => return true,
            Err(_) => return false,
        }
    }
}

/// Waits until all recorders have ended, and passes the user's requests on to them.
fn wait(recorders: &[Recorder<'_>], requests: &OwnedFd, ended: &OwnedFd) {
    loop {
        let mut fds = [
            PollFd::new(ended.as_fd(), PollFlags::POLLIN),
            PollFd::new(requests.as_fd(), PollFlags::POLLIN),
        ];
        let ready = poll(&mut fds, PollTimeout::NONE);
        let [is_end, is_request] = fds.map(|fd| fd.any().unwrap_or(false));
        if is_end {
            return;
        }
        if ready.is_ok() && is_request {
            consume(requests);
            ask(recorders);
        }
    }
}

/// Asks all recorders to end.
fn ask(recorders: &[Recorder<'_>]) {
    for recorder in recorders {
        // A recorder that has ended reads no requests.
        let _ = nix::unistd::write(&recorder.stop, &[0]);
    }
}

fn join(thread: ScopedJoinHandle<'_, Result<Outcome, Error>>) -> Result<Outcome, Error> {
    let result = thread.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn new_pipe() -> Result<(OwnedFd, OwnedFd), Error> {
    let pipe = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK);
    pipe.map_err(|error| Error::StartStub(error.into()))
}
