//! The session with one client: takes packets, sends replies and stop replies. Knows no sockets.

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
use crate::samples::{Samples, TimerSamples};
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

/// How a session has ended, or what it has led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The stub has detached from the program.
    Detached,
    /// The stub has killed the program.
    Killed,
    /// The server must end.
    Exit,
    /// The client may neither control nor observe, and has been sent the reason.
    Refused,
    /// The client does not read what the stub sends.
    NotReading,
    /// Another client has begun to send at the other end of the serial line.
    Superseded,
}

/// One client.
pub(crate) struct Session {
    framing: Framing,
    stub: Stub,
    dialect: Dialect,
    name: String,
    number: u32,
    /// The client's role. `None` before its first packet.
    role: Option<Role>,
    /// The reason why the client may take no role.
    refused: Option<String>,
    /// Notifications that the client has received as an observer.
    notified: Notified,
    /// The files that the client has open.
    files: Files,
    /// Packets that the stub does not answer for this client.
    disabled_packets: DisabledPackets,
    /// The thread for register packets (`Hg`).
    selected: Option<Tid>,
    /// The thread for `c` and `s` (`Hc`).
    resumed: Option<Tid>,
    /// The client has requested extended mode.
    extended: bool,
    /// The client waits for a stop reply.
    waiting: bool,
    /// The thread list that the client is reading.
    threads: Vec<u8>,
    /// The library list that the client is reading.
    libraries: Vec<u8>,
    /// The system table that the client is reading.
    os_table: Vec<u8>,
    /// Stops that the client has not seen yet (non-stop mode).
    stop_notifications: StopNotifications,
    /// The trace frame that the client reads registers and memory from.
    frame: Option<usize>,
    /// The remaining definitions of tracepoints or variables that the client is reading.
    upload: VecDeque<Vec<u8>>,
    /// The addresses of each process's libc symbols, as the client reported them.
    thread_db: BTreeMap<Tid, ThreadDb>,
    /// The recording of the schedule, if the client has requested it.
    schedule: Option<Schedule>,
    /// The recording of CPU samples, if the client has requested it.
    samples: Option<Samples>,
    /// The recording of CPU samples by a timer.
    timer_samples: Option<TimerSamples>,
    /// The connection is a serial line, which does not show that the client has left.
    on_line: bool,
    /// The first packet of another client on the same line.
    greeting: Vec<u8>,
    outcome: Option<Outcome>,
}

impl Session {
    /// A session with a client that has not sent anything.
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
            samples: None,
            timer_samples: None,
            on_line,
            greeting: Vec::new(),
            outcome: None,
        }
    }

    /// The client's role. Before its first packet: an observer without subscriptions.
    pub(crate) fn role(&self) -> Role {
        self.role.unwrap_or(Role::Observer(self.number))
    }

    /// True if the client controls the program.
    pub(crate) fn controls(&self) -> bool {
        self.role == Some(Role::Control)
    }

    /// The client's number among all clients.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// True if the client has not sent its first packet.
    pub(crate) fn is_undecided(&self) -> bool {
        self.role.is_none()
    }

    /// The client's name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The time at which the kernel's records or samples by a timer are due, if the client has
    /// requested any.
    pub(crate) fn kernel_records_due(&self) -> Option<Instant> {
        let schedule = self.schedule.as_ref().map(Schedule::drains);
        let samples = self.samples.as_ref().map(Samples::drains);
        let rings = schedule.into_iter().chain(samples);
        let due = rings.map(|drains| drains.due());
        due.chain(self.timer_samples.as_ref().map(TimerSamples::due))
            .min()
    }

    /// Descriptors that become readable when the kernel's records should be sent immediately.
    pub(crate) fn kernel_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let schedule = self.schedule.as_ref().map(Schedule::drains);
        let samples = self.samples.as_ref().map(Samples::drains);
        let all = schedule.into_iter().chain(samples);
        all.map(|drains| drains.descriptor())
    }

    /// Gives up the client's role, because the client is gone.
    pub(crate) fn leave(&mut self, debuggee: &mut Debuggee) {
        (self.schedule, self.samples, self.timer_samples) = (None, None, None);
        match self.role.take() {
            Some(Role::Control) => debuggee.controller_left(),
            Some(role) => debuggee.observer_left(role),
            None => {}
        }
    }

    /// True if the client has requested extended mode.
    pub(crate) fn is_extended(&self) -> bool {
        self.extended
    }

    /// True if the session ends with the program. This is so at a serial line, because the stub
    /// cannot see the client leave.
    pub(crate) fn is_over_with_program(&self) -> bool {
        self.on_line && !self.extended && self.knows_end()
    }

    /// Takes the first packet of the client that has superseded this one.
    pub(crate) fn take_greeting(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.greeting)
    }

    /// The outcome, if the session has one.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// True if the stub answers this client no longer.
    pub(crate) fn is_over(&self) -> bool {
        match self.outcome {
            Some(Outcome::Exit | Outcome::Refused | Outcome::NotReading | Outcome::Superseded) => {
                true
            }
            Some(Outcome::Detached) => !self.controls(),
            Some(Outcome::Killed) | None => false,
        }
    }

    /// Takes bytes from the client and returns how many were taken. Stops early when the output
    /// buffer is full.
    pub(crate) fn feed(&mut self, debuggee: &mut Debuggee, bytes: &[u8]) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            match self.framing.take(*byte) {
                Some(Incoming::Packet(packet)) => self.packet(debuggee, &packet),
                Some(Incoming::Interrupt) => self.interrupt(debuggee),
                None => continue,
            }
            if self.framing.is_full() || self.is_over() {
                return index + 1;
            }
        }
        bytes.len()
    }

    /// Ends the session of a client that does not read.
    pub(crate) fn give_up(&mut self) {
        self.outcome = Some(Outcome::NotReading);
    }

    /// Moves the bytes to write to the client to the end of `into`.
    pub(crate) fn take_output(&mut self, into: &mut Vec<u8>) {
        self.framing.take_output(into);
    }

    /// Reports a stop of the program to this client, which controls it.
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

    /// Sends stops of single threads to the controlling client.
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
            // A serial line does not show that its client has left.
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
            // Only now, so that the time for the answer does not count as the observer's silence.
            tracee.subscriptions.heard(self.role());
        }
        // Send stops that the packet has caused after its reply.
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

    /// Lets gdbstub answer the packet.
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
        // An observer may read a running thread, so pause it.
        let stopped = debuggee.live().map(|tracee| tracee.pause_threads(&[tid]));
        let replies = self.stub.answer(debuggee, packet);
        if let (Some(stopped), Some(tracee)) = (stopped, debuggee.live()) {
            tracee.unpause_threads(stopped);
        }
        replies
    }

    /// The thread for register packets.
    fn thread(&self, debuggee: &mut Debuggee) -> Option<Tid> {
        let tracee = debuggee.live()?;
        let selected = self.selected.filter(|tid| tracee.process.listed(*tid));
        Some(selected.unwrap_or_else(|| tracee.process.current()))
    }
}
