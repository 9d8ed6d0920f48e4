//! Waits for locks of which only the kernel's schedule is known, as in started processes: how long
//! threads waited for each lock, and for which threads.
//!
//! Separate from `sync`, which knows the calls that take and release a lock. Here a thread that
//! wakes another one at a lock counts as its holder until then.

mod ends;
mod holders;
mod sharing;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use holders::{Piece, Wait, joined, pieces};

use super::critical_path::Awaited;
use super::finding::{Facts, Finding, FindingKind, ObjectName};
use super::schedule::{CallIndex, FutexObject, FutexWait, RunState, Waker, runnable_within};
use super::sync::{Object, ObjectIndex, is_much};
use super::{Model, Place, ProcessIndex, ThreadIndex};
use crate::primitives;

/// Maximum time for which a thread runs after something else than a release has ended its wait,
/// before it waits for the same lock again, or is killed.
const MAX_INTERRUPTION_NS: u64 = 1_000_000;

/// A lock: its process if it is not the program, and the object.
type LockKey<'a> = (Option<ProcessIndex>, &'a FutexObject);

/// The waits for one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct LockWaits {
    /// The process of the lock, or the first of those that share it; `None` for the program itself.
    pub process: Option<ProcessIndex>,
    /// Number of processes that were seen to use it. If several, they share its memory.
    pub processes: usize,
    /// The lock.
    pub object: ObjectName,
    /// The file that has the variable, if one is known.
    pub module: Option<Arc<str>>,
    /// It is a lock inside the C library, such as that of `malloc`.
    pub is_internal: bool,
    /// The functions in which threads waited, by their documented names, the one with the longest
    /// waits first.
    pub functions: Vec<Arc<str>>,
    /// The threads that waited, with the system calls in which they were blocked, sorted.
    pub calls: Vec<(ThreadIndex, CallIndex)>,
    /// The code that called it, in one of the waits.
    pub caller: Option<Place>,
    /// How often threads were blocked.
    pub count: u64,
    /// The sum of all waits, in nanoseconds.
    pub total_ns: u64,
    /// The longest wait, in nanoseconds.
    pub longest_ns: u64,
    /// How many of the waits had not ended when the recording, or the process, ended.
    pub unended: u64,
    /// The sum of these, in nanoseconds.
    pub unended_ns: u64,
    /// The threads that waited, and the sum of the waits of each, the longest first.
    pub waiters: Vec<(ThreadIndex, u64)>,
    /// The threads that released the lock, each with the time that others had waited for it since
    /// the previous release, the longest first.
    pub holders: Vec<(ThreadIndex, u64)>,
    /// The part of the waits in which that thread only waited for a processor, in nanoseconds.
    pub runnable_ns: u64,
}

impl Model {
    /// Finds waits for locks whose calls were not recorded, and those that cost much.
    pub(super) fn find_lock_waits(&mut self) {
        self.lock_waits = self.waits_for_locks();
        let findings = self.lock_waits.iter().enumerate();
        let findings = findings.map(|(index, waits)| finding(index, waits));
        self.findings.extend(findings.collect::<Vec<_>>());
        self.keep_costly_lock_waits();
        super::finding::sort(&mut self.findings);
    }

    /// Leaves out the findings about locks whose waits cost little, apart from those that did not
    /// end and that another finding explains: a deadlock.
    pub(super) fn keep_costly_lock_waits(&mut self) {
        let much = is_much(self.recording.duration_ns);
        let others = self.findings.iter();
        let others = others.filter(|it| !matches!(it.facts, Facts::LockWaits(_)));
        let explained: HashSet<u64> = others
            .flat_map(|it| &it.objects)
            .map(|object| object.address)
            .collect();
        self.findings.retain(|finding| {
            let Facts::LockWaits(index) = finding.facts else {
                return true;
            };
            let waits = &self.lock_waits[index];
            let is_explained = waits.process.is_none() && explained.contains(&waits.object.address);
            let explained_ns = if is_explained { waits.unended_ns } else { 0 };
            let out_ns = waits.runnable_ns.saturating_add(explained_ns);
            waits.total_ns.saturating_sub(out_ns) >= much
        });
    }

    /// Per thread and system call, the lock for which it waited.
    pub(super) fn lock_of_calls(&self) -> HashMap<(ThreadIndex, CallIndex), Awaited> {
        let locks = self.lock_waits.iter().enumerate();
        let calls = locks.flat_map(|(index, waits)| {
            let object = self.object_of(waits);
            waits.calls.iter().map(move |(thread, call)| {
                let waits = Awaited::LockWaits(index, *call);
                ((*thread, *call), object.map_or(waits, Awaited::Object))
            })
        });
        calls.collect()
    }

