//! The threads of a process by their ids. Each is boxed, because a tree node reserves
//! room for entries that it often does not have.

use std::collections::{BTreeMap, btree_map};
use std::iter::Map;
use std::ops::Index;

use crate::sys::Tid;

use super::thread::Thread;

#[derive(Default)]
pub(crate) struct Threads(BTreeMap<Tid, Box<Thread>>);

type Iter<'a> = Map<
    btree_map::Iter<'a, Tid, Box<Thread>>,
    fn((&'a Tid, &'a Box<Thread>)) -> (&'a Tid, &'a Thread),
>;
type IterMut<'a> = Map<
    btree_map::IterMut<'a, Tid, Box<Thread>>,
    fn((&'a Tid, &'a mut Box<Thread>)) -> (&'a Tid, &'a mut Thread),
>;

impl Threads {
    pub(crate) fn get(&self, tid: &Tid) -> Option<&Thread> {
        self.0.get(tid).map(Box::as_ref)
    }

    pub(crate) fn get_mut(&mut self, tid: &Tid) -> Option<&mut Thread> {
        self.0.get_mut(tid).map(Box::as_mut)
    }

    pub(crate) fn contains_key(&self, tid: &Tid) -> bool {
        self.0.contains_key(tid)
    }

    pub(crate) fn insert(&mut self, tid: Tid, thread: Thread) {
        self.0.insert(tid, Box::new(thread));
    }

    pub(crate) fn remove(&mut self, tid: &Tid) -> Option<Thread> {
        self.0.remove(tid).map(|thread| *thread)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn keys(&self) -> btree_map::Keys<'_, Tid, Box<Thread>> {
        self.0.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Thread> {
        self.0.values().map(Box::as_ref)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.0.values_mut().map(Box::as_mut)
    }

    pub(crate) fn iter(&self) -> Iter<'_> {
        self.0.iter().map(|(tid, thread)| (tid, thread))
    }

    pub(crate) fn iter_mut(&mut self) -> IterMut<'_> {
        self.0.iter_mut().map(|(tid, thread)| (tid, thread))
    }
}

impl Index<&Tid> for Threads {
    type Output = Thread;

    fn index(&self, tid: &Tid) -> &Thread {
        &self.0[tid]
    }
}

impl<'a> IntoIterator for &'a Threads {
    type Item = (&'a Tid, &'a Thread);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Threads {
    type Item = (&'a Tid, &'a mut Thread);
    type IntoIter = IterMut<'a>;

    fn into_iter(self) -> IterMut<'a> {
        self.iter_mut()
    }
}
