//! Tracks the pending calls of one thread, and matches ends with them.
//!
//! Calls are distinguished by the stack pointer at their entry. A call that was left unseen, as by
//! `longjmp`, stays until its place on the stack is reused. Being above or below the others proves
//! nothing, because a thread may run on several stacks (signal handlers, coroutines).

use super::{Call, FunctionId};

/// Maximum number of pending calls per thread; the outermost are dropped first.
const DEEPEST: usize = 4096;
/// Upper bound of the stack that a thread uses above a frame during one recorded call.
const SAME_STACK: u64 = 256 << 10;

/// The events missing since a call began: only if both are, another's end may look like its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    /// Beginnings of calls that end at the same places are missing.
    pub(super) begins: bool,
    /// Ends are missing.
    pub(super) ends: bool,
}

impl Missed {
    pub(super) const BOTH: Missed = Missed {
        begins: true,
        ends: true,
    };

    fn is_both(self) -> bool {
        self == Missed::BOTH
    }

    fn and(self, other: Missed) -> Missed {
        Missed {
            begins: self.begins || other.begins,
            ends: self.ends || other.ends,
        }
    }
}

#[derive(Debug)]
struct Open {
    frame: u64,
    call: Call,
    missed: Missed,
    /// When the thread was first seen above the call's frame, perhaps on another stack.
    passed: Option<u64>,
}

/// The state of a call at the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// The call has not ended.
    No,
    /// Its end may be missing.
    Perhaps,
    /// Its place on the stack is no longer the thread's. The time is that of the event which shows
    /// it, if no event of the call is missing.
    Likely(Option<u64>),
}

/// The calls one thread is in, outermost first.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    open: Vec<Open>,
}

impl UnderWay {
    /// Removes the calls that must have ended before a function is entered with this stack pointer,
    /// because their place is reused, and returns each with its gaps. `jumped` says whether a
    /// function may have jumped to this one instead of returning.
    pub(super) fn make_room(
        &mut self,
        (frame, now): (u64, u64),
        jumped: &mut dyn FnMut(FunctionId) -> bool,
    ) -> Vec<(Call, Missed)> {
        self.passed(frame, now);
        let mut over = Vec::new();
        let mut at = 0;
        while at < self.open.len() {
            let open = &self.open[at];
            let goes_on = open.passed.is_none() && !open.missed.is_both();
            let jumped = goes_on && jumped(open.call.function);
            if open.frame == frame && !jumped {
                let open = self.open.remove(at);
                over.push((open.call, open.missed));
            } else {
                at += 1;
            }
        }
        over
    }

    /// True if a system call is pending and begins again, as the kernel repeats it after an
    /// interruption.
    pub(super) fn goes_on(&self, frame: u64, function: FunctionId, args: &[u64]) -> bool {
        let mut open = self.open.iter();
        open.any(|open| {
            let call = &open.call;
            (open.frame, call.function) == (frame, function)
                && call.args == args
                && !open.missed.ends
        })
    }

    /// The innermost pending call. A call that begins now is inside it.
    pub(super) fn innermost(&self) -> Option<u64> {
        let mut sure = self.open.iter().rev();
        sure.find(|open| open.passed.is_none())
            .map(|open| open.call.number)
    }

    /// Adds a call with the gaps at its beginning. Returns the call that it displaces.
    pub(super) fn enter(&mut self, frame: u64, call: Call, missed: Missed) -> Option<Call> {
        let full = self.open.len() >= DEEPEST;
        let lost = full.then(|| self.open.remove(0).call);
        self.open.push(Open {
            frame,
            call,
            missed,
            passed: None,
        });
        lost
    }

    /// A function among `of` returns at this stack pointer: removes the calls that end there,
    /// innermost first. The flag is false if the call may have ended before and another one begun.
    pub(super) fn leave(
        &mut self,
        (frame, now): (u64, u64),
        of: &[FunctionId],
    ) -> Vec<(Call, bool)> {
        self.passed(frame, now);
        let mut ended = Vec::new();
        let mut at = self.open.len();
        while at > 0 {
            at -= 1;
            let open = &self.open[at];
            if open.frame == frame && of.contains(&open.call.function) {
                let open = self.open.remove(at);
                ended.push((open.call, !open.missed.is_both()));
            }
        }
        ended
    }

    /// Notes that hits are missing here or from here on; `of` gives the gaps of each function.
    pub(super) fn miss(&mut self, of: &dyn Fn(FunctionId) -> Missed) {
        for open in &mut self.open {
            open.missed = open.missed.and(of(open.call.function));
            open.passed.take_if(|_| open.missed.is_both());
        }
    }

    pub(super) fn into_calls(self) -> impl Iterator<Item = (Call, Left)> {
        self.open.into_iter().map(|open| {
            let left = match (open.passed, open.missed.ends) {
                (Some(at), _) => Left::Likely((open.missed == Missed::default()).then_some(at)),
                (None, true) => Left::Perhaps,
                (None, false) => Left::No,
            };
            (open.call, left)
        })
    }

    /// The thread is at `frame`: marks the calls a little below it on the stack as passed.
    fn passed(&mut self, frame: u64, now: u64) {
        for open in self.open.iter_mut().rev() {
            let above = frame.wrapping_sub(open.frame);
            if above == 0 || above > SAME_STACK {
                break;
            }
            if !open.missed.is_both() {
                open.passed.get_or_insert(now);
            }
        }
    }
}
