//! Plans where the probes of calls go in one module. Needs only the module's file, not the target.

use std::collections::{BTreeMap, BTreeSet};

use unspool_capture::ProbeKind;
use unspool_image::{Arch, Image, SymbolKind};
use unspool_unwind::code::exits::{Given, Return, SystemCall};

use super::super::modules::Mapped;
use super::super::movable::Movable;
use super::hooks;
use super::pattern::Pattern;
use super::selection::Sync;
use super::site::{self, Does, Site};
use crate::platform::Architecture;
use crate::primitives::{Kind, Operation, PRIMITIVES, Primitive};
use crate::store::{Passages, Store};

/// A function's address in its image, and whether it is Thumb code.
pub(super) type Start = (u64, bool);

/// The probes planned for one module.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) begins: Vec<Begin>,
    pub(super) ends: Vec<End>,
    /// Functions with returns that could not be found.
    pub(super) without_returns: Vec<String>,
    /// Resolvers whose choice is not known yet.
    pub(super) undecided: Vec<Undecided>,
    /// Number of functions named by each pattern.
    pub(super) named: Vec<usize>,
}

/// A resolver, which chooses the version of another function, and its returns.
#[derive(Debug)]
pub(super) struct Undecided {
    pub(super) svma: u64,
    pub(super) name: String,
    pub(super) returns: Vec<Return>,
}

impl Plan {
    /// Number of futex system calls with a probe.
    pub(super) fn waits(&self) -> usize {
        let waits = self.begins.iter();
        waits
            .filter(|begin| begin.kind == ProbeKind::FutexWait)
            .count()
    }
}

/// A place where a call begins.
#[derive(Debug)]
pub(super) struct Begin {
    pub(super) svma: u64,
    pub(super) thumb: bool,
    pub(super) function: String,
    pub(super) kind: ProbeKind,
    pub(super) site: Site,
    pub(super) movable: u8,
}

/// A place where a call ends.
#[derive(Debug)]
pub(super) struct End {
    pub(super) svma: u64,
    pub(super) thumb: bool,
    pub(super) function: String,
    pub(super) kind: ProbeKind,
    pub(super) site: Site,
    pub(super) movable: u8,
    /// Indices into [`Plan::begins`] of the places where the ended call may have begun.
    pub(super) of: Vec<usize>,
}

/// A function to be instrumented.
#[derive(Debug)]
struct Wanted {
    thumb: bool,
    name: String,
    /// Index of the argument that points to an object to be recorded.
    object: Option<u8>,
    /// True if the returns get probes, too.
    ends: bool,
}

/// Functions selected by name, and the hooks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) patterns: &'a [Pattern],
    /// Functions chosen by resolvers, by the address of the resolver.
    pub(super) chosen: &'a BTreeMap<u64, Start>,
    /// True to instrument the hooks.
    pub(super) hooks: bool,
}

/// A C library whose operations are watched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watched {
    pub(super) sync: Sync,
    pub(super) musl: bool,
}

impl Watched {
    /// True if the primitive's functions get probes, beside the system calls by which it waits.
    fn enters(self, primitive: &Primitive) -> bool {
        // In musl, conditions and barriers wait at words on the waiters' stacks, so the system call
        // does not identify the object. Nearly every such call waits, so a probe costs nothing
        // without contention.
        let nameless = matches!(
            (primitive.kind, primitive.operation),
            (Kind::Cond, Operation::Wait) | (Kind::Barrier, Operation::Arrive)
        );
        !primitive.internal && (self.sync == Sync::All || self.musl && nameless)
    }
}

