//! Debug registers in the register sets `NT_ARM_HW_BREAK` and `NT_ARM_HW_WATCH`: a word with their
//! number, then address and control of each (Arm ARM, D2.9 and D2.10; Linux
//! `struct user_hwdebug_state`).

use nix::errno::Errno;

use crate::arch::watch::{Access, Watch};
use crate::sys::Tid;
use crate::sys::ptrace::{self, SignalInfo};

const BREAK: u32 = 0x402;
const WATCH: u32 = 0x403;
const HEADER: usize = 8;
const ENTRY: usize = 16;
const MAX_REGISTERS: usize = 16;

/// Address and control of each register. Control is `...LLLLLLLL bbpp e`: a bit for each byte of
/// the doubleword, load (01) and store (10), user mode, enabled.
fn encode(watches: &[Watch], breaks: bool) -> Vec<(u64, u32)> {
    const USER_ENABLED: u32 = 0b10 << 1 | 1;
    let mut entries = Vec::new();
    for watch in watches {
        let kind = match watch.access {
            Access::Execute => {
                if breaks {
                    entries.push((watch.at & !3, 0xf << 5 | USER_ENABLED));
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
        // A register can watch any consecutive bytes in one doubleword.
        let end = watch.at.saturating_add(watch.length);
        let mut at = watch.at;
        while at < end {
            let base = at & !7;
            let upto = end.min(base + 8);
            let bytes = ((1u32 << (upto - at)) - 1) << (at - base);
            entries.push((base, bytes << 5 | kind << 3 | USER_ENABLED));
            at = upto;
        }
    }
    entries
}

fn available(tid: Tid, set: u32) -> usize {
    let bytes = ptrace::register_set(tid, set, HEADER + MAX_REGISTERS * ENTRY).unwrap_or_default();
    bytes
        .first()
        .map_or(0, |count| usize::from(*count).min(MAX_REGISTERS))
}

/// Whether the debug registers can hold all of these watchpoints.
pub(crate) fn can_watch(tid: Tid, watches: &[Watch]) -> bool {
    [(BREAK, true), (WATCH, false)]
        .into_iter()
        .all(|(set, breaks)| {
            let wanted = encode(watches, breaks).len();
            wanted == 0 || wanted <= available(tid, set)
        })
}

/// Replaces a stopped thread's watchpoints with these.
pub(crate) fn watch(tid: Tid, watches: &[Watch]) -> Result<(), Errno> {
    for (set, breaks) in [(BREAK, true), (WATCH, false)] {
        let entries = encode(watches, breaks);
        let available = available(tid, set);
        if entries.len() > available {
            return Err(Errno::ENOSPC);
        }
        if available == 0 {
            continue;
        }
        let mut bytes = vec![0; HEADER + available * ENTRY];
        for (entry, (address, control)) in bytes[HEADER..].chunks_exact_mut(ENTRY).zip(entries) {
            entry[..8].copy_from_slice(&address.to_le_bytes());
            entry[8..12].copy_from_slice(&control.to_le_bytes());
        }
        ptrace::set_register_set(tid, set, &bytes)?;
    }
    Ok(())
}

/// The watchpoint of `watches` that caused a thread's `SIGTRAP`. The reported address may be below
/// the watched bytes if the access is wider.
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
        let watches = [
            Watch {
                access: Access::Write,
                at: 0x1006,
                length: 4,
            },
            Watch {
                access: Access::Execute,
                at: 0x4000,
                length: 4,
            },
        ];
        let words = [
            (0x1000, 0b1100_0000 << 5 | 0b10 << 3 | 0b101),
            (0x1008, 0b0000_0011 << 5 | 0b10 << 3 | 0b101),
        ];
        assert_eq!(encode(&watches, false), words);
        assert_eq!(encode(&watches, true), [(0x4000, 0xf << 5 | 0b101)]);
    }
}
