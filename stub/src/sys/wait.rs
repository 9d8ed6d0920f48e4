//! waitpid(2) on traced threads, decoded.
//!
//! nix's decoder fails on stops by real-time signals when the kernel has already forgotten the
//! stop, so this module decodes them itself.

use nix::errno::Errno;

use super::Tid;

/// The event that a traced thread reports. Signals have the kernel's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// The thread has ended. If it was the last one, this is the process's exit code.
    Exited(i32),
    /// The thread has ended because this signal killed the process.
    Killed(i32),
    /// The thread has ended because another one ended the process with this exit code, or executed
    /// another program.
    KilledByExit(i32),
    /// The kernel is about to deliver a signal.
    Signal(i32),
    /// The thread enters or leaves a system call.
    Syscall,
    /// The thread is in a group-stop by this signal, or stopped at our request (`SIGTRAP`).
    Held(i32),
    /// The thread has created a thread or a process.
    Clone,
    /// The thread has created a child with a copy of its memory.
    Fork,
    /// The thread has created a child that shares its memory.
    VFork,
    /// The child that shared the thread's memory has stopped using it.
    VForkDone,
    /// The thread executes another program, and is the only thread of the process.
    Exec,
    /// The thread is about to exit.
    Exiting,
    /// An event that the stub does not request.
    Other,
}

impl Status {
    /// True if the thread has ended.
    pub(crate) fn is_end(self) -> bool {
        matches!(
            self,
            Status::Exited(_) | Status::Killed(_) | Status::KilledByExit(_)
        )
    }
}

/// Reaps one report: of this thread if `only` is given, otherwise of any. `None` if there is none.
///
/// # Errors
/// `ECHILD` when no traced thread is left.
pub(crate) fn wait(only: Option<Tid>, block: bool) -> Result<Option<(Tid, Status)>, Errno> {
    // Only the thread that traces another one may take its reports.
    let flags = libc::__WALL | libc::__WNOTHREAD | if block { 0 } else { libc::WNOHANG };
    let mut word = 0;
    loop {
        // SAFETY: the kernel writes one int.
        let answer = unsafe { libc::waitpid(only.map_or(-1, |tid| tid.0), &raw mut word, flags) };
        return match Errno::result(answer) {
            Err(Errno::EINTR) => continue,
            Err(errno) => Err(errno),
            Ok(0) => Ok(None),
            Ok(tid) => Ok(Some((Tid(tid), decode(word)))),
        };
    }
}

/// The next thread with a report, and its signal if it has stopped for one. Does not reap the
/// report.
///
/// # Errors
/// `ECHILD` when no traced thread is left.
pub(crate) fn peek(only: Option<Tid>, block: bool) -> Result<Option<(Tid, Option<i32>)>, Errno> {
    let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    let flags = flags | if block { 0 } else { libc::WNOHANG };
    let (kind, id) = match only {
        Some(tid) => (libc::P_PID, tid.0 as libc::id_t),
        None => (libc::P_ALL, 0),
    };
    loop {
        // SAFETY: siginfo_t is plain data: all zeroes is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one siginfo_t.
        let answer = unsafe { libc::waitid(kind, id, &raw mut info, flags) };
        match Errno::result(answer) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => {
                // SAFETY: waitid(2) fills these in, or leaves zeroes if there is nothing.
                let (tid, status) = unsafe { (info.si_pid(), info.si_status()) };
                let stopped = matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED);
                return Ok((tid != 0).then_some((Tid(tid), stopped.then_some(status))));
            }
        }
    }
}

fn decode(word: i32) -> Status {
    if libc::WIFEXITED(word) {
        return Status::Exited(libc::WEXITSTATUS(word));
    }
    if libc::WIFSIGNALED(word) {
        return Status::Killed(libc::WTERMSIG(word));
    }
    let signal = libc::WSTOPSIG(word);
    match word >> 16 {
        0 if signal == libc::SIGTRAP | 0x80 => Status::Syscall,
        0 => Status::Signal(signal),
        libc::PTRACE_EVENT_STOP => Status::Held(signal),
        libc::PTRACE_EVENT_CLONE => Status::Clone,
        libc::PTRACE_EVENT_FORK => Status::Fork,
        libc::PTRACE_EVENT_VFORK => Status::VFork,
        libc::PTRACE_EVENT_VFORK_DONE => Status::VForkDone,
        libc::PTRACE_EVENT_EXEC => Status::Exec,
        libc::PTRACE_EVENT_EXIT => Status::Exiting,
        _ => Status::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_signals_survive() {
        assert_eq!(decode(0x7f | 40 << 8), Status::Signal(40));
    }

    #[test]
    fn group_stop_and_interrupt_are_distinct() {
        let stop = |signal: i32| 0x7f | signal << 8 | libc::PTRACE_EVENT_STOP << 16;
        assert_eq!(decode(stop(libc::SIGSTOP)), Status::Held(libc::SIGSTOP));
        assert_eq!(decode(stop(libc::SIGTRAP)), Status::Held(libc::SIGTRAP));
    }

    #[test]
    fn ends() {
        assert_eq!(decode(3 << 8), Status::Exited(3));
        assert_eq!(decode(libc::SIGKILL), Status::Killed(libc::SIGKILL));
    }
}
