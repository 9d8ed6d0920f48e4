//! The event loop: one thread, which sleeps until a client, the program, or a signal to this
//! process has something to say, and waits for nobody in particular.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getppid};

use crate::cli::{Options, Subject};
use crate::client::Client;
use crate::comm::{Comm, CommError, Door, Stream};
use crate::output;
use crate::ptrace::action::Action;
use crate::ptrace::attach::{Error, Program};
use crate::session::debuggee::Debuggee;
use crate::session::disabled_packets::DisabledPackets;
use crate::session::{Outcome, Session};
use crate::subscription::role::Role;
use crate::sys::scheduling::Turn;
use crate::sys::signals::{Signals, Told};
use crate::sys::{monotonic_ns, ptrace, wait};
use crate::tracee::Tracee;
use crate::tracepoint::experiment::Ended;

/// The shortest sleep of poll(2), which counts milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);
/// So often it is looked whether the program is still held up.
const HELD_UP: Duration = Duration::from_millis(20);
/// How often the stub looks whether an untraced program has ended.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of clients at the same time.
const MAX_CLIENTS: usize = 8;

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
    if options.comm.is_stdio() {
        output::is_connection();
    }
    let program = Program {
        words: Vec::new(),
        wrapper: options.wrapper,
        environment: std::env::vars_os().collect(),
        directory: None,
        fixed_addresses: options.fixed_addresses,
        detached_stdio: options.comm.is_stdio(),
        // A server that a shell or an init script put into the background ignores SIGINT. Its
        // clients' programs must not: a client has no other key. A recorder's own stub passes on
        // what the recorder was given.
        default_keys: !matches!(options.comm, Comm::Descriptor(_)),
        mask: signals.original_mask(),
    };
    let multi = options.subject == Subject::Any;
    let mut debuggee = Debuggee::new(program, options.limits, multi);
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
        clients: Vec::new(),
        number: 0,
        next_greeting: Vec::new(),
        buffer: vec![0; 64 * 1024],
        looked: Instant::now(),
        held_up_since: None,
        turn: Turn::new(),
        multi,
        once: options.once || quiet,
        quiet,
        terminated: false,
        begun_by: matches!(options.comm, Comm::Descriptor(_)).then(getppid),
        disabled_packets: options.disabled_packets,
    };
    server.run()
}

struct Server {
    signals: Signals,
    door: Door,
    debuggee: Debuggee,
    clients: Vec<Client>,
    /// Of the client that came last.
    number: u32,
    /// What the next client at a serial line has sent to the one before it.
    next_greeting: Vec<u8>,
    buffer: Vec<u8>,
    /// When the program was looked after last.
    looked: Instant,
    /// Since when it waits for a client to read, by the monotonic clock.
    held_up_since: Option<u64>,
    turn: Turn,
    /// The server outlives its programs.
    multi: bool,
    /// The first client is the last.
    once: bool,
    /// Nothing but errors on standard error.
    quiet: bool,
    /// Packets that no client gets an answer to.
    disabled_packets: DisabledPackets,
    /// We were told to end.
    terminated: bool,
    /// Who has given us our connection, or watches over us for them.
    begun_by: Option<Pid>,
}

/// What woke the loop.
#[derive(Default)]
struct Awake {
    signal: bool,
    door: bool,
    /// Clients that have said something, by their numbers.
    clients: Vec<u32>,
}

impl Server {
    fn run(&mut self) -> Result<(), ServeError> {
        self.say_where();
        self.take_standing();
        loop {
            self.turn.sleep();
            let awake = self.wait()?;
            self.turn.wake();
            if awake.signal {
                self.signals_came();
                if self.terminated {
                    break;
                }
            }
            let mut done = false;
            for number in awake.clients {
                done = done || self.listen(number);
            }
            self.look_after_all();
            let before = self.clients.len();
            if done || self.see_off() || self.is_abandoned() || self.ended_untraced() {
                break;
            }
            if self.clients.len() < before {
                // The others may have to hear of it.
                self.look_after_all();
            }
            if awake.door
                && let Some(stream) = self.door.accept()
            {
                self.welcome(stream);
            }
            self.take_standing();
            self.debuggee.family.turn_ends(self.turn.so_far());
        }
        self.end();
        self.door = Door::Open(None);
        if !self.quiet && !self.multi {
            self.outlast()?;
        }
        Ok(())
    }

