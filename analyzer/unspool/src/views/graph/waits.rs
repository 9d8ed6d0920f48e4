//! A graph of waits. An edge leads from the waiting threads to the threads that held the objects or
//! ended the waits, and its label names these objects. (With one edge per object, labels would
//! overlap where a node waits for itself.) Waits for work are left out. Edges are dashed if the
//! threads waited in system calls only: such a wait may be one for work.
//!
//! Threads with the same identity are one node, and elements of one array one object. Deadlocks at
//! the end of the recording are drawn thread by thread in red. A cycle larger than a page shows
//! only its beginning.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{begin, label, lines, quoted};
use crate::model::schedule::CallIndex;
use crate::model::sync::{Contention, Waiting};
use crate::model::{Finding, FindingKind, Model, Shows, ThreadIndex};
use crate::views::call_waits::{self, WokenBy};
use crate::views::text::line::{clean, width};
use crate::views::{blocking_call, finding_text, same_identity, text::tree, wording};

/// Maximum number of edges in one graph.
const MAX_EDGES: usize = 80;
/// Maximum number of objects named on one edge.
const MAX_OBJECTS: usize = 6;
/// Maximum number of threads shown of one deadlock.
const MAX_THREADS: usize = 24;

/// Writes the graph of waits.
pub fn write(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let sync = &model.sync;
    let groups = same_identity::of_variables(sync);
    let mut edges: BTreeMap<(usize, usize), Edge> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        let idle = |pair: &&Contention| sync.used(pair.waiter).waiting == Waiting::Idle;
        for pair in group.contention.iter().filter(|pair| !idle(pair)) {
            let edge = edges.entry((pair.waiting, pair.holding)).or_default();
            edge.add(At::Object(at), pair.count, pair.total_ns);
        }
    }
    for wait in call_waits::of(model) {
        let Some(call) = wait.call else { continue };
        for woken in wait.wakers {
            if let WokenBy::Threads(waker) = woken.by {
                let edge = edges.entry((wait.threads.identity, waker)).or_default();
                edge.add(At::Call(call), woken.blocked.count, woken.blocked.ns);
            }
        }
    }
    let mut edges: Vec<_> = edges.into_iter().collect();
    // A wait in a system call may be one for work, so it does not displace one for a lock.
    edges.sort_by_key(|(_, edge)| std::cmp::Reverse((edge.object_ns, edge.total_ns)));
    let left = edges.len().saturating_sub(MAX_EDGES);
    edges.truncate(MAX_EDGES);
    let mut title = format!("{}who waited for whom", tree::about(model));
    if left > 0 {
        title.push_str(&format!("\n{left} smaller edges are not drawn"));
    }
    if edges.is_empty() {
        title.push_str("\nno thread was seen waiting for another");
    }
    if edges.iter().any(|(_, edge)| edge.is_of_calls()) {
        title.push_str(
            "\ndashed: a thread was blocked in a system call until the other one woke it",
        );
    }
    begin(out, &title)?;
    // Graphviz reserves no room for the label of a loop that is wider than its node.
    if edges.iter().any(|((waiter, holder), _)| waiter == holder) {
        writeln!(out, "  ranksep=1.2;")?;
    }
    let mut threads: Vec<usize> = edges.iter().flat_map(|((w, h), _)| [*w, *h]).collect();
    threads.sort_unstable();
    threads.dedup();
    for identity in threads {
        let text = label(&wording::identity(model, identity, super::MAX_LABEL_WIDTH));
        writeln!(out, "  t{identity} [label={}];", quoted(&text))?;
    }
    let most = edges.first().map_or(1, |(_, edge)| edge.object_ns).max(1);
    for ((waiter, holder), edge) in &edges {
        let title = |at: At| match at {
            At::Object(at) => {
                let group = groups.get(at);
                group.map_or(String::new(), |group| group.title(sync, usize::MAX))
            }
            At::Call(call) => {
                let call = model.schedule.call(call);
                call.map_or(String::new(), blocking_call::title)
            }
        };
        // Graphviz reserves no room for thick lines beside labels either.
        let text = format!(" \n{}\n ", edge.text(&title));
        let look = match edge.is_of_calls() {
            true => "style=dashed".to_owned(),
            false => {
                let thick = 1.0 + 5.0 * (edge.object_ns as f64 / most as f64).sqrt();
                format!("penwidth={thick:.1}")
            }
        };
        writeln!(
            out,
            "  t{waiter} -> t{holder} [label={}, {look}];",
            quoted(&text)
        )?;
    }
    deadlocks(model, out)?;
    writeln!(out, "}}")
}

/// Where threads wait: at objects of a group, or in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Object(usize),
    Call(CallIndex),
}

/// The waits of some threads for some others.
#[derive(Default)]
struct Edge {
    /// By place: number and total duration of the waits.
    at: BTreeMap<At, (u64, u64)>,
    total_ns: u64,
    /// The part of the total that they waited at objects.
    object_ns: u64,
}

impl Edge {
    fn add(&mut self, at: At, count: u64, ns: u64) {
        let here = self.at.entry(at).or_default();
        here.0 = here.0.saturating_add(count);
        here.1 = here.1.saturating_add(ns);
        self.total_ns = self.total_ns.saturating_add(ns);
        if let At::Object(_) = at {
            self.object_ns = self.object_ns.saturating_add(ns);
        }
    }

    /// True if all waits were in system calls.
    fn is_of_calls(&self) -> bool {
        self.at.keys().all(|at| matches!(at, At::Call(_)))
    }

