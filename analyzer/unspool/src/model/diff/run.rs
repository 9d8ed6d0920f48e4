//! The facts of one recording that a comparison needs. A model can be dropped after that.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::join::{Identified, Identity, label};
use super::lock_waits;
use crate::model::backtrace::{Place, base_name};
use crate::model::critical_path::{Item, PathState, Work};
use crate::model::schedule::{Processes, StateTimes};
use crate::model::sync::{Histogram, ObjectIndex, caller};
use crate::model::{Backtrace, Creation, Model, Thread};
use crate::primitives::Kind;
use unspool_capture::Source;

/// One recording in a comparison.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The user's name for the program.
    pub program: String,
    /// Length of the program's run, nanoseconds.
    pub wall_ns: u64,
    /// The part of it in which the recorder had stopped the program, nanoseconds.
    pub recorder_ns: u64,
    /// The part of it in which the program waited for processors that other processes had,
    /// nanoseconds.
    pub others_ns: u64,
    /// Processor time that the host of a virtual machine took, nanoseconds.
    pub stolen_ns: u64,
    /// True if calls of synchronization functions were recorded.
    pub sync_recorded: bool,
    /// True if the program started processes, and none of them was recorded.
    pub missed_processes: bool,
    /// What prevents a judgement.
    pub doubts: Vec<Doubt>,
    pub(super) threads: Vec<ThreadFacts>,
    pub(super) objects: Vec<ObjectFacts>,
    pub(super) functions: Vec<FunctionFacts>,
}

/// What prevents a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// The recording lacks the program's beginning or end.
    IncompleteRun,
    /// Neither the schedule nor waits were recorded.
    NoPath,
    /// Much of the critical path is not known.
    UnknownPath,
    /// Most calls were missed.
    TooLittleSeen,
    /// Only one side has recorded calls, so the recorder's costs differ.
    UnlikeRecordings,
    /// Only one side has the processes that the program started.
    UnlikeProcesses,
    /// The runs differ much, but other processes or the machine's host may be the reason.
    Disturbed,
}

impl Doubt {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Doubt::IncompleteRun => "incomplete_run",
            Doubt::NoPath => "no_path",
            Doubt::UnknownPath => "unknown_path",
            Doubt::TooLittleSeen => "too_little_seen",
            Doubt::UnlikeRecordings => "unlike_recordings",
            Doubt::UnlikeProcesses => "unlike_processes",
            Doubt::Disturbed => "disturbed",
        }
    }
}

/// The threads of one identity in one recording, or the processes that ran one program.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadFacts {
    identity: Identity,
    pub(super) is_main: bool,
    /// The program of processes that the recorded program started.
    pub(super) program: Option<String>,
    pub(super) function: Option<Place>,
    /// The first thread's own name; empty if it is the program's.
    pub(super) name: String,
    /// The stack that created the first thread.
    pub(super) creation: Option<Backtrace>,
    pub(super) number: u64,
    pub(super) running_ns: u64,
    pub(super) runnable_ns: u64,
    pub(super) waiting_ns: u64,
    /// Its part of the critical path.
    pub(super) path_ns: u64,
    /// The processor time that it took from the path.
    pub(super) taken_ns: u64,
    /// Time that its threads ran or waited for devices, on the path or not.
    pub(super) work_ns: u64,
}

/// The objects of one identity in one recording.
#[derive(Clone, Debug, Default)]
pub(super) struct ObjectFacts {
    pub(super) identity: Identity,
    pub(super) kind: Option<Kind>,
    /// The program of the processes that have it; none for the recorded program.
    pub(super) program: Option<String>,
    pub(super) name: Option<Arc<str>>,
    pub(super) number: u64,
    pub(super) waits: Histogram,
    pub(super) holds: Histogram,
    pub(super) taken: u64,
    /// By how much the run would be shorter without contention, of the run without delays by other
    /// processes.
    pub(super) saved_ns: u64,
    /// The part of the critical path for which others waited at it.
    pub(super) path_ns: u64,
}

/// A function in one recording.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionFacts {
    identity: Identity,
    pub(super) place: Place,
    pub(super) path_ns: u64,
    pub(super) work_ns: u64,
}

/// A thread function or its address, and the threads' name.
pub(super) type Role<'a> = (Option<&'a str>, Option<u64>, &'a str);

impl ThreadFacts {
    fn add(&mut self, times: &StateTimes) {
        self.running_ns += times.running_ns;
        self.runnable_ns += times.runnable_ns;
        self.waiting_ns += times.blocked_ns;
    }

