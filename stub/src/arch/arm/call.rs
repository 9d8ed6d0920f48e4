//! System calls that a thread of the program makes for the stub (Linux EABI: `svc #0`, the number
//! in r7, arguments in r0 to r5).

use super::user_regs::{COUNT, ORIG_R0, PC, STATE, set_word, word};

/// The system call instruction, and a trap after it, because this kernel cannot single-step. Both
/// are A32.
pub(crate) const INSTRUCTION: &[u8] = &[0x00, 0x00, 0x00, 0xef, 0xf0, 0x01, 0xf0, 0xe7];
/// Length of the system call instruction, in bytes.
pub(crate) const LENGTH: u64 = 4;
/// The number of vfork(2), if it is a system call of its own.
pub(crate) const VFORK: Option<u64> = Some(190);
/// Calls in which threads can be left asleep. None, because the kernel does not show the link
/// register, which unwinding needs.
pub(crate) const ENDED_BY_STOPS: &[u64] = &[];
pub(crate) const READS: &[u64] = &[];
pub(crate) const FUTEX_ENDED_BY_STOPS: Option<u64> = None;
/// `mmap2`, whose offset is in pages.
pub(crate) const MMAP: u64 = 192;
/// The unit of its offset, in bytes.
pub(crate) const MMAP_UNIT: u64 = 4096;
pub(crate) const MUNMAP: u64 = 91;
pub(crate) const MADVISE: u64 = 220;
pub(crate) const MEMFD_CREATE: u64 = 385;
pub(crate) const CLOSE: u64 = 6;

pub(crate) const NUMBER: usize = 7;
/// Indices of the registers that hold the arguments of a call.
pub(crate) const ARGUMENTS: [usize; 6] = [0, 1, 2, 3, 4, 5];
/// IT state, T32: bits 26 and 25, 15 to 10, 5 (B1.3.3).
const NOT_A32: u32 = 0x0600_fc20;

const NANOSLEEP: u32 = 162;
const FUTEX: [u32; 2] = [240, 422];
const CLOCK_NANOSLEEP: [u32; 2] = [265, 407];

/// The instructions to execute.
pub(crate) fn code(_before: &[u8]) -> Vec<u8> {
    INSTRUCTION.to_vec()
}

/// Always `None`: an ARM kernel selects `restart_syscall` before a tracer sees the thread, so the
/// tracer cannot select the original call.
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
    let number = argument(NUMBER);
    !super::is_system_call(code, general)
        || !(number == NANOSLEEP
            // TIMER_ABSTIME
            || CLOCK_NANOSLEEP.contains(&number) && argument(1) & 1 == 0
            // FUTEX_WAIT with a time limit
            || FUTEX.contains(&number) && argument(1) & 0x7f == 0 && argument(3) != 0)
}

/// The registers with which a thread makes the call; the instruction is at `at`.
pub(crate) fn prepare(
    general: &[u8],
    at: u64,
    number: u64,
    arguments: [u64; 6],
) -> Option<Vec<u8>> {
    if general.len() < 4 * COUNT {
        return None;
    }
    let mut general = general.to_vec();
    set_word(&mut general, PC, at as u32);
    set_word(&mut general, NUMBER, number as u32);
    let state = word(&general, STATE) & !NOT_A32;
    set_word(&mut general, STATE, state);
    // Prevents the kernel from repeating an interrupted call.
    set_word(&mut general, ORIG_R0, u32::MAX);
    for (index, value) in arguments.into_iter().enumerate() {
        set_word(&mut general, index, value as u32);
    }
    Some(general)
}

/// The result of the call, after the thread has executed it. `None` if the call failed: an error
/// is a small negative number.
pub(crate) fn result(general: &[u8]) -> Option<u64> {
    let value = word(general, 0);
    (general.len() >= 4 * COUNT && value < u32::MAX - 4095).then_some(value.into())
}
