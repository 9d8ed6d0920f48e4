//! Determines the state of each inspected thread, and the object that each waiting thread waits at.
//!
//! The registers show the wait and its word, the stack shows the primitive, and the object's words
//! show the holder. Facts that they do not show stay unknown.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use unspool_capture::{
    Blocked, Capture, Event, Record, RegisterLayout, SNAPSHOT_PROBE, Snapshot, Target,
};
use unspool_image::Arch;

use super::memory::Memory;
use super::object;
use super::{
    CallSubject, FileReference, HARMLESS_SIGNALS, Holder, Inspection, Onward, OtherProcess, State,
    StopCause, Wait, WaitTrace, Word,
};
use crate::model::backtrace::{Backtrace, innermost_primitive};
use crate::model::finding::ObjectName;
use crate::model::{Model, ThreadIndex};
use crate::platform::Architecture;
use crate::platform::layouts::{self, Layout, Library};
use crate::platform::syscall::{self, AFTER, AwaitedChildren, BEFORE, CODE_BEFORE, Call, Futex};
use crate::primitives::Kind;

mod primitive;
mod unnamed;

/// Access to the program's files.
pub(in crate::model) trait Program {
    /// The C library in use, or the reason why it is unknown.
    fn library(&mut self) -> Result<Library, String>;
    /// The program's code, as its files have it.
    fn code(&mut self, avma: u64, len: usize) -> Option<Vec<u8>>;
    /// The variable at an address, and the offset into it.
    fn variable(&mut self, avma: u64) -> Option<Arc<str>>;
    /// The effects of code from an address on.
    fn onward(&mut self, avma: u64) -> Onward;
}

/// Length of the stack's end that holds the data of the C library's own functions.
const NEAR: usize = 1024;

/// All that was read of all threads at one time.
pub(in crate::model) struct Scene<'a> {
    pub(in crate::model) target: &'a Target,
    /// Snapshots, memory, and the kernel's data.
    pub(in crate::model) records: Vec<&'a Record>,
    /// For each thread of the model, whether it existed.
    pub(in crate::model) present: Vec<bool>,
}

impl<'a> Scene<'a> {
    /// The scene of a capture that is an inspection.
    pub(in crate::model) fn of(capture: &'a Capture, model: &Model) -> Scene<'a> {
        Scene {
            target: &capture.target,
            records: capture.records.iter().collect(),
            present: vec![true; model.threads.len()],
        }
    }
}

/// Determines the state of each thread.
pub(in crate::model) fn inspect(
    scene: &Scene<'_>,
    model: &Model,
    program: &mut dyn Program,
) -> Inspection {
    let Some(platform) = Architecture::by_gdb_name(&scene.target.arch) else {
        return Inspection::default();
    };
    let mut inspector = Inspector::new(scene, model, program, platform);
    for index in 0..model.threads.len() {
        let state = match scene.present.get(index) {
            Some(true) => inspector.state(ThreadIndex(index)),
            _ => State::Absent,
        };
        inspector.inspection.states.push(state);
    }
    let at_once = |stood: &(u64, u64)| {
        let mut events = inspector.events.values();
        events.all(|(first, last)| inspector.is_in(stood, first, last))
    };
    inspector.inspection.stood = inspector.standstills.iter().any(at_once);
    let mut inspection = std::mem::take(&mut inspector.inspection);
    inspection.bystanders = super::bystander::find(model, &inspection, inspector.program);
    let all_wait = inspection.present().all(|state| state.wait().is_some());
    inspection.all_wait = all_wait;
    if inspection.all_wait && !inspection.stood {
        let once = inspector.events.iter();
        let once = once.filter(|(_, (first, last))| std::ptr::eq(*first, *last));
        inspection.doubtful = once.map(|(tid, _)| *tid).collect();
    }
    inspection
        .wanted
        .sort_by_key(|range| (range.start, range.end));
    inspection.wanted.dedup();
    inspection
}

struct Inspector<'a> {
    model: &'a Model,
    program: &'a mut dyn Program,
    platform: &'static Architecture,
    arch: Arch,
    pointer: usize,
    registers: HashMap<&'a str, &'a RegisterLayout>,
    memory: Memory,
    /// The first and the last event of each thread, by its id.
    events: HashMap<u64, (&'a Event, &'a Event)>,
    /// The system call in which each thread was asleep before the stop, by thread id.
    blocked: HashMap<u64, &'a Blocked>,
    standstills: Vec<(u64, u64)>,
    /// Addresses of futex words in memory that no other process shares.
    private_words: HashSet<u64>,
    /// Threads by the id that the program itself uses.
    by_tid: HashMap<u64, ThreadIndex>,
    /// Thread pointers, sorted.
    pointers: Vec<(u64, u64)>,
    stopped: Option<StopCause>,
    library: Result<Library, String>,
    layout: Result<&'static Layout, String>,
    inspection: Inspection,
}

