//! Chooses the calls to record and plants their probes.
//!
//! A function has a probe at its entry and one at each of its returns. The C library's futex system
//! calls have one before and one after the instruction. Probes of thread creation are separate,
//! because call probes are numerous, may be hit millions of times, and may be left out or paused.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use unspool_capture::Severity;
use unspool_image::Image;
use unspool_rsp::Registers;

use super::error::Error;
use super::modules::Mapped;
use super::place::Place;
use super::probes::{Probes, Refused};
use super::program::Program;
use super::session::Session;
use super::sink::Sink;
use crate::platform::c_library::{has_musl_inside, has_threads, is_musl};
use pattern::Pattern;
use resolvers::Resolvers;
use selection::Instrumented;
use site::Site;

pub(super) mod call_hits;
mod hooks;
pub(super) mod pattern;
mod plan;
mod resolvers;
pub(super) mod selection;
pub(super) mod site;

/// Limit on functions instrumented by name: each costs the server a breakpoint and packets.
const MAX_FUNCTIONS: usize = 500;

/// The calls to record and their probes.
#[derive(Debug, Default)]
pub(super) struct Calls {
    wanted: Instrumented,
    /// Number of functions named by each pattern, also in libraries that are no longer mapped.
    named: Vec<usize>,
    /// Number of named functions in each mapped module, by the module's start.
    instrumented: BTreeMap<u64, usize>,
    /// The probes, by their ids.
    sites: HashMap<u32, Site>,
    /// Functions with returns that could not be found.
    without_returns: Vec<String>,
    resolvers: Resolvers,
    /// Number of waiting system calls found; `None` while no C library was searched.
    waits: Option<usize>,
}

impl Calls {
    pub(super) fn new(wanted: Instrumented) -> Calls {
        Calls {
            named: vec![0; wanted.functions.len()],
            wanted,
            ..Calls::default()
        }
    }

    pub(super) fn are_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    pub(super) fn site(&self, probe: u32) -> Option<Site> {
        self.sites.get(&probe).copied()
    }

    /// Forgets all modules when the process executes another program.
    pub(super) fn clear(&mut self) {
        self.resolvers.clear();
        self.instrumented.clear();
    }

    /// Forgets a library that is no longer mapped.
    pub(super) fn unmapped(&mut self, range: &Range<u64>) {
        self.resolvers.unmapped(range);
        self.instrumented.retain(|start, _| !range.contains(start));
    }

