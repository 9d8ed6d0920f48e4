//! Calls of functions: which are recorded, where their probes are, and the call paths seen so far.
//!
//! A function has a probe at its entry and one at each of its returns; the C library's futex system calls have one before
//! and one behind them. Apart from the probes of thread creation because these are many, are hit millions of
//! times, and may be left out or paused without the rest of the recording being wrong.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;

use unspool_capture::Severity;
use unspool_image::Image;

use super::Error;
use super::probes::{Place, Refused};
use super::recorder::Recorder;
use crate::c_library::{has_musl_inside, has_threads, is_musl};
use plan::Fast;

mod call_hits;
mod condition;
mod pattern;
mod plan;
mod resolvers;
mod site;

pub use pattern::Pattern;
pub(super) use site::Site;

/// No more functions are instrumented by name: each costs the server a trap and a few packets.
const MAX_FUNCTIONS: usize = 500;
/// So many distinct call paths are known again; then all are forgotten, and recorded anew.
const MAX_PATHS: usize = 1 << 20;

/// Which operations of mutexes and the like are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sync {
    /// Waits only; costs nothing while no thread waits
    Contended,
    /// Every lock, unlock, wait, signal and post, within the budget
    All,
}

/// Which calls are recorded.
#[derive(Debug, Clone, Default)]
pub struct Instrumented {
    /// Operations of mutexes and the like.
    pub sync: Option<Sync>,
    /// Functions by name.
    pub functions: Vec<Pattern>,
}

impl Instrumented {
    fn is_empty(&self) -> bool {
        self.sync.is_none() && self.functions.is_empty()
    }
}

/// What is instrumented, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Calls {
    wanted: Instrumented,
    /// How many functions each pattern has named.
    named: Vec<usize>,
    /// The probes, by their ids.
    sites: HashMap<u32, Site>,
    /// The event that carries a stack, by its program counters.
    paths: HashMap<Box<[u64]>, u64>,
    /// Functions of which not all returns are known.
    endless: Vec<String>,
    resolvers: resolvers::Resolvers,
    /// Some C library's system calls were looked for, and so many found.
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

    pub(super) fn site(&self, probe: u32) -> Option<&Site> {
        self.sites.get(&probe)
    }

    /// Modules came or went: addresses mean something else.
    pub(super) fn forget_paths(&mut self) {
        self.paths.clear();
    }

    /// The process runs another program.
    pub(super) fn forget_resolvers(&mut self) {
        self.resolvers.clear();
    }

    /// A library is no more.
    pub(super) fn unmapped(&mut self, range: &Range<u64>) {
        self.resolvers.unmapped(range);
    }

    /// The event that carries the same stack; none if `seq` is the first.
    fn same_path(&mut self, pcs: Box<[u64]>, seq: u64) -> Option<u64> {
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        match self.paths.entry(pcs) {
            std::collections::hash_map::Entry::Occupied(known) => Some(*known.get()),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(seq);
                None
            }
        }
    }
}