/// Plans one module. `sync` is set if the module is or contains a C library, and `fast` if the
/// server may record hits by jumps, without a stop.
pub(super) fn make(
    store: &Store,
    mapped: &Mapped,
    arch: Arch,
    sync: Option<Watched>,
    functions: Named<'_>,
    fast: bool,
) -> Plan {
    let mut plan = Plan {
        named: vec![0; functions.patterns.len()],
        ..Plan::default()
    };
    let Some(image) = mapped.image.as_ref().filter(|_| mapped.path != "[vdso]") else {
        return plan;
    };
    let mut wanted = BTreeMap::new();
    if let Some(watched) = sync {
        add_primitives(image, watched, &mut wanted);
    }
    let mut choosing = BTreeMap::new();
    let named = &mut plan.named;
    add_named(
        image,
        &mapped.paths(),
        functions,
        &mut wanted,
        &mut choosing,
        named,
    );
    let hooks = match functions.hooks {
        true => hook_starts(image),
        false => BTreeMap::new(),
    };
    if wanted.is_empty() && choosing.is_empty() && sync.is_none() && hooks.is_empty() {
        return plan;
    }
    let Some(mut passages) = store.passages(image) else {
        return plan;
    };
    for (svma, (name, thumb)) in choosing {
        plan.undecided.push(Undecided {
            svma,
            name,
            returns: passages.follow(svma, thumb).returns,
        });
    }
    for (svma, (ends, thumb)) in hooks {
        let function = if ends == Some(true) {
            hooks::EXIT
        } else {
            hooks::ENTER
        };
        plan.begins.push(Begin {
            svma,
            thumb,
            function: function.to_owned(),
            kind: ProbeKind::Hook,
            site: Site::Hook { ends },
            movable: passages.follow(svma, thumb).movable,
        });
    }
    let mut calls = Vec::new();
    if let Some(watched) = sync {
        calls = futex_calls(image, arch, watched.musl, &mut passages);
    }
    complete(&mut plan, wanted, calls, &mut passages, fast);
    passages.keep();
    plan
}

/// Plans one function.
pub(super) fn of_one(store: &Store, mapped: &Mapped, at: Start, name: &str, fast: bool) -> Plan {
    let mut plan = Plan::default();
    let passages = mapped
        .image
        .as_ref()
        .and_then(|image| store.passages(image));
    if let Some(mut passages) = passages {
        let wanted = Wanted {
            thumb: at.1,
            name: name.to_owned(),
            object: None,
            ends: true,
        };
        let wanted = BTreeMap::from([(at.0, wanted)]);
        complete(&mut plan, wanted, Vec::new(), &mut passages, fast);
        passages.keep();
    }
    plan
}

fn complete(
    plan: &mut Plan,
    wanted: BTreeMap<u64, Wanted>,
    calls: Vec<(SystemCall, String, Does)>,
    passages: &mut Passages<'_>,
    fast: bool,
) {
    let returns = instrument(plan, wanted, passages);
    let candidates = |plan: &Plan| {
        let begins = plan.begins.iter().map(|begin| (begin.svma, begin.movable));
        let early = returns.iter().filter_map(|(back, _, _)| back.early);
        let calls = calls.iter().flat_map(|(call, ..)| {
            let before = call.before.map(|before| (before.svma, before.movable));
            before.into_iter().chain([(call.next, call.movable)])
        });
        let early = early.map(|early| (early.svma, early.movable));
        begins.chain(early).chain(calls).collect::<Vec<_>>()
    };
    let free = match fast {
        true => Movable::of(passages, &candidates(plan)),
        false => Movable::default(),
    };
    for begin in &mut plan.begins {
        begin.movable = free.at(begin.svma, begin.movable);
    }
    add_ends(plan, returns, &free);
    add_futexes(plan, calls, &free);
}