    /// What threads of different identities have in common if they may do the same work; none for
    /// the main thread, processes, and threads of unknown function.
    pub(super) fn role(&self) -> Option<Role<'_>> {
        let place = self.function.as_ref()?;
        let function = place.function.as_deref();
        let address = place.svma.filter(|_| function.is_none());
        let is_known = function.is_some() || address.is_some();
        // A library's thread function may call any function. Threads of a pool have numbers.
        let name = self.name.trim_end_matches(|end: char| !end.is_alphabetic());
        let is_one = is_known && !self.is_main && self.program.is_none();
        is_one.then_some((function, address, name))
    }

    /// Adds threads of another identity.
    pub(super) fn merge(&mut self, other: &ThreadFacts) {
        self.number += other.number;
        self.running_ns += other.running_ns;
        self.runnable_ns += other.runnable_ns;
        self.waiting_ns += other.waiting_ns;
        self.path_ns += other.path_ns;
        self.taken_ns += other.taken_ns;
        self.work_ns += other.work_ns;
    }
}

impl Identified for ThreadFacts {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Identified for ObjectFacts {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Identified for FunctionFacts {
    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Run {
    /// Takes the facts of a model, which needs its journal.
    pub fn of(model: &Model) -> Run {
        let all = model.all_threads();
        let work = model
            .critical_path
            .as_ref()
            .and_then(|path| Work::of(&model.path_facts(&all), path));
        let work = work.unwrap_or_default();
        let mut run = Run {
            program: model.target.name.clone(),
            wall_ns: wall_ns(model),
            stolen_ns: model.schedule.stolen_ns.unwrap_or(0),
            sync_recorded: model.sync.recorded,
            missed_processes: !model.processes.all.is_empty() && model.processes.threads.is_empty(),
            doubts: doubts(model),
            ..Run::default()
        };
        if let Some(path) = &model.critical_path {
            run.recorder_ns = path.time_in(PathState::Recorder);
        }
        let names = Names::of(model);
        run.threads = threads(model, &names, &work);
        run.objects = objects(model, &names);
        run.objects.extend(lock_waits::objects(model, &names));
        run.functions = functions(model, &names, &work);
        run.others_ns = work.runnable.others_ns;
        for (index, facts) in run.threads.iter_mut().enumerate() {
            facts.taken_ns = work.runnable.taken_ns.get(&index).copied().unwrap_or(0);
        }
        run.scale_savings(model);
        run
    }

    /// Makes what locks cost in the replay a part of the run without foreign times.
    fn scale_savings(&mut self, model: &Model) {
        let path = model.critical_path.as_ref();
        let replayed_ns = path.map_or(0, |path| path.replayed_ns);
        let part = self.net_ns() as f64 / replayed_ns.max(1) as f64;
        for facts in &mut self.objects {
            facts.saved_ns = (facts.saved_ns as f64 * part.min(1.0)).round() as u64;
        }
    }

    /// Length of the run without the times of the recorder and of other processes.
    pub fn net_ns(&self) -> u64 {
        let foreign = self.recorder_ns.saturating_add(self.others_ns);
        self.wall_ns.saturating_sub(foreign)
    }
}

/// The length of the critical path, or else of the main thread's life.
fn wall_ns(model: &Model) -> u64 {
    let path = model.critical_path.as_ref().map(|path| path.length_ns());
    let main = || {
        let main = model.thread(model.main()?)?;
        let (from, to) = model.life(main)?;
        Some(to - from)
    };
    let path = path.filter(|length| *length > 0);
    path.or_else(main).unwrap_or(model.recording.duration_ns)
}

fn doubts(model: &Model) -> Vec<Doubt> {
    let recording = &model.recording;
    let mut doubts = Vec::new();
    let begins = recording.source != Some(Source::Attached) && model.main().is_some();
    if !begins || recording.program_end.is_none() || recording.cut {
        doubts.push(Doubt::IncompleteRun);
    }
    match &model.critical_path {
        None => doubts.push(Doubt::NoPath),
        Some(path) if path.has_much_unknown() => doubts.push(Doubt::UnknownPath),
        Some(_) => {}
    }
    if recording.too_little_seen() {
        doubts.push(Doubt::TooLittleSeen);
    }
    doubts
}

/// What the names of a recording are made from.
pub(super) struct Names<'a> {
    pub(super) executable: &'a str,
    build: Option<Arc<str>>,
}

impl Names<'_> {
    fn of(model: &Model) -> Names<'_> {
        let path = &model.target.executable;
        let mut modules = model.modules.iter();
        let module = modules.find(|module| module.path == *path);
        let build = module.and_then(|module| module.build_id.as_deref());
        Names {
            executable: base_name(path),
            build: build.map(Arc::from),
        }
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            build: self.build.clone(),
            is_named: true,
            ..Identity::default()
        }
    }

    /// Adds a place to an identity.
    fn add(&self, identity: &mut Identity, place: Option<&Place>) {
        identity.is_named &= label(place, self.executable, &mut identity.full);
        identity.full.push('<');
        let module = place.and_then(Place::module_name).unwrap_or("?");
        if module != self.executable {
            identity.bare.push_str(module);
        }
        identity.bare.push('<');
        identity.order.extend(place.and_then(|place| place.svma));
    }

    fn add_stack(&self, identity: &mut Identity, stack: Option<&Backtrace>) {
        for frame in stack.into_iter().flat_map(|stack| stack.physical()) {
            self.add(identity, Some(&frame.place));
        }
    }
}

