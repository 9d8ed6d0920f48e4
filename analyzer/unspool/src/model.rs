//! The model of a capture: threads, their creations and ends, their waits, and findings.
//!
//! The model is recomputed whenever a capture is opened, and never fails as a whole. Unknown facts
//! are left out, and a [`Note`] says so.
//!
//! `symbolizer` turns snapshots into named frames, `history` turns records into threads, and
//! `identity` compares threads across runs. The model prints nothing; [`crate::views`] does.

mod backtrace;
pub mod call_graph;
pub mod calls;
mod circles;
pub mod critical_path;
mod cxx;
pub mod diff;
pub mod disassembly;
mod finding;
#[cfg(test)]
pub(crate) mod fixture;
mod history;
pub mod hits;
mod identity;
mod inspection;
mod listing;
pub mod live;
mod lock_waits;
mod note;
mod origin;
mod processor_levels;
pub mod profile;
mod recorded_creations;
pub mod schedule;
mod symbolizer;
pub mod sync;
mod tasks;
mod thread;
mod timeline;
mod together;
mod wait_graph;
mod window;

pub use backtrace::base_name;
pub use backtrace::{Backtrace, NamedFrame, Place};
pub use call_graph::CallGraph;
pub use critical_path::CriticalPath;
use critical_path::Functions;
pub use finding::{
    Act, Awaited, Doubt, Evidence, Facts, Finding, FindingKind, Hang, HangReason, HangWait,
    KernelWait, ObjectName, OrderRisk, OrderStep, Shows,
};
pub use hits::Hits;
pub use identity::Key;
use inspection::AtEnd;
pub use inspection::{
    CallSubject, FileReference, Holder, Inspection, NamedCall, OtherProcess, ProcessWait, State,
    StopCause, Wait, WaitTrace, Word,
};
pub use listing::{Happening, Listing};
pub use lock_waits::LockWaits;
pub use note::{Note, Severity, Topic};
pub(crate) use origin::start_code;
pub use processor_levels::ProcessorLevel;
pub use profile::{OffCpu, Profile};
use schedule::AllThreads;
pub use schedule::{Process, ProcessIndex, Processes, Schedule};
pub use symbolizer::{Module, Symbolizer};
pub use thread::{Creation, Ending, Thread, ThreadIndex};
pub use timeline::{Cell, Timeline};
pub use window::Window;

use unspool_capture::{Capture, Source};

use crate::primitives;

/// A host that took less of a recording's length is not noted.
const NOTED_STEAL_DIVISOR: u64 = 20;
/// The kernel counts in steps of 10 ms. Less than this many nanoseconds is not noted.
const MIN_STEAL_NS: u64 = 20_000_000;

/// A recorded program: its threads, and notes on missing data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// The program and its machine.
    pub target: Target,
    /// Circumstances and length of the recording.
    pub recording: Recording,
    /// The images that were mapped, in the order they were seen.
    pub modules: Vec<Module>,
    /// All threads, in the order they were seen. [`ThreadIndex`] counts here.
    pub threads: Vec<Thread>,
    /// Running, runnable and blocked times of each thread; empty if not recorded.
    pub schedule: Schedule,
    /// The processes that the program started.
    pub processes: Processes,
    /// CPU samples of the threads; empty if none were taken.
    pub profile: Profile,
    /// Synchronization objects, and what threads and functions did with their time.
    pub sync: sync::Sync,
    /// The chain of intervals that determines the wall time, if it is known.
    pub critical_path: Option<CriticalPath>,
    /// Which functions called which, if asked for.
    pub call_graph: Option<CallGraph>,
    /// Registers and stacks as they were recorded, if asked for.
    pub hits: Option<Hits>,
    /// The threads' states in an inspection; empty for a recording.
    pub inspection: Inspection,
    /// The threads' states at the end of a recording, if its program then ran.
    pub(crate) at_end: Option<AtEnd>,
    /// The models of the other processes that were attached to and recorded together with this one.
    /// Their threads are also among those of [`processes`](Self::processes).
    pub recorded: Vec<Model>,
    /// Waits for locks whose calls were not recorded, the longest sum first.
    pub lock_waits: Vec<LockWaits>,
    /// The findings, the gravest first.
    pub findings: Vec<Finding>,
    /// Notes on missing, doubtful or noteworthy data, most important first.
    pub notes: Vec<Note>,
}

