//! Debug registers by `PTRACE_GETHBPREGS` and `PTRACE_SETHBPREGS`. Word 0 has the numbers of
//! breakpoints and watchpoints. Breakpoint n has its address in word 2n+1 and its control in 2n+2,
//! watchpoint n in -(2n+1) and -(2n+2) (ARM DDI 0406C, C11.11.2 and C11.11.44; Linux
//! `arch/arm/kernel/ptrace.c`).

use nix::errno::Errno;

use crate::arch::watch::{Access, Watch};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};

/// Control bits: user mode, and enabled.
const USER: u32 = 0b10 << 1;
const ENABLED: u32 = 1;

/// Address and control of each register. The control has a bit for each byte; load (01) and store
/// (10); user mode; enabled. The kernel accepts 1, 2 or 4 bytes at an address that is a multiple of
/// the length, and shifts the byte bits within the word itself.
fn encode(watches: &[Watch], breaks: bool) -> Vec<(u32, u32)> {
    let control = |length: u64, kind: u32| ((1 << length) - 1) << 5 | kind << 3 | USER | ENABLED;
    let mut entries = Vec::new();
    for watch in watches {
        let kind = match watch.access {
            Access::Execute => {
                if breaks {
                    // The breakpoint kind is the instruction's length; 2 and 3 are Thumb.
                    let length = if watch.length == 4 { 4 } else { 2 };
                    entries.push((watch.at as u32 & !1, control(length, 0)));
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
        for (at, length) in watch.pieces() {
            let halves = if length == 8 { &[0, 4][..] } else { &[0] };
            let pieces = halves.iter().map(|half| at + half);
            entries.extend(pieces.map(|at| (at as u32, control(length.min(4), kind))));
        }
    }
    entries
}

/// The numbers of breakpoints and watchpoints of the processor.
fn available(tid: Tid) -> (usize, usize) {
    // One byte each: architecture, maximum watchpoint length, watchpoints, breakpoints.
    let [breaks, watches, _, _] = ptrace::debug_word(tid, 0).unwrap_or(0).to_le_bytes();
    (breaks.into(), watches.into())
}

/// Whether the debug registers can hold all of these watchpoints.
pub(crate) fn can_watch(tid: Tid, watches: &[Watch]) -> bool {
    let (breakpoints, watchpoints) = available(tid);
    encode(watches, true).len() <= breakpoints && encode(watches, false).len() <= watchpoints
}

/// Replaces a stopped thread's watchpoints with these.
pub(crate) fn watch(tid: Tid, watches: &[Watch]) -> Result<(), Errno> {
    if !can_watch(tid, watches) {
        return Err(Errno::ENOSPC);
    }
    let (breakpoints, watchpoints) = available(tid);
    for (breaks, count, sign) in [(true, breakpoints, 1), (false, watchpoints, -1)] {
        let entries = encode(watches, breaks);
        for index in 0..count {
            let address_word = sign * (2 * index as isize + 1);
            let control_word = address_word + sign;
            match entries.get(index) {
                Some((address, control)) => {
                    // The kernel checks address and control together at each write. At the start of
                    // a word, every length is valid.
                    ptrace::set_debug_word(tid, address_word, address & !3)?;
                    ptrace::set_debug_word(tid, control_word, *control)?;
                    ptrace::set_debug_word(tid, address_word, *address)?;
                }
                None => {
                    // The kernel refuses an invalid control word even if it is disabled. A register
                    // that was never used has 0 there, which is invalid.
                    let control = ptrace::debug_word(tid, control_word)?;
                    if control & ENABLED != 0 {
                        ptrace::set_debug_word(tid, control_word, control & !ENABLED)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// The watchpoint of `watches` that caused a thread's `SIGTRAP`. It triggers before the access.
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
    fn control_has_a_bit_for_each_byte() {
        let watch = |access, at, length| Watch { access, at, length };
        assert_eq!(
            encode(
                &[
                    watch(Access::Execute, 0x1002, 2),
                    watch(Access::Execute, 0x1004, 4)
                ],
                true
            ),
            [(0x1002, 0b11 << 5 | 0b101), (0x1004, 0b1111 << 5 | 0b101)]
        );
        assert_eq!(
            encode(&[watch(Access::Write, 0x1003, 11)], false),
            [
                (0x1003, 0b1 << 5 | 0b10 << 3 | 0b101),
                (0x1004, 0b1111 << 5 | 0b10 << 3 | 0b101),
                (0x1008, 0b1111 << 5 | 0b10 << 3 | 0b101),
                (0x100c, 0b11 << 5 | 0b10 << 3 | 0b101)
            ]
        );
    }
}
