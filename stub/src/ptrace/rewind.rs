//! Reports of trap instructions, read so that the stub's death is harmless.
//!
//! Where a trap instruction leaves the program counter after itself, a thread that reports one is
//! put back first. Until a report is reaped the kernel keeps its signal, and delivers it if the
//! tracer dies. After that the thread goes on where it stands, and that must not be inside an
//! instruction.

use nix::errno::Errno;

use crate::arch;
use crate::sys::wait::{Status, peek, wait};
use crate::sys::{Tid, ptrace};

/// Reaps one report as [`wait`] does, after [`rewind`] where it is needed; [`is_rewound`] tells so
/// later.
pub(super) fn wait_rewinding(
    only: Option<Tid>,
    block: bool,
) -> Result<Option<(Tid, Status)>, Errno> {
    if arch::TRAP_ADVANCE == 0 {
        return wait(only, block);
    }
    loop {
        let Some((tid, signal)) = peek(only, block)? else {
            return Ok(None);
        };
        if signal == Some(libc::SIGTRAP) && is_rewound(tid) {
            // If that fails the thread is being killed.
            let _ = rewind(tid);
        }
        if let Some(report) = wait(Some(tid), false)? {
            return Ok(Some(report));
        }
        // It was killed, and there is another report now.
    }
}

/// Whether a stopped thread has executed a trap instruction that advances the program counter.
pub(super) fn is_rewound(tid: Tid) -> bool {
    arch::TRAP_ADVANCE != 0
        && ptrace::signal_info(tid)
            .is_ok_and(|info| info.signal() == libc::SIGTRAP && arch::is_trap_report(info.code()))
}

/// Puts the program counter of such a thread back to the trap instruction.
fn rewind(tid: Tid) -> Result<(), Errno> {
    let set = &arch::SETS[0];
    let mut general = ptrace::register_set(tid, set.note, set.capacity)?;
    arch::move_pc(&mut general, arch::TRAP_ADVANCE.wrapping_neg());
    ptrace::set_register_set(tid, set.note, &general)
}
