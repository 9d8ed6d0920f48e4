//! The waits of one process for others, and whether they still last after all were inspected.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use unspool_image::Arch;

use crate::collect::{Asleep, LocalProcess, MAX_RESUME, PipeUsers, SharedNames, process_of_thread};
use crate::model::{CallSubject, Model, NamedCall, ProcessWait, WaitTrace};
use crate::platform::syscall::AwaitedChildren;

use super::calls;

/// The reason why the holder of a shared object is not known.
const CHANGED: &str = "its owner was changing when Unspool read it";

/// A process that was inspected, and the waits of its threads.
pub(super) struct Inspected {
    process: LocalProcess,
    threads: BTreeSet<u64>,
    waits: Vec<(u64, Arc<WaitTrace>)>,
    process_waits: Vec<ProcessWait>,
}

impl Inspected {
    /// Names the process's shared objects, and finds their holders.
    pub(super) fn of(
        model: &mut Model,
        process: LocalProcess,
        names: &mut SharedNames,
    ) -> Inspected {
        let memory = process.shared_memory();
        let users = model.inspection.memory_users.iter();
        let users: Vec<LocalProcess> = users
            .filter_map(|pid| u32::try_from(*pid).ok().map(LocalProcess::new))
            .collect();
        let name = |address| Some(names.name(&memory.place(address)?));
        let find = |address, stored| match memory.place(address) {
            Some(place) => place.thread_of(stored),
            // A robust mutex in private memory looks like a shared one.
            None => {
                let mut processes = std::iter::once(&process).chain(&users);
                Ok(processes.find_map(|process| process.thread_of_own_id(stored)))
            }
        };
        // Many threads may wait for one object.
        let known = RefCell::new(HashMap::new());
        let holder = |trace: &WaitTrace, stored| {
            let mut known = known.borrow_mut();
            let place = (trace.address, stored);
            let thread = *known
                .entry(place)
                .or_insert_with(|| find(trace.address, stored));
            // The thread may have released the object and ended after the inspection.
            match thread? {
                None if !has_bytes(&process, trace) => Err(CHANGED),
                thread => Ok(thread),
            }
        };
        model.resolve_shared(name, holder);
        Inspected {
            process,
            threads: model.threads.iter().filter_map(|it| it.tid).collect(),
            waits: model.traced_waits(),
            process_waits: model.process_waits(),
        }
    }

    /// The processes for which threads wait, as far as they may be part of a deadlock, without the
    /// `known` ones.
    pub(super) fn awaited(&self, model: &Model, known: &BTreeSet<u32>) -> BTreeSet<u32> {
        let holders = model.outside_holders().into_iter();
        let mut pids: BTreeSet<u32> = holders.filter_map(process_of_thread).collect();
        let mut possible = BTreeSet::new();
        let mut all = Arch::ALL.into_iter();
        let arch = all.find(|arch| arch.name() == model.target.arch);
        for wait in &self.process_waits {
            let is_certain = matches!(
                wait.on,
                CallSubject::FileLock { .. }
                    | CallSubject::Children {
                        awaited: AwaitedChildren::One(_) | AwaitedChildren::Newest,
                        ..
                    }
            );
            let processes = wait.on.processes().iter();
            let processes = processes.filter_map(|process| u32::try_from(process.pid).ok());
            match is_certain {
                true => pids.extend(processes),
                false => possible.extend(processes),
            }
        }
        let mut pids = &pids - known;
        if let Some(arch) = arch {
            let possible = (&(&possible - known) - &pids).into_iter();
            let waiting = LocalProcess::that_wait(possible.map(LocalProcess::new).collect(), arch);
            pids.extend(waiting.iter().map(LocalProcess::pid));
        }
        pids
    }

    /// True if threads wait for other processes in system calls.
    pub(super) fn waits_for_processes(&self) -> bool {
        !self.process_waits.is_empty()
    }

    /// The waits of these threads at futexes.
    fn futex_waits(&self, tids: &HashSet<u64>) -> impl Iterator<Item = &(u64, Arc<WaitTrace>)> {
        self.waits.iter().filter(|(tid, _)| tids.contains(tid))
    }

