//! Turns events into calls of the instrumented functions and of the futex system calls.
//!
//! A capture may hold millions of calls, so they are not kept. Each is shown when it begins and
//! when it ends, in the order of the events. Only pending calls and distinct call paths are kept.
//!
//! Thread and stack pointer match a call's end with its beginning
//! (docs/reference/capture-format.md, "Calls"). A call without a recorded end is
//! [lost](Moment::Lost): it never gets another call's end.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use unspool_capture::{
    Capture, Event, Gap, GapKind, ModuleLoaded, Probe, ProbeKind, ReadRole, Record, Snapshot,
};

use super::backtrace::{Backtrace, Frames};
use super::{Model, Symbolizer, ThreadIndex};

pub(super) mod futex;
pub(super) mod lives;
mod under_way;

use lives::Lives;
use under_way::{Left, Missed, UnderWay};

/// Index of a call path in [`Calls::paths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub usize);

/// Index of a function in [`Calls::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub usize);

/// A function or system call whose calls were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The recorder's name for it, e.g. `pthread_mutex_lock`. For the futex system call, the
    /// function that makes it.
    pub name: String,
    /// True for the futex system call.
    pub futex: bool,
    /// The probe at its beginning.
    pub probe: u32,
    /// True if a probe sees its end. Otherwise nothing follows [`Moment::Entered`], and neither for
    /// system calls that wake.
    pub has_end: bool,
}

/// One call. Times are nanoseconds since the recording began.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Counts up from 0, in the order in which calls begin.
    pub number: u64,
    /// The thread that called.
    pub thread: ThreadIndex,
    /// The called function.
    pub function: FunctionId,
    /// Recorded argument registers; for a system call, all of them.
    pub args: Vec<u64>,
    /// Address and first bytes of the object when the call began, if recorded.
    pub object: Option<(u64, Vec<u8>)>,
    /// When it began.
    pub entered_ns: u64,
    /// When the call ended; `None` if it has not ended, or if its end was not recorded.
    pub left_ns: Option<u64>,
    /// The result, if it was recorded.
    pub result: Option<u64>,
    /// Where it was called, the function itself innermost.
    pub path: PathId,
    /// The [number](Call::number) of the recorded call in which this one was made.
    pub within: Option<u64>,
}

/// An event in the life of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment<'a> {
    /// It begins.
    Entered(&'a Call),
    /// It ends. `left_ns` is set, and so is `result` if it was recorded.
    Left(&'a Call),
    /// The call ended at an unknown time. It was left by an exception, a `longjmp` or a
    /// cancellation, or its end was not recorded. The time of this event means nothing.
    Lost {
        /// The call.
        call: &'a Call,
        /// The next event of its thread, if no event is missing in between.
        before_ns: Option<u64>,
    },
    /// The thread ended first, with the program or within the call. Unless `sure`, ends of the
    /// function were lost, perhaps this one's too.
    CutShort {
        /// The call.
        call: &'a Call,
        /// No end of its function was lost.
        sure: bool,
    },
    /// The recording ended first. Unless `sure`, events were lost, perhaps the call's end too.
    Unfinished {
        /// The call.
        call: &'a Call,
        /// No end of its function was lost.
        sure: bool,
    },
    /// Beginnings, or `ends`, of calls of these functions are missing.
    Missing {
        /// The functions.
        functions: &'a [FunctionId],
        /// True if ends are missing, false for beginnings.
        ends: bool,
        /// The kind of gap.
        gap: GapKind,
    },
}

/// The result, once all calls have been read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The instrumented functions, in the order of the probes.
    pub functions: Vec<Function>,
    /// The distinct call paths. The first one is empty, and stands for unknown paths.
    pub paths: Vec<Arc<Backtrace>>,
    /// Number of calls that began.
    pub count: u64,
    /// Number of calls whose end was lost.
    pub lost: u64,
    /// Number of events of unknown threads, which were left out.
    pub strangers: u64,
    /// The reason why not all calls could be read.
    pub failure: Option<String>,
}

