//! Nodes and edges from a recording: calls that had not returned at its end, and the holders then.

use super::{Edge, Ends, Node, WaitGraph, Waiting};
use crate::model::Word;
use crate::model::finding::ObjectName;
use crate::model::sync::final_waits::{FinalWait, JUST_BEGUN_NS, LASTING_NS, is_alive};
use crate::model::{Creation, Model, ProgramEnd, ThreadIndex};

impl WaitGraph {
    /// The graph of a recording; empty for an inspection, and for a program without recorded calls.
    pub(super) fn of_recording(model: &Model) -> WaitGraph {
        let recording = &model.recording;
        let node = |thread: &crate::model::Thread| match is_alive(recording, thread)
            || thread.creation == Creation::Main
        {
            true => Node::Active,
            false => Node::Absent,
        };
        let mut nodes: Vec<Node> = model.threads.iter().map(node).collect();
        // A program that exited by itself had a running thread.
        let exited = matches!(recording.program_end, Some(ProgramEnd::Exited(_)));
        for wait in &model.sync.final_waits {
            if let Some(node) = nodes.get_mut(wait.thread.0) {
                *node = Node::Waiting(Box::new(waiting(model, wait)));
            }
        }
        WaitGraph {
            nodes,
            moment: None,
            exited,
        }
    }
}

fn waiting(model: &Model, wait: &FinalWait) -> Waiting {
    let sync = &model.sync;
    let object = sync.object(wait.object);
    let path = |used| sync.used(used).path;
    let long = wait.ns >= LASTING_NS;
    let edges = wait.holders.iter().filter(|holder| holder.sure || long);
    let edges = edges.map(|holder| Edge {
        holder: Some(holder.thread),
        tid: model.thread(holder.thread).and_then(|thread| thread.tid),
        taken: holder.taken.map(path),
        sure: holder.sure,
        is_gone: false,
    });
    let at = path(wait.used);
    let stack = sync.paths.get(at.0);
    Waiting {
        object: ObjectName {
            kind: object.kind,
            address: object.address,
            name: sync.name(object),
        },
        flavor: Vec::new(),
        ends: Ends {
            timed: wait.timed,
            ..Ends::default()
        },
        sure: wait.sure,
        lasting: wait.sure && wait.ns >= JUST_BEGUN_NS,
        long,
        refused: false,
        vague: false,
        word: Word::default(),
        edges: edges.collect(),
        readers: None,
        users: wait.users.clone(),
        path: Some(at),
        stack: stack.filter(|stack| !stack.frames.is_empty()).cloned(),
    }
}

/// True if a thread has ended, by the recording.
pub(super) fn has_ended(model: &Model, thread: ThreadIndex) -> bool {
    let thread = model.thread(thread);
    thread.is_some_and(|thread| !is_alive(&model.recording, thread))
}
