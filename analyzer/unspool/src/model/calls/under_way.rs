//! The calls that one thread is in, and which of them an end is the end of.
//!
//! Calls are distinguished by the stack pointer with which they were entered. A call that was left
//! without its end being seen, as by `longjmp`, stays until its place on the stack is used again:
//! whether it is above or below the others proves nothing, for a thread may run on several stacks
//! (signal handlers, coroutines).

use super::{Call, FunctionId};

/// No thread is in more recorded calls; the outermost give way.
const DEEPEST: usize = 4096;
/// Above a frame on the same stack, as far as a thread of any kind goes in one recorded call.
const SAME_STACK: u64 = 256 << 10;

/// The events missing since a call began: only if both are, another's end may look like its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missed {
    /// Beginnings of calls that end at the same places.
    pub(super) begins: bool,
    /// Ends.
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
    /// The thread was seen above it on the stack, which may be another stack.
    passed: bool,
}

/// How a call stands when the recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// It goes on.
    No,
    /// Its end may be missing.
    Perhaps,
    /// Its place on the stack is no longer the thread's.
    Likely,
}

/// The calls one thread is in, outermost first.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    open: Vec<Open>,
}

impl UnderWay {
    /// A function is about to be entered with this stack pointer: takes out the calls that must
    /// have ended, for their place is used again. `jumped` tells whether a function may have jumped
    /// to this one instead of returning.
    pub(super) fn make_room(
        &mut self,
        frame: u64,
        jumped: &mut dyn FnMut(FunctionId) -> bool,
    ) -> Vec<Call> {
        self.passed(frame);
        let mut over = Vec::new();
        let mut at = 0;
        while at < self.open.len() {
            let open = &self.open[at];
            let goes_on = !open.passed && !open.missed.is_both();
            let jumped = goes_on && jumped(open.call.function);
            if open.frame == frame && !jumped {
                over.push(self.open.remove(at).call);
            } else {
                at += 1;
            }
        }
        over
    }

    /// A system call begins that has begun and not ended: the kernel makes it once more after an
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

    /// The call that a new one is made in.
    pub(super) fn innermost(&self) -> Option<u64> {
        let mut sure = self.open.iter().rev();
        sure.find(|open| !open.passed).map(|open| open.call.number)
    }

    /// A call begins, while such beginnings and ends are missing. One that gives way to it is
    /// returned.
    pub(super) fn enter(&mut self, frame: u64, call: Call, missed: Missed) -> Option<Call> {
        let full = self.open.len() >= DEEPEST;
        let lost = full.then(|| self.open.remove(0).call);
        self.open.push(Open {
            frame,
            call,
            missed,
            passed: false,
        });
        lost
    }

    /// Takes out the calls that end where calls of the functions `of` end, with this stack pointer;
    /// innermost first. `false`: it may have ended before, and another one begun in its place.
    pub(super) fn leave(&mut self, frame: u64, of: &[FunctionId]) -> Vec<(Call, bool)> {
        self.passed(frame);
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

    /// From here on, or here, hits are missing, which `of` says for each function.
    pub(super) fn miss(&mut self, of: &dyn Fn(FunctionId) -> Missed) {
        for open in &mut self.open {
            open.missed = open.missed.and(of(open.call.function));
            open.passed &= !open.missed.is_both();
        }
    }

    pub(super) fn into_calls(self) -> impl Iterator<Item = (Call, Left)> {
        self.open.into_iter().map(|open| {
            let left = match (open.passed, open.missed.ends) {
                (true, _) => Left::Likely,
                (false, true) => Left::Perhaps,
                (false, false) => Left::No,
            };
            (open.call, left)
        })
    }

    /// The thread is at `frame`: what is a little below it on the stack has been left.
    fn passed(&mut self, frame: u64) {
        for open in self.open.iter_mut().rev() {
            let above = frame.wrapping_sub(open.frame);
            if above == 0 || above > SAME_STACK {
                break;
            }
            open.passed |= !open.missed.is_both();
        }
    }
}
