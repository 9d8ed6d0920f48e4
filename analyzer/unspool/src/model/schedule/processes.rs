//! The processes that the program started: their programs, their threads, and when these ran.
//!
//! The kernel's schedule has them, because they inherit its events. Nothing else of them is
//! recorded. Where there is no schedule, only their starts are known.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use unspool_capture::{Capture, Record, ScheduleEntry, ScheduleKind, ScheduleLoss};

mod creation_stacks;
mod process;

pub use process::Process;

pub(in crate::model) use creation_stacks::CreationStacks;

use super::thread_ids::ThreadIds;
use super::{CallIndex, Interval, Reader, Schedule, StateTimes, merge, sum_of, with_losses};
use crate::model::backtrace::{Frames, base_name};
use crate::model::critical_path::Awaited;
use crate::model::thread::{Creation, Ending, Thread};
use crate::model::{Model, Target, ThreadIndex};

/// Maximum difference between the stub's and the kernel's time of the same start.
const SAME_START_NS: u64 = 1_000_000_000;
/// The kernel keeps this many bytes of a program's name.
const NAME_BYTES: usize = 15;

/// Index of a process in [`Processes::all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessIndex(pub usize);

/// The processes that the program and its descendants started.
///
/// Their threads have numbers after those of the program's threads, and their programs after the
/// program's identities. So a [`ThreadIndex`] or an identity can mean either.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Processes {
    /// All of them, creators before the processes that they started.
    pub all: Vec<Process>,
    /// The threads of all processes; those of one process are neighbours.
    pub threads: Vec<Thread>,
    /// Per thread, its intervals, in order and without gaps.
    pub intervals: Vec<Vec<Interval>>,
    /// Per thread, its process.
    pub process_of: Vec<ProcessIndex>,
    /// The names of the programs that the processes ran last, and the number of such processes.
    pub programs: Vec<(String, usize)>,
}

impl Processes {
    /// The processes in the schedule, and those of which only the start was recorded.
    pub(in crate::model) fn of(
        capture: &Capture,
        model: &Model,
        frames: &mut dyn Frames,
    ) -> Processes {
        let started = model.processes.all.clone();
        let Some((begun_ns, last_ns)) = model.schedule.span_ns else {
            return Processes::named(started, model);
        };
        let mut found = Found::default();
        let mut losses: Vec<ScheduleLoss> = Vec::new();
        for record in &capture.records {
            match record {
                Record::Schedule(part) => losses.extend(&part.losses),
                Record::Processes(part) => {
                    for entry in part.entries() {
                        let name = usize::try_from(entry.detail).ok();
                        let name = name.and_then(|index| part.names.get(index));
                        let call = model.schedule.call_of(entry);
                        found.entry(entry, name, call, begun_ns);
                    }
                }
                _ => {}
            }
        }
        losses.sort_unstable_by_key(|loss| loss.from_ns);
        let stacks = CreationStacks::of(capture, frames);
        found.finish(started, &losses, last_ns, model, &stacks)
    }

    /// Finds the programs and the creators of processes.
    fn named(all: Vec<Process>, model: &Model) -> Processes {
        let mut processes = Processes {
            all,
            ..Processes::default()
        };
        processes.find_creators(model);
        processes.find_programs(model);
        processes
    }

    /// The program with this name, for one more process.
    fn add_program(&mut self, name: &str) -> usize {
        let mut known = self.programs.iter().position(|(other, _)| other == name);
        let program = *known.get_or_insert_with(|| {
            self.programs.push((name.to_owned(), 0));
            self.programs.len() - 1
        });
        self.programs[program].1 += 1;
        program
    }

