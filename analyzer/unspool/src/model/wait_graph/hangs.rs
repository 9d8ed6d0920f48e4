//! Finds hangs in the wait graph: circles, locks whose holder has ended, and waits that no thread
//! can end.
//!
//! A finding is proved if all its waits were seen at one moment and nothing else can end them.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::closed_groups::Group;
use super::recording::has_ended;
use super::{Edge, Node, WaitGraph, Waiting};
use crate::model::circles::circles;
use crate::model::finding::{
    Awaited, Doubt, Evidence, Facts, Finding, FindingKind, Hang, HangReason, HangWait, ObjectName,
    Shows,
};
use crate::model::{Model, ThreadIndex, Word};
use crate::primitives::Kind;

/// Limit of stacks given as evidence where threads wait at one object.
const MAX_STACKS: usize = 64;

/// The objects that each thread of a circle holds and others wait for, with the place of
/// acquisition.
type Held = BTreeMap<ThreadIndex, Vec<(Awaited, Option<crate::model::calls::PathId>)>>;

impl WaitGraph {
    /// Returns all findings that follow from the graph.
    pub(super) fn findings(&self, model: &Model) -> Vec<Finding> {
        let circles = self.circles();
        let mut findings: Vec<Finding> = circles
            .iter()
            .filter(|circle| self.is_possible(circle))
            .map(|circle| self.circle(model, circle))
            .collect();
        findings.extend(self.abandoned(model));
        let explained: BTreeSet<ThreadIndex> = findings
            .iter()
            .flat_map(|finding| finding.threads.clone())
            .collect();
        match self.all_wait(model, &explained) {
            Some(finding) => findings.push(finding),
            None => {
                let groups = self.closed_groups(model, &explained);
                findings.extend(groups.into_iter().map(|group| self.group(model, group)));
            }
        }
        findings
    }

    /// Circles of waits, each with the edges that close it.
    pub(super) fn circles(&self) -> Vec<Vec<(ThreadIndex, &Edge)>> {
        let mut pairs = Vec::new();
        for (thread, waiting) in self.waits() {
            let holders = waiting.edges.iter().filter_map(|edge| edge.holder);
            pairs.extend(holders.map(|holder| (thread.0, holder.0)));
        }
        let edge = |from: usize, to: usize| {
            let thread = ThreadIndex(from);
            let mut edges = self.waiting(thread)?.edges.iter();
            let edge = edges.find(|edge| edge.holder == Some(ThreadIndex(to)))?;
            Some((thread, edge))
        };
        let with_edges = |circle: &Vec<usize>| -> Option<Vec<_>> {
            let next = circle.iter().cycle().skip(1);
            circle.iter().zip(next).map(|(a, b)| edge(*a, *b)).collect()
        };
        let all = circles(&pairs);
        // Readers that all upgrade one lock wait for each other and for themselves: one hang.
        let is_part = |circle: &&Vec<usize>| {
            let object = |thread: usize| {
                let waiting = self.waiting(ThreadIndex(thread));
                waiting.map(|waiting| (waiting.object.kind, waiting.object.address))
            };
            let [alone] = circle[..] else { return false };
            all.iter().any(|other| {
                other.len() > 1
                    && other.contains(&alone)
                    && other.iter().all(|one| object(*one) == object(alone))
            })
        };
        let kept = all.iter().filter(|circle| !is_part(circle));
        kept.filter_map(with_edges).collect()
    }

    /// True if the circle is consistent. A mutex has one holder, so each thread must wait for
    /// another mutex; states read at different moments may contradict this.
    fn is_possible(&self, circle: &[(ThreadIndex, &Edge)]) -> bool {
        let mut seen = HashSet::new();
        let waits = circle
            .iter()
            .filter_map(|(thread, _)| self.waiting(*thread));
        let mut mutexes = waits.filter(|waiting| waiting.object.kind == Kind::Mutex);
        mutexes.all(|waiting| seen.insert(waiting.object.address))
    }

