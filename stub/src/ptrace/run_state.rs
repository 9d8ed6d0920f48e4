//! Whether the threads of a process run, and what ends that.

/// What the threads of a process do as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunState {
    /// All threads are stopped, and the client may look at them.
    Halted,
    /// All-stop mode: threads run until one of them has something to report.
    AllStop,
    /// Non-stop mode: each thread runs until it has something to report itself.
    NonStop,
}

/// The run state, and the two facts that are independent of it.
#[derive(Debug)]
pub(crate) struct RunControl {
    state: RunState,
    /// A stop waits to be reported.
    has_event: bool,
    /// Threads that stop are not started again, because all are being stopped.
    starts_blocked: bool,
}

impl RunControl {
    /// All threads are stopped, and nothing waits to be reported.
    pub(super) fn halted() -> RunControl {
        RunControl {
            state: RunState::Halted,
            has_event: false,
            starts_blocked: false,
        }
    }

    /// Changes the state. A stop that waits to be reported stays.
    pub(crate) fn set(&mut self, state: RunState) {
        self.state = state;
    }

    /// Whether threads run, in either mode.
    pub(crate) fn is_going(&self) -> bool {
        self.state != RunState::Halted
    }

    /// Whether threads are stopped and resumed one by one.
    pub(crate) fn is_non_stop(&self) -> bool {
        self.state == RunState::NonStop
    }

    /// A stop waits to be reported.
    pub(crate) fn set_event(&mut self) {
        self.has_event = true;
    }

    /// No stop waits to be reported any more.
    pub(crate) fn clear_event(&mut self) {
        self.has_event = false;
    }

    /// Whether a stop waits to be reported.
    pub(crate) fn has_event(&self) -> bool {
        self.has_event
    }

    /// Whether threads run, and a stop that waits to be reported halts them all.
    pub(crate) fn is_about_to_halt(&self) -> bool {
        self.state == RunState::AllStop && self.has_event
    }

    /// Whether threads are to run on after a moment in which all were stopped.
    pub(crate) fn goes_on(&self) -> bool {
        match self.state {
            RunState::Halted => false,
            RunState::AllStop => !self.has_event,
            RunState::NonStop => true,
        }
    }

    /// Whether a thread that has nothing to report may be started at once.
    pub(crate) fn may_start(&self) -> bool {
        self.is_going() && !self.starts_blocked
    }

    /// Blocks starts; the former value is for [`unblock_starts`](Self::unblock_starts).
    pub(crate) fn block_starts(&mut self) -> bool {
        std::mem::replace(&mut self.starts_blocked, true)
    }

    /// Ends what [`block_starts`](Self::block_starts) began.
    pub(crate) fn unblock_starts(&mut self, former: bool) {
        self.starts_blocked = former;
    }

    /// Whether starts are blocked.
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
