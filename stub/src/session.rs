//! One client's conversation: packets in, replies and stop replies out. No sockets here.

pub(crate) mod debuggee;
pub(crate) mod framing;
mod front;
mod notices;
mod signal;
mod stop_reply;
mod stub;
mod thread_db;
mod trace_notice;
mod xml;

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::cli::Without;
use crate::sys::Tid;
use crate::tracee::Stop;
use crate::tracee::news::News;

use debuggee::Debuggee;
use framing::{Framing, Incoming};
use front::Answer;
use notices::Notices;
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
}

/// One client.
pub(crate) struct Session {
    framing: Framing,
    stub: Stub,
    dialect: Dialect,
    /// Packets the client is to do without.
    without: Without,
    /// The thread that register packets mean (`Hg`).
    selected: Option<Tid>,
    /// The thread that `c` and `s` mean (`Hc`).
    resumed: Option<Tid>,
    /// The client asked for extended mode.
    extended: bool,
    /// The client waits for a stop reply.
    waiting: bool,
    /// It interrupted a program that had just stopped: the next resume leads to that interrupt.
    interrupt_due: bool,
    /// The thread list that is being read.
    threads: Vec<u8>,
    /// The library list that is being read.
    libraries: Vec<u8>,
    /// The table of the system's that is being read.
    os_table: Vec<u8>,
    /// Stops that the client has not seen (non-stop).
    notices: Notices,
    /// The trace frame that registers and memory are read from.
    frame: Option<usize>,
    /// Tracepoints or variables that are being read.
    upload: VecDeque<Vec<u8>>,
    /// What the client knows of each process's libc.
    thread_db: BTreeMap<Tid, ThreadDb>,
    outcome: Option<Outcome>,
}

impl Session {
    /// A client that has said nothing.
    pub(crate) fn new(without: Without) -> Session {
        Session {
            framing: Framing::new(),
            stub: Stub::new(),
            dialect: Dialect::new(without),
            without,
            selected: None,
            resumed: None,
            extended: false,
            waiting: false,
            interrupt_due: false,
            threads: Vec::new(),
            libraries: Vec::new(),
            os_table: Vec::new(),
            notices: Notices::default(),
            frame: None,
            upload: VecDeque::new(),
            thread_db: BTreeMap::new(),
            outcome: None,
        }
    }

    /// Whether the client asked for extended mode.
    pub(crate) fn is_extended(&self) -> bool {
        self.extended
    }

    /// What has come of it, once it has ended.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Takes what the client sent.
    pub(crate) fn feed(&mut self, debuggee: &mut Debuggee, bytes: &[u8]) {
        for byte in bytes {
            match self.framing.take(*byte) {
                Some(Incoming::Packet(packet)) => self.packet(debuggee, &packet),
                Some(Incoming::Interrupt) => self.interrupt(debuggee),
                None => {}
            }
        }
    }

    /// What is to be written to the client.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        self.framing.take_output()
    }

    /// Sends what is known of threads that came and went, and of trace frames, if the client wants to hear it. Unless
    /// `all` is wanted, a client that drains the trace buffer is told only when it is worth waking it.
    pub(crate) fn tell(&mut self, debuggee: &mut Debuggee, all: bool) {
        let Some(process) = &mut debuggee.family.current else {
            return;
        };
        if !process.trace.drained {
            if let Some(body) = self.dialect.thread_log(&process.log.take()) {
                self.framing.notify(&body);
            }
            return;
        }
        if !all && process.news_due().is_none_or(|due| due > Instant::now()) {
            return;
        }
        for news in process.take_news(all) {
            match news {
                News::Threads(entries) => {
                    if let Some(body) = self.dialect.thread_log(&entries) {
                        self.framing.notify(&body);
                    }
                }
                News::Frames(frames) => {
                    for body in trace_notice::frames(&frames) {
                        self.framing.notify(&body);
                    }
                }
            }
        }
        let dropped = process.trace.newly_dropped();
        if !dropped.is_empty() {
            self.framing.notify(&trace_notice::dropped(&dropped));
        }
        let missed = process.newly_missed(all);
        if !missed.is_empty() {
            self.framing.notify(&trace_notice::missed(&missed));
        }
    }

    /// The program stopped.
    pub(crate) fn stopped(&mut self, debuggee: &mut Debuggee, stop: Stop) {
        self.tell(debuggee, true);
        let Some(process) = &mut debuggee.family.current else {
            return;
        };
        if self.waiting {
            let reply = self.dialect.stop_reply(process, &stop);
            self.framing.send(&reply);
            self.waiting = false;
        }
        if let Stop::Thread(tid, _) = stop {
            self.selected = Some(tid);
        }
        debuggee.last_stop = Some(stop);
        debuggee.family.forget_ended();
    }

    /// The kernel has something to say about the program.
    pub(crate) fn program_moved(&mut self, debuggee: &mut Debuggee) {
        match debuggee.family.poll() {
            Some(stop) => self.stopped(debuggee, stop),
            None => self.tell(debuggee, false),
        }
        self.tell_of_stops(debuggee);
    }

    /// Sends the stops of single threads.
    fn tell_of_stops(&mut self, debuggee: &mut Debuggee) {
        debuggee.family.take_over();
        for process in debuggee.family.members() {
            for stop in process.take_stops() {
                let reply = self.dialect.stop_reply(process, &stop);
                if let Some(notice) = self.notices.push(&stop, reply) {
                    self.framing.notify(&notice);
                }
            }
        }
        if debuggee.non_stop {
            debuggee.family.forget_ended();
        }
    }

    fn interrupt(&mut self, debuggee: &mut Debuggee) {
        if debuggee.non_stop {
            if let Some(process) = debuggee.live() {
                process.interrupt_one();
            }
            return;
        }
        self.interrupt_due = debuggee.live().is_some() && !debuggee.family.is_going();
        if let Some(stop) = debuggee.family.interrupt() {
            self.stopped(debuggee, stop);
        }
    }

    fn packet(&mut self, debuggee: &mut Debuggee, packet: &[u8]) {
        match front::answer(self, debuggee, packet) {
            Answer::Reply(reply) => self.framing.send(&reply),
            Answer::Nothing => {}
            Answer::PassOn => {
                for reply in self.pass_on(debuggee, packet) {
                    self.framing.send(&reply);
                }
            }
        }
        // What a packet brought about is told after its reply.
        self.tell_of_stops(debuggee);
        if debuggee.exit_requested {
            self.outcome = Some(Outcome::Exit);
        }
    }

    /// Lets gdbstub answer.
    fn pass_on(&mut self, debuggee: &mut Debuggee, packet: &[u8]) -> Vec<Vec<u8>> {
        let about_thread = matches!(packet.first(), Some(b'g' | b'G' | b'p' | b'P'));
        if about_thread && let Some(tid) = self.thread(debuggee) {
            let select = format!("Hg{:x}", tid.0);
            self.stub.answer(debuggee, select.as_bytes());
        }
        self.stub.answer(debuggee, packet)
    }

    /// The thread that register packets mean.
    fn thread(&self, debuggee: &mut Debuggee) -> Option<Tid> {
        let process = debuggee.live()?;
        let selected = self.selected.filter(|tid| process.listed(*tid));
        Some(selected.unwrap_or_else(|| process.current()))
    }
}
