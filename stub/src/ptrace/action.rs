//! The action that a resume gives each thread.

/// The action of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Stay stopped.
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

    /// This action without its signal, for use after the signal has been delivered.
    pub(crate) fn without_signal(self) -> Action {
        match self {
            Action::Continue(_) => Action::Continue(0),
            Action::Step(_) => Action::Step(0),
            other => other,
        }
    }

    /// True if the action ends by itself, with another stop.
    pub(crate) fn is_step(self) -> bool {
        matches!(self, Action::Step(_) | Action::StepWhileIn(..))
    }
}
