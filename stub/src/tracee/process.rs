//! The traced process: what it consists of and what can be asked about it while it is halted.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::io::Read;
use std::time::Instant;

use nix::errno::Errno;

use crate::arch::watch::Watch;
use crate::probe::budget::Budget;
use crate::probe::jumps::Jumps;
use crate::probe::slots::Slots;
use crate::probe::trap_handler::TrapHandler;
use crate::sys::memory::Memory;
use crate::sys::ptrace::{self, SignalInfo};
use crate::sys::{Tid, monotonic_ns};

use super::breakpoints::Breakpoints;
use super::children::Child;
use super::holding::Hold;
use super::interest::Interests;
use super::probing::{Stacks, cpu};
use super::resume::Action;
use super::settling::Settling;
use super::sparing::Uncounted;
use super::stalls::Stall;
use super::stepping::Stray;
use super::thread::{Motion, State, Stopped, Thread};
use super::threads::Threads;
use super::unclaimed::Unclaimed;

/// Why the program is halted, or gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// This thread stopped; all others are held.
    Thread(Tid, Cause),
    /// A thread ended, with this exit code; reported only if asked for.
    ThreadExited(Tid, i32),
    /// All threads that were to run have ended; others are held.
    NothingRuns,
    /// The process ended with this exit code.
    Exited(i32),
    /// The process was killed by this signal.
    Killed(i32),
}

/// Why a thread stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// A signal (the kernel's number) that it has not got yet.
    Signal(i32),
    /// A planted breakpoint, at the program counter.
    Breakpoint,
    /// This was accessed, or is about to be, or executed.
    Watch(Watch),
    /// It is about to enter the kernel for the system call with this number.
    CallEntry(u64),
    /// It comes out of it.
    CallReturn(u64),
    /// It has made its step.
    Step,
    /// The client asked for it.
    Interrupt,
    /// The client asked for this thread, and no signal is to be shown.
    Halted,
    /// It has just been created.
    Created,
    /// It executed this file.
    Exec(String),
    /// It made this process, a copy of its own.
    Fork(Tid),
    /// It made this process, which runs in its memory, and waits for it to leave that.
    VFork(Tid),
    /// That has happened.
    VForkDone,
    /// It has been started or attached to.
    Ready,
}

/// A set of the kernel's signal numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct SignalSet(u128);

impl SignalSet {
    /// Adds one.
    pub(crate) fn insert(&mut self, signal: i32) {
        self.0 |= 1 << (signal & 127);
    }

    /// All signals.
    pub(crate) fn all() -> SignalSet {
        SignalSet(u128::MAX)
    }

    /// Whether it is in the set.
    pub(crate) fn contains(self, signal: i32) -> bool {
        self.0 >> (signal & 127) & 1 != 0
    }
}

/// System calls.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) enum Calls {
    #[default]
    None,
    All,
    /// Those with these numbers.
    These(BTreeSet<u64>),
}

impl Calls {
    /// Whether it is one of these.
    pub(crate) fn contain(&self, number: u64) -> bool {
        match self {
            Calls::None => false,
            Calls::All => true,
            Calls::These(numbers) => numbers.contains(&number),
        }
    }
}

/// What the client wants to be told and what not.
#[derive(Clone, Default)]
pub(crate) struct Wishes {
    /// Signals that are delivered without a stop.
    pub(crate) pass: SignalSet,
    /// Signals that detaching may deliver; `None`: all.
    pub(crate) deliver: Option<SignalSet>,
    /// Stop before a signal ends the process, though it is to be passed.
    pub(crate) fatal: bool,
    /// Stop when a thread begins and when it ends.
    pub(crate) thread_events: bool,
    /// Stop where these begin and end.
    pub(crate) calls: Calls,
    /// Stop at an exec.
    pub(crate) execs: bool,
    /// Stop at a fork, and hold the new process.
    pub(crate) forks: bool,
    /// Stop at a vfork, and hold the new process; stop where that is over.
    pub(crate) vforks: bool,
    /// Report that nothing is left to run.
    pub(crate) no_resumed: bool,
}