/// The amount of detail that a model keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The part of the recording that is divided into time slices, nanoseconds since the recording
    /// began; `None` for all of it.
    pub span: Option<(u64, u64)>,
    /// True to keep each single wait and hold, for drawings: [`sync::Journal`].
    pub journal: bool,
    /// True to compute the [`CallGraph`].
    pub call_graph: bool,
    /// True to keep the recorded registers and stacks: [`Hits`].
    pub hits: bool,
}

impl Detail {
    /// All of the recording, with each single wait and hold.
    pub const JOURNAL: Detail = Detail {
        span: None,
        journal: true,
        call_graph: false,
        hits: false,
    };
}

/// The program and its machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Architecture, e.g. `x86-64`; empty if not known.
    pub arch: String,
    /// Path of the executable on the target; empty if not known.
    pub executable: String,
    /// The user's name for the program: the name by which it was started, otherwise its file's
    /// name. Empty if not known.
    pub name: String,
    /// Process id; 0 if not known.
    pub pid: u64,
    /// The process that had started it, if known.
    pub parent_pid: Option<u64>,
    /// Number of processors that the program could use, if known.
    pub processors: Option<usize>,
}

/// Circumstances and length of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The words that name the recording's file in a command, with a space before them. Empty for
    /// the default file.
    pub file: String,
    /// The recorder's name and version.
    pub product: String,
    /// The recorder's command line.
    pub command: Vec<String>,
    /// The way in which the recorder got access to the program.
    pub source: Option<Source>,
    /// Wall clock at the beginning, nanoseconds since 1970 UTC; 0 if not known.
    pub start_unix_ns: u64,
    /// Time of the last record, nanoseconds since the beginning.
    pub duration_ns: u64,
    /// How the program ended, if it did while it was recorded.
    pub program_end: Option<ProgramEnd>,
    /// True if the recording did not end properly, so that later threads and events are missing.
    pub cut: bool,
    /// Number of events that happened and were not recorded.
    pub dropped: u64,
    /// Number of beginnings and ends of calls among them.
    pub calls_dropped: u64,
    /// Number of recorded beginnings and ends of calls.
    pub calls_recorded: u64,
    /// Number of recorded beginnings and ends of calls that take or release a lock.
    pub lock_calls_recorded: u64,
    /// Number of beginnings and ends of such calls that were not recorded, beside those in pauses.
    pub lock_calls_dropped: u64,
    /// The programs that the process executed, each with the time and the position of its record.
    pub(crate) programs: Vec<(u64, usize)>,
    /// Probes that were paused to reduce the overhead.
    pub paused: Vec<Paused>,
    /// True if joins or detaches are missing.
    pub joins_are_missing: bool,
    /// True if the thread of a join or detach is not known.
    pub joins_are_unclear: bool,
    /// True if the times of the gaps are known.
    pub gaps_are_placed: bool,
    /// True if threads killed with the program can be distinguished from threads that ended before.
    pub kills_are_told: bool,
    /// True if threads that the program's exit ended can be distinguished from threads that ended
    /// before.
    pub exits_are_told: bool,
    /// True if functions were to be recorded by name (`record --trace`).
    pub traces_functions: bool,
    /// True if calls of functions built with `-finstrument-functions` were recorded (`record
    /// --calls`).
    pub has_hook_calls: bool,
}

impl Recording {
    /// The programs that replaced another one, in order.
    pub(crate) fn execs(&self) -> &[(u64, usize)] {
        self.programs.get(1..).unwrap_or_default()
    }

    /// True if all joins and detaches were recorded, and their threads are known.
    pub(crate) fn knows_joins(&self) -> bool {
        !self.joins_are_missing && !self.joins_are_unclear
    }

    /// Time before the program's end within which its threads end with it, nanoseconds.
    ///
    /// The kernel ends all threads at once, but reports each when it last gets a processor. On a
    /// busy machine this takes some time slices. A killed program takes longer: it is stopped for
    /// each thread.
    pub(crate) fn slack_ns(&self) -> u64 {
        match self.program_end {
            Some(ProgramEnd::Signal(_)) => 1_000_000_000,
            _ => 100_000_000,
        }
    }

    /// True if it is known which threads ended with the program, and which ended before.
    pub(crate) fn knows_ends(&self) -> bool {
        match self.program_end {
            Some(ProgramEnd::Signal(_)) => self.kills_are_told,
            Some(ProgramEnd::Exited(_)) => self.exits_are_told,
            None => false,
        }
    }