fn add_primitives(image: &Image, watched: Watched, wanted: &mut BTreeMap<u64, Wanted>) {
    for primitive in PRIMITIVES.iter().filter(|one| watched.enters(one)) {
        let symbols = primitive
            .names
            .iter()
            .flat_map(|name| image.symbols().named(name));
        for symbol in symbols.filter(|symbol| symbol.kind == SymbolKind::Function) {
            let operation = primitive.operation;
            let held = primitive.kind.is_lock();
            wanted.entry(symbol.svma).or_insert_with(|| Wanted {
                thumb: symbol.thumb,
                name: symbol.name.to_owned(),
                object: (held && operation.may_wait()).then_some(primitive.object),
                // An operation that neither waits nor fails needs no end.
                ends: !matches!(
                    operation,
                    Operation::Unlock
                        | Operation::Signal
                        | Operation::Broadcast
                        | Operation::Post
                        | Operation::Init
                        | Operation::Destroy
                ),
            });
        }
    }
}

/// The hooks of an image by address. Values: true for the exit hook, `None` if one function is both
/// hooks; and true for Thumb code.
fn hook_starts(image: &Image) -> BTreeMap<u64, (Option<bool>, bool)> {
    let mut starts: BTreeMap<u64, (Option<bool>, bool)> = BTreeMap::new();
    for (name, ends) in [(hooks::ENTER, false), (hooks::EXIT, true)] {
        let symbols = image.symbols().named(name).into_iter();
        for symbol in symbols.filter(|symbol| symbol.kind == SymbolKind::Function) {
            let here = (Some(ends), symbol.thumb);
            let start = starts.entry(symbol.svma).or_insert(here);
            start.0 = start.0.filter(|known| *known == ends);
        }
    }
    starts
}

/// Counts the functions that each pattern names in a file.
pub(super) fn count_named(image: &Image, paths: &[&str], patterns: &[Pattern]) -> Vec<usize> {
    let mut named = vec![0; patterns.len()];
    let functions = Named {
        patterns,
        chosen: &BTreeMap::new(),
        hooks: false,
    };
    let (mut wanted, mut choosing) = (BTreeMap::new(), BTreeMap::new());
    add_named(
        image,
        paths,
        functions,
        &mut wanted,
        &mut choosing,
        &mut named,
    );
    named
}

fn add_named(
    image: &Image,
    paths: &[&str],
    functions: Named<'_>,
    wanted: &mut BTreeMap<u64, Wanted>,
    choosing: &mut BTreeMap<u64, (String, bool)>,
    named: &mut [usize],
) {
    for (pattern, count) in functions.patterns.iter().zip(named) {
        if !pattern.is_in(paths) {
            continue;
        }
        let mut counted = BTreeSet::new();
        for symbol in image.symbols().functions() {
            // PLT stubs and cold parts are not functions of their own.
            let part = symbol.name.contains("@plt") || symbol.name.contains(".cold");
            if part || !pattern.names(symbol.name) {
                continue;
            }
            let chosen = functions.chosen.get(&symbol.svma);
            let chosen = chosen.copied().filter(|_| symbol.is_ifunc);
            let (svma, thumb) = chosen.unwrap_or((symbol.svma, symbol.thumb));
            if counted.insert(svma) {
                *count += 1;
            }
            if symbol.is_ifunc && chosen.is_none() {
                let name = || (symbol.name.to_owned(), symbol.thumb);
                choosing.entry(svma).or_insert_with(name);
                continue;
            }
            let found = wanted.entry(svma).or_insert_with(|| Wanted {
                thumb,
                name: symbol.name.to_owned(),
                object: None,
                ends: true,
            });
            found.ends = true;
        }
    }
}

/// Plans the entries. Returns each return with its function's name and the index of its begin.
fn instrument(
    plan: &mut Plan,
    wanted: BTreeMap<u64, Wanted>,
    passages: &mut Passages<'_>,
) -> Vec<(Return, String, usize)> {
    let mut returns = Vec::new();
    for (svma, function) in wanted {
        let at = plan.begins.len();
        let ways = passages.follow(svma, function.thumb);
        if function.ends {
            if !ways.whole || ways.returns.is_empty() {
                plan.without_returns.push(function.name.clone());
            }
            let back = ways.returns.into_iter();
            returns.extend(back.map(|back| (back, function.name.clone(), at)));
        }
        plan.begins.push(Begin {
            svma,
            thumb: function.thumb,
            function: function.name,
            kind: ProbeKind::Enter,
            site: Site::enter(function.object),
            movable: ways.movable,
        });
    }
    returns
}

