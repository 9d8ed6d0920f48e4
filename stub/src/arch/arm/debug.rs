//! Debug registers by `PTRACE_GETHBPREGS` and `PTRACE_SETHBPREGS`: word 0 says how many there are; breakpoint n
//! has its address in word 2n+1 and its control in 2n+2, watchpoint n in -(2n+1) and -(2n+2) (ARM DDI
//! 0406C, C11.11.2 and C11.11.44; Linux `arch/arm/kernel/ptrace.c`).

use nix::errno::Errno;

use crate::arch::watch::{Access, Watch};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};

/// Control, as AArch64's: bytes of the word, load (01) and store (10), user mode, enabled.
fn encode(watches: &[Watch], breaks: bool) -> Vec<(u32, u32)> {
    const USER_ENABLED: u32 = 0b10 << 1 | 1;
    let mut entries = Vec::new();
    for watch in watches {
        let kind = match watch.access {
            Access::Execute => {
                if breaks {
                    let at = watch.at as u32;
                    // The kind of breakpoint is the instruction's length: 2 and 3 are Thumb's.
                    let bytes = if watch.length == 4 {
                        0xf
                    } else {
                        0x3 << (at & 2)
                    };
                    entries.push((at & !3, bytes << 5 | USER_ENABLED));
                }
                continue;
            }
            Access::Read => 0b01,
            Access::Write => 0b10,
            Access::Any => 0b11,
        };
        if breaks {
            continue;
        }
        let end = watch.at.saturating_add(watch.length);
        let mut at = watch.at;
        while at < end {
            let base = at & !3;
            let upto = end.min(base + 4);
            let bytes = ((1u32 << (upto - at)) - 1) << (at - base);
            entries.push((base as u32, bytes << 5 | kind << 3 | USER_ENABLED));
            at = upto;
        }
    }
    entries
}

/// How many breakpoints and watchpoints there are.
fn available(tid: Tid) -> (usize, usize) {
    // Architecture, length of a watchpoint, watchpoints, breakpoints: a byte each.
    let [breaks, watches, _, _] = ptrace::debug_word(tid, 0).unwrap_or(0).to_le_bytes();
    (breaks.into(), watches.into())
}

/// Whether the machine can watch all of these at once.
pub(crate) fn can_watch(tid: Tid, watches: &[Watch]) -> bool {
    let (breakpoints, watchpoints) = available(tid);
    encode(watches, true).len() <= breakpoints && encode(watches, false).len() <= watchpoints
}

/// Makes a stopped thread watch these, and nothing else.
pub(crate) fn watch(tid: Tid, watches: &[Watch]) -> Result<(), Errno> {
    if !can_watch(tid, watches) {
        return Err(Errno::ENOSPC);
    }
    let (breakpoints, watchpoints) = available(tid);
    for (breaks, count, sign) in [(true, breakpoints, 1), (false, watchpoints, -1)] {
        let entries = encode(watches, breaks);
        for index in 0..count {
            let word = sign * (2 * index as isize + 1);
            match entries.get(index) {
                Some((address, control)) => {
                    ptrace::set_debug_word(tid, word, *address)?;
                    ptrace::set_debug_word(tid, word + sign, *control)?;
                }
                None => ptrace::set_debug_word(tid, word + sign, 0)?,
            }
        }
    }
    Ok(())
}

/// Which of `watches` a thread's `SIGTRAP` is about. It triggers before the access.
pub(crate) fn triggered(_tid: Tid, info: &SignalInfo, watches: &[Watch]) -> Option<Watch> {
    if info.code() != libc::TRAP_HWBKPT {
        return None;
    }
    let address = info.address();
    watches
        .iter()
        .min_by_key(|watch| watch.distance(address))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumb_instructions_are_half_words() {
        let at = |at, length| Watch {
            access: Access::Execute,
            at,
            length,
        };
        assert_eq!(
            encode(&[at(0x1002, 2), at(0x1004, 4)], true),
            [(0x1000, 0b1100 << 5 | 0b101), (0x1004, 0b1111 << 5 | 0b101)]
        );
    }
}
