//! A thread as the model knows it.

use std::sync::Arc;

use super::backtrace::{Backtrace, Place};
use super::identity::Key;

/// Index of a thread in [`Model::threads`](super::Model::threads). Unlike TIDs, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIndex(pub usize);

/// One thread. Times are nanoseconds since the recording began.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    /// Kernel thread id, which a later thread may reuse. `None` if the thread was gone before the
    /// server could be queried, so that only its creation was recorded.
    pub tid: Option<u64>,
    /// Its last known name, empty if not known.
    pub name: String,
    /// Its identity, equal in each run of the program.
    pub key: Key,
    /// The thread function, as passed to the creation function or to its C++ wrapper. For threads
    /// without a recorded creation, it comes from their stack.
    pub function: Option<Place>,
    /// The start function in the C++ library that calls `function`, if there is one.
    pub start: Option<Place>,
    /// How the thread was created.
    pub creation: Creation,
    /// When the creation function was called.
    pub created_ns: Option<u64>,
    /// When it was first seen running.
    pub started_ns: Option<u64>,
    /// When it ended, or was seen to be gone.
    pub ended_ns: Option<u64>,
    /// True if `ended_ns` was reported as it happened; otherwise the thread ended some time before.
    pub end_exact: bool,
    /// How it ended.
    pub ending: Ending,
    /// True if it ended because the process executed another program.
    pub(crate) by_exec: bool,
    /// True if it cannot be joined.
    pub detached: bool,
    /// The thread that joined it, or waits to.
    pub joiner: Option<ThreadIndex>,
    /// The time of that join call.
    pub joined_ns: Option<u64>,
    /// Its stack when it was last looked at.
    pub stack: Option<Arc<Backtrace>>,
}

impl Thread {
    /// A thread of which nothing is known but its id.
    pub(crate) fn new(tid: Option<u64>) -> Thread {
        Thread {
            tid,
            name: String::new(),
            key: Key::default(),
            function: None,
            start: None,
            creation: Creation::Unseen,
            created_ns: None,
            started_ns: None,
            ended_ns: None,
            end_exact: false,
            ending: Ending::Alive,
            by_exec: false,
            detached: false,
            joiner: None,
            joined_ns: None,
            stack: None,
        }
    }

    /// The thread that created it.
    pub fn creator(&self) -> Option<ThreadIndex> {
        match &self.creation {
            Creation::Seen { creator, .. } => Some(*creator),
            _ => None,
        }
    }

    /// The stack of its creator, starting at the caller of the creation function.
    pub fn creation_stack(&self) -> Option<&Backtrace> {
        match &self.creation {
            Creation::Seen { stack, .. } | Creation::Recorded { stack, .. } => Some(stack),
            _ => None,
        }
    }

    /// The earliest known time of the thread.
    pub fn first_ns(&self) -> Option<u64> {
        self.created_ns.or(self.started_ns)
    }
}

/// How a thread was created.
#[derive(Clone, Debug, PartialEq)]
pub enum Creation {
    /// It is the program's first thread.
    Main,
    /// Its creation was recorded.
    Seen {
        /// The creating thread.
        creator: ThreadIndex,
        /// Where, starting at the caller of the creation function.
        stack: Arc<Backtrace>,
        /// True if creations and threads could only be matched by their order.
        inferred: bool,
    },
    /// Seen in an inspection: a recording of the same process has its creation.
    Recorded {
        /// Name of the creating thread, which may have ended.
        by: Arc<str>,
        /// Where, starting at the caller of the creation function.
        stack: Arc<Backtrace>,
    },
    /// It ran before the recording began.
    Before,
    /// It was created during the recording, unseen.
    Unseen,
}

/// How a thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It had not ended when the recording or the program did.
    Alive,
    /// It ended, and no join is known.
    Exited,
    /// It ended, and another thread joined it.
    Joined,
    /// It was detached, and ended.
    Detached,
    /// Only its creation was seen.
    Unknown,
}

impl Ending {
    /// `alive`, `exited`, `joined`, `detached` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Alive => "alive",
            Ending::Exited => "exited",
            Ending::Joined => "joined",
            Ending::Detached => "detached",
            Ending::Unknown => "unknown",
        }
    }
}