    /// The lock as an object of the recorded calls, if it is one.
    fn object_of(&self, waits: &LockWaits) -> Option<ObjectIndex> {
        let is_same = |object: &Object| {
            let (kind, address) = (waits.object.kind, waits.object.address);
            waits.process.is_none() && (object.kind, object.address) == (kind, address)
        };
        let objects = self.sync.objects.iter().enumerate();
        let mut same = objects.filter(|(_, object)| is_same(object));
        // Memory may have been used again for another lock.
        let only = same.next().filter(|_| same.next().is_none());
        only.map(|(index, _)| ObjectIndex(index))
    }

    fn waits_for_locks(&self) -> Vec<LockWaits> {
        let calls = u32::try_from(self.schedule.calls.len()).unwrap_or(u32::MAX);
        if !(0..calls).any(|call| self.lock_of(CallIndex(call)).is_some()) {
            return Vec::new();
        }
        let mut all: BTreeMap<LockKey<'_>, Vec<Wait>> = BTreeMap::new();
        let wakers = self.wakers();
        if !wakers.are_recorded() {
            return Vec::new();
        }
        // Recorded calls say more about the program's own objects, unless most are missing.
        let first = match self.sync.recorded && !self.recording.too_little_seen() {
            true => self.threads.len(),
            false => 0,
        };
        for thread in (first..self.any_threads().count()).map(ThreadIndex) {
            let process = self.process(thread);
            if process.is_some_and(|(_, process)| process.is_apart) {
                continue;
            }
            let enders = wakers.of_calls(thread);
            let enders: HashMap<u64, Waker> = enders
                .map(|(blocked, _, ender)| (blocked.from_ns, ender))
                .collect();
            // The lock for which it waited last, and for how long it has run since.
            let mut last: Option<LockKey<'_>> = None;
            let mut ran_ns = 0;
            for interval in self.intervals(thread) {
                if let RunState::Running { .. } = interval.state {
                    ran_ns += interval.length_ns();
                }
                let Some(call) = interval
                    .call
                    .filter(|_| interval.state == RunState::Blocked)
                else {
                    continue;
                };
                let ender = enders.get(&interval.from_ns).copied();
                let is_unended = self.is_cut_off(&wakers, (thread, interval.to_ns), ender);
                if ender.is_none() && !is_unended {
                    continue;
                }
                let lock = self.lock_of(call);
                let object = lock.map(|(_, object)| object);
                let key = object.map(|object| (process.map(|(process, _)| process), object));
                if let Some(waits) = last.and_then(|last| all.get_mut(&last))
                    && let Some(before) = waits.last_mut()
                {
                    before.again = key == last && ran_ns <= MAX_INTERRUPTION_NS;
                }
                (last, ran_ns) = (key, 0);
                let Some(key) = key else { continue };
                let by_recorder = self.is_woken_by_recorder(thread, interval.to_ns);
                let waker = match ender {
                    Some(Waker::Thread(waker)) if !is_unended => Some(waker),
                    _ => None,
                };
                all.entry(key).or_default().push(Wait {
                    thread,
                    call,
                    from_ns: interval.from_ns,
                    to_ns: interval.to_ns,
                    waker,
                    by_recorder,
                    timed_out: ender == Some(Waker::Interrupt)
                        && lock.is_some_and(|(wait, _)| is_timed(&wait.function)),
                    is_unended,
                    again: false,
                });
            }
        }
        let each = self.join_shared(all).into_iter();
        let each = each.filter_map(|(object, users, waits)| {
            let (process, processes) = (users.first().copied()?, users.len());
            let waits = self.lock_with((process, object), &joined(waits))?;
            Some(LockWaits { processes, ..waits })
        });
        let mut all: Vec<LockWaits> = each.collect();
        all.sort_by_key(|waits| std::cmp::Reverse(waits.total_ns));
        all
    }

    /// The lock for which a thread waits in a call.
    fn lock_of(&self, call: CallIndex) -> Option<(&FutexWait, &FutexObject)> {
        let wait = self.schedule.call(call)?.waits_for.as_ref()?;
        Some((wait, wait.object.as_ref().filter(|_| wait.kind.is_lock())?))
    }

