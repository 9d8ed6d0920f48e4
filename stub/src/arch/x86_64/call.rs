//! System calls that a thread of the program makes for the stub (System V ABI for AMD64, A.2.1).

use super::goes_back;
use super::user_regs::{COUNT, CS, ORIG_RAX, RAX, RIP, USER_CS, set_word, word};

/// The system call instruction.
pub(crate) const INSTRUCTION: &[u8] = &[0x0f, 0x05];
/// Its length, in bytes.
pub(crate) const LENGTH: u64 = INSTRUCTION.len() as u64;
/// The number of vfork(2), if it is a system call of its own.
pub(crate) const VFORK: Option<u64> = Some(58);
/// Calls that a stop ends early or with an error, if the thread sleeps in them (signal(7)).
pub(crate) const ENDED_BY_STOPS: &[u64] = &[
    1,   // write
    20,  // writev
    40,  // sendfile
    42,  // connect
    43,  // accept
    44,  // sendto
    45,  // recvfrom
    46,  // sendmsg
    47,  // recvmsg
    65,  // semop
    69,  // msgsnd
    70,  // msgrcv
    128, // rt_sigtimedwait
    208, // io_getevents
    220, // semtimedop
    232, // epoll_wait
    242, // mq_timedsend
    243, // mq_timedreceive
    275, // splice
    276, // tee
    278, // vmsplice
    281, // epoll_pwait
    288, // accept4
    299, // recvmmsg
    307, // sendmmsg
    333, // io_pgetevents
    426, // io_uring_enter
    441, // epoll_pwait2
];
/// Calls that a stop ends with an error if they wait at a socket that has a time limit.
pub(crate) const READS: &[u64] = &[
    0,  // read
    19, // readv
];
/// futex(2). The kernel repeats a wait after a stop, which ends the wait if the word has changed.
pub(crate) const FUTEX_ENDED_BY_STOPS: Option<u64> = Some(202);
pub(crate) const MMAP: u64 = 9;
/// The unit of its offset, in bytes.
pub(crate) const MMAP_UNIT: u64 = 1;
pub(crate) const MUNMAP: u64 = 11;
pub(crate) const MADVISE: u64 = 28;
pub(crate) const MEMFD_CREATE: u64 = 319;
pub(crate) const CLOSE: u64 = 3;

/// rdi, rsi, rdx, r10, r8, r9
pub(crate) const ARGUMENTS: [usize; 6] = [14, 13, 12, 7, 9, 8];
/// Index of the register that holds the number of a call that has begun.
pub(crate) const NUMBER: usize = ORIG_RAX;

/// Indices of the registers that the call changes, and the instructions that load them: rax, rcx,
/// rdx, rsi, rdi, r8 to r11.
const CHANGED: [(usize, [u8; 2]); 9] = [
    (RAX, [0x48, 0xb8]),
    (11, [0x48, 0xb9]),
    (12, [0x48, 0xba]),
    (13, [0x48, 0xbe]),
    (14, [0x48, 0xbf]),
    (9, [0x49, 0xb8]),
    (8, [0x49, 0xb9]),
    (7, [0x49, 0xba]),
    (6, [0x49, 0xbb]),
];
const RESTART_SYSCALL: u64 = 219;
/// The result of an interrupted call that the kernel continues with `restart_syscall`.
const ERESTART_RESTARTBLOCK: u64 = 516;
/// The result of an interrupted call that the kernel repeats unless a handler runs.
const ERESTARTNOHAND: u64 = 514;
const EINTR: u64 = 4;

/// Calls that do not restart by themselves.
const SEMOP: u64 = 65;
const RT_SIGTIMEDWAIT: u64 = 128;
const SEMTIMEDOP: u64 = 220;
const EPOLL_WAIT: u64 = 232;
const EPOLL_PWAIT: u64 = 281;
const EPOLL_PWAIT2: u64 = 441;

/// The instruction, followed by code that restores the thread's registers if the stub dies.
pub(crate) fn code(before: &[u8]) -> Vec<u8> {
    let mut code = INSTRUCTION.to_vec();
    let again = goes_back(before);
    for (index, load) in CHANGED {
        let value = match index {
            RAX if again && word(before, RAX) == ERESTART_RESTARTBLOCK.wrapping_neg() => {
                RESTART_SYSCALL
            }
            RAX if again => word(before, ORIG_RAX),
            index => word(before, index),
        };
        code.extend(load);
        code.extend(value.to_le_bytes());
    }
    // jmp [rip + 0]
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    let pc = word(before, RIP);
    let pc = if again { pc.wrapping_sub(LENGTH) } else { pc };
    code.extend(pc.to_le_bytes());
    code
}

