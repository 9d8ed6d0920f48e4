//! Finds the owner of an object in the memory that was read with a system call.

use super::Replay;
use crate::model::ThreadIndex;
use crate::model::calls::Call;
use crate::primitives::{Kind, Primitive};

/// Offset of the owner in glibc's mutexes (struct __pthread_mutex_s).
const MUTEX_OWNER: u64 = 8;

impl Replay<'_> {
    /// The owner of the mutex at `object`, or the writer of the read-write lock, by its memory, if
    /// the C library stores it. For a join, the thread to be joined.
    pub(super) fn owner(
        &self,
        call: &Call,
        primitive: &Primitive,
        object: u64,
    ) -> Option<ThreadIndex> {
        let kind = primitive.kind;
        if kind == Kind::Join && self.glibc {
            // The word is the other thread's id until that thread has ended (struct pthread,
            // `tid`).
            let tid = call.args.get(2).map(|value| *value as u32)?;
            return self.known(tid.into(), call.entered_ns);
        }
        if !self.glibc || primitive.is_of_a_language() {
            return None;
        }
        let offset = match (kind, self.layout) {
            (Kind::Mutex, layout) => layout.map_or(Some(MUTEX_OWNER), |it| it.mutex.owner)?,
            (Kind::Rwlock, Some(layout)) => layout.rwlock.writer?,
            _ => return None,
        };
        // The memory begins at the word that the thread waits at.
        let (word, bytes) = call.object.as_ref()?;
        let at = object.checked_add(offset)?.checked_sub(*word)?;
        let owner = bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?;
        self.known(u32::from_le_bytes(*owner).into(), call.entered_ns)
    }

    /// The thread that had this id at that time; a later thread may reuse it.
    pub(super) fn known(&self, tid: u64, ns: u64) -> Option<ThreadIndex> {
        let same_id = self.by_tid.get(&tid)?.iter().rev();
        let mut lived = same_id.filter(|index| {
            let first = self.model.threads[index.0].first_ns();
            first.is_none_or(|first| first <= ns)
        });
        lived.next().copied()
    }
}