    /// Adds up the waits for a lock.
    fn lock_with(&self, (process, object): LockKey<'_>, waits: &[Wait]) -> Option<LockWaits> {
        let first = waits.first()?;
        let (wait, _) = self.lock_of(first.call)?;
        let place = self.schedule.places.get(&first.call);
        let (name, module, address) = match object {
            FutexObject::Named { name, module, .. } => {
                let address = place.map_or(0, |place| place.address);
                (Some(name.clone()), module.clone(), address)
            }
            FutexObject::At(address) => (None, None, *address),
        };
        let calls = ranked(waits.iter().map(|wait| (wait.call, wait.ns())));
        let caller = calls.iter().find_map(|(call, _)| {
            let place = self.schedule.places.get(call)?;
            place.caller.clone()
        });
        let functions = waits.iter().filter_map(|wait| {
            let (called, _) = self.lock_of(wait.call)?;
            Some((called.function.clone(), wait.ns()))
        });
        let calls: BTreeSet<_> = waits.iter().map(|it| (it.thread, it.call)).collect();
        let unended = || waits.iter().filter(|wait| wait.is_unended);
        let pieces = pieces(waits);
        let runnable = |piece: &Piece| {
            let holder = self.intervals(piece.holder);
            piece.waiters * runnable_within(holder, piece.from_ns, piece.to_ns)
        };
        let held = |piece: &Piece| (piece.holder, piece.waiters * (piece.to_ns - piece.from_ns));
        Some(LockWaits {
            process,
            processes: 1,
            object: ObjectName {
                kind: wait.kind,
                address,
                name,
            },
            module,
            is_internal: wait.is_internal,
            functions: ranked(functions)
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            calls: calls.into_iter().collect(),
            caller,
            count: waits.len() as u64,
            total_ns: waits.iter().map(Wait::ns).sum(),
            longest_ns: waits.iter().map(Wait::ns).max().unwrap_or(0),
            unended: unended().count() as u64,
            unended_ns: unended().map(Wait::ns).sum(),
            waiters: ranked(waits.iter().map(|wait| (wait.thread, wait.ns()))),
            runnable_ns: pieces.iter().map(runnable).sum(),
            holders: ranked(pieces.iter().map(held)),
        })
    }
}

fn is_timed(function: &str) -> bool {
    primitives::find(function).is_some_and(|primitive| primitive.timed)
}

/// Sums by thread or function, the largest first.
fn ranked<T: Clone + Eq + Hash + Ord>(times: impl IntoIterator<Item = (T, u64)>) -> Vec<(T, u64)> {
    let mut sums: HashMap<T, u64> = HashMap::new();
    for (whose, ns) in times {
        *sums.entry(whose).or_default() += ns;
    }
    let mut sums: Vec<(T, u64)> = sums.into_iter().collect();
    sums.sort_by(|(a, a_ns), (b, b_ns)| b_ns.cmp(a_ns).then_with(|| a.cmp(b)));
    sums
}

