//! One look at the threads of a program: all that is wanted of an inspection, and for a recording what tells the functions of
//! threads whose creation it missed.
//!
//! Our own stub gives registers and stack of each thread as they are at one moment, and the program may run meanwhile; with other
//! servers the program stands until all has been read.

use std::ops::Range;
use std::time::Duration;

use unspool_capture::{
    Capture, Chunk, Event, Memory, SNAPSHOT_PROBE, Severity, Snapshot, Standstill, ThreadState,
};
use unspool_rsp::{Control, Notice, Registers, ThreadId, ThreadStack};
use unspool_unwind::{StackMemory, WalkOptions, walk};

use super::collected_stack::CollectedStack;
use super::recorder::Recorder;
use super::session::Session;
use super::sink::Sink;
use super::stack::{FIRST, LiveStack};
use super::{Error, Options, Source, launch};
use crate::syscall::{AFTER, BEFORE};

/// Threads whose registers and first stack bytes are asked for at once.
const BATCH: usize = 64;
/// How much of each stack is noted at first: the whole of most.
const FIRST_READ: usize = 3 * 1024;
const PAGE: u64 = 4096;
/// As much is read at once, whoever asks.
const MAX_READ: u64 = 4096;
/// How much of those is noted that are longer.
const LONG_STACK: usize = 64 * 1024;

/// How often threads are asked whether they sleep, and for how long they have to.
const ASLEEP_TRIES: usize = 60;
const ASLEEP_FOR: Duration = Duration::from_millis(5);

/// Threads and their program counters.
type Taken = (Vec<ThreadStack>, Vec<u64>);

/// What more has to be read to tell what threads wait for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Threads to be looked at again, because they may have moved between the reads.
    pub threads: Vec<u64>,
    /// Memory, to be read after that.
    pub memory: Vec<Range<u64>>,
}

impl Wanted {
    /// All that would be said is known.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.memory.is_empty()
    }
}

/// A look at a running program, which can be taken closer as long as it is not finished.
pub struct Inspection {
    recorder: Recorder,
}

impl Inspection {
    /// Looks at all threads. Behind our own stub the program goes on at once, elsewhere when the inspection is
    /// finished.
    ///
    /// # Errors
    /// What keeps the program from being looked at. A thread that cannot be read is a note.
    pub fn begin(options: Options) -> Result<Self, Error> {
        let attached = options.source.attached();
        Self::open(options).map_err(|error| launch::unless_ended(attached, error))
    }

    fn open(mut options: Options) -> Result<Self, Error> {
        // What a thread did is known only before it is stopped.
        let before = match options.source {
            Source::Attach { pid } => {
                // While the server stops its threads, this processor has nothing to do.
                options.store.read_ahead(pid);
                state_of(pid)
            }
            _ => None,
        };
        let (session, _) = Session::open(&mut options, true)?;
        let sink = Sink::memory(Session::header(&options, true));
        let mut recorder = Recorder::new(session, sink, options);
        if let Err(error) = recorder.look(before) {
            // Whatever was seen: the program goes on.
            recorder.session.client.detach()?;
            return Err(error);
        }
        Ok(Self { recorder })
    }

    /// All that was noted by now.
    pub fn capture(&self) -> Capture {
        Capture::from_records(self.recorder.sink.records().to_vec())
    }

    /// Reads more. What cannot be read is noted as missing.
    pub fn read_more(&mut self, wanted: &Wanted) {
        self.recorder.read_more(wanted);
    }

    /// Lets the program go. A server that we started for it may still be at that when this returns; dropping waits for it.
    ///
    /// # Errors
    /// When the server does not.
    pub fn finish(&mut self) -> Result<(), Error> {
        Ok(self.recorder.session.client.detach()?)
    }
}

/// A thread that the kernel has put to sleep in a system call.
#[derive(Debug, PartialEq, Eq)]
struct Asleep {
    /// How often it was given a processor and lost it.
    switches: [u64; 2],
    /// The call's first argument: of a futex, the word.
    word: u64,
    sp: u64,
}

impl Asleep {
    /// By its `status` and `syscall` (proc(5)): `202 0x7f30 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f31`, number, arguments, sp and pc; or
    /// `running`, also of a thread that was woken and waits for a processor.
    fn read(status: &str, call: &str) -> Option<Asleep> {
        field(status, "State:\tS")?;
        let switches = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"];
        let [Some(own), Some(forced)] =
            switches.map(|name| field(status, name)?.trim().parse().ok())
        else {
            return None;
        };
        let words: Vec<&str> = call.split_whitespace().collect();
        let [_, word, .., sp, _] = words[..] else {
            return None;
        };
        let hexadecimal = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        Some(Asleep {
            switches: [own, forced],
            word: hexadecimal(word)?,
            sp: hexadecimal(sp)?,
        })
    }
}