/// For a thread whose interrupted call the kernel would continue with `restart_syscall`: its
/// registers, changed so that the kernel repeats the call itself (`ERESTARTNOHAND`). A time limit
/// then starts again. In both cases, a signal with a handler ends the call (Linux,
/// arch/x86/kernel/signal.c).
pub(crate) fn restarted_as_itself(general: &[u8]) -> Option<Vec<u8>> {
    if !goes_back(general) || word(general, RAX) != ERESTART_RESTARTBLOCK.wrapping_neg() {
        return None;
    }
    let mut general = general.to_vec();
    set_word(&mut general, RAX, ERESTARTNOHAND.wrapping_neg());
    Some(general)
}

/// True for a call that waits without a time limit, and that the kernel ends with `EINTR` when the
/// thread is stopped although no signal arrives (signal(7)).
pub(crate) fn is_repeated(number: u64, arguments: &[u64; 6]) -> bool {
    match number {
        SEMOP => true,
        EPOLL_WAIT | EPOLL_PWAIT => (arguments[3] as i32) < 0,
        SEMTIMEDOP | EPOLL_PWAIT2 => arguments[3] == 0,
        RT_SIGTIMEDWAIT => arguments[2] == 0,
        _ => false,
    }
}

/// For a thread in such a call that the kernel has ended with `EINTR`: its registers, changed so
/// that the kernel repeats the call unless a handler runs.
pub(crate) fn repeated_after_stop(general: &[u8]) -> Option<Vec<u8>> {
    let arguments = ARGUMENTS.map(|index| word(general, index));
    let is_ended = word(general, RAX) == EINTR.wrapping_neg();
    if !is_ended || !is_repeated(word(general, ORIG_RAX), &arguments) {
        return None;
    }
    let mut general = general.to_vec();
    set_word(&mut general, RAX, ERESTARTNOHAND.wrapping_neg());
    Some(general)
}

/// Whether a thread that is about to execute `code` may make another call first. Here it always
/// may, because its registers tell how an interrupted call continues.
pub(crate) fn may_precede(_code: &[u8], _general: &[u8]) -> bool {
    true
}

/// The registers with which a thread makes the call; the instruction is at `at`. `None` if the
/// thread does not execute 64-bit code.
pub(crate) fn prepare(
    general: &[u8],
    at: u64,
    number: u64,
    arguments: [u64; 6],
) -> Option<Vec<u8>> {
    if word(general, CS) != USER_CS {
        return None;
    }
    let mut general = general.to_vec();
    set_word(&mut general, RIP, at);
    set_word(&mut general, RAX, number);
    // Prevents the kernel from repeating an interrupted call.
    set_word(&mut general, ORIG_RAX, u64::MAX);
    for (index, value) in ARGUMENTS.into_iter().zip(arguments) {
        set_word(&mut general, index, value);
    }
    Some(general)
}

/// The result of the call, after the thread has executed it. `None` if the call failed: an error
/// is a small negative number.
pub(crate) fn result(general: &[u8]) -> Option<u64> {
    let value = word(general, RAX);
    (general.len() >= 8 * COUNT && value < u64::MAX - 4095).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The registers in a call whose arguments are all the same.
    fn in_call(number: u64, argument: u64, result: u64) -> Vec<u8> {
        let mut general = vec![0; 8 * COUNT];
        for index in ARGUMENTS {
            set_word(&mut general, index, argument);
        }
        set_word(&mut general, ORIG_RAX, number);
        set_word(&mut general, RAX, result);
        general
    }

    #[test]
    fn only_calls_without_a_time_limit_are_repeated() {
        let result = |number, argument, result| {
            let changed = repeated_after_stop(&in_call(number, argument, result))?;
            Some(word(&changed, RAX))
        };
        let (interrupted, again) = (EINTR.wrapping_neg(), Some(ERESTARTNOHAND.wrapping_neg()));
        let forever = u64::from(u32::MAX);
        assert_eq!(result(EPOLL_WAIT, forever, interrupted), again);
        assert_eq!(result(EPOLL_WAIT, 1000, interrupted), None);
        assert_eq!(result(EPOLL_WAIT, forever, 1), None);
        assert_eq!(result(SEMOP, 7, interrupted), again);
        assert_eq!(result(RT_SIGTIMEDWAIT, 0, interrupted), again);
        assert_eq!(result(RT_SIGTIMEDWAIT, 0x7fff_0000, interrupted), None);
        // The thread is not in a call.
        assert_eq!(result(u64::MAX, 0, interrupted), None);
    }
}
