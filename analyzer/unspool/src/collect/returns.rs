//! Watching creations on servers where a stop holds only the thread that hit it.
//!
//! QEMU's user-mode server lets all other threads run on, and two threads that stop at once both
//! read from its one connection: requests get torn apart. So there, nothing is planted that new
//! threads would hit. Instead the creator is stopped once more, where `pthread_create` returns
//! to: the thread that the server's list has gained since then is the one it made.

use unspool_capture::{Event, Read, ReadRole, Severity};
use unspool_rsp::{Registers, StopReply, ThreadId};

use super::Error;
use super::pending::Creation;
use super::probes::Place;
use super::recorder::Recorder;

/// A creator on its way through the creation function.
#[derive(Debug, Clone, Copy)]
pub(super) struct Underway {
    tid: u64,
    /// Where it returns to.
    address: u64,
    creation: Creation,
    /// The probe that stands for the arrival at the start routine.
    probe: u32,
}

impl Recorder {
    /// Whether a stop leaves other threads running. Only QEMU answers this query.
    pub(super) fn find_out_about_stops(&mut self, stop: &StopReply) {
        if self.session.own_stub || self.session.client.features().has("QThreadEvents") {
            return;
        }
        let answer = self
            .session
            .client
            .raw(b"qqemu.sstepbits")
            .unwrap_or_default();
        // Its system emulation answers as well, but stops all processors; it knows no auxv.
        let user_mode = self.session.client.features().has("qXfer:auxv:read");
        self.threads_run_on = user_mode && answer.starts_with(b"ENABLE=");
        if self.threads_run_on {
            // It gives "CPU#0 [running]".
            self.session.nameless = true;
            // Nor is the process id it gives one of the kernel's; the first thread's id is.
            if let StopReply::Stopped { thread, .. } = stop {
                self.session.pid = thread.map(|thread| thread.tid);
            }
            self.sink.note(
                Severity::Info,
                "QEMU's server stops one thread at a time, so joins, detaches and thread names are not recorded",
            );
        }
    }

    /// Plants at the return address of a creation whose first instruction is next.
    pub(super) fn watch_return(
        &mut self,
        thread: ThreadId,
        registers: &Registers,
        creation: Creation,
        probe: u32,
    ) -> Result<(), Error> {
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        let Some(pointer) = abi.return_pointer(registers, client) else {
            return Ok(());
        };
        let address = abi.code_address(pointer);
        let place = Place {
            address,
            thumb: address != pointer,
            function: String::new(),
            module: None,
        };
        self.probes.plant_return(client, abi, &place)?;
        self.underway.push(Underway {
            tid: thread.tid,
            address,
            creation,
            probe,
        });
        Ok(())
    }

    /// A creator has returned, or another thread came by. Gives whether the breakpoint is out, so
    /// that there is nothing to step over.
    pub(super) fn on_return(&mut self, thread: ThreadId, address: u64) -> Result<bool, Error> {
        let arrived = self
            .underway
            .iter()
            .position(|way| way.tid == thread.tid && way.address == address);
        let Some(index) = arrived else {
            return Ok(false);
        };
        let way = self.underway.remove(index);
        let client = &mut self.session.client;
        let handle = client
            .read_memory(way.creation.handle_at, self.session.abi.pointer)
            .ok();
        let new: Vec<ThreadId> = client
            .threads()?
            .into_iter()
            .filter(|thread| !self.threads.knows(thread.tid))
            .collect();
        if new.len() > 1 {
            self.sink.note(
                Severity::Warning,
                "several threads began at once; which of them is which is inferred",
            );
        }
        if let Some(thread) = new.first() {
            self.threads
                .seen(&mut self.sink, &mut self.session, *thread, false);
            self.threads.start(thread.tid);
            self.pending.remove(way.creation);
            let read = |bytes| Read {
                role: ReadRole::Handle.into(),
                address: way.creation.handle_at,
                bytes,
            };
            let event = Event {
                seq: self.sink.next_event(),
                time_ns: self.sink.now_ns(),
                tid: thread.tid,
                probe: way.probe,
                args: vec![way.creation.arg],
                reads: handle.map(read).into_iter().collect(),
                ..Event::default()
            };
            self.sink.record(event);
        }
        if self.underway.iter().any(|other| other.address == address) {
            return Ok(false);
        }
        self.probes.remove(&mut self.session.client, address)?;
        Ok(true)
    }
}