    pub(super) fn circle(&self, model: &Model, circle: &[(ThreadIndex, &Edge)]) -> Finding {
        let threads: Vec<ThreadIndex> = circle.iter().map(|(thread, _)| *thread).collect();
        let alone = threads.len() == 1;
        let held = self.held(circle);
        let mut doubts = self.doubts(&threads);
        let proved = circle.iter().all(|(_, edge)| edge.sure);
        if !proved && self.moment.is_none() && !doubts.contains(&Doubt::Timed) {
            doubts.push(Doubt::EventsMissing);
        }
        let locks = threads.iter().filter_map(|thread| self.waiting(*thread));
        let locks = locks.filter(|waiting| !waiting.is_join());
        Finding {
            kind: match alone {
                true => FindingKind::SelfDeadlock,
                false => FindingKind::Deadlock,
            },
            proved,
            circle: true,
            objects: objects(locks),
            evidence: self.evidence(model, &threads, &held),
            facts: Facts::Hang(Hang {
                reason: HangReason::Circle,
                waits: self.hang_waits(&threads, &held),
                doubts,
            }),
            threads,
        }
    }

    fn held(&self, circle: &[(ThreadIndex, &Edge)]) -> Held {
        let mut held = Held::new();
        for (waiter, edge) in circle {
            let Some(waiting) = self.waiting(*waiter) else {
                continue;
            };
            if let Some(holder) = edge.holder
                && !waiting.is_join()
            {
                let list = held.entry(holder).or_default();
                list.push((awaited(waiting), edge.taken));
            }
        }
        held
    }

    fn hang_waits(&self, threads: &[ThreadIndex], held: &Held) -> Vec<HangWait> {
        let wait = |thread: &ThreadIndex| {
            let waiting = self.waiting(*thread)?;
            let holds = held.get(thread).map_or(&[][..], Vec::as_slice);
            Some(HangWait {
                thread: *thread,
                awaited: awaited(waiting),
                path: waiting.path,
                holds: holds.iter().map(|(awaited, _)| awaited.clone()).collect(),
                taken: holds.iter().find_map(|(_, taken)| *taken),
            })
        };
        threads.iter().filter_map(wait).collect()
    }

    /// The stacks of the waits, and of the acquisitions of the objects that others wait for.
    fn evidence(&self, model: &Model, threads: &[ThreadIndex], held: &Held) -> Vec<Evidence> {
        let mut evidence = Vec::new();
        for thread in threads.iter().take(MAX_STACKS) {
            let Some(waiting) = self.waiting(*thread) else {
                continue;
            };
            let mut holds = Vec::new();
            for (awaited, taken) in held.get(thread).into_iter().flatten() {
                match taken.and_then(|path| model.sync.paths.get(path.0)) {
                    Some(stack) => evidence.push(Evidence {
                        thread: *thread,
                        shows: Shows::Took {
                            object: awaited.object.clone(),
                            ended: false,
                        },
                        stack: Some(stack.clone()).filter(|stack| !stack.frames.is_empty()),
                    }),
                    None => holds.push(awaited.clone()),
                }
            }
            evidence.push(Evidence {
                thread: *thread,
                shows: Shows::Waits {
                    holds,
                    awaited: awaited(waiting),
                },
                stack: waiting.stack.clone(),
            });
        }
        evidence
    }

    /// Reasons why the waits may end after all.
    fn doubts(&self, threads: &[ThreadIndex]) -> Vec<Doubt> {
        let waits: Vec<&Waiting> = threads
            .iter()
            .filter_map(|thread| self.waiting(*thread))
            .collect();
        let any = |has: fn(&Waiting) -> bool| waits.iter().any(|waiting| has(waiting));
        let read_apart = |waiting: &Waiting| !waiting.sure && !waiting.refused && !waiting.vague;
        let mut doubts = Vec::new();
        if any(|waiting| waiting.ends.timed) {
            doubts.push(Doubt::Timed);
        }
        if any(|waiting| waiting.refused) {
            doubts.push(Doubt::Refused);
        }
        if any(|waiting| waiting.ends.shared) {
            doubts.push(Doubt::Shared);
        }
        if self.moment.is_some() && any(read_apart) {
            doubts.push(Doubt::ReadApart);
        }
        doubts
    }

