//! Creations whose threads have not started yet.
//!
//! `pthread_create` gives function and argument, and the new thread arrives at the function with
//! the argument; when several creations share both, the handle that the creator got tells them
//! apart, so it is read before it can be overwritten.

use unspool_capture::{Read, ReadRole};
use unspool_rsp::Client;

use super::session::Session;
use crate::platform::abi::Abi;

/// Creations that failed stay for ever; beyond this many the oldest are given up.
const LIMIT: usize = 4096;
/// Handles read at one stop.
const READ_LIMIT: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Creation {
    /// Address of the start routine, without a Thumb bit.
    pub(super) routine: u64,
    pub(super) arg: u64,
    /// Where the creator is told the handle.
    pub(super) handle_at: u64,
}

/// The creations under way, oldest first, with the handle of those whose place for it was needed
/// again in the meantime.
#[derive(Debug, Default)]
pub(super) struct PendingCreations {
    creations: Vec<(Creation, Option<u64>)>,
}

impl PendingCreations {
    /// Where to read the handle of an earlier creation that `creation` is about to hide.
    fn hidden_by(&self, creation: Creation) -> Option<u64> {
        let hidden =
            |(earlier, handle): &(Creation, Option<u64>)| *earlier == creation && handle.is_none();
        self.creations
            .iter()
            .any(hidden)
            .then_some(creation.handle_at)
    }

    fn hide(&mut self, creation: Creation, value: u64) {
        for (earlier, handle) in &mut self.creations {
            if *earlier == creation {
                handle.get_or_insert(value);
            }
        }
    }

    /// Adds a creation. Gives the handle of an earlier one that this one is about to overwrite.
    pub(super) fn add_reading(
        &mut self,
        session: &mut Session,
        creation: Creation,
    ) -> Option<Read> {
        let (client, abi) = (&mut session.client, &session.abi);
        let read = self.hidden_by(creation).and_then(|address| {
            let bytes = client.read_memory(address, abi.pointer).ok()?;
            if let Some(handle) = abi.pointer_at(&bytes, 0) {
                self.hide(creation, handle);
            }
            Some(Read {
                role: ReadRole::Handle.into(),
                address,
                bytes,
            })
        });
        self.add(creation);
        read
    }

    pub(super) fn add(&mut self, creation: Creation) {
        if self.creations.len() >= LIMIT {
            self.creations.remove(0);
        }
        self.creations.push((creation, None));
    }

    /// A thread has arrived at `routine` with `arg`: the handles of all creations it may belong to,
    /// and the one it does belong to, as far as can be told here, is no longer pending.
    pub(super) fn start(
        &mut self,
        client: &mut Client,
        abi: &Abi,
        routine: u64,
        arg: u64,
        thread_pointer: Option<u64>,
        sp: Option<u64>,
    ) -> Vec<Read> {
        let matching: Vec<usize> = (0..self.creations.len())
            .filter(|i| self.creations[*i].0.routine == routine && self.creations[*i].0.arg == arg)
            .take(READ_LIMIT)
            .collect();
        // The thread pointer is the handle where there is one to read, and one candidate needs none.
        if let ([only], Some(_)) = (&matching[..], thread_pointer) {
            self.creations.remove(*only);
            return Vec::new();
        }
        let mut reads = self.read_handles(client, abi, &matching);
        // A place that was used before and still holds the earlier handle says nothing of the later one.
        let hidden: Vec<u64> = matching
            .iter()
            .filter_map(|i| self.creations[*i].1)
            .collect();
        let mut handles = Vec::new();
        for (i, read) in matching.iter().zip(&mut reads) {
            let value = read.as_ref().and_then(|bytes| abi.pointer_at(bytes, 0));
            if value.is_some_and(|value| hidden.contains(&value)) {
                *read = None;
            }
            handles.push(self.creations[*i].1.or(value.filter(|_| read.is_some())));
        }
        let exact =
            thread_pointer.and_then(|tp| handles.iter().position(|handle| *handle == Some(tp)));
        // Elsewhere the handle is a descriptor at the upper end of the thread's own stack.
        let nearest = || {
            let above = |handle: &Option<u64>| handle.as_ref()?.checked_sub(sp?);
            let distances = handles
                .iter()
                .enumerate()
                .filter_map(|(i, handle)| Some((above(handle)?, i)));
            distances.min().map(|(_, i)| i)
        };
        let chosen = exact.or_else(nearest).unwrap_or(0);
        let result = matching
            .iter()
            .zip(&reads)
            .filter_map(|(i, read)| {
                Some(Read {
                    role: ReadRole::Handle.into(),
                    address: self.creations[*i].0.handle_at,
                    bytes: read.clone()?,
                })
            })
            .collect();
        if let Some(index) = matching.get(chosen) {
            self.creations.remove(*index);
        }
        result
    }

    fn read_handles(
        &self,
        client: &mut Client,
        abi: &Abi,
        which: &[usize],
    ) -> Vec<Option<Vec<u8>>> {
        let mut batch = client.batch();
        let places = which.iter().map(|i| self.creations[*i].0.handle_at);
        let tickets: Vec<_> = places
            .map(|at| batch.read_memory(at, abi.pointer))
            .collect();
        match batch.send() {
            Ok(mut answers) => tickets
                .into_iter()
                .map(|ticket| answers.take(ticket).ok())
                .collect(),
            // The connection is lost, which the next request reports.
            Err(_) => vec![None; which.len()],
        }
    }

    /// Where the creators of the latest creations were given their handles.
    pub(super) fn places(&self) -> Vec<u64> {
        let mut places = Vec::new();
        for (creation, _) in self.creations.iter().rev() {
            if places.len() < READ_LIMIT && !places.contains(&creation.handle_at) {
                places.push(creation.handle_at);
            }
        }
        places
    }

    pub(super) fn clear(&mut self) {
        self.creations.clear();
    }
}
