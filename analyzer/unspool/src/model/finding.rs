//! A finding that deserves attention, with its evidence.
//!
//! Inspections and recordings share this type, so that every view and `--fail-on` see findings of
//! one shape. No decisions are made here.

use std::fmt;
use std::sync::Arc;

use super::backtrace::Backtrace;
use super::calls::PathId;
use super::critical_path::Bottleneck;
use super::sync::{ObjectIndex, UseIndex};
use super::thread::ThreadIndex;
use crate::primitives::Kind;

/// A kind of problem, or of fact that deserves a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// Threads wait for each other in a circle, and none can continue.
    Deadlock,
    /// A thread waits for itself.
    SelfDeadlock,
    /// A thread that has ended holds what others wait for.
    AbandonedLock,
    /// Threads wait for a wake-up, and no thread is left to send it.
    LostWakeup,
    /// Two objects are taken in both orders.
    LockOrder,
    /// An object is held for a long time while others wait.
    LongHold,
    /// Threads queue up at one object again and again.
    Convoy,
    /// Threads wait for one object for a long time in total.
    Contention,
    /// One lock, function or kind of thread limits the whole run.
    Bottleneck,
    /// A condition is signalled without the mutex.
    UnlockedSignal,
    /// A mutex is released by a thread that does not hold it.
    WrongUnlock,
    /// An object's life ends while it is held.
    DestroyedHeld,
    /// Threads end without being joined.
    Unjoined,
    /// One call path creates many short-lived threads.
    Churn,
}

impl FindingKind {
    /// All of them, the gravest first.
    pub const ALL: [FindingKind; 14] = [
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
        FindingKind::Bottleneck,
        FindingKind::UnlockedSignal,
        FindingKind::Unjoined,
        FindingKind::Churn,
    ];

    /// The name in JSON and in `--fail-on`, e.g. `lock-order`.
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
            FindingKind::Bottleneck => "bottleneck",
            FindingKind::UnlockedSignal => "unlocked-signal",
            FindingKind::WrongUnlock => "wrong-unlock",
            FindingKind::DestroyedHeld => "destroyed-held",
            FindingKind::Unjoined => "unjoined",
            FindingKind::Churn => "churn",
        }
    }

    /// Finds the kind with a name.
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
    /// The kind of object.
    pub kind: Kind,
    /// Where it is, as mapped.
    pub address: u64,
    /// The name: a symbol and perhaps an offset, or where it was created or first used.
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

/// A stack that supports a finding.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The thread whose stack it is.
    pub thread: ThreadIndex,
    /// The fact that the stack shows.
    pub shows: Shows,
    /// The stack; none where only the fact is known.
    pub stack: Option<Arc<Backtrace>>,
}

/// The fact that a stack shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Shows {
    /// The thread waits; in a circle it holds what another thread waits for.
    Waits {
        /// Awaited objects that it holds.
        holds: Vec<Awaited>,
        /// The object that it waits for.
        awaited: Awaited,
    },
    /// The thread took an object here.
    Took {
        /// The object.
        object: ObjectName,
        /// The thread has ended without releasing the object.
        ended: bool,
    },
    /// What the thread did with an object of the recording.
    Act {
        /// What it did.
        act: Act,
        /// The object.
        object: ObjectIndex,
    },
    /// The thread created this thread.
    Creates(ThreadIndex),
    /// The thread was created here.
    Created,
    /// What the thread did when it was inspected.
    Activity,
    /// The thread has the longest part of the critical path.
    LongestPart,
}

/// What a thread did with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Waited for the object.
    WaitedFor,
    /// Took the object.
    Took,
    /// Had taken the object before.
    HadTaken,
    /// Took the object and held it for this time, nanoseconds.
    TookFor(u64),
    /// Released the object.
    GaveUp,
    /// Released the object after this time, nanoseconds.
    GaveUpAfter(u64),
    /// Takes the object, each time.
    Takes,
    /// Takes the object while it holds this other one.
    TakesWhile(ObjectIndex),
    /// Unlocks the object.
    Unlocks,
    /// Destroys the object.
    Destroys,
    /// Signals the object.
    Signals,
}

/// The object that a thread waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Awaited {
    /// The object; for a join, the thread's.
    pub object: ObjectName,
    /// The mutex's notable attributes: `recursive`, `robust`.
    pub flavor: Vec<&'static str>,
    /// The id of a joined thread.
    pub joined: Option<u64>,
    /// Number of threads that hold a read-write lock for reading.
    pub readers: Option<u32>,
}

