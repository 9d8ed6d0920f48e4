//! What a person should look at, with its evidence.
//!
//! One type for a single look and for recordings, so that every view and `--fail-on` know findings of
//! one shape. Nothing is decided here.

use std::fmt;
use std::sync::Arc;

use super::backtrace::Backtrace;
use super::thread::ThreadIndex;
use crate::primitives::Kind;

/// What is wrong, or deserves a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// Threads wait for each other, in a circle; nobody can go on.
    Deadlock,
    /// A thread waits for itself.
    SelfDeadlock,
    /// A thread that has ended holds what others wait for.
    AbandonedLock,
    /// Threads wait for a wake-up, and nobody is left who could give it.
    LostWakeup,
    /// Two objects are taken in both orders.
    LockOrder,
    /// An object is held for long while others wait.
    LongHold,
    /// Threads queue up at one object again and again.
    Convoy,
    /// Threads wait much for one object.
    Contention,
    /// A condition is signalled without the mutex.
    UnlockedSignal,
    /// A mutex is given up by a thread that does not hold it.
    WrongUnlock,
    /// An object's life ends while it is held.
    DestroyedHeld,
    /// Threads end and nobody joins them.
    Unjoined,
    /// One call path creates thread after short-lived thread.
    Churn,
}

impl FindingKind {
    /// All of them, the gravest first.
    pub const ALL: [FindingKind; 13] = [
        FindingKind::Deadlock,
        FindingKind::SelfDeadlock,
        FindingKind::AbandonedLock,
        FindingKind::LostWakeup,
        FindingKind::DestroyedHeld,
        FindingKind::WrongUnlock,
        FindingKind::LockOrder,
        FindingKind::Convoy,
        FindingKind::LongHold,
        FindingKind::Contention,
        FindingKind::UnlockedSignal,
        FindingKind::Unjoined,
        FindingKind::Churn,
    ];

    /// As JSON and `--fail-on` have it, e.g. `lock-order`.
    pub fn as_str(self) -> &'static str {
        match self {
            FindingKind::Deadlock => "deadlock",
            FindingKind::SelfDeadlock => "self-deadlock",
            FindingKind::AbandonedLock => "abandoned-lock",
            FindingKind::LostWakeup => "lost-wakeup",
            FindingKind::LockOrder => "lock-order",
            FindingKind::LongHold => "long-hold",
            FindingKind::Convoy => "convoy",
            FindingKind::Contention => "contention",
            FindingKind::UnlockedSignal => "unlocked-signal",
            FindingKind::WrongUnlock => "wrong-unlock",
            FindingKind::DestroyedHeld => "destroyed-held",
            FindingKind::Unjoined => "unjoined",
            FindingKind::Churn => "churn",
        }
    }

    /// The kind of that name.
    pub fn of_name(name: &str) -> Option<FindingKind> {
        FindingKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A synchronization object as a finding names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// What it is.
    pub kind: Kind,
    /// Where it is, as mapped.
    pub address: u64,
    /// What people call it: a symbol and perhaps an offset, or where it was created or first used.
    pub name: Option<Arc<str>>,
}

impl fmt::Display for ObjectName {
    /// `mutex queue_lock`, `semaphore at 0x7ffe0010`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{} {name}", self.kind.noun()),
            None => write!(f, "{} at {:#x}", self.kind.noun(), self.address),
        }
    }
}

/// A stack that shows what a finding says.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// Whose stack.
    pub thread: ThreadIndex,
    /// What it shows, as a clause without the thread: `holds mutex queue_lock, waits for mutex log_lock`.
    pub what: String,
    /// The stack; none where only the clause is known.
    pub stack: Option<Arc<Backtrace>>,
}

/// Something a person should look at.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What it is.
    pub kind: FindingKind,
    /// All it says was seen; otherwise something was concluded.
    pub proved: bool,
    /// The threads concerned; of a circle in its order, each waiting for the next.
    pub threads: Vec<ThreadIndex>,
    /// They are a circle.
    pub circle: bool,
    /// The objects concerned.
    pub objects: Vec<ObjectName>,
    /// Whole sentences for a person.
    pub text: String,
    /// What shows it, in the order to be read.
    pub evidence: Vec<Evidence>,
}

/// The gravest first; of one kind, what is proved.
pub(super) fn sort(findings: &mut [Finding]) {
    let rank = |kind| FindingKind::ALL.iter().position(|other| *other == kind);
    findings.sort_by_key(|finding| (rank(finding.kind), !finding.proved));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for kind in FindingKind::ALL {
            assert_eq!(FindingKind::of_name(kind.as_str()), Some(kind));
        }
        assert_eq!(FindingKind::of_name("everything"), None);
    }
}
