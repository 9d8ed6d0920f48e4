//! The wait graph: which thread waits for what, and which threads can end that wait.
//!
//! A node is a thread, an edge leads from a waiting thread to one that can end its wait. Edges come
//! from two sources: an inspection reads owners off the objects (`snapshot`), and a recording knows
//! who took what and who used what (`recording`). Findings are made here, once, of the graph that
//! both filled, so that `inspect` and `report` say the same of the same hang.

mod circles;
mod closed_groups;
mod hangs;
mod recording;
mod snapshot;

use std::sync::Arc;

use super::backtrace::Backtrace;
use super::calls::PathId;
use super::finding::ObjectName;
use super::inspection::Inspection;
use super::{FindingKind, Model, ThreadIndex, finding};
use crate::primitives::Kind;

/// Threads, what they wait for, and which threads can end that.
#[derive(Debug, Default)]
pub(super) struct WaitGraph {
    /// By [`ThreadIndex`].
    nodes: Vec<Node>,
    /// How the threads were read, if they were read at one time.
    moment: Option<Moment>,
    /// The program ended by itself, so one of its threads went on.
    exited: bool,
}

/// Known facts at the time when all threads were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    /// No thread moved meanwhile.
    stood: bool,
    /// Threads were read twice and may have taken turns in between.
    took_turns: bool,
    /// Signals whose handlers could end a wait; `None` if that is not known.
    handlers: Option<bool>,
    /// The ids by which the program knows its threads are known.
    ids_known: bool,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq)]
enum Node {
    /// It had ended, or had not begun.
    #[default]
    Absent,
    /// It goes on, and may end the wait of another thread.
    Active,
    /// It goes on, and all code that it can come to ends no wait.
    Bystander,
    /// It waits.
    Waiting(Box<Waiting>),
}

/// A wait.
#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    object: ObjectName,
    flavor: Vec<&'static str>,
    /// It can end by itself, or from outside the process.
    ends: Ends,
    /// Everything it says was seen, and at one moment.
    sure: bool,
    /// It is certain that the thread still waits, rather than being about to go on.
    lasting: bool,
    /// It has lasted long enough to conclude something from what others do not do.
    long: bool,
    /// Which mutex it waits for is inferred: the kernel refused it, and the thread waits for
    /// nothing.
    refused: bool,
    /// What it waits for is not fully known.
    vague: bool,
    /// Threads of which each has to act before the wait ends.
    edges: Vec<Edge>,
    /// How many threads hold a read-write lock for reading, if the lock counts them.
    readers: Option<u32>,
    /// The living threads that were seen to use a lock or to end waits at another object.
    users: Option<Vec<ThreadIndex>>,
    /// The call that waits, if it was recorded.
    path: Option<PathId>,
    /// The stack of the wait.
    stack: Option<Arc<Backtrace>>,
}

/// What else than another thread of the process can end a wait.
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
    /// Its id, as far as the object tells one.
    tid: Option<u64>,
    /// Where it took what the other waits for.
    taken: Option<PathId>,
    /// That it holds it was seen.
    sure: bool,
}

impl Waiting {
    /// Only other threads of this process can end it.
    fn is_endless(&self) -> bool {
        !self.ends.timed && !self.ends.shared && !self.ends.moving && self.lasting
    }

    fn is_join(&self) -> bool {
        self.object.kind == Kind::Join
    }

    fn is_lock(&self) -> bool {
        matches!(self.object.kind, Kind::Mutex | Kind::Rwlock)
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

    /// The threads that are there.
    fn present(&self) -> impl Iterator<Item = (ThreadIndex, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| **node != Node::Absent)
            .map(|(index, node)| (ThreadIndex(index), node))
    }
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
    // A thread that waits forever does not wait for long.
    let stuck = |object: &ObjectName| {
        let of_lock = hangs
            .iter()
            .filter(|hang| hang.kind != FindingKind::LostWakeup);
        let mut objects = of_lock.flat_map(|hang| &hang.objects);
        objects.any(|other| (other.kind, other.address) == (object.kind, object.address))
    };
    model.findings.retain(|finding| {
        let is_load = matches!(
            finding.kind,
            FindingKind::Contention | FindingKind::Convoy | FindingKind::LongHold
        );
        !is_load || !finding.objects.iter().any(stuck)
    });
    model.findings.extend(hangs);
    finding::sort(&mut model.findings);
}

/// Threads that cannot go on.
fn is_hang(kind: FindingKind) -> bool {
    matches!(
        kind,
        FindingKind::Deadlock
            | FindingKind::SelfDeadlock
            | FindingKind::AbandonedLock
            | FindingKind::LostWakeup
    )
}
