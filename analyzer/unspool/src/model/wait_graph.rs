//! The wait graph: the waits of all threads, and the threads that can end each wait.
//!
//! A node is a thread. An edge leads from a waiting thread to one that can end its wait. Edges come
//! from two sources: owners stored in objects (`snapshot`), and recorded calls (`recording`).
//! Findings are made from the combined graph, so that `inspect` and `report` agree.

mod closed_groups;
mod hangs;
mod processes;
mod recording;
mod snapshot;

use std::collections::HashSet;
use std::sync::Arc;

use super::backtrace::Backtrace;
use super::calls::PathId;
use super::finding::ObjectName;
use super::inspection::Inspection;
use super::{Finding, FindingKind, Model, ThreadIndex, Word, finding};
use crate::primitives::Kind;

/// Threads, what they wait for, and which threads can end that.
#[derive(Debug, Default)]
pub(super) struct WaitGraph {
    /// By [`ThreadIndex`].
    nodes: Vec<Node>,
    /// How the threads were read; none if they were not read at one time.
    moment: Option<Moment>,
    /// True if the program ended by itself, so that one of its threads was running.
    exited: bool,
}

/// Known facts at the time when all threads were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    /// True if no thread moved while the threads were read.
    stood: bool,
    /// Threads were read twice and may have taken turns in between.
    took_turns: bool,
    /// Signals whose handlers could end a wait; `None` if that is not known.
    handlers: Option<bool>,
    /// True if a timer sends a signal to such a handler.
    timers: bool,
    /// True if the thread ids that the program itself uses are known.
    ids_known: bool,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq)]
enum Node {
    /// The thread had ended, or had not begun.
    #[default]
    Absent,
    /// The thread runs, and may end another thread's wait.
    Active,
    /// The thread runs, and none of the code it can reach ends a wait.
    Bystander,
    /// The thread waits.
    Waiting(Box<Waiting>),
}

/// A wait.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    object: ObjectName,
    flavor: Vec<&'static str>,
    /// Ways in which it can end without another thread of the process.
    ends: Ends,
    /// True if all its facts were seen, and at one moment.
    sure: bool,
    /// True if the thread certainly still waits, and is not about to continue.
    lasting: bool,
    /// True if it has lasted long enough for conclusions from the behaviour of other threads.
    long: bool,
    /// True if the kernel refused the mutex. The thread then waits for nothing, and the mutex is
    /// inferred.
    refused: bool,
    /// True if the awaited object is not fully known.
    vague: bool,
    /// Facts about a futex word that is part of no known object.
    word: Word,
    /// Threads that must all act before the wait ends.
    edges: Vec<Edge>,
    /// Number of threads that hold a read-write lock for reading, if the lock counts them.
    readers: Option<u32>,
    /// The living threads that were seen to use a lock or to end waits at another object.
    users: Option<Vec<ThreadIndex>>,
    /// The call that waits, if it was recorded.
    path: Option<PathId>,
    /// The stack of the wait.
    stack: Option<Arc<Backtrace>>,
}

/// Causes other than a thread of the process that can end a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    timed: bool,
    shared: bool,
    moving: bool,
}

/// A thread that can end a wait.
#[derive(Clone, Debug, PartialEq)]
struct Edge {
    /// The thread; `None` if the process has no such thread.
    holder: Option<ThreadIndex>,
    /// Its id, if the object stores it.
    tid: Option<u64>,
    /// Where it took the awaited object.
    taken: Option<PathId>,
    /// True if the hold was seen.
    sure: bool,
    /// True if processes share the object, and none of them has the thread any more.
    is_gone: bool,
}

impl Waiting {
    /// True if only other threads of this process can end the wait.
    fn is_endless(&self) -> bool {
        !self.ends.timed && !self.ends.shared && !self.ends.moving && self.lasting
    }

    fn is_join(&self) -> bool {
        self.object.kind == Kind::Join
    }

    fn is_lock(&self) -> bool {
        self.object.kind.is_lock() || self.is_word(Word::LibraryLock)
    }

    fn is_word(&self, word: Word) -> bool {
        self.object.kind == Kind::Futex && self.word == word
    }
}

impl WaitGraph {
    fn waiting(&self, thread: ThreadIndex) -> Option<&Waiting> {
        match self.nodes.get(thread.0)? {
            Node::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    /// All waits, in the order of the threads.
    fn waits(&self) -> impl Iterator<Item = (ThreadIndex, &Waiting)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(index, node)| match node {
            Node::Waiting(waiting) => Some((ThreadIndex(index), &**waiting)),
            _ => None,
        })
    }

