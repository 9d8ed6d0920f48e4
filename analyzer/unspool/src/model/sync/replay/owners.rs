//! Finds the owner of an object in the memory that was read with a system call.

use super::Replay;
use crate::model::ThreadIndex;
use crate::model::calls::Call;
use crate::primitives::Kind;

impl Replay<'_> {
    /// The owner of a mutex by its memory, if the C library stores it. For a join, the thread to be
    /// joined.
    pub(super) fn owner(&self, call: &Call, kind: Kind) -> Option<ThreadIndex> {
        if kind == Kind::Join && self.glibc {
            // The word is the other thread's id until that thread has ended (struct pthread,
            // `tid`).
            let tid = call.args.get(2).map(|value| *value as u32)?;
            return self.known(tid.into(), call.entered_ns);
        }
        let (_, bytes) = call.object.as_ref().filter(|_| kind == Kind::Mutex)?;
        // glibc (struct __pthread_mutex_s): the lock word, a count, the owner's thread id.
        let owner = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
        let owner = self.known(owner.into(), call.entered_ns)?;
        self.glibc.then_some(owner)
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
