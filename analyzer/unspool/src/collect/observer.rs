//! Recording beside another client, such as gdb, on one stub: that one controls the program, or nobody does, and we are
//! told what happens (docs/reference/protocol.md, "Several clients").
//!
//! What needs a stop elsewhere needs none here: a thread that loads a library, has a very long stack or executes a
//! file waits for us by itself, some seconds at most, while the program runs on.

use std::time::Duration;

use unspool_capture::{Chunk, EndReason, Event, ProbeKind, Severity, Snapshot};
use unspool_rsp::{Control, Notice, StopReply, ThreadId};

use super::hits;
use super::probes::{Planted, Purpose};
use super::recorder::Recorder;
use super::stack::{FIRST, LiveStack};
use super::{Ended, Error};

/// How long the last that has happened may take to come.
const LAST_NOTICE_TIMEOUT: Duration = Duration::from_millis(50);

impl Recorder {
    /// The program may run from now on, as far as we are concerned.
    pub(super) fn begin_observing(&mut self) -> Result<(), Error> {
        if !self.session.client.let_run()? {
            self.sink.note(
                Severity::Info,
                "another client of the stub, such as gdb, controls the program: while it holds the program, nothing is recorded \
                 because nothing happens, and times go on",
            );
        }
        Ok(())
    }

    /// Acts on what the server told us as an observer, and on the wish to end.
    pub(super) fn observe(&mut self) -> Result<Option<(Ended, EndReason)>, Error> {
        if !self.session.observes {
            return Ok(None);
        }
        while let Some(notice) = self.observed.pop_front() {
            match notice {
                Notice::Held { tid, at } => {
                    let done = self.on_held(tid, at);
                    self.unless_ended(done)?;
                }
                Notice::Executed(path) => {
                    let tid = self.session.pid.unwrap_or(0);
                    let thread = ThreadId {
                        pid: self.session.pid,
                        tid,
                    };
                    let done = self.on_exec(thread, &path);
                    self.unless_ended(done)?;
                }
                Notice::Fatal { tid, signal } => {
                    let done = self.inspect_for_end(Some(signal), false);
                    self.unless_ended(done)?;
                    let released = self.session.client.release(tid);
                    self.unless_ended(released.map(drop).map_err(Error::from))?;
                }
                Notice::Control(control) => self.on_control(control),
                Notice::Ended(Some(
                    end @ (StopReply::Exited { .. } | StopReply::Terminated { .. }),
                )) => {
                    return self.handle(end);
                }
                Notice::Ended(_) => {
                    let text =
                        "the client that controlled the program has let it go, or started another";
                    self.sink.note(Severity::Info, text);
                    return Ok(Some((Ended::Detached, EndReason::Detached)));
                }
                _ => {}
            }
        }
        if self.ending.is_asked() && !self.ends_program() {
            self.leave()?;
            return Ok(Some((Ended::Detached, self.ending.reason())));
        }
        Ok(None)
    }

    /// What a server refused to do because the program has ended meanwhile is no failure: of that we are about to be told.
    fn unless_ended(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = done else { return Ok(()) };
        self.session.client.listen(LAST_NOTICE_TIMEOUT)?;
        self.hear();
        let is_end = |notice: &Notice| matches!(notice, Notice::Ended(_));
        if self.observed.iter().any(is_end) {
            Ok(())
        } else {
            Err(error)
        }
    }

    /// Takes out what is ours; the program goes on as it does.
    fn leave(&mut self) -> Result<(), Error> {
        self.inspect_for_end(None, false)?;
        self.probes.remove_all(&mut self.session.client)?;
        self.end_schedule()?;
        // What was noted before that is told yet.
        self.session.client.listen(LAST_NOTICE_TIMEOUT)?;
        self.hear();
        self.threads
            .compare(&mut self.sink, &mut self.session, false);
        Ok(self.session.client.detach()?)
    }

    /// A thread waits for us.
    fn on_held(&mut self, tid: u64, at: Option<u64>) -> Result<(), Error> {
        let here = at.map(|at| self.probes.at(self.session.abi.code_address(at)));
        let here = here.unwrap_or_default().to_vec();
        // A file has been executed or loaded.
        let is_probe = |planted: &Planted| matches!(planted.purpose, Purpose::Probe { .. });
        let follows = !here.iter().any(is_probe);
        for planted in here {
            match planted.purpose {
                Purpose::Linker => self.update_modules()?,
                Purpose::Resolver => self.on_resolver_held(tid, planted.breakpoint.address)?,
                Purpose::Probe {
                    id,
                    kind: ProbeKind::Create,
                } => self.on_long_stack(tid, id)?,
                // An exec has been seen to already, by its own notice.
                _ => {}
            }
        }
        let waited = self.session.client.release(tid)?;
        if !waited && follows {
            self.sink.note(
                Severity::Warning,
                "the program did not wait until the functions of a file that it executed or loaded were watched: this machine or the \
                 connection is too slow or too busy. Threads that it created first thing after that may be missing",
            );
        }
        Ok(())
    }

    /// A creation whose stack is too long to be noted by the server.
    fn on_long_stack(&mut self, tid: u64, id: u32) -> Result<(), Error> {
        let thread = ThreadId {
            pid: self.session.pid,
            tid,
        };
        let time_ns = self.sink.now_ns();
        let looked = self.session.client.stacks(&[thread], FIRST)?;
        let Some(looked) = looked.into_iter().next() else {
            return Ok(());
        };
        let Some(registers) = looked.registers else {
            return Ok(());
        };
        let registers = self.session.abi.traced(&registers);
        let abi = &self.session.abi;
        let stack = abi.sp(&registers).map(|address| Chunk {
            address,
            bytes: looked.stack,
        });
        let file = abi.register_file(&registers);
        let mut event = Event {
            time_ns,
            tid,
            probe: id,
            args: abi.args(&registers, 4).unwrap_or_default(),
            ..Event::default()
        };
        event
            .reads
            .extend(hits::attributes(&mut self.session.client, &event.args));
        // The thread waits meanwhile, so its stack can be followed however large its frames are.
        let mut noted = LiveStack::new(&mut self.session.client, stack);
        hits::walk_noting(&self.modules, &mut self.unusable, &file, &mut noted);
        let mut snapshot = Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
        snapshot.chunks = noted.into_chunks();
        event.snapshot = Some(snapshot);
        event.seq = self.sink.next_event();
        self.sink.record(event);
        Ok(())
    }

    fn on_control(&mut self, control: Control) {
        let before = self.control.replace(control);
        if before.is_none() || (before, control) == (Some(Control::Halted), Control::Free) {
            // How it was when we came; and that it goes on for us.
            return;
        }
        let text = match control {
            Control::Taken => "another client took control of the program",
            Control::Free => "nobody controls the program; it runs",
            Control::Halted => {
                "the program stands, and nobody controls it; gdb can connect to the stub, or a recording begin anew"
            }
            _ => return,
        };
        self.sink.note(Severity::Info, text);
    }
}
