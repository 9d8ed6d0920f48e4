//! Resumes a thread that is stopped at one of our breakpoints.
//!
//! Servers differ. `unspool-stub` steps over its own breakpoints when the client resumes a thread.
//! QEMU executes the instruction below an inserted breakpoint when the client steps a thread.
//! gdbserver does neither: the recorder must remove the breakpoint, step this thread alone, and
//! insert the breakpoint again. The first hit shows which method a server needs. It never changes
//! within a session.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use unspool_rsp::{Action, Breakpoint, StopReply, ThreadId};

use super::error::Error;
use super::session::{SIGTRAP, Session};

/// The method by which a server steps a thread past a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepMethod {
    /// Resuming the thread is enough.
    Continue,
    /// A step executes the original instruction; the breakpoint stays.
    StepInserted,
    /// The breakpoint must be removed during the step.
    StepRemoved,
}

/// Timeout of one instruction. A longer instruction is blocked in the kernel.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit on signals that the server reports before the step completes.
const SIGNALS_BEFORE_STEP: usize = 64;

/// Resumes threads past breakpoints.
#[derive(Debug)]
pub(super) struct Stepper {
    /// The server's method, once known.
    method: Option<StepMethod>,
    /// Threads whose step has not been reported.
    stepping: HashSet<u64>,
    /// Replies that arrived instead of the end of a step.
    replies: VecDeque<StopReply>,
}

impl Stepper {
    pub(super) fn new(session: &Session) -> Stepper {
        Stepper {
            method: session.steps_over().then_some(StepMethod::Continue),
            stepping: HashSet::new(),
            replies: VecDeque::new(),
        }
    }

    /// The next reply that arrived instead of the end of a step.
    pub(super) fn take_reply(&mut self) -> Option<StopReply> {
        self.replies.pop_front()
    }

    /// Forgets the step of a thread that has stopped or ended. True if a step was under way.
    pub(super) fn take_step(&mut self, tid: u64) -> bool {
        self.stepping.remove(&tid)
    }

    /// Resumes `thread`, which is stopped at `breakpoint`, and all other threads with it.
    pub(super) fn pass(
        &mut self,
        session: &mut Session,
        thread: ThreadId,
        breakpoint: Breakpoint,
    ) -> Result<(), Error> {
        match self.method {
            Some(StepMethod::Continue) => session.resume(),
            Some(StepMethod::StepInserted) => self.step_inserted(session, thread, breakpoint),
            Some(StepMethod::StepRemoved) => self.step_removed(session, thread, breakpoint),
            None => self.find_method(session, thread, breakpoint),
        }
    }

    fn find_method(
        &mut self,
        session: &mut Session,
        thread: ThreadId,
        breakpoint: Breakpoint,
    ) -> Result<(), Error> {
        session.client.resume(&[(Action::Step, Some(thread))])?;
        let Some(reply) = session.wait(STEP_TIMEOUT)? else {
            self.stepping.insert(thread.tid);
            return Ok(());
        };
        match stepped(session, thread, &reply)? {
            Some(pc) if pc == breakpoint.address => {
                self.method = Some(StepMethod::StepRemoved);
                self.step_removed(session, thread, breakpoint)
            }
            Some(_) => {
                self.method = Some(StepMethod::StepInserted);
                session.resume()
            }
            None => {
                self.stepping.insert(thread.tid);
                self.replies.push_back(reply);
                Ok(())
            }
        }
    }

    fn step_inserted(
        &mut self,
        session: &mut Session,
        thread: ThreadId,
        breakpoint: Breakpoint,
    ) -> Result<(), Error> {
        session.client.resume(&[(Action::Step, Some(thread))])?;
        match session.wait(STEP_TIMEOUT)? {
            Some(reply) => match stepped(session, thread, &reply)? {
                Some(pc) if pc != breakpoint.address => session.resume(),
                // A signal came first, or another thread stopped. The event loop handles both. A
                // thread that is still at the breakpoint will hit it again.
                _ => {
                    self.stepping.insert(thread.tid);
                    self.replies.push_back(reply);
                    Ok(())
                }
            },
            None => {
                self.stepping.insert(thread.tid);
                Ok(())
            }
        }
    }

    fn step_removed(
        &mut self,
        session: &mut Session,
        thread: ThreadId,
        breakpoint: Breakpoint,
    ) -> Result<(), Error> {
        session.client.remove_breakpoint(breakpoint)?;
        let mut signal = None;
        let mut outcome = None;
        for _ in 0..SIGNALS_BEFORE_STEP {
            session.client.resume(&[(Action::Step, Some(thread))])?;
            let Some(reply) = session.wait(STEP_TIMEOUT)? else {
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
                // Deliver the signal after the step, because its handler could run into this
                // breakpoint.
                signal = Some(*got);
            }
            if session.pc_of(thread, &reply)? != Some(breakpoint.address) {
                break;
            }
        }
        if !matches!(
            outcome,
            Some(StopReply::Exited { .. } | StopReply::Terminated { .. })
        ) {
            session.client.insert_breakpoint(breakpoint)?;
        }
        match outcome {
            Some(reply) => {
                self.replies.push_back(reply);
                Ok(())
            }
            None if session.client.is_running() => Ok(()),
            None => session.resume_with(thread, signal),
        }
    }
}

/// The program counter of `thread` if `reply` is the end of its step.
fn stepped(
    session: &mut Session,
    thread: ThreadId,
    reply: &StopReply,
) -> Result<Option<u64>, Error> {
    match reply {
        StopReply::Stopped {
            signal: SIGTRAP,
            thread: who,
            ..
        } if who.is_none_or(|who| who.tid == thread.tid) => session.pc_of(thread, reply),
        _ => Ok(None),
    }
}
