//! Nodes and edges from an inspection: each thread's state, and the owners that objects store.

use super::{Edge, Ends, Moment, Node, WaitGraph, Waiting};
use crate::model::inspection::{HARMLESS_SIGNALS, Inspection, State, Wait};
use crate::model::{Model, ThreadIndex};
use crate::primitives::Kind;

impl WaitGraph {
    /// Adds the states that an inspection saw. They take precedence over a recording's conclusions
    /// about the same thread. The recording adds facts that no object stores.
    pub(super) fn add_inspection(&mut self, model: &Model, inspection: &Inspection) {
        // Threads of other processes come last.
        let threads = model.threads.len().max(inspection.states.len());
        self.nodes.resize(threads, Node::Absent);
        self.moment = Some(Moment {
            stood: inspection.stood,
            took_turns: !inspection.stood && inspection.doubtful.is_empty(),
            handlers: inspection
                .handled_signals
                .map(|signals| signals & !HARMLESS_SIGNALS != 0),
            timers: inspection.timers.contains(&model.target.pid),
            ids_known: inspection.ids_known,
        });
        for (index, known) in self.nodes.iter_mut().enumerate() {
            let thread = ThreadIndex(index);
            let state = inspection.state(thread);
            let node = match state {
                State::Unknown => continue,
                State::Absent => Node::Absent,
                _ => match state.wait() {
                    Some(wait) => Node::Waiting(Box::new(waiting(model, thread, wait))),
                    None if inspection.bystanders.contains(&thread) => Node::Bystander,
                    None => Node::Active,
                },
            };
            let before = std::mem::replace(known, node);
            if let (Node::Waiting(recorded), Node::Waiting(seen)) = (before, known) {
                add_recorded(seen, *recorded);
            }
        }
    }
}

fn waiting(model: &Model, thread: ThreadIndex, wait: &Wait) -> Waiting {
    let edge = |holder: &crate::model::Holder| Edge {
        holder: holder.thread,
        tid: Some(holder.tid),
        taken: None,
        sure: wait.proved && wait.is_endless(),
        is_gone: holder.is_gone,
    };
    Waiting {
        object: wait.object.clone(),
        flavor: wait.flavor.clone(),
        ends: Ends {
            timed: wait.timed,
            shared: wait.shared,
            moving: wait.moving,
        },
        sure: wait.proved,
        lasting: true,
        long: true,
        refused: wait.refused,
        vague: wait.unknown.is_some(),
        word: wait.word,
        edges: wait.holders.iter().map(edge).collect(),
        readers: wait.readers,
        users: None,
        path: None,
        stack: (model.any_thread(thread)).and_then(|thread| thread.stack.clone()),
    }
}

/// Adds a recording's facts to a wait, if both describe the same wait.
fn add_recorded(seen: &mut Waiting, recorded: Waiting) {
    let same_object = seen.object.address == recorded.object.address;
    let unnamed = seen.object.kind == Kind::Futex && recorded.object.kind != Kind::Futex;
    if !(same_object || unnamed || seen.is_join() && recorded.is_join()) {
        return;
    }
    if unnamed {
        seen.object = recorded.object;
    } else if seen.object.name.is_none() {
        seen.object.name = recorded.object.name;
    }
    // A recorded call tells which mutex it was that the kernel refused.
    let is_confirmed = seen.refused && recorded.sure && same_object;
    if is_confirmed {
        (seen.refused, seen.sure) = (false, true);
    }
    // The owner that an object stores is complete.
    let stored = !seen.edges.is_empty();
    for edge in recorded.edges {
        let same = |known: &&mut Edge| known.holder == edge.holder || known.tid == edge.tid;
        match seen.edges.iter_mut().find(same) {
            Some(known) => {
                known.taken = known.taken.or(edge.taken);
                known.holder = known.holder.or(edge.holder);
                known.sure |= is_confirmed && edge.sure;
            }
            None if !stored => seen.edges.push(edge),
            None => {}
        }
    }
    seen.users = recorded.users;
    seen.path = recorded.path;
}
