//! Plants probes in the modules of the program: at the functions that create, join and detach
//! threads, at the dynamic linker's notifications, and at calls.
//!
//! Separate from `probes`, which holds the planted probes, and from `calls`, which plans call
//! probes.

use std::ops::Range;

use unspool_capture::{ProbeKind, Severity};
use unspool_rsp::Registers;

use super::calls::Calls;
use super::error::Error;
use super::modules::Modules;
use super::movable;
use super::options::ProbeKinds;
use super::place::{Place, Purpose, THREAD_FUNCTIONS};
use super::probes::Probes;
use super::program::Program;
use super::session::Session;
use super::sink::Sink;
use super::trace_places::{self, TracePlaces};
use super::tracepoints::VARIABLES;
use crate::platform::c_library::has_threads;

/// The C library's functions that execute another file. All others call one of these.
const EXEC_FUNCTIONS: [&str; 3] = ["execve", "execveat", "fexecve"];
/// Size of the local server's buffer for hits, in bytes. On a busy machine the recorder may have to
/// wait long for a processor.
const LOCAL_BUFFER: u32 = 128 << 20;
/// Size of a remote server's buffer for hits, in bytes, if calls are recorded. Hits come in bursts,
/// and the machine may be small. Without calls the server chooses the size.
const REMOTE_BUFFER: u32 = 4 << 20;

/// The probes in the program, and the means to plant more.
pub(super) struct Planter {
    pub(super) probes: Probes,
    pub(super) calls: Calls,
    /// Use tracepoints if the server has them.
    uses_tracepoints: bool,
    /// Tracepoints may be jumps.
    uses_jumps: bool,
    /// True if the program waits when a hit would otherwise be lost.
    lossless: bool,
    pub(super) places: TracePlaces,
}

impl Planter {
    /// Creates a planter that has planted nothing yet.
    pub(super) fn new(
        session: &Session,
        kinds: ProbeKinds,
        calls: Calls,
        lossless: bool,
    ) -> Planter {
        Planter {
            probes: Probes::new(session.observes),
            calls,
            uses_tracepoints: match kinds {
                ProbeKinds::Auto => session.local || session.observes,
                ProbeKinds::Tracepoints | ProbeKinds::Traps => true,
                ProbeKinds::Breakpoints => false,
            },
            uses_jumps: kinds != ProbeKinds::Traps,
            lossless,
            places: TracePlaces::default(),
        }
    }

    /// Makes the server record hits by itself, if it can. Called before the first probe is planted.
    pub(super) fn begin_trace(&mut self, session: &mut Session) -> Result<(), Error> {
        let buffer = match (session.local, self.calls.are_wanted()) {
            (true, _) => Some(LOCAL_BUFFER),
            (false, true) => Some(REMOTE_BUFFER),
            (false, false) => None,
        };
        self.probes.tracing = self.uses_tracepoints
            && session.tells_creators
            && session.client.trace(&VARIABLES, buffer, self.lossless)?;
        let fast = session.client.features().has("FastTracepoints");
        self.probes.fast = self.probes.tracing && self.uses_jumps && fast;
        Ok(())
    }

    /// Plants a probe at the dynamic linker's notification function, if there is one.
    pub(super) fn plant_linker(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
    ) -> Result<(), Error> {
        let Some(place) = program.linker_place(session)? else {
            return Ok(());
        };
        let (client, abi) = (&mut session.client, &session.abi);
        self.probes.plant_own(client, abi, Purpose::Linker, &place);
        self.probes.send_all(client, sink)
    }

