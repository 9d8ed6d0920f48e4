//! The lock order in the report's JSON.

use serde::Serialize;

use super::sync::key;
use crate::model::sync::LockOrder;
use crate::model::{Model, ThreadIndex};
use crate::views::wording;

/// A lock that was taken while another was held.
#[derive(Serialize)]
pub(in crate::views) struct JsonOrderEdge {
    held: usize,
    taken: usize,
    count: u64,
    first_ns: u64,
    threads: usize,
    thread_keys: Vec<String>,
    held_path: usize,
    taken_path: usize,
    circle: bool,
    finding: Option<usize>,
    circle_note: Option<String>,
}

/// All pairs, by held and then by taken object.
pub(in crate::views) fn edges(model: &Model) -> Vec<JsonOrderEdge> {
    let sync = &model.sync;
    let findings = LockOrder::findings(&model.findings);
    let edges = sync.lock_order.edges.iter().map(|edge| {
        let of = |thread: &ThreadIndex| sync.identity_of.get(thread.0).copied();
        let mut identities: Vec<usize> = edge.threads.iter().filter_map(of).collect();
        identities.sort_unstable();
        identities.dedup();
        let finding = findings.get(&(edge.held, edge.taken)).copied();
        JsonOrderEdge {
            held: edge.held.0,
            taken: edge.taken.0,
            count: edge.count,
            first_ns: edge.first_ns,
            threads: edge.threads.len(),
            thread_keys: identities.into_iter().map(|at| key(sync, at)).collect(),
            held_path: sync.used(edge.held_at).path.0,
            taken_path: sync.used(edge.taken_at).path.0,
            circle: edge.in_circle,
            finding,
            circle_note: wording::circle_note(model, edge, finding),
        }
    });
    edges.collect()
}
