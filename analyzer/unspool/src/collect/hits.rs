//! Converts hits of probes to events.
//!
//! Round trips dominate the cost of a recording. So each hit requests everything at once, and reads
//! again only if an answer contains an address to follow.

use unspool_capture::{Chunk, Event, ProbeKind, Read, ReadRole, Snapshot};
use unspool_rsp::{Registers, ThreadId};
use unspool_unwind::RegisterFile;

use super::calls::call_hits::{CallReader, object_at};
use super::calls::site::OBJECT;
use super::collected_stack::CollectedStack;
use super::creation_args::{ATTR, STATE, attributes, plausible, state_at};
use super::creations::{Creation, PendingCreations};
use super::error::Error;
use super::modules::Modules;
use super::planter::Planter;
use super::session::Session;
use super::sink::Sink;
use super::stack::{FIRST, LiveStack};
use super::stack_walk::StackWalker;
use super::thread_reader::ReadThread;
use crate::platform::abi::Abi;

/// Reads the data that a hit needs and makes an event of them.
#[derive(Debug, Default)]
pub(super) struct HitReader {
    pub(super) creations: PendingCreations,
    pub(super) calls: CallReader,
    pub(super) walker: StackWalker,
}

/// A hit of a creation function, before its stack is walked.
pub(super) struct CreationHit {
    pub(super) event: Event,
    registers: Registers,
    /// The inner part of the stack.
    stack: Option<Chunk>,
}

impl CreationHit {
    /// The creation, and whether its start routine is Thumb code.
    pub(super) fn creation(&self, abi: &Abi) -> Option<(Creation, bool)> {
        let [handle_at, _, routine, arg] = self.event.args[..] else {
            return None;
        };
        let address = abi.code_address(routine);
        let creation = Creation {
            routine: address,
            arg,
            handle_at,
        };
        Some((creation, routine != address))
    }
}

/// A hit that the server recorded by itself.
pub(super) struct FrameHit {
    pub(super) tid: u64,
    pub(super) id: u32,
    pub(super) kind: ProbeKind,
    pub(super) time_ns: u64,
    pub(super) registers: Registers,
}

impl HitReader {
    /// Reads the memory to which a creation's arguments point, and the inner part of its stack.
    pub(super) fn begin_creation(
        &mut self,
        session: &mut Session,
        modules: &Modules,
        thread: ThreadId,
        expedited: Registers,
        mut event: Event,
    ) -> Result<CreationHit, Error> {
        let (client, abi) = (&mut session.client, &session.abi);
        let mut registers = expedited;
        let sp = abi.sp(&registers);
        let early_args = abi.args(&registers, 4);
        let attr_of = |args: &Option<Vec<u64>>| {
            args.as_ref()
                .map(|args| args[1])
                .filter(|attr| plausible(*attr))
        };
        let state_of = |args: &Option<Vec<u64>>| state_at(modules, abi, args.as_ref()?);

        let mut batch = client.batch();
        let all = (!abi.suffices(&registers)).then(|| batch.registers(thread));
        let sent = self.walker.take_sent(sp);
        let unsent = sp.filter(|_| sent.is_none());
        let stack = unsent.map(|sp| batch.read_memory(sp, FIRST));
        let early_attr = attr_of(&early_args).map(|at| (at, batch.read_memory(at, ATTR)));
        let early_state = state_of(&early_args).map(|at| (at, batch.read_memory(at, STATE)));
        let mut answers = batch.send()?;
        if let Some(ticket) = all {
            registers = answers.take(ticket)?;
        }
        let first = stack.and_then(|ticket| answers.take(ticket).ok());
        let mut attr = early_attr.and_then(|(at, ticket)| Some((at, answers.take(ticket).ok()?)));
        let mut state = early_state.and_then(|(at, ticket)| Some((at, answers.take(ticket).ok()?)));

        let args = abi.args(&registers, 4);
        if early_args.is_none() {
            let mut read = |at, size| Some((at, client.read_memory(at, size).ok()?));
            attr = attr_of(&args).and_then(|at| read(at, ATTR));
            state = state_of(&args).and_then(|at| read(at, STATE));
        }
        let read = |role: ReadRole, address, bytes| Read {
            role: role.into(),
            address,
            bytes,
        };
        event
            .reads
            .extend(attr.map(|(at, bytes)| read(ReadRole::Attr, at, bytes)));
        event
            .reads
            .extend(state.map(|(at, bytes)| read(ReadRole::State, at, bytes)));
        event.args = args.unwrap_or_default();
        let sp = abi.sp(&registers);
        let read = sp.zip(first);
        let stack = sent.or(read.map(|(address, bytes)| Chunk { address, bytes }));
        Ok(CreationHit {
            event,
            registers,
            stack,
        })
    }

    /// Walks the stack of a creation and completes its event.
    pub(super) fn finish_creation(
        &mut self,
        session: &mut Session,
        modules: &Modules,
        hit: CreationHit,
    ) -> Event {
        let mut event = hit.event;
        let mut memory = LiveStack::new(&mut session.client, hit.stack);
        let file = session.abi.register_file(&hit.registers);
        self.walker.walk(modules, &file, &mut memory);
        let mut snapshot = snapshot_of(&hit.registers);
        snapshot.chunks = memory.into_chunks();
        event.snapshot = Some(snapshot);
        event
    }