fn threads(model: &Model, names: &Names<'_>, work: &Work) -> Vec<ThreadFacts> {
    let identities = model.sync.identities.iter();
    let mut all: Vec<ThreadFacts> = identities
        .map(|(key, first, _)| {
            let mut facts = ThreadFacts::default();
            let Some(thread) = model.thread(*first) else {
                return facts;
            };
            facts.is_main = thread.creation == Creation::Main;
            facts.function = thread.function.clone();
            let own_name = model.own_name(thread).unwrap_or_default();
            facts.name = own_name.to_owned();
            facts.creation = thread.creation_stack().cloned();
            facts.identity = thread_identity(model, names, thread);
            facts.identity.key = Some(*key);
            facts
        })
        .collect();
    for (index, identity) in model.sync.identity_of.iter().enumerate() {
        let (Some(facts), Some(thread)) = (all.get_mut(*identity), model.threads.get(index)) else {
            continue;
        };
        facts.number += 1;
        let alive = model.life(thread).map_or(0, |(from, to)| to - from);
        let mut times = model.schedule.times(crate::model::ThreadIndex(index));
        if !model.schedule.is_known()
            && let Some(recorded) = model.sync.threads.get(index)
        {
            times.running_ns = recorded.running_ns();
            times.blocked_ns = alive.saturating_sub(recorded.running_ns());
        }
        facts.add(&times);
    }
    all.extend(programs(&model.processes));
    let groups = model.critical_path.iter().flat_map(|path| &path.groups);
    for group in groups {
        if is_own(group.state)
            && let Some(facts) = all.get_mut(group.identity)
        {
            facts.path_ns += group.total_ns;
        }
    }
    for ((identity, _), ns) in &work.own_ns {
        if let Some(facts) = all.get_mut(*identity) {
            facts.work_ns += ns;
        }
    }
    for facts in &mut all {
        facts.identity.size = (facts.number, facts.work_ns);
    }
    all
}

/// The processes that the program started, by the program that they ran last.
fn programs(processes: &Processes) -> Vec<ThreadFacts> {
    let names = processes.programs.iter();
    let mut all: Vec<ThreadFacts> = names
        .map(|(name, number)| ThreadFacts {
            identity: Identity {
                full: format!("process {name}"),
                bare: format!("process {name}"),
                is_named: true,
                ..Identity::default()
            },
            program: Some(name.clone()),
            number: *number as u64,
            ..ThreadFacts::default()
        })
        .collect();
    for process in &processes.all {
        let facts = process.program.and_then(|program| all.get_mut(program));
        if let Some(facts) = facts {
            facts.add(&processes.times(process));
        }
    }
    all
}

/// Whether a thread's own activity has that part of the path.
pub(super) fn is_own(state: PathState) -> bool {
    matches!(
        state,
        PathState::Running | PathState::Blocked | PathState::Outside
    )
}

/// A thread's function, its creation stack and its creators, up to the main thread.
fn thread_identity(model: &Model, names: &Names<'_>, thread: &Thread) -> Identity {
    /// A chain of creators that is longer is cut.
    const MAX_CREATORS: usize = 64;
    let mut identity = names.identity();
    let own_name = model.own_name(thread).unwrap_or_default();
    own_name.clone_into(&mut identity.own_name);
    let mut at = Some(thread);
    for _ in 0..MAX_CREATORS {
        let Some(thread) = at else { break };
        if thread.creation == Creation::Main {
            identity.full.push_str("main");
            identity.bare.push_str("main");
            break;
        }
        names.add(&mut identity, thread.function.as_ref());
        names.add_stack(&mut identity, thread.creation_stack());
        identity.full.push('|');
        identity.bare.push('|');
        at = thread
            .creator()
            .and_then(|creator| model.threads.get(creator.0));
    }
    let mut short = String::new();
    let named = label(thread.function.as_ref(), names.executable, &mut short);
    let is_main = thread.creation == Creation::Main;
    identity.short = (named && !is_main).then_some(short);
    identity
}