    /// Adds a process that was recorded as the program was, and those that it started. Their
    /// threads get indices that are larger by `base`. `calls` are the indices of its calls.
    pub(in crate::model) fn add_recorded(
        &mut self,
        other: &Model,
        base: usize,
        calls: &[CallIndex],
    ) {
        let first_thread = self.threads.len();
        let first_process = self.all.len();
        let shift = |thread: ThreadIndex| ThreadIndex(thread.0 + base);
        let target = &other.target;
        let started_ns = other.threads.iter().filter_map(Thread::first_ns).min();
        let ended_ns = other
            .recording
            .program_end
            .map(|_| other.recording.duration_ns);
        let program = Some(self.add_program(&target.name));
        self.all.push(Process {
            executable: target.executable.clone(),
            program,
            threads: other.threads.len(),
            first_thread,
            ended_ns,
            is_apart: true,
            ..Process::new(target.pid, target.parent_pid, started_ns.unwrap_or(0))
        });
        for process in &other.processes.all {
            let name = other.processes.program(process);
            let program = name.map(|(name, _)| self.add_program(name));
            self.all.push(Process {
                creator: process.creator.map(shift),
                program,
                first_thread: first_thread + other.threads.len() + process.first_thread,
                is_apart: true,
                ..process.clone()
            });
        }
        let own = other.threads.iter().map(|_| ProcessIndex(first_process));
        let further = other.processes.process_of.iter();
        let further = further.map(|process| ProcessIndex(first_process + 1 + process.0));
        self.process_of.extend(own.chain(further));
        self.threads.extend(other.any_threads().map(|thread| {
            let mut thread = thread.clone();
            if let Creation::Seen { creator, .. } = &mut thread.creation {
                *creator = shift(*creator);
            }
            thread.joiner = thread.joiner.map(shift);
            thread
        }));
        let count = other.threads.len() + other.processes.threads.len();
        let intervals = (0..count).map(|thread| {
            let intervals = other.intervals(ThreadIndex(thread)).iter();
            let shifted = intervals.map(|interval| Interval {
                call: interval
                    .call
                    .and_then(|call| calls.get(call.0 as usize).copied()),
                ..*interval
            });
            shifted.collect()
        });
        self.intervals.extend(intervals);
    }

    /// Adds a process that was inspected, and not recorded.
    pub(in crate::model) fn add_inspected(&mut self, target: &Target, threads: Vec<Thread>) {
        let program = self.add_program(&target.name);
        let index = ProcessIndex(self.all.len());
        self.all.push(Process {
            executable: target.executable.clone(),
            program: Some(program),
            threads: threads.len(),
            first_thread: self.threads.len(),
            ..Process::new(target.pid, None, 0)
        });
        self.process_of.extend(threads.iter().map(|_| index));
        self.intervals.extend(threads.iter().map(|_| Vec::new()));
        self.threads.extend(threads);
    }

    /// Removes the processes that were added after the first `count`.
    pub(in crate::model) fn truncate(&mut self, count: usize) {
        for process in self.all.drain(count..) {
            if let Some(program) = process.program {
                self.programs[program].1 -= 1;
            }
        }
        while self
            .programs
            .pop_if(|(_, processes)| *processes == 0)
            .is_some()
        {}
        let threads = self.process_of.partition_point(|process| process.0 < count);
        self.process_of.truncate(threads);
        self.intervals.truncate(threads);
        self.threads.truncate(threads);
    }

    fn find_creators(&mut self, model: &Model) {
        let ids = ThreadIds::of(&model.threads, &self.threads);
        for process in &mut self.all {
            let creator = process.creator_tid;
            process.creator = creator.and_then(|tid| ids.at(tid, process.started_ns));
        }
    }

    /// A process that executed nothing runs the program of its creator.
    fn find_programs(&mut self, model: &Model) {
        let mut known: HashMap<String, usize> = HashMap::new();
        for index in 0..self.all.len() {
            let process = &self.all[index];
            let file = base_name(&process.executable);
            let name = match process.executed.last() {
                Some(name) if name.len() >= NAME_BYTES && file.starts_with(name.as_str()) => file,
                Some(name) => name,
                None if !file.is_empty() => file,
                None if !process.is_recorded() => continue,
                None => {
                    let creator = process.creator.and_then(|creator| {
                        let other = creator.0.checked_sub(model.threads.len())?;
                        let process = self.process_of.get(other)?;
                        self.all.get(process.0)?.program
                    });
                    let creator = match creator {
                        Some(program) => self.programs[program].0.as_str(),
                        None => model.target.name.as_str(),
                    };
                    // Since then, the creator may have executed another program.
                    match process.inherited.as_str() {
                        name if creator.starts_with(name) => creator,
                        name => name,
                    }
                }
            };
            let name = name.to_owned();
            let program = *known.entry(name.clone()).or_insert_with(|| {
                self.programs.push((name, 0));
                self.programs.len() - 1
            });
            self.programs[program].1 += 1;
            self.all[index].program = Some(program);
        }
    }

