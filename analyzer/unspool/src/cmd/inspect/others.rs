//! Inspects the processes whose threads hold what the inspected process waits for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::collect::{Asleep, LocalProcess, SharedPlace, process_of_thread};
use crate::model::{Model, Note, WaitTrace};

/// Maximum number of other processes.
const MAX_PROCESSES: usize = 8;
/// Maximum time until all threads are back in their waits after an inspection.
const MAX_RESUME: Duration = Duration::from_millis(200);

/// A process that was inspected, and its waits whose holders are known.
struct Inspected {
    process: LocalProcess,
    waits: Vec<(u64, Arc<WaitTrace>)>,
}

impl Inspected {
    /// Also returns the threads of other processes that hold what these wait for, with its place.
    fn of(model: &mut Model, process: LocalProcess) -> (Inspected, Vec<(u64, SharedPlace)>) {
        let memory = process.shared_memory();
        let place = |address| memory.place(address);
        let holders = model.outside_holders().into_iter();
        let holders = holders.filter_map(|(tid, address)| Some((tid, place(address)?)));
        let holders = holders.collect();
        model.name_shared(|address| Some(place(address)?.to_string()));
        let waits = model.held_waits();
        (Inspected { process, waits }, holders)
    }

    fn asleep(&self, until: Instant) -> impl Iterator<Item = (u64, Option<Asleep>)> {
        let waits = self.waits.iter();
        waits.map(move |(tid, _)| (*tid, self.process.asleep(*tid, until)))
    }
}

/// The threads that are all still in the waits in which they were inspected, at one moment.
///
/// A thread that is asleep, and has not run between two checks, was in the same call all the time.
/// Between the checks of all threads, the objects are read again.
fn unchanged_waits(all: &[Inspected]) -> HashSet<u64> {
    let asleep = || -> HashMap<u64, Option<Asleep>> {
        let until = Instant::now() + MAX_RESUME;
        all.iter().flat_map(|one| one.asleep(until)).collect()
    };
    let before = asleep();
    let same = all.iter().flat_map(|one| {
        let waits = one.waits.iter();
        waits.filter(|(_, trace)| {
            let now = one.process.memory(trace.address, trace.bytes.len());
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
    inspect: impl Fn(u32, &LocalProcess) -> anyhow::Result<Model>,
) {
    if !process.has_our_thread_ids() {
        return;
    }
    let mut pids: HashSet<u64> = HashSet::from([model.target.pid]);
    let (first, mut pending) = Inspected::of(model, process);
    let mut all = vec![first];
    let mut others: Vec<Model> = Vec::new();
    while let Some((tid, place)) = pending.pop() {
        let Some(pid) = process_of_thread(tid).filter(|pid| !pids.contains(&u64::from(*pid)))
        else {
            continue;
        };
        let process = LocalProcess::new(pid);
        // The id may be of another namespace, or of a thread that has ended.
        if !(process.has_our_thread_ids() && process.shared_memory().has(&place)) {
            continue;
        }
        if others.len() == MAX_PROCESSES {
            model.notes.push(Note::info(format!(
                "More than {MAX_PROCESSES} other processes hold what these wait for. The rest was \
                 not inspected."
            )));
            break;
        }
        pids.insert(pid.into());
        match inspect(pid, &process) {
            Ok(mut other) => {
                let (one, holders) = Inspected::of(&mut other, process);
                pending.extend(holders);
                all.push(one);
                others.push(other);
            }
            Err(error) => model.notes.push(Note::warning(format!(
                "Process {pid}, whose thread {tid} holds what this process waits for, was not \
                 inspected: {error:#}"
            ))),
        }
    }
    if !others.is_empty() {
        model.add_others(others, &unchanged_waits(&all));
    }
}
