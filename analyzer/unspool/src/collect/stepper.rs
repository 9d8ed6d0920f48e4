//! Resuming a thread that stands at one of our breakpoints.
//!
//! Servers differ. Ours steps over its own breakpoints when told to continue. QEMU's executes
//! what is below an inserted breakpoint when told to step. gdbserver does neither: there the
//! breakpoint is taken out, the one thread stepped while the others stand, and put back. Which it
//! is shows at the first hit, and never changes within a session.

use std::time::Duration;

use unspool_rsp::{Action, Breakpoint, StopReply, ThreadId};

use super::Error;
use super::recorder::{Recorder, SIGTRAP};

/// How this server gets a thread past a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepMethod {
    /// `continue` is enough.
    Continue,
    /// A step executes the original instruction; the breakpoint stays.
    StepInserted,
    /// The breakpoint must be out during the step.
    StepRemoved,
}

/// One instruction takes no longer, unless its thread is waited for by nobody.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Signals that may come before the instruction gets its turn.
const SIGNALS_BEFORE_STEP: usize = 64;

impl Recorder {
    /// Lets `thread` go on from `breakpoint`, where it stands, and all others with it.
    pub(super) fn pass(&mut self, thread: ThreadId, breakpoint: Breakpoint) -> Result<(), Error> {
        match self.step_method {
            Some(StepMethod::Continue) => self.resume(),
            Some(StepMethod::StepInserted) => self.step_inserted(thread, breakpoint),
            Some(StepMethod::StepRemoved) => self.step_removed(thread, breakpoint),
            None => self.find_step_method(thread, breakpoint),
        }
    }

    fn find_step_method(&mut self, thread: ThreadId, breakpoint: Breakpoint) -> Result<(), Error> {
        self.session
            .client
            .resume(&[(Action::Step, Some(thread))])?;
        let Some(reply) = self.session.wait(STEP_TIMEOUT)? else {
            self.stepping.insert(thread.tid);
            return Ok(());
        };
        match self.stepped(thread, &reply)? {
            Some(pc) if pc == breakpoint.address => {
                self.step_method = Some(StepMethod::StepRemoved);
                self.step_removed(thread, breakpoint)
            }
            Some(_) => {
                self.step_method = Some(StepMethod::StepInserted);
                self.resume()
            }
            None => {
                self.stepping.insert(thread.tid);
                self.queue.push_back(reply);
                Ok(())
            }
        }
    }

    fn step_inserted(&mut self, thread: ThreadId, breakpoint: Breakpoint) -> Result<(), Error> {
        self.session
            .client
            .resume(&[(Action::Step, Some(thread))])?;
        match self.session.wait(STEP_TIMEOUT)? {
            Some(reply) => match self.stepped(thread, &reply)? {
                Some(pc) if pc != breakpoint.address => self.resume(),
                // A signal came first, or another thread stopped: both are handled as ever. A
                // thread that still stands here will be found here again.
                _ => {
                    self.stepping.insert(thread.tid);
                    self.queue.push_back(reply);
                    Ok(())
                }
            },
            None => {
                self.stepping.insert(thread.tid);
                Ok(())
            }
        }
    }

    fn step_removed(&mut self, thread: ThreadId, breakpoint: Breakpoint) -> Result<(), Error> {
        self.session.client.remove_breakpoint(breakpoint)?;
        let mut signal = None;
        let mut outcome = None;
        for _ in 0..SIGNALS_BEFORE_STEP {
            self.session
                .client
                .resume(&[(Action::Step, Some(thread))])?;
            let Some(reply) = self.session.wait(STEP_TIMEOUT)? else {
                break;
            };
            let StopReply::Stopped {
                signal: got,
                thread: who,
                ..
            } = &reply
            else {
                outcome = Some(reply);
                break;
            };
            if who.is_some_and(|who| who.tid != thread.tid) {
                outcome = Some(reply);
                break;
            }
            if *got != SIGTRAP && *got != 0 {
                // Delivered when the thread is past the breakpoint; a handler could come by here.
                signal = Some(*got);
            }
            if self.pc_of(thread, &reply)? != Some(breakpoint.address) {
                break;
            }
        }
        if !matches!(
            outcome,
            Some(StopReply::Exited { .. } | StopReply::Terminated { .. })
        ) {
            self.session.client.insert_breakpoint(breakpoint)?;
        }
        match outcome {
            Some(reply) => {
                self.queue.push_back(reply);
                Ok(())
            }
            None if self.session.client.is_running() => Ok(()),
            None => self.resume_with(thread, signal),
        }
    }

    /// Where `thread` stands, if `reply` is the end of its step.
    fn stepped(&mut self, thread: ThreadId, reply: &StopReply) -> Result<Option<u64>, Error> {
        match reply {
            StopReply::Stopped {
                signal: SIGTRAP,
                thread: who,
                ..
            } if who.is_none_or(|who| who.tid == thread.tid) => self.pc_of(thread, reply),
            _ => Ok(None),
        }
    }
}
