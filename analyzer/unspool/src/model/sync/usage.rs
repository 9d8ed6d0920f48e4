//! Statistics of function calls, and of how threads spent their time.

use foldhash::{HashMap, HashMapExt};

use super::histogram::Histogram;
use super::objects::UseIndex;
use crate::model::ThreadIndex;
use crate::model::calls::{Call, Calls, PathId};

/// Times of an instrumented function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionTimes {
    /// Its name.
    pub name: String,
    /// How often it was called.
    pub calls: u64,
    /// Durations of the calls whose end was recorded.
    pub times: Histogram,
    /// The part of that time spent in other recorded calls.
    pub inner_ns: u64,
    /// Callers by number of calls, the most frequent first.
    pub callers: Vec<Caller>,
    /// Threads that called it.
    pub threads: u64,
}

/// A path on which a function is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// The call path, the function innermost.
    pub path: PathId,
    /// Number of calls.
    pub calls: u64,
    /// Total time, nanoseconds.
    pub total_ns: u64,
    /// The arguments of the last call, in registers.
    pub args: Vec<u64>,
}

/// The time of a thread by activity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadTimes {
    /// Lifetime within the recording, as far as known.
    pub alive_ns: u64,
    /// Time spent waiting for objects that others held.
    pub held_ns: u64,
    /// Time spent waiting for others to arrive or to finish.
    pub others_ns: u64,
    /// Time spent waiting for work.
    pub idle_ns: u64,
    /// Operations on synchronization objects.
    pub operations: u64,
    /// Threads it created.
    pub creations: u64,
}

impl ThreadTimes {
    /// The remaining time: it ran, or was in system calls that were not recorded.
    pub fn running_ns(&self) -> u64 {
        self.alive_ns
            .saturating_sub(self.held_ns)
            .saturating_sub(self.others_ns)
            .saturating_sub(self.idle_ns)
    }
}

#[derive(Debug, Default)]
struct Function {
    calls: u64,
    times: Histogram,
    inner_ns: u64,
    callers: HashMap<PathId, Caller>,
    threads: Vec<bool>,
}

#[derive(Debug)]
pub(super) struct Usage {
    functions: Vec<Function>,
    /// The functions of pending calls, by call number.
    open: HashMap<u64, usize>,
    pub(super) operations: Vec<u64>,
    /// Waiting time per use, for each thread.
    pub(super) waited: Vec<HashMap<UseIndex, u64>>,
}

impl Usage {
    pub(super) fn new(threads: usize) -> Usage {
        Usage {
            functions: Vec::new(),
            open: HashMap::new(),
            operations: vec![0; threads],
            waited: vec![HashMap::new(); threads],
        }
    }

    pub(super) fn operated(&mut self, thread: ThreadIndex) {
        if let Some(operations) = self.operations.get_mut(thread.0) {
            *operations += 1;
        }
    }

    pub(super) fn waited(&mut self, thread: ThreadIndex, used: UseIndex, ns: u64) {
        if let Some(waited) = self.waited.get_mut(thread.0) {
            *waited.entry(used).or_default() += ns;
        }
    }

    pub(super) fn entered(&mut self, call: &Call, has_end: bool) {
        let at = call.function.0;
        while self.functions.len() <= at {
            self.functions.push(Function::default());
        }
        let threads = self.operations.len();
        let function = &mut self.functions[at];
        function.calls += 1;
        function.threads.resize(threads, false);
        if let Some(seen) = function.threads.get_mut(call.thread.0) {
            *seen = true;
        }
        let caller = function.callers.entry(call.path).or_insert(Caller {
            path: call.path,
            calls: 0,
            total_ns: 0,
            args: Vec::new(),
        });
        caller.calls += 1;
        caller.args.clone_from(&call.args);
        if has_end {
            self.open.insert(call.number, at);
        }
    }

    pub(super) fn left(&mut self, call: &Call, left_ns: u64) {
        let Some(at) = self.open.remove(&call.number) else {
            return;
        };
        let ns = left_ns.saturating_sub(call.entered_ns);
        let function = &mut self.functions[at];
        function.times.add(ns);
        if let Some(caller) = function.callers.get_mut(&call.path) {
            caller.total_ns += ns;
        }
        if let Some(outer) = call.within.and_then(|outer| self.open.get(&outer)) {
            self.functions[*outer].inner_ns += ns;
        }
    }

    pub(super) fn lost(&mut self, call: &Call) {
        self.open.remove(&call.number);
    }

    pub(super) fn take_functions(&mut self, calls: &Calls) -> Vec<FunctionTimes> {
        let mut all: Vec<FunctionTimes> = std::mem::take(&mut self.functions)
            .into_iter()
            .zip(&calls.functions)
            .filter(|(function, _)| function.calls > 0)
            .map(|(function, declared)| {
                let mut callers: Vec<Caller> = function.callers.into_values().collect();
                callers.sort_by_key(|c| (std::cmp::Reverse(c.calls), c.path));
                FunctionTimes {
                    name: declared.name.clone(),
                    calls: function.calls,
                    times: function.times,
                    inner_ns: function.inner_ns,
                    callers,
                    threads: function.threads.iter().filter(|seen| **seen).count() as u64,
                }
            })
            .collect();
        all.sort_by_key(|f| {
            (
                std::cmp::Reverse(f.times.total_ns),
                std::cmp::Reverse(f.calls),
            )
        });
        all
    }
}
