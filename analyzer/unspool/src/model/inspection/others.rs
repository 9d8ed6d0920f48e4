//! Other inspected processes: those that the user named, and those for which threads wait.
//!
//! Their threads have the numbers after those of the process itself, as in a recording.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::{CallSubject, OtherProcess, State, Wait, WaitTrace};
use crate::model::{Model, ProcessIndex, Thread, ThreadIndex, finding, note, wait_graph};

impl Model {
    /// The ids of threads of other processes that hold what threads of this one wait for.
    pub fn outside_holders(&self) -> BTreeSet<u64> {
        let shared = self.waits().filter(|wait| wait.shared);
        let holders = shared.flat_map(|wait| &wait.holders);
        let outside = holders.filter(|holder| holder.thread.is_none() && !holder.is_gone);
        outside.map(|holder| holder.tid).collect()
    }

    /// The waits that can be checked later, with the ids of their threads.
    pub fn traced_waits(&self) -> Vec<(u64, Arc<WaitTrace>)> {
        let threads = self.threads.iter().zip(&self.inspection.states);
        let waits = threads.filter_map(|(thread, state)| {
            let trace = state.wait()?.trace.clone();
            thread.tid.zip(trace)
        });
        waits.collect()
    }

    /// The calls in which threads wait for other processes.
    pub fn process_waits(&self) -> Vec<ProcessWait> {
        fn of(state: &State, tid: u64) -> Option<ProcessWait> {
            match state {
                State::InCall {
                    number,
                    name: Some(name),
                    args,
                    on: Some(on),
                } => Some(ProcessWait {
                    tid,
                    number: *number,
                    name,
                    args: *args,
                    on: on.clone(),
                }),
                State::Stopped(_, before) => of(before, tid),
                _ => None,
            }
        }
        let threads = self.threads.iter().zip(&self.inspection.states);
        let waits = threads.filter_map(|(thread, state)| of(state, thread.tid?));
        waits
            .filter(|wait| !wait.on.processes().is_empty())
            .collect()
    }

    /// The state of a thread as it was inspected, at the end if this is a recording.
    pub fn inspected_state(&self, thread: ThreadIndex) -> &State {
        match &self.at_end {
            Some(at_end) => at_end.inspection.state(thread),
            None => self.inspection.state(thread),
        }
    }

    fn waits(&self) -> impl Iterator<Item = &Wait> {
        self.inspection.states.iter().filter_map(State::wait)
    }

    /// Names the shared objects at which threads wait, by their addresses, and finds the threads
    /// that hold them. `holder` gets the id that the object stores, and returns `None` if its
    /// thread has ended, or the reason why the thread is not known.
    pub fn resolve_shared(
        &mut self,
        mut name: impl FnMut(u64) -> Option<String>,
        holder: impl Fn(&WaitTrace, u64) -> Result<Option<u64>, &'static str>,
    ) {
        let threads = self.threads.iter().enumerate();
        let own = threads.filter_map(|(index, thread)| Some((thread.tid?, ThreadIndex(index))));
        let own: HashMap<u64, ThreadIndex> = own.collect();
        let waits = self.inspection.states.iter_mut();
        for wait in waits.filter_map(State::wait_mut).filter(|wait| wait.shared) {
            for object in [&mut wait.object].into_iter().chain(&mut wait.mutex) {
                if object.name.is_none() {
                    object.name = name(object.address).map(Into::into);
                }
            }
            let Some(trace) = &wait.trace else {
                continue;
            };
            for one in &mut wait.holders {
                match holder(trace, one.stored) {
                    Ok(Some(tid)) => (one.tid, one.thread) = (tid, own.get(&tid).copied()),
                    Ok(None) => (one.is_gone, one.thread) = (true, None),
                    Err(why) => wait.unknown = Some(why.into()),
                }
            }
            if wait.unknown.is_some() {
                wait.holders.clear();
                wait.proved = false;
            }
        }
        let inspection = std::mem::take(&mut self.inspection);
        self.add_hangs(Some(&inspection));
        self.inspection = inspection;
    }

    /// Adds the inspected threads of other processes, and the hangs in which they take part. The
    /// user named the first `named` of the processes. Of some threads, `stood` gives those that
    /// waited all together as they were inspected.
    pub fn add_others(
        &mut self,
        others: Vec<Model>,
        named: usize,
        stood: impl Fn(&HashSet<u64>) -> HashSet<u64>,
    ) {
        for (index, other) in others.into_iter().enumerate() {
            let base = self.threads.len() + self.processes.threads.len();
            if index < named {
                self.inspection.named.insert(other.target.pid);
            }
            let findings = other.findings.into_iter();
            let findings = findings.map(|it| it.renumbered(|thread| ThreadIndex(base + thread.0)));
            self.findings.extend(findings);
            self.inspection.add_handlers(&other.inspection);
            let states = &mut self.inspection.states;
            states.resize(base, State::Unknown);
            states.extend(other.inspection.states);
            states.resize(base + other.threads.len(), State::Unknown);
            self.processes.add_inspected(&other.target, other.threads);
            self.notes.extend(other.notes);
        }
        note::arrange(&mut self.notes);
        let mut states = std::mem::take(&mut self.inspection.states);
        self.link_holders(&mut states);
        self.inspection.states = states;
        let inspection = std::mem::take(&mut self.inspection);
        let found = wait_graph::across_processes(self, &inspection, stood);
        self.findings.extend(found);
        self.inspection = inspection;
        finding::sort(&mut self.findings);
    }

