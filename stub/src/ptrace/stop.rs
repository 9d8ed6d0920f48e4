//! Why a traced program stopped, and how it ended: what `poll` and `resume` return.

use crate::arch::watch::Watch;
use crate::sys::Tid;

/// Why the program is halted, or gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// This thread stopped; all others are held.
    Thread(Tid, Cause),
    /// A thread ended, with this exit code; reported only if asked for.
    ThreadExited(Tid, i32),
    /// All threads that were to run have ended; others are held.
    NothingRuns,
    /// The process ended with this exit code.
    Exited(i32),
    /// The process was killed by this signal.
    Killed(i32),
}

/// Why a thread stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A signal (the kernel's number) that it has not got yet.
    Signal(i32),
    /// A planted breakpoint, at the program counter.
    Breakpoint,
    /// This was accessed, or is about to be, or executed.
    Watch(Watch),
    /// It is about to enter the kernel for the system call with this number.
    CallEntry(u64),
    /// It comes out of it.
    CallReturn(u64),
    /// It has made its step.
    Step,
    /// The client asked for it.
    Interrupt,
    /// The client asked for this thread, and no signal is to be shown.
    Halted,
    /// It has just been created.
    Created,
    /// It executed this file.
    Exec(String),
    /// It made this process, a copy of its own.
    Fork(Tid),
    /// It made this process, which runs in its memory, and waits for it to leave that.
    VFork(Tid),
    /// That has happened.
    VForkDone,
    /// It has been started or attached to.
    Ready,
}
