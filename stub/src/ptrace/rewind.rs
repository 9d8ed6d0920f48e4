//! Reaps reports, after a look at what only exists before.
//!
//! The kernel's facts about an ended thread go with its report. And reports of trap instructions
//! must be reaped in a way that keeps the stub's death harmless:
//! On some machines a trap instruction leaves the program counter after itself. There the stub
//! moves the program counter back before it reaps the report. Until then the kernel keeps the
//! signal, and delivers it if the tracer dies. After that, a thread whose tracer dies continues at
//! its program counter, which must not be inside an instruction.

use nix::errno::Errno;

use crate::arch;
use crate::sys::stat::Stat;
use crate::sys::wait::{Status, peek, wait};
use crate::sys::{Tid, ptrace};

/// Reaps one report as [`wait`] does, and says whether another thread's exit ended this one. Moves
/// the program counter back if necessary. Afterwards, [`is_rewound`] tells whether it did.
pub(super) fn wait_rewinding(
    only: Option<Tid>,
    block: bool,
) -> Result<Option<(Tid, Status)>, Errno> {
    loop {
        let Some((tid, signal)) = peek(only, block)? else {
            return Ok(None);
        };
        if signal == Some(libc::SIGTRAP) && is_rewound(tid) {
            // On failure the thread is being killed.
            let _ = rewind(tid);
        }
        let was_killed =
            signal.is_none() && Stat::of_thread(tid, tid).is_some_and(|stat| stat.was_killed());
        match wait(Some(tid), false)? {
            Some((tid, Status::Exited(code))) if was_killed => {
                return Ok(Some((tid, Status::KilledByExit(code))));
            }
            Some(report) => return Ok(Some(report)),
            None => {}
        }
        // The thread was killed, so there is another report now.
    }
}

/// True if a stopped thread has executed a trap instruction that advances the program counter.
pub(super) fn is_rewound(tid: Tid) -> bool {
    arch::TRAP_ADVANCE != 0
        && ptrace::signal_info(tid)
            .is_ok_and(|info| info.signal() == libc::SIGTRAP && arch::is_trap_report(info.code()))
}

/// Moves the program counter back to the trap instruction.
fn rewind(tid: Tid) -> Result<(), Errno> {
    let set = &arch::SETS[0];
    let mut general = ptrace::register_set(tid, set.note, set.capacity)?;
    arch::move_pc(&mut general, arch::TRAP_ADVANCE.wrapping_neg());
    ptrace::set_register_set(tid, set.note, &general)
}
