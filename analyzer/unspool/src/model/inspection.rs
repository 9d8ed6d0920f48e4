//! Waits and holders at one moment: the state of each thread, what it waits at, who holds that,
//! and what follows.
//!
//! All of it is computed from what a look at the program noted: registers, stacks, memory. `waits`
//! says what each thread does, with `object` for what synchronization objects say of themselves;
//! `findings` makes findings of them.

mod at_end;
mod bystander;
mod memory;
mod object;
#[cfg(test)]
mod tests;
mod waits;

use std::ops::Range;
use std::sync::Arc;

use super::finding::ObjectName;
use super::layouts;
use super::note::Note;
use super::thread::ThreadIndex;
use crate::primitives::{Kind, Primitive};

pub(super) use at_end::at_end;
pub(super) use bystander::Onward;
pub(super) use layouts::{Family, Library};
pub(super) use waits::{Program, Scene, inspect};

/// What a thread did when it was looked at.
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
    },
    /// A signal such as SIGSTOP has stopped the program, while the thread did this.
    Stopped(Box<State>),
}

impl State {
    /// `running`, `waiting`, `sleeping`, `syscall` or `stopped`.
    pub fn as_str(&self) -> Option<&'static str> {
        match self {
            State::Unknown | State::Absent => None,
            State::Running => Some("running"),
            State::Waiting(_) => Some("waiting"),
            State::Sleeping => Some("sleeping"),
            State::InCall { .. } => Some("syscall"),
            State::Stopped(_) => Some("stopped"),
        }
    }

    /// The wait, if it is one, and if the program was stopped in it, too.
    pub fn wait(&self) -> Option<&Wait> {
        match self {
            State::Waiting(wait) => Some(wait),
            State::Stopped(before) => before.wait(),
            _ => None,
        }
    }
}

/// A thread that holds what another waits for, or is waited for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its id among the program's threads; of a thread that this process does not have, as the
    /// object has it.
    pub tid: u64,
    /// The thread, if this process has it.
    pub thread: Option<ThreadIndex>,
}

/// What a thread waits at.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// The object; of a join the address is that of the word waited at.
    pub object: ObjectName,
    /// The function it waits in.
    pub function: Option<&'static Primitive>,
    /// What kind of mutex it is, if that is worth a word: `recursive`, `robust`.
    pub flavor: Vec<&'static str>,
    /// The holder of the object, or the thread to be joined, as far as that is recorded.
    pub holders: Vec<Holder>,
    /// Number of readers that hold a read-write lock; their identity is not recorded.
    pub readers: Option<u32>,
    /// The mutex that the wait at a condition variable gave up, and takes again: read off the
    /// stack.
    pub mutex: Option<ObjectName>,
    /// It ends after a time by itself.
    pub timed: bool,
    /// Threads of other processes may use the object.
    pub shared: bool,
    /// All of it was seen at one moment: the thread in the kernel's wait, and the object's own
    /// words.
    pub proved: bool,
    /// The word it waits at has changed already, or could not be read: it may be about to end.
    pub moving: bool,
    /// The kernel has refused the thread this priority-inheriting mutex, for it could never have
    /// it, and it waits for nothing. Which mutex that was is inferred from the thread's stack.
    pub refused: bool,
    /// The unknown facts, and the reasons.
    pub unknown: Option<Arc<str>>,
}

/// What a look shows, and what more would have to be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspection {
    /// What each thread did, by [`ThreadIndex`]; empty for recordings.
    pub states: Vec<State>,
    /// Memory that would tell more.
    pub wanted: Vec<Range<u64>>,
    /// Threads to be looked at once more, because they may have moved between the reads, if what
    /// they wait for is part of a finding.
    pub doubtful: Vec<u64>,
    /// The memory to be read again.
    pub doubtful_words: Vec<Range<u64>>,
    /// The signals that the program handles, signal 1 being bit 0, where that is known.
    pub handled_signals: Option<u64>,
    /// The ids that threads know each other by are known, and not just assumed to be those we know.
    pub ids_known: bool,
    /// No thread moved while the threads were looked at.
    pub stood: bool,
    /// Threads that go on, but whose code cannot come to a place that ends a wait.
    pub bystanders: Vec<ThreadIndex>,
    /// All threads wait, each at its own moment if the program did not stand.
    pub all_wait: bool,
}

impl Inspection {
    /// The unknown facts about the whole program.
    pub(super) fn unknown(&self) -> Option<Note> {
        let what = "The server gives no access to what the kernel knows of the program (/proc). So it is not known whether a \
                    signal has stopped it, which signals it handles, by which names and numbers its threads know \
                    themselves: that these are the server's numbers is an assumption.";
        (!self.ids_known).then(|| Note::info(what))
    }

    /// The states of all threads that were there.
    fn present(&self) -> impl Iterator<Item = &State> {
        self.states.iter().filter(|state| **state != State::Absent)
    }

    /// What a thread did.
    pub fn state(&self, thread: ThreadIndex) -> &State {
        self.states.get(thread.0).unwrap_or(&State::Unknown)
    }
}

impl Wait {
    /// Whether only other threads of this process can end it.
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
