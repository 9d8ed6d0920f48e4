//! The system call in which the kernel has put a thread to sleep.

use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use crate::arch::{self, Register, call};
use crate::sys::stat::Stat;
use crate::sys::syscall_file::SyscallFile;
use crate::sys::{Tid, memory};

/// A system call in which a thread sleeps. The thread's registers do not change meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockedCall(SyscallFile);

impl BlockedCall {
    /// The call of a thread that no signal and no tracer can stop now, e.g. because it waits for a
    /// child in vfork(2), or for a file server. `None` if the thread is not in such a wait.
    pub(crate) fn uninterruptible(process: Tid, tid: Tid) -> Option<BlockedCall> {
        let is_uninterruptible = || is_in(process, tid, b'D');
        if !is_uninterruptible() {
            return None;
        }
        BlockedCall::read(process, tid).filter(|_| is_uninterruptible())
    }

    /// The call of a thread that sleeps in one that a stop would end early or with an error, such
    /// as a write to a full pipe. `None` if the thread does something else.
    pub(crate) fn ended_by_stops(process: Tid, tid: Tid) -> Option<BlockedCall> {
        let call = BlockedCall::read(process, tid)?;
        let is_ended = call.is_ended_by_stop()
            || call.reads_socket(process, tid)
            || call.has_missed_a_change(process);
        if !is_ended {
            return None;
        }
        // In between, the thread may have left the call.
        let is_same = || is_in(process, tid, b'S') && BlockedCall::read(process, tid) == Some(call);
        is_same().then_some(call)
    }

    /// True if a stopped thread is in a system call, or at its end. On ARM also if it has ever been
    /// in one.
    pub(crate) fn is_in_call(process: Tid, tid: Tid) -> bool {
        let call = BlockedCall::read(process, tid);
        call.is_none_or(|call| call.0.number.is_none_or(|number| number >= 0))
    }

    /// True for a call that a stop would end early or with an error.
    fn is_ended_by_stop(&self) -> bool {
        let number = self.0.number();
        number.is_some_and(|number| call::ENDED_BY_STOPS.contains(&number))
    }

    /// True for a `read` from a socket. The socket may have a time limit (`SO_RCVTIMEO`).
    fn reads_socket(&self, process: Tid, tid: Tid) -> bool {
        let reads = |number| call::READS.contains(&number);
        let descriptor = format!(
            "/proc/{process}/task/{tid}/fd/{}",
            self.0.arguments[0] as i32
        );
        let is_socket = || {
            let file = std::fs::read_link(descriptor);
            file.is_ok_and(|file| file.as_os_str().as_bytes().starts_with(b"socket:"))
        };
        self.0.number().is_some_and(reads) && is_socket()
    }

    /// True if a thread waits at a futex whose word has changed since. A program that forgets to
    /// wake the thread hangs there, and a stop would end the hang.
    fn has_missed_a_change(&self, process: Tid) -> bool {
        let number = self.0.number();
        let is_wait = || {
            let operation = self.0.arguments[1] as i32 & libc::FUTEX_CMD_MASK;
            [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&operation)
        };
        number.is_some()
            && number == call::FUTEX_ENDED_BY_STOPS
            && is_wait()
            && memory::word(process, self.0.arguments[0])
                .is_some_and(|word| word != self.0.arguments[2] as u32)
    }

    /// True if the stub makes the kernel repeat the call after a stop.
    pub(crate) fn is_repeated(&self) -> bool {
        let number = self.0.number();
        number.is_some_and(|number| call::is_repeated(number, &self.0.arguments))
    }

    /// The thread's program counter and stack pointer, if the kernel shows the call.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        self.0.number.map(|_| (self.0.pc, self.0.sp))
    }

    /// The call of a thread, the default one if the kernel does not show it. `None` if the thread
    /// runs.
    fn read(process: Tid, tid: Tid) -> Option<BlockedCall> {
        SyscallFile::read(process, tid).map(BlockedCall)
    }

    /// Reads a register. Fails unless it is the stack pointer, the program counter, or holds the
    /// call's number or an argument.
    pub(crate) fn register(&self, register: &Register, value: &mut [u8]) -> Result<(), Errno> {
        let known = match register.number {
            _ if self.0.number.is_none() => return Err(Errno::ENODATA),
            arch::SP => self.0.sp,
            arch::PC => self.0.pc,
            _ if self.0.number < Some(0) || register.place.set != 0 => return Err(Errno::ENODATA),
            _ => {
                let index = register.place.offset / size_of::<arch::Word>();
                let argument = call::ARGUMENTS.iter().position(|other| *other == index);
                match argument {
                    Some(argument) => self.0.arguments[argument],
                    None if index == call::NUMBER => self.0.number.unwrap_or(-1).cast_unsigned(),
                    None => return Err(Errno::ENODATA),
                }
            }
        };
        value.copy_from_slice(&known.to_le_bytes()[..register.size]);
        Ok(())
    }

    /// True for the calls whose child may run in the caller's memory until it executes a file.
    pub(crate) fn may_lend_memory(&self) -> bool {
        let Some(number) = self.0.number else {
            return true;
        };
        #[allow(
            clippy::useless_conversion,
            reason = "the constants have 32 bits on ARM"
        )]
        let is = |call: libc::c_long| i64::from(call) == number;
        let has_flag = self.0.arguments[0] & libc::CLONE_VFORK as u64 != 0;
        // The flags of clone3(2) are in memory.
        call::VFORK == Some(number.cast_unsigned())
            || is(libc::SYS_clone3)
            || (is(libc::SYS_clone) && has_flag)
    }
}

/// True if the kernel gives this letter as the thread's state.
fn is_in(process: Tid, tid: Tid, state: u8) -> bool {
    Stat::of_thread(process, tid).is_some_and(|stat| stat.state() == Some(state))
}
