//! Why a traced program stopped, and how it ended. `poll` and `resume` return these types.

use crate::arch::watch::Watch;
use crate::sys::Tid;

/// The reason why the program is halted, or gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// This thread stopped. All others are held.
    Thread(Tid, Cause),
    /// A thread ended with this exit code. Reported only on request.
    ThreadExited(Tid, i32),
    /// All threads that could run have ended. Others are held.
    NothingRuns,
    /// The process ended with this exit code.
    Exited(i32),
    /// The process was killed by this signal.
    Killed(i32),
}

/// The reason why a thread stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// The thread is about to take this signal (the kernel's number).
    Signal(i32),
    /// The thread hit a planted breakpoint, at the program counter.
    Breakpoint,
    /// The watched place was accessed, is about to be, or was executed.
    Watch(Watch),
    /// The thread is about to enter the system call with this number.
    CallEntry(u64),
    /// The thread returns from the system call with this number.
    CallReturn(u64),
    /// The thread has finished its step.
    Step,
    /// The client interrupted the program.
    Interrupt,
    /// The client stopped this thread. The stop shows no signal.
    Halted,
    /// The thread has just been created.
    Created,
    /// The thread executed this file.
    Exec(String),
    /// The thread created this process, which has a copy of the memory.
    Fork(Tid),
    /// The thread created this process, which runs in the thread's memory. The thread waits for it
    /// to leave the memory.
    VFork(Tid),
    /// The vfork(2) child has left the thread's memory.
    VForkDone,
    /// The stub has started the program or attached to it.
    Ready,
}