    /// Plants probes in the modules among `ids` that define watched functions.
    pub(super) fn plant_in(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
        ids: &[u32],
    ) -> Result<(), Error> {
        let mut naming: Vec<Place> = Vec::new();
        let mut leaving: Vec<Place> = Vec::new();
        let mut wanted: Vec<(ProbeKind, Place)> = Vec::new();
        for mapped in ids.iter().filter_map(|id| program.modules.get(*id)) {
            let (names_before, before) = (naming.len(), wanted.len());
            // A thread names itself after its start, and a short thread ends before names are read
            // again.
            if !session.stops.one_thread && has_threads(&mapped.path) {
                naming.extend(mapped.functions("pthread_setname_np"));
            }
            // A program or library may wrap pthread_create. Only the C library's function creates
            // threads, and the wrapper appears in its backtrace.
            if !program.is_dynamic() || has_threads(&mapped.path) {
                for (kind, names) in THREAD_FUNCTIONS {
                    if session.stops.one_thread && kind != ProbeKind::Create {
                        continue;
                    }
                    let here = names.iter().flat_map(|name| mapped.functions(name));
                    wanted.extend(here.map(|place| (kind, place)));
                }
            }
            if self.probes.fast {
                if !program.is_dynamic() || has_threads(&mapped.path) {
                    let here = EXEC_FUNCTIONS
                        .iter()
                        .flat_map(|name| mapped.functions(name));
                    leaving.extend(here);
                }
                let names = naming[names_before..].iter_mut();
                let others = wanted[before..].iter_mut().map(|(_, place)| place);
                movable::set_movable(
                    program.modules.store(),
                    mapped,
                    &mut names.chain(others).collect::<Vec<_>>(),
                );
            }
        }
        let naming = naming.into_iter().map(|place| (Purpose::Name, place));
        let leaving = leaving.into_iter().map(|place| (Purpose::Exec, place));
        let (client, abi) = (&mut session.client, &session.abi);
        for (purpose, place) in naming.chain(leaving) {
            self.probes.plant_own(client, abi, purpose, &place);
        }
        for (kind, place) in wanted {
            self.probes.plant(client, abi, kind, &place);
        }
        self.probes.send_all(client, sink)?;
        self.calls
            .plant(&mut self.probes, session, sink, program, ids)?;
        self.read_places(session)
    }

    /// Plants the probes of the function that a resolver has chosen and is about to return.
    pub(super) fn on_resolver(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
        pc: u64,
        registers: &Registers,
    ) -> Result<(), Error> {
        let probes = &mut self.probes;
        let calls = &mut self.calls;
        match calls.plant_resolved(probes, session, sink, program, pc, registers)? {
            true => self.read_places(session),
            false => Ok(()),
        }
    }

    /// Plants a probe at a start routine, unless it has one.
    pub(super) fn watch_start(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        modules: &Modules,
        address: u64,
        thumb: bool,
    ) -> Result<(), Error> {
        let place = Place {
            address,
            movable: 0,
            thumb,
            function: modules.function_at(address).unwrap_or_default(),
            module: modules.at(address).map(|mapped| mapped.id),
        };
        let (client, abi) = (&mut session.client, &session.abi);
        self.probes.plant(client, abi, ProbeKind::Start, &place);
        match self.probes.send_all(client, sink) {
            // A wild pointer will crash the program by itself.
            Err(Error::Rsp(error)) if !error.is_fatal() => {
                let text = format!("cannot watch the start routine at {address:#x}: {error}");
                sink.note(Severity::Warning, text);
                Ok(())
            }
            other => other,
        }
    }

    /// Reads which places the server records by jumps, and which by traps. At the end of the
    /// recording their functions are no longer known. Most libraries have no probes, so loading one
    /// changes no place.
    pub(super) fn read_places(&mut self, session: &mut Session) -> Result<(), Error> {
        if self.probes.fast
            && self.probes.take_changed()
            && let Some(places) = session.client.trace_places()?
        {
            self.set_places(places);
        }
        Ok(())
    }

    fn set_places(&mut self, (jumps, mut traps): (usize, Vec<u32>)) {
        traps.retain(|number| self.is_of_interest(*number));
        let trapped = traps.iter().filter_map(|number| {
            let function = self.probes.function(*number)?;
            Some((self.probe_of(*number), function.to_owned()))
        });
        self.places = TracePlaces {
            jumps,
            traps: traps.len(),
            trapped: trapped.collect(),
        };
    }

    /// Notes a static program without a creation function. Then only the kernel can see creations.
    /// Fails if the program's file is missing.
    pub(super) fn check_static(
        &self,
        sink: &mut Sink,
        program: &Program,
        kernel_sees_creations: bool,
    ) -> Result<(), Error> {
        if self.probes.has(ProbeKind::Create) {
            return Ok(());
        }
        let Some(mapped) = program.modules.get(program.executable_module) else {
            return Ok(());
        };
        let Some(image) = &mapped.image else {
            let problem = mapped.problem.clone().unwrap_or_default();
            return Err(Error::File(format!(
                "{problem}; name the program's file with --exec"
            )));
        };
        let text = match image.symbols().functions().next() {
            None => {
                let id = mapped.build_id.as_ref().map(ToString::to_string);
                let advice = match id.filter(|id| id.len() > 2) {
                    Some(id) => format!(
                        "Put an unstripped copy or its debug file below a directory given by \
                         --debug-dir (DIR/.build-id/{}/{}.debug), or name it with --exec.",
                        &id[..2],
                        &id[2..]
                    ),
                    None => "Name an unstripped copy with --exec.".to_owned(),
                };
                let missing = match kernel_sees_creations {
                    true => "joins and calls for locks",
                    false => "creations of threads, joins and calls for locks",
                };
                format!(
                    "{} is statically linked and has no symbols, so {missing} are not recorded. \
                     {advice}",
                    mapped.path
                )
            }
            Some(_) if kernel_sees_creations => return Ok(()),
            Some(_) => "The program is static and has no pthread_create, so creations of threads \
                        are not recorded. To record them, run the stub as root, or with \
                        CAP_PERFMON and a readable tracefs."
                .to_owned(),
        };
        let severity = match kernel_sees_creations {
            true => Severity::Info,
            false => Severity::Warning,
        };
        sink.note(severity, text);
        Ok(())
    }

