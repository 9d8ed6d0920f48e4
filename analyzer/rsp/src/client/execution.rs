//! Running and stopping the target: stop reasons, `vCont`, attach, run, detach, kill.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::connection::Received;
use crate::error::Error;
use crate::reply::Reply;
use crate::stop::StopReply;
use crate::thread::ThreadId;

/// How [`Client::resume`] resumes a thread. Signals are gdb's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// `c`
    Continue,
    /// `C`: with a signal delivered.
    ContinueWithSignal(u8),
    /// `s`: one instruction.
    Step,
    /// `S`: one instruction, with a signal delivered.
    StepWithSignal(u8),
    /// `t`: stop (useful in non-stop mode only).
    Stop,
}

impl Action {
    fn letter(self) -> char {
        match self {
            Action::Continue => 'c',
            Action::ContinueWithSignal(_) => 'C',
            Action::Step => 's',
            Action::StepWithSignal(_) => 'S',
            Action::Stop => 't',
        }
    }

    fn packet(self) -> String {
        match self {
            Action::ContinueWithSignal(signal) | Action::StepWithSignal(signal) => {
                format!("{}{signal:02x}", self.letter())
            }
            action => action.letter().to_string(),
        }
    }
}

impl Client {
    /// Extended mode (`!`): the server outlives the program, and [`Client::run`] and
    /// [`Client::attach`] work.
    pub fn extended_mode(&mut self) -> Result<(), Error> {
        self.request("!")?.ok()?;
        self.extended = true;
        Ok(())
    }

    /// The reason why the target is stopped (`?`).
    pub fn stop_reason(&mut self) -> Result<StopReply, Error> {
        let reply = self.request("?")?;
        self.stopped(&reply)
    }

    /// Resumes the target. Each thread follows the first pair that names it; `None` names all
    /// others. Threads without a pair stay stopped, if the server supports that.
    ///
    /// Uses `vCont`. Without it, uses `c`, `C`, `s` or `S`, for a single pair only.
    pub fn resume(&mut self, actions: &[(Action, Option<ThreadId>)]) -> Result<(), Error> {
        self.needs_stop(b"vCont")?;
        let packet = match self.continue_packet(actions)? {
            Some(packet) => packet,
            None => self.prepare_single(actions)?,
        };
        self.connection.send(&packet)?;
        self.set_running();
        Ok(())
    }