fn add_ends(plan: &mut Plan, returns: Vec<(Return, String, usize)>, free: &Movable) {
    let mut ends: BTreeMap<u64, End> = BTreeMap::new();
    for (back, function, at) in returns {
        let early = back.early;
        let early = early.filter(|early| free.at(early.svma, early.movable) > 0);
        let end = ends
            .entry(early.map_or(back.svma, |early| early.svma))
            .or_insert_with(|| End {
                svma: early.map_or(back.svma, |early| early.svma),
                thumb: back.thumb,
                function,
                kind: ProbeKind::Leave,
                site: Site::leave(&back, early),
                movable: early.map_or(0, |early| early.movable),
                of: Vec::new(),
            });
        end.of.push(at);
    }
    plan.ends.extend(ends.into_values());
}

/// Finds the futex system calls by following the control flow of the functions around them. Bytes
/// that look like a system call may be the middle of another instruction.
fn futex_calls(
    image: &Image,
    arch: Arch,
    musl: bool,
    passages: &mut Passages<'_>,
) -> Vec<(SystemCall, String, Does)> {
    let mut followed = BTreeSet::new();
    let mut calls: Vec<(SystemCall, String, Does)> = Vec::new();
    let futexes = Architecture::of(arch).map_or(&[][..], |platform| platform.system_call.futexes);
    for svma in passages.likely_system_calls() {
        let Some((start, thumb)) = passages.function_at(svma) else {
            continue;
        };
        if !followed.insert(start) {
            continue;
        }
        let name = image.symbols().containing(start).map(|symbol| symbol.name);
        // These functions get the system call's number from their callers.
        let any = musl || name == Some("syscall");
        for call in passages.follow(start, thumb).system_calls {
            let futex = match call.number {
                Some(number) => futexes.contains(&u64::from(number)),
                None => any,
            };
            let given = call.before.and_then(|before| before.sets[1]);
            let does = match call.second.or(given.and_then(site::command)) {
                Some(operation) => Does::of(operation),
                None => Some(Does::Either),
            };
            // A jump there cannot evaluate a value that the instructions before the call compute.
            let is_computed = match given {
                Some(Given::Register(_, by)) => by != 0,
                Some(given @ Given::Bits { .. }) => site::command(given).is_none(),
                _ => false,
            };
            let unclear = call.second.is_none() && is_computed;
            let call = SystemCall {
                before: call.before.filter(|_| !unclear),
                ..call
            };
            if let Some(does) = does.filter(|_| futex) {
                calls.push((call, name.unwrap_or("futex").to_owned(), does));
            }
        }
    }
    calls.sort_unstable();
    calls.dedup_by_key(|(call, ..)| call.svma);
    calls
}

fn add_futexes(plan: &mut Plan, calls: Vec<(SystemCall, String, Does)>, free: &Movable) {
    for (call, function, does) in calls {
        let at = plan.begins.len();
        let before = call.before.map(|before| (before.svma, before.movable));
        let (begin, movable) = before.unwrap_or((call.svma, 0));
        plan.begins.push(Begin {
            svma: begin,
            thumb: call.thumb,
            function: function.clone(),
            kind: match does {
                Does::Wake => ProbeKind::FutexWake,
                Does::Wait | Does::Either => ProbeKind::FutexWait,
            },
            site: Site::futex(&call, does),
            movable: free.at(begin, movable),
        });
        if does == Does::Wake {
            continue;
        }
        plan.ends.push(End {
            svma: call.next,
            thumb: call.thumb,
            function,
            kind: ProbeKind::FutexReturn,
            site: Site::returned(),
            movable: free.at(call.next, call.movable),
            of: vec![at],
        });
    }
}
