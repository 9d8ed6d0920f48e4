//! The event loop: one thread, which sleeps until a client, the program, or a signal to this process
//! has something to say.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::cli::{Options, Subject, Without};
use crate::comm::{CommError, Door, Stream};
use crate::probe::trace::Ended;
use crate::session::debuggee::Debuggee;
use crate::session::{Outcome, Session};
use crate::sys::signals::{Signals, Told};
use crate::tracee::{Action, Error, Program};

/// The shortest sleep of poll(2), which counts milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// Why there is nothing to serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServeError {
    /// No connection.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// No program.
    #[error(transparent)]
    Program(#[from] Error),
    /// The system refused a signal descriptor or a poll.
    #[error("cannot wait for events: {0}; the system is out of resources")]
    System(#[from] Errno),
}

/// Serves until there is nothing left to serve.
pub(crate) fn serve(options: Options) -> Result<(), ServeError> {
    let signals = Signals::new()?;
    // The connection first: a program that nobody can connect to is not started.
    let door = options.comm.open(options.peers)?;
    let quiet = options.comm.is_single();
    let program = Program {
        words: Vec::new(),
        wrapper: options.wrapper,
        environment: std::env::vars_os().collect(),
        directory: None,
        fixed_addresses: options.fixed_addresses,
        detached_stdio: options.comm.is_stdio(),
        mask: signals.original_mask(),
    };
    let mut debuggee = Debuggee::new(program, options.limits);
    let multi = options.subject == Subject::Any;
    match options.subject {
        Subject::Any => {}
        Subject::Attach(pid) => {
            debuggee.attach(pid)?;
            if !quiet {
                crate::say!("Attached; pid = {pid}");
            }
        }
        Subject::Start(words) => {
            debuggee.program.words = words;
            debuggee.start()?;
            if let (Some(pid), Some(name), false) =
                (debuggee.pid(), debuggee.program.words.first(), quiet)
            {
                crate::say!("Process {} created; pid = {pid}", name.display());
            }
        }
    }
    let mut server = Server {
        signals,
        door,
        debuggee,
        multi,
        once: options.once || quiet,
        quiet,
        terminated: false,
        without: options.without,
    };
    server.run()
}

struct Server {
    signals: Signals,
    door: Door,
    debuggee: Debuggee,
    /// The server outlives its programs.
    multi: bool,
    /// The first client is the last.
    once: bool,
    /// Nothing but errors on standard error.
    quiet: bool,
    /// What clients are to do without.
    without: Without,
    /// We were told to end.
    terminated: bool,
}

/// What woke the loop.
struct Awake {
    client: bool,
    signal: bool,
    /// What was due is.
    late: bool,
}

impl Server {
    fn run(&mut self) -> Result<(), ServeError> {
        loop {
            match &self.door {
                _ if self.quiet => {}
                Door::Socket(_, path) => crate::say!("Listening at {}", path.display()),
                door => {
                    if let Some(port) = door.port() {
                        crate::say!("Listening on port {port}");
                    }
                }
            }
            let Some(stream) = self.next_client()? else {
                break;
            };
            let mut session = Session::new(self.without);
            let served = self.converse(stream, &mut session);
            self.debuggee.client_left();
            served?;
            if self.terminated || self.leave(&session) {
                break;
            }
        }
        self.end();
        Ok(())
    }

    fn next_client(&mut self) -> Result<Option<Stream>, ServeError> {
        loop {
            if let Door::Open(stream) = &mut self.door {
                return Ok(stream.take());
            }
            let Some(listener) = self.door.listener() else {
                return Ok(None);
            };
            let awake = wait(&listener, &self.signals, self.debuggee.pause_ends())?;
            if awake.signal {
                self.signals_came();
                if self.terminated {
                    return Ok(None);
                }
                // Halted, the program has nothing to report, but its children have; it may also go on, being traced.
                if let Some(stop) = self.debuggee.family.poll() {
                    self.debuggee.last_stop = Some(stop);
                }
            }
            if awake.late {
                self.debuggee.keep_budget();
            }
            if awake.client
                && let Some(stream) = self.door.accept()
            {
                if let (Some((host, port)), false) = (stream.peer(), self.quiet) {
                    crate::say!("Remote debugging from host {host}, port {port}");
                }
                if let Some(stop) = self.debuggee.family.interrupt() {
                    self.debuggee.last_stop = Some(stop);
                }
                return Ok(Some(stream));
            }
        }
    }

    /// Serves one client until it leaves.
    fn converse(&mut self, mut stream: Stream, session: &mut Session) -> Result<(), ServeError> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let pause = self.debuggee.pause_ends();
            let due = self.debuggee.news_due().into_iter().chain(pause).min();
            let awake = wait(&stream, &self.signals, due)?;
            if awake.late {
                self.debuggee.keep_budget();
            }
            if awake.signal {
                self.signals_came();
                if self.terminated {
                    return Ok(());
                }
                session.program_moved(&mut self.debuggee);
            } else if awake.late && stream.takes_more() {
                session.tell(&mut self.debuggee, false);
            }
            if awake.client {
                match stream.read(&mut buffer) {
                    0 => {
                        self.halt();
                        return Ok(());
                    }
                    got => session.feed(&mut self.debuggee, &buffer[..got]),
                }
            }
            let output = session.take_output();
            if !output.is_empty() && !stream.write(&output) {
                self.halt();
                return Ok(());
            }
            if session.outcome().is_some() && self.leave_now(session) {
                return Ok(());
            }
        }
    }

    /// Reads the signals that came.
    fn signals_came(&mut self) {
        while let Some(told) = self.signals.take() {
            match told {
                Told::Child => {}
                Told::End => self.terminated = true,
                // The keys are the program's, if there is one.
                Told::Key => self.terminated |= self.debuggee.pid().is_none(),
            }
        }
    }

    /// A client that is gone can neither stop nor resume: the next one finds the program halted. But a trace may be
    /// meant to go on (`QTDisconnected`), and the program with it.
    fn halt(&mut self) {
        self.debuggee.stop_all();
        let Some(process) = self.debuggee.family.current.as_mut() else {
            return;
        };
        if process.trace.running && process.trace.disconnected && !self.once {
            if process.is_going() {
                return;
            }
            let stop = process.resume(|_| Action::Continue(0), Action::Continue(0));
            self.debuggee.last_stop = stop.or(self.debuggee.last_stop.take());
            return;
        }
        if let Some(stop) = self.debuggee.family.interrupt() {
            self.debuggee.last_stop = Some(stop);
        }
        if let Some(process) = self.debuggee.live() {
            process.stop_trace(Ended::Disconnected);
        }
    }

    /// Whether the conversation is over by what was said in it.
    fn leave_now(&self, session: &Session) -> bool {
        match session.outcome() {
            Some(Outcome::Exit) => true,
            Some(Outcome::Detached | Outcome::Killed) => !self.multi && !session.is_extended(),
            None => false,
        }
    }

    /// Whether the server is done after this client.
    fn leave(&self, session: &Session) -> bool {
        let idle = self.debuggee.pid().is_none();
        session.outcome() == Some(Outcome::Exit)
            || self.once
            || (idle && !self.multi && !session.is_extended())
    }

    /// Leaves the program as the help says.
    fn end(&mut self) {
        for mut process in self.debuggee.family.dissolve() {
            if process.attached || process.resumed {
                process.detach();
            } else {
                process.kill();
            }
        }
    }
}

/// Sleeps until something happens, or, with `due`, until then; if the client is slow to read, a little longer.
fn wait(client: &impl AsFd, signals: &Signals, due: Option<Instant>) -> Result<Awake, Errno> {
    let mut descriptors = [
        PollFd::new(client.as_fd(), PollFlags::POLLIN),
        PollFd::new(signals.as_fd(), PollFlags::POLLIN),
    ];
    loop {
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left.max(SHORTEST)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut descriptors, timeout) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => {
                let any = |index: usize| descriptors[index].any().unwrap_or(true);
                return Ok(Awake {
                    client: any(0),
                    signal: any(1),
                    late: due.is_some_and(|due| due <= Instant::now()),
                });
            }
        }
    }
}