/// The letter of a process' state (proc(5), `stat`).
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

impl Recorder {
    fn look(&mut self, before: Option<char>) -> Result<(), Error> {
        let one_stands = self.session.stops_one_thread();
        // QEMU gives "CPU#0 [running]" for a name.
        self.session.nameless |= one_stands;
        let all_stand = !self.session.observes && !one_stands;
        // Our own stub's program stands from the moment it was attached to.
        let stands = self.session.own_stub || all_stand;
        let from_ns = self.sink.now_ns();
        // First the threads, so that they need not stand for the rest.
        let taken = self.take_threads(from_ns, stands)?;
        if taken.is_some() && self.session.observes {
            if self.session.served_before {
                self.note_halted();
            } else {
                self.session.client.let_run()?;
            }
        }
        let program = self.identify()?;
        self.sink.record(self.session.target(program.path.clone()));
        self.threads
            .compare(&mut self.sink, &mut self.session, true);
        self.note_kernels_view(before);
        self.list_modules(program);
        match taken {
            Some((taken, pcs)) => {
                self.modules.read_ahead(pcs);
                self.note_taken(taken, Some(from_ns))
            }
            None => self.look_at_each(from_ns, all_stand),
        }
    }

    /// Says so if the server's program was halted when we came.
    fn note_halted(&mut self) {
        let notices = self.session.client.take_notices();
        let control = notices.iter().rev().find_map(|notice| match notice {
            Notice::Control(control) => Some(*control),
            _ => None,
        });
        if control == Some(Control::Halted) {
            self.sink.note(
                Severity::Info,
                "the program is halted at its server and stays so; a debugger or a recording can resume it",
            );
        }
    }

    /// All threads and what lies around the words that they wait at, from a server that gives many
    /// stacks at once; with the threads' program counters.
    fn take_threads(&mut self, from_ns: u64, stands: bool) -> Result<Option<Taken>, Error> {
        if !self.session.client.has_stacks() {
            return Ok(None);
        }
        let threads = self.session.client.thread_ids()?;
        let taken = self.session.client.stacks(&threads, FIRST_READ)?;
        let abi = &self.session.abi;
        let registers = taken.iter().filter_map(|one| one.registers.as_ref());
        let looked: Vec<Registers> = registers.map(|all| abi.looked(all)).collect();
        let words = looked.iter().filter_map(|one| abi.waits_at(one)).collect();
        let pcs = looked.iter().filter_map(|one| abi.pc(one)).collect();
        self.read_around(words);
        if stands {
            let to_ns = self.sink.now_ns();
            self.sink.record(Standstill { from_ns, to_ns });
        }
        Ok(Some((taken, pcs)))
    }

    /// The same, one thread after another.
    fn look_at_each(&mut self, from_ns: u64, stands: bool) -> Result<(), Error> {
        let threads = self.threads.ids();
        self.waited_at.clear();
        self.look_at(&threads)?;
        let words = std::mem::take(&mut self.waited_at);
        self.read_around(words);
        if stands {
            let to_ns = self.sink.now_ns();
            self.sink.record(Standstill { from_ns, to_ns });
        }
        Ok(())
    }

    /// Reads all threads of a program that is recorded.
    pub(super) fn read_all_threads(&mut self, stands: bool) -> Result<(), Error> {
        let from_ns = self.sink.now_ns();
        let taken = self.take_threads(from_ns, stands)?;
        self.note_kernels_view(None);
        match taken {
            Some((taken, _)) => self.note_taken(taken, Some(from_ns)),
            None => self.look_at_each(from_ns, stands),
        }
    }

    /// Takes another look at these threads, and reads memory.
    pub(super) fn read_more(&mut self, wanted: &Wanted) {
        if !wanted.threads.is_empty() {
            let mut threads = self.threads.ids();
            let all = threads.len();
            threads.retain(|id| wanted.threads.contains(&id.tid));
            // What was noted before is good without.
            let _ = match self.session.observes && threads.len() == all {
                true => self.look_at_all_asleep(&threads),
                false => self.look_at(&threads),
            };
        }
        self.read_ranges(&wanted.memory);
    }