    /// Waits for the target to stop. `Ok(None)` if it still runs after the time limit.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<StopReply>, Error> {
        if !self.running {
            return Err(Error::NotRunning);
        }
        let deadline = timeout.map(|t| Instant::now() + t);
        loop {
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let payload = match self.connection.receive(left)? {
                None => return Ok(None),
                Some(Received::Notification(payload)) => {
                    self.connection.keep(payload);
                    continue;
                }
                Some(Received::Packet(payload)) => payload,
            };
            if self.print(&payload) {
                continue;
            }
            // The target requests a file operation on the host (RSP, "File-I/O Remote Protocol
            // Extension"), `Fread,...`. Refuse it with EUNKNOWN; the target continues.
            if matches!(payload.as_slice(), [b'F', b'a'..=b'z', ..]) {
                self.connection.send(b"F-1,270f")?;
                continue;
            }
            let reply = Reply::new(b"vCont", payload);
            return self.stopped(&reply).map(Some);
        }
    }

    /// Whether the target was resumed and has not reported a stop since.
    pub fn is_running(&self) -> bool {
        self.running
    }

    /// Requests a stop of a running target (the byte 0x03); [`Client::wait`] then returns.
    pub fn interrupt(&mut self) -> Result<(), Error> {
        self.connection.interrupt()
    }

    /// Attaches to a process (`vAttach`, extended mode).
    pub fn attach(&mut self, pid: u64) -> Result<StopReply, Error> {
        let reply = self.request(format!("vAttach;{pid:x}"))?;
        let stop = self.stopped(&reply)?;
        self.process = Some(pid);
        self.description = self.describe()?;
        Ok(stop)
    }

    /// Starts a program (`vRun`, extended mode). It stops at its first instruction.
    pub fn run(&mut self, program: &str, args: &[impl AsRef<str>]) -> Result<StopReply, Error> {
        let mut packet = format!("vRun;{}", crate::hex::encode(program.as_bytes()));
        for arg in args {
            let _ = write!(packet, ";{}", crate::hex::encode(arg.as_ref().as_bytes()));
        }
        self.process = None;
        let reply = self.request(packet)?;
        let stop = self.stopped(&reply)?;
        // A program that exited at once has no registers.
        if matches!(stop, StopReply::Stopped { .. }) {
            self.description = self.describe()?;
        }
        Ok(stop)
    }

    /// Detaches from the process (`D`), which continues.
    pub fn detach(&mut self) -> Result<(), Error> {
        match self.process.filter(|_| self.features.has("multiprocess")) {
            Some(pid) => self.detach_process(pid),
            None => {
                self.request("D")?.ok()?;
                self.forget();
                Ok(())
            }
        }
    }

    /// Detaches from one of several processes, such as the child of a fork (`D;pid`).
    pub fn detach_process(&mut self, pid: u64) -> Result<(), Error> {
        self.request(format!("D;{pid:x}"))?.ok()?;
        let others = self.process.filter(|process| *process != pid);
        self.forget();
        self.process = others;
        Ok(())
    }

    /// Kills the process (`vKill`, else `k`). Outside extended mode the server then exits.
    pub fn kill(&mut self) -> Result<(), Error> {
        if let Some(pid) = self.process.filter(|_| self.features.has("multiprocess")) {
            let result = self.request(format!("vKill;{pid:x}"))?.ok();
            if !self.lacks("vKill", result)? {
                self.forget();
                return Ok(());
            }
        }
        self.needs_stop(b"k")?;
        self.forget();
        // "The `k` packet has no response" (RSP, "Packets"); many servers just close the
        // connection.
        match self.connection.send(b"k") {
            Err(Error::Closed { .. }) => Ok(()),
            result => result,
        }
    }

    /// The `vCont` packet, or `None` if the server has none.
    pub(super) fn continue_packet(
        &mut self,
        actions: &[(Action, Option<ThreadId>)],
    ) -> Result<Option<Vec<u8>>, Error> {
        let known = self.known_actions()?;
        if known.is_empty() {
            return Ok(None);
        }
        let mut packet = String::from("vCont");
        for (action, thread) in actions {
            if !known.split(';').any(|a| a == action.letter().to_string()) {
                return Err(Error::Unsupported {
                    packet: format!("vCont;{}", action.letter()),
                });
            }
            let _ = write!(packet, ";{}", action.packet());
            if let Some(thread) = thread {
                let _ = write!(packet, ":{thread}");
            }
        }
        Ok(Some(packet.into_bytes()))
    }

    pub(super) fn set_running(&mut self) {
        self.running = true;
        self.selected = None;
        self.threads = None;
    }

    /// The actions of `vCont`, requested once: `c;C;s;S;t`.
    fn known_actions(&mut self) -> Result<String, Error> {
        if self.actions.is_none() {
            let reply = self.request("vCont?")?;
            let text = match reply.text() {
                Err(error) if error.is_unsupported() => String::new(),
                text => text?,
            };
            self.actions = Some(text.strip_prefix("vCont;").unwrap_or_default().to_owned());
        }
        Ok(self.actions.clone().unwrap_or_default())
    }

    /// Without `vCont`: sends `Hc` for the thread and returns the resume packet.
    fn prepare_single(&mut self, actions: &[(Action, Option<ThreadId>)]) -> Result<Vec<u8>, Error> {
        let [(action, thread)] = actions else {
            return Err(Error::Unsupported {
                packet: "vCont".into(),
            });
        };
        // -1: all threads.
        let thread = thread.map_or("-1".to_owned(), |thread| thread.to_string());
        if self.control.as_ref() != Some(&thread) {
            match self.request(format!("Hc{thread}"))?.ok() {
                Err(error) if !error.is_unsupported() => return Err(error),
                _ => self.control = Some(thread),
            }
        }
        Ok(action.packet().into_bytes())
    }

    /// Decodes a stop reply and updates the session's state.
    fn stopped(&mut self, reply: &Reply) -> Result<StopReply, Error> {
        self.running = false;
        self.selected = None;
        self.threads = None;
        let stop = StopReply::decode(reply.payload()?)
            .ok_or_else(|| reply.malformed("a stop reply (T, S, W, X, w or N)"))?;
        match &stop {
            StopReply::Stopped {
                thread: Some(thread),
                ..
            } => {
                // Like gdb: the thread that stopped becomes the server's current one.
                self.selected = Some(*thread);
                self.process = self.process.or(thread.pid);
            }
            StopReply::Exited { pid, .. } | StopReply::Terminated { pid, .. }
                if pid.is_none() || *pid == self.process =>
            {
                self.process = None;
            }
            _ => {}
        }
        Ok(stop)
    }

    /// Forgets the process, which ended or was replaced.
    fn forget(&mut self) {
        self.process = None;
        self.selected = None;
        self.threads = None;
        self.running = false;
    }
}
