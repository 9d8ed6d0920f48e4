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
    /// Their total time, in which recursive calls count once: only the outermost one does.
    pub total_ns: u64,
    /// Their time without that spent in recorded calls inside.
    pub own_ns: u64,
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
    total_ns: u64,
    /// The part of all calls' time that was spent in recorded calls inside.
    inner_ns: u64,
    callers: HashMap<PathId, Caller>,
    threads: Vec<bool>,
}

/// A pending call.
#[derive(Clone, Copy, Debug)]
struct Open {
    function: usize,
    /// The recorded call in which it was made.
    within: Option<u64>,
    /// False if it was made within another call of its function.
    outermost: bool,
}

#[derive(Debug)]
pub(super) struct Usage {
    functions: Vec<Function>,
    /// Pending calls, by call number.
    open: HashMap<u64, Open>,
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
            let open = Open {
                function: at,
                within: call.within,
                outermost: !self.is_within(at, call.within),
            };
            self.open.insert(call.number, open);
        }
    }

    /// True if this pending call, or one around it, is a call of the function.
    fn is_within(&self, function: usize, mut call: Option<u64>) -> bool {
        while let Some(open) = call.and_then(|number| self.open.get(&number)) {
            if open.function == function {
                return true;
            }
            call = open.within;
        }
        false
    }

    pub(super) fn left(&mut self, call: &Call, left_ns: u64) {
        let Some(open) = self.open.remove(&call.number) else {
            return;
        };
        let ns = left_ns.saturating_sub(call.entered_ns);
        let function = &mut self.functions[open.function];
        function.times.add(ns);
        if open.outermost {
            function.total_ns = function.total_ns.saturating_add(ns);
        }
        if let Some(caller) = function.callers.get_mut(&call.path) {
            caller.total_ns += ns;
        }
        if let Some(outer) = call.within.and_then(|outer| self.open.get(&outer)) {
            self.functions[outer.function].inner_ns += ns;
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
                    own_ns: function.times.total_ns.saturating_sub(function.inner_ns),
                    times: function.times,
                    total_ns: function.total_ns,
                    callers,
                    threads: function.threads.iter().filter(|seen| **seen).count() as u64,
                }
            })
            .collect();
        all.sort_by_key(|f| (std::cmp::Reverse(f.total_ns), std::cmp::Reverse(f.calls)));
        all
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::ProbeKind;

    use crate::model::fixture::{PID, Stage};

    const WALK: u32 = 10;
    const VISIT: u32 = 12;
    const STACK: &[&str] = &["orders!walk", "orders!main"];

    /// `walk` calls itself by `visit`, to the given depth.
    fn walk(stage: &mut Stage, depth: u64, from: u64) -> u64 {
        let frame = 0x7000 + 0x100 * depth;
        stage.enter(PID, from, WALK, frame, &[], STACK);
        let mut now = from + 10;
        if depth > 0 {
            stage.enter(PID, now, VISIT, frame - 0x80, &[], STACK);
            now = walk(stage, depth - 1, now + 10) + 10;
            stage.leave(PID, now, VISIT + 1, frame - 0x80, 0);
        }
        stage.leave(PID, now + 10, WALK + 1, frame, 0);
        now + 10
    }

    #[test]
    fn of_recursive_calls_the_outermost_counts() {
        let mut stage = Stage::new();
        for (probe, function) in [(WALK, "orders!walk"), (VISIT, "orders!visit")] {
            stage.instrument(probe, function, ProbeKind::Enter);
            stage.instrument_end(probe + 1, ProbeKind::Leave, &[probe]);
        }
        let ends = walk(&mut stage, 2, 100);
        assert_eq!(walk(&mut stage, 0, 1000), 1020);
        stage.end(1);
        let sync = stage.model().sync;
        let times = |name: &str| {
            let mut functions = sync.functions.iter();
            let function = functions.find(|function| function.name == name).unwrap();
            (function.calls, function.total_ns, function.own_ns)
        };
        assert_eq!(times("walk"), (4, ends - 100 + 20, 80));
        assert_eq!(times("visit"), (2, ends - 100 - 20, 40));
    }
}
