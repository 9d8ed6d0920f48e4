//! The traced program: its [`Process`], everything planted in its memory, and the requests of
//! clients.
//!
//! From outside it is in one of two states. *Halted*: every thread is stopped and can be inspected.
//! *Going*: threads do what the last [`resume`](Tracee::resume) requested, until
//! [`poll`](Tracee::poll) returns a [`Stop`](crate::ptrace::stop::Stop). Then it is halted again.
//!
//! Only here do `ptrace`, `breakpoint`, `tracepoint` and `subscription` meet. Each file below holds
//! one sequence that needs several of them. Nothing here knows of packets.

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
    /// The events that stop it for the client in control.
    pub(crate) stop_policy: StopPolicy,
    /// Traps in its text.
    breakpoints: Breakpoints,
    /// Copies of the instructions under traps.
    displaced: DisplacedInstructions,
    /// Planted tracepoints, and their budget.
    pub(crate) tracepoints: Tracepoints,
    /// The requests of each client other than stops.
    pub(crate) subscriptions: Subscriptions,
    /// Threads that wait until every thread is stopped.
    step_queue: StepQueue,
    /// Work that forks have left to do.
    forks: Forks,
    /// The client has interrupted it, and the stub has not reported an interrupted thread yet.
    pub(crate) interrupt_due: bool,
}

impl Tracee {
    /// A process with nothing planted.
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