    /// Locks whose holder is not a thread of the process.
    fn abandoned(&self, model: &Model) -> Vec<Finding> {
        let mut by_object: BTreeMap<_, Vec<(ThreadIndex, &Edge)>> = BTreeMap::new();
        for (thread, waiting) in self.waits() {
            let gone = |edge: &&Edge| match edge.holder {
                None => true,
                Some(holder) => {
                    self.nodes.get(holder.0) == Some(&Node::Absent) || has_ended(model, holder)
                }
            };
            if waiting.is_lock()
                && let Some(edge) = waiting.edges.iter().find(gone)
                && (!waiting.ends.shared || edge.is_gone)
            {
                let waiters = by_object.entry((waiting.object.address, edge.tid));
                waiters.or_default().push((thread, edge));
            }
        }
        let findings = by_object.into_values().filter_map(|waiters| {
            let (first, edge) = waiters.first()?;
            let object = self.waiting(*first)?.object.clone();
            let threads: Vec<ThreadIndex> = waiters.iter().map(|(thread, _)| *thread).collect();
            let mut doubts = self.doubts(&threads);
            if self.moment.is_some_and(|moment| !moment.ids_known) {
                doubts.push(Doubt::IdsAssumed);
            }
            doubts.retain(|doubt| *doubt != Doubt::Shared);
            let took = edge.taken.and_then(|path| model.sync.paths.get(path.0));
            let took = edge.holder.zip(took).map(|(thread, stack)| Evidence {
                thread,
                shows: Shows::Took {
                    object: object.clone(),
                    ended: true,
                },
                stack: Some(stack.clone()),
            });
            let mut evidence: Vec<Evidence> = took.into_iter().collect();
            evidence.extend(self.evidence(model, &threads, &Held::new()));
            Some(Finding {
                kind: FindingKind::AbandonedLock,
                // The fate of a thread whose end was not recorded is inferred.
                proved: waiters
                    .iter()
                    .all(|(_, edge)| edge.sure && edge.holder.is_some()),
                circle: false,
                objects: vec![object],
                facts: Facts::Hang(Hang {
                    reason: HangReason::HolderGone {
                        tid: edge.tid,
                        holder: edge.holder,
                        shared: edge.is_gone,
                    },
                    waits: self.hang_waits(&threads, &Held::new()),
                    doubts,
                }),
                evidence,
                threads: edge.holder.into_iter().chain(threads).collect(),
            })
        });
        findings.collect()
    }