    /// Threads that exist, with their nodes.
    fn present(&self) -> impl Iterator<Item = (ThreadIndex, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| **node != Node::Absent)
            .map(|(index, node)| (ThreadIndex(index), node))
    }
}

/// The deadlocks of an inspection in which threads of other processes take part. Of some threads,
/// `stood` gives those that waited all together as they were inspected; others may have taken
/// turns.
///
/// Processes that were not inspected may use the same objects, but only its holder releases a lock.
pub(super) fn across_processes(
    model: &Model,
    inspection: &Inspection,
    stood: impl Fn(&HashSet<u64>) -> HashSet<u64>,
) -> Vec<Finding> {
    // The check takes some time for each thread, and most threads are in no deadlock.
    let mut moved = HashSet::new();
    loop {
        let found = if_all_stood(model, inspection, &moved);
        let threads = found.iter().flat_map(|finding| &finding.threads);
        let tids = threads.filter_map(|thread| model.any_thread(*thread)?.tid);
        let tids: HashSet<u64> = tids.collect();
        if tids.is_empty() {
            return found;
        }
        let stood = stood(&tids);
        if stood.len() == tids.len() {
            return found;
        }
        moved.extend(tids.difference(&stood));
    }
}

/// The deadlocks across processes if all threads but the `moved` ones waited together.
fn if_all_stood(model: &Model, inspection: &Inspection, moved: &HashSet<u64>) -> Vec<Finding> {
    let mut graph = WaitGraph::default();
    graph.add_inspection(model, inspection);
    for (index, node) in graph.nodes.iter_mut().enumerate() {
        let Node::Waiting(waiting) = node else {
            continue;
        };
        let tid = model.any_thread(ThreadIndex(index)).and_then(|it| it.tid);
        if tid.is_none_or(|tid| moved.contains(&tid)) {
            waiting.edges.clear();
        }
        if waiting.is_lock() && !waiting.edges.is_empty() {
            waiting.ends.shared = false;
            let is_sure = waiting.sure && waiting.is_endless();
            waiting
                .edges
                .iter_mut()
                .for_each(|edge| edge.sure = is_sure);
        }
    }
    // The findings of a process have the circles of its own threads.
    let across = graph.circles().into_iter().filter(|circle| {
        let mut pids = circle.iter().map(|(thread, _)| model.pid_of(*thread));
        let first = pids.next();
        pids.any(|pid| Some(pid) != first)
    });
    let mut found: Vec<Finding> = (across.map(|circle| graph.circle(model, &circle))).collect();
    found.extend(processes::find(model, inspection, moved));
    found
}

/// Replaces a model's findings about hangs: from its inspection alone, or from a recording and the
/// inspection at its end, if there was one.
pub(super) fn add_findings(model: &mut Model, at_end: Option<&Inspection>) {
    let mut graph = WaitGraph::of_recording(model);
    if let Some(inspection) = at_end {
        graph.add_inspection(model, inspection);
    }
    let hangs = graph.findings(model);
    model.findings.retain(|finding| !is_hang(finding.kind));
    add_hangs(model, hangs);
    finding::sort(&mut model.findings);
}

/// Adds hangs. A wait that never ends is no longer reported as a long wait.
pub(super) fn add_hangs(model: &mut Model, hangs: Vec<Finding>) {
    // The same address is another object in another process.
    let places = |finding: &Finding| -> Vec<(u64, Kind, u64)> {
        let threads = finding.threads.iter();
        let mut pids: Vec<u64> = threads.map(|thread| model.pid_of(*thread)).collect();
        if pids.is_empty() {
            pids.push(model.target.pid);
        }
        let of = |pid| (finding.objects.iter()).map(move |it| (pid, it.kind, it.address));
        pids.into_iter().flat_map(of).collect()
    };
    let of_lock = hangs
        .iter()
        .filter(|hang| hang.kind != FindingKind::LostWakeup);
    let stuck: HashSet<_> = of_lock.flat_map(places).collect();
    let is_stuck = |finding: &Finding| places(finding).iter().any(|place| stuck.contains(place));
    let is_kept = |finding: &Finding| {
        let is_load = matches!(
            finding.kind,
            FindingKind::Contention | FindingKind::Convoy | FindingKind::LongHold
        );
        !is_load || !is_stuck(finding)
    };
    let kept: Vec<bool> = model.findings.iter().map(is_kept).collect();
    let mut kept = kept.into_iter();
    model.findings.retain(|_| kept.next() == Some(true));
    model.findings.extend(hangs);
}

/// True if the finding means that threads cannot continue.
fn is_hang(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::Deadlock
            | FindingKind::SelfDeadlock
            | FindingKind::AbandonedLock
            | FindingKind::LostWakeup
    )
}