    /// The program that a process ran last, and the number of processes that ran it last.
    pub fn program(&self, process: &Process) -> Option<&(String, usize)> {
        self.programs.get(process.program?)
    }

    /// The name of that program; empty if it is not known.
    pub fn program_name(&self, process: &Process) -> &str {
        self.program(process).map_or("", |(name, _)| name)
    }

    /// The times of all threads of a process.
    pub fn times(&self, process: &Process) -> StateTimes {
        let threads = process.first_thread..process.first_thread + process.threads;
        let intervals = self.intervals.get(threads).into_iter().flatten().flatten();
        sum_of(intervals)
    }
}

/// Adds the starts that the stub has seen, and brings all processes into the order of their starts.
fn add_starts(all: &mut Vec<(Process, Vec<FoundThread>)>, started: Vec<Process>) {
    let mut by_pid: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, (process, _)) in all.iter().enumerate() {
        by_pid.entry(process.pid).or_default().push(index);
    }
    for start in started {
        let apart = |index: &usize| all[*index].0.started_ns.abs_diff(start.started_ns);
        let same = by_pid.get(&start.pid).into_iter().flatten();
        match same.min_by_key(|index| apart(index)) {
            Some(index) if apart(index) <= SAME_START_NS => {
                all[*index].0.executable = start.executable;
            }
            _ => all.push((start, Vec::new())),
        }
    }
    all.sort_by_key(|(process, _)| process.started_ns);
}

/// Other processes, while the entries of the schedule are read.
#[derive(Default)]
struct Found {
    reader: Reader,
    processes: Vec<Process>,
    /// Per process, its threads.
    threads: Vec<Vec<FoundThread>>,
    /// The process and the thread that has each thread id now.
    current: HashMap<u64, (usize, usize)>,
}

struct FoundThread {
    tid: u64,
    /// The thread of the same process that created it.
    creator: Option<usize>,
    name: String,
    /// Its index among the threads that had this thread id, in order of time.
    life: usize,
}

impl Found {
    fn entry(
        &mut self,
        entry: ScheduleEntry,
        name: Option<&String>,
        call: Option<CallIndex>,
        begun_ns: u64,
    ) {
        match entry.kind {
            ScheduleKind::ProcessCreated => {
                let creator = Some(entry.detail);
                let former = self.current.get(&entry.detail);
                let former = former.map(|(process, _)| &self.processes[*process]);
                let inherited =
                    former.map(|it| it.executed.last().unwrap_or(&it.inherited).clone());
                self.processes.push(Process {
                    inherited: inherited.unwrap_or_default(),
                    ..Process::new(entry.tid, creator, entry.time_ns)
                });
                self.threads.push(Vec::new());
                let name = self.thread_named(entry.detail).unwrap_or_default();
                let created = ScheduleEntry {
                    kind: ScheduleKind::Created,
                    ..entry
                };
                self.begin(created, self.processes.len() - 1, name, begun_ns);
            }
            ScheduleKind::Created => {
                if let Some(&(process, creator)) = self.current.get(&entry.detail) {
                    let name = self.thread_named(entry.detail).unwrap_or_default();
                    self.begin(entry, process, name, begun_ns);
                    if let Some(created) = self.threads[process].last_mut() {
                        created.creator = Some(creator);
                    }
                }
            }
            ScheduleKind::Named | ScheduleKind::Executed => {
                let Some((&(process, thread), name)) = self.current.get(&entry.tid).zip(name)
                else {
                    return;
                };
                self.threads[process][thread].name.clone_from(name);
                if entry.kind == ScheduleKind::Executed {
                    self.processes[process].executed.push(name.clone());
                    self.executed(process, entry, begun_ns);
                }
            }
            _ if self.current.contains_key(&entry.tid) => self.reader.entry(entry, call, begun_ns),
            _ => {}
        }
    }