fn objects(model: &Model, names: &Names<'_>) -> Vec<ObjectFacts> {
    let sync = &model.sync;
    let mut all: Vec<ObjectFacts> = Vec::new();
    let mut known = BTreeMap::new();
    let mut places = Vec::with_capacity(sync.objects.len());
    for object in &sync.objects {
        let at = *known.entry(object.key).or_insert(all.len());
        places.push(at);
        if at == all.len() {
            all.push(ObjectFacts {
                identity: object_identity(model, names, object),
                kind: Some(object.kind),
                name: sync.name(object),
                ..ObjectFacts::default()
            });
        }
        let facts = &mut all[at];
        facts.number += 1;
        facts.waits.merge(&object.waits);
        facts.holds.merge(&object.holds);
        facts.taken += object.taken;
    }
    let facts_of = |ObjectIndex(index): ObjectIndex| places.get(index).copied();
    if let Some(path) = &model.critical_path {
        for group in &path.groups {
            if is_own(group.state)
                && let Some(at) = group.object.and_then(facts_of)
            {
                all[at].path_ns += group.total_ns;
            }
        }
        for impact in &path.impacts {
            if let Item::Lock(object) = impact.item
                && let Some(at) = facts_of(object)
            {
                all[at].saved_ns += impact.saved_ns;
            }
        }
    }
    for facts in &mut all {
        facts.identity.size = (facts.number, facts.taken);
    }
    // A join is a property of its thread.
    all.retain(|facts| facts.kind != Some(Kind::Join));
    all
}

fn object_identity(
    model: &Model,
    names: &Names<'_>,
    object: &crate::model::sync::Object,
) -> Identity {
    let sync = &model.sync;
    let mut identity = names.identity();
    identity.key = Some(object.key);
    for text in [&mut identity.full, &mut identity.bare] {
        text.push_str(object.kind.as_str());
    }
    if let Some(symbol) = &object.symbol {
        // The variable's name identifies it, and its address may be any.
        identity.full.push(' ');
        identity.is_named = label(Some(symbol), names.executable, &mut identity.full);
        match &object.part {
            Some(part) => identity.full.push_str(part),
            None => identity.full.push_str(&format!("+{:#x}", symbol.offset)),
        }
        identity.bare.push_str(" variable");
        identity.order.extend(symbol.svma);
        return identity;
    }
    let made = if object.made { " made " } else { " used " };
    identity.full.push_str(made);
    identity.bare.push_str(made);
    let origin = sync.paths.get(object.origin.0);
    names.add_stack(&mut identity, origin.map(|path| &**path));
    let mut users: Vec<String> = Vec::new();
    let mut named = true;
    for used in object.uses.iter().map(|index| sync.used(*index)) {
        let Some(frame) = caller(sync.path(used)) else {
            continue;
        };
        let mut user = String::new();
        named &= label(Some(&frame.place), names.executable, &mut user);
        users.push(user);
    }
    users.sort_unstable();
    users.dedup();
    let short = format!("{}: {}", object.kind.as_str(), users.join(" "));
    identity.short = (named && !users.is_empty()).then_some(short);
    identity
}

fn functions(model: &Model, names: &Names<'_>, work: &Work) -> Vec<FunctionFacts> {
    let Some(path) = &model.critical_path else {
        return Vec::new();
    };
    let places = path.functions.places();
    let mut all: Vec<FunctionFacts> = places
        .map(|place| {
            let mut identity = names.identity();
            label(Some(place), names.executable, &mut identity.full);
            identity.order.extend(place.svma);
            FunctionFacts {
                identity,
                place: place.clone(),
                ..FunctionFacts::default()
            }
        })
        .collect();
    for group in path.groups.iter().filter(|group| is_own(group.state)) {
        if let Some(function) = group.function {
            all[function.0].path_ns += group.total_ns;
        }
    }
    for ((_, function), ns) in &work.own_ns {
        if let Some(function) = function {
            all[function.0].work_ns += ns;
        }
    }
    all
}

#[cfg(test)]
impl Run {
    /// A run of these threads and a lock. Of threads: their function and perhaps another word,
    /// number, and milliseconds on the path and of work. Of the lock: what it costs, nanoseconds.
    pub(super) fn for_test(wall_ns: u64, threads: &[(&str, u64, u64, u64)], saved_ns: u64) -> Run {
        const MS: u64 = 1_000_000;
        let identity = |name: &str| Identity {
            full: name.to_owned(),
            is_named: true,
            ..Identity::default()
        };
        let threads = threads
            .iter()
            .map(|(name, number, path, work)| ThreadFacts {
                identity: identity(name),
                function: Some(Place {
                    function: name.split(' ').next().map(Into::into),
                    ..Place::default()
                }),
                number: *number,
                path_ns: path * MS,
                work_ns: work * MS,
                ..ThreadFacts::default()
            });
        let lock = ObjectFacts {
            identity: identity("mutex"),
            saved_ns,
            ..ObjectFacts::default()
        };
        Run {
            wall_ns,
            threads: threads.collect(),
            objects: vec![lock],
            ..Run::default()
        }
    }
}
