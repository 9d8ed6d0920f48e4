//! Threads that follow functions in parallel.
//!
//! Following a function uses facts about the whole text, but no results of other functions. So many
//! can be followed at once. One thread then draws conclusions from the results in order. Each
//! thread numbers rules on its own, and the numbers are unified in the order of the tasks. So the
//! result does not depend on the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::{Discovery, Found};
use crate::code::flow::{Function, Memory, Show, Shown};
use crate::code::machine::Machine;
use crate::code::rules::{NO_RULE, Rules};

/// Minimum number of tasks for which other threads are started.
const MIN_PARALLEL_TASKS: usize = 48;
/// Number of tasks that a thread takes at a time.
const BATCH: usize = 8;

/// The buffers and the output for following functions.
pub(super) struct Workspace<'m> {
    pub(super) memory: &'m mut Memory,
    pub(super) show: &'m mut dyn Show,
}

/// The threads and their buffers.
pub(super) struct Workers<'c> {
    memory: Memory,
    show: &'c mut dyn Show,
    workers: Vec<Worker>,
}

/// The state of one thread.
struct Worker {
    memory: Memory,
    rules: Rules,
    /// The unified number of each of its rules.
    numbers: Vec<u32>,
}

impl<'c> Workers<'c> {
    /// Workers for `threads` threads, if the output can be produced in parallel. A single thread
    /// follows a function only when it is needed, which saves work for all others.
    pub(super) fn new(
        machine: &'static Machine,
        show: &'c mut dyn Show,
        threads: usize,
    ) -> Workers<'c> {
        let worker = |_| Worker {
            memory: Memory::new(machine),
            rules: Rules::new(machine.arch),
            numbers: Vec::new(),
        };
        let several = threads > 1 && show.rules().is_some();
        let count = if several { threads } else { 0 };
        Workers {
            memory: Memory::new(machine),
            show,
            workers: (0..count).map(worker).collect(),
        }
    }

    /// The workspace of the current thread.
    pub(super) fn workspace(&mut self) -> Workspace<'_> {
        Workspace {
            memory: &mut self.memory,
            show: &mut *self.show,
        }
    }

    pub(super) fn threads(&self) -> usize {
        self.workers.len().max(1)
    }

    /// Whether this many tasks are worth several threads.
    pub(super) fn is_worth(&self, tasks: usize) -> bool {
        tasks >= MIN_PARALLEL_TASKS && !self.workers.is_empty()
    }

    /// Runs all tasks in any order. Returns the results in the order of the tasks.
    pub(super) fn each<T: Sync, R: AsMut<[Found]> + Send>(
        &mut self,
        discovery: &Discovery<'_>,
        tasks: &[T],
        each: impl Fn(&Discovery<'_>, &T, &mut Workspace<'_>) -> R + Sync,
    ) -> Vec<R> {
        if !self.is_worth(tasks.len()) {
            let workspace = &mut self.workspace();
            return tasks
                .iter()
                .map(|task| each(discovery, task, workspace))
                .collect();
        }
        let next = AtomicUsize::new(0);
        let work = |worker: &mut Worker| {
            let workspace = &mut Workspace {
                memory: &mut worker.memory,
                show: &mut worker.rules,
            };
            let mut found = Vec::new();
            loop {
                let first = next.fetch_add(BATCH, Ordering::Relaxed);
                let Some(batch) = tasks.get(first..) else {
                    return found;
                };
                for (task, number) in batch.iter().zip(first..first + BATCH) {
                    found.push((number, each(discovery, task, workspace)));
                }
            }
        };
        let mut all: Vec<(usize, R)> = Vec::with_capacity(tasks.len());
        let mut worker_of = vec![0; tasks.len()];
        thread::scope(|scope| {
            let mut workers = self.workers.iter_mut();
            let own = workers.next();
            // If a thread cannot be started, the others do its tasks.
            let others: Vec<_> = workers
                .map(|worker| {
                    thread::Builder::new()
                        .name("code".into())
                        .spawn_scoped(scope, || work(worker))
                })
                .collect();
            let mut found = own.map(work).unwrap_or_default();
            all.append(&mut found);
            for (worker, other) in others.into_iter().enumerate() {
                let Ok(other) = other else { continue };
                let found = other
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                for (number, _) in &found {
                    worker_of[*number] = worker + 1;
                }
                all.extend(found);
            }
        });
        all.sort_unstable_by_key(|done| done.0);
        if let Some(rules) = self.show.rules() {
            for (number, functions) in &mut all {
                let worker = &mut self.workers[worker_of[*number]];
                for function in functions.as_mut() {
                    worker.renumber(function, rules);
                }
            }
        }
        all.into_iter().map(|done| done.1).collect()
    }
}

impl Worker {
    /// Replaces the rule numbers of `function` with the unified ones.
    fn renumber(&mut self, function: &mut Function, rules: &mut Rules) {
        for shown in &mut function.shown {
            let Shown::Run(_, _, number) = shown else {
                continue;
            };
            if *number == NO_RULE {
                continue;
            }
            let own = *number as usize;
            if self.numbers.len() <= own {
                self.numbers.resize(own + 1, NO_RULE);
            }
            if self.numbers[own] == NO_RULE {
                self.numbers[own] = rules.adopt(&self.rules, *number);
            }
            *number = self.numbers[own];
        }
    }
}
