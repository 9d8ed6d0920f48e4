//! What is noted when a probe is hit. Round trips are what recording costs, so each hit asks for
//! everything it needs at once, and asks again only for what only the answer told.

use std::collections::BTreeMap;

use unspool_capture::{Chunk, Event, ProbeKind, Read, ReadRole, Snapshot};
use unspool_rsp::{Client, Registers, ThreadId};
use unspool_unwind::{RegisterFile, Stack, StackEnd, StackMemory, WalkOptions, walk};

use super::abi::Abi;
use super::creations::Creation;
use super::modules::Modules;
use super::probes::Place;
use super::recorder::Recorder;
use super::stack::{FIRST, LiveStack};
use super::{Error, memory};

/// Bytes of a `pthread_attr_t` that are kept: all of it, in every known C library.
pub(super) const ATTR: usize = 64;
/// Bytes that are kept of the object that says what a thread of libstdc++ calls: as long as it is with some arguments. What it calls is
/// behind them.
pub(super) const STATE: usize = 128;

impl Recorder {
    /// Notes a hit of probe `id`. `expedited` is what the stop reply told of the registers.
    pub(super) fn on_probe(
        &mut self,
        thread: ThreadId,
        id: u32,
        kind: ProbeKind,
        pc: u64,
        expedited: Registers,
    ) -> Result<(), Error> {
        self.threads
            .seen(&mut self.sink, &mut self.session, thread, false);
        if kind == ProbeKind::Start && !self.threads.start(thread.tid) {
            // The thread runs since long: somebody calls the function as any other.
            return Ok(());
        }
        let time_ns = self.sink.now_ns();
        let mut event = Event {
            time_ns,
            tid: thread.tid,
            probe: id,
            ..Event::default()
        };
        match kind {
            kind if kind.is_of_calls() => {
                let registers = self.whole(thread, expedited)?;
                return self.on_call_stop(thread, id, time_ns, registers);
            }
            ProbeKind::Create => self.on_create(thread, expedited, &mut event)?,
            ProbeKind::Start => {
                let registers = self.whole(thread, expedited)?;
                let abi = &self.session.abi;
                event.args = abi.args(&registers, 1).unwrap_or_default();
                let (tp, sp) = (abi.thread_pointer(&registers), abi.sp(&registers));
                let arg = event.args.first().copied().unwrap_or(0);
                event.reads = self
                    .pending
                    .start(&mut self.session.client, abi, pc, arg, tp, sp);
                event.snapshot = Some(Snapshot::of_registers(
                    registers.bytes().to_vec(),
                    registers.known(),
                ));
            }
            _ => {
                let registers = self.whole(thread, expedited)?;
                event.args = self.session.abi.args(&registers, 1).unwrap_or_default();
                event.snapshot = Some(Snapshot::of_registers(
                    registers.bytes().to_vec(),
                    registers.known(),
                ));
            }
        }
        event.seq = self.sink.next_event();
        self.sink.record(event);
        Ok(())
    }

    /// A thread names itself: its name is read where it is given.
    pub(super) fn on_name(&mut self, thread: ThreadId, expedited: Registers) -> Result<(), Error> {
        let registers = self.whole(thread, expedited)?;
        let abi = &self.session.abi;
        let Some(name) = abi.args(&registers, 2).map(|args| args[1]) else {
            return Ok(());
        };
        let own = names_itself(abi, &registers);
        let name = memory::string(&mut self.session.client, name);
        // The kernel keeps 15 bytes; the C library refuses more.
        if let Some(name) = name.filter(|name| own && name.len() <= 15) {
            self.threads.rename(&mut self.sink, thread.tid, name);
        }
        Ok(())
    }

