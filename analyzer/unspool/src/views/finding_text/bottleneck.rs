//! What limits the run.

use super::capital;
use super::lock_waits::{object, whose};
use crate::model::critical_path::{Bottleneck, Item};
use crate::model::sync::length;
use crate::model::{Finding, Model};
use crate::views::{text, wording};

/// Columns for the name of what limits the run.
const MAX_ITEM_NAME: usize = 80;

pub(super) fn text(model: &Model, finding: &Finding, limit: &Bottleneck) -> String {
    let percent = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / limit.run_ns.max(1) as f64);
    let saved = format!("{} ({})", percent(limit.saved_ns), length(limit.saved_ns));
    let used = format!(
        "Meanwhile the program could use {:.1} of {} on average.",
        limit.usable,
        wording::count(limit.processors, "processor")
    );
    let what = match limit.item {
        Item::Lock(_) | Item::LockWaits(_) => {
            let (lock, waits_ns) = match limit.item {
                Item::LockWaits(index) => {
                    let waits = &model.lock_waits[index];
                    (object(waits) + &whose(model, waits), waits.total_ns)
                }
                Item::Lock(lock) => {
                    let name = finding.objects.first().map(ToString::to_string);
                    (
                        name.unwrap_or_default(),
                        model.sync.object(lock).waits.total_ns,
                    )
                }
                _ => (String::new(), 0),
            };
            let more = match limit.saved_ns > waits_ns {
                true => {
                    " The run would become shorter by more than that, because threads would then also wait less for \
                     other locks and for processors."
                }
                false => "",
            };
            return format!(
                "{} limits the run: if no thread had to wait for it, the run would be {saved} shorter. \
                 All waits for it add up to {}.{more} This estimate comes from a replay of the \
                 recording.",
                capital(&lock),
                length(waits_ns)
            );
        }
        Item::Threads(identity) => {
            let name = wording::identity(model, identity, MAX_ITEM_NAME);
            match model.sync.identities.get(identity) {
                Some((_, _, 2..)) => format!("Threads {name} limit"),
                _ => format!("Thread {name} limits"),
            }
        }
        Item::Function(function) => {
            let path = model.critical_path.as_ref();
            let name = path.map_or(String::new(), |path| {
                text::frames::function(path.functions.place(function), MAX_ITEM_NAME)
            });
            format!("Function {name} limits")
        }
        Item::Processors => "The number of processors limits".to_owned(),
    };
    let more = match limit.saved_ns.saturating_mul(2) > limit.path_ns {
        true => {
            " The run would become shorter by more than half of that, because other threads would then also wait \
             less for locks and processors."
        }
        false => "",
    };
    format!(
        "{what} the run. If this part needed half as much processor time, the run would be {saved} \
         shorter. This part takes {} of the critical path, the chain of work that decides how long \
         the run takes.{more} {used} This estimate comes from a replay of the recording.",
        length(limit.path_ns)
    )
}
