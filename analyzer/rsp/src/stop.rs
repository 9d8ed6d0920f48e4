//! Stop replies: what a resumed target has to say (RSP, "Stop Reply Packets").

use crate::thread::ThreadId;

/// Why the target no longer runs, or what happened to one of its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReply {
    /// `S`, `T`: a thread stopped, and with it (all-stop) all others.
    Stopped {
        /// gdb's signal number, see [`crate::signals`].
        signal: u8,
        /// The thread that stopped.
        thread: Option<ThreadId>,
        /// What made it stop.
        reason: StopReason,
        /// Expedited registers: number, and bytes in target order.
        registers: Vec<(u32, Vec<u8>)>,
        /// The processor the thread was on.
        core: Option<u32>,
    },
    /// `W`: the process exited.
    Exited {
        /// Its exit code.
        code: i32,
        /// The process, with `multiprocess`.
        pid: Option<u64>,
    },
    /// `X`: the process was killed by a signal.
    Terminated {
        /// gdb's signal number.
        signal: u8,
        /// The process, with `multiprocess`.
        pid: Option<u64>,
    },
    /// `w`: a thread exited (with `QThreadEvents` on).
    ThreadExited {
        /// Its exit code.
        code: i64,
        /// The thread.
        thread: ThreadId,
    },
    /// `N`: no resumed thread is left.
    NoThreadsLeft,
}

/// What made a thread stop, from the named pairs of a `T` packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// Nothing named: the signal says it all.
    Signal,
    /// `swbreak`: a software breakpoint; the pc is already at its address.
    SwBreak,
    /// `hwbreak`: a hardware breakpoint.
    HwBreak,
    /// `watch`, `rwatch`, `awatch`.
    Watch {
        /// The data address.
        address: u64,
        /// Which of the three.
        kind: WatchKind,
    },
    /// `library`: the list of loaded libraries changed.
    Library,
    /// `fork`: the child.
    Fork(ThreadId),
    /// `vfork`: the child.
    VFork(ThreadId),
    /// `vforkdone`: the child of a vfork has called exec or exited.
    VForkDone,
    /// `exec`: path of the new program.
    Exec(String),
    /// `create`: the thread is new (with `QThreadEvents` on).
    ThreadCreated,
    /// `syscall_entry`: number of the system call.
    SyscallEntry(u64),
    /// `syscall_return`: number of the system call.
    SyscallReturn(u64),
    /// `replaylog`: the beginning or the end of an execution log.
    ReplayLog,
}

/// The kind of watchpoint that was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchKind {
    /// `watch`: written.
    Write,
    /// `rwatch`: read.
    Read,
    /// `awatch`: read or written.
    Access,
}