    /// True if a thread existed when the program or the recording ended. A thread that ended within
    /// `slack_ns` of the program's end may have ended with it.
    pub(crate) fn was_there_at_the_end(&self, thread: &Thread, slack_ns: u64) -> bool {
        match thread.ended_ns {
            None => true,
            Some(_) if self.knows_ends() => thread.creation == Creation::Main,
            Some(ended) => ended.saturating_add(slack_ns) >= self.duration_ns,
        }
    }

    /// True if no missing event could change the conclusions about synchronization.
    ///
    /// Paused probes of the futex system call do not matter. Only functions define the holders, and
    /// a call whose end may be missing is never certain to go on ([`calls`]).
    pub(crate) fn is_lossless(&self) -> bool {
        let sync = |function: &str| primitives::find(function).is_some();
        self.dropped == 0 && !self.paused.iter().any(|paused| sync(&paused.function))
    }

    /// True if beginnings or ends of calls are missing, including those of the futex system call.
    pub(crate) fn misses_calls(&self) -> bool {
        self.calls_dropped > 0 || self.paused.iter().any(|paused| paused.of_calls)
    }

    /// Number of beginnings and ends of calls that are known to be missing.
    pub fn calls_missed(&self) -> u64 {
        let paused = self.paused.iter().filter(|paused| paused.of_calls);
        missed(paused).saturating_add(self.calls_dropped)
    }

    /// Number of beginnings and ends of calls that take or release a lock and are known to be
    /// missing.
    pub fn lock_calls_missed(&self) -> u64 {
        missed(self.paused_locks()).saturating_add(self.lock_calls_dropped)
    }

    /// True if calls that take or release a lock are missing, or may be.
    pub fn misses_lock_calls(&self) -> bool {
        self.lock_calls_dropped > 0 || self.paused_locks().next().is_some()
    }

    /// True if most calls that take or release a lock are missing, so that no conclusion from
    /// absent lock orders is possible.
    pub fn too_few_lock_calls(&self) -> bool {
        self.lock_calls_missed() > self.lock_calls_recorded
    }

    fn paused_locks(&self) -> impl Iterator<Item = &Paused> {
        let paused = self.paused.iter();
        paused.filter(|paused| paused.of_calls && primitives::is_of_lock(&paused.function))
    }

    /// True if most calls are missing, so that conclusions from absent events are impossible.
    pub fn too_little_seen(&self) -> bool {
        self.calls_missed() > self.calls_recorded
    }

    /// True if more than a tenth of the calls are missing, so that the recording is a sample.
    pub(crate) fn is_sample(&self) -> bool {
        self.calls_missed() > self.calls_recorded / 10
    }

    /// True if it is an inspection, which observes one moment.
    pub fn is_inspection(&self) -> bool {
        self.source == Some(Source::Inspected)
    }

    /// True if nothing is missing from the beginning to the end.
    pub fn is_complete(&self) -> bool {
        let lost = |paused: &Paused| paused.missed > 0 || !paused.exact;
        !self.cut && self.dropped == 0 && !self.paused.iter().any(lost)
    }

    /// True if observations between gaps are certain.
    fn is_certain_between_gaps(&self) -> bool {
        self.is_lossless() || self.gaps_are_placed
    }
}

/// A probe that was paused for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    /// The function that it is planted in.
    pub function: String,
    /// Number of recorded hits.
    pub recorded: u64,
    /// True if the missing events are beginnings or ends of calls.
    pub of_calls: bool,
    /// Number of pauses.
    pub pauses: u64,
    /// Total length of the pauses, nanoseconds.
    pub paused_ns: u64,
    /// Number of missed hits; approximate unless `exact`.
    pub missed: u64,
    /// True if the number is exact, from threads whose creation was not recorded.
    pub exact: bool,
}

/// Number of events that some paused probes missed.
fn missed<'a>(paused: impl Iterator<Item = &'a Paused>) -> u64 {
    paused
        .map(|paused| paused.missed)
        .fold(0, u64::saturating_add)
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// It exited with this code.
    Exited(i32),
    /// This Linux signal killed it.
    Signal(u32),
}

impl Model {
    /// Computes the model of a capture.
    pub fn build(capture: &Capture, symbolizer: &mut Symbolizer) -> Model {
        Model::build_for(capture, symbolizer, Detail::default())
    }