/// A fact that deserves attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The kind of finding.
    pub kind: FindingKind,
    /// True if all its facts were seen; otherwise some are inferred.
    pub proved: bool,
    /// The threads concerned; in a circle, each one waits for the next.
    pub threads: Vec<ThreadIndex>,
    /// True if the threads form a circle.
    pub circle: bool,
    /// The objects concerned.
    pub objects: Vec<ObjectName>,
    /// The facts, which views turn into sentences.
    pub facts: Facts,
    /// The evidence, in the order in which to read it.
    pub evidence: Vec<Evidence>,
}

impl Finding {
    /// True if a helper is parked with this mutex.
    pub(super) fn is_parking_with(&self, mutex: ObjectIndex) -> bool {
        let Facts::Parking { helpers, .. } = &self.facts else {
            return false;
        };
        helpers.iter().any(|(lock, _)| *lock == mutex)
    }

    /// The finding of an inspection, whose threads now have other indexes.
    pub(super) fn renumbered(mut self, new: impl Fn(ThreadIndex) -> ThreadIndex) -> Finding {
        let shift = |thread: &mut ThreadIndex| *thread = new(*thread);
        self.threads.iter_mut().for_each(shift);
        for evidence in &mut self.evidence {
            shift(&mut evidence.thread);
        }
        if let Facts::Hang(hang) = &mut self.facts {
            hang.waits
                .iter_mut()
                .for_each(|wait| shift(&mut wait.thread));
            match &mut hang.reason {
                HangReason::HolderGone { holder, .. } => holder.iter_mut().for_each(shift),
                HangReason::AllWait { bystanders, .. } => bystanders.iter_mut().for_each(shift),
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
impl Finding {
    /// The facts of a hang.
    pub(crate) fn hang(&self) -> &Hang {
        match &self.facts {
            Facts::Hang(hang) => hang,
            other => panic!("no hang: {other:?}"),
        }
    }
}

/// The statement of a finding.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// Threads that cannot continue.
    Hang(Hang),
    /// What limits the run.
    Bottleneck(Bottleneck),
    /// The longest hold of an object, for which others waited.
    LongHold {
        /// The object.
        object: ObjectIndex,
        /// The longest wait of the holder in the kernel meanwhile.
        kernel: Option<KernelWait>,
        /// The reason why the times are not certain.
        overloaded: bool,
    },
    /// Threads queue up at an object.
    Convoy {
        /// The object.
        object: ObjectIndex,
        /// The reason why the times are not certain.
        overloaded: bool,
    },
    /// Threads wait for an object.
    Contention {
        /// The object.
        object: ObjectIndex,
        /// The reason why the times are not certain.
        overloaded: bool,
    },
    /// Threads wait for a lock whose calls were not recorded: its position in
    /// [`Model::lock_waits`](super::Model::lock_waits).
    LockWaits(usize),
    /// A thread holds one mutex for each of one or several helper threads, which wait until it
    /// releases their mutex.
    Parking {
        /// The thread that holds the mutexes.
        owner: ThreadIndex,
        /// Each mutex and the helper that waits for it.
        helpers: Vec<(ObjectIndex, ThreadIndex)>,
        /// Total length of the helpers' waits, nanoseconds.
        waited_ns: u64,
    },
    /// Locks are taken in orders that form a circle.
    LockOrder {
        /// The steps; each takes the object that the next one holds.
        steps: Vec<OrderStep>,
        /// Whether the threads can wait for each other forever.
        risk: OrderRisk,
    },
    /// An object is unlocked or destroyed when it must not be.
    Misuse {
        /// The thread that does it.
        thread: ThreadIndex,
        /// The call.
        used: UseIndex,
        /// The object.
        object: ObjectIndex,
        /// How often it happened.
        count: u64,
        /// The thread that held the object, and where it had taken it.
        holder: Option<(ThreadIndex, UseIndex)>,
    },
    /// A condition is signalled by threads that had not locked its mutex.
    UnlockedSignal {
        /// The condition.
        condition: ObjectIndex,
        /// The mutex with which others wait for it.
        mutex: ObjectIndex,
        /// Number of signals without the mutex.
        without: u64,
        /// Number of all signals.
        all: u64,
        /// One of the threads, and its call.
        example: (ThreadIndex, UseIndex),
    },
    /// The finding's threads ended without being joined.
    Unjoined {
        /// The program has ended, so that no thread can join them any more.
        ended: bool,
    },
    /// The finding's threads lived only briefly.
    Churn {
        /// The median of their lives, nanoseconds.
        median_ns: u64,
    },
}

/// A wait in the kernel during a hold.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelWait {
    /// Name of the system call. None for a page fault.
    pub call: Option<&'static str>,
    /// The object at whose futex word it waited.
    pub object: Option<ObjectIndex>,
    /// The file behind its descriptor. Empty if it has none.
    pub file: String,
    /// The stack of the wait.
    pub stack: Arc<Backtrace>,
    /// Length, nanoseconds.
    pub ns: u64,
}

/// One step of a cycle in the lock order: a thread takes a lock while it holds another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderStep {
    /// The thread that does it.
    pub thread: ThreadIndex,
    /// The object that it holds.
    pub holds: ObjectIndex,
    /// The object that it takes.
    pub takes: ObjectIndex,
    /// The call that takes it.
    pub taken: UseIndex,
    /// How often the thread did it, at any place.
    pub count: u64,
}

/// Whether threads that take locks in a circle can wait for each other forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRisk {
    /// They can.
    Proved,
    /// They can if this semaphore lets enough of them in at the same time.
    Semaphore(ObjectIndex),
    /// They can if no missing event says otherwise.
    EventsMissing,
    /// One thread takes all steps. It cannot deadlock by itself.
    OneThread,
    /// In this recording no two threads could take the steps at the same time.
    Apart,
    /// One thread was done with its steps before another began, perhaps because the other waited.
    Successive,
    /// They can if each address was the same lock all the time. The memory of a lock may have been
    /// used again for another lock, whose initialization was not recorded.
    Reused,
}

