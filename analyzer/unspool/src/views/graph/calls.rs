//! A graph of calls: a node for each function, an edge for each caller and callee.
//!
//! Small functions and edges are left out, and the title says how many.

use std::io::{self, Write};

use super::{begin, label, quoted};
use crate::model::call_graph::{CallGraph, Edge, Node};
use crate::model::{Model, sync};
use crate::views::call_sums::{CallSums, Cut, PICTURE};
use crate::views::text::frames;
use crate::views::text::tree;
use crate::views::wording;

/// Writes the calls of the wanted threads.
pub fn write(model: &Model, cut: &Cut, out: &mut dyn Write) -> io::Result<()> {
    let nothing = CallGraph::default();
    let graph = model.call_graph.as_ref().unwrap_or(&nothing);
    let sums = CallSums::of(model, graph, cut, PICTURE);
    begin(out, &title(model, graph, &sums, cut))?;
    writeln!(out, "  rankdir=TB;")?;
    let name = |function: usize| label(&frames::function(&graph.functions[function], 200));
    let percent = |ns: u64| format!("{:.1} %", 100.0 * sums.share(0, ns, true));
    for function in &sums.shown {
        let node = &sums.nodes[function];
        let mut text = name(*function);
        if graph.has_times {
            let total = sync::length(node.total_ns);
            text += &format!("\n{total} ({})", percent(node.total_ns));
            let own = sync::length(node.self_ns);
            text += &format!("\nself {own} ({})", percent(node.self_ns));
        }
        text += &format!("\n{}", wording::often(node.calls));
        // A darker fill means a larger self time.
        let own = sums.share(node.calls, node.self_ns, graph.has_times);
        let saturation = own.clamp(0.0, 1.0).sqrt() * 0.7;
        writeln!(
            out,
            "  f{function} [label={}, fillcolor=\"0.09 {saturation:.3} 1.0\", tooltip={}];",
            quoted(&text),
            quoted(&node_exactly(graph, node))
        )?;
    }
    for key in &sums.shown_edges {
        let edge = &sums.edges[key];
        // A call from outside needs no edge: the node has its count.
        let Some(caller) = edge.caller else { continue };
        if !sums.nodes.contains_key(&caller) {
            let text = quoted(&name(caller));
            writeln!(out, "  f{caller} [label={text}, style=\"rounded,dashed\"];")?;
        }
        let mut text = wording::often(edge.calls);
        if graph.has_times {
            text += &format!("\n{}", sync::length(edge.total_ns));
        }
        let share = sums.share(edge.calls, edge.total_ns, graph.has_times);
        let width = 1.0 + 4.0 * share.clamp(0.0, 1.0);
        let (callee, text) = (edge.callee, quoted(&text));
        let tip = quoted(&edge_exactly(graph, edge, caller));
        writeln!(
            out,
            "  f{caller} -> f{callee} [label={text}, penwidth={width:.1}, tooltip={tip}, labeltooltip={tip}];"
        )?;
    }
    writeln!(out, "}}")
}

/// A function's whole name and exact sums, for the tooltip.
fn node_exactly(graph: &CallGraph, node: &Node) -> String {
    let name = exact_name(graph, node.function);
    let times = match graph.has_times {
        true => format!(", total {} ns, self {} ns", node.total_ns, node.self_ns),
        false => String::new(),
    };
    format!("{name}: calls {}{times}", node.calls)
}

fn edge_exactly(graph: &CallGraph, edge: &Edge, caller: usize) -> String {
    let (caller, callee) = (exact_name(graph, caller), exact_name(graph, edge.callee));
    let times = match graph.has_times {
        true => format!(", total {} ns", edge.total_ns),
        false => String::new(),
    };
    format!("{caller} -> {callee}: calls {}{times}", edge.calls)
}

fn exact_name(graph: &CallGraph, function: usize) -> String {
    frames::function(&graph.functions[function], usize::MAX)
}

/// What the graph shows and what it leaves out.
pub(in crate::views) fn title(
    model: &Model,
    graph: &CallGraph,
    sums: &CallSums,
    cut: &Cut,
) -> String {
    let mut title = tree::about(model);
    if let Some(identity) = &cut.identity {
        title += &format!("threads {identity}, ");
    }
    title += &format!(
        "{} called {} in total",
        wording::count(sums.nodes.len(), "function"),
        wording::times(sums.calls)
    );
    if graph.has_times {
        title += &format!(", {}", sync::length(sums.total_ns));
    }
    let (functions, edges) = (
        sums.nodes.len() - sums.shown.len(),
        sums.edges.len() - sums.shown_edges.len(),
    );
    if functions + edges > 0 {
        let limit = match sums.shown.len() == PICTURE.max_functions {
            true => format!("{} functions, ", PICTURE.max_functions),
            false => String::new(),
        };
        title += &format!(
            "\nNot shown: {} and {} (limits: {limit}{} % of the {})",
            wording::count(functions, "function"),
            wording::count(edges, "edge"),
            sums.min_share,
            if graph.has_times {
                "time and of the calls"
            } else {
                "calls"
            }
        );
    }
    if graph.left > 0 {
        title += &format!(
            "\nCalls without a recorded end, so that their times are minimums (exception, longjmp, \
             end of the thread): {}",
            graph.left
        );
    }
    if graph.begun_before > 0 {
        title += &format!(
            "\nCalls that began before the recording: {}",
            graph.begun_before
        );
    }
    let missed = model.recording.calls_missed();
    if missed > 0 {
        title += &format!("\nBeginnings and ends of calls that are missing: {missed}");
    }
    title
}
