//! Threads on stage that lock, wait and signal: the events of `record --sync=all`.
//!
//! Times are microseconds. A thread's thread function and the path to each call are written with the
//! call, so that a test reads like the program it stands for.

use std::collections::HashMap;

use unspool_capture::ProbeKind;

use super::{Function, Stage};

/// The functions that are instrumented, in the order of their probes: beginning `100 + 2 * i`, end one more.
const FUNCTIONS: [Function; 17] = [
    "libc.so.6!pthread_mutex_lock",
    "libc.so.6!pthread_mutex_unlock",
    "libc.so.6!pthread_mutex_trylock",
    "libc.so.6!pthread_mutex_init",
    "libc.so.6!pthread_mutex_destroy",
    "libc.so.6!pthread_cond_wait",
    "libc.so.6!pthread_cond_signal",
    "libc.so.6!pthread_cond_broadcast",
    "libc.so.6!pthread_rwlock_rdlock",
    "libc.so.6!pthread_rwlock_wrlock",
    "libc.so.6!pthread_rwlock_unlock",
    "libc.so.6!sem_wait",
    "libc.so.6!sem_post",
    "libc.so.6!pthread_barrier_wait",
    "libc.so.6!pthread_join",
    "libc.so.6!pthread_mutex_timedlock",
    "libc.so.6!pthread_barrier_init",
];

/// A stage whose synchronization is recorded.
#[derive(Debug)]
pub(crate) struct Acting {
    pub(crate) stage: Stage,
    /// Per thread, the path to whatever it calls.
    paths: HashMap<u64, Vec<Function>>,
}

impl Acting {
    /// A program of which nothing has been seen.
    pub(crate) fn new() -> Acting {
        let mut stage = Stage::new();
        for (at, function) in FUNCTIONS.into_iter().enumerate() {
            let probe = 100 + 2 * at as u32;
            stage.instrument(probe, function, ProbeKind::Enter);
            stage.instrument_end(probe + 1, ProbeKind::Leave, &[probe]);
        }
        Acting {
            stage,
            paths: HashMap::new(),
        }
    }

    /// From now on a thread calls from here.
    pub(crate) fn on(&mut self, tid: u64, path: &[Function]) -> &mut Acting {
        self.paths.insert(tid, path.to_vec());
        self
    }

    fn probe(name: &str) -> u32 {
        let named = |f: &Function| f.strip_prefix("libc.so.6!") == Some(name);
        let at = FUNCTIONS.iter().position(named);
        100 + 2 * at.unwrap_or_else(|| panic!("{name} is not instrumented")) as u32
    }

    /// A call begins.
    pub(crate) fn enter(&mut self, tid: u64, us: u64, name: &str, args: &[u64]) -> &mut Acting {
        let probe = Acting::probe(name);
        let mut stack = vec![FUNCTIONS[(probe as usize - 100) / 2]];
        stack.extend(self.paths.get(&tid).into_iter().flatten());
        self.stage
            .enter(tid, us * 1000, probe, tid << 16, args, &stack);
        self
    }

    /// The call ends.
    pub(crate) fn leave(&mut self, tid: u64, us: u64, name: &str, result: u64) -> &mut Acting {
        let probe = Acting::probe(name) + 1;
        self.stage.leave(tid, us * 1000, probe, tid << 16, result);
        self
    }

    /// A call that takes a microsecond.
    pub(crate) fn call(&mut self, tid: u64, us: u64, name: &str, args: &[u64]) -> &mut Acting {
        self.enter(tid, us, name, args).leave(tid, us + 1, name, 0)
    }

    /// Takes a mutex at once.
    pub(crate) fn lock(&mut self, tid: u64, us: u64, mutex: u64) -> &mut Acting {
        self.call(tid, us, "pthread_mutex_lock", &[mutex])
    }

    /// Gives up a mutex.
    pub(crate) fn unlock(&mut self, tid: u64, us: u64, mutex: u64) -> &mut Acting {
        self.call(tid, us, "pthread_mutex_unlock", &[mutex])
    }

    /// Takes one mutex and in it another, and gives up both, ten microseconds from one to the next.
    pub(crate) fn nested(&mut self, tid: u64, us: u64, outer: u64, inner: u64) -> &mut Acting {
        self.lock(tid, us, outer)
            .lock(tid, us + 10, inner)
            .unlock(tid, us + 20, inner)
            .unlock(tid, us + 30, outer)
    }
}