/// Threads that cannot continue, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Hang {
    /// The reason why no thread ends the waits.
    pub reason: HangReason,
    /// The waits, in the order of the finding's waiting threads.
    pub waits: Vec<HangWait>,
    /// Reasons why the waits may end after all, or may be misread.
    pub doubts: Vec<Doubt>,
}

/// One wait of a hang.
#[derive(Clone, Debug, PartialEq)]
pub struct HangWait {
    /// The thread that waits.
    pub thread: ThreadIndex,
    /// The object that it waits for.
    pub awaited: Awaited,
    /// The call that waits, if it was recorded.
    pub path: Option<PathId>,
    /// Objects that it holds and the other threads wait for.
    pub holds: Vec<Awaited>,
    /// Where it took these objects, if recorded.
    pub taken: Option<PathId>,
}

/// The reason why no thread ends a group of waits.
#[derive(Clone, Debug, PartialEq)]
pub enum HangReason {
    /// Each thread waits for the next.
    Circle,
    /// No thread of the process holds the lock, and no thread of another one.
    HolderGone {
        /// The id that the lock stores.
        tid: Option<u64>,
        /// The thread, if its end was recorded.
        holder: Option<ThreadIndex>,
        /// True if processes share the lock, and none of them has the thread.
        shared: bool,
    },
    /// All threads of the process wait, except for threads whose code ends no wait.
    AllWait {
        /// Number of waiting threads.
        waiting: usize,
        /// Threads that run only code that ends no wait.
        bystanders: Vec<ThreadIndex>,
    },
    /// Only the finding's threads can end the system calls in which they wait for processes.
    Processes,
    /// Only these threads were seen to use the objects.
    OnlyUsers,
    /// A read-write lock has more readers than there are threads that do not wait for it.
    Readers {
        /// Number of threads that hold it for reading.
        readers: u32,
        /// Number of threads that do not wait for it.
        others: usize,
    },
    /// All threads that run one function wait for results that only they can provide.
    Pool {
        /// The function.
        function: Arc<str>,
    },
}

/// A reason why a hang may end after all, or may be misread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doubt {
    /// A wait has a timeout.
    Timed,
    /// The kernel refused a thread its mutex, and the mutex is inferred.
    Refused,
    /// Processes share an object.
    Shared,
    /// A signal, or a process that was not seen, may end a system call.
    CallsMayEnd,
    /// Threads and objects were read one after another.
    ReadApart,
    /// Events are missing, or memory was read only once.
    EventsMissing,
    /// The thread ids that the program uses are not known.
    IdsAssumed,
    /// The handler of a signal could end the wait.
    SignalHandler,
    /// It is not known whether the program handles signals.
    SignalsUnknown,
    /// No name shows what a thread waits at.
    Unnamed,
}

/// Sorts by kind, the gravest first, and proved findings before inferred ones.
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