impl Calls {
    /// Reads all calls of a capture and passes them to `visit`, in order. `model` was built from
    /// the capture with the same `symbolizer`.
    pub fn read(
        capture: &Capture,
        model: &Model,
        symbolizer: &mut Symbolizer,
        visit: &mut dyn FnMut(&Calls, Moment<'_>),
    ) -> Calls {
        Calls::interpret(capture, model, symbolizer, visit)
    }

    pub(super) fn interpret(
        capture: &Capture,
        model: &Model,
        frames: &mut dyn Frames,
        visit: &mut dyn FnMut(&Calls, Moment<'_>),
    ) -> Calls {
        let mut reading = Reading::new(model, frames, visit);
        let mut records = capture.records.iter();
        reading.keeps_stacks = records.any(|record| matches!(record, Record::ModuleUnloaded(_)));
        let read = capture.each(&mut |at, record| reading.record(at, record));
        reading.calls.failure = read.err().map(|error| error.to_string());
        reading.finish()
    }

    /// A function by its id; ids come from this same value.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.0]
    }

    /// A call path by its id; ids come from this same value.
    pub fn path(&self, id: PathId) -> &Arc<Backtrace> {
        &self.paths[id.0]
    }
}

/// A function that has the same address in the same file.
#[derive(PartialEq, Eq, Hash)]
struct FileFunction {
    path: String,
    build_id: Vec<u8>,
    file_number: Option<u32>,
    svma: u64,
    name: String,
    kind: i32,
}

/// The role of a probe.
#[derive(Clone, Debug)]
enum Role {
    Begins(FunctionId),
    /// The ends of calls of these.
    Ends(Vec<FunctionId>),
}

struct Reading<'a> {
    calls: Calls,
    frames: &'a mut dyn Frames,
    visit: &'a mut dyn FnMut(&Calls, Moment<'_>),
    lives: Lives,
    /// True if [`Gap`] records give the times of missing hits.
    placed: bool,
    /// Probes whose hits are missing at the moment.
    paused: BTreeSet<u32>,
    roles: HashMap<u32, Role>,
    /// Path, build-id and bias of each module.
    files: HashMap<u32, ModuleLoaded>,
    /// The functions of files, which may be loaded again.
    of_files: HashMap<FileFunction, FunctionId>,
    /// For each function, whether it may be entered by a jump of the other.
    jumps: HashMap<(FunctionId, FunctionId), bool>,
    under_way: HashMap<u64, UnderWay>,
    /// Path ids by the address of the stack, which the value keeps in its place.
    known: HashMap<*const Backtrace, (PathId, Arc<Backtrace>)>,
    /// The paths with these program counters. After a library was loaded, equal program counters
    /// can mean other code.
    by_counters: HashMap<Vec<u64>, Vec<PathId>>,
    /// The stacks of events that carry one.
    carried: HashMap<u64, Carried>,
    /// True if modules are unloaded, so that the code at an address may change.
    keeps_stacks: bool,
    /// Number of modules unloaded so far.
    unloads: usize,
}

/// The stack of an event, which later events refer to.
struct Carried {
    path: PathId,
    /// Number of modules unloaded before the path was found.
    unloads: usize,
    snapshot: Option<Snapshot>,
}

