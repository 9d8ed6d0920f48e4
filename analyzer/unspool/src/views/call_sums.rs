//! The calls of a recording, summed over the wanted threads, and what of them is worth showing.
//!
//! Separate from the graph and the page, which show the same sums.

use std::collections::{BTreeMap, BTreeSet};

use super::wording;
use crate::model::Model;
use crate::model::call_graph::{CallGraph, Edge, Node};

/// The part of a call graph that a view can show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Maximum number of functions, however small the wanted share is.
    pub(super) max_functions: usize,
    /// The share, in percent, below which functions of a large graph are left out by default.
    min_share: f64,
}

/// A picture, which is unreadable with more functions.
pub(super) const PICTURE: Extent = Extent {
    max_functions: 120,
    min_share: 0.5,
};

/// A page with a search.
pub(super) const WHOLE: Extent = Extent {
    max_functions: usize::MAX,
    min_share: 0.0,
};

/// The selected part of a call graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cut {
    /// Only threads with this function, or with an identity that begins with this text.
    pub identity: Option<String>,
    /// The least share of all time or of all calls, in percent, of a function or an edge. `None`
    /// stands for 0.5 in a picture of a large graph, and otherwise for all functions.
    pub min_share: Option<f64>,
}

/// Number of functions of a graph that is small enough to be shown as a whole.
const SMALL: usize = 50;

/// The sums of the wanted threads.
#[derive(Debug, Default)]
pub(super) struct CallSums {
    /// By function.
    pub(super) nodes: BTreeMap<usize, Node>,
    /// By caller and callee.
    pub(super) edges: BTreeMap<(Option<usize>, usize), Edge>,
    /// Sum of the functions' self times, in nanoseconds.
    pub(super) total_ns: u64,
    /// Number of calls.
    pub(super) calls: u64,
    /// Minimum share of shown functions and edges, in percent.
    pub(super) min_share: f64,
    /// The functions worth showing.
    pub(super) shown: BTreeSet<usize>,
    /// The edges worth showing.
    pub(super) shown_edges: BTreeSet<(Option<usize>, usize)>,
}

/// The identities whose function has this name, or whose key begins with it (four digits or more).
pub fn identities(model: &Model, name: &str) -> Vec<usize> {
    let all = model.sync.identities.iter().enumerate();
    let meant = all.filter(|(_, (key, first, _))| {
        let title = |thread| wording::title(model, thread, usize::MAX) == name;
        let is_key = name.len() >= 4 && key.to_string().starts_with(name);
        is_key || model.thread(*first).is_some_and(title)
    });
    meant.map(|(at, _)| at).collect()
}

impl CallSums {
    pub(super) fn of(model: &Model, graph: &CallGraph, cut: &Cut, extent: Extent) -> CallSums {
        let identities = cut.identity.as_deref().map(|name| identities(model, name));
        let wanted = |identity| {
            identities
                .as_ref()
                .is_none_or(|all| all.contains(&identity))
        };
        let mut sums = CallSums::default();
        for node in graph.nodes.iter().filter(|node| wanted(node.identity)) {
            let sum = sums.nodes.entry(node.function).or_insert(Node {
                function: node.function,
                ..Node::default()
            });
            sum.calls += node.calls;
            sum.total_ns += node.total_ns;
            sum.self_ns += node.self_ns;
            sums.calls += node.calls;
            sums.total_ns += node.self_ns;
        }
        for edge in graph.edges.iter().filter(|edge| wanted(edge.identity)) {
            let key = (edge.caller, edge.callee);
            let sum = sums.edges.entry(key).or_insert(Edge {
                caller: edge.caller,
                callee: edge.callee,
                ..Edge::default()
            });
            sum.calls += edge.calls;
            sum.total_ns += edge.total_ns;
        }
        sums.min_share = cut.min_share.unwrap_or(match sums.nodes.len() {
            ..=SMALL => 0.0,
            _ => extent.min_share,
        });
        sums.choose(graph.has_times, extent.max_functions);
        sums
    }

    /// The share of all time, or of all calls where times are unknown, from 0 to 1.
    pub(super) fn share(&self, calls: u64, total_ns: u64, has_times: bool) -> f64 {
        match has_times {
            true => total_ns as f64 / self.total_ns.max(1) as f64,
            false => calls as f64 / self.calls.max(1) as f64,
        }
    }

    /// The larger share, of all time or of all calls, from 0 to 1.
    pub(super) fn larger_share(&self, calls: u64, total_ns: u64, has_times: bool) -> f64 {
        let of_calls = self.share(calls, total_ns, false);
        match has_times {
            true => of_calls.max(self.share(calls, total_ns, true)),
            false => of_calls,
        }
    }

    fn choose(&mut self, has_times: bool, max_functions: usize) {
        let min_share = self.min_share;
        let share = |calls, total_ns| self.larger_share(calls, total_ns, has_times);
        let is_enough = |share: f64| share * 100.0 >= min_share;
        let nodes = self.nodes.values();
        let mut nodes: Vec<(f64, usize)> = nodes
            .map(|node| (share(node.calls, node.total_ns), node.function))
            .filter(|(share, _)| is_enough(*share))
            .collect();
        nodes.sort_by(|(a, one), (b, other)| b.total_cmp(a).then(one.cmp(other)));
        nodes.truncate(max_functions);
        let shown: BTreeSet<usize> = nodes.into_iter().map(|(_, function)| function).collect();
        let is_shown = |function: &usize| shown.contains(function);
        let mut heaviest: BTreeMap<usize, (f64, Option<usize>)> = BTreeMap::new();
        let mut shown_edges = BTreeSet::new();
        // A caller without a node was not recorded itself, so it is always drawn.
        let is_drawn = |caller: &usize| is_shown(caller) || !self.nodes.contains_key(caller);
        for (key, edge) in &self.edges {
            if !is_shown(&edge.callee) || !edge.caller.as_ref().is_none_or(is_drawn) {
                continue;
            }
            let share = share(edge.calls, edge.total_ns);
            if is_enough(share) {
                shown_edges.insert(*key);
            }
            let best = heaviest.entry(edge.callee).or_insert((-1.0, None));
            if share > best.0 && edge.caller != Some(edge.callee) {
                *best = (share, edge.caller);
            }
        }
        // Each shown function keeps the edge from its heaviest caller.
        let callers = heaviest.into_iter().filter(|(_, (share, _))| *share >= 0.0);
        shown_edges.extend(callers.map(|(callee, (_, caller))| (caller, callee)));
        self.shown = shown;
        self.shown_edges = shown_edges;
    }
}
