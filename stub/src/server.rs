//! The event loop. One thread sleeps until a client, the program or a signal needs attention, and
//! never blocks on any one of them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getppid};

use crate::cli::{Options, Subject};
use crate::client::Client;
use crate::comm::{Comm, CommError, Endpoint, Stream};
use crate::output;
use crate::ptrace::action::Action;
use crate::ptrace::attach::{Error, Program};
use crate::ptrace::environment::Environment;
use crate::session::debuggee::Debuggee;
use crate::session::disabled_packets::DisabledPackets;
use crate::session::{Outcome, Session};
use crate::subscription::role::Role;
use crate::sys::scheduling::Turn;
use crate::sys::signals::{Signals, Told};
use crate::sys::{processor_ns, ptrace, wait};
use crate::tracee::Tracee;
use crate::tracepoint::experiment::Ended;

/// Minimum timeout of poll(2), which counts milliseconds.
const MIN_SLEEP: Duration = Duration::from_millis(1);
/// Interval at which the stub checks whether a client still holds up the program.
const HELD_UP_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which the stub checks whether an untraced program has ended.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of clients at the same time.
const MAX_CLIENTS: usize = 8;

/// The reasons why the server cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ServeError {
    /// There is no connection.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// There is no program.
    #[error(transparent)]
    Program(#[from] Error),
    /// The system refused a signal descriptor or a poll.
    #[error("cannot wait for events: {0}; the system is out of resources")]
    System(#[from] Errno),
}

/// Serves until there is nothing left to serve.
pub(crate) fn serve(options: Options) -> Result<(), ServeError> {
    let signals = Signals::new()?;
    // Open the connection first, so that the program starts only if a client can connect.
    let endpoint = options.comm.open(options.peers)?;
    let quiet = options.comm.is_single();
    if options.comm.is_stdio() {
        output::is_connection();
    }
    let is_begun = matches!(options.comm, Comm::Descriptor(_));
    let program = Program {
        words: Vec::new(),
        wrapper: options.wrapper,
        environment: Environment::own(),
        directory: None,
        fixed_addresses: options.fixed_addresses,
        detached_stdio: options.comm.is_stdio(),
        // A server that a shell or an init script started in the background ignores SIGINT. Its
        // clients' programs must not ignore it, because SIGINT is how a client interrupts them. The
        // stub of a recorder keeps the signal dispositions that the recorder got.
        default_keys: !is_begun,
        mask: signals.original_mask(),
    };
    let multi = options.subject == Subject::Any;
    let started_program = matches!(options.subject, Subject::Start(_));
    let mut debuggee = Debuggee::new(program, options.limits, multi);
    debuggee.ends_detached = is_begun && matches!(options.subject, Subject::Attach(_));
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
        endpoint,
        debuggee,
        clients: Vec::new(),
        number: 0,
        next_greeting: Vec::new(),
        buffer: vec![0; 64 * 1024],
        polled: Instant::now(),
        turn: Turn::new(),
        multi,
        started_program,
        once: options.once || quiet,
        quiet,
        terminated: false,
        begun_by: is_begun.then(getppid),
        disabled_packets: options.disabled_packets,
    };
    server.run()
}

struct Server {
    signals: Signals,
    endpoint: Endpoint,
    debuggee: Debuggee,
    clients: Vec<Client>,
    /// Number of the last client.
    number: u32,
    /// Bytes that the next client on a serial line has sent already.
    next_greeting: Vec<u8>,
    buffer: Vec<u8>,
    /// The time at which the stub last polled the program.
    polled: Instant,
    turn: Turn,
    /// The server outlives its programs.
    multi: bool,
    /// The server has started its program, instead of attaching to it.
    started_program: bool,
    /// The server ends after the first client.
    once: bool,
    /// Print only errors.
    quiet: bool,
    /// Packets that the stub does not answer for any client.
    disabled_packets: DisabledPackets,
    /// A signal has asked the server to end.
    terminated: bool,
    /// The process that passed the connection to the stub, or its guardian.
    begun_by: Option<Pid>,
}

/// The reasons why the loop woke up.
#[derive(Default)]
struct Awake {
    signal: bool,
    endpoint: bool,
    /// Numbers of clients that have sent something.
    clients: Vec<u32>,
}