    /// The threads of a process that this one started and that was inspected when the recording
    /// ended, as they were recorded. `None` if one was not recorded.
    pub(in crate::model) fn as_recorded(&self, other: &Model) -> Option<Vec<ThreadIndex>> {
        let mut processes = self.processes.all.iter().rev();
        let process = processes.find(|process| process.pid == other.target.pid)?;
        let indices = process.first_thread..process.first_thread + process.threads;
        let recorded = |thread: &Thread| {
            let mut indices = indices.clone().rev();
            let index = indices.find(|index| self.processes.threads[*index].tid == thread.tid)?;
            Some(ThreadIndex(self.threads.len() + index))
        };
        other.threads.iter().map(recorded).collect()
    }

    /// Adds the hangs of a process that was inspected when the recording ended. It has the threads
    /// with these `indices`.
    pub(in crate::model) fn add_hangs_of(&mut self, other: Model, indices: &[ThreadIndex]) {
        let own = self.threads.len();
        for (index, seen) in indices.iter().zip(&other.threads) {
            let known = &mut self.processes.threads[index.0 - own];
            known.function = known.function.take().or_else(|| seen.function.clone());
        }
        let found = other.findings.into_iter();
        let found = found.map(|it| it.renumbered(|thread| indices[thread.0]));
        wait_graph::add_hangs(self, found.collect());
    }

    /// Finds the threads of other processes that hold what threads wait for.
    pub(in crate::model) fn link_holders(&self, states: &mut [State]) {
        let threads = self.any_threads().enumerate();
        let by_tid = threads.filter_map(|(index, thread)| Some((thread.tid?, ThreadIndex(index))));
        let by_tid: HashMap<u64, ThreadIndex> = by_tid.collect();
        let own = self.threads.len();
        let indices = (0..states.len()).map(ThreadIndex);
        let process_of: Vec<Option<ProcessIndex>> = indices
            .map(|thread| self.process(thread).map(|(process, _)| process))
            .collect();
        for (index, state) in states.iter_mut().enumerate() {
            let Some(wait) = state.wait_mut() else {
                continue;
            };
            for holder in &mut wait.holders {
                if !holder.is_gone && (index >= own || holder.thread.is_none()) {
                    // A private lock that was held during a fork names a thread of the parent,
                    // which holds another lock.
                    let is_possible = |thread: &ThreadIndex| {
                        wait.shared || process_of.get(thread.0) == process_of.get(index)
                    };
                    let thread = by_tid.get(&holder.tid).copied();
                    holder.thread = thread.filter(is_possible);
                }
            }
        }
    }
}

/// A thread that waits for other processes in a system call.
#[derive(Clone, Debug)]
pub struct ProcessWait {
    /// The thread.
    pub tid: u64,
    /// The call's number.
    pub number: u64,
    /// The call's name.
    pub name: &'static str,
    /// The call's first two arguments.
    pub args: [u64; 2],
    /// The processes.
    pub on: CallSubject,
}

impl CallSubject {
    /// The processes that can end the call.
    pub fn processes(&self) -> &[OtherProcess] {
        match self {
            CallSubject::File { other_end, .. } => other_end,
            CallSubject::FileLock { holders, .. } => holders,
            CallSubject::Children { processes, .. } => processes,
        }
    }
}

impl Model {
    /// The threads of other processes for which, perhaps through further threads, threads of this
    /// process and of the other named ones wait.
    pub fn awaited_elsewhere(&self) -> BTreeSet<ThreadIndex> {
        let own = self.threads.len();
        let mut by_process: HashMap<u64, Vec<ThreadIndex>> = HashMap::new();
        let mut reached: BTreeSet<ThreadIndex> = BTreeSet::new();
        let mut ahead: Vec<ThreadIndex> = (0..own).map(ThreadIndex).collect();
        for process in &self.processes.all {
            let first = own + process.first_thread;
            let threads = (first..first + process.threads).map(ThreadIndex);
            if self.inspection.named.contains(&process.pid) {
                ahead.extend(threads.clone());
            }
            by_process.entry(process.pid).or_default().extend(threads);
        }
        while let Some(thread) = ahead.pop() {
            let state = self.inspection.state(thread);
            let holders = state.wait().map(|wait| &wait.holders);
            let holders = holders
                .into_iter()
                .flatten()
                .filter_map(|holder| holder.thread);
            let processes = state.subject().map_or(&[][..], CallSubject::processes);
            let threads = processes
                .iter()
                .filter_map(|process| by_process.get(&process.pid));
            let threads = threads.flatten().copied();
            for one in holders.chain(threads).filter(|one| one.0 >= own) {
                if reached.insert(one) {
                    ahead.push(one);
                }
            }
        }
        reached
    }
}
