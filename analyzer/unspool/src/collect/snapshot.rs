//! One look at the threads of a program: all that is wanted of an inspection, and for a recording what tells the functions of
//! threads whose creation it missed.
//!
//! Our own stub gives registers and stack of each thread as they are at one moment, and the program may run meanwhile; with other
//! servers the program stands until all has been read.

use unspool_capture::{Chunk, EndReason, Event, Record, SNAPSHOT_PROBE, Severity, Snapshot};
use unspool_rsp::{Registers, ThreadId, ThreadStack};
use unspool_unwind::{WalkOptions, walk};

use super::recorder::Recorder;
use super::session::Session;
use super::sink::Sink;
use super::stack::{FIRST, LiveStack};
use super::tracing::Noted;
use super::{Error, Options};

/// Threads whose registers and first stack bytes are asked for at once.
const BATCH: usize = 64;
/// How much of each stack is noted at first: the whole of most.
const NOTED: usize = 3 * 1024;
/// How much of those is noted that are longer.
const LONG: usize = 64 * 1024;

pub(super) fn inspect(mut options: Options) -> Result<Vec<Record>, Error> {
    let (session, _) = Session::open(&mut options, true)?;
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
        // First the threads, so that they need not stand for the rest.
        let taken = if self.session.client.has_stacks() {
            let threads = self.session.client.thread_ids()?;
            let taken = self.session.client.stacks(&threads, NOTED)?;
            if self.session.observes {
                self.session.client.let_run()?;
            }
            Some(taken)
        } else {
            None
        };
        let program = self.identify()?;
        self.sink.record(self.session.target(program.path.clone()));
        self.threads
            .compare(&mut self.sink, &mut self.session, true);
        self.list_modules(program);
        if let Some(taken) = taken {
            return self.note_taken(taken);
        }
        let threads = self.threads.ids();
        self.look_at(&threads)
    }

    /// Notes threads as they were, and takes those again of which too little was noted.
    fn note_taken(&mut self, taken: Vec<ThreadStack>) -> Result<(), Error> {
        let mut long = Vec::new();
        for one in taken {
            let Some((registers, first)) = self.parts(&one) else {
                continue;
            };
            let whole = first.bytes.len() < NOTED;
            let file = self.session.abi.register_file(&registers);
            let mut noted = Noted::new(Some(first));
            let _ = walk(
                self.modules.map(),
                &file,
                &mut noted,
                &WalkOptions::default(),
            );
            if noted.is_short() && !whole {
                long.push(one.thread);
            } else {
                self.record_thread(one.thread, &registers, noted.into_chunks());
            }
        }
        if long.is_empty() {
            return Ok(());
        }
        for one in self.session.client.stacks(&long, LONG)? {
            if let Some((registers, first)) = self.parts(&one) {
                self.note_thread(one.thread, &registers, Some(first));
            }
        }
        Ok(())
    }

    /// A thread's registers, and what is known of its stack; nothing if it has ended, which is no news.
    fn parts(&mut self, one: &ThreadStack) -> Option<(Registers, Chunk)> {
        let registers = self.session.abi.traced(one.registers.as_ref()?);
        let address = self.session.abi.sp(&registers)?;
        let bytes = one.stack.clone();
        Some((registers, Chunk { address, bytes }))
    }

    /// Takes a snapshot of each of these threads; a thread that cannot be read is a note.
    pub(super) fn look_at(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        if self.session.client.has_stacks() {
            let taken = self.session.client.stacks(threads, NOTED)?;
            return self.note_taken(taken);
        }
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
        let chunks = memory.into_chunks();
        self.record_thread(thread, registers, chunks);
    }

    fn record_thread(&mut self, thread: ThreadId, registers: &Registers, chunks: Vec<Chunk>) {
        let mut snapshot = Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
        snapshot.chunks = chunks;
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