impl Server {
    fn run(&mut self) -> Result<(), ServeError> {
        self.announce_endpoint();
        self.take_permanent_connection();
        loop {
            self.turn.sleep();
            let awake = self.wait()?;
            self.turn.wake();
            if awake.signal {
                self.handle_signals();
                if self.terminated {
                    break;
                }
            }
            let mut done = false;
            for number in awake.clients {
                done = done || self.listen(number);
            }
            self.serve_all();
            let before = self.clients.len();
            if done
                || self.remove_finished_clients()
                || self.is_abandoned()
                || self.ended_untraced()
            {
                break;
            }
            if self.clients.len() < before {
                // The other clients may have to be informed.
                self.serve_all();
            }
            if awake.endpoint
                && let Some(stream) = self.endpoint.accept()
            {
                self.add_client(stream);
            }
            self.take_permanent_connection();
            self.debuggee.family.turn_ends(self.turn.so_far());
        }
        self.end();
        self.endpoint = Endpoint::Open(None);
        if !self.quiet && self.started_program {
            self.wait_after_detach()?;
        }
        Ok(())
    }

    /// Waits after a detach until the program that the stub started ends or the stub gets a signal
    /// to end, as gdbserver does. The program still uses the stub's terminal, and the stub's parent
    /// may take the end of the stub for that of the program.
    fn wait_after_detach(&mut self) -> Result<(), Errno> {
        while !self.terminated {
            match wait::wait(None, false) {
                // The process could not be detached before, or has ended.
                Ok(Some((tid, _))) => {
                    let _ = ptrace::detach(tid, 0);
                    continue;
                }
                Ok(None) => {}
                Err(Errno::ECHILD) => break,
                Err(errno) => return Err(errno),
            }
            let mut signals = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            match poll(&mut signals, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            self.terminated |= self.signals.take().contains(&Told::End);
        }
        Ok(())
    }

    /// Reads from a client. Returns true if there is nothing left to serve.
    fn listen(&mut self, number: u32) -> bool {
        let mut clients = self.clients.iter_mut();
        let undecided = clients.any(|c| c.session.number() == number && c.session.is_undecided());
        // Handle the controlling client first: it may have left, and then control is free.
        if undecided && self.serve_controller() {
            return true;
        }
        let mut clients = self.clients.iter_mut();
        if let Some(client) = clients.find(|client| client.session.number() == number) {
            let before = processor_ns();
            client.listen(&mut self.debuggee, &mut self.buffer);
            self.debuggee.exclude_from_budgets(processor_ns() - before);
        }
        false
    }

    /// Reads everything from the controlling client, and removes it if it has left.
    fn serve_controller(&mut self) -> bool {
        let mut clients = self.clients.iter_mut();
        let Some(control) = clients.find(|client| client.session.controls()) else {
            return false;
        };
        // Limit for a client that keeps sending; a socket's buffer holds no more.
        for _ in 0..64 {
            if !control.stream.has_input() || !control.listen(&mut self.debuggee, &mut self.buffer)
            {
                break;
            }
        }
        self.remove_finished_clients()
    }

    /// Polls the program, and sends notifications and answers to all clients.
    fn serve_all(&mut self) {
        if !self.is_held_up() {
            self.polled = Instant::now();
            self.turn.look();
            self.poll_program();
        }
        for client in &mut self.clients {
            client.notify(&mut self.debuggee);
            client.answer(&mut self.debuggee);
        }
    }

    /// True if a client must read before the stub polls the program again. Threads that have
    /// stopped stay stopped meanwhile.
    fn is_held_up(&self) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|client| client.holds_up(&self.debuggee, self.polled))
    }

    fn announce_endpoint(&self) {
        match &self.endpoint {
            _ if self.quiet => {}
            Endpoint::Socket(_, path) | Endpoint::Line(_, path) => {
                crate::say!("Listening at {}", path.display());
            }
            endpoint => {
                if let Some(port) = endpoint.port() {
                    crate::say!("Listening on port {port}");
                }
            }
        }
    }

    /// Adds the client of a connection that needs no accept.
    fn take_permanent_connection(&mut self) {
        if self.clients.is_empty()
            && let Some(stream) = self.endpoint.permanent_connection()
        {
            self.add_client(stream);
            // The client may have sent something already.
            self.serve_all();
        }
    }

    fn add_client(&mut self, stream: Stream) {
        self.number = self.number.wrapping_add(1);
        let name = match stream.peer() {
            Some((host, port)) => {
                if !self.quiet {
                    crate::say!("Remote debugging from host {host}, port {port}");
                }
                format!("the client at {host}, port {port}")
            }
            None => format!("client {}", self.number),
        };
        if self.clients.len() >= MAX_CLIENTS {
            crate::say!(
                "{}: refused {name}: at most {MAX_CLIENTS} clients can connect at a time",
                crate::NAME
            );
            return;
        }
        let on_line = matches!(self.endpoint, Endpoint::Line(..));
        if self.once {
            // Close the listener, so that further clients fail to connect instead of waiting.
            self.endpoint = Endpoint::Open(None);
        }
        let session = Session::new(
            self.disabled_packets,
            &self.debuggee,
            name,
            self.number,
            on_line,
        );
        let sent = std::mem::take(&mut self.next_greeting);
        self.clients.push(Client::new(stream, session, sent));
    }

    /// Polls the program. Reports a stop to the controlling client, or lets the program continue if
    /// there is none.
    fn poll_program(&mut self) {
        let Some(stop) = self.debuggee.family.poll() else {
            return;
        };
        let free = self.debuggee.free;
        let controller = self
            .clients
            .iter_mut()
            .find(|client| client.session.controls());
        match controller.filter(|_| !free) {
            Some(client) => client.session.stopped(&mut self.debuggee, stop),
            None => self.debuggee.stopped_alone(stop),
        }
    }

    /// Removes clients that are gone or done. Returns true if there is nothing left to serve.
    fn remove_finished_clients(&mut self) -> bool {
        let mut index = 0;
        while index < self.clients.len() {
            let client = &self.clients[index];
            let outcome = client.session.outcome();
            // Deliver the last answer first.
            let ends = self.has_ended(client) && !client.is_behind();
            if client.is_done() || outcome == Some(Outcome::Exit) || ends {
                let client = self.clients.remove(index);
                if self.remove_client(client, outcome) {
                    return true;
                }
            } else {
                index += 1;
            }
        }
        false
    }

    /// True if a program without a controlling client has ended and no client is left.
    fn is_abandoned(&self) -> bool {
        let idle = self.debuggee.pid().is_none();
        self.clients.is_empty() && self.debuggee.free && idle && !self.multi
    }

    /// True if the program has ended while no client was connected, and no client has connected
    /// since.
    fn ended_untraced(&mut self) -> bool {
        self.debuggee.untraced_has_ended() && self.clients.is_empty()
    }

    /// True if the session has ended by a packet.
    fn has_ended(&self, client: &Client) -> bool {
        match client.session.outcome() {
            Some(Outcome::Detached) if !client.session.controls() => true,
            Some(Outcome::Detached | Outcome::Killed) => {
                !self.multi && !client.session.is_extended()
            }
            _ if self.multi || self.debuggee.pid().is_some() => false,
            _ => client.session.is_over_with_program(),
        }
    }

    /// Removes a client. Returns true if there is nothing left to serve.
    fn remove_client(&mut self, mut client: Client, outcome: Option<Outcome>) -> bool {
        let controlled = client.session.controls();
        if outcome == Some(Outcome::NotReading) {
            crate::say!(
                "{}: disconnected {}: it does not read the stub's replies",
                crate::NAME,
                client.session.name()
            );
        }
        if controlled {
            self.debuggee.family.forget_interrupts();
        }
        if controlled && !self.debuggee.free {
            self.halt();
        }
        let started_it = self.debuggee.brought_by == Some(client.session.number());
        if started_it && !self.debuggee.free {
            // No other client knows of the program.
            self.end();
        }
        client.session.leave(&mut self.debuggee);
        let hung_up = matches!(self.endpoint, Endpoint::Line(..)) && client.is_closed();
        if outcome == Some(Outcome::Exit) || self.once || hung_up {
            return true;
        }
        if matches!(self.endpoint, Endpoint::Line(..)) {
            self.next_greeting = client.take_next();
        }
        let detached = controlled && outcome == Some(Outcome::Detached);
        let released = detached || self.debuggee.released;
        let unobserved = self.debuggee.free && self.debuggee.observers == 0;
        let persists = Tracee::has_persistent_commands;
        if unobserved && !self.debuggee.family.processes().any(persists) {
            match released && self.debuggee.live().is_some_and(|it| it.process.attached) {
                true => self.debuggee.detach(),
                false => self.debuggee.detach_until_next_client(),
            }
        }
        if released && self.debuggee.was_attached() {
            // gdbserver, too, ends when a debugger detaches from a process that gdbserver has
            // attached to.
            self.debuggee.forget_untraced();
        }
        if !self.clients.is_empty() {
            return false;
        }
        let idle = self.debuggee.pid().is_none() && !self.debuggee.has_untraced();
        let done = idle && !self.multi && !client.session.is_extended();
        if !done {
            self.announce_endpoint();
        }
        done
    }

    /// True if the process that passed the connection decides when the stub ends. A signal to a
    /// whole process group, as from timeout(1), also reaches that process.
    fn ends_with_its_client(&self) -> bool {
        self.begun_by == Some(getppid())
    }

    /// Handles the signals that have arrived.
    fn handle_signals(&mut self) {
        for told in self.signals.take() {
            match told {
                Told::Child => {}
                Told::End => self.terminated |= !self.ends_with_its_client(),
                // Interrupt keys are meant for the program, if there is one.
                Told::Key => self.terminated |= !self.debuggee.shares_terminal(),
            }
        }
    }

    /// Halts the program after the controlling client has gone, so that the next client finds it
    /// halted. The program keeps running if its trace must continue (`QTDisconnected`).
    fn halt(&mut self) {
        self.debuggee.stop_all();
        let Some(tracee) = self.debuggee.family.current.as_mut() else {
            return;
        };
        let trace = tracee.trace(Role::Control);
        if trace.running && trace.disconnected && !self.once {
            if tracee.process.is_going() {
                return;
            }
            let stop = tracee.resume(|_| Action::Continue(0), Action::Continue(0));
            self.debuggee.last_stop = stop.or(self.debuggee.last_stop.take());
            return;
        }
        if let Some(stop) = self.debuggee.family.interrupt() {
            self.debuggee.last_stop = Some(stop);
        }
        if let Some(tracee) = self.debuggee.live() {
            tracee.stop_trace(Role::Control, Ended::Disconnected);
        }
    }

    /// Detaches from the program or kills it, as the help text says.
    fn end(&mut self) {
        for mut tracee in self.debuggee.family.dissolve() {
            if self.debuggee.ends_detached {
                tracee.detach_at_end();
            } else if tracee.process.attached || tracee.process.resumed {
                tracee.detach();
            } else {
                tracee.kill();
            }
        }
    }

    /// Sleeps until an event arrives or an action is due.
    fn wait(&self) -> Result<Awake, Errno> {
        let mut descriptors = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let endpoint = self.endpoint.listener();
        descriptors.extend(endpoint.map(|endpoint| PollFd::new(endpoint, PollFlags::POLLIN)));
        let first = descriptors.len();
        for client in &self.clients {
            // Do not read from a client that is behind, but detect its end.
            let input = if client.is_read() {
                PollFlags::POLLIN
            } else {
                PollFlags::empty()
            };
            descriptors.push(PollFd::new(client.stream.as_fd(), input));
        }
        for client in self.clients.iter().filter(|client| client.is_behind()) {
            descriptors.push(PollFd::new(client.stream.output(), PollFlags::POLLOUT));
        }
        let reading = self.clients.iter().filter(|client| !client.is_behind());
        let kernel = reading.flat_map(|client| client.session.kernel_descriptors());
        descriptors.extend(kernel.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let due = self
            .clients
            .iter()
            .filter_map(|client| client.due(&self.debuggee));
        // While a client holds up the program, nothing of the program is due. But check in between,
        // because that client may have stopped reading.
        let held_up = self.is_held_up().then(|| Instant::now() + HELD_UP_INTERVAL);
        let all = || self.debuggee.family.processes();
        let processes = || all().filter(|_| held_up.is_none());
        let due = due.chain(held_up);
        let due = due.chain(processes().filter_map(|it| it.subscriptions.release_due()));
        let due = due.chain(processes().filter_map(Tracee::pause_ends));
        let due = due.chain(processes().filter_map(Tracee::drain_due));
        let due = due.chain(processes().filter_map(Tracee::placement_due));
        let due = due.chain(processes().filter_map(|it| it.process.step_reset_due()));
        let due = due.chain(processes().filter_map(Tracee::forked_check_due));
        // An event may have arrived after the stub polled the program.
        let is_behind = |client: &&Client| client.session.controls() && client.is_behind();
        let held_back =
            self.debuggee.non_stop && self.clients.iter().any(|client| is_behind(&client));
        let unreported = processes().any(|it| it.process.has_event()) && !held_back;
        let due = due.chain(unreported.then(Instant::now));
        // The kernel does not report the end of a process that is neither traced nor our child.
        let untraced = self.debuggee.has_untraced();
        let due = due
            .chain(untraced.then(|| Instant::now() + CHECK_INTERVAL))
            .min();
        loop {
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(if left.is_zero() {
                    left
                } else {
                    left.max(MIN_SLEEP)
                })
                .unwrap_or(PollTimeout::MAX)
            });
            match poll(&mut descriptors, timeout) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
                Ok(_) => break,
            }
        }
        let any = |index: usize| descriptors[index].any().unwrap_or(true);
        Ok(Awake {
            signal: any(0),
            endpoint: first == 2 && any(1),
            clients: (0..self.clients.len())
                .filter(|index| any(first + index))
                .map(|index| self.clients[index].session.number())
                .collect(),
        })
    }
}