    fn on_create(
        &mut self,
        thread: ThreadId,
        expedited: Registers,
        event: &mut Event,
    ) -> Result<(), Error> {
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        let mut registers = expedited;
        let sp = abi.sp(&registers);
        let early_args = abi.args(&registers, 4);
        let attr_of = |args: &Option<Vec<u64>>| {
            args.as_ref()
                .map(|args| args[1])
                .filter(|attr| plausible(*attr))
        };
        let modules = &self.modules;
        let state_of = |args: &Option<Vec<u64>>| state_at(modules, abi, args.as_ref()?);

        let mut batch = client.batch();
        let all = (!abi.suffices(&registers)).then(|| batch.registers(thread));
        let sent = std::mem::take(&mut self.stack_sent);
        let sent = sent.into_iter().find(|chunk| Some(chunk.address) == sp);
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

        if let [handle_at, _, routine, arg] = event.args[..] {
            let address = abi.code_address(routine);
            let creation = Creation {
                routine: address,
                arg,
                handle_at,
            };
            if self.session.tells_creators {
                // Nothing more to ask: the clone that follows in this thread is this creation's.
            } else if self.threads_run_on {
                let handles = self.look_around()?;
                event.reads.extend(handles);
                self.pending.add(creation);
            } else {
                if let Some(at) = self.pending.hidden_by(creation)
                    && let Ok(bytes) = client.read_memory(at, abi.pointer)
                {
                    if let Some(handle) = abi.pointer_at(&bytes, 0) {
                        self.pending.hide(creation, handle);
                    }
                    event.reads.push(read(ReadRole::Handle, at, bytes));
                }
                self.pending.add(creation);
                self.watch_start(address, routine != address)?;
            }
        }

        let abi = &self.session.abi;
        let sp = abi.sp(&registers);
        let read = sp.zip(first);
        let first = sent.or(read.map(|(address, bytes)| Chunk { address, bytes }));
        let mut memory = LiveStack::new(&mut self.session.client, first);
        let file = abi.register_file(&registers);
        walk_noting(&self.modules, &mut self.unusable, &file, &mut memory);
        let mut snapshot = Snapshot::of_registers(registers.bytes().to_vec(), registers.known());
        snapshot.chunks = memory.into_chunks();
        event.snapshot = Some(snapshot);
        Ok(())
    }

    /// Plants a probe at a start routine that is seen for the first time.
    fn watch_start(&mut self, address: u64, thumb: bool) -> Result<(), Error> {
        let place = Place {
            address,
            movable: 0,
            thumb,
            function: self.modules.function_at(address).unwrap_or_default(),
            module: self.modules.at(address).map(|mapped| mapped.id),
        };
        let (client, abi) = (&mut self.session.client, &self.session.abi);
        self.probes.plant(client, abi, ProbeKind::Start, &place);
        match self.probes.send_all(client, &mut self.sink) {
            // A wild pointer is the program's own misfortune, to come in a moment.
            Err(Error::Rsp(error)) if !error.is_fatal() => {
                let text = format!("cannot watch the start routine at {address:#x}: {error}");
                self.sink.note(unspool_capture::Severity::Warning, text);
                Ok(())
            }
            other => other,
        }
    }

    /// All registers of `thread`, asked for only if the stop reply did not bring them.
    fn whole(&mut self, thread: ThreadId, expedited: Registers) -> Result<Registers, Error> {
        if self.session.abi.suffices(&expedited) {
            return Ok(expedited);
        }
        Ok(self.session.client.registers(thread)?)
    }
}

/// The attributes that a creation's second argument points to.
pub(super) fn attributes(client: &mut Client, args: &[u64]) -> Option<Read> {
    let address = *args.get(1)?;
    let bytes = plausible(address).then(|| client.read_memory(address, ATTR).ok())??;
    Some(Read {
        role: ReadRole::Attr.into(),
        address,
        bytes,
    })
}

/// Where the object is that says what the created thread calls, if libstdc++ creates it: the argument of its own function. Others'
/// arguments are theirs.
pub(super) fn state_at(modules: &Modules, abi: &Abi, args: &[u64]) -> Option<u64> {
    let [_, _, routine, argument] = *args else {
        return None;
    };
    let begins = modules.begins_cxx_threads(abi.code_address(routine));
    begins.then_some(argument)
}

/// Whether a pointer to attributes may be one.
pub(super) fn plausible(attr: u64) -> bool {
    attr >= 0x1000 && attr.checked_add(0x1000).is_some()
}

/// Whether a thread that names one names itself. Another thread may be meant, which then is asked for its name at the next
/// occasion.
pub(super) fn names_itself(abi: &Abi, registers: &Registers) -> bool {
    let Some(handle) = abi.args(registers, 1).map(|args| args[0]) else {
        return false;
    };
    match (abi.thread_pointer(registers), abi.sp(registers)) {
        (Some(pointer), _) => pointer == handle,
        (None, Some(sp)) => handle.checked_sub(sp).is_some_and(|above| above < 64 << 20),
        _ => false,
    }
}

/// Walks a stack, so that `memory` knows which of it is needed; notes the modules on the way whose files could not be used.
pub(super) fn walk_noting(
    modules: &Modules,
    unusable: &mut BTreeMap<String, String>,
    registers: &RegisterFile,
    memory: &mut impl StackMemory,
) -> Stack {
    let stack = walk(modules.map(), registers, memory, &WalkOptions::default());
    let outside = match stack.end {
        StackEnd::OutsideText { pc } | StackEnd::NoRule { pc } => Some(pc),
        _ => None,
    };
    for pc in stack.frames.iter().map(|frame| frame.pc).chain(outside) {
        if let Some(mapped) = modules.at(pc)
            && let Some(problem) = &mapped.problem
        {
            unusable.insert(mapped.path.clone(), problem.clone());
        }
    }
    stack
}
