//! The action that a resume gives each thread.

/// What a thread is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Stay where it is.
    Hold,
    /// Run; deliver this signal (the kernel's number) unless zero.
    Continue(i32),
    /// Execute one instruction; deliver this signal unless zero.
    Step(i32),
    /// Execute instructions until the program counter leaves this range.
    StepWhileIn(u64, u64),
}

impl Action {
    pub(crate) fn signal(self) -> i32 {
        match self {
            Action::Continue(signal) | Action::Step(signal) => signal,
            _ => 0,
        }
    }

    /// The same, with the signal taken out: what remains after it has been delivered.
    pub(crate) fn without_signal(self) -> Action {
        match self {
            Action::Continue(_) => Action::Continue(0),
            Action::Step(_) => Action::Step(0),
            other => other,
        }
    }

    /// Whether the thread is to stop again by itself.
    pub(crate) fn is_step(self) -> bool {
        matches!(self, Action::Step(_) | Action::StepWhileIn(..))
    }
}
