//! One look at the threads of a program that stands, and goes on afterwards: all that is wanted of an
//! inspection, and for a recording what tells the functions of threads whose creation it missed.

use unspool_capture::{Chunk, EndReason, Event, Record, SNAPSHOT_PROBE, Severity, Snapshot};
use unspool_rsp::{Registers, ThreadId};
use unspool_unwind::{WalkOptions, walk};

use super::recorder::Recorder;
use super::session::Session;
use super::sink::Sink;
use super::stack::{FIRST, LiveStack};
use super::{Error, Options};

/// Threads whose registers and first stack bytes are asked for at once.
const BATCH: usize = 64;

pub(super) fn inspect(mut options: Options) -> Result<Vec<Record>, Error> {
    let (session, _) = Session::open(&mut options)?;
    let sink = Sink::memory(Session::header(&options, true));
    let mut recorder = Recorder::new(session, sink, options);
    let looked = recorder.look();
    // Whatever was seen: the program goes on.
    let detached = recorder.session.client.detach();
    looked?;
    detached?;
    recorder.sink.finish(EndReason::Detached, String::new());
    Ok(recorder.sink.into_records())
}

impl Recorder {
    fn look(&mut self) -> Result<(), Error> {
        let program = self.identify()?;
        self.sink.record(self.session.target(program.path.clone()));
        self.threads
            .compare(&mut self.sink, &mut self.session, true);
        self.list_modules(program);
        let threads = self.threads.ids();
        self.look_at(&threads)
    }

    /// Takes a snapshot of each of these threads; a thread that cannot be read is a note.
    pub(super) fn look_at(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        threads
            .chunks(BATCH)
            .try_for_each(|some| self.look_at_some(some))
    }

    fn look_at_some(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        let mut batch = self.session.client.batch();
        let tickets: Vec<_> = threads
            .iter()
            .map(|thread| batch.registers(*thread))
            .collect();
        let mut answers = batch.send()?;
        let registers: Vec<_> = tickets
            .into_iter()
            .map(|ticket| answers.take(ticket))
            .collect();

        let mut batch = self.session.client.batch();
        let tickets: Vec<_> = registers
            .iter()
            .map(|registers| {
                let sp = self.session.abi.sp(registers.as_ref().ok()?)?;
                Some((sp, batch.read_memory(sp, FIRST)))
            })
            .collect();
        let mut answers = batch.send()?;
        for ((thread, registers), ticket) in threads.iter().zip(registers).zip(tickets) {
            let first = ticket.and_then(|(address, ticket)| {
                Some(Chunk {
                    address,
                    bytes: answers.take(ticket).ok()?,
                })
            });
            match registers {
                Ok(registers) => self.note_thread(*thread, &registers, first),
                Err(error) => {
                    self.sink.note(
                        Severity::Warning,
                        format!("thread {} could not be read: {error}", thread.tid),
                    );
                }
            }
        }
        Ok(())
    }

    fn note_thread(&mut self, thread: ThreadId, registers: &Registers, first: Option<Chunk>) {
        let file = self.session.abi.register_file(registers);
        let mut memory = LiveStack::new(&mut self.session.client, first);
        let _ = walk(
            self.modules.map(),
            &file,
            &mut memory,
            &WalkOptions::default(),
        );
        let mut snapshot = Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
        snapshot.chunks = memory.into_chunks();
        let event = Event {
            seq: self.sink.next_event(),
            time_ns: self.sink.now_ns(),
            tid: thread.tid,
            probe: SNAPSHOT_PROBE,
            snapshot: Some(snapshot),
            ..Event::default()
        };
        self.sink.record(event);
    }
}
