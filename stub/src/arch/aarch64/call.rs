//! System calls that a thread of the program makes for the stub (Linux: `svc #0`, the number in x8,
//! arguments in x0 to x5).

use super::user_regs::{COUNT, PC, set_word, word};

/// The system call instruction.
pub(crate) const INSTRUCTION: &[u8] = &[0x01, 0x00, 0x00, 0xd4];
/// Its length, in bytes.
pub(crate) const LENGTH: u64 = INSTRUCTION.len() as u64;
/// The number of vfork(2), if it is a system call of its own.
pub(crate) const VFORK: Option<u64> = None;
/// Calls in which threads can be left asleep. None, because the kernel does not show the link
/// register, which unwinding needs.
pub(crate) const ENDED_BY_STOPS: &[u64] = &[];
pub(crate) const READS: &[u64] = &[];
pub(crate) const FUTEX_ENDED_BY_STOPS: Option<u64> = None;
pub(crate) const MMAP: u64 = 222;
/// The unit of its offset, in bytes.
pub(crate) const MMAP_UNIT: u64 = 1;
pub(crate) const MUNMAP: u64 = 215;
pub(crate) const MADVISE: u64 = 233;
pub(crate) const MEMFD_CREATE: u64 = 279;
pub(crate) const CLOSE: u64 = 57;

/// Index of the register with the system call's number.
pub(crate) const NUMBER: usize = 8;
/// Indices of the registers that hold the arguments of a call.
pub(crate) const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
/// Bit of the processor's state that means 32-bit code.
const NARROW: u64 = 1 << 4;

const FUTEX: u64 = 98;
const NANOSLEEP: u64 = 101;
const CLOCK_NANOSLEEP: u64 = 115;

/// The instruction to execute.
pub(crate) fn code(_before: &[u8]) -> Vec<u8> {
    INSTRUCTION.to_vec()
}

/// Always `None`: an AArch64 kernel selects `restart_syscall` before a tracer sees the thread, so
/// the tracer cannot select the original call.
pub(crate) fn restarted_as_itself(_general: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Always false, see below.
pub(crate) fn is_repeated(_number: u64, _arguments: &[u64; 6]) -> bool {
    false
}

/// Always `None`: the kernel shows a tracer the result in place of the first argument.
pub(crate) fn repeated_after_stop(_general: &[u8]) -> Option<Vec<u8>> {
    None
}

/// Whether a thread that is about to execute `code` may make another call first. The kernel keeps
/// the remaining time of an interrupted sleep only until the thread makes another call.
pub(crate) fn may_precede(code: &[u8], general: &[u8]) -> bool {
    let argument = |index| word(general, index);
    !code.starts_with(INSTRUCTION)
        || match argument(NUMBER) {
            NANOSLEEP => false,
            // TIMER_ABSTIME
            CLOCK_NANOSLEEP => argument(1) & 1 == 1,
            // FUTEX_WAIT with a time limit
            FUTEX => argument(1) & 0x7f != 0 || argument(3) == 0,
            _ => true,
        }
}

/// The registers with which a thread makes the call; the instruction is at `at`. `None` if the
/// thread does not execute 64-bit code.
pub(crate) fn prepare(
    general: &[u8],
    at: u64,
    number: u64,
    arguments: [u64; 6],
) -> Option<Vec<u8>> {
    if general.len() < 8 * COUNT || word(general, super::user_regs::STATE) & NARROW != 0 {
        return None;
    }
    let mut general = general.to_vec();
    set_word(&mut general, PC, at);
    set_word(&mut general, NUMBER, number);
    for (index, value) in arguments.into_iter().enumerate() {
        set_word(&mut general, index, value);
    }
    Some(general)
}

/// The result of the call, after the thread has executed it. `None` if the call failed: an error
/// is a small negative number.
pub(crate) fn result(general: &[u8]) -> Option<u64> {
    let value = word(general, 0);
    (general.len() >= 8 * COUNT && value < u64::MAX - 4095).then_some(value)
}