/// A thread in a wait.
struct Waiter<'a> {
    event: &'a Event,
    last: &'a Event,
    futex: Futex,
    sp: u64,
    words: Vec<u64>,
    near: Vec<u64>,
}

impl<'a> Inspector<'a> {
    fn new(
        scene: &Scene<'a>,
        model: &'a Model,
        program: &'a mut dyn Program,
        platform: &'static Architecture,
    ) -> Inspector<'a> {
        let arch = platform.arch;
        let pointer = arch.address_size();
        let layouts = &scene.target.registers;
        let registers = layouts.iter().map(|one| (one.name.as_str(), one)).collect();
        let mut inspector = Inspector {
            model,
            platform,
            arch,
            pointer,
            registers,
            memory: Memory::of(scene.records.iter().copied()),
            events: HashMap::new(),
            blocked: HashMap::new(),
            standstills: Vec::new(),
            private_words: HashSet::new(),
            by_tid: HashMap::new(),
            pointers: Vec::new(),
            stopped: None,
            library: Err(String::new()),
            layout: Err(String::new()),
            inspection: Inspection::default(),
            program,
        };
        for (index, thread) in model.threads.iter().enumerate() {
            if let Some(tid) = thread.tid
                && scene.present.get(index) == Some(&true)
            {
                inspector.by_tid.insert(tid, ThreadIndex(index));
            }
        }
        let mut own = HashMap::new();
        for record in scene.records.iter().copied() {
            match record {
                Record::Event(event) if event.probe == SNAPSHOT_PROBE => {
                    let entry = inspector.events.entry(event.tid).or_insert((event, event));
                    entry.1 = event;
                }
                Record::Blocked(blocked) => {
                    inspector.blocked.insert(blocked.tid, blocked);
                }
                Record::Standstill(stood) => {
                    inspector.standstills.push((stood.from_ns, stood.to_ns));
                }
                Record::ThreadState(state) => {
                    if state.frozen {
                        inspector.stopped = Some(StopCause::Frozen);
                    } else if state.state == "T" && state.tid == scene.target.pid {
                        inspector.stopped = Some(StopCause::Signal);
                    }
                    inspector.inspection.handled_signals = state
                        .handled_signals
                        .or(inspector.inspection.handled_signals);
                    let tracer = &mut inspector.inspection.tracer;
                    *tracer = state.tracer_tid.or(*tracer);
                    let handled = state.handled_signals.unwrap_or(0) & !HARMLESS_SIGNALS;
                    if handled != 0 {
                        inspector.inspection.handlers.insert(scene.target.pid);
                    }
                    if state.timer_signals & handled != 0 {
                        inspector.inspection.timers.insert(scene.target.pid);
                    }
                    let users = &mut inspector.inspection.memory_users;
                    users.extend(state.memory_users.iter().copied());
                    inspector.private_words.extend(&state.private_words);
                    inspector.inspection.ids_known |= state.own_tid.is_some();
                    if let (Some(id), Some(index)) =
                        (state.own_tid, inspector.by_tid.get(&state.tid))
                    {
                        own.insert(id, *index);
                    }
                }
                _ => {}
            }
        }
        // In a namespace of their own, threads use other ids than the recorder.
        if own
            .iter()
            .any(|(id, index)| model.threads[index.0].tid != Some(*id))
        {
            inspector.by_tid = own;
        }
        let mut pointers: Vec<(u64, u64)> = inspector
            .by_tid
            .iter()
            .filter_map(|(tid, index)| {
                let event = inspector.events.get(&model.threads[index.0].tid?)?.0;
                let value =
                    inspector.register(event.snapshot.as_ref()?, platform.thread_pointer)?;
                Some((value, *tid))
            })
            .collect();
        pointers.sort_unstable();
        inspector.pointers = pointers;
        inspector.library = inspector.program.library();
        let family = inspector
            .library
            .as_ref()
            .map(|library| library.family)
            .map_err(Clone::clone);
        inspector.layout = family.and_then(|family| layouts::of(family, pointer));
        inspector
    }

    fn register(&self, snapshot: &Snapshot, name: &str) -> Option<u64> {
        snapshot.register(self.registers.get(name)?)
    }

    fn state(&mut self, index: ThreadIndex) -> State {
        let thread = &self.model.threads[index.0];
        let found = thread.tid.and_then(|tid| self.events.get(&tid)).copied();
        let Some((event, last)) = found else {
            return State::Unknown;
        };
        let Some(snapshot) = &event.snapshot else {
            return State::Unknown;
        };
        let stack = thread.stack.clone().unwrap_or_default();
        let state = self.activity(event, last, snapshot, &stack);
        match self.stopped {
            Some(stop) => State::Stopped(stop, Box::new(state)),
            None => state,
        }
    }

    fn activity(
        &mut self,
        event: &Event,
        last: &Event,
        snapshot: &Snapshot,
        stack: &Backtrace,
    ) -> State {
        let call = self.call(snapshot);
        let Some(call) = call.or_else(|| self.ended_by_stop(event.tid, snapshot)) else {
            return State::Running;
        };
        if let Some(futex) = call.futex(self.arch) {
            let sp = self.register(snapshot, self.stack_pointer()).unwrap_or(0);
            let (words, near) = self.words(snapshot, sp);
            let waiter = Waiter {
                event,
                last,
                futex,
                sp,
                words,
                near,
            };
            return State::Waiting(Box::new(self.wait(&waiter, stack)));
        }
        let sleeps = || {
            let names = stack.frames.iter().take(3);
            let mut names = names.filter_map(|frame| frame.place.function.as_deref());
            names.any(|name| name.contains("nanosleep"))
        };
        if call.sleeps(self.arch) || (call.restarts(self.arch) && sleeps()) {
            return State::Sleeping;
        }
        State::InCall {
            number: call.number,
            name: call.name(self.arch),
            args: [call.args[0], call.args[1]],
            on: self.subject(&call),
        }
    }

    fn subject(&self, call: &Call) -> Option<CallSubject> {
        if let Some(awaited) = call.children(self.arch) {
            let one = match awaited {
                AwaitedChildren::One(pid) => Some(OtherProcess {
                    pid,
                    program: String::new(),
                }),
                AwaitedChildren::Any | AwaitedChildren::Newest => None,
            };
            return Some(CallSubject::Children {
                awaited,
                processes: one.into_iter().collect(),
            });
        }
        if let Some(descriptor) = call.file_lock(self.arch) {
            return Some(CallSubject::FileLock {
                descriptor,
                name: None,
                holders: Vec::new(),
            });
        }
        let descriptor = call.descriptor(self.arch).map(FileReference::Descriptor);
        let path = || call.path(self.arch).map(FileReference::Path);
        Some(CallSubject::File {
            reference: descriptor.or_else(path)?,
            name: None,
            other_end: Vec::new(),
            is_complete: false,
        })
    }

    fn call(&mut self, snapshot: &Snapshot) -> Option<Call> {
        let registers = &self.registers;
        let register = |name: &str| snapshot.register(registers.get(name)?);
        let program = &mut self.program;
        let call = syscall::of(self.arch, &register, &mut |avma, len| {
            program.code(avma, len)
        })?;
        let pc = register(self.platform.pc);
        Some(call.continued(self.arch, || {
            program.code(pc?.checked_sub(CODE_BEFORE as u64)?, CODE_BEFORE)
        }))
    }

    /// The call in which a thread was asleep before the stop, if the stop has ended it: the thread
    /// is at the place to which the call returns. A stop never ends a wait at a futex this way.
    fn ended_by_stop(&self, tid: u64, snapshot: &Snapshot) -> Option<Call> {
        let blocked = self.blocked.get(&tid)?;
        let (pc, sp) = (self.platform.pc, self.stack_pointer());
        let (pc, sp) = (self.register(snapshot, pc)?, self.register(snapshot, sp)?);
        let (pc, _) = self.platform.split_code_pointer(pc);
        let (args, _) = blocked.args.split_first_chunk()?;
        let call = Call {
            number: blocked.number?,
            args: *args,
        };
        let is_there = (pc, sp) == (blocked.pc, blocked.sp);
        (is_there && call.futex(self.arch).is_none()).then_some(call)
    }

    fn stack_pointer(&self) -> &'static str {
        self.platform.sp
    }

    /// The values that may be addresses: registers, then the end of the stack.
    fn words(&self, snapshot: &Snapshot, sp: u64) -> (Vec<u64>, Vec<u64>) {
        let chunk = snapshot.chunks.iter().find_map(|chunk| {
            let at = usize::try_from(sp.checked_sub(chunk.address)?).ok()?;
            chunk.bytes.get(at..).filter(|rest| !rest.is_empty())
        });
        let bytes = chunk.unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(NEAR)];
        let words = bytes.chunks_exact(self.pointer).map(|word| {
            let mut value = [0; 8];
            value[..word.len()].copy_from_slice(word);
            u64::from_le_bytes(value)
        });
        let near: Vec<u64> = words.collect();
        let values = self.registers.values();
        let mut words: Vec<u64> = values.filter_map(|one| snapshot.register(one)).collect();
        words.extend(&near);
        (words, near)
    }

    fn wait(&mut self, waiter: &Waiter<'_>, stack: &Backtrace) -> Wait {
        let futex = &waiter.futex;
        let window = futex.address.saturating_sub(BEFORE);
        if self.memory.bytes(futex.address, 4).is_none() && !self.memory.was_asked(window) {
            let end = futex.address.saturating_add(AFTER);
            self.inspection.wanted.push(window..end);
        }
        let near = &stack.frames[..stack.frames.len().min(primitive::DEEPEST)];
        let found = innermost_primitive(near).map(|(at, primitive)| {
            let module = near[at].place.module.clone();
            self.waits_for((primitive, module), futex)
        });
        let function = found.as_ref().map(|(function, _)| *function);
        let kind = function.map_or(Kind::Futex, |function| function.kind);
        let mut wait = Wait {
            object: ObjectName {
                kind,
                address: futex.address,
                name: None,
            },
            function,
            flavor: Vec::new(),
            holders: Vec::new(),
            readers: None,
            mutex: None,
            timed: futex.timed,
            shared: futex.shared,
            proved: true,
            moving: self.has_moved(futex) && !self.was_left_asleep(waiter),
            refused: false,
            word: Word::default(),
            unknown: None,
            trace: None,
        };
        let said = match &found {
            Some(found) => self.said(found, waiter, &mut wait),
            None if futex.inherits => {
                wait.object.kind = Kind::Mutex;
                object::inherited(&self.memory, futex)
            }
            None => self.said_by_library(waiter, stack, &mut wait),
        };
        if wait.object.kind == Kind::Mutex {
            // Robust mutexes are waited at like shared ones.
            wait.shared = said.shared || (said.len == 0 && futex.shared);
        }
        if wait.object.kind == Kind::Join {
            // The kernel wakes the joining thread as if it belonged to another process.
            wait.shared = false;
        }
        if wait.object.kind == Kind::Future {
            // libstdc++ never says that its futures are private to the process (futex.cc).
            wait.shared = false;
        }
        let address = wait.object.address;
        wait.object.name = self.program.variable(address);
        // A process does not share its files' variables, but glibc treats every robust mutex as
        // shared.
        let is_private = self.private_words.contains(&futex.address);
        wait.shared &= wait.object.name.is_none() && !is_private;
        // The kernel ends a join. Processes in the same memory may end all other waits.
        let has_users = !self.inspection.memory_users.is_empty();
        wait.shared |= has_users && wait.object.kind != Kind::Join;
        wait.flavor = said.flavor;
        wait.readers = said.readers;
        wait.holders = said
            .holders
            .iter()
            .map(|tid| {
                let thread = self.by_tid.get(tid).copied();
                let known = thread.and_then(|thread| self.model.thread(thread)?.tid);
                Holder {
                    tid: known.unwrap_or(*tid),
                    stored: *tid,
                    is_gone: false,
                    thread,
                }
            })
            .collect();
        wait.proved &= said.unknown.is_none();
        if !wait.holders.is_empty() {
            let from = match wait.object.kind {
                Kind::Join => futex.address,
                _ => address,
            };
            let words = self.memory.bytes(from, said.len);
            wait.trace = words.map(|words| {
                let (futex, address, bytes) = (futex.address, from, words.to_vec());
                Arc::new(WaitTrace {
                    futex,
                    address,
                    bytes,
                })
            });
            let at_once = self.at_once(waiter, from, said.len);
            if !at_once && std::ptr::eq(waiter.event, waiter.last) {
                self.inspection.doubtful.push(waiter.event.tid);
                let end = from.saturating_add(said.len as u64);
                self.inspection.doubtful_words.push(from..end);
            }
            wait.proved &= at_once;
            if !at_once && !std::ptr::eq(waiter.event, waiter.last) {
                wait.holders.clear();
                wait.moving = true;
            }
        }
        wait.unknown = said.unknown.map(Into::into);
        if wait.trace.is_none() {
            let word = self.memory.bytes(futex.address, 4);
            wait.trace = word.map(|word| {
                Arc::new(WaitTrace {
                    futex: futex.address,
                    address: futex.address,
                    bytes: word.to_vec(),
                })
            });
        }
        wait
    }

    /// True if the word no longer has the value for which the thread waits (futex(2), FUTEX_WAIT),
    /// or if it could not be read.
    fn has_moved(&self, futex: &Futex) -> bool {
        let word = self.memory.word(futex.address);
        word.is_none()
            || futex
                .expected
                .is_some_and(|expected| word != Some(expected))
    }

    /// True if the thread was not stopped, because it slept in its call, so that only some of its
    /// registers are known. It is not about to run.
    fn was_left_asleep(&self, waiter: &Waiter<'_>) -> bool {
        let snapshot = waiter.event.snapshot.as_ref();
        snapshot.is_some_and(|snapshot| self.standing(snapshot).contains(&None))
    }

    /// True if the thread's wait and the object's words were seen at one moment.
    fn at_once(&self, waiter: &Waiter<'_>, address: u64, len: usize) -> bool {
        let Some(read) = self.memory.time_ns(address, len) else {
            return false;
        };
        let (first, last) = (waiter.event, waiter.last);
        let stood = |stood: &(u64, u64)| {
            (stood.0..=stood.1).contains(&read) && self.is_in(stood, first, last)
        };
        if self.standstills.iter().any(stood) {
            return true;
        }
        // The thread waited before and after, with the same registers and words.
        last.time_ns > read
            && self.is_same(first, last)
            && self.memory.is_confirmed(address, len, last.time_ns)
    }

    /// True if a thread was in the standstill and unchanged.
    fn is_in(&self, (from, to): &(u64, u64), first: &Event, last: &Event) -> bool {
        let inside = |event: &Event| (*from..=*to).contains(&event.time_ns);
        inside(first) || inside(last) && self.is_same(first, last)
    }

    fn is_same(&self, first: &Event, last: &Event) -> bool {
        let registers = |event: &Event| event.snapshot.as_ref().map(|s| self.standing(s));
        registers(first) == registers(last)
    }

    /// Registers that a continuing wait keeps. An interrupted call may change its number and
    /// result.
    fn standing(&self, snapshot: &Snapshot) -> Vec<Option<u64>> {
        let names = self.platform.kept_by_waits.iter();
        names.map(|name| self.register(snapshot, name)).collect()
    }
}
