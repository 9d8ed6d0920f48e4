//! Findings of a look: circles of waits, locks of threads that have ended, waits that nobody can end.
//!
//! A finding is proved if each wait it stands on was seen at one moment and can be ended by nothing
//! else; what only looks so is said to be inferred.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Inspection, State, Wait};
use crate::model::circles::circles;
use crate::model::finding::{Evidence, Finding, FindingKind, ObjectName};
use crate::model::tasks::{runs_task, why_hung};
use crate::model::{Model, ThreadIndex};
use crate::primitives::Kind;

/// Names in a sentence; a circle of a thousand threads is told by its first ones.
const MOST_NAMED: usize = 6;
/// Signals with handlers that wake nobody: glibc's own, of thread cancellation and setuid (32 and 33), and those that a thread
/// raises by what it executes (SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV), for which Rust's runtime has handlers.
const HARMLESS_SIGNALS: u64 = 3 << 31 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10;

/// All that follows from what the threads did.
pub(in crate::model) fn findings(model: &Model, inspection: &Inspection) -> Vec<Finding> {
    let all = Findings { model, inspection };
    let mut findings = all.circles();
    findings.extend(all.abandoned());
    let concerned: BTreeSet<ThreadIndex> =
        findings.iter().flat_map(|f| f.threads.clone()).collect();
    let forsaken = all.forsaken(&concerned);
    if forsaken.is_none() {
        findings.extend(all.hung_pools());
    }
    findings.extend(forsaken);
    findings
}

/// By thread, what it holds.
type Held = BTreeMap<ThreadIndex, Vec<String>>;

struct Findings<'a> {
    model: &'a Model,
    inspection: &'a Inspection,
}

