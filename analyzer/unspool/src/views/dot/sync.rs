//! Threads and the objects they use, as a graph: an edge is a use, the wider the more was waited there.
//!
//! Threads and objects of one identity are one node each, and so are the many elements of an array. Where there are more than a page holds, the
//! objects that were waited for least are left out, and the picture says so.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{begin, label, quoted};
use crate::model::Model;
use crate::model::sync::Waiting;
use crate::primitives::Kind;
use crate::views::kin;
use crate::views::{phrase, tree};

/// Objects in one picture.
const MOST_OBJECTS: usize = 40;

/// Writes which threads use which objects.
pub fn write(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let sync = &model.sync;
    let kins = kin::of_variables(sync);
    let shown = kins.len().min(MOST_OBJECTS);
    let mut title = format!("{}threads and what they wait at", tree::about(model));
    if shown < kins.len() {
        title.push_str(&format!(
            "\n{} objects that were waited for less are left out",
            kins.len() - shown
        ));
    }
    begin(out, &title)?;
    let mut edges: BTreeMap<(usize, usize), (u64, u64, Waiting)> = BTreeMap::new();
    for (at, kin) in kins.iter().take(shown).enumerate() {
        for used in &kin.uses {
            let part = used.identities.len().max(1) as u64;
            for identity in &used.identities {
                let edge = edges.entry((*identity, at)).or_default();
                // Who of several identities waited how long is not kept: they share it.
                edge.0 += used.calls / part;
                edge.1 += used.waits.total_ns / part;
                if used.waits.count > 0 {
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
        let text = label(&phrase::identity(model, identity, super::LABEL));
        writeln!(out, "  t{identity} [label={}];", quoted(&text))?;
    }
    for (at, kin) in kins.iter().take(shown).enumerate() {
        let mut text = label(&kin.title(sync, super::LABEL));
        if kin.waits.count > 0 {
            text.push_str(&format!(
                "\nwaited for {}, {}",
                phrase::times(kin.waits.count),
                phrase::duration(kin.waits.total_ns)
            ));
        }
        if kin.holds.count > 0 {
            text.push_str(&format!(
                "\nheld {} on average",
                phrase::duration(kin.holds.mean_ns())
            ));
        }
        let color = match kin.kind(sync) {
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
    for ((identity, at), (calls, ns, waiting)) in &edges {
        let mut text = phrase::times(*calls);
        if *ns > 0 {
            text.push_str(&format!("\nwaited {}", phrase::duration(*ns)));
        }
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