    /// Looks once more at all threads of a program that we cannot stop. Each alone may be seen in a wait though at any moment
    /// one of them runs: the kernel tells whether they slept at the same time.
    fn look_at_all_asleep(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        let mut slept = None;
        // Those that the first look has woken need a processor to fall asleep again.
        for _ in 0..ASLEEP_TRIES {
            let before = self.asleep(threads);
            let from_ns = self.sink.now_ns();
            std::thread::sleep(ASLEEP_FOR);
            let to_ns = self.sink.now_ns();
            if before.is_some() && before == self.asleep(threads) {
                slept = before.map(|calls| (calls, from_ns, to_ns));
                break;
            }
        }
        let same = self.session.client.thread_ids()?.len() == threads.len();
        let Some((calls, from_ns, to_ns)) = slept.filter(|_| same) else {
            return self.look_at(threads);
        };
        let taken = self.session.client.stacks(threads, FIRST_READ)?;
        let abi = &self.session.abi;
        let asleep = taken.iter().zip(&calls).all(|(one, call)| {
            let registers = one.registers.as_ref().map(|all| abi.looked(all));
            registers.is_some_and(|registers| {
                (abi.waits_at(&registers), abi.sp(&registers)) == (Some(call.word), Some(call.sp))
            })
        });
        if asleep {
            self.sink.record(Standstill { from_ns, to_ns });
        }
        self.note_taken(taken, Some(to_ns).filter(|_| asleep))
    }

    /// The system call that each thread sleeps in; nothing if one does not sleep.
    fn asleep(&mut self, threads: &[ThreadId]) -> Option<Vec<Asleep>> {
        let one = |id: &ThreadId| {
            let status = self.session.kernels_word(id.tid, "status")?;
            let call = self.session.kernels_word(id.tid, "syscall")?;
            Asleep::read(&status, &call)
        };
        threads.iter().map(one).collect()
    }

