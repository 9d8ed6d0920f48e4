//! Inspects the processes whose threads hold what the inspected process waits for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::calls;
use crate::collect::{Asleep, LocalProcess, process_of_thread};
use crate::model::{Model, Note, WaitTrace};

/// Maximum number of other processes.
const MAX_PROCESSES: usize = 8;

/// A process that was inspected, and its waits whose holders are known.
struct Seen {
    process: LocalProcess,
    waits: Vec<(u64, Arc<WaitTrace>)>,
}

impl Seen {
    fn of(model: &mut Model, process: LocalProcess) -> Seen {
        model.name_shared(|address| process.shared_place(address));
        Seen {
            waits: model.held_waits(),
            process,
        }
    }

    fn asleep(&self) -> impl Iterator<Item = (u64, Option<Asleep>)> {
        self.waits
            .iter()
            .map(|(tid, _)| (*tid, self.process.asleep(*tid)))
    }
}

/// The threads that are all still in the waits in which they were inspected, at one moment.
///
/// A thread that is asleep, and has not run between two checks, was in the same call all the time.
/// Between the checks of all threads, the objects are read again.
fn standing(seen: &[Seen]) -> HashSet<u64> {
    let asleep =
        || -> HashMap<u64, Option<Asleep>> { seen.iter().flat_map(Seen::asleep).collect() };
    let before = asleep();
    let same = seen.iter().flat_map(|seen| {
        let waits = seen.waits.iter();
        waits.filter(|(_, trace)| {
            let now = seen.process.memory(trace.address, trace.bytes.len());
            now.as_ref() == Some(&trace.bytes)
        })
    });
    let same: Vec<&(u64, Arc<WaitTrace>)> = same.collect();
    let after = asleep();
    let stood = same.into_iter().filter(|(tid, trace)| {
        let [before, after] = [&before, &after].map(|at| at.get(tid).and_then(Option::as_ref));
        before == after && before.is_some_and(|asleep| asleep.word == trace.futex)
    });
    stood.map(|(tid, _)| *tid).collect()
}

/// Adds the processes whose threads hold what threads of the process wait for, directly or through
/// further processes. `inspect` inspects one.
pub(super) fn add(
    model: &mut Model,
    process: LocalProcess,
    inspect: impl Fn(u32) -> anyhow::Result<Model>,
) {
    if !process.has_our_thread_ids() {
        return;
    }
    let mut pids: HashSet<u64> = HashSet::from([model.target.pid]);
    let mut ahead = model.outside_holders();
    let mut seen = vec![Seen::of(model, process)];
    let mut others: Vec<Model> = Vec::new();
    while let Some(tid) = ahead.pop_first() {
        let Some(pid) = process_of_thread(tid).filter(|pid| !pids.contains(&u64::from(*pid)))
        else {
            continue;
        };
        if others.len() == MAX_PROCESSES {
            model.notes.push(Note::info(format!(
                "More than {MAX_PROCESSES} other processes hold what these wait for. The rest was \
                 not inspected."
            )));
            break;
        }
        pids.insert(pid.into());
        let process = LocalProcess::new(pid);
        match inspect(pid).map(|other| (other, process)) {
            Ok((mut other, process)) if process.has_our_thread_ids() => {
                calls::name(&mut other, &process);
                ahead.extend(other.outside_holders());
                seen.push(Seen::of(&mut other, process));
                others.push(other);
            }
            Ok(_) => {}
            Err(error) => model.notes.push(Note::warning(format!(
                "Process {pid}, whose thread {tid} holds what this process waits for, was not \
                 inspected: {error:#}"
            ))),
        }
    }
    if !others.is_empty() {
        model.add_others(others, &standing(&seen));
    }
}