    /// Finds the hang of all threads, bystanders excepted: no thread can end any of the waits.
    fn all_wait(&self, model: &Model, explained: &BTreeSet<ThreadIndex>) -> Option<Finding> {
        // A bystander may end, or release what it holds, which is a wake-up, too.
        let is_for_bystander = |waiting: &Waiting| {
            let holders = waiting.edges.iter().filter_map(|edge| edge.holder);
            let mut nodes = holders.filter_map(|holder| self.nodes.get(holder.0));
            nodes.any(|node| *node == Node::Bystander)
        };
        let stuck = |node: &Node| match node {
            Node::Waiting(waiting) => waiting.is_endless() && !is_for_bystander(waiting),
            Node::Bystander => true,
            Node::Absent | Node::Active => false,
        };
        let all = self.present().all(|(_, node)| stuck(node));
        // The wait for a waiting thread is explained by that thread's own wait.
        let rest = self.waits().filter(|(thread, waiting)| {
            waiting.edges.is_empty() && !waiting.is_join() && !explained.contains(thread)
        });
        let rest: Vec<(ThreadIndex, &Waiting)> = rest.collect();
        // Threads that were read twice and took turns may never have waited at the same time.
        let took_turns = self.moment.is_some_and(|moment| moment.took_turns);
        if !all || rest.is_empty() || took_turns || self.exited {
            return None;
        }
        let threads: Vec<ThreadIndex> = rest.iter().map(|(thread, _)| *thread).collect();
        let unnamed = |(_, waiting): &(_, &Waiting)| waiting.is_word(Word::Unnamed);
        let locks = rest.iter().any(|(_, waiting)| waiting.is_lock())
            && (rest.iter()).all(|one| one.1.is_lock() || unnamed(one));
        // A handler may post a semaphore (signal-safety(7)), but not end another wait.
        let is_posted =
            |(_, waiting): &(_, &Waiting)| matches!(waiting.object.kind, Kind::Sem | Kind::Futex);
        if self.moment.is_some_and(|moment| moment.timers) && rest.iter().any(is_posted) {
            return None;
        }
        let bystanders = self.present().filter(|(_, node)| **node == Node::Bystander);
        let bystanders: Vec<ThreadIndex> = bystanders.map(|(thread, _)| thread).collect();
        let mut doubts = Vec::new();
        match self.moment.map(|moment| moment.handlers) {
            Some(Some(false)) => {}
            Some(Some(true)) => doubts.push(Doubt::SignalHandler),
            Some(None) | None => doubts.push(Doubt::SignalsUnknown),
        }
        if rest.iter().any(unnamed) {
            doubts.push(Doubt::Unnamed);
        }
        Some(Finding {
            kind: kind_of(locks),
            // The holders do not matter, because no thread runs.
            proved: doubts.is_empty()
                && bystanders.is_empty()
                && self.moment.is_some_and(|moment| moment.stood),
            circle: false,
            objects: objects(rest.iter().map(|(_, waiting)| *waiting)),
            evidence: self.evidence(model, &threads, &Held::new()),
            facts: Facts::Hang(Hang {
                reason: HangReason::AllWait {
                    waiting: self.waits().count(),
                    bystanders,
                },
                waits: self.hang_waits(&threads, &Held::new()),
                doubts,
            }),
            threads,
        })
    }

    /// A group of threads that only its members could wake.
    fn group(&self, model: &Model, group: Group) -> Finding {
        let Group { threads, reason } = group;
        let waits: Vec<&Waiting> = threads
            .iter()
            .filter_map(|thread| self.waiting(*thread))
            .collect();
        Finding {
            kind: kind_of(waits.iter().all(|waiting| waiting.is_lock())),
            proved: false,
            circle: false,
            objects: objects(waits.into_iter()),
            evidence: self.evidence(model, &threads, &Held::new()),
            facts: Facts::Hang(Hang {
                reason,
                waits: self.hang_waits(&threads, &Held::new()),
                doubts: self.doubts(&threads),
            }),
            threads,
        }
    }
}

fn kind_of(locks: bool) -> FindingKind {
    match locks {
        true => FindingKind::Deadlock,
        false => FindingKind::LostWakeup,
    }
}

fn awaited(waiting: &Waiting) -> Awaited {
    let joined = waiting.edges.first().and_then(|edge| edge.tid);
    Awaited {
        object: waiting.object.clone(),
        flavor: waiting.flavor.clone(),
        joined: joined.filter(|_| waiting.is_join()),
        readers: waiting.readers,
    }
}

/// The objects that are waited for, each once.
fn objects<'a>(waits: impl Iterator<Item = &'a Waiting>) -> Vec<ObjectName> {
    let mut known = HashSet::new();
    let new = waits.filter(|waiting| known.insert(&waiting.object));
    new.map(|waiting| waiting.object.clone()).collect()
}