impl<'a> Reading<'a> {
    fn new(
        model: &Model,
        frames: &'a mut dyn Frames,
        visit: &'a mut dyn FnMut(&Calls, Moment<'_>),
    ) -> Reading<'a> {
        Reading {
            calls: Calls {
                paths: vec![Arc::default()],
                ..Calls::default()
            },
            frames,
            visit,
            lives: Lives::new(&model.threads),
            placed: model.recording.gaps_are_placed,
            paused: BTreeSet::new(),
            roles: HashMap::new(),
            files: HashMap::new(),
            of_files: HashMap::new(),
            jumps: HashMap::new(),
            under_way: HashMap::new(),
            known: HashMap::new(),
            by_counters: HashMap::new(),
            carried: HashMap::new(),
            keeps_stacks: false,
            unloads: 0,
        }
    }

    fn record(&mut self, at: usize, record: &Record) {
        match record {
            Record::ModuleLoaded(module) => {
                self.files.insert(module.id, module.clone());
            }
            Record::ModuleUnloaded(_) => self.unloads += 1,
            Record::Probe(probe) => self.probe(probe),
            Record::Event(event) => self.event(at, event),
            Record::ThreadExited(exited) => self.exited(exited.tid),
            Record::Gap(gap) => self.gap(gap),
            Record::Dropped(dropped) if !self.placed => self.missed(dropped.probe),
            Record::Missed(missed) if !self.placed => self.missed(missed.probe),
            _ => {}
        }
    }

    fn probe(&mut self, probe: &Probe) {
        let role = match probe.kind() {
            kind @ (ProbeKind::Enter | ProbeKind::FutexWait | ProbeKind::FutexWake) => {
                let next = FunctionId(self.calls.functions.len());
                let of_file = self.function_of_file(probe);
                let id = of_file.map_or(next, |key| *self.of_files.entry(key).or_insert(next));
                if id == next {
                    self.calls.functions.push(Function {
                        name: probe.function.clone(),
                        futex: kind != ProbeKind::Enter,
                        probe: probe.id,
                        has_end: false,
                    });
                }
                Role::Begins(id)
            }
            ProbeKind::Leave | ProbeKind::FutexReturn => {
                let begun = probe.ends.iter().filter_map(|id| match self.roles.get(id) {
                    Some(Role::Begins(function)) => Some(*function),
                    _ => None,
                });
                let ends: Vec<FunctionId> = begun.collect();
                for function in &ends {
                    self.calls.functions[function.0].has_end = true;
                }
                self.jumps.clear();
                Role::Ends(ends)
            }
            _ => return,
        };
        self.roles.insert(probe.id, role);
    }

    /// Identifies a probe's function by its file, if the file is known.
    fn function_of_file(&self, probe: &Probe) -> Option<FileFunction> {
        let module = self.files.get(&probe.module?)?;
        Some(FileFunction {
            path: module.path.clone(),
            build_id: module.build_id.clone(),
            file_number: module.file_number,
            svma: probe.avma.wrapping_sub(module.bias),
            name: probe.function.clone(),
            kind: probe.kind,
        })
    }

    fn event(&mut self, at: usize, event: &Event) {
        match self.roles.get(&event.probe) {
            Some(Role::Begins(function)) => {
                let function = *function;
                self.entered(at, event, function);
            }
            Some(Role::Ends(_)) => self.left(event),
            None => {}
        }
    }

    fn entered(&mut self, at: usize, event: &Event, function: FunctionId) {
        // Other events may have the same stack, even if this one is skipped.
        let path = self.path(at, event);
        let Some(thread) = self.lives.at(event.tid, event.time_ns) else {
            self.calls.strangers += 1;
            return;
        };
        let frame = event.frame.unwrap_or(0);
        let object = event.reads.iter().find(|r| r.role() == ReadRole::Object);
        let mut call = Call {
            number: self.calls.count,
            thread,
            function,
            args: event.args.clone(),
            object: object.map(|read| (read.address, read.bytes.clone())),
            entered_ns: event.time_ns,
            left_ns: None,
            result: None,
            path,
            within: None,
        };
        self.calls.count += 1;
        let Reading {
            under_way,
            jumps,
            roles,
            ..
        } = self;
        let mut jumped = |before: FunctionId| {
            let known = jumps.entry((before, function));
            *known.or_insert_with(|| {
                let together = |role: &Role| matches!(role, Role::Ends(of) if of.contains(&before) && of.contains(&function));
                before != function && roles.values().any(together)
            })
        };
        let here = under_way.entry(event.tid).or_default();
        if self.calls.functions[function.0].futex && here.goes_on(frame, function, &event.args) {
            return;
        }
        let over = here.make_room((frame, event.time_ns), &mut jumped);
        call.within = here.innermost();
        for (lost, missed) in over {
            let before_ns = (missed == Missed::default()).then_some(event.time_ns);
            self.lost(&lost, before_ns);
        }
        (self.visit)(&self.calls, Moment::Entered(&call));
        // A call that wakes others ends at once, also where another call may wait.
        let wakes = self.calls.functions[function.0].futex && !futex::waits(&call.args);
        if wakes || !self.calls.functions[function.0].has_end {
            return;
        }
        let missed = match self.paused.is_empty() {
            true => Missed::default(),
            false => self.missing(function),
        };
        if let Some(here) = self.under_way.get_mut(&event.tid)
            && let Some(lost) = here.enter(frame, call, missed)
        {
            self.lost(&lost, None);
        }
    }

    fn left(&mut self, event: &Event) {
        let Some(Role::Ends(of)) = self.roles.get(&event.probe) else {
            return;
        };
        let Some(here) = self.under_way.get_mut(&event.tid) else {
            return;
        };
        for (mut call, sure) in here.leave((event.frame.unwrap_or(0), event.time_ns), of) {
            if !sure {
                self.lost(&call, None);
                continue;
            }
            call.left_ns = Some(event.time_ns.max(call.entered_ns));
            call.result = event.args.first().copied();
            (self.visit)(&self.calls, Moment::Left(&call));
        }
    }

    fn path(&mut self, at: usize, event: &Event) -> PathId {
        let Some(snapshot) = &event.snapshot else {
            let same = event.same_stack_as;
            return same.map_or(PathId(0), |seq| self.carried_path(at, seq));
        };
        let path = self.path_of(at, snapshot);
        let kept = self.keeps_stacks.then(|| snapshot.clone());
        self.carry(event.seq, path, kept);
        path
    }

    /// The path of an event with the same stack as an earlier one. The addresses in it may belong
    /// to another module by now.
    fn carried_path(&mut self, at: usize, seq: u64) -> PathId {
        let Some(carried) = self.carried.get_mut(&seq) else {
            return PathId(0);
        };
        if carried.unloads == self.unloads {
            return carried.path;
        }
        let Some(snapshot) = carried.snapshot.take() else {
            return carried.path;
        };
        let path = self.path_of(at, &snapshot);
        self.carry(seq, path, Some(snapshot));
        path
    }

    fn carry(&mut self, seq: u64, path: PathId, snapshot: Option<Snapshot>) {
        let carried = Carried {
            path,
            unloads: self.unloads,
            snapshot,
        };
        self.carried.insert(seq, carried);
    }

    fn path_of(&mut self, at: usize, snapshot: &Snapshot) -> PathId {
        let path = self.frames.backtrace(at, snapshot);
        let (paths, by_counters) = (&mut self.calls.paths, &mut self.by_counters);
        let known = self.known.entry(Arc::as_ptr(&path));
        let (id, _) = known.or_insert_with(|| {
            let counters = path.physical().map(|frame| frame.place.avma).collect();
            let alike = by_counters.entry(counters).or_default();
            let equal = alike.iter().find(|id| paths[id.0] == path);
            let id = equal.copied().unwrap_or_else(|| {
                paths.push(path.clone());
                alike.push(PathId(paths.len() - 1));
                PathId(paths.len() - 1)
            });
            (id, path)
        });
        *id
    }

    /// Ends the calls of a thread that has ended.
    fn exited(&mut self, tid: u64) {
        let here = self.under_way.remove(&tid).into_iter();
        for (call, left) in here.flat_map(UnderWay::into_calls) {
            if let Left::Likely(passed_ns) = left {
                // Since then, the thread has not used what a system call waits for.
                let is_system_call = self.calls.functions[call.function.0].futex;
                self.lost(&call, passed_ns.filter(|_| is_system_call));
                continue;
            }
            self.calls.lost += 1;
            let (call, sure) = (&call, left == Left::No);
            (self.visit)(&self.calls, Moment::CutShort { call, sure });
        }
    }

    /// Hits of a probe were not recorded, at unknown times: calls under way may have ended, and
    /// others begun.
    fn missed(&mut self, probe: u32) {
        let of = match self.roles.get(&probe) {
            Some(Role::Begins(function)) => vec![*function],
            Some(Role::Ends(of)) => of.clone(),
            None if probe == unspool_capture::SNAPSHOT_PROBE => {
                (0..self.calls.functions.len()).map(FunctionId).collect()
            }
            None => return,
        };
        let missed = |function| match of.contains(&function) {
            true => Missed::BOTH,
            false => Missed::default(),
        };
        for here in self.under_way.values_mut() {
            here.miss(&missed);
        }
        for ends in [false, true] {
            let (functions, gap) = (&of[..], GapKind::Dropped);
            (self.visit)(
                &self.calls,
                Moment::Missing {
                    functions,
                    ends,
                    gap,
                },
            );
        }
    }

    /// Hits of a probe are missing from here on, or no longer.
    fn gap(&mut self, gap: &Gap) {
        let (of, ends) = match self.roles.get(&gap.probe) {
            Some(Role::Begins(function)) => (vec![*function], false),
            Some(Role::Ends(of)) => (of.clone(), true),
            None => return,
        };
        match gap.kind() {
            GapKind::Resumed => {
                self.paused.remove(&gap.probe);
            }
            GapKind::Paused => {
                self.paused.insert(gap.probe);
            }
            GapKind::Dropped | GapKind::Unspecified => {}
        }
        let together = self.together(&of);
        let missed = |function| Missed {
            begins: !ends && together.contains(&function),
            ends: ends && of.contains(&function),
        };
        for here in self.under_way.values_mut() {
            here.miss(&missed);
        }
        let moment = Moment::Missing {
            functions: &of,
            ends,
            gap: gap.kind(),
        };
        (self.visit)(&self.calls, moment);
    }

    /// The missing events of a function's calls at the moment.
    fn missing(&self, function: FunctionId) -> Missed {
        let mut missed = Missed::default();
        for probe in &self.paused {
            match self.roles.get(probe) {
                Some(Role::Begins(other)) => {
                    missed.begins |= self.together(&[*other]).contains(&function);
                }
                Some(Role::Ends(of)) => missed.ends |= of.contains(&function),
                None => {}
            }
        }
        missed
    }

    /// The functions that end where these do.
    fn together(&self, functions: &[FunctionId]) -> Vec<FunctionId> {
        let ends = self.roles.values().filter_map(|role| match role {
            Role::Ends(of) => Some(of),
            Role::Begins(_) => None,
        });
        let shared = ends.filter(|of| of.iter().any(|one| functions.contains(one)));
        let others = shared.flatten().copied();
        functions.iter().copied().chain(others).collect()
    }

    fn lost(&mut self, call: &Call, before_ns: Option<u64>) {
        self.calls.lost += 1;
        (self.visit)(&self.calls, Moment::Lost { call, before_ns });
    }

    fn finish(mut self) -> Calls {
        let mut open: Vec<(Call, Left)> = std::mem::take(&mut self.under_way)
            .into_values()
            .flat_map(UnderWay::into_calls)
            .collect();
        open.sort_by_key(|(call, _)| call.number);
        for (call, left) in open {
            if let Left::Likely(_) = left {
                self.lost(&call, None);
                continue;
            }
            let (call, sure) = (&call, left == Left::No);
            (self.visit)(&self.calls, Moment::Unfinished { call, sure });
        }
        self.calls
    }
}

#[cfg(test)]
mod tests;
