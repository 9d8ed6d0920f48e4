//! A shadow call stack. It pushes return addresses at calls and removes them at returns, and uses
//! only the values of pc, sp and lr before and after an instruction. A module of its own makes
//! plain that it uses no unwinder.

use std::collections::HashSet;

/// The registers that the shadow stack reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) pc: u64,
    pub(super) sp: u64,
    pub(super) lr: u64,
    pub(super) thumb: bool,
}

/// One call that has not returned.
#[derive(Clone, Copy, Debug)]
struct Call {
    /// Return address without the Thumb bit.
    return_to: u64,
    /// The caller's stack pointer at the call. A return restores it (AAPCS, 6.1.1: r13 is
    /// preserved).
    sp: u64,
}

/// The calls that have not returned, outermost first.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    calls: Vec<Call>,
    /// Return addresses and sp of calls that have returned. `longjmp` may lead there, because
    /// `setjmp` has returned.
    returned: HashSet<(u64, u64)>,
    switched: bool,
}

impl Shadow {
    /// Follows the execution of one instruction of `len` bytes.
    pub(super) fn step(&mut self, before: Seen, len: u64, after: Seen) {
        // A callee keeps nothing above its caller's sp. So `longjmp` has set sp to its value at the
        // call of `setjmp`, and the frames in between are gone (AAPCS, 6.2.1.2: nothing below sp is
        // preserved).
        if self.calls.iter().any(|call| call.sp < after.sp) {
            self.calls.retain(|call| call.sp > after.sp);
            self.switched = true;
        }
        let next = before.pc + len;
        if after.pc == next {
            return;
        }
        // A call: the next instruction is elsewhere, and lr holds the address after this one. A
        // branch with a stale lr is different, because that lr follows another instruction. Tail
        // calls change nothing.
        if after.lr == next | u64::from(before.thumb) {
            self.calls.push(Call {
                return_to: next,
                sp: before.sp,
            });
            return;
        }
        let back = |call: &Call| call.return_to == after.pc && call.sp == after.sp;
        if let Some(index) = self.calls.iter().rposition(back) {
            self.returned.insert((after.pc, after.sp));
            self.calls.truncate(index);
        } else if self.returned.contains(&(after.pc, after.sp)) {
            // Either `longjmp`, or a branch to where two paths meet after a call. A function that
            // calls has saved its return address below its caller's sp, so the branch removes no
            // call.
            self.calls.retain(|call| call.sp > after.sp);
            self.switched = false;
        }
    }

    /// True if sp is already that of the frame that `longjmp` is about to reach. Only the jump will
    /// show the direct caller. Until then it is missing in [`Shadow::callers`].
    pub(super) fn is_switched(&self) -> bool {
        self.switched
    }

    /// The stack pointer with which the innermost function was called.
    pub(super) fn caller_sp(&self) -> Option<u64> {
        self.calls.last().map(|call| call.sp)
    }

    /// Return addresses, innermost first.
    pub(super) fn callers(&self) -> impl Iterator<Item = u64> + '_ {
        self.calls.iter().rev().map(|call| call.return_to)
    }
}
