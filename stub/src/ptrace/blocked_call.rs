//! The system call in which the kernel has put a thread to sleep (`/proc/PID/task/TID/syscall`).

use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use crate::arch::{self, Register, call};
use crate::sys::stat::Stat;
use crate::sys::{Tid, memory, proc_file};

/// A system call in which a thread sleeps. The thread's registers do not change meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BlockedCall {
    /// -1 outside a call, e.g. in a page fault. `None` if the kernel does not show the call.
    number: Option<i64>,
    /// Zero outside a call.
    arguments: [u64; 6],
    sp: u64,
    pc: u64,
}

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
        call.is_none_or(|call| call.number.is_none_or(|number| number >= 0))
    }

    /// True for a call that a stop would end early or with an error.
    fn is_ended_by_stop(&self) -> bool {
        let number = self.number();
        number.is_some_and(|number| call::ENDED_BY_STOPS.contains(&number))
    }

    /// True for a `read` from a socket. The socket may have a time limit (`SO_RCVTIMEO`).
    fn reads_socket(&self, process: Tid, tid: Tid) -> bool {
        let reads = |number| call::READS.contains(&number);
        let descriptor = format!("/proc/{process}/task/{tid}/fd/{}", self.arguments[0] as i32);
        let is_socket = || {
            let file = std::fs::read_link(descriptor);
            file.is_ok_and(|file| file.as_os_str().as_bytes().starts_with(b"socket:"))
        };
        self.number().is_some_and(reads) && is_socket()
    }

    /// True if a thread waits at a futex whose word has changed since. A program that forgets to
    /// wake the thread hangs there, and a stop would end the hang.
    fn has_missed_a_change(&self, process: Tid) -> bool {
        let number = self.number();
        let is_wait = || {
            let operation = self.arguments[1] as i32 & libc::FUTEX_CMD_MASK;
            [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&operation)
        };
        number.is_some()
            && number == call::FUTEX_ENDED_BY_STOPS
            && is_wait()
            && memory::word(process, self.arguments[0])
                .is_some_and(|word| word != self.arguments[2] as u32)
    }

    /// The call's number, if the thread is in a call.
    fn number(&self) -> Option<u64> {
        self.number.and_then(|number| u64::try_from(number).ok())
    }

    /// True if the stub makes the kernel repeat the call after a stop.
    pub(crate) fn is_repeated(&self) -> bool {
        let number = self.number();
        number.is_some_and(|number| call::is_repeated(number, &self.arguments))
    }

    /// The thread's program counter and stack pointer, if the kernel shows the call.
    pub(crate) fn place(&self) -> Option<(u64, u64)> {
        self.number.map(|_| (self.pc, self.sp))
    }

    /// The call of a thread, the default one if the kernel does not show it. `None` if the thread
    /// runs.
    fn read(process: Tid, tid: Tid) -> Option<BlockedCall> {
        let call = proc_file::read(format!("/proc/{process}/task/{tid}/syscall"));
        match call.is_empty() {
            true => Some(BlockedCall::default()),
            false => BlockedCall::parse(&String::from_utf8_lossy(&call)),
        }
    }

    /// Parses the number, the arguments, the stack pointer and the program counter: `202 0x7f30 0x0
    /// 0x2 0x0 0x0 0x0 0x7ffd 0x7f31`. Outside a system call, e.g. in a page fault, the number is
    /// -1 and the arguments are missing.
    fn parse(text: &str) -> Option<BlockedCall> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [number, ref arguments @ .., sp, pc] = words[..] else {
            return None;
        };
        let hexadecimal = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let arguments: Option<Vec<u64>> = arguments.iter().map(|text| hexadecimal(text)).collect();
        Some(BlockedCall {
            number: Some(number.parse().ok()?),
            arguments: arguments?.try_into().unwrap_or_default(),
            sp: hexadecimal(sp)?,
            pc: hexadecimal(pc)?,
        })
    }

    /// Reads a register. Fails unless it is the stack pointer, the program counter, or holds the
    /// call's number or an argument.
    pub(crate) fn register(&self, register: &Register, value: &mut [u8]) -> Result<(), Errno> {
        let known = match register.number {
            _ if self.number.is_none() => return Err(Errno::ENODATA),
            arch::SP => self.sp,
            arch::PC => self.pc,
            _ if self.number < Some(0) || register.place.set != 0 => return Err(Errno::ENODATA),
            _ => {
                let index = register.place.offset / size_of::<arch::Word>();
                let argument = call::ARGUMENTS.iter().position(|other| *other == index);
                match argument {
                    Some(argument) => self.arguments[argument],
                    None if index == call::NUMBER => self.number.unwrap_or(-1).cast_unsigned(),
                    None => return Err(Errno::ENODATA),
                }
            }
        };
        value.copy_from_slice(&known.to_le_bytes()[..register.size]);
        Ok(())
    }

    /// True for the calls whose child may run in the caller's memory until it executes a file.
    pub(crate) fn may_lend_memory(&self) -> bool {
        let Some(number) = self.number else {
            return true;
        };
        #[allow(
            clippy::useless_conversion,
            reason = "the constants have 32 bits on ARM"
        )]
        let is = |call: libc::c_long| i64::from(call) == number;
        let has_flag = self.arguments[0] & libc::CLONE_VFORK as u64 != 0;
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

#[cfg(test)]
mod tests {
    use super::BlockedCall;

    #[test]
    fn a_call_and_a_page_fault() {
        let call = BlockedCall::parse("58 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffd10 0x7f31\n").unwrap();
        assert_eq!(
            (call.number, call.sp, call.pc),
            (Some(58), 0x7ffd10, 0x7f31)
        );
        assert_eq!(call.arguments, [1, 2, 3, 4, 5, 6]);
        let fault = BlockedCall::parse("-1 0x7ffd10 0x7f31\n").unwrap();
        assert_eq!((fault.number, fault.sp), (Some(-1), 0x7ffd10));
        assert_eq!(BlockedCall::parse("running\n"), None);
    }
}
