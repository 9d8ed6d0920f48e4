//! Inspects the processes whose threads hold what the inspected process waits for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::collect::{Asleep, LocalProcess, process_of_thread};
use crate::model::{Model, Note, WaitTrace};

/// Maximum number of other processes.
const MAX_PROCESSES: usize = 8;
/// Maximum time until all threads are back in their waits after an inspection.
const MAX_RESUME: Duration = Duration::from_millis(200);

/// Reasons why the holder of a shared object is not known.
const UNKNOWN_PLACE: &str = "its memory is in no file that processes share";
const CHANGED: &str = "its owner was changing when Unspool read it";

/// A process that was inspected, and its waits whose holders are known.
struct Inspected {
    process: LocalProcess,
    waits: Vec<(u64, Arc<WaitTrace>)>,
}

impl Inspected {
    /// Finds the holders of the process's shared objects.
    fn of(model: &mut Model, process: LocalProcess) -> Inspected {
        let memory = process.shared_memory();
        let name = |address| Some(memory.place(address)?.to_string());
        let holder = |trace: &WaitTrace, stored| {
            let place = memory.place(trace.address);
            let thread = place.map_or(Err(UNKNOWN_PLACE), |place| place.thread_of(stored))?;
            // The thread may have released the object and ended after the inspection.
            match thread.is_some() || has_bytes(&process, trace) {
                true => Ok(thread),
                false => Err(CHANGED),
            }
        };
        model.resolve_shared(name, holder);
        let waits = model.held_waits();
        Inspected { process, waits }
    }

    fn asleep(&self, until: Instant) -> impl Iterator<Item = (u64, Option<Asleep>)> {
        let waits = self.waits.iter();
        waits.map(move |(tid, _)| (*tid, self.process.asleep(*tid, until)))
    }
}

/// True if the words that name a holder have not changed.
fn has_bytes(process: &LocalProcess, trace: &WaitTrace) -> bool {
    let now = process.memory(trace.address, trace.bytes.len());
    now.as_ref() == Some(&trace.bytes)
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
        waits.filter(|(_, trace)| has_bytes(&one.process, trace))
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
    let mut pids: HashSet<u64> = HashSet::from([model.target.pid]);
    let mut all = vec![Inspected::of(model, process)];
    let mut pending = model.outside_holders();
    let mut others: Vec<Model> = Vec::new();
    while let Some(tid) = pending.pop_first() {
        let Some(pid) = process_of_thread(tid).filter(|pid| !pids.contains(&u64::from(*pid)))
        else {
            continue;
        };
        let process = LocalProcess::new(pid);
        if others.len() == MAX_PROCESSES {
            model.notes.push(Note::info(format!(
                "More than {MAX_PROCESSES} other processes hold what these wait for. The rest was \
                 not inspected, so a deadlock of more processes may be missed."
            )));
            break;
        }
        pids.insert(pid.into());
        match inspect(pid, &process) {
            Ok(mut other) => {
                all.push(Inspected::of(&mut other, process));
                pending.extend(other.outside_holders());
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