    /// Only one thread remains in a process that executes a program. It takes the id of the first
    /// one, which may have ended, and counts as that.
    fn executed(&mut self, process: usize, entry: ScheduleEntry, begun_ns: u64) {
        for thread in 0..self.threads[process].len() {
            let tid = self.threads[process][thread].tid;
            if tid != entry.tid && self.current.get(&tid) == Some(&(process, thread)) {
                self.current.remove(&tid);
                let ended = ScheduleEntry {
                    kind: ScheduleKind::Ended,
                    tid,
                    ..entry
                };
                self.reader.entry(ended, None, begun_ns);
            }
        }
        let lives = self.reader.lives.get_mut(&entry.tid);
        let life = lives.and_then(|lives| lives.last_mut());
        if let Some(life) = life.filter(|life| life.is_ended) {
            life.resume(entry.time_ns);
        }
    }

    fn thread_named(&self, tid: u64) -> Option<String> {
        let (process, thread) = *self.current.get(&tid)?;
        Some(self.threads[process][thread].name.clone())
    }

    fn begin(&mut self, entry: ScheduleEntry, process: usize, name: String, begun_ns: u64) {
        self.reader.entry(entry, None, begun_ns);
        let life = self.reader.lives[&entry.tid].len() - 1;
        let threads = &mut self.threads[process];
        self.current.insert(entry.tid, (process, threads.len()));
        threads.push(FoundThread {
            tid: entry.tid,
            creator: None,
            name,
            life,
        });
    }

    fn finish(
        self,
        started: Vec<Process>,
        losses: &[ScheduleLoss],
        last_ns: u64,
        model: &Model,
        stacks: &CreationStacks,
    ) -> Processes {
        let mut lives = self.reader.finish(last_ns);
        let mut processes = Processes::default();
        let mut all: Vec<(Process, Vec<FoundThread>)> =
            self.processes.into_iter().zip(self.threads).collect();
        add_starts(&mut all, started);
        for (mut process, threads) in all {
            process.first_thread = processes.threads.len();
            let mut ended_ns = (!threads.is_empty()).then_some(0);
            // Per thread that was found, its index.
            let mut indices = Vec::new();
            for found in threads {
                indices.push(ThreadIndex(model.threads.len() + processes.threads.len()));
                let life = lives
                    .get_mut(&found.tid)
                    .and_then(|all| all.get_mut(found.life));
                let Some(life) = life else { continue };
                let end = life.is_ended.then_some(life.to_ns);
                ended_ns = ended_ns.zip(end).map(|(last, end)| last.max(end));
                let mut intervals = with_losses(std::mem::take(&mut life.intervals), losses);
                merge(&mut intervals);
                processes.intervals.push(intervals);
                let creator = found.creator.and_then(|creator| indices.get(creator));
                let seen = stacks.of_thread(found.tid, life.from_ns, life.to_ns);
                let creation = match (creator, seen) {
                    (Some(creator), Some(seen)) => Creation::Seen {
                        creator: *creator,
                        stack: Arc::clone(&seen.stack),
                        inferred: false,
                    },
                    _ => Creation::Unseen,
                };
                processes.threads.push(Thread {
                    name: found.name,
                    function: seen.and_then(|seen| seen.function.clone()),
                    creation,
                    started_ns: Some(life.from_ns),
                    ended_ns: end,
                    end_exact: end.is_some(),
                    ending: match end {
                        Some(_) => Ending::Exited,
                        None => Ending::Alive,
                    },
                    ..Thread::new(Some(found.tid))
                });
                let index = ProcessIndex(processes.all.len());
                processes.process_of.push(index);
            }
            process.threads = processes.threads.len() - process.first_thread;
            process.ended_ns = ended_ns;
            processes.all.push(process);
        }
        processes.find_creators(model);
        processes.find_programs(model);
        processes
    }
}

