//! Locks in memory that several processes share.
//!
//! The addresses alone do not tell: a fork gives both processes the same addresses, and each may
//! have a lock of its own there. Only a process that has the lock can end a wait for it.

use std::collections::{BTreeMap, BTreeSet};

use super::holders::Wait;
use super::{LockKey, Model};
use crate::model::ProcessIndex;
use crate::model::schedule::FutexObject;

/// The processes that use a lock. `None` is the program, and the first one.
type Users = BTreeSet<Option<ProcessIndex>>;

/// A lock, its users and all waits for it.
pub(super) type Lock<'a> = (&'a FutexObject, Users, Vec<Wait>);

impl Model {
    /// Joins the waits for the same lock in several processes: where a thread of one process has
    /// ended a wait of another, at a futex that processes may share.
    pub(super) fn join_shared<'a>(&self, all: BTreeMap<LockKey<'a>, Vec<Wait>>) -> Vec<Lock<'a>> {
        let mut locks: BTreeMap<&FutexObject, Vec<(Users, Vec<Wait>)>> = BTreeMap::new();
        for ((process, object), mut waits) in all {
            let others = waits.iter().filter(|wait| self.may_be_shared(wait));
            let others = others.filter_map(|wait| wait.waker);
            let mut users: Users = others.map(|waker| self.process_index(waker)).collect();
            users.insert(process);
            let known = locks.entry(object).or_default();
            let same = known.extract_if(.., |(its, _)| !its.is_disjoint(&users));
            for (its, before) in same.collect::<Vec<_>>().into_iter().rev() {
                users.extend(its);
                waits.splice(..0, before);
            }
            known.push((users, waits));
        }
        let locks = locks.into_iter();
        let locks = locks.flat_map(|(object, each)| {
            each.into_iter()
                .map(move |(users, waits)| (object, users, waits))
        });
        locks.collect()
    }

    /// A signal may have ended a wait that goes on.
    fn may_be_shared(&self, wait: &Wait) -> bool {
        let (waits_for, _) = self.lock_of(wait.call).unzip();
        !wait.again && waits_for.is_some_and(|it| it.may_be_shared)
    }

    fn process_index(&self, thread: super::ThreadIndex) -> Option<ProcessIndex> {
        self.process(thread).map(|(process, _)| process)
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::{BlockingCall, FutexPlace, Record, Schedule, ScheduleKind as Kind};

    use crate::model::LockWaits;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};

    /// Processes 20 and 30 wait for a mutex at the same address, until these threads wake them.
    fn woken_by([of_20, of_30]: [u64; 2], operation: u64) -> Vec<LockWaits> {
        let mut stage = Stage::new();
        stage.add(schedule_begins());
        stage.add(scheduled(&[(1000, Kind::Runs, PID, 0)]));
        let call = |id, number, args| BlockingCall {
            id,
            number: Some(number),
            args,
            file: String::new(),
        };
        let lock = call(1, 202, vec![0x7f00_0000, operation]);
        let sleep = call(2, 230, vec![0, 0]);
        stage.add(Record::Processes(Schedule {
            calls: vec![lock, sleep],
            ..scheduled(&[
                (1500, Kind::ProcessCreated, 20, PID),
                (1600, Kind::ProcessCreated, 30, PID),
                (1700, Kind::Created, 21, 20),
                (1800, Kind::Created, 31, 30),
                (2000, Kind::Runs, 20, 0),
                (3000, Kind::Blocks, 20, 1),
                (4000, Kind::Runs, 30, 0),
                (10_000, Kind::Woken, 20, of_20),
                (11_000, Kind::Blocks, 30, 1),
                (11_100, Kind::Runs, 20, 0),
                (20_000, Kind::Woken, 30, of_30),
                (20_100, Kind::Blocks, 20, 2),
                (21_000, Kind::Runs, 30, 0),
                (30_000, Kind::Blocks, 30, 2),
                (31_000, Kind::Runs, 20, 0),
                (32_000, Kind::Ended, 20, 0),
                (33_000, Kind::Runs, 30, 0),
                (34_000, Kind::Ended, 30, 0),
            ])
        }));
        let frames = ["libc.so.6!pthread_mutex_lock", "orders!work@orders.c:20"];
        let snapshot = stage.snapshot(0, &frames);
        stage.add(FutexPlace {
            call: 1,
            snapshot: Some(snapshot),
            ..FutexPlace::default()
        });
        stage.end(100);
        stage.model().lock_waits
    }

    #[test]
    fn locks_at_the_same_address() {
        // The other process ends each wait, or a parent that itself does not wait.
        for wakers in [[30, 20], [30, 31], [PID, PID]] {
            let [lock] = &woken_by(wakers, 0)[..] else {
                panic!("{wakers:?}")
            };
            assert_eq!((lock.count, lock.waiters.len()), (2, 2), "{wakers:?}");
            let processes = if wakers == [PID, PID] { 3 } else { 2 };
            assert_eq!(lock.processes, processes);
        }
        // Each process has its own lock, as far as the wake-ups show or by the operation.
        for (wakers, operation) in [([21, 31], 0), ([30, 20], 0x80)] {
            let locks = woken_by(wakers, operation);
            let processes: Vec<_> = locks
                .iter()
                .map(|lock| (lock.processes, lock.count))
                .collect();
            assert_eq!(processes, [(1, 1); 2]);
        }
    }
}