    /// Plants the probes of calls in modules that were just mapped.
    pub(super) fn plant(
        &mut self,
        probes: &mut Probes,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
        ids: &[u32],
    ) -> Result<(), Error> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        for id in ids {
            self.plant_in(probes, session, sink, program, *id)?;
        }
        Ok(())
    }

    /// Plants the probes of the function that a resolver has chosen, before the resolver returns at
    /// `pc`. True if it has chosen one.
    pub(super) fn plant_resolved(
        &mut self,
        probes: &mut Probes,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
        pc: u64,
        registers: &Registers,
    ) -> Result<bool, Error> {
        let modules = &program.modules;
        let resolved = self
            .resolvers
            .resolved(&session.abi, modules, pc, registers);
        let Some(resolved) = resolved else {
            return Ok(false);
        };
        let Some(mapped) = modules.get(resolved.module) else {
            return Ok(false);
        };
        let plan = plan::of_one(
            modules.store(),
            mapped,
            resolved.start,
            &resolved.name,
            probes.fast,
        );
        self.carry_out(probes, session, sink, mapped, plan)?;
        Ok(true)
    }

    fn plant_in(
        &mut self,
        probes: &mut Probes,
        session: &mut Session,
        sink: &mut Sink,
        program: &Program,
        id: u32,
    ) -> Result<(), Error> {
        let Some(mapped) = program.modules.get(id) else {
            return Ok(());
        };
        let c_library = !program.is_dynamic() || has_threads(&mapped.path);
        let sync = self.wanted.sync;
        // Reading the names of a file takes long, so search only a static program for musl.
        let inside = || mapped.image.as_ref().is_some_and(has_musl_inside);
        let musl = is_musl(&mapped.path) || !program.is_dynamic() && inside();
        let sync = sync.filter(|_| c_library && !session.stops.one_thread);
        let sync = sync.map(|sync| plan::Watched { sync, musl });
        let abi = &session.abi;
        let fast = probes.fast;
        let patterns = &self.wanted.functions;
        let paths = mapped.paths();
        let here = |pattern: &&Pattern| pattern.is_in(&paths);
        let here: Vec<&Pattern> = patterns.iter().filter(here).collect();
        let client = &mut session.client;
        let chosen = match here.is_empty() {
            true => BTreeMap::new(),
            false => {
                let named = |name: &str| here.iter().any(|pattern| pattern.names(name));
                resolvers::chosen(client, abi, mapped, &program.modules, &named)
            }
        };
        let functions = plan::Named {
            patterns: &self.wanted.functions,
            chosen: &chosen,
            hooks: self.wanted.hooks,
        };
        let mut plan = plan::make(
            program.modules.store(),
            mapped,
            abi.arch,
            sync,
            functions,
            fast,
        );
        let path = mapped.path.clone();
        let here: usize = plan.named.iter().sum();
        if here + self.instrumented.values().sum::<usize>() > MAX_FUNCTIONS {
            // The program already runs, so too many functions are no reason to end it.
            let text = format!(
                "--trace names {here} functions of {path}, and at most {MAX_FUNCTIONS} can be \
                 instrumented at once, so none of them is recorded. Name fewer, for example \
                 those of one file with FILE:NAME."
            );
            sink.note(Severity::Error, text);
            let none = plan::Named {
                patterns: &[],
                ..functions
            };
            plan = plan::make(program.modules.store(), mapped, abi.arch, sync, none, fast);
        }
        for (count, more) in self.named.iter_mut().zip(&plan.named) {
            *count += more;
        }
        self.instrumented
            .insert(mapped.start, plan.named.iter().sum());
        if sync.is_some() {
            *self.waits.get_or_insert(0) += plan.waits();
        }
        self.resolvers
            .watch(probes, session, sink, mapped, &plan.undecided)?;
        self.carry_out(probes, session, sink, mapped, plan)
    }

    /// Returns a note if `--calls` did not record all calls.
    fn missing_hooks(&self, (hits, unclear): (u64, u64)) -> Option<String> {
        match self.wanted.hooks {
            true if hits == 0 && self.wanted.functions.is_empty() => Some(
                "--calls recorded nothing, because __cyg_profile_func_enter was never called; \
                 build the program with -finstrument-functions, or name functions with --trace"
                    .to_owned(),
            ),
            true if unclear > 0 => Some(format!(
                "{unclear} of {hits} calls of the -finstrument-functions hooks are missing, because \
                 the calling code does not show which of the two hooks it calls; link the program \
                 dynamically, or define both hooks in the program"
            )),
            _ => None,
        }
    }

    /// Plants the probes planned for a module.
    fn carry_out(
        &mut self,
        probes: &mut Probes,
        session: &mut Session,
        sink: &mut Sink,
        mapped: &Mapped,
        plan: plan::Plan,
    ) -> Result<(), Error> {
        let (bias, path) = (mapped.bias, mapped.path.as_str());
        let abi = &session.abi;
        self.without_returns.extend(plan.without_returns);
        let place = |svma: u64, thumb: bool, function: &str, movable: u8| Place {
            address: abi.wrap(svma.wrapping_add(bias)),
            movable,
            thumb,
            function: function.to_owned(),
            module: Some(mapped.id),
        };
        let mut begun = Vec::new();
        let client = &mut session.client;
        for begin in &plan.begins {
            let place = place(begin.svma, begin.thumb, &begin.function, begin.movable);
            let planted = probes.plant_call(client, abi, begin.kind, &place, begin.site, &[]);
            begun.push(planted);
        }
        // If one place cannot be probed, the others still get their probes.
        for refused in probes.send(client, sink)? {
            note_refused(sink, &refused, path);
            for id in begun.iter_mut().filter(|id| **id == refused.id) {
                *id = None;
            }
        }
        for end in &plan.ends {
            let of: Vec<u32> = end.of.iter().filter_map(|at| *begun.get(*at)?).collect();
            if of.is_empty() {
                continue;
            }
            let place = place(end.svma, end.thumb, &end.function, end.movable);
            let planted = probes.plant_call(client, abi, end.kind, &place, end.site, &of);
            if let Some(probe) = planted {
                self.sites.insert(probe, end.site);
            }
        }
        for refused in probes.send(client, sink)? {
            note_refused(sink, &refused, path);
            self.sites.retain(|id, _| Some(*id) != refused.id);
        }
        for (probe, begin) in begun.iter().zip(plan.begins) {
            if let Some(probe) = probe {
                self.sites.insert(*probe, begin.site);
            }
        }
        Ok(())
    }

    /// Returns a note for each pattern of `--trace` that no function matches.
    pub(super) fn unmatched(&self) -> Vec<String> {
        let patterns = self.wanted.functions.iter().zip(&self.named);
        let unmatched = patterns.filter(|(_, count)| **count == 0);
        unmatched
            .map(|(pattern, _)| {
                format!(
                    "--trace '{pattern}': no function of that name was found in the program and \
                     its libraries; use the names of the symbol tables, and leave out the \
                     arguments of C++ and Rust functions"
                )
            })
            .collect()
    }

    /// Notes which of the selected calls are not recorded.
    pub(super) fn note(&self, session: &Session, sink: &mut Sink, hook_hits: (u64, u64)) {
        self.resolvers.note(sink);
        if let Some(text) = self.missing_hooks(hook_hits) {
            sink.note(Severity::Warning, text);
        }
        let calls = self;
        let mut notes = calls.unmatched();
        if session.stops.one_thread && calls.wanted.sync.is_some() {
            notes.push(
                "QEMU's server stops one thread at a time, and the session breaks if two stop at \
                 once. So --sync is ignored; --trace works for functions that only one thread \
                 calls at a time"
                    .to_owned(),
            );
        }
        if calls.waits == Some(0) {
            notes.push(
                "Unspool found no system call in which the C library waits, so waits are not recorded"
                    .to_owned(),
            );
        }
        if let [first, others @ ..] = &calls.without_returns[..] {
            let others = match others {
                [] => String::new(),
                [second] => format!(" and {second}"),
                more => format!(" and {} other functions", more.len()),
            };
            notes.push(format!(
                "some returns of {first}{others} were not found, so some of their calls have no end"
            ));
        }
        for text in notes {
            sink.note(Severity::Warning, text);
        }
    }
}

/// Fails if the patterns name too many functions of the program's own file, before it is started.
pub(super) fn check(program: &Path, wanted: &Instrumented) -> Result<(), Error> {
    if wanted.functions.is_empty() {
        return Ok(());
    }
    let Ok(image) = Image::open(program) else {
        return Ok(());
    };
    // The path may be a link.
    let file = program.canonicalize();
    let file = file.as_deref().unwrap_or(program).to_string_lossy();
    let paths = [&*program.to_string_lossy(), &*file];
    let named = plan::count_named(&image, &paths, &wanted.functions);
    match named.iter().sum() {
        count if count > MAX_FUNCTIONS => Err(Error::TooManyFunctions {
            count,
            most: MAX_FUNCTIONS,
        }),
        _ => Ok(()),
    }
}

fn note_refused(sink: &mut Sink, refused: &Refused, path: &str) {
    let Refused { place, error, .. } = refused;
    let text = format!(
        "cannot record calls of {} at {:#x} in {path}: {error}",
        place.function, place.address
    );
    sink.note(Severity::Warning, text);
}
