//! One client's conversation: packets in, replies and stop replies out. No sockets here.

mod control;
pub(crate) mod debuggee;
pub(crate) mod disabled_packets;
pub(crate) mod framing;
mod notify;
mod packets;
mod signal;
mod stop_notifications;
mod stop_reply;
mod stub;
mod thread_db;
mod trace_notification;
mod xml;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Instant;

use crate::ptrace::stop::Stop;
use crate::schedule::Schedule;
use crate::subscription::role::Role;
use crate::sys::Tid;
use disabled_packets::DisabledPackets;

use debuggee::Debuggee;
use debuggee::files::Files;
use framing::{Framing, Incoming};
use notify::Notified;
use packets::Answer;
use stop_notifications::StopNotifications;
use stop_reply::Dialect;
use stub::Stub;
use thread_db::ThreadDb;

/// What the conversation has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The program has been detached from.
    Detached,
    /// The program has been killed.
    Killed,
    /// The server is to end.
    Exit,
    /// The client may neither control nor observe, and knows why.
    Refused,
    /// It has been told more than it reads.
    Deaf,
    /// Another client has begun to talk at the other end of its line.
    Superseded,
}

/// One client.
pub(crate) struct Session {
    framing: Framing,
    stub: Stub,
    dialect: Dialect,
    name: String,
    number: u32,
    /// Whether it controls or observes, once it has said something.
    role: Option<Role>,
    /// Why it may do neither.
    refused: Option<String>,
    /// What it has been told as an observer.
    notified: Notified,
    /// The files it has open.
    files: Files,
    /// Packets that this client gets no answer to.
    disabled_packets: DisabledPackets,
    /// The thread that register packets mean (`Hg`).
    selected: Option<Tid>,
    /// The thread that `c` and `s` mean (`Hc`).
    resumed: Option<Tid>,
    /// The client asked for extended mode.
    extended: bool,
    /// The client waits for a stop reply.
    waiting: bool,
    /// The thread list that is being read.
    threads: Vec<u8>,
    /// The library list that is being read.
    libraries: Vec<u8>,
    /// The table of the system's that is being read.
    os_table: Vec<u8>,
    /// Stops that the client has not seen (non-stop).
    stop_notifications: StopNotifications,
    /// The trace frame that registers and memory are read from.
    frame: Option<usize>,
    /// Tracepoints or variables that are being read.
    upload: VecDeque<Vec<u8>>,
    /// What the client knows of each process's libc.
    thread_db: BTreeMap<Tid, ThreadDb>,
    /// When the threads run, if the client wants to know.
    schedule: Option<Schedule>,
    /// Its end is not to be seen: the connection is a serial line.
    on_line: bool,
    /// The first packet of another client at the same line.
    greeting: Vec<u8>,
    outcome: Option<Outcome>,
}

impl Session {
    /// A client that has said nothing.
    pub(crate) fn new(
        disabled_packets: DisabledPackets,
        debuggee: &Debuggee,
        name: String,
        number: u32,
        on_line: bool,
    ) -> Session {
        Session {
            framing: Framing::new(),
            stub: Stub::new(),
            dialect: Dialect::new(disabled_packets),
            disabled_packets,
            name,
            number,
            role: None,
            refused: None,
            notified: Notified::default(),
            files: debuggee.files.for_another(),
            selected: None,
            resumed: None,
            extended: false,
            waiting: false,
            threads: Vec::new(),
            libraries: Vec::new(),
            os_table: Vec::new(),
            stop_notifications: StopNotifications::default(),
            frame: None,
            upload: VecDeque::new(),
            thread_db: BTreeMap::new(),
            schedule: None,
            on_line,
            greeting: Vec::new(),
            outcome: None,
        }
    }

    /// Where it sits. One that has not said anything yet has nothing.
    pub(crate) fn role(&self) -> Role {
        self.role.unwrap_or(Role::Observer(self.number))
    }

    /// Whether it controls the program.
    pub(crate) fn controls(&self) -> bool {
        self.role == Some(Role::Control)
    }

    /// Its number among all clients.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it has yet to say what it wants.
    pub(crate) fn is_undecided(&self) -> bool {
        self.role.is_none()
    }

    /// The client's name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// When it should be sent records of the schedule, if it wants them.
    pub(crate) fn schedule_due(&self) -> Option<Instant> {
        self.schedule.as_ref().map(Schedule::due)
    }

