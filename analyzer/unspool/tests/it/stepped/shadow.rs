//! A shadow call stack: return addresses, pushed at calls and taken off at returns, by nothing but what
//! pc, sp and lr were before and after an instruction. Apart from the test so that it is plain that
//! no unwinder is asked.

use std::collections::HashSet;

/// What the shadow stack looks at.
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
    /// Without the Thumb bit.
    return_to: u64,
    /// The caller's stack pointer at the call; a return restores it (AAPCS, 6.1.1: r13 is preserved).
    sp: u64,
}

/// The calls that have not returned, outermost first.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    calls: Vec<Call>,
    /// Where calls returned to, and with which sp: where `longjmp` may lead, for `setjmp` has returned.
    returned: HashSet<(u64, u64)>,
    switched: bool,
}

impl Shadow {
    /// One instruction of `len` bytes was executed.
    pub(super) fn step(&mut self, before: Seen, len: u64, after: Seen) {
        // Above the caller's sp there is nothing of a callee's: `longjmp` has set sp to what it was at the call of
        // `setjmp`, and the frames in between are gone (AAPCS, 6.2.1.2: below sp nothing lasts).
        if self.calls.iter().any(|call| call.sp < after.sp) {
            self.calls.retain(|call| call.sp > after.sp);
            self.switched = true;
        }
        let next = before.pc + len;
        if after.pc == next {
            return;
        }
        // A call: control went elsewhere and lr is what follows. A branch whose lr is stale cannot look
        // so, for lr then follows another instruction. Tail calls change nothing.
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
            // longjmp, or a branch to where two paths meet behind a call. A function that calls has
            // saved its own return address below its caller's sp, so the branch takes nothing off.
            self.calls.retain(|call| call.sp > after.sp);
            self.switched = false;
        }
    }

    /// sp is already that of the frame `longjmp` is about to go to: the direct caller is where it will go, which only the
    /// jump will show; it is missing in [`Shadow::callers`].
    pub(super) fn is_switched(&self) -> bool {
        self.switched
    }

    /// The stack pointer that the innermost function was called with.
    pub(super) fn caller_sp(&self) -> Option<u64> {
        self.calls.last().map(|call| call.sp)
    }

    /// Return addresses, innermost first.
    pub(super) fn callers(&self) -> impl Iterator<Item = u64> + '_ {
        self.calls.iter().rev().map(|call| call.return_to)
    }
}
