//! Who made whom wait, as a graph: an edge leads from who waited to who held the object in between, or ended the wait. Waiting for
//! work is left out.
//!
//! Threads of one identity are one node, and elements of one array one object. Deadlocks at the end of the recording are drawn
//! thread by thread, in red; of a circle that fills more than a page, the beginning.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{begin, label, lines, quoted};
use crate::model::sync::{Blame, Waiting};
use crate::model::{FindingKind, Model, ThreadIndex};
use crate::views::kin;
use crate::views::{phrase, tree};

/// Edges in one picture.
const MOST_EDGES: usize = 80;
/// Threads of one deadlock.
const MOST_THREADS: usize = 24;

/// Writes who made whom wait.
pub fn write(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let sync = &model.sync;
    let kins = kin::of_variables(sync);
    let mut edges: BTreeMap<(usize, usize, usize), (u64, u64)> = BTreeMap::new();
    for (at, kin) in kins.iter().enumerate() {
        let idle = |blame: &&Blame| sync.used(blame.waiter).waiting == Waiting::Idle;
        for blame in kin.blames.iter().filter(|blame| !idle(blame)) {
            let edge = edges.entry((blame.waiting, blame.holding, at)).or_default();
            edge.0 += blame.count;
            edge.1 += blame.total_ns;
        }
    }
    let mut edges: Vec<_> = edges.into_iter().collect();
    edges.sort_by_key(|(_, (_, ns))| std::cmp::Reverse(*ns));
    let left = edges.len().saturating_sub(MOST_EDGES);
    edges.truncate(MOST_EDGES);
    let mut title = format!("{}who waited for whom", tree::about(model));
    if left > 0 {
        title.push_str(&format!("\n{left} smaller edges are left out"));
    }
    if edges.is_empty() {
        title.push_str("\nnobody was seen to wait for another thread");
    }
    begin(out, &title)?;
    let mut threads: Vec<usize> = edges.iter().flat_map(|((w, h, _), _)| [*w, *h]).collect();
    threads.sort_unstable();
    threads.dedup();
    for identity in threads {
        let text = label(&phrase::identity(model, identity, super::LABEL));
        writeln!(out, "  t{identity} [label={}];", quoted(&text))?;
    }
    let most = edges.first().map_or(1, |(_, (_, ns))| *ns).max(1);
    for ((waiter, holder, at), (count, ns)) in &edges {
        let object = kins.get(*at).map(|kin| kin.title(sync, usize::MAX));
        let text = format!(
            "{}\n{}, {}",
            lines(&object.unwrap_or_default()),
            phrase::duration(*ns),
            phrase::times(*count)
        );
        let width = 1.0 + 5.0 * (*ns as f64 / most as f64).sqrt();
        writeln!(
            out,
            "  t{waiter} -> t{holder} [label={}, penwidth={width:.1}];",
            quoted(&text)
        )?;
    }
    deadlocks(model, out)?;
    writeln!(out, "}}")
}

fn deadlocks(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let name = |index: ThreadIndex| {
        let thread = model.thread(index);
        let title = thread.map_or(String::new(), |thread| phrase::title(model, thread, 30));
        match thread.and_then(|thread| thread.tid) {
            Some(tid) => format!("{title} {tid}"),
            None => title,
        }
    };
    let kinds = [FindingKind::Deadlock, FindingKind::SelfDeadlock];
    let found = model.findings.iter().filter(|f| kinds.contains(&f.kind));
    for (number, finding) in found.enumerate() {
        let all = finding.threads.len();
        let left = all.saturating_sub(MOST_THREADS);
        for (at, thread) in finding.threads.iter().enumerate().take(MOST_THREADS) {
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
                "  d{number}_{MOST_THREADS} [label={}, color=firebrick, style=dashed];",
                quoted(&text)
            )?;
        }
        let count = all.min(MOST_THREADS + 1);
        for at in 0..count {
            // The last of those left out waits for the first.
            let closes = left > 0 && at == MOST_THREADS;
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
