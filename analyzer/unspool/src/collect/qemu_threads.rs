//! Recording on servers where a stop holds only the thread that hit it.
//!
//! QEMU's user-mode server lets all other threads run on, and two threads that stop at once both
//! read from its one connection: requests get torn apart. So there, nothing is planted but the
//! creation function, which most programs call in one thread at a time. Who the created threads are
//! is found out afterwards: at the next creation the server's list names those that still run, and
//! the handles that the creators were given tell which creation each of them came from. A thread
//! that is gone by then has no thread id, but its creation is recorded like any other.

use unspool_capture::{Event, Read, ReadRole, SNAPSHOT_PROBE, Severity, Snapshot};
use unspool_rsp::{StopReply, ThreadId};

use super::Error;
use super::recorder::Recorder;

impl Recorder {
    /// Finds out whether a stop leaves other threads running.
    pub(super) fn find_out_about_stops(&mut self, stop: &StopReply) {
        self.threads_run_on = self.session.stops_one_thread();
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

    /// Notes the threads that have come and gone, now that a creator stands at the creation function,
    /// and gives the handles of all creations whose thread may be among them.
    pub(super) fn look_around(&mut self) -> Result<Vec<Read>, Error> {
        let places = self.pending.places();
        let mut batch = self.session.client.batch();
        let tickets: Vec<_> = places
            .iter()
            .map(|at| batch.read_memory(*at, self.session.abi.pointer))
            .collect();
        let mut answers = batch.send()?;
        let reads: Vec<Read> = places
            .into_iter()
            .zip(tickets)
            .filter_map(|(address, ticket)| {
                Some(Read {
                    role: ReadRole::Handle.into(),
                    address,
                    bytes: answers.take(ticket).ok()?,
                })
            })
            .collect();
        let list = self.session.client.threads()?;
        self.threads.depart(&mut self.sink, |tid| {
            list.iter().any(|thread| thread.tid == tid)
        });
        let known = self.threads.ids();
        for thread in list {
            if !known.contains(&thread) {
                self.note_newcomer(thread, reads.clone())?;
            }
        }
        Ok(reads)
    }

    /// The same at the end of the recording.
    pub(super) fn note_last_threads(&mut self) -> Result<(), Error> {
        self.look_around().map(drop)
    }

    /// Its stack pointer and the handles together tell which creation it came from.
    fn note_newcomer(&mut self, thread: ThreadId, reads: Vec<Read>) -> Result<(), Error> {
        let registers = match self.session.client.registers(thread) {
            Ok(registers) => registers,
            // It has gone since it was listed, or was about to: then its listed id is nonsense, too.
            Err(error) if !error.is_fatal() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.threads
            .seen(&mut self.sink, &mut self.session, thread, false);
        let event = Event {
            seq: self.sink.next_event(),
            time_ns: self.sink.now_ns(),
            tid: thread.tid,
            probe: SNAPSHOT_PROBE,
            reads,
            snapshot: Some(Snapshot::of_registers(
                registers.bytes().to_vec(),
                registers.known(),
            )),
            ..Event::default()
        };
        self.sink.record(event);
        Ok(())
    }
}