    /// A program that was started here and let go still has the terminal that this was started
    /// from, and whoever started this may take its end for the program's. So it waits, as gdbserver
    /// does, until it is told to end.
    fn outlast(&mut self) -> Result<(), Errno> {
        while !self.terminated {
            match wait::wait(None, false) {
                // One that could not be let go before, or that has ended.
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

    /// Hears a client. Whether there is nothing left to serve.
    fn listen(&mut self, number: u32) -> bool {
        let mut clients = self.clients.iter_mut();
        let undecided = clients.any(|c| c.session.number() == number && c.session.is_undecided());
        // Who wants control does not find it taken by somebody who has left before.
        if undecided && self.settle() {
            return true;
        }
        let mut clients = self.clients.iter_mut();
        if let Some(client) = clients.find(|client| client.session.number() == number) {
            client.listen(&mut self.debuggee, &mut self.buffer);
        }
        false
    }

    /// Hears all that the client in control has said, and sees it off if that was all.
    fn settle(&mut self) -> bool {
        let mut clients = self.clients.iter_mut();
        let Some(control) = clients.find(|client| client.session.controls()) else {
            return false;
        };
        // A socket holds no more, unless it is being filled.
        for _ in 0..64 {
            if !control.stream.has_input() || !control.listen(&mut self.debuggee, &mut self.buffer)
            {
                break;
            }
        }
        self.see_off()
    }

    /// Tells and answers everybody who can be told and answered now.
    fn look_after_all(&mut self) {
        if self.is_held_up() {
            self.held_up_since.get_or_insert_with(monotonic_ns);
        } else {
            self.looked = Instant::now();
            self.program_moved();
            if let Some(since) = self.held_up_since.take() {
                self.debuggee.family.were_held_up(since, monotonic_ns());
            }
        }
        for client in &mut self.clients {
            client.notify(&mut self.debuggee);
            client.answer(&mut self.debuggee);
        }
    }

    /// Whether what has happened already is to be read before anything else is looked at: threads
    /// that have stopped stand meanwhile.
    fn is_held_up(&self) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|client| client.holds_up(&self.debuggee, self.looked))
    }

    fn say_where(&self) {
        match &self.door {
            _ if self.quiet => {}
            Door::Socket(_, path) | Door::Line(_, path) => {
                crate::say!("Listening at {}", path.display());
            }
            door => {
                if let Some(port) = door.port() {
                    crate::say!("Listening on port {port}");
                }
            }
        }
    }

    /// Talks to the client at the other end of a connection that is there without having been asked
    /// for.
    fn take_standing(&mut self) {
        if self.clients.is_empty()
            && let Some(stream) = self.door.standing()
        {
            self.welcome(stream);
            // It may have said something already.
            self.look_after_all();
        }
    }

    fn welcome(&mut self, stream: Stream) {
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
                "{}: {name} was refused: {MAX_CLIENTS} clients are the most",
                crate::NAME
            );
            return;
        }
        let on_line = matches!(self.door, Door::Line(..));
        if self.once {
            // Further clients are refused instead of waiting for an answer.
            self.door = Door::Open(None);
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

    /// The program may have stopped: whoever controls it is told, or, if nobody does, it goes on.
    fn program_moved(&mut self) {
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

    /// Takes leave of clients that are gone or done. Whether there is nothing left to serve.
    fn see_off(&mut self) -> bool {
        let mut index = 0;
        while index < self.clients.len() {
            let client = &self.clients[index];
            let outcome = client.session.outcome();
            // What it was answered last is to reach it.
            let ends = self.has_ended(client) && !client.is_behind();
            if client.is_done() || outcome == Some(Outcome::Exit) || ends {
                let client = self.clients.remove(index);
                if self.take_leave(client, outcome) {
                    return true;
                }
            } else {
                index += 1;
            }
        }
        false
    }

    /// Whether a program that nobody controlled has ended, and nobody is left to be told.
    fn is_abandoned(&self) -> bool {
        let idle = self.debuggee.pid().is_none();
        self.clients.is_empty() && self.debuggee.free && idle && !self.multi
    }

    /// Whether the program has ended while no client was connected, and none is now.
    fn ended_untraced(&mut self) -> bool {
        self.debuggee.untraced_has_ended() && self.clients.is_empty()
    }

    /// Whether the conversation is over by what was said in it.
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

    /// A client leaves. Whether there is nothing left to serve.
    fn take_leave(&mut self, mut client: Client, outcome: Option<Outcome>) -> bool {
        let controlled = client.session.controls();
        if outcome == Some(Outcome::NotReading) {
            crate::say!(
                "{}: {} does not read what it is sent, and is dropped",
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
        let brought = self.debuggee.brought_by == Some(client.session.number());
        if brought && !self.debuggee.free {
            // No other client knows of it.
            self.end();
        }
        client.session.leave(&mut self.debuggee);
        let hung_up = matches!(self.door, Door::Line(..)) && client.is_closed();
        if outcome == Some(Outcome::Exit) || self.once || hung_up {
            return true;
        }
        if matches!(self.door, Door::Line(..)) {
            self.next_greeting = client.take_next();
        }
        let detached = controlled && outcome == Some(Outcome::Detached);
        let released = detached || self.debuggee.released;
        let unwatched = self.debuggee.free && self.debuggee.observers == 0;
        let persists = Tracee::has_persistent_commands;
        if unwatched && !self.debuggee.family.processes().any(persists) {
            match released && self.debuggee.live().is_some_and(|it| it.process.attached) {
                true => self.debuggee.detach(),
                false => self.debuggee.detach_until_next_client(),
            }
        }
        if released && self.debuggee.was_attached() {
            // As gdbserver, which ends when a debugger lets go of what it has attached to.
            self.debuggee.forget_untraced();
        }
        if !self.clients.is_empty() {
            return false;
        }
        let idle = self.debuggee.pid().is_none() && !self.debuggee.has_untraced();
        let done = idle && !self.multi && !client.session.is_extended();
        if !done {
            self.say_where();
        }
        done
    }

    /// Who has given us our connection decides when it ends: what a whole process group is told, as
    /// by timeout(1), that one is told, too.
    fn ends_with_its_client(&self) -> bool {
        self.begun_by == Some(getppid())
    }

    /// Reads the signals that came.
    fn signals_came(&mut self) {
        for told in self.signals.take() {
            match told {
                Told::Child => {}
                Told::End => self.terminated |= !self.ends_with_its_client(),
                // The keys are the program's, if there is one.
                Told::Key => self.terminated |= !self.debuggee.shares_terminal(),
            }
        }
    }

    /// A client that is gone can neither stop nor resume: the next one finds the program halted.
    /// But a trace may be meant to go on (`QTDisconnected`), and the program with it.
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

    /// Leaves the program as the help says.
    fn end(&mut self) {
        for mut tracee in self.debuggee.family.dissolve() {
            if tracee.process.attached || tracee.process.resumed {
                tracee.detach();
            } else {
                tracee.kill();
            }
        }
    }

    /// Sleeps until something happens, or until something is due.
    fn wait(&self) -> Result<Awake, Errno> {
        let mut descriptors = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let door = self.door.listener();
        descriptors.extend(door.map(|door| PollFd::new(door, PollFlags::POLLIN)));
        let first = descriptors.len();
        for client in &self.clients {
            // One that is behind is not heard, but its end is.
            let input = if client.is_heard() {
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
        let schedules = reading.filter_map(|client| client.session.schedule_descriptor());
        descriptors.extend(schedules.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let due = self
            .clients
            .iter()
            .filter_map(|client| client.due(&self.debuggee));
        // While the program is held up, nothing of it is due; but whoever holds it up may have
        // stopped reading.
        let held_up = self.is_held_up().then(|| Instant::now() + HELD_UP);
        let all = || self.debuggee.family.processes();
        let processes = || all().filter(|_| held_up.is_none());
        let due = due.chain(held_up);
        let due = due.chain(processes().filter_map(|it| it.subscriptions.release_due()));
        let due = due.chain(processes().filter_map(Tracee::pause_ends));
        let due = due.chain(processes().filter_map(Tracee::drain_due));
        let due = due.chain(processes().filter_map(Tracee::placement_due));
        let due = due.chain(processes().filter_map(|it| it.process.step_reset_due()));
        let due = due.chain(processes().filter_map(Tracee::forked_check_due));
        // Something may have come to light after the program was looked after.
        let deaf = |client: &&Client| client.session.controls() && client.is_behind();
        let held_back = self.debuggee.non_stop && self.clients.iter().any(|client| deaf(&client));
        let unreported = processes().any(|it| it.process.has_event()) && !held_back;
        let due = due.chain(unreported.then(Instant::now));
        // Nothing reports the end of a process that is neither traced nor our child.
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
                    left.max(SHORTEST)
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
            door: first == 2 && any(1),
            clients: (0..self.clients.len())
                .filter(|index| any(first + index))
                .map(|index| self.clients[index].session.number())
                .collect(),
        })
    }
}
