//! Finds groups of waiting threads that only members of the group could wake, while other threads
//! run.
//!
//! All these findings are inferred. That no other thread ends the waits follows from the threads'
//! recorded operations, from a lock's count of readers, or from the code of a pool's threads.

use std::collections::{BTreeMap, BTreeSet};

use super::{Node, WaitGraph, Waiting};
use crate::model::finding::HangReason;
use crate::model::tasks::runs_task;
use crate::model::{Model, ThreadIndex};
use crate::primitives::Kind;

/// Threads that only members of the group could wake, and the reason to think so.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) threads: Vec<ThreadIndex>,
    pub(super) reason: HangReason,
}

impl WaitGraph {
    /// Groups of threads that no finding explains yet.
    pub(super) fn closed_groups(
        &self,
        model: &Model,
        explained: &BTreeSet<ThreadIndex>,
    ) -> Vec<Group> {
        let mut groups = self.upgraders(explained);
        groups.extend(self.pools(model));
        let mut taken = explained.clone();
        taken.extend(groups.iter().flat_map(|group| group.threads.clone()));
        groups.extend(self.only_users(&taken));
        groups
    }

    /// Finds read-write locks with more readers than threads that do not wait for the lock. Then a
    /// waiting thread is itself a reader, and no writer ever gets the lock.
    fn upgraders(&self, explained: &BTreeSet<ThreadIndex>) -> Vec<Group> {
        let mut by_lock: BTreeMap<u64, (u32, Vec<ThreadIndex>)> = BTreeMap::new();
        for (thread, waiting) in self.waits() {
            if let Some(readers) = waiting.readers
                && waiting.object.kind == Kind::Rwlock
                && waiting.is_endless()
                && waiting.long
                && waiting.edges.is_empty()
                && !explained.contains(&thread)
            {
                let lock = by_lock.entry(waiting.object.address).or_default();
                lock.0 = lock.0.max(readers);
                lock.1.push(thread);
            }
        }
        let group = |(_, (readers, threads)): (u64, (u32, Vec<ThreadIndex>))| {
            let waits_for_it = self.dependents(&threads);
            let others = self.present();
            let others = others.filter(|(thread, node)| {
                !waits_for_it.contains(thread) && **node != Node::Bystander
            });
            let others = others.count();
            (readers as usize > others).then_some(Group {
                threads,
                reason: HangReason::Readers { readers, others },
            })
        };
        by_lock.into_iter().filter_map(group).collect()
    }

    /// These threads, and all threads that wait for one of them without a timeout.
    fn dependents(&self, threads: &[ThreadIndex]) -> BTreeSet<ThreadIndex> {
        let mut all: BTreeSet<ThreadIndex> = threads.iter().copied().collect();
        loop {
            let before = all.len();
            for (thread, waiting) in self.waits() {
                let holders = waiting.edges.iter().filter_map(|edge| edge.holder);
                if waiting.is_endless() && holders.clone().any(|holder| all.contains(&holder)) {
                    all.insert(thread);
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }

    /// Finds threads that wait at objects which only they were seen to use. Each of them most
    /// likely holds such an object, or would have to end a wait.
    fn only_users(&self, taken: &BTreeSet<ThreadIndex>) -> Vec<Group> {
        if self.exited {
            return Vec::new();
        }
        let candidate = |(thread, waiting): &(ThreadIndex, &Waiting)| {
            waiting.is_endless()
                && waiting.long
                && waiting.users.is_some()
                && waiting.edges.is_empty()
                && !taken.contains(thread)
        };
        let mut members: BTreeMap<ThreadIndex, &Waiting> = self.waits().filter(candidate).collect();
        // A thread that waits for a member's end, or for what it holds, does nothing either.
        let is_stuck = |members: &BTreeMap<ThreadIndex, &Waiting>, user: &ThreadIndex| {
            let threads: Vec<ThreadIndex> = members.keys().copied().collect();
            self.dependents(&threads).contains(user)
        };
        loop {
            let outside = members.iter().find(|(_, waiting)| {
                let mut users = waiting.users.iter().flatten();
                users.any(|user| {
                    self.nodes.get(user.0) != Some(&Node::Bystander) && !is_stuck(&members, user)
                })
            });
            let Some(outside) = outside.map(|(thread, _)| *thread) else {
                break;
            };
            members.remove(&outside);
        }
        let mut groups: Vec<Group> = Vec::new();
        for threads in connected(&members) {
            let objects: BTreeSet<u64> = threads
                .iter()
                .map(|thread| members[thread].object.address)
                .collect();
            let rwlock = |thread: &ThreadIndex| members[thread].object.kind == Kind::Rwlock;
            // A queue at one mutex shows nothing about its holder.
            if threads.len() >= 2 && (objects.len() >= 2 || threads.iter().all(rwlock)) {
                groups.push(Group {
                    threads,
                    reason: HangReason::OnlyUsers,
                });
            }
        }
        groups
    }

    /// Finds threads of one function that all wait for futures which only they could provide.
    fn pools(&self, model: &Model) -> Vec<Group> {
        let hangs = |thread: ThreadIndex| {
            self.waiting(thread).is_some_and(|waiting| {
                waiting.object.kind == Kind::Future
                    && waiting.is_endless()
                    && waiting.long
                    && waiting.stack.as_deref().is_some_and(runs_task)
            })
        };
        let mut pools: BTreeMap<&str, Vec<ThreadIndex>> = BTreeMap::new();
        for (thread, _) in self.present() {
            let function = model.thread(thread).and_then(|t| t.function.as_ref());
            if let Some(function) = function.and_then(|place| place.function.as_deref()) {
                pools.entry(function).or_default().push(thread);
            }
        }
        pools.retain(|_, threads| threads.iter().all(|thread| hangs(*thread)));
        let group = |(function, threads): (&str, Vec<ThreadIndex>)| Group {
            threads,
            reason: HangReason::Pool {
                function: function.into(),
            },
        };
        pools.into_iter().map(group).collect()
    }
}

/// Splits a group into parts that share no object. Waits for locks form one part, because the
/// holders are unknown.
fn connected(members: &BTreeMap<ThreadIndex, &Waiting>) -> Vec<Vec<ThreadIndex>> {
    let mut parts: Vec<Vec<ThreadIndex>> = Vec::new();
    for (thread, waiting) in members {
        let users = waiting.users.iter().flatten();
        let near: BTreeSet<ThreadIndex> = users.copied().chain([*thread]).collect();
        let touches = |part: &Vec<ThreadIndex>| {
            part.iter().any(|other| {
                let of_other = members[other].users.iter().flatten();
                waiting.is_lock() && members[other].is_lock()
                    || near.contains(other)
                    || of_other.copied().any(|user| near.contains(&user))
            })
        };
        let (joined, mut apart): (Vec<_>, Vec<_>) = parts.into_iter().partition(touches);
        let mut part: Vec<ThreadIndex> = joined.into_iter().flatten().collect();
        part.push(*thread);
        part.sort_unstable();
        apart.push(part);
        parts = apart;
    }
    parts.sort();
    parts
}