/// Threads in the order of their numbers: the program's, and perhaps those of the processes that it
/// started.
#[derive(Clone, Debug)]
pub(in crate::model) struct AllThreads<'a> {
    pub(in crate::model) threads: Cow<'a, [Thread]>,
    pub(in crate::model) schedule: Cow<'a, Schedule>,
    /// Per thread, its identity.
    pub(in crate::model) identity_of: Cow<'a, [usize]>,
    /// Per thread and system call, the lock that it waits for.
    pub(in crate::model) lock_of: HashMap<(ThreadIndex, CallIndex), Awaited>,
}

impl Model {
    /// The program's own threads, with their identities.
    pub(in crate::model) fn own_threads(&self) -> AllThreads<'_> {
        AllThreads {
            threads: Cow::Borrowed(&self.threads),
            schedule: Cow::Borrowed(&self.schedule),
            identity_of: Cow::Borrowed(&self.sync.identity_of),
            lock_of: self.lock_of_calls(),
        }
    }

    /// All threads, with their identities.
    pub(in crate::model) fn all_threads(&self) -> AllThreads<'_> {
        let mut all = self.own_threads();
        let others = &self.processes;
        if !others.threads.is_empty() {
            all.threads.to_mut().extend_from_slice(&others.threads);
            let schedule = &mut all.schedule.to_mut().threads;
            schedule.resize(self.threads.len(), Vec::new());
            schedule.extend_from_slice(&others.intervals);
            let identity_of = all.identity_of.to_mut();
            identity_of.resize(self.threads.len(), 0);
            identity_of
                .extend((0..others.threads.len()).map(|other| self.identity_of_other(other)));
        }
        all
    }

    /// The identity of a thread of the program or of another process.
    pub fn identity_of(&self, thread: ThreadIndex) -> usize {
        match thread.0.checked_sub(self.threads.len()) {
            Some(other) => self.identity_of_other(other),
            None => self.sync.identity_of.get(thread.0).copied().unwrap_or(0),
        }
    }

    fn identity_of_other(&self, other: usize) -> usize {
        let process = self.processes.process_of.get(other);
        let process = process.and_then(|process| self.processes.all.get(process.0));
        let program = process.and_then(|process| process.program);
        self.sync.identities.len() + program.unwrap_or(self.processes.programs.len())
    }

    /// The program that an identity means, and the number of its processes. None for identities of
    /// the program's own threads.
    pub fn program(&self, identity: usize) -> Option<&(String, usize)> {
        let program = identity.checked_sub(self.sync.identities.len())?;
        self.processes.programs.get(program)
    }

    /// A thread of the program or of another process.
    pub fn any_thread(&self, index: ThreadIndex) -> Option<&Thread> {
        match index.0.checked_sub(self.threads.len()) {
            Some(other) => self.processes.threads.get(other),
            None => self.thread(index),
        }
    }

    /// When a thread of the program or of another process ran, and when it did not.
    pub fn intervals(&self, thread: ThreadIndex) -> &[Interval] {
        match thread.0.checked_sub(self.threads.len()) {
            Some(other) => self
                .processes
                .intervals
                .get(other)
                .map_or(&[], Vec::as_slice),
            None => self.schedule.of_thread(thread),
        }
    }

    /// The threads of the program, and then those of the processes that it started.
    pub fn any_threads(&self) -> impl Iterator<Item = &Thread> {
        self.threads.iter().chain(&self.processes.threads)
    }

    /// The process of a thread that does not belong to the program itself.
    pub fn process(&self, thread: ThreadIndex) -> Option<(ProcessIndex, &Process)> {
        let other = thread.0.checked_sub(self.threads.len())?;
        let index = *self.processes.process_of.get(other)?;
        Some((index, self.processes.all.get(index.0)?))
    }

    /// The id of a thread's process.
    pub fn pid_of(&self, thread: ThreadIndex) -> u64 {
        let process = self.process(thread);
        process.map_or(self.target.pid, |(_, process)| process.pid)
    }
}

#[cfg(test)]
mod tests;