/// Whether the functions that are named are too many in the program's own file alone: to be told before it is started.
pub(super) fn check(program: &Path, wanted: &Instrumented) -> Result<(), Error> {
    let Ok(image) = Image::open(program) else {
        return Ok(());
    };
    // It may be a link.
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

impl Recorder {
    /// Plants the probes of calls in modules that have just been mapped.
    pub(super) fn plant_calls(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.calls.forget_paths();
        if self.calls.wanted.is_empty() {
            return Ok(());
        }
        for id in ids {
            self.plant_calls_in(*id)?;
        }
        Ok(())
    }

    fn plant_calls_in(&mut self, id: u32) -> Result<(), Error> {
        let Some(mapped) = self.modules.get(id) else {
            return Ok(());
        };
        let c_library = !self.program.is_dynamic() || has_threads(&mapped.path);
        let sync = self.calls.wanted.sync;
        // The names of a file take long to read; those of a library are needed of the C library alone.
        let inside = || mapped.image.as_ref().is_some_and(has_musl_inside);
        let musl = is_musl(&mapped.path) || !self.program.is_dynamic() && inside();
        let sync = sync.filter(|_| c_library && !self.threads_run_on);
        let sync = sync.map(|sync| plan::Watched { sync, musl });
        let abi = &self.session.abi;
        let fast = self.fast();
        let patterns = &self.calls.wanted.functions;
        let paths = mapped.paths();
        let here = |pattern: &&Pattern| pattern.is_in(&paths);
        let here: Vec<&Pattern> = patterns.iter().filter(here).collect();
        let client = &mut self.session.client;
        let chosen = match here.is_empty() {
            true => BTreeMap::new(),
            false => {
                let named = |name: &str| here.iter().any(|pattern| pattern.names(name));
                resolvers::of(client, abi, mapped, &self.modules, &named)
            }
        };
        let functions = plan::Named {
            patterns: &self.calls.wanted.functions,
            chosen: &chosen,
        };
        let mut plan = plan::make(
            self.modules.store(),
            mapped,
            abi.arch,
            sync,
            functions,
            fast,
        );
        let path = mapped.path.clone();
        let here: usize = plan.named.iter().sum();
        if here + self.calls.named.iter().sum::<usize>() > MAX_FUNCTIONS {
            // The program runs by now: it is not to suffer from what was asked for too much.
            let text = format!(
                "--trace names {here} functions of {path}, and at most {MAX_FUNCTIONS} can be instrumented at once: none of \
                 them is recorded. Name fewer, for example those of one file with FILE:NAME."
            );
            self.sink.note(Severity::Error, text);
            let none = plan::Named {
                patterns: &[],
                ..functions
            };
            plan = plan::make(self.modules.store(), mapped, abi.arch, sync, none, fast);
        }
        for (count, more) in self.calls.named.iter_mut().zip(&plan.named) {
            *count += more;
        }
        if sync.is_some() {
            *self.calls.waits.get_or_insert(0) += plan.waits();
        }
        self.watch_resolvers(id, &plan.undecided)?;
        self.carry_out(id, plan)
    }

    /// Which hits may be noted without a stop.
    fn fast(&self) -> Fast {
        // A trap that is paused costs nothing, a jump that is paused still is a detour; what is called most would feel it.
        Fast {
            waits: self.probes.fast,
            calls: self.probes.fast && self.at_any_cost,
        }
    }

    /// Plants what was planned for a module.
    fn carry_out(&mut self, id: u32, plan: plan::Plan) -> Result<(), Error> {
        let Some(mapped) = self.modules.get(id) else {
            return Ok(());
        };
        let (bias, path) = (mapped.bias, mapped.path.clone());
        let abi = &self.session.abi;
        self.calls.endless.extend(plan.endless);
        let place = |svma: u64, thumb: bool, function: &str, movable: u8| Place {
            address: abi.wrap(svma.wrapping_add(bias)),
            movable,
            thumb,
            function: function.to_owned(),
            module: Some(id),
        };
        let mut begun = Vec::new();
        let (client, sink) = (&mut self.session.client, &mut self.sink);
        for begin in &plan.begins {
            let place = place(begin.svma, begin.thumb, &begin.function, begin.movable);
            let planted = self
                .probes
                .plant_call(client, abi, begin.kind, &place, begin.site, &[]);
            begun.push(planted);
        }
        // One place that cannot be probed is no reason to give up the rest.
        for refused in self.probes.send(client, sink)? {
            note_refused(sink, &refused, &path);
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
            let planted = self
                .probes
                .plant_call(client, abi, end.kind, &place, end.site, &of);
            if let Some(probe) = planted {
                self.calls.sites.insert(probe, end.site);
            }
        }
        for refused in self.probes.send(client, sink)? {
            note_refused(sink, &refused, &path);
            self.calls.sites.retain(|id, _| Some(*id) != refused.id);
        }
        for (probe, begin) in begun.iter().zip(plan.begins) {
            if let Some(probe) = probe {
                self.calls.sites.insert(*probe, begin.site);
            }
        }
        Ok(())
    }

    /// Says what of the calls that were wanted is not recorded.
    pub(super) fn note_calls(&mut self) {
        self.note_resolvers();
        let calls = &self.calls;
        let mut notes = Vec::new();
        for (pattern, count) in calls.wanted.functions.iter().zip(&calls.named) {
            if *count == 0 {
                notes.push(format!(
                    "--trace '{pattern}': no function of that name was found in the program and its libraries; \
                     names are those of the symbol tables, C++ and Rust names without arguments"
                ));
            }
        }
        if self.threads_run_on && calls.wanted.sync.is_some() {
            notes.push(
                "QEMU's server stops one thread at a time and loses track when two stop at once, so --sync is not \
                 carried out; --trace is, for functions that one thread at a time calls"
                    .to_owned(),
            );
        }
        if calls.waits == Some(0) {
            notes.push(
                "no system call was found by which the C library waits: waiting is not recorded"
                    .to_owned(),
            );
        }
        if let [first, others @ ..] = &calls.endless[..] {
            let others = match others {
                [] => String::new(),
                [second] => format!(" and {second}"),
                more => format!(" and {} other functions", more.len()),
            };
            notes.push(format!(
                "not all places are known where {first}{others} return: some of their calls have no end"
            ));
        }
        for text in notes {
            self.sink.note(Severity::Warning, text);
        }
    }
}

/// The first so many names of functions, and how many there are beside.
pub(super) fn listed_functions(names: &[&str], most: usize) -> String {
    let (named, others) = names.split_at(names.len().min(most));
    let others = match others.len() {
        0 => String::new(),
        1 => " and one other function".to_owned(),
        others => format!(" and {others} other functions"),
    };
    format!("{}{others}", named.join(", "))
}

fn note_refused(sink: &mut super::sink::Sink, refused: &Refused, path: &str) {
    let Refused { place, error, .. } = refused;
    let text = format!(
        "cannot record calls of {} at {:#x} in {path}: {error}",
        place.function, place.address
    );
    sink.note(Severity::Warning, text);
}
