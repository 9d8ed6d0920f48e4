//! The traced program: a [`Process`], what is planted in its memory, and what clients have asked
//! for.
//!
//! From outside it is in one of two states. *Halted*: every thread is stopped and can be looked at.
//! *Going*: threads do what the last [`resume`](Tracee::resume) asked, until [`poll`](Tracee::poll)
//! has a [`Stop`](crate::ptrace::stop::Stop) to report, and then it is halted again.
//!
//! This is the only place where `ptrace`, `breakpoint`, `tracepoint` and `subscription` meet. Each
//! of the files below it holds one sequence that needs several of them. Nothing here knows of
//! packets.

mod attach;
mod budget;
mod children;
mod collectors;
mod conditions;
mod detach;
mod drain;
mod events;
pub(crate) mod family;
mod fast_tracepoints;
mod fatal_signals;
mod fork;
mod halt;
mod hold;
mod live_hit;
mod memory;
mod non_stop;
mod pause;
mod remote_syscall;
mod resume;
mod single_step;
mod started_programs;
mod step_in_place;
mod step_over;
mod subscriptions;
mod thread_exit;
mod tracepoints;
mod trap_handler;
mod watchpoints;
mod while_stepping;

use crate::breakpoint::displaced::DisplacedInstructions;
use crate::breakpoint::table::Breakpoints;
use crate::ptrace::process::Process;
use crate::subscription::Subscriptions;
use crate::subscription::stop_policy::StopPolicy;
use crate::tracepoint::Tracepoints;

use fork::Forks;
use single_step::StepQueue;

/// A traced program.
pub(crate) struct Tracee {
    pub(crate) process: Process,
    /// Which events stop it for the client in control.
    pub(crate) stop_policy: StopPolicy,
    /// Traps in its text.
    breakpoints: Breakpoints,
    /// Where instructions under traps are executed.
    displaced: DisplacedInstructions,
    /// What tracepoints have planted, and what they cost.
    pub(crate) tracepoints: Tracepoints,
    /// What each client has asked for beside stops.
    pub(crate) subscriptions: Subscriptions,
    /// Threads that wait until every thread is stopped.
    step_queue: StepQueue,
    /// What forks have left to be done.
    forks: Forks,
    /// The client has interrupted it, and no interrupted thread has been reported yet.
    pub(crate) interrupt_due: bool,
}

impl Tracee {
    /// A process in which nothing is planted.
    fn new(process: Process) -> Tracee {
        Tracee {
            process,
            stop_policy: StopPolicy::default(),
            breakpoints: Breakpoints::default(),
            displaced: DisplacedInstructions::default(),
            tracepoints: Tracepoints::default(),
            subscriptions: Subscriptions::default(),
            step_queue: StepQueue::default(),
            forks: Forks::default(),
            interrupt_due: false,
        }
    }
}