    /// The waits of these threads for processes.
    fn process_waits(&self, tids: &HashSet<u64>) -> impl Iterator<Item = &ProcessWait> {
        let waits = self.process_waits.iter();
        waits.filter(|wait| tids.contains(&wait.tid))
    }

    /// The waits of these threads whose objects, or processes, are the same as in the inspection.
    /// None if the process has another thread, which may end one of them.
    fn unchanged(
        &self,
        tids: &HashSet<u64>,
        pipes: &PipeUsers,
    ) -> impl Iterator<Item = Unchanged<'_>> {
        let is_whole = self.process.has_only(&self.threads);
        let mut now: Vec<CallSubject> = self.process_waits(tids).map(|it| it.on.clone()).collect();
        let waits = self.process_waits(tids).zip(&mut now);
        let waits = waits.map(|(wait, on)| NamedCall {
            tid: wait.tid,
            name: wait.name,
            on,
        });
        calls::name(waits, &self.process, pipes);
        let waits = self.futex_waits(tids);
        let waits = waits.filter(|(_, trace)| has_bytes(&self.process, trace));
        let waits = waits.map(|(tid, trace)| Unchanged::Futex(*tid, trace));
        let calls = self.process_waits(tids).zip(now);
        let calls = calls.filter(|(wait, now)| wait.on == *now);
        let calls = calls.map(|(wait, _)| Unchanged::Call(wait));
        waits.chain(calls).filter(move |_| is_whole)
    }

    fn asleep(
        &self,
        tids: &HashSet<u64>,
        until: Instant,
    ) -> impl Iterator<Item = (u64, Option<Asleep>)> {
        let waits = self.futex_waits(tids).map(|(tid, _)| *tid);
        let tids = waits.chain(self.process_waits(tids).map(|wait| wait.tid));
        tids.map(move |tid| (tid, self.process.asleep(tid, until)))
    }
}

/// A wait that has not changed since the inspection.
enum Unchanged<'a> {
    Futex(u64, &'a WaitTrace),
    Call(&'a ProcessWait),
}

impl Unchanged<'_> {
    fn tid(&self) -> u64 {
        match self {
            Unchanged::Futex(tid, _) => *tid,
            Unchanged::Call(wait) => wait.tid,
        }
    }

    /// True if a sleeping thread is in this wait.
    fn is_of(&self, asleep: &Asleep) -> bool {
        match self {
            Unchanged::Futex(_, trace) => asleep.args[0] == trace.futex,
            Unchanged::Call(wait) => {
                let same = |at: usize| asleep.args[at] as i32 == wait.args[at] as i32;
                let same_subject = match wait.on {
                    // A write that the inspection has ended early continues with other arguments.
                    // The pipe of a stopped thread may have got data or room meanwhile.
                    CallSubject::File { .. } | CallSubject::FileLock { .. } => {
                        same(0) && !asleep.is_stopped
                    }
                    CallSubject::Children { .. } => same(0) && same(1),
                };
                asleep.number == wait.number && same_subject
            }
        }
    }
}

/// True if the words that name a holder have not changed.
fn has_bytes(process: &LocalProcess, trace: &WaitTrace) -> bool {
    let now = process.memory(trace.address, trace.bytes.len());
    now.as_ref() == Some(&trace.bytes)
}

/// Those of the threads that are all still in the waits in which they were inspected, at one
/// moment.
///
/// A thread that is asleep, and has not run between two checks, was in the same call all the time.
/// Between the checks of all threads, the objects are read again.
pub(super) fn unchanged(all: &[Inspected], tids: &HashSet<u64>) -> HashSet<u64> {
    let asleep = || -> HashMap<u64, Option<Asleep>> {
        let until = Instant::now() + MAX_RESUME;
        all.iter().flat_map(|one| one.asleep(tids, until)).collect()
    };
    let before = asleep();
    let pipes = PipeUsers::default();
    let same = all.iter().flat_map(|one| one.unchanged(tids, &pipes));
    let same: Vec<Unchanged<'_>> = same.collect();
    let after = asleep();
    let stood = same.into_iter().filter(|wait| {
        let [before, after] =
            [&before, &after].map(|at| at.get(&wait.tid()).and_then(Option::as_ref));
        before == after && before.is_some_and(|asleep| wait.is_of(asleep))
    });
    stood.map(|wait| wait.tid()).collect()
}
