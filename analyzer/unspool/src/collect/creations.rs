//! Creations whose threads have not started yet.
//!
//! `pthread_create` gets a function and an argument, and the new thread reaches the function with
//! the argument. If several creations share both, the handles that the creators received tell them
//! apart. The recorder reads a handle before the program can overwrite it.

use unspool_capture::{Read, ReadRole};
use unspool_rsp::Client;

use super::session::Session;
use crate::platform::abi::Abi;

/// Limit on pending creations. A failed creation never starts a thread and would stay forever, so
/// beyond the limit the oldest are dropped.
const LIMIT: usize = 4096;
/// Maximum number of handles read at one stop.
const READ_LIMIT: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Creation {
    /// Address of the start routine, without a Thumb bit.
    pub(super) routine: u64,
    pub(super) arg: u64,
    /// The address at which the creator receives the handle.
    pub(super) handle_at: u64,
}

/// Pending creations, oldest first. A creation has its handle if a later creation reuses the
/// address of the handle.
#[derive(Debug, Default)]
pub(super) struct PendingCreations {
    creations: Vec<(Creation, Option<u64>)>,
}

impl PendingCreations {
    /// The address of an earlier creation's handle that `creation` is about to overwrite.
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

    /// Adds a creation. Returns the handle of an earlier creation that this one is about to
    /// overwrite.
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

    /// Handles the arrival of a thread at `routine` with `arg`. Removes the creation to which the
    /// thread most likely belongs. Returns the handles that tell the candidates apart.
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
        // The thread pointer equals the handle, so a single candidate needs no handle.
        if let ([only], Some(_)) = (&matching[..], thread_pointer) {
            self.creations.remove(*only);
            return Vec::new();
        }
        let mut reads = self.read_handles(client, abi, &matching);
        // If the address of a handle is reused and still holds the earlier handle, it says nothing
        // about the later creation.
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
        // Without a thread pointer: the handle is a descriptor at the upper end of the thread's
        // stack.
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

    /// The addresses at which the latest creators receive their handles.
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