    /// Fails if the C library's file is missing. Notes a program that lacks a creation function.
    pub(super) fn check_dynamic(
        &mut self,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
    ) -> Result<(), Error> {
        if self.probes.has(ProbeKind::Create) {
            return Ok(());
        }
        if let Some(library) = program
            .modules
            .iter()
            .find(|mapped| has_threads(&mapped.path))
            && let Some(problem) = &library.problem
        {
            return Err(Error::NoCreation(format!(
                "the C library's file is needed, but {problem}"
            )));
        }
        // In an unusual C library, use any module that defines the functions.
        let own: Vec<(ProbeKind, Place)> = program
            .modules
            .iter()
            .flat_map(|mapped| {
                THREAD_FUNCTIONS.into_iter().flat_map(move |(kind, names)| {
                    names
                        .iter()
                        .flat_map(move |name| mapped.functions(name))
                        .map(move |place| (kind, place))
                })
            })
            .collect();
        let leaving: Vec<Place> = (program.modules.iter().filter(|_| self.probes.fast))
            .flat_map(|mapped| {
                EXEC_FUNCTIONS
                    .iter()
                    .flat_map(move |name| mapped.functions(name))
            })
            .collect();
        let (client, abi) = (&mut session.client, &session.abi);
        for place in leaving {
            self.probes.plant_own(client, abi, Purpose::Exec, &place);
        }
        for (kind, place) in own {
            self.probes.plant(client, abi, kind, &place);
        }
        self.probes.send_all(client, sink)?;
        if !self.probes.has(ProbeKind::Create) {
            sink.note(
                Severity::Info,
                "no library of the program defines pthread_create; libraries loaded later are watched for it",
            );
        }
        Ok(())
    }

    /// The id of the probe to which a tracepoint belongs.
    pub(super) fn probe_of(&self, tracepoint: u32) -> Option<u32> {
        match self.probes.traced(tracepoint)?.purpose {
            Purpose::Probe { id, .. } => Some(id),
            _ => None,
        }
    }

    /// True for tracepoints with possibly frequent hits. Threads seldom get a name, and a program
    /// seldom executes another.
    fn is_of_interest(&self, tracepoint: u32) -> bool {
        let planted = self.probes.traced(tracepoint);
        planted.is_none_or(|planted| matches!(planted.purpose, Purpose::Probe { .. }))
    }

    /// Forgets the probes in ranges that are no longer mapped.
    pub(super) fn unmapped(&mut self, session: &mut Session, ranges: &[Range<u64>]) {
        for range in ranges {
            self.calls.unmapped(range);
            self.probes.unmapped(&mut session.client, range);
        }
    }

    /// Forgets all probes, because the process runs another program.
    pub(super) fn clear(&mut self) {
        self.probes.clear();
        self.calls.clear();
    }

    /// Notes which selected calls are not recorded, and which calls the probes slow down.
    pub(super) fn note(&self, session: &Session, sink: &mut Sink, hook_hits: (u64, u64)) {
        self.calls.note(session, sink, hook_hits);
        self.note_places(sink);
    }

    /// Notes which calls are slowed down by traps. Other hits are too rare to matter.
    fn note_places(&self, sink: &mut Sink) {
        let places = &self.places;
        let none = places.jumps == 0 && (places.traps == 0 || !self.probes.fast);
        if !self.calls.are_wanted() || none {
            return;
        }
        let has_events = |probe| sink.has_events(probe);
        if let Some(text) = trace_places::describe(places, has_events) {
            sink.note_calls(text);
        }
    }
}
