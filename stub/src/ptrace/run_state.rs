//! Run control of a process: whether its threads run, and what stops them.

/// The state of all threads of a process together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunState {
    /// All threads are stopped, and the client may inspect them.
    Halted,
    /// All-stop mode: threads run until one of them has something to report.
    AllStop,
    /// Non-stop mode: each thread runs until it has something to report itself.
    NonStop,
}

/// The run state, and two flags that are independent of it.
#[derive(Debug)]
pub(crate) struct RunControl {
    state: RunState,
    /// A stop waits to be reported.
    has_event: bool,
    /// Threads that stop do not start again, because the stub is stopping all of them.
    starts_blocked: bool,
}

impl RunControl {
    /// The state with all threads stopped and nothing to report.
    pub(super) fn halted() -> RunControl {
        RunControl {
            state: RunState::Halted,
            has_event: false,
            starts_blocked: false,
        }
    }

    /// Changes the state. Keeps a stop that waits to be reported.
    pub(crate) fn set(&mut self, state: RunState) {
        self.state = state;
    }

    /// True if threads run, in either mode.
    pub(crate) fn is_going(&self) -> bool {
        self.state != RunState::Halted
    }

    /// True if threads are stopped and resumed one by one.
    pub(crate) fn is_non_stop(&self) -> bool {
        self.state == RunState::NonStop
    }

    /// Records that a stop waits to be reported.
    pub(crate) fn set_event(&mut self) {
        self.has_event = true;
    }

    /// Records that no stop waits to be reported any more.
    pub(crate) fn clear_event(&mut self) {
        self.has_event = false;
    }

    /// True if a stop waits to be reported.
    pub(crate) fn has_event(&self) -> bool {
        self.has_event
    }

    /// True if threads run, and a stop that waits to be reported will halt them all.
    pub(crate) fn is_about_to_halt(&self) -> bool {
        self.state == RunState::AllStop && self.has_event
    }

    /// True if threads continue after a moment in which all were stopped.
    pub(crate) fn goes_on(&self) -> bool {
        match self.state {
            RunState::Halted => false,
            RunState::AllStop => !self.has_event,
            RunState::NonStop => true,
        }
    }

    /// True if a thread that has nothing to report may start immediately.
    pub(crate) fn may_start(&self) -> bool {
        self.is_going() && !self.starts_blocked
    }

    /// Blocks starts. Returns the former value, for [`unblock_starts`](Self::unblock_starts).
    pub(crate) fn block_starts(&mut self) -> bool {
        std::mem::replace(&mut self.starts_blocked, true)
    }

    /// Restores the value that [`block_starts`](Self::block_starts) returned.
    pub(crate) fn unblock_starts(&mut self, former: bool) {
        self.starts_blocked = former;
    }

    /// True if starts are blocked.
    pub(crate) fn blocks_starts(&self) -> bool {
        self.starts_blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_halts_all_threads_in_all_stop_mode_only() {
        let mut run = RunControl::halted();
        run.set_event();
        assert!(!run.is_about_to_halt() && !run.goes_on() && !run.may_start());
        run.set(RunState::AllStop);
        assert!(run.is_about_to_halt() && !run.goes_on() && run.may_start());
        run.set(RunState::NonStop);
        assert!(!run.is_about_to_halt() && run.goes_on());
        let former = run.block_starts();
        assert!(!run.may_start() && run.goes_on());
        run.unblock_starts(former);
        assert!(run.may_start());
    }
}