    /// Readable when it should be sent such records at once.
    pub(crate) fn schedule_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.schedule.as_ref().map(Schedule::descriptor)
    }

    /// It is gone, and gives up its role.
    pub(crate) fn leave(&mut self, debuggee: &mut Debuggee) {
        self.schedule = None;
        match self.role.take() {
            Some(Role::Control) => debuggee.controller_left(),
            Some(role) => debuggee.observer_left(role),
            None => {}
        }
    }

    /// Whether the client asked for extended mode.
    pub(crate) fn is_extended(&self) -> bool {
        self.extended
    }

    /// Whether the program's end is the session's, because the client at a serial line cannot be
    /// seen to leave.
    pub(crate) fn is_over_with_program(&self) -> bool {
        self.on_line && !self.extended && self.knows_end()
    }

    /// Takes what another client has said to begin with.
    pub(crate) fn take_greeting(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.greeting)
    }

    /// What has come of it, once it has ended.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Whether nothing is answered any more.
    pub(crate) fn is_over(&self) -> bool {
        match self.outcome {
            Some(Outcome::Exit | Outcome::Refused | Outcome::Deaf | Outcome::Superseded) => true,
            Some(Outcome::Detached) => !self.controls(),
            Some(Outcome::Killed) | None => false,
        }
    }

    /// Takes what the client sent; of much that it asks for, only so much as it has room for. How
    /// many bytes were taken.
    pub(crate) fn feed(&mut self, debuggee: &mut Debuggee, bytes: &[u8]) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            match self.framing.take(*byte) {
                Some(Incoming::Packet(packet)) => self.packet(debuggee, &packet),
                Some(Incoming::Interrupt) => self.interrupt(debuggee),
                None => continue,
            }
            if self.framing.is_laden() || self.is_over() {
                return index + 1;
            }
        }
        bytes.len()
    }

    /// It does not read any more.
    pub(crate) fn give_up(&mut self) {
        self.outcome = Some(Outcome::Deaf);
    }

    /// Takes the bytes to write to the client.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.framing.take_output()
    }

    /// The program stopped, and this client controls it.
    pub(crate) fn stopped(&mut self, debuggee: &mut Debuggee, stop: Stop) {
        self.notify(debuggee, true);
        let Some(tracee) = &mut debuggee.family.current else {
            return;
        };
        if self.waiting {
            let reply = self.dialect.stop_reply(tracee, &stop);
            self.framing.send(&reply);
            self.waiting = false;
        }
        match stop {
            Stop::Thread(tid, _) => self.selected = Some(tid),
            Stop::Exited(_) | Stop::Killed(_) => self.set_end_known(),
            Stop::ThreadExited(..) | Stop::NothingRuns => {}
        }
        debuggee.last_stop = Some(stop);
        debuggee.family.forget_ended();
    }

    /// Sends the stops of single threads, to the client that controls them.
    pub(crate) fn notify_stops(&mut self, debuggee: &mut Debuggee) {
        if !self.controls() {
            return;
        }
        debuggee.family.take_over();
        for tracee in debuggee.family.members() {
            for stop in tracee.take_stops() {
                let reply = self.dialect.stop_reply(tracee, &stop);
                if let Some(notice) = self.stop_notifications.push(&stop, reply) {
                    self.framing.notify(&notice);
                }
            }
        }
        if debuggee.non_stop {
            debuggee.family.forget_ended();
        }
    }

    fn interrupt(&mut self, debuggee: &mut Debuggee) {
        if self.role.is_none() {
            self.take_role(debuggee, &[]);
        }
        if !self.controls() || debuggee.free {
            return;
        }
        if debuggee.non_stop {
            debuggee.family.interrupt_one();
        } else if let Some(stop) = debuggee.family.interrupt_for_client() {
            self.stopped(debuggee, stop);
        }
    }

    fn packet(&mut self, debuggee: &mut Debuggee, packet: &[u8]) {
        if self.on_line && self.role.is_some() && packet.starts_with(b"qSupported") {
            // A line does not show that its client has left.
            self.outcome = Some(Outcome::Superseded);
            self.greeting = framing::framed(packet);
            return;
        }
        if self.role.is_none() {
            self.take_role(debuggee, packet);
        }
        let former = self.look_at_own(debuggee);
        std::mem::swap(&mut self.files, &mut debuggee.files);
        self.answer(debuggee, packet);
        std::mem::swap(&mut self.files, &mut debuggee.files);
        if let Some(former) = former {
            debuggee.family.select(former);
        }
        if !self.controls()
            && let Some(tracee) = debuggee.live()
        {
            // After the answer: what that took is not the observer's.
            tracee.subscriptions.heard(self.role());
        }
        // What a packet brought about is told after its reply.
        self.notify_stops(debuggee);
        if debuggee.exit_requested {
            self.outcome = Some(Outcome::Exit);
        }
    }

    fn answer(&mut self, debuggee: &mut Debuggee, packet: &[u8]) {
        match packets::answer(self, debuggee, packet) {
            Answer::Reply(reply) => self.framing.send(&reply),
            Answer::Nothing => {}
            Answer::PassOn => {
                for reply in self.pass_on(debuggee, packet) {
                    self.framing.send(&reply);
                }
            }
        }
    }

    /// Lets gdbstub answer.
    fn pass_on(&mut self, debuggee: &mut Debuggee, packet: &[u8]) -> Vec<Vec<u8>> {
        let about_thread = matches!(packet.first(), Some(b'g' | b'G' | b'p' | b'P'));
        let Some(tid) = about_thread.then(|| self.thread(debuggee)).flatten() else {
            return self.stub.answer(debuggee, packet);
        };
        let select = format!("Hg{:x}", tid.0);
        self.stub.answer(debuggee, select.as_bytes());
        if self.controls() {
            return self.stub.answer(debuggee, packet);
        }
        // An observer may look at a thread that runs.
        let stopped = debuggee.live().map(|tracee| tracee.pause_threads(&[tid]));
        let replies = self.stub.answer(debuggee, packet);
        if let (Some(stopped), Some(tracee)) = (stopped, debuggee.live()) {
            tracee.unpause_threads(stopped);
        }
        replies
    }

    /// The thread that register packets mean.
    fn thread(&self, debuggee: &mut Debuggee) -> Option<Tid> {
        let tracee = debuggee.live()?;
        let selected = self.selected.filter(|tid| tracee.process.listed(*tid));
        Some(selected.unwrap_or_else(|| tracee.process.current()))
    }
}
