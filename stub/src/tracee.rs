//! The traced program: a process, its threads, what is planted in its memory.
//!
//! From outside it is in one of two states. *Halted*: every thread is stopped and can be looked at.
//! *Going*: threads do what the last [`resume`](Tracee::resume) asked, until [`poll`](Tracee::poll)
//! has a [`Stop`] to report, and then it is halted again. Nothing here knows of packets.

mod attach;
mod budget;
mod children;
mod conditions;
mod detach;
mod drain;
mod events;
pub(crate) mod family;
mod fast_tracepoints;
mod fatal_signals;
mod hold;
mod jump_placement;
mod memory;
mod non_stop;
mod pause;
mod remote_syscall;
mod reports;
mod resume;
mod single_step;
mod stalls;
mod started_programs;
mod step_over;
mod step_reset;
mod subscriptions;
mod thread_exit;
mod tracepoints;
mod trap_handler;
mod watchpoints;
mod while_stepping;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;
use std::time::Instant;

use nix::errno::Errno;

use crate::arch::watch::Watch;
use crate::breakpoint::displaced::DisplacedInstructions;
use crate::sys::memory::Memory;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::{Tid, monotonic_ns};
use crate::tracepoint::budget::Budget;
use crate::tracepoint::fast::jump_pad::JumpPads;
use crate::tracepoint::trap_handler::TrapHandler;

use crate::breakpoint::table::Breakpoints;
pub(crate) use crate::ptrace::action::Action;
pub(crate) use crate::ptrace::stop::{Cause, Stop};
use crate::ptrace::thread::{Motion, State, Stopped, Thread};
use crate::ptrace::threads::Threads;
use crate::ptrace::wait_queue::WaitQueue;
use crate::subscription::Subscriptions;
use crate::subscription::hold::Hold;
pub(crate) use crate::subscription::role::Role;
use crate::subscription::stalls::Stall;
use crate::subscription::stop_policy::StopPolicy;
pub(crate) use attach::{Error, Program};
use budget::HitCost;
use children::Child;
use jump_placement::JumpPlacement;
use single_step::StepOverRequest;
use started_programs::ForkedProcesses;
use tracepoints::{Stacks, cpu};

/// A traced process.
pub(crate) struct Tracee {
    pid: Tid,
    /// Whether it ran before we came.
    pub(crate) attached: bool,
    /// Whether it has been resumed since it was started.
    pub(crate) resumed: bool,
    pub(crate) stop_policy: StopPolicy,
    memory: Memory,
    breakpoints: Breakpoints,
    /// What the debug registers watch, in every thread.
    watches: Vec<Watch>,
    /// What clients want to know beside stops.
    pub(crate) subscriptions: Subscriptions,
    /// Threads that wait for an observer.
    holds: BTreeMap<Tid, Hold>,
    /// Where the stacks of threads end that hit tracepoints.
    stacks: Stacks,
    /// What tracing may cost.
    pub(crate) budget: Budget,
    /// A hit that has been dealt with, and its costs not counted yet.
    hit_cost: Option<HitCost>,
    /// The thread of the last report was held for hits that wait in the program.
    alarmed: bool,
    /// A thread has been stopped since the event loop last slept.
    has_stopped_threads: bool,
    /// Since when all threads are halted for a client, by the monotonic clock.
    halted_since: Option<u64>,
    /// Stops before a client traced that wants to know of them.
    early_stalls: Vec<Stall>,
    /// Where instructions under traps are executed.
    displaced: DisplacedInstructions,
    /// What notes hits without a stop.
    jump_pads: JumpPads,
    /// What handles traps in the program if we die.
    trap_handler: TrapHandler,
    /// The threads that collectors know, by what.
    registered: HashMap<Tid, u64>,
    /// Threads whose program counter is inside a jump, and that jump's address.
    inside_jumps: Vec<(Tid, u64)>,
    /// Whether it is to be decided anew where jumps can be.
    jump_placement: JumpPlacement,
    threads: Threads,
    children: HashMap<Tid, Child>,
    /// Forked processes whose program is not known yet.
    forked: ForkedProcesses,
    /// Reports that are somebody else's, or nobody's yet.
    wait_queue: WaitQueue,
    /// Processes it made that the client is to debug, too.
    made: Vec<Tracee>,
    /// The process that made it, and that one's memory, if it runs in that (vfork(2)).
    borrowed: Option<(Tid, Memory)>,
    /// What the client planted there until it left that.
    left_behind: Option<(Tid, Memory, Breakpoints)>,
    /// Exits to be reported, if thread events are wished for.
    exits: VecDeque<(Tid, i32)>,
    /// What threads do that no action names.
    default_action: Action,
    /// Between a resume and the stop that follows.
    going: bool,
    /// Threads are stopped one by one.
    non_stop: bool,
    /// All threads are being stopped.
    halting: bool,
    /// Something has happened that ends the going.
    eventful: bool,
    /// Threads that ran into traps that are nobody's to report.
    step_over_queue: Vec<StepOverRequest>,
    /// Where traps stand that ended steps.
    used_step_traps: Vec<u64>,
    /// A thread is to step that can only begin when all are halted.
    step_needs_halt: bool,
    /// Those that are to go at once, and how, while they are being collected.
    starting: Option<Vec<(Tid, Motion, i32)>>,
    /// When the kernel is to forget steps.
    step_reset_at: Option<Instant>,
    /// The client has interrupted it, and has not been told of a thread that was.
    pub(crate) interrupt_due: bool,
    /// How it ended.
    end: Option<Stop>,
    /// The thread that was reported last.
    shown: Tid,
}