/// A traced process.
pub(crate) struct Process {
    pid: Tid,
    /// Whether it ran before we came.
    pub(crate) attached: bool,
    /// Whether it has been resumed since it was started.
    pub(crate) resumed: bool,
    pub(crate) wishes: Wishes,
    pub(super) memory: Memory,
    pub(super) breakpoints: Breakpoints,
    /// What the debug registers watch, in every thread.
    pub(super) watches: Vec<Watch>,
    /// What clients want to know beside stops.
    pub(crate) interests: Interests,
    /// Threads that wait for an observer.
    pub(super) holds: BTreeMap<Tid, Hold>,
    /// Where the stacks of threads end that hit tracepoints.
    pub(super) stacks: Stacks,
    /// What tracing may cost.
    pub(crate) budget: Budget,
    /// A hit that has been dealt with, and its costs not counted yet.
    pub(super) uncounted: Option<Uncounted>,
    /// The thread of the last report was held for hits that wait in the program.
    pub(super) alarmed: bool,
    /// Some thread stood, in this turn of the event loop.
    pub(super) stood: bool,
    /// Since when all threads are halted for a client, by the monotonic clock.
    pub(super) halted_since: Option<u64>,
    /// Stops before a client traced that wants to know of them.
    pub(super) early_stalls: Vec<Stall>,
    /// Where instructions under traps are executed.
    pub(super) slots: Slots,
    /// What notes hits without a stop.
    pub(super) jumps: Jumps,
    /// What handles traps in the program if we die.
    pub(super) trap_handler: TrapHandler,
    /// The threads that collectors know, by what.
    pub(super) introduced: HashMap<Tid, u64>,
    /// Threads in the midst of what a jump has displaced, and where that is.
    pub(super) misplaced: Vec<(Tid, u64)>,
    /// Whether it is to be decided anew where jumps can be.
    pub(super) settling: Settling,
    pub(super) threads: Threads,
    pub(super) children: HashMap<Tid, Child>,
    /// Reports that are somebody else's, or nobody's yet.
    pub(super) unclaimed: Unclaimed,
    /// Processes it made that the client is to debug, too.
    pub(super) made: Vec<Process>,
    /// The process that made it, and that one's memory, if it runs in that (vfork(2)).
    pub(super) borrowed: Option<(Tid, Memory)>,
    /// What the client planted there until it left that.
    pub(super) left_behind: Option<(Tid, Memory, Breakpoints)>,
    /// Exits to be reported, if thread events are wished for.
    pub(super) exits: VecDeque<(Tid, i32)>,
    /// What threads do that no action names.
    pub(super) default_action: Action,
    /// Between a resume and the stop that follows.
    pub(super) going: bool,
    /// Threads are stopped one by one.
    pub(super) non_stop: bool,
    /// All threads are being stopped.
    pub(super) halting: bool,
    /// Something has happened that ends the going.
    pub(super) eventful: bool,
    /// Threads that ran into traps that are nobody's to report.
    pub(super) strays: Vec<Stray>,
    /// Where traps stand that ended steps.
    pub(super) steps_made: Vec<u64>,
    /// A thread is to step that can only begin when all are halted.
    pub(super) step_waits: bool,
    /// Those that are to go at once, and how, while they are being collected.
    pub(super) starting: Option<Vec<(Tid, Motion, i32)>>,
    /// When the kernel is to forget steps.
    pub(super) rests: Option<Instant>,
    /// The client has interrupted it, and has not been told of a thread that was.
    pub(crate) interrupt_due: bool,
    /// How it ended.
    pub(super) end: Option<Stop>,
    /// The thread that was reported last.
    pub(super) shown: Tid,
}

impl Process {
    /// A process of which no thread is known yet.
    pub(super) fn new(pid: Tid, attached: bool, memory: Memory, unclaimed: Unclaimed) -> Process {
        Process {
            pid,
            attached,
            resumed: false,
            wishes: Wishes::default(),
            memory,
            breakpoints: Breakpoints::default(),
            watches: Vec::new(),
            interests: Interests::default(),
            holds: BTreeMap::new(),
            stacks: Stacks::default(),
            budget: Budget::default(),
            uncounted: None,
            alarmed: false,
            stood: false,
            halted_since: Some(monotonic_ns()),
            early_stalls: Vec::new(),
            slots: Slots::default(),
            jumps: Jumps::default(),
            trap_handler: TrapHandler::default(),
            introduced: HashMap::new(),
            misplaced: Vec::new(),
            settling: Settling::default(),
            threads: Threads::default(),
            children: HashMap::new(),
            unclaimed,
            made: Vec::new(),
            borrowed: None,
            left_behind: None,
            exits: VecDeque::new(),
            default_action: Action::Hold,
            going: false,
            non_stop: false,
            halting: false,
            eventful: false,
            strays: Vec::new(),
            steps_made: Vec::new(),
            step_waits: false,
            starting: None,
            rests: None,
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
    pub(super) fn read_proc(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Ok(mut file) = std::fs::File::open(format!("/proc/{}/{name}", self.any_task())) {
            let _ = file.read_to_end(&mut bytes);
        }
        bytes
    }

    /// A thread whose memory is still there: the first one's is not when it has exited.
    pub(super) fn any_task(&self) -> Tid {
        self.threads().next().unwrap_or(self.pid)
    }
}