    /// Adds to `event` that a thread has reached the start routine at `pc`.
    pub(super) fn on_start(
        &mut self,
        session: &mut Session,
        pc: u64,
        registers: &Registers,
        event: &mut Event,
    ) {
        let abi = &session.abi;
        event.args = abi.args(registers, 1).unwrap_or_default();
        let (tp, sp) = (abi.thread_pointer(registers), abi.sp(registers));
        let arg = event.args.first().copied().unwrap_or(0);
        let creations = &mut self.creations;
        event.reads = creations.start(&mut session.client, abi, pc, arg, tp, sp);
        event.snapshot = Some(snapshot_of(registers));
    }

    /// The event of a creation, join or detach that the server recorded by itself.
    pub(super) fn on_frame(
        &mut self,
        abi: &Abi,
        modules: &Modules,
        hit: FrameHit,
        memory: Vec<(u64, Vec<u8>)>,
    ) -> Event {
        let FrameHit {
            kind, registers, ..
        } = hit;
        let mut event = Event {
            time_ns: hit.time_ns,
            tid: hit.tid,
            probe: hit.id,
            ..Event::default()
        };
        let mut snapshot = snapshot_of(&registers);
        if kind == ProbeKind::Create {
            event.args = abi.args(&registers, 4).unwrap_or_default();
            let mut memory = memory.into_iter();
            let stack = memory
                .next()
                .map(|(address, bytes)| Chunk { address, bytes });
            let attr = event.args.get(1).copied();
            let attr = attr.filter(|attr| plausible(*attr));
            let state = state_at(modules, abi, &event.args);
            let rest: Vec<(u64, Vec<u8>)> = memory.collect();
            for (role, at, size) in [
                (ReadRole::Attr, attr, ATTR),
                (ReadRole::State, state, STATE),
            ] {
                let here = |(address, _): &&(u64, Vec<u8>)| Some(*address) == at;
                if let Some((address, bytes)) = rest.iter().find(here) {
                    event.reads.push(Read {
                        role: role.into(),
                        address: *address,
                        bytes: bytes[..bytes.len().min(size)].to_vec(),
                    });
                }
            }
            let file: RegisterFile = abi.register_file(&registers);
            let mut noted = CollectedStack::new(stack);
            self.walker.walk(modules, &file, &mut noted);
            snapshot.chunks = noted.into_chunks();
        } else {
            event.args = abi.args(&registers, 1).unwrap_or_default();
        }
        event.snapshot = Some(snapshot);
        event
    }

    /// Records a creation with a stack too long for a tracepoint. Its thread is held.
    pub(super) fn on_long_stack(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        modules: &Modules,
        tid: u64,
        id: u32,
    ) -> Result<(), Error> {
        let thread = ThreadId {
            pid: session.pid,
            tid,
        };
        let time_ns = sink.now_ns();
        let looked = session.client.stacks(&[thread], FIRST)?;
        let Some(looked) = looked.into_iter().next() else {
            return Ok(());
        };
        let Some(registers) = looked.registers else {
            return Ok(());
        };
        let registers = session.abi.traced(&registers);
        let abi = &session.abi;
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
            .extend(attributes(&mut session.client, &event.args));
        // The thread is held, so the walk can follow frames of any size.
        let mut noted = LiveStack::new(&mut session.client, stack);
        self.walker.walk(modules, &file, &mut noted);
        let mut snapshot = snapshot_of(&registers);
        snapshot.chunks = noted.into_chunks();
        event.snapshot = Some(snapshot);
        sink.record_event(event);
        Ok(())
    }

    /// Records a wait that began before the recording, as if it began now.
    pub(super) fn on_wait(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        modules: &Modules,
        planter: &Planter,
        waiting: ReadThread,
    ) {
        let ReadThread {
            thread,
            mut registers,
            stack,
        } = waiting;
        let probes = &planter.probes;
        let abi = &session.abi;
        let there = abi.pc(&registers).and_then(|pc| probes.wait_before(pc));
        if let Some((_, place)) = there {
            // With the probe's address, the call path is the same as for later waits.
            abi.set_pc(&mut registers, place);
        }
        let file = abi.register_file(&registers);
        let mut memory = LiveStack::new(&mut session.client, stack);
        let walked = self.walker.walk(modules, &file, &mut memory);
        let (settled, chunks) = (walked.end.is_complete(), memory.into_chunks());
        // T32 code of glibc calls a function for its system calls (`__libc_do_syscall`).
        let mut frames = walked.frames.iter().take(2);
        let begun = frames.find_map(|frame| Some((probes.wait_before(frame.pc)?.0, frame.sp)));
        let Some((probe, sp)) = begun else {
            return;
        };
        let mut event = Event {
            time_ns: sink.now_ns(),
            tid: thread.tid,
            probe,
            frame: Some(sp),
            args: (session.abi)
                .call_arguments(&registers, 4)
                .unwrap_or_default(),
            ..Event::default()
        };
        let site = planter.calls.site(probe);
        if let Some(at) = site.and_then(|site| site.object(&event.args))
            && let Ok(bytes) = session.client.read_memory(at, OBJECT)
        {
            event.reads.push(object_at(at, bytes));
        }
        self.calls
            .begin(sink, event, &registers, &walked, settled, chunks);
    }
}

/// A snapshot of registers, without any stack.
pub(super) fn snapshot_of(registers: &Registers) -> Snapshot {
    Snapshot::of_registers(registers.bytes().to_vec(), registers.known())
}