impl Findings<'_> {
    fn waits(&self) -> impl Iterator<Item = (ThreadIndex, &Wait)> {
        let states = self.inspection.states.iter().enumerate();
        states.filter_map(|(index, state)| Some((ThreadIndex(index), state.wait()?)))
    }

    fn circles(&self) -> Vec<Finding> {
        let mut edges = Vec::new();
        for (thread, wait) in self.waits() {
            let holders = wait.holders.iter().filter_map(|holder| holder.thread);
            edges.extend(holders.map(|holder| (thread.0, holder.0)));
        }
        let circles = circles(&edges);
        circles
            .into_iter()
            .map(|circle| self.circle(&circle))
            .collect()
    }

    fn circle(&self, circle: &[usize]) -> Finding {
        let threads: Vec<ThreadIndex> = circle.iter().copied().map(ThreadIndex).collect();
        let waits: Vec<&Wait> = threads
            .iter()
            .filter_map(|thread| self.inspection.state(*thread).wait())
            .collect();
        let proved = waits.iter().all(|wait| wait.proved && wait.is_endless());
        let alone = threads.len() == 1;
        let mut text = match (&waits[..], alone) {
            ([wait], true) if wait.object.kind == Kind::Join => {
                format!("{} waits for its own end.", capital(&self.name(threads[0])))
            }
            ([wait], true) => format!(
                "{} waits for {}, which it holds itself.",
                capital(&self.name(threads[0])),
                wait.what()
            ),
            _ => {
                let joins = waits.iter().all(|wait| wait.object.kind == Kind::Join);
                let what = if joins {
                    "each other's end"
                } else {
                    "each other"
                };
                format!(
                    "{} threads wait for {what}, and none of them can go on:",
                    threads.len()
                )
            }
        };
        let held = self.held(&threads);
        if !alone {
            for (at, thread) in threads.iter().enumerate().take(MOST_NAMED) {
                text.push_str(&format!(
                    "{} {} {}",
                    if at == 0 { "" } else { ";" },
                    self.name(*thread),
                    self.clause(*thread, &held)
                ));
            }
            match threads.len().saturating_sub(MOST_NAMED) {
                0 => text.push('.'),
                more => text.push_str(&format!("; and so on, {more} more.")),
            }
        }
        text.push_str(&self.reservations(&waits));
        let locks = waits.iter().filter(|wait| wait.object.kind != Kind::Join);
        let objects = objects(locks.copied());
        Finding {
            kind: if alone {
                FindingKind::SelfDeadlock
            } else {
                FindingKind::Deadlock
            },
            proved,
            circle: true,
            objects,
            text,
            evidence: self.evidence(&threads, &held),
            threads,
        }
    }

    /// What each thread of a circle holds of that which another one of it waits for.
    fn held(&self, circle: &[ThreadIndex]) -> Held {
        let mut held = Held::new();
        for waiter in circle {
            let Some(wait) = self.inspection.state(*waiter).wait() else {
                continue;
            };
            if wait.object.kind == Kind::Join {
                continue;
            }
            for holder in wait.holders.iter().filter_map(|holder| holder.thread) {
                if holder == *waiter && circle.len() > 1 {
                    continue;
                }
                let (what, list) = (wait.what(), held.entry(holder).or_default());
                if !list.contains(&what) {
                    list.push(what);
                }
            }
        }
        held
    }

    /// `holds mutex a and waits for mutex b, held by thread 7 (writer)`, as seen from its circle.
    fn clause(&self, thread: ThreadIndex, held: &Held) -> String {
        let mut clause = match held.get(&thread) {
            None => String::new(),
            Some(held) => format!("holds {} and ", held.join(" and ")),
        };
        if let Some(wait) = self.inspection.state(thread).wait() {
            clause.push_str(&format!("waits for {}", wait.what()));
        }
        clause
    }

    fn evidence(&self, threads: &[ThreadIndex], held: &Held) -> Vec<Evidence> {
        let each = |thread: &ThreadIndex| Evidence {
            thread: *thread,
            what: self.clause(*thread, held),
            stack: self
                .model
                .thread(*thread)
                .and_then(|thread| thread.stack.clone()),
        };
        threads.iter().map(each).collect()
    }

    /// Why what looks like the end is perhaps none.
    fn reservations(&self, waits: &[&Wait]) -> String {
        let mut text = String::new();
        if waits.iter().any(|wait| wait.timed) {
            text.push_str(" It ends when the time of a wait with a limit is up.");
        }
        if waits.iter().any(|wait| wait.refused) {
            text.push_str(
                " The kernel has refused a thread its mutex, for it could never have it, and the C library lets that thread wait for \
                 ever; which mutex it was is inferred from its stack.",
            );
        }
        if waits.iter().any(|wait| wait.shared) {
            text.push_str(
                " Processes share an object here: that the number it has of its holder means a thread of this process, and \
                 not one of another PID namespace, is an assumption.",
            );
        }
        if waits
            .iter()
            .any(|wait| !wait.proved && !wait.refused && wait.unknown.is_none())
        {
            text.push_str(" The threads and the objects were read one after another, so some may have moved meanwhile.");
        }
        text
    }

    /// Objects whose holder is no thread of the process.
    fn abandoned(&self) -> Vec<Finding> {
        let mut by_object: BTreeMap<(u64, u64), Vec<(ThreadIndex, &Wait)>> = BTreeMap::new();
        for (thread, wait) in self.waits() {
            let gone = wait.holders.iter().find(|holder| holder.thread.is_none());
            if let Some(holder) = gone
                && matches!(wait.object.kind, Kind::Mutex | Kind::Rwlock)
                && !wait.shared
            {
                let waiters = by_object
                    .entry((wait.object.address, holder.tid))
                    .or_default();
                waiters.push((thread, wait));
            }
        }
        let findings = by_object.into_iter().map(|((_, tid), waiters)| {
            let threads: Vec<ThreadIndex> = waiters.iter().map(|(thread, _)| *thread).collect();
            let wait = waiters[0].1;
            let who = match &threads[..] {
                [one] => format!("{} waits", capital(&self.name(*one))),
                all => format!("{} threads wait", all.len()),
            };
            let mut text = format!(
                "{who} for {}, which is held by thread {tid}; but this process has no such thread. It has ended, or it held \
                 the lock in the parent when this process was forked (or the lock's memory is damaged): nobody will give \
                 it up.",
                wait.what()
            );
            let waits: Vec<&Wait> = waiters.iter().map(|(_, wait)| *wait).collect();
            text.push_str(&self.reservations(&waits));
            if !self.inspection.ids_known {
                text.push_str(" That the program knows its threads by the same numbers as the server is an assumption.");
            }
            Finding {
                kind: FindingKind::AbandonedLock,
                // What became of a thread that is not there is a conclusion.
                proved: false,
                circle: false,
                objects: vec![wait.object.clone()],
                text,
                evidence: self.evidence(&threads, &self.held(&threads)),
                threads,
            }
        });
        findings.collect()
    }

    /// Nobody runs, and nobody can be made to: what threads wait for can never come.
    fn forsaken(&self, concerned: &BTreeSet<ThreadIndex>) -> Option<Finding> {
        let states: Vec<&State> = self.inspection.present().collect();
        let endless = |wait: &Wait| wait.is_endless();
        let all =
            !states.is_empty() && states.iter().all(|state| state.wait().is_some_and(endless));
        // Who ends in a circle, or at a lock of nobody, waits for that; who waits for a thread that waits, for that one.
        let rest: Vec<(ThreadIndex, &Wait)> = self
            .waits()
            .filter(|(thread, wait)| wait.holders.is_empty() && !concerned.contains(thread))
            .collect();
        // Where threads were looked at twice, and may have taken turns nevertheless, that each waits says nothing.
        let took_turns = !self.inspection.stood && self.inspection.doubtful.is_empty();
        if !all || rest.is_empty() || took_turns {
            return None;
        }
        let threads: Vec<ThreadIndex> = rest.iter().map(|(thread, _)| *thread).collect();
        let locks = rest
            .iter()
            .all(|(_, wait)| matches!(wait.object.kind, Kind::Mutex | Kind::Rwlock));
        let handled = self
            .inspection
            .handled_signals
            .map(|signals| signals & !HARMLESS_SIGNALS);
        // Who holds what does not matter: nobody does anything.
        let proved = handled == Some(0) && self.inspection.stood;
        let mut text = match &states[..] {
            [_] => "The only thread waits, and nobody is left to wake it: ".to_owned(),
            [_, _] => "Both threads wait, and nobody is left to wake them: ".to_owned(),
            all => format!(
                "All {} threads wait, and nobody is left to wake any of them: ",
                all.len()
            ),
        };
        for (at, (thread, wait)) in rest.iter().enumerate().take(MOST_NAMED) {
            let readers = match wait.readers {
                Some(count) => format!(" (held by {count} for reading)"),
                None => String::new(),
            };
            text.push_str(&format!(
                "{}{} waits {} {}{readers}",
                if at == 0 { "" } else { "; " },
                self.name(*thread),
                if locks { "for" } else { "at" },
                wait.what()
            ));
        }
        match rest.len().saturating_sub(MOST_NAMED) {
            0 => text.push('.'),
            more => text.push_str(&format!("; and so on, {more} more.")),
        }
        match handled {
            Some(0) => {}
            Some(_) => text.push_str(" Only a handler of a signal could."),
            None => text.push_str(" Unless a handler of a signal does."),
        }
        let objects = objects(rest.iter().map(|(_, wait)| *wait));
        Some(Finding {
            kind: if locks {
                FindingKind::Deadlock
            } else {
                FindingKind::LostWakeup
            },
            proved,
            circle: false,
            objects,
            text,
            evidence: self.evidence(&threads, &self.held(&threads)),
            threads,
        })
    }

    /// Threads of one function, all of which wait for futures that they alone could provide.
    fn hung_pools(&self) -> Vec<Finding> {
        let mut pools: BTreeMap<&str, Vec<ThreadIndex>> = BTreeMap::new();
        for (index, thread) in self.model.threads.iter().enumerate() {
            let function = thread.function.as_ref();
            if *self.inspection.state(ThreadIndex(index)) == State::Absent {
                continue;
            }
            if let Some(function) = function.and_then(|place| place.function.as_deref()) {
                pools.entry(function).or_default().push(ThreadIndex(index));
            }
        }
        let hangs = |thread: &ThreadIndex| {
            let wait = self.inspection.state(*thread).wait();
            let stack = self.model.thread(*thread).and_then(|t| t.stack.as_deref());
            wait.is_some_and(|wait| wait.object.kind == Kind::Future && wait.is_endless())
                && stack.is_some_and(runs_task)
        };
        pools.retain(|_, threads| threads.iter().all(hangs));
        let finding = |(function, threads): (&str, Vec<ThreadIndex>)| {
            let waits = threads.iter();
            let waits = waits.filter_map(|thread| self.inspection.state(*thread).wait());
            Finding {
                kind: FindingKind::LostWakeup,
                proved: false,
                circle: false,
                objects: objects(waits),
                text: why_hung(threads.len(), function),
                evidence: self.evidence(&threads, &Held::new()),
                threads,
            }
        };
        pools.into_iter().map(finding).collect()
    }

    /// `thread 7 (writer)`
    fn name(&self, thread: ThreadIndex) -> String {
        self.model.thread_name(thread)
    }
}

/// What is waited for, each once.
fn objects<'a>(waits: impl Iterator<Item = &'a Wait>) -> Vec<ObjectName> {
    let mut known = HashSet::new();
    let new = waits.filter(|wait| known.insert(&wait.object));
    new.map(|wait| wait.object.clone()).collect()
}

fn capital(text: &str) -> String {
    let mut text = text.to_owned();
    if text.is_char_boundary(1) {
        text[..1].make_ascii_uppercase();
    }
    text
}