    /// Computes the model of a capture with more or less detail.
    pub fn build_for(capture: &Capture, symbolizer: &mut Symbolizer, detail: Detail) -> Model {
        symbolizer.open(capture);
        let mut model = Model::interpret(capture, symbolizer, detail);
        model.modules = symbolizer.modules().to_vec();
        let pid = model.target.pid;
        if capture.header.source() == Source::Inspected {
            model.inspect_closer(capture, symbolizer);
            let states = &mut model.inspection.states;
            inspection::take_recorded(&model.threads, states, &capture.records);
            model.notes.extend(model.inspection.unknown());
            model.notes.extend(model.inspection.memory_users_note(pid));
        } else {
            let at_end = inspection::at_end(capture, &model, symbolizer);
            let inspection = at_end.as_ref().map(|at_end| &at_end.inspection);
            model.add_hangs(inspection);
            let note = inspection.and_then(|inspection| inspection.memory_users_note(pid));
            model.notes.extend(note);
            model.at_end = at_end;
        }
        for module in &mut model.modules {
            module.downloaded = symbolizer.is_downloaded(&module.path);
        }
        model.notes.extend(symbolizer.take_notes());
        note::arrange(&mut model.notes);
        symbolizer.keep();
        model
    }

    /// Builds the model without modules, with any source of named frames.
    fn interpret(capture: &Capture, frames: &mut dyn backtrace::Frames, detail: Detail) -> Model {
        let mut model = history::read(capture, frames);
        identity::assign(&mut model);
        model.schedule = Schedule::of(capture, &mut model, frames);
        model.processes = Processes::of(capture, &model, frames);
        identity::assign_in_processes(&mut model);
        model.notes.extend(model.processes.unseen_creations());
        model.profile = Profile::of(&capture.records, &model, frames);
        let processes = model.processes.all.len();
        model.notes.extend(model.profile.notes(processes));
        let (sync, findings, notes) = sync::analyse(capture, &model, frames, detail);
        (model.sync, model.findings) = (sync, findings);
        model.notes.extend(notes);
        model.find_lock_waits();
        model.find_off_cpu(capture, frames);
        model.find_critical_path(capture, detail);
        model.hits = detail.hits.then(|| Hits::of(capture));
        if detail.call_graph {
            model.call_graph = Some(CallGraph::of(capture, &model, frames));
        }
        if let Some(stolen_ns) = model.schedule.stolen_ns
            && stolen_ns >= (model.recording.duration_ns / NOTED_STEAL_DIVISOR).max(MIN_STEAL_NS)
        {
            let text = format!(
                "The host of this virtual machine took {} of processor time during the recording. \
                 Threads that it interrupted seem to have run longer.",
                sync::length(stolen_ns)
            );
            model.notes.push(Note::info(text).about(Topic::Times));
        }
        if model.schedule.lost > 0 {
            let text = format!(
                "{} records of the kernel's schedule were lost, so Unspool does not know which \
                 threads ran at those times.",
                model.schedule.lost
            );
            model.notes.push(Note::warning(text).about(Topic::Times));
        }
        note::arrange(&mut model.notes);
        model.add_hangs(None);
        model
    }

    /// Finds where threads were blocked.
    fn find_off_cpu(&mut self, capture: &Capture, frames: &mut dyn backtrace::Frames) {
        self.profile.off_cpu = match OffCpu::of(&capture.records, self, frames) {
            Ok((off_cpu, stacks)) => {
                self.profile.stacks.extend(stacks);
                Ok(off_cpu)
            }
            Err(reason) => Err(reason),
        };
        let has_wakers = self.schedule.has_wakers;
        self.notes.extend(self.profile.off_cpu_notes(has_wakers));
    }

    /// Computes the critical path, and drops what only it needs.
    fn find_critical_path(&mut self, capture: &Capture, detail: Detail) {
        let marks = std::mem::take(&mut self.sync.call_marks);
        if capture.header.source() != Source::Inspected {
            let functions = Functions::of(&self.threads, marks, &self.sync.paths);
            let all = self.all_threads();
            self.critical_path = CriticalPath::of(&self.path_facts(&all), functions);
            self.findings.extend(critical_path::finding(self));
            finding::sort(&mut self.findings);
        }
        if !detail.journal {
            self.sync.journal = None;
        }
    }

