//! The state of each thread at one moment: its wait, the holders, and the conclusions.
//!
//! All of it is computed from an inspection's registers, stacks and memory. `waits` determines the
//! states, and `object` reads the synchronization objects.

mod at_end;
mod bystander;
mod memory;
mod object;
mod others;
mod subjects;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::finding::ObjectName;
use super::note::Note;
use super::thread::ThreadIndex;
use crate::platform::layouts;
use crate::platform::syscall::AwaitedChildren;
use crate::primitives::{Kind, Primitive};

pub(crate) use at_end::AtEnd;
pub(super) use at_end::at_end;
pub(super) use bystander::Onward;
pub(super) use layouts::{Family, Library};
pub use others::ProcessWait;
pub(super) use subjects::take_recorded;
pub(super) use waits::{Program, Scene, inspect};

/// The state of an inspected thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// Not known: its registers were not read.
    #[default]
    Unknown,
    /// It had ended, or had not begun.
    Absent,
    /// It executed the program, or was about to.
    Running,
    /// It waits for another thread.
    Waiting(Box<Wait>),
    /// It waits for time to pass.
    Sleeping,
    /// It is in a system call.
    InCall {
        /// The call's number.
        number: u64,
        /// Its name, if that number has one.
        name: Option<&'static str>,
        /// Its first two arguments.
        args: [u64; 2],
        /// What it works on, if it waits for that.
        on: Option<CallSubject>,
    },
    /// The program is stopped in this state.
    Stopped(StopCause, Box<State>),
}

/// The reason why no thread of a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// A signal such as SIGSTOP.
    Signal,
    /// Its cgroup is frozen.
    Frozen,
}

impl State {
    /// `running`, `waiting`, `sleeping`, `syscall`, `stopped` or `frozen`.
    pub fn as_str(&self) -> Option<&'static str> {
        match self {
            State::Unknown | State::Absent => None,
            State::Running => Some("running"),
            State::Waiting(_) => Some("waiting"),
            State::Sleeping => Some("sleeping"),
            State::InCall { .. } => Some("syscall"),
            State::Stopped(StopCause::Signal, _) => Some("stopped"),
            State::Stopped(StopCause::Frozen, _) => Some("frozen"),
        }
    }

    /// What the thread's system call works on, including a call in which it was stopped.
    pub(super) fn subject(&self) -> Option<&CallSubject> {
        match self {
            State::InCall { on, .. } => on.as_ref(),
            State::Stopped(_, before) => before.subject(),
            _ => None,
        }
    }

    /// The name of the thread's system call, as [`subject`](Self::subject) has it.
    pub(super) fn call_name(&self) -> Option<&'static str> {
        match self {
            State::InCall { name, .. } => *name,
            State::Stopped(_, before) => before.call_name(),
            _ => None,
        }
    }

    /// The wait, to be changed.
    fn wait_mut(&mut self) -> Option<&mut Wait> {
        match self {
            State::Waiting(wait) => Some(wait),
            State::Stopped(_, before) => before.wait_mut(),
            _ => None,
        }
    }

    /// The wait, including one in which the program was stopped.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            State::Waiting(wait) => Some(wait),
            State::Stopped(_, before) => before.wait(),
            _ => None,
        }
    }
}

/// What a system call works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallSubject {
    /// A file.
    File {
        /// How the call refers to it.
        reference: FileReference,
        /// Its name in `/proc/PID/fd`, the path in the program's memory, or `eventfd 5` for a
        /// descriptor without a file, if the process runs on this machine.
        name: Option<String>,
        /// The processes that have the other end of a pipe.
        other_end: Vec<OtherProcess>,
        /// True if no further process can have it.
        is_complete: bool,
    },
    /// The lock of a file, by flock(2) or fcntl(2).
    FileLock {
        /// The descriptor of the file.
        descriptor: i32,
        /// The file's name in `/proc/PID/fd`, if the process runs on this machine.
        name: Option<String>,
        /// The processes that hold the lock, as far as they are known.
        holders: Vec<OtherProcess>,
    },
    /// Children whose end it waits for.
    Children {
        /// Which of them.
        awaited: AwaitedChildren,
        /// The children.
        processes: Vec<OtherProcess>,
    },
}

/// A file in the arguments of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileReference {
    /// A descriptor.
    Descriptor(i32),
    /// The address of a path.
    Path(u64),
}

/// A system call in which a thread is.
#[derive(Debug)]
pub struct NamedCall<'a> {
    /// The thread.
    pub tid: u64,
    /// The call's name.
    pub name: &'static str,
    /// What it works on.
    pub on: &'a mut CallSubject,
}

/// A process of this machine, which may not have been inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProcess {
    /// Its id.
    pub pid: u64,
    /// The name of its program; empty if it is not known.
    pub program: String,
}

/// A thread that holds the awaited object, or that is to be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id among the program's threads. For a thread outside this process, the id in the object.
    pub tid: u64,
    /// The id that the object stores, which is another one in a PID namespace.
    pub stored: u64,
    /// True if no process that maps the object has this thread any more.
    pub is_gone: bool,
    /// The thread, if it was inspected.
    pub thread: Option<ThreadIndex>,
}