/// The waits were seen, but the holder is inferred from the wake-ups.
fn finding(index: usize, waits: &LockWaits) -> Finding {
    let threads = waits.waiters.iter().chain(&waits.holders);
    let mut threads: Vec<ThreadIndex> = threads.map(|(thread, _)| *thread).collect();
    let mut seen = HashSet::new();
    threads.retain(|thread| seen.insert(*thread));
    Finding {
        kind: FindingKind::Contention,
        proved: false,
        threads,
        circle: false,
        objects: vec![waits.object.clone()],
        facts: Facts::LockWaits(index),
        evidence: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::{
        BlockingCall, FutexPlace, Record, Schedule, ScheduleEdge, ScheduleKind as Kind,
    };

    use super::*;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};

    /// The address of variable `m`.
    const M: u64 = 0x4000;

    /// A started process, 20, with thread 21, which waits for a mutex until 20 wakes it, and then
    /// for a condition.
    fn stage(kind: &'static str) -> Stage {
        stage_of((M, kind), (M, "libc.so.6!pthread_cond_wait"))
    }

    /// Like [`stage`], with the futexes and the functions of both waits.
    fn stage_of(first: (u64, &'static str), second: (u64, &'static str)) -> Stage {
        let callers = ["orders!work@orders.c:20", "orders!work@orders.c:30"];
        let [first_caller, second_caller] = callers;
        let lock = "libc.so.6!__lll_lock_wait";
        let mut stage = stage_with([
            (first.0, &[lock, first.1, first_caller]),
            (second.0, &[lock, second.1, second_caller]),
        ]);
        stage.add(schedule_ends(99));
        stage.end(100);
        stage
    }

    fn schedule_ends(ms: u64) -> Schedule {
        Schedule {
            time_ns: ms * 1_000_000,
            edge: ScheduleEdge::Ends.into(),
            ..Schedule::default()
        }
    }

    /// Like [`stage`], with the stacks of both waits, and without an end.
    fn stage_with([first, second]: [(u64, &[&'static str]); 2]) -> Stage {
        let mut stage = Stage::new();
        stage.data.insert(first.0, "m");
        stage.data.insert(second.0, "m");
        stage.add(schedule_begins());
        stage.add(scheduled(&[(1000, Kind::Runs, PID, 0)]));
        let call = |id, futex| BlockingCall {
            id,
            number: Some(202),
            args: vec![futex, 0x80],
            file: String::new(),
        };
        stage.add(Record::Processes(Schedule {
            calls: vec![call(1, first.0), call(2, second.0)],
            ..scheduled(&[
                (1500, Kind::ProcessCreated, 20, PID),
                (2000, Kind::Runs, 20, 0),
                (2500, Kind::Created, 21, 20),
                (3000, Kind::Runs, 21, 0),
                (4000, Kind::Blocks, 21, 1),
                (90_000, Kind::Woken, 21, 20),
                (90_100, Kind::Runs, 21, 0),
                (91_000, Kind::Blocks, 21, 2),
                (97_000, Kind::Woken, 21, 20),
                (97_100, Kind::Runs, 21, 0),
            ])
        }));
        for (call, frames) in [(1, first.1), (2, second.1)] {
            let snapshot = stage.snapshot(0, frames);
            stage.add(FutexPlace {
                call,
                snapshot: Some(snapshot),
                ..FutexPlace::default()
            });
        }
        stage
    }

    #[test]
    fn locks_of_started_processes() {
        let model = stage("libc.so.6!pthread_mutex_lock").model();
        let [waits] = &model.lock_waits[..] else {
            panic!("{:#?}", model.lock_waits)
        };
        let [first, second] = [0, 1].map(|thread| ThreadIndex(model.threads.len() + thread));
        assert_eq!(waits.process, Some(ProcessIndex(0)));
        assert_eq!(waits.object.to_string(), "mutex m");
        assert_eq!(waits.object.address, M);
        assert_eq!(waits.functions, ["pthread_mutex_lock".into()]);
        assert_eq!((waits.count, waits.total_ns), (1, 86_000_000));
        assert_eq!(waits.waiters, [(second, 86_000_000)]);
        assert_eq!(waits.holders, [(first, 86_000_000)]);
        assert_eq!(waits.calls, [(second, CallIndex(0))]);
        let caller = waits.caller.as_ref().and_then(|place| place.line);
        assert_eq!(caller, Some(20));
        let kinds: Vec<_> = model
            .findings
            .iter()
            .map(|it| (it.kind, it.proved))
            .collect();
        assert_eq!(kinds, [(FindingKind::Contention, false)]);
        let call = model.schedule.call(CallIndex(1)).unwrap();
        assert_eq!(
            &*call.waits_for.as_ref().unwrap().function,
            "pthread_cond_wait"
        );
    }

    #[test]
    fn variables_with_the_same_name() {
        let lock = "libc.so.6!pthread_mutex_lock";
        let model = stage_of((M, lock), (M + 0x100, lock)).model();
        let objects = [0, 1].map(|call| {
            let call = model.schedule.call(CallIndex(call)).unwrap();
            call.waits_for.as_ref().unwrap().object.clone().unwrap()
        });
        let name = |object: &FutexObject| match object {
            FutexObject::Named { name, .. } => name.to_string(),
            FutexObject::At(address) => panic!("{address:#x} has no name"),
        };
        assert_eq!(objects.each_ref().map(name), ["m", "m"]);
        assert_ne!(objects[0], objects[1]);
    }

    #[test]
    fn the_mutex_of_a_condition_that_is_taken_again() {
        let wait = "libc.so.6!pthread_cond_wait";
        let caller = "orders!work@orders.c:20";
        // With the function in between, and without its name.
        let lock = "libc.so.6!__pthread_mutex_cond_lock";
        for stack in [
            &["libc.so.6!__lll_lock_wait", lock, wait, caller][..],
            &["libc.so.6!__lll_lock_wait", wait, caller],
        ] {
            let mut stage = stage_with([(M, stack), (M, stack)]);
            stage.end(100);
            let model = stage.model();
            let [waits] = &model.lock_waits[..] else {
                panic!("{:#?}", model.lock_waits)
            };
            assert_eq!(waits.object.to_string(), "mutex m");
            assert_eq!(waits.functions, ["pthread_cond_wait".into()]);
            let line = waits.caller.as_ref().and_then(|place| place.line);
            assert_eq!(line, Some(20));
        }
    }

    #[test]
    fn the_function_that_the_program_called() {
        let wait = "libc.so.6!__futex_abstimed_wait64";
        let common = "libc.so.6!__pthread_mutex_clocklock_common";
        let caller = "orders!work@orders.c:20";
        // It calls the common function, or goes on there and leaves no frame.
        let called = "libc.so.6!___pthread_mutex_timedlock64";
        for stack in [&[wait, common, called, caller][..], &[wait, common, caller]] {
            let mut stage = stage_with([(M, stack), (M, stack)]);
            stage.end(100);
            let model = stage.model();
            let functions = &model.lock_waits[0].functions;
            assert_eq!(*functions, ["pthread_mutex_timedlock".into()]);
        }
    }

    #[test]
    fn internal_locks_of_the_c_library() {
        let lock = "libc.so.6!__lll_lock_wait_private";
        let caller = "orders!work@orders.c:20";
        let malloc = [
            lock,
            "libc.so.6!arena_get2",
            "libc.so.6!__libc_malloc",
            caller,
        ];
        // A program's own function of this name says nothing.
        let own = ["orders!__lll_lock_wait_private", "orders!malloc", caller];
        let mut stage = stage_with([(M, &malloc), (M, &own)]);
        stage.end(100);
        let model = stage.model();
        let [waits] = &model.lock_waits[..] else {
            panic!("{:#?}", model.lock_waits)
        };
        assert_eq!(waits.functions, ["malloc".into()]);
        assert_eq!(
            (waits.count, waits.object.kind),
            (1, primitives::Kind::Mutex)
        );
        let line = waits.caller.as_ref().and_then(|place| place.line);
        assert_eq!(line, Some(20));
    }

    #[test]
    fn a_wait_that_does_not_end() {
        let lock = ["libc.so.6!pthread_mutex_lock", "orders!work@orders.c:20"];
        let mut stage = stage_with([(M, &lock), (M, &lock)]);
        stage.add(Record::Processes(scheduled(&[
            (99_500, Kind::Blocks, 20, 1),
            (200_000, Kind::Ended, 21, 0),
        ])));
        stage.add(schedule_ends(200));
        stage.end(300);
        let model = stage.model();
        let [waits] = &model.lock_waits[..] else {
            panic!("{:#?}", model.lock_waits)
        };
        assert_eq!((waits.count, waits.unended), (3, 1));
        assert_eq!(waits.longest_ns, 100_500_000);
    }

    #[test]
    fn a_last_wait_that_a_release_ends() {
        let lock = ["libc.so.6!pthread_mutex_lock", "orders!work@orders.c:20"];
        // The process ends soon after, but the thread that released the lock waits before.
        let end = |blocks: &[(u64, Kind, u64, u64)]| {
            let mut stage = stage_with([(M, &lock), (M, &lock)]);
            let sleep = BlockingCall {
                id: 3,
                number: Some(230),
                args: vec![0, 0],
                file: String::new(),
            };
            stage.add(Record::Processes(Schedule {
                calls: vec![sleep],
                ..scheduled(blocks)
            }));
            stage.end(100);
            let waits = stage.model().lock_waits.remove(0);
            (waits.unended, waits.holders.len())
        };
        let exits = [(97_300, Kind::Ended, 21, 0), (97_900, Kind::Ended, 20, 0)];
        assert_eq!(end(&exits), (1, 0));
        let sleeps = (97_200, Kind::Blocks, 20, 3);
        assert_eq!(end(&[&[sleeps], &exits[..]].concat()), (0, 1));
        // A thread that releases the lock and returns does not end the process.
        let returns = [
            (97_150, Kind::Created, 22, 20),
            (97_160, Kind::Runs, 22, 0),
            (97_200, Kind::Blocks, 21, 1),
            (98_000, Kind::Woken, 21, 22),
            (98_100, Kind::Runs, 21, 0),
            (98_200, Kind::Ended, 22, 0),
            (98_500, Kind::Ended, 21, 0),
            (98_600, Kind::Ended, 20, 0),
        ];
        let killed = returns.map(|entry| match entry {
            (ns, Kind::Woken, 21, 22) => (ns, Kind::Woken, 21, 20),
            other => other,
        });
        assert_eq!((end(&returns).0, end(&killed).0), (0, 1));
    }

    #[test]
    fn a_function_that_is_no_primitive() {
        let model = stage("orders!wrapper@orders.c:5").model();
        assert_eq!(model.lock_waits, []);
        assert!(
            model
                .schedule
                .call(CallIndex(0))
                .unwrap()
                .is_unnamed_futex()
        );
    }
}