impl Tracee {
    /// A process of which no thread is known yet.
    fn new(pid: Tid, attached: bool, memory: Memory, wait_queue: WaitQueue) -> Tracee {
        Tracee {
            pid,
            attached,
            resumed: false,
            stop_policy: StopPolicy::default(),
            memory,
            breakpoints: Breakpoints::default(),
            watches: Vec::new(),
            subscriptions: Subscriptions::default(),
            holds: BTreeMap::new(),
            stacks: Stacks::default(),
            budget: Budget::default(),
            hit_cost: None,
            alarmed: false,
            has_stopped_threads: false,
            halted_since: Some(monotonic_ns()),
            early_stalls: Vec::new(),
            displaced: DisplacedInstructions::default(),
            jump_pads: JumpPads::default(),
            trap_handler: TrapHandler::default(),
            registered: HashMap::new(),
            inside_jumps: Vec::new(),
            jump_placement: JumpPlacement::default(),
            threads: Threads::default(),
            children: HashMap::new(),
            forked: ForkedProcesses::default(),
            wait_queue,
            made: Vec::new(),
            borrowed: None,
            left_behind: None,
            exits: VecDeque::new(),
            default_action: Action::Hold,
            going: false,
            non_stop: false,
            halting: false,
            eventful: false,
            step_over_queue: Vec::new(),
            used_step_traps: Vec::new(),
            step_needs_halt: false,
            starting: None,
            step_reset_at: None,
            interrupt_due: false,
            end: None,
            shown: pid,
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> Tid {
        self.pid
    }

    /// Whether it is between a resume and the stop that follows.
    pub(crate) fn is_going(&self) -> bool {
        self.going
    }

    /// Whether something is to be reported.
    pub(crate) fn is_eventful(&self) -> bool {
        self.going && self.eventful
    }

    /// How it ended, if it did.
    pub(crate) fn end(&self) -> Option<&Stop> {
        self.end.as_ref()
    }

    /// Whether it has ended, and that is not still to be told: when another's stop is told first, it is at the next resume.
    pub(crate) fn is_past(&self) -> bool {
        self.end.is_some() && !self.eventful
    }

    /// The thread that was reported last, or one that is there.
    pub(crate) fn current(&self) -> Tid {
        if self.listed(self.shown) {
            return self.shown;
        }
        self.threads().next().unwrap_or(self.pid)
    }

    /// All threads that still execute the program, the first one first.
    pub(crate) fn threads(&self) -> impl Iterator<Item = Tid> {
        let first = Some(self.pid).filter(|pid| self.listed(*pid));
        let rest = self.threads.keys().copied().filter(|tid| *tid != self.pid);
        first
            .into_iter()
            .chain(rest.filter(|tid| self.listed(*tid)))
    }

    /// Whether there is such a thread.
    pub(crate) fn listed(&self, tid: Tid) -> bool {
        let thread = self.threads.get(&tid);
        thread.is_some_and(|thread| !matches!(thread.state, State::Exiting))
    }

    /// The thread's registers, if it is stopped.
    pub(crate) fn stopped(&mut self, tid: Tid) -> Option<&mut Stopped> {
        self.threads.get_mut(&tid).and_then(Thread::stopped)
    }

    /// The signal the client was told this thread stopped with.
    pub(crate) fn shown_signal(&self, tid: Tid) -> Option<SignalInfo> {
        self.threads.get(&tid)?.shown_signal.clone()
    }

    /// Makes another signal, or another cause, of what this thread stopped with.
    pub(crate) fn change_signal(&mut self, tid: Tid, info: SignalInfo) -> Result<(), Errno> {
        let thread = self.threads.get_mut(&tid).ok_or(Errno::ESRCH)?;
        match &mut thread.shown_signal {
            Some(shown) => *shown = info,
            None => ptrace::set_signal_info(tid, &info)?,
        }
        Ok(())
    }

    /// The thread's name, as the kernel knows it.
    pub(crate) fn thread_name(&self, tid: Tid) -> Option<Vec<u8>> {
        let mut name = std::fs::read(format!("/proc/{}/task/{tid}/comm", self.pid)).ok()?;
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        Some(name)
    }

    /// The processor the thread ran on last.
    pub(crate) fn thread_core(&self, tid: Tid) -> Option<u32> {
        cpu(self.pid, tid)
    }

    /// The program's file.
    pub(crate) fn executable(&self) -> Option<std::path::PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.any_task())).ok()
    }

    /// A file of the process's directory in `/proc`, empty if it cannot be read.
    pub(crate) fn read_proc(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(format!("/proc/{}/{name}", self.any_task())) {
            let _ = file.read_to_end(&mut bytes);
        }
        bytes
    }

    /// A thread whose memory is still there: the first one's is not when it has exited.
    pub(crate) fn any_task(&self) -> Tid {
        self.threads().next().unwrap_or(self.pid)
    }
}