    /// The label of an edge: its objects, those of the longest waits first.
    fn text(&self, title: &dyn Fn(At) -> String) -> String {
        let figures = |(count, ns)| format!("{}, {}", wording::duration(ns), wording::times(count));
        let mut objects: Vec<(At, (u64, u64))> = self.at.iter().map(|(a, b)| (*a, *b)).collect();
        if let [(at, waits)] = objects[..] {
            return format!("{}\n{}", lines(&title(at)), figures(waits));
        }
        objects.sort_by_key(|(_, (_, ns))| std::cmp::Reverse(*ns));
        let others = objects.split_off(objects.len().min(MAX_OBJECTS));
        let part = |(at, waits)| {
            let (title, figures) = (title(at), figures(waits));
            match format!("{title}: {figures}") {
                short if width(&clean(&short)) <= super::MAX_LABEL_WIDTH => short,
                _ => format!("{}\n{figures}", lines(&title)),
            }
        };
        let mut parts: Vec<String> = objects.into_iter().map(part).collect();
        if !others.is_empty() {
            let sum =
                |sum: (u64, u64), (_, waits): &(At, (u64, u64))| (sum.0 + waits.0, sum.1 + waits.1);
            let all = others.iter().fold((0, 0), sum);
            parts.push(format!("{} others: {}", others.len(), figures(all)));
        }
        parts.join("\n")
    }
}

fn deadlocks(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let name = |index: ThreadIndex| {
        let thread = model.thread(index);
        let title = thread.map_or(String::new(), |thread| wording::one(model, thread, 30));
        match thread.and_then(|thread| thread.tid) {
            Some(tid) => format!("{title} {tid}"),
            None => title,
        }
    };
    let kinds = [FindingKind::Deadlock, FindingKind::SelfDeadlock];
    let found = model.findings.iter().filter(|f| kinds.contains(&f.kind));
    for (number, finding) in found.enumerate() {
        if !finding.circle {
            stuck(number, finding, &name, out)?;
            continue;
        }
        let all = finding.threads.len();
        let left = all.saturating_sub(MAX_THREADS);
        for (at, thread) in finding.threads.iter().enumerate().take(MAX_THREADS) {
            writeln!(
                out,
                "  d{number}_{at} [label={}, fillcolor=mistyrose, color=firebrick];",
                quoted(&label(&name(*thread)))
            )?;
        }
        if left > 0 {
            let text = format!("{left} more threads, and so on");
            writeln!(
                out,
                "  d{number}_{MAX_THREADS} [label={}, color=firebrick, style=dashed];",
                quoted(&text)
            )?;
        }
        let count = all.min(MAX_THREADS + 1);
        for at in 0..count {
            // The last thread left out waits for the first thread.
            let closes = left > 0 && at == MAX_THREADS;
            let object = finding.objects.get(if closes { all - 1 } else { at });
            let text = object.map_or(String::new(), |object| {
                let name = object.name.as_deref().unwrap_or("unnamed");
                format!("{} {name}", object.kind.noun())
            });
            let text = match text.is_empty() {
                true => "waits for its end".to_owned(),
                false => format!("waits for\n{}", lines(&text)),
            };
            let look = if finding.proved { "solid" } else { "dashed" };
            writeln!(
                out,
                "  d{number}_{at} -> d{number}_{} [label={}, color=firebrick, penwidth=2, style={look}];",
                (at + 1) % count,
                quoted(&text)
            )?;
        }
    }
    Ok(())
}

/// Draws threads that wait for locks with unknown holders.
fn stuck(
    number: usize,
    finding: &Finding,
    name: &dyn Fn(ThreadIndex) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut known: Vec<String> = Vec::new();
    for (at, evidence) in finding.evidence.iter().enumerate() {
        let Shows::Waits { awaited, .. } = &evidence.shows else {
            continue;
        };
        let object = finding_text::what(awaited);
        let place = known.iter().position(|known| *known == object);
        let place = place.unwrap_or(known.len());
        if place == known.len() {
            known.push(object.clone());
            writeln!(
                out,
                "  d{number}_o{place} [label={}, shape=ellipse, color=firebrick];",
                quoted(&lines(&object))
            )?;
        }
        writeln!(
            out,
            "  d{number}_{at} [label={}, fillcolor=mistyrose, color=firebrick];",
            quoted(&label(&name(evidence.thread)))
        )?;
        writeln!(
            out,
            "  d{number}_{at} -> d{number}_o{place} [label=\"waits for\", color=firebrick, penwidth=2, style=dashed];"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_names_the_objects_of_its_longest_waits() {
        let title = |at: At| match at {
            At::Object(0) => "mutex journal".to_owned(),
            At::Object(1) => "mutex queue_of_orders_to_be_sent".to_owned(),
            At::Object(at) => format!("mutex table[{at}]"),
            At::Call(call) => unreachable!("{call:?}"),
        };
        let edge = |waits: &[(usize, (u64, u64))]| Edge {
            at: (waits.iter().copied())
                .map(|(at, waits)| (At::Object(at), waits))
                .collect(),
            total_ns: 0,
            object_ns: 0,
        };
        assert_eq!(
            edge(&[(0, (2, 5_000_000))]).text(&title),
            "mutex journal\n5.00 ms, twice"
        );
        let many = (0..9).map(|at| (at, (3, 9_000_000 - 1_000_000 * at as u64)));
        let many: Vec<_> = many.collect();
        assert_eq!(
            edge(&many).text(&title),
            "mutex journal: 9.00 ms, 3 times\n\
             mutex queue_of_orders_to_be_sent\n8.00 ms, 3 times\n\
             mutex table[2]: 7.00 ms, 3 times\n\
             mutex table[3]: 6.00 ms, 3 times\n\
             mutex table[4]: 5.00 ms, 3 times\n\
             mutex table[5]: 4.00 ms, 3 times\n\
             3 others: 6.00 ms, 9 times"
        );
    }
}
