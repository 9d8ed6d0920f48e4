//! Reads all threads of a program: registers, stacks, and the objects that they wait for.
//!
//! An inspection needs nothing else. A recording reads the threads whose creation it missed, and
//! all threads at its end. Separate from `hits` because no probe is involved.

mod unstopped;

use std::collections::HashMap;
use std::ops::Range;

use unspool_capture::{
    Chunk, Event, Memory, SNAPSHOT_PROBE, Severity, Snapshot, Standstill, ThreadState,
};
use unspool_rsp::{Registers, ThreadId, ThreadStack};
use unspool_unwind::{StackEnd, StackMemory, WalkOptions, walk};

use super::asleep::{Rest, field, own_tid};
use super::collected_stack::CollectedStack;
use super::end_analysis::Wanted;
use super::error::Error;
use super::generated_code::UnknownCode;
use super::kernel_state::BeforeStop;
use super::modules::Modules;
use super::session::Session;
use super::sink::Sink;
use super::stack::{FIRST, LiveStack};
use super::threads::Threads;
use super::timers;
use crate::maps;
use crate::platform::syscall::{AFTER, BEFORE};

/// Number of threads whose registers and stacks one batch requests.
const BATCH: usize = 64;
/// Bytes of each stack in the first read. Most stacks are smaller.
const FIRST_READ: usize = 3 * 1024;
const PAGE: u64 = 4096;
/// Maximum number of bytes read from one requested range.
const MAX_OBJECT_READ: u64 = 4096;
/// Bytes of each longer stack in the second read.
const LONG_STACK: usize = 64 * 1024;

/// Threads that were read at one moment.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) threads: Vec<ThreadStack>,
    /// The program counters of the threads with registers.
    pub(super) pcs: Vec<u64>,
    /// Addresses of futex words at which threads may wait.
    pub(super) words: Vec<u64>,
    /// The states of the other threads, if they did not run at that moment, by thread id.
    rested: HashMap<u64, Rest>,
}

/// A thread whose registers were read.
pub(super) struct ReadThread {
    pub(super) thread: ThreadId,
    pub(super) registers: Registers,
    /// The inner part of its stack, if the server sent it with the registers.
    pub(super) stack: Option<Chunk>,
}

/// Reads threads through a session into a sink.
pub(super) struct ThreadReader<'a> {
    session: &'a mut Session,
    sink: &'a mut Sink,
    modules: &'a Modules,
    threads: &'a Threads,
    /// Addresses of futex words at which the threads read so far may wait.
    waited_at: Vec<u64>,
    /// Addresses on the stacks that no file contains.
    pub(super) unknown_code: UnknownCode,
    /// True if the stack of a thread that was left asleep needs registers that only a stop shows.
    pub(super) needs_stop: bool,
}

