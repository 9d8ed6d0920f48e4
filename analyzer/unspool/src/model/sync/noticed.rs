//! What the replay of calls notices, that findings are made of: who waits to the end, and what is done wrong.

use std::collections::HashMap;

use super::objects::{ObjectIndex, UseIndex};
use crate::model::ThreadIndex;
use crate::primitives::Operation;

/// As many mistakes as anybody reads.
const MOST_MISTAKES: usize = 1000;
/// As many ways to signal one condition.
const MOST_SIGNALS: usize = 64;

/// All that was noticed.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    pub(super) still: Vec<StillWaiting>,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) signals: HashMap<ObjectIndex, Vec<Signalled>>,
}

impl Noticed {
    /// The same one in the same place is counted.
    pub(super) fn mistake(&mut self, new: Mistake) {
        let same =
            |m: &&mut Mistake| (m.kind, m.object, m.used) == (new.kind, new.object, new.used);
        if let Some(known) = self.mistakes.iter_mut().find(same) {
            known.count += 1;
            known.sure |= new.sure;
        } else if self.mistakes.len() < MOST_MISTAKES {
            self.mistakes.push(new);
        }
    }

    /// A condition is signalled by a thread that holds these.
    pub(super) fn signal(
        &mut self,
        condition: ObjectIndex,
        thread: ThreadIndex,
        used: UseIndex,
        mut held: Vec<ObjectIndex>,
    ) {
        held.sort_unstable();
        let seen = self.signals.entry(condition).or_default();
        if let Some(known) = seen.iter_mut().find(|s| s.used == used && s.held == held) {
            known.count += 1;
        } else if seen.len() < MOST_SIGNALS {
            seen.push(Signalled {
                used,
                thread,
                held,
                count: 1,
            });
        }
    }
}

/// A thread that still waits when the recording ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct StillWaiting {
    pub(super) thread: ThreadIndex,
    pub(super) object: ObjectIndex,
    pub(super) used: UseIndex,
    pub(super) operation: Operation,
    pub(super) since_ns: u64,
    /// It gives up after a time.
    pub(super) timed: bool,
    pub(super) sure: bool,
    /// Who had it when the wait began, as its own memory said; of a join, whose end is waited for.
    pub(super) owner: Option<ThreadIndex>,
}

/// Something done wrong, as it happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mistake {
    pub(super) kind: MistakeKind,
    pub(super) object: ObjectIndex,
    pub(super) thread: ThreadIndex,
    pub(super) used: UseIndex,
    /// Who held it, and where it was taken.
    pub(super) holder: Option<(ThreadIndex, UseIndex)>,
    pub(super) count: u64,
    pub(super) sure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MistakeKind {
    Unlock,
    Destroy,
}

/// A condition that is signalled, and what the thread holds then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signalled {
    pub(super) used: UseIndex,
    pub(super) thread: ThreadIndex,
    pub(super) held: Vec<ObjectIndex>,
    pub(super) count: u64,
}