    /// What the critical path is computed from. The waits are there only with a journal.
    fn path_facts<'a>(&'a self, all: &'a AllThreads<'_>) -> critical_path::Facts<'a> {
        let journal = self.sync.journal.as_ref();
        critical_path::Facts {
            threads: &all.threads,
            schedule: &all.schedule,
            waits: journal.map_or(&[], |journal| &journal.waits),
            uses: &self.sync.uses,
            objects: &self.sync.objects,
            identity_of: &all.identity_of,
            lock_of: &all.lock_of,
            own_identities: self.sync.identities.len(),
            duration_ns: self.recording.duration_ns,
            processors: self.target.processors,
            launched: self.recording.source == Some(Source::Launched),
        }
    }

    /// Adds the wait graph's findings, from the recording and from an inspection if there was one.
    fn add_hangs(&mut self, inspection: Option<&Inspection>) {
        wait_graph::add_findings(self, inspection);
    }

    /// Recomputes the inspection from all memory read so far. Call it again after further reads.
    pub fn inspect_closer(&mut self, capture: &Capture, symbolizer: &mut Symbolizer) {
        self.inspection =
            inspection::inspect(&inspection::Scene::of(capture, self), self, symbolizer);
        let inspection = std::mem::take(&mut self.inspection);
        self.add_hangs(Some(&inspection));
        self.inspection = inspection;
    }

    /// A thread's name in a sentence, as `thread 7 (writer)`: its own name, otherwise its function.
    pub fn thread_name(&self, index: ThreadIndex) -> String {
        let Some(thread) = self.any_thread(index) else {
            return "a thread".to_owned();
        };
        let number = thread.tid.map_or("?".to_owned(), |tid| tid.to_string());
        let process = self.process(index).map(|(_, process)| process);
        let program = process.map(|process| (process.pid, self.processes.program_name(process)));
        // If several processes are named, the first is not special.
        let several = !self.inspection.named.is_empty();
        let program = program.or(several.then_some((self.target.pid, &*self.target.name)));
        let whose = program.map_or(String::new(), |(pid, program)| {
            format!(" of process {pid} ({program})")
        });
        // The schedule does not say which thread of another process is the main one.
        if thread.creation == Creation::Main || thread.tid == Some(self.pid_of(index)) {
            return format!("the main thread {number}{whose}");
        }
        let function = thread
            .function
            .as_ref()
            .and_then(|place| place.function.as_deref());
        match self.own_name(thread).or(function) {
            Some(name) => format!("thread {number} ({name}){whose}"),
            None => format!("thread {number}{whose}"),
        }
    }

    /// A thread's name, if it is not just the program's.
    fn own_name<'a>(&self, thread: &'a Thread) -> Option<&'a str> {
        let main = self.main().and_then(|main| self.thread(main));
        Some(thread.name.as_str())
            .filter(|name| !name.is_empty() && main.is_none_or(|main| main.name != *name))
    }

    /// The own name of a thread whose function means nothing, because all threads of the language
    /// begin in it.
    pub(crate) fn name_instead<'a>(&self, thread: &'a Thread) -> Option<&'a str> {
        let function = thread.function.as_ref().and_then(|f| f.function.as_deref());
        let anonymous = function.is_some_and(|function| function.starts_with("std::"));
        self.own_name(thread).filter(|_| anonymous)
    }

    /// True if all threads of an identity have the same name.
    pub(crate) fn has_one_name(&self, identity: usize) -> bool {
        let all = self.threads.iter().enumerate();
        let all = all.filter(|(at, _)| self.identity_of(ThreadIndex(*at)) == identity);
        let mut names = all.map(|(_, thread)| &thread.name);
        let first = names.next();
        names.all(|name| Some(name) == first)
    }

    /// The main thread, if it was recorded.
    pub fn main(&self) -> Option<ThreadIndex> {
        self.threads
            .iter()
            .position(|t| t.creation == Creation::Main)
            .map(ThreadIndex)
    }

    /// A thread's first and last time, as far as the recording goes.
    fn life(&self, thread: &Thread) -> Option<(u64, u64)> {
        let from = thread.started_ns.or(thread.created_ns)?;
        let to = thread.ended_ns.unwrap_or(self.recording.duration_ns);
        Some((from, to.max(from)))
    }

    /// A thread by its index; indices come from this same model.
    pub fn thread(&self, index: ThreadIndex) -> Option<&Thread> {
        self.threads.get(index.0)
    }

    /// The module of a path, and of an edition ([`Place::edition`]).
    pub fn module(&self, path: &str, edition: Option<&std::sync::Arc<str>>) -> Option<&Module> {
        let mut modules = self.modules.iter();
        modules.find(|module| module.path == path && module.edition.as_ref() == edition)
    }
}
