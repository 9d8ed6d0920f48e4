//! The debug registers: DR0 to DR3 hold addresses, DR7 the type of each watchpoint, DR6 a bit for
//! each watchpoint that triggered (Intel SDM vol. 3, 18.2).

use nix::errno::Errno;

use crate::arch::watch::{Access, Watch};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};

/// Offset of DR0 in `struct user`, in bytes.
const DR0: usize = 848;
const DR6: usize = DR0 + 6 * 8;
const DR7: usize = DR0 + 7 * 8;
const REGISTERS: usize = 4;

/// Encodes watchpoints. In DR7 each register has an enable bit and four bits of type and length.
///
/// ```text
/// 63..........32 31.30 29.28 ... 19.18 17.16 .... 6 4 2 0
///                LEN3  R/W3      LEN0  R/W0      L3L2L1L0
/// ```
fn encode(watches: &[Watch]) -> Option<(Vec<u64>, u64)> {
    let mut addresses = Vec::new();
    let mut control = 0;
    for watch in watches {
        let kind = match watch.access {
            Access::Execute => 0b00,
            Access::Write => 0b01,
            // The processor has no watchpoints for reads alone.
            Access::Read => return None,
            Access::Any => 0b11,
        };
        let mut add = |at, length| {
            let length = match length {
                1 => 0b00,
                2 => 0b01,
                4 => 0b11,
                _ => 0b10,
            };
            let index = addresses.len();
            if index == REGISTERS {
                return None;
            }
            addresses.push(at);
            control |= 1 << (2 * index) | (kind | length << 2) << (16 + 4 * index);
            Some(())
        };
        match watch.access {
            Access::Execute => add(watch.at, 1)?,
            _ => watch
                .pieces()
                .try_for_each(|(at, length)| add(at, length))?,
        }
    }
    Some((addresses, control))
}

/// Whether the debug registers can hold all of these watchpoints.
pub(crate) fn can_watch(_tid: Tid, watches: &[Watch]) -> bool {
    encode(watches).is_some()
}

/// Replaces a stopped thread's watchpoints with these.
pub(crate) fn watch(tid: Tid, watches: &[Watch]) -> Result<(), Errno> {
    let (addresses, control) = encode(watches).ok_or(Errno::ENOSPC)?;
    ptrace::poke_user(tid, DR7, 0)?;
    for (index, address) in addresses.into_iter().enumerate() {
        ptrace::poke_user(tid, DR0 + 8 * index, address as usize)?;
    }
    ptrace::poke_user(tid, DR7, control as usize)
}

/// The watchpoint of `watches` that caused a thread's `SIGTRAP`.
pub(crate) fn triggered(tid: Tid, _info: &SignalInfo, watches: &[Watch]) -> Option<Watch> {
    let status = ptrace::peek_user(tid, DR6).ok()?;
    if status & 0xf == 0 {
        return None;
    }
    // The processor never clears DR6.
    let _ = ptrace::poke_user(tid, DR6, 0);
    let mut first = 0;
    watches
        .iter()
        .find(|watch| {
            let count = match watch.access {
                Access::Execute => 1,
                _ => watch.pieces().count(),
            };
            let mine = ((1 << count) - 1) << first;
            first += count;
            status & mine != 0
        })
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_of_watchpoints() {
        let watch = |access, at, length| Watch { access, at, length };
        let two = [
            watch(Access::Execute, 0x401000, 1),
            watch(Access::Write, 0x5004, 8),
        ];
        // SDM: LEN 11 is four bytes; the second watch is unaligned and takes two registers.
        let control = 0b10101 | 0b1101 << 20 | 0b1101 << 24;
        assert_eq!(
            encode(&two),
            Some((vec![0x401000, 0x5004, 0x5008], control))
        );
        assert_eq!(encode(&[watch(Access::Write, 0x5000, 40)]), None);
        assert_eq!(encode(&[watch(Access::Read, 0x5000, 8)]), None);
    }
}