/// The object and the circumstances of a wait.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// The object; for a join, the address of the awaited word.
    pub object: ObjectName,
    /// The function it waits in.
    pub function: Option<&'static Primitive>,
    /// The mutex's notable attributes: `recursive`, `robust`.
    pub flavor: Vec<&'static str>,
    /// The holder of the object, or the thread to be joined, as far as that is recorded.
    pub holders: Vec<Holder>,
    /// Number of readers that hold a read-write lock; their identity is not recorded.
    pub readers: Option<u32>,
    /// The mutex that a wait at a condition variable released and will take again, from the stack.
    pub mutex: Option<ObjectName>,
    /// True if the wait has a timeout.
    pub timed: bool,
    /// Threads of other processes may use the object.
    pub shared: bool,
    /// True if the thread's wait and the object's words were seen at one moment.
    pub proved: bool,
    /// True if the awaited word has changed or could not be read, so that the wait may be about to
    /// end.
    pub moving: bool,
    /// True if the kernel refused the thread this priority-inheriting mutex. The wait then never
    /// ends, and the mutex is inferred from the thread's stack.
    pub refused: bool,
    /// Facts about a futex word that is part of no known object.
    pub word: Word,
    /// The unknown facts, and the reasons.
    pub unknown: Option<Arc<str>>,
    /// Evidence for a later check that the thread is still in this wait.
    pub trace: Option<Arc<WaitTrace>>,
}

/// Facts about a futex word that is part of no known object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Word {
    /// The program's own function waits at it.
    #[default]
    Own,
    /// It is a lock in the C library.
    LibraryLock,
    /// No name shows the function that waits, so it may be any object.
    Unnamed,
}

/// What a wait leaves in memory and in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitTrace {
    /// Address of the futex word.
    pub futex: u64,
    /// Address of the words that name the holder, or of the futex word if they name none.
    pub address: u64,
    /// The contents of these words.
    pub bytes: Vec<u8>,
}

/// Signals whose handlers end no wait, as a bit mask. glibc itself handles 32 and 33 for thread
/// cancellation and setuid. Rust's runtime has handlers for signals that a thread's own
/// instructions raise (SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV).
pub(super) const HARMLESS_SIGNALS: u64 = 3 << 31 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10;

/// The result of an inspection, and requests for further reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspection {
    /// The state of each thread, by [`ThreadIndex`]; empty for recordings.
    pub states: Vec<State>,
    /// Memory that would give more facts.
    pub wanted: Vec<Range<u64>>,
    /// Threads to be read once more, because they may have moved between reads and are part of a
    /// finding.
    pub doubtful: Vec<u64>,
    /// The memory to be read again.
    pub doubtful_words: Vec<Range<u64>>,
    /// The signals that the program handles, if known. Signal 1 is bit 0.
    pub handled_signals: Option<u64>,
    /// The thread that stopped the program's threads, if known.
    pub tracer: Option<u64>,
    /// The processes that have handlers of signals, apart from harmless ones.
    pub handlers: BTreeSet<u64>,
    /// The processes of `handlers` in which a timer sends such a signal, so that waits may end.
    pub timers: BTreeSet<u64>,
    /// True if the thread ids that the program uses are known, not just assumed equal to the
    /// recorder's.
    pub ids_known: bool,
    /// The other processes that run in the program's memory, so that they can use all its objects.
    pub memory_users: BTreeSet<u64>,
    /// True if no thread moved during the inspection.
    pub stood: bool,
    /// Threads that run, but whose code cannot reach a place that ends a wait.
    pub bystanders: Vec<ThreadIndex>,
    /// True if all threads wait, each at its own moment if the program was not halted.
    pub all_wait: bool,
    /// The other processes that the user named. Those that were inspected only because threads wait
    /// for them are not included.
    pub named: BTreeSet<u64>,
    /// True if the user named a process that could not be inspected.
    pub is_incomplete: bool,
}

impl Inspection {
    /// Adds the handlers of another process.
    pub(super) fn add_handlers(&mut self, other: &Inspection) {
        self.handlers.extend(&other.handlers);
        self.timers.extend(&other.timers);
    }

    /// The other processes that may end waits of process `pid`. Of two that share their memory,
    /// each gets the same note.
    pub(super) fn memory_users_note(&self, pid: u64) -> Option<Note> {
        if self.memory_users.is_empty() {
            return None;
        }
        let mut all = self.memory_users.clone();
        all.insert(pid);
        let all: Vec<String> = all.iter().map(u64::to_string).collect();
        Some(Note::info(format!(
            "Processes {} share their memory, as parent and child do from vfork(2) until the \
             child's exec. Each may end waits of the others, so a lost wake-up cannot be \
             recognized.",
            all.join(", ")
        )))
    }

    /// The unknown facts about the whole program.
    pub(super) fn unknown(&self) -> Option<Note> {
        let what = "The server gives no access to the program's /proc. So Unspool does not know \
             whether a signal has stopped the program, which signals it handles, and what its \
             threads are called. The report assumes that the server's thread numbers are the \
             program's own.";
        (!self.ids_known).then(|| Note::info(what))
    }

    /// The states of all threads that existed.
    fn present(&self) -> impl Iterator<Item = &State> {
        self.states.iter().filter(|state| **state != State::Absent)
    }

    /// The state of a thread.
    pub fn state(&self, thread: ThreadIndex) -> &State {
        self.states.get(thread.0).unwrap_or(&State::Unknown)
    }
}

impl Wait {
    /// True if only other threads of this process can end the wait.
    pub fn is_endless(&self) -> bool {
        !self.timed && !self.shared && !self.moving
    }

    /// `mutex queue_lock`, `the end of thread 7`, `semaphore at 0x7ffe0010`.
    pub fn what(&self) -> String {
        if self.object.kind == Kind::Join {
            return match self.holders.first() {
                Some(holder) => format!("the end of thread {}", holder.tid),
                None => "the end of a thread".to_owned(),
            };
        }
        let flavor: String = self.flavor.iter().map(|word| format!("{word} ")).collect();
        format!("{flavor}{}", self.object)
    }
}
