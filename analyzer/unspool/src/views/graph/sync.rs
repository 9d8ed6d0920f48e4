//! A graph of threads and the objects they use. An edge is a use. Longer waits make it wider.
//!
//! Threads and objects with the same identity are one node each, and so are the many elements of an
//! array. The graph leaves out objects that only one thread used. If more objects remain than a
//! page can hold, it also leaves out those with the shortest waits, and says so.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{begin, label, lines, quoted};
use crate::model::Model;
use crate::model::sync::{Share, Sync, Waiting};
use crate::primitives::{Kind, Operation};
use crate::views::same_identity::{self, ObjectGroup};
use crate::views::{text::tree, wording};

/// Maximum number of objects in one graph.
const MAX_OBJECTS: usize = 40;

/// Writes the graph of threads and their objects.
pub fn write(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let sync = &model.sync;
    let mut groups = same_identity::of_variables(sync);
    let all = groups.len();
    groups.retain(|group| !is_private(sync, group));
    let shown = groups.len().min(MAX_OBJECTS);
    let mut title = format!(
        "{}threads and the objects they wait for",
        tree::about(model)
    );
    let left_out = [
        (all - groups.len(), "that no two threads use"),
        (groups.len() - shown, "waited for less"),
    ];
    for (count, why) in left_out.into_iter().filter(|left| left.0 > 0) {
        let objects = wording::count(count, "object");
        title.push_str(&format!("\nnot drawn: {objects} {why}"));
    }
    begin(out, &title)?;
    let mut edges: BTreeMap<(usize, usize), (u64, u64, Waiting)> = BTreeMap::new();
    for (at, group) in groups.iter().take(shown).enumerate() {
        for used in &group.uses {
            for share in &used.shares {
                let edge = edges.entry((share.identity, at)).or_default();
                edge.0 += count(used.sample.operation, share);
                edge.1 += share.waited_ns;
                if share.waited_ns > 0 {
                    edge.2 = edge.2.max(used.sample.waiting);
                }
            }
        }
    }
    let most = edges
        .values()
        .map(|(_, ns, _)| *ns)
        .max()
        .unwrap_or(0)
        .max(1);
    let mut threads: Vec<usize> = edges.keys().map(|(identity, _)| *identity).collect();
    threads.sort_unstable();
    threads.dedup();
    for identity in threads {
        let text = label(&wording::identity(model, identity, super::MAX_LABEL_WIDTH));
        writeln!(out, "  t{identity} [label={}];", quoted(&text))?;
    }
    for (at, group) in groups.iter().take(shown).enumerate() {
        let mut text = lines(&group.title(sync, usize::MAX));
        if group.waits.count > 0 {
            text.push_str(&format!(
                "\nwaited for {}, {}",
                wording::times(group.waits.count),
                wording::duration(group.waits.total_ns)
            ));
        }
        if group.holds.count > 0 {
            text.push_str(&format!(
                "\nheld for {} on average",
                wording::duration(group.holds.mean_ns())
            ));
        }
        let color = match group.kind(sync) {
            Kind::Mutex => "lightsteelblue1",
            Kind::Rwlock => "lightcyan2",
            Kind::Cond => "honeydew2",
            Kind::Sem => "lemonchiffon1",
            Kind::Barrier => "lavenderblush2",
            _ => "gray92",
        };
        writeln!(
            out,
            "  o{at} [label={}, shape=ellipse, style=filled, fillcolor={color}];",
            quoted(&text)
        )?;
    }
    for ((identity, at), (count, ns, waiting)) in &edges {
        let times = (*count > 0).then(|| wording::times(*count));
        let waited = (*ns > 0).then(|| format!("waited {}", wording::duration(*ns)));
        let text = Vec::from_iter(times.into_iter().chain(waited)).join("\n");
        let width = 1.0 + 5.0 * (*ns as f64 / most as f64).sqrt();
        let look = match waiting {
            _ if *ns == 0 => "color=gray60",
            Waiting::Held => "color=firebrick",
            Waiting::Others => "color=steelblue",
            Waiting::Idle => "color=gray60, style=dashed",
        };
        let width = if *waiting == Waiting::Idle {
            1.0
        } else {
            width
        };
        writeln!(
            out,
            "  t{identity} -> o{at} [label={}, penwidth={width:.1}, {look}];",
            quoted(&text)
        )?;
    }
    writeln!(out, "}}")
}

/// How often threads took a lock, or did something else with an object.
fn count(operation: Operation, share: &Share) -> u64 {
    match operation {
        Operation::Unlock | Operation::Init | Operation::Destroy => 0,
        operation if operation.acquires() => share.taken,
        _ => share.calls,
    }
}

/// True if at most one thread used them, and did not wait.
fn is_private(sync: &Sync, group: &ObjectGroup) -> bool {
    let mut by: Vec<usize> = group
        .uses
        .iter()
        .flat_map(|used| used.identities())
        .collect();
    by.dedup();
    let alone = |identity: &usize| {
        sync.identities
            .get(*identity)
            .is_some_and(|(.., n)| *n == 1)
    };
    group.waits.count == 0 && by.len() <= 1 && by.iter().all(alone)
}

#[cfg(test)]
mod tests {
    use crate::model::fixture::PID;
    use crate::model::fixture::sync::Acting;

    #[test]
    fn an_edge_counts_how_often_the_lock_was_taken() {
        const OTHER: u64 = 11;
        let mut acting = Acting::new();
        acting.stage.data.insert(0xa000, "queue");
        let main = ["orders!main@orders.c:9"];
        let run = ["orders!run@orders.c:20"];
        acting.stage.spawn(PID, OTHER, 0, run[0], &main);
        acting.on(PID, &main).on(OTHER, &run);
        for (tid, us) in [(PID, 2000), (PID, 3000), (PID, 4000), (OTHER, 5000)] {
            acting.lock(tid, us, 0xa000).unlock(tid, us + 10, 0xa000);
        }
        acting.stage.end(10);
        let mut out = Vec::new();
        super::write(&acting.stage.model(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for edge in ["o0 [label=\"3 times\",", "o0 [label=\"once\","] {
            assert!(text.contains(edge), "{text}");
        }
    }

    #[test]
    fn objects_of_one_thread_are_not_drawn() {
        const OTHER: u64 = 11;
        for (shared, title) in [
            (false, "not drawn: 1 object that no two threads use"),
            (true, ""),
        ] {
            let mut acting = Acting::new();
            acting.stage.data.insert(0xa000, "queue");
            acting.stage.data.insert(0xb000, "config");
            let main = ["orders!main@orders.c:9"];
            let run = ["orders!run@orders.c:20"];
            acting.stage.spawn(PID, OTHER, 0, run[0], &main);
            acting.on(PID, &main).on(OTHER, &run);
            for (tid, us, mutex) in [
                (PID, 2000, 0xa000),
                (OTHER, 3000, 0xa000),
                (PID, 4000, 0xb000),
            ] {
                acting.lock(tid, us, mutex).unlock(tid, us + 10, mutex);
            }
            if shared {
                acting.lock(OTHER, 5000, 0xb000).unlock(OTHER, 5010, 0xb000);
            }
            acting.stage.end(10);
            let mut out = Vec::new();
            super::write(&acting.stage.model(), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(
                text.contains("mutex queue") && text.contains(title),
                "{text}"
            );
            assert_eq!(text.contains("mutex config"), shared, "{text}");
        }
    }
}