impl<'a> ThreadReader<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        sink: &'a mut Sink,
        modules: &'a Modules,
        threads: &'a Threads,
    ) -> Self {
        Self {
            session,
            sink,
            modules,
            threads,
            waited_at: Vec::new(),
            unknown_code: UnknownCode::default(),
            needs_stop: false,
        }
    }

    /// The sink that receives the threads.
    pub(super) fn sink(&mut self) -> &mut Sink {
        self.sink
    }

    /// The ids of all live threads.
    pub(super) fn thread_ids(&self) -> Vec<ThreadId> {
        self.threads.ids()
    }

    /// Reads all threads, and the memory around the words at which they wait. `None` if the server
    /// cannot send many stacks at once.
    pub(super) fn take_threads(
        &mut self,
        from_ns: u64,
        is_stopped: bool,
    ) -> Result<Option<Taken>, Error> {
        if !self.session.client.has_stacks() {
            return Ok(None);
        }
        self.record_memory_users()?;
        let threads = self.session.client.thread_ids()?;
        let taken = self.session.client.stacks(&threads, FIRST_READ)?;
        let abi = &self.session.abi;
        let registers = taken.iter().filter_map(|one| one.registers.as_ref());
        let looked: Vec<Registers> = registers.map(|all| abi.looked(all)).collect();
        let mut words: Vec<u64> = looked.iter().filter_map(|one| abi.waits_at(one)).collect();
        let pcs = looked.iter().filter_map(|one| abi.pc(one)).collect();
        let arch = abi.arch;
        let unread = taken.iter().filter(|one| one.registers.is_none());
        let unread: Vec<ThreadId> = unread.map(|one| one.thread).collect();
        let before = self.rests(&unread);
        let asleep = before.iter().flatten();
        words.extend(asleep.filter_map(|rest| rest.futex(arch)));
        self.read_around(words.clone());
        let mut rested = HashMap::new();
        if let Some(before) = before.filter(|_| is_stopped)
            && self.rests(&unread).as_ref() == Some(&before)
        {
            let to_ns = self.sink.now_ns();
            self.sink.record(Standstill { from_ns, to_ns });
            rested.extend(unread.iter().map(|thread| thread.tid).zip(before));
        }
        Ok(Some(Taken {
            threads: taken,
            pcs,
            words,
            rested,
        }))
    }

    /// Reads all threads one after another.
    pub(super) fn read_each(&mut self, from_ns: u64, is_stopped: bool) -> Result<(), Error> {
        let threads = self.threads.ids();
        self.waited_at.clear();
        self.read_threads(&threads)?;
        let words = std::mem::take(&mut self.waited_at);
        self.read_around(words);
        if is_stopped {
            let to_ns = self.sink.now_ns();
            self.sink.record(Standstill { from_ns, to_ns });
        }
        Ok(())
    }

    /// Reads all threads of a program that is recorded.
    pub(super) fn read_all(&mut self, is_stopped: bool) -> Result<(), Error> {
        let from_ns = self.sink.now_ns();
        let taken = self.take_threads(from_ns, is_stopped)?;
        let words = taken.as_ref().map_or(&[][..], |taken| &taken.words);
        self.record_kernel_state(&BeforeStop::default(), words);
        match taken {
            Some(taken) => self.record_taken(taken, Some(from_ns)),
            None => self.read_each(from_ns, is_stopped),
        }
    }

    /// Reads the requested threads again, and the requested memory.
    pub(super) fn read_more(&mut self, wanted: &Wanted) {
        if !wanted.threads.is_empty() {
            let mut threads = self.threads.ids();
            let all = threads.len();
            threads.retain(|id| wanted.threads.contains(&id.tid));
            // If this fails, the earlier records remain valid.
            let _ = match self.session.observes && threads.len() == all {
                true => self.read_all_asleep(&threads),
                false => self.read_threads(&threads),
            };
        }
        self.read_ranges(&wanted.memory);
    }

    /// Records the other processes that run in the program's memory. This precedes the read of the
    /// threads: only one of them, or a running thread, can start a further one.
    fn record_memory_users(&mut self) -> Result<(), Error> {
        let Some(tid) = self.session.pid else {
            return Ok(());
        };
        let users = self.session.client.memory_users()?.unwrap_or_default();
        if !users.is_empty() {
            self.sink.record(ThreadState {
                tid,
                time_ns: self.sink.now_ns(),
                memory_users: users,
                ..ThreadState::default()
            });
        }
        Ok(())
    }

    /// Records the state that only the kernel knows: whether a signal had stopped the program,
    /// which signals it handles, the thread ids inside its PID namespace, and which of the futex
    /// words are in private memory.
    pub(super) fn record_kernel_state(&mut self, before: &BeforeStop, words: &[u64]) {
        let Some(pid) = self.session.pid else {
            return;
        };
        let status = self.session.task_file(pid, "status").unwrap_or_default();
        let own = own_tid(&status);
        self.sink.record(ThreadState {
            tid: pid,
            time_ns: self.sink.now_ns(),
            state: before.state.map(String::from).unwrap_or_default(),
            frozen: before.frozen,
            handled_signals: field(&status, "SigCgt:")
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()),
            own_tid: own,
            tracer_tid: field(&status, "TracerPid:").and_then(|tid| tid.trim().parse().ok()),
            timer_signals: timers::signals(&self.session.timers().unwrap_or_default()),
            private_words: match words {
                [] => Vec::new(),
                _ => maps::private(&self.session.maps().unwrap_or_default(), words.to_vec()),
            },
            ..ThreadState::default()
        });
        if own.is_none_or(|own| own == pid) {
            return;
        }
        for id in self.threads.ids() {
            let status = self.session.task_file(id.tid, "status").unwrap_or_default();
            self.sink.record(ThreadState {
                tid: id.tid,
                time_ns: self.sink.now_ns(),
                own_tid: own_tid(&status),
                ..ThreadState::default()
            });
        }
    }

    /// Reads the memory around the words at which threads wait, so that it covers their objects.
    fn read_around(&mut self, mut words: Vec<u64>) {
        words.sort_unstable();
        words.dedup();
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(words.len());
        for word in words {
            let (start, end) = (word.saturating_sub(BEFORE), word.saturating_add(AFTER));
            match ranges.last_mut() {
                // Merge neighbours, up to a page.
                Some(last) if start <= last.end && end - last.start <= PAGE => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        self.read_ranges(&ranges);
    }

    fn read_ranges(&mut self, ranges: &[Range<u64>]) {
        // An object may lie at the very beginning or end of mapped memory, so read each page
        // separately.
        let pieces = ranges.iter().flat_map(|range| {
            let end = range.end.min(range.start.saturating_add(MAX_OBJECT_READ));
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
                // Join the two halves of a range that crosses a page boundary.
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

    /// Records the threads as read, and reads threads with longer stacks again.
    pub(super) fn record_taken(&mut self, taken: Taken, time_ns: Option<u64>) -> Result<(), Error> {
        let mut long = Vec::new();
        let unread: Vec<ThreadId> = taken
            .threads
            .iter()
            .filter(|one| one.registers.is_none())
            .map(|one| one.thread)
            .collect();
        for one in taken.threads {
            let Some((registers, first)) = self.parts(&one) else {
                continue;
            };
            let whole = first.bytes.len() < FIRST_READ;
            let file = self.session.abi.register_file(&registers);
            let mut noted = CollectedStack::new(Some(first));
            let stack = walk(
                self.modules.map(),
                &file,
                &mut noted,
                &WalkOptions::default(),
            );
            self.unknown_code.note(self.modules, &stack);
            if noted.is_short() && !whole {
                long.push(one);
            } else {
                self.record_thread(one.thread, &registers, noted.into_chunks(), time_ns);
            }
        }
        self.read_unstopped(&unread, (&taken.rested, time_ns))?;
        if long.is_empty() {
            return Ok(());
        }
        let threads: Vec<ThreadId> = long.iter().map(|one| one.thread).collect();
        for (before, one) in long
            .iter()
            .zip(self.session.client.stacks(&threads, LONG_STACK)?)
        {
            if let Some((registers, first)) = self.parts(&one) {
                // Unchanged registers show that the thread did not run since the first read.
                let same = before.registers == one.registers;
                self.read_thread(
                    one.thread,
                    &registers,
                    Some(first),
                    time_ns.filter(|_| same),
                );
            }
        }
        Ok(())
    }

    /// A thread's registers and stack; `None` if it has ended.
    fn parts(&self, one: &ThreadStack) -> Option<(Registers, Chunk)> {
        let registers = self.session.abi.looked(one.registers.as_ref()?);
        let address = self.session.abi.sp(&registers)?;
        let bytes = one.stack.clone();
        Some((registers, Chunk { address, bytes }))
    }

    /// Records a snapshot of each of these threads. Notes the threads that cannot be read.
    pub(super) fn read_threads(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
        if self.session.client.has_stacks() {
            let taken = self.session.client.stacks(threads, FIRST_READ)?;
            let taken = Taken {
                threads: taken,
                ..Taken::default()
            };
            return self.record_taken(taken, None);
        }
        threads
            .chunks(BATCH)
            .try_for_each(|some| self.read_batch(some))
    }

    /// The registers of all readable threads, and the stacks that the server sends with them.
    pub(super) fn registers_of(&mut self, threads: &[ThreadId]) -> Result<Vec<ReadThread>, Error> {
        if self.session.client.has_stacks() {
            let taken = self.session.client.stacks(threads, FIRST_READ)?;
            let parts = taken.iter().filter_map(|one| {
                let (registers, stack) = self.parts(one)?;
                Some(ReadThread {
                    thread: one.thread,
                    registers,
                    stack: Some(stack),
                })
            });
            return Ok(parts.collect());
        }
        self.separate_registers(threads)
    }

    /// The registers of all readable threads, each read by a request of its own.
    fn separate_registers(&mut self, threads: &[ThreadId]) -> Result<Vec<ReadThread>, Error> {
        let mut known = Vec::new();
        for threads in threads.chunks(BATCH) {
            let mut batch = self.session.client.batch();
            let tickets: Vec<_> = threads
                .iter()
                .map(|thread| batch.registers(*thread))
                .collect();
            let mut answers = batch.send()?;
            let read = threads.iter().zip(tickets);
            known.extend(read.filter_map(|(thread, ticket)| {
                Some(ReadThread {
                    thread: *thread,
                    registers: answers.take(ticket).ok()?,
                    stack: None,
                })
            }));
        }
        Ok(known)
    }

    fn read_batch(&mut self, threads: &[ThreadId]) -> Result<(), Error> {
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
                Ok(registers) => {
                    self.read_thread(*thread, &registers, first, None);
                }
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

    fn read_thread(
        &mut self,
        thread: ThreadId,
        registers: &Registers,
        first: Option<Chunk>,
        time_ns: Option<u64>,
    ) {
        let (chunks, _) = self.walk_thread(registers, first);
        self.record_thread(thread, registers, chunks, time_ns);
    }

    /// Reads the stack of a thread, and why its walk ended.
    fn walk_thread(
        &mut self,
        registers: &Registers,
        first: Option<Chunk>,
    ) -> (Vec<Chunk>, StackEnd) {
        let file = self.session.abi.register_file(registers);
        let end = self.session.abi.sp(registers).filter(|_| first.is_none());
        let mut memory = LiveStack::new(&mut self.session.client, first);
        // Some servers send nothing for a stack shorter than the first read. Read the end of the
        // stack even if the walk does not need it.
        if let Some(end) = end {
            let _ = memory.read(end, &mut [0]);
        }
        let stack = walk(
            self.modules.map(),
            &file,
            &mut memory,
            &WalkOptions::default(),
        );
        self.unknown_code.note(self.modules, &stack);
        let chunks = memory.into_chunks();
        self.waited_at.extend(self.session.abi.waits_at(registers));
        (chunks, stack.end)
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
            time_ns: time_ns.unwrap_or_else(|| self.sink.now_ns()),
            tid: thread.tid,
            probe: SNAPSHOT_PROBE,
            snapshot: Some(snapshot),
            ..Event::default()
        };
        self.sink.record_event(event);
    }
}
