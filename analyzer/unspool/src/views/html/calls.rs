//! The call graph as a page.

use std::io::{self, Write};

use serde::Serialize;

use super::{encode, page};
use crate::model::Model;
use crate::model::call_graph::CallGraph;
use crate::views::call_sums::{CallSums, Cut, WHOLE};
use crate::views::graph;
use crate::views::text::frames;

#[derive(Serialize)]
struct Data {
    title: String,
    has_times: bool,
    total_ns: u64,
    calls: u64,
    functions: Vec<Function>,
    edges: Vec<Edge>,
}

/// A function; the sums are missing if only its calls of others were recorded.
#[derive(Serialize)]
struct Function {
    name: String,
    module: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    sums: Option<Sums>,
}

#[derive(Serialize)]
struct Sums {
    calls: u64,
    total_ns: u64,
    self_ns: u64,
    /// The greater share, of the time or of the calls, in percent.
    share: f64,
}

/// Caller and callee are indices of functions.
#[derive(Serialize)]
struct Edge {
    caller: Option<usize>,
    callee: usize,
    calls: u64,
    total_ns: u64,
}

/// Writes the page with the calls of the wanted threads.
pub(in crate::views) fn write(model: &Model, cut: &Cut, out: &mut dyn Write) -> io::Result<()> {
    let nothing = CallGraph::default();
    let graph = model.call_graph.as_ref().unwrap_or(&nothing);
    let sums = CallSums::of(model, graph, cut, WHOLE);
    let functions = graph.functions.iter().enumerate().map(|(index, place)| {
        let node = sums.nodes.get(&index);
        let node = node.filter(|_| sums.shown.contains(&index));
        Function {
            name: frames::function(place, usize::MAX),
            module: place.module_name().map(str::to_owned),
            file: place.file.as_deref().map(str::to_owned),
            line: place.line,
            sums: node.map(|node| Sums {
                calls: node.calls,
                total_ns: node.total_ns,
                self_ns: node.self_ns,
                share: 100.0 * sums.larger_share(node.calls, node.total_ns, graph.has_times),
            }),
        }
    });
    let edges = sums.shown_edges.iter().map(|key| &sums.edges[key]);
    let edges = edges.map(|edge| Edge {
        caller: edge.caller,
        callee: edge.callee,
        calls: edge.calls,
        total_ns: edge.total_ns,
    });
    let data = Data {
        title: graph::calls::title(model, graph, &sums, cut),
        has_times: graph.has_times,
        total_ns: sums.total_ns,
        calls: sums.calls,
        functions: functions.collect(),
        edges: edges.collect(),
    };
    let data = encode::deflate(&serde_json::to_vec(&data)?)?;
    page::write(&page::CALLS, &model.target.name, &data, out)
}