    /// Notes what only the kernel knows: whether a signal has stopped the program, which signals it handles, and by which
    /// numbers its threads know each other.
    fn note_kernels_view(&mut self, before: Option<char>) {
        let Some(pid) = self.session.pid else {
            return;
        };
        let status = self.session.kernels_word(pid, "status").unwrap_or_default();
        let own = own_tid(&status);
        self.sink.record(ThreadState {
            tid: pid,
            time_ns: self.sink.now_ns(),
            state: before.map(String::from).unwrap_or_default(),
            handled_signals: field(&status, "SigCgt:")
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()),
            own_tid: own,
        });
        if own.is_none_or(|own| own == pid) {
            return;
        }
        for id in self.threads.ids() {
            let status = self
                .session
                .kernels_word(id.tid, "status")
                .unwrap_or_default();
            self.sink.record(ThreadState {
                tid: id.tid,
                time_ns: self.sink.now_ns(),
                own_tid: own_tid(&status),
                ..ThreadState::default()
            });
        }
    }

    /// Reads what lies around words that threads wait at: the objects that these are part of.
    fn read_around(&mut self, mut words: Vec<u64>) {
        words.sort_unstable();
        words.dedup();
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(words.len());
        for word in words {
            let (start, end) = (word.saturating_sub(BEFORE), word.saturating_add(AFTER));
            match ranges.last_mut() {
                // Neighbours, up to a page at once.
                Some(last) if start <= last.end && end - last.start <= PAGE => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        self.read_ranges(&ranges);
    }

    fn read_ranges(&mut self, ranges: &[Range<u64>]) {
        // An object may lie at the very beginning or end of what is mapped.
        let pieces = ranges.iter().flat_map(|range| {
            let end = range.end.min(range.start.saturating_add(MAX_READ));
            let middle = (range.start | (PAGE - 1)).saturating_add(1);
            match middle < end {
                true => [range.start..middle, middle..end],
                false => [range.start..end, end..end],
            }
        });
        let pieces: Vec<Range<u64>> = pieces.filter(|piece| !piece.is_empty()).collect();
        let mut batch = self.session.client.batch();
        let tickets: Vec<_> = pieces
            .iter()
            .map(|piece| batch.read_memory(piece.start, (piece.end - piece.start) as usize))
            .collect();
        let Ok(mut answers) = batch.send() else {
            return;
        };
        let time_ns = self.sink.now_ns();
        let mut joined: Vec<Memory> = Vec::new();
        for (piece, ticket) in pieces.into_iter().zip(tickets) {
            let bytes = answers.take(ticket).unwrap_or_default();
            match joined.last_mut() {
                // The halves of what lies across pages.
                Some(last)
                    if !last.bytes.is_empty()
                        && last.address + last.bytes.len() as u64 == piece.start
                        && piece.start % PAGE == 0 =>
                {
                    last.bytes.extend(bytes);
                }
                _ => joined.push(Memory {
                    time_ns,
                    address: piece.start,
                    bytes,
                }),
            }
        }
        for memory in joined {
            self.sink.record(memory);
        }
    }

    /// Notes threads as they were, and takes those again of which too little was noted.
    fn note_taken(&mut self, taken: Vec<ThreadStack>, time_ns: Option<u64>) -> Result<(), Error> {
        let mut long = Vec::new();
        for one in taken {
            let Some((registers, first)) = self.parts(&one) else {
                continue;
            };
            let whole = first.bytes.len() < FIRST_READ;
            let file = self.session.abi.register_file(&registers);
            let mut noted = CollectedStack::new(Some(first));
            let _ = walk(
                self.modules.map(),
                &file,
                &mut noted,
                &WalkOptions::default(),
            );
            if noted.is_short() && !whole {
                long.push(one);
            } else {
                self.record_thread(one.thread, &registers, noted.into_chunks(), time_ns);
            }
        }
        if long.is_empty() {
            return Ok(());
        }
        let threads: Vec<ThreadId> = long.iter().map(|one| one.thread).collect();
        for (before, one) in long
            .iter()
            .zip(self.session.client.stacks(&threads, LONG_STACK)?)
        {
            if let Some((registers, first)) = self.parts(&one) {
                // If it has not moved, it is as it was at first.
                let same = before.registers == one.registers;
                self.note_thread(
                    one.thread,
                    &registers,
                    Some(first),
                    time_ns.filter(|_| same),
                );
            }
        }
        Ok(())
    }

    /// A thread's registers, and what is known of its stack; nothing if it has ended, which is no news.
    fn parts(&self, one: &ThreadStack) -> Option<(Registers, Chunk)> {
        let registers = self.session.abi.looked(one.registers.as_ref()?);
        let address = self.session.abi.sp(&registers)?;
        let bytes = one.stack.clone();
        Some((registers, Chunk { address, bytes }))
    }

    /// Takes a snapshot of each of these threads; a thread that cannot be read is a note.
    pub(super) fn look_at(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        if self.session.client.has_stacks() {
            let taken = self.session.client.stacks(threads, FIRST_READ)?;
            return self.note_taken(taken, None);
        }
        threads
            .chunks(BATCH)
            .try_for_each(|some| self.look_at_some(some))
    }

    /// The registers of these threads, and of their stacks what comes along; of those that can be read.
    pub(super) fn registers_of(
        &mut self,
        threads: &[ThreadId],
    ) -> Result<Vec<(ThreadId, Registers, Option<Chunk>)>, Error> {
        if self.session.client.has_stacks() {
            let taken = self.session.client.stacks(threads, FIRST_READ)?;
            let parts = taken.iter().filter_map(|one| {
                let (registers, stack) = self.parts(one)?;
                Some((one.thread, registers, Some(stack)))
            });
            return Ok(parts.collect());
        }
        let mut known = Vec::new();
        for threads in threads.chunks(BATCH) {
            let mut batch = self.session.client.batch();
            let tickets: Vec<_> = threads
                .iter()
                .map(|thread| batch.registers(*thread))
                .collect();
            let mut answers = batch.send()?;
            let read = threads.iter().zip(tickets);
            known.extend(
                read.filter_map(|(thread, ticket)| {
                    Some((*thread, answers.take(ticket).ok()?, None))
                }),
            );
        }
        Ok(known)
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
                Ok(registers) => self.note_thread(*thread, &registers, first, None),
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

    fn note_thread(
        &mut self,
        thread: ThreadId,
        registers: &Registers,
        first: Option<Chunk>,
        time_ns: Option<u64>,
    ) {
        let file = self.session.abi.register_file(registers);
        let end = self.session.abi.sp(registers).filter(|_| first.is_none());
        let mut memory = LiveStack::new(&mut self.session.client, first);
        // A stack that is shorter than the first read: some servers give nothing then. What lies at its end is wanted, not only what
        // the walk needs.
        if let Some(end) = end {
            let _ = memory.read(end, &mut [0]);
        }
        let _ = walk(
            self.modules.map(),
            &file,
            &mut memory,
            &WalkOptions::default(),
        );
        let chunks = memory.into_chunks();
        self.waited_at.extend(self.session.abi.waits_at(registers));
        self.record_thread(thread, registers, chunks, time_ns);
    }

    fn record_thread(
        &mut self,
        thread: ThreadId,
        registers: &Registers,
        chunks: Vec<Chunk>,
        time_ns: Option<u64>,
    ) {
        let mut snapshot = Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
        snapshot.chunks = chunks;
        let event = Event {
            seq: self.sink.next_event(),
            time_ns: time_ns.unwrap_or_else(|| self.sink.now_ns()),
            tid: thread.tid,
            probe: SNAPSHOT_PROBE,
            snapshot: Some(snapshot),
            ..Event::default()
        };
        self.sink.record(event);
    }
}

/// A line of `/proc/PID/status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The id of a thread in the innermost of its PID namespaces, which is what its own program sees (`NSpid` in proc(5)).
fn own_tid(status: &str) -> Option<u64> {
    field(status, "NSpid:")?
        .split_whitespace()
        .next_back()?
        .parse()
        .ok()
}
