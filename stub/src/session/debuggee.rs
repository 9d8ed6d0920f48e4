//! The debuggee of a session: one process or several, how to start another, and the client's open
//! files. Implements gdbstub's [`Target`], with one file per extension.

mod auxv;
mod base;
mod description;
mod exec_file;
mod extended_mode;
pub(crate) mod files;
mod host_io;
pub(crate) mod limits;
mod machine;
mod reattach;
mod registers;

use std::convert::Infallible;
use std::time::Instant;

use gdbstub::target::ext::auxv::AuxvOps;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::exec_file::ExecFileOps;
use gdbstub::target::ext::extended_mode::ExtendedModeOps;
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::target_description_xml_override::TargetDescriptionXmlOverrideOps;
use gdbstub::target::{Target, TargetError};
use nix::errno::Errno;

use crate::ptrace::attach::{Error, Program};
use crate::ptrace::stop::{Cause, Stop};
use crate::subscription::role::Role;
use crate::subscription::stop_policy::StopPolicy;
use crate::subscription::thread_log::ThreadLog;
use crate::sys::Tid;
use crate::tracee::Tracee;
use crate::tracee::family::Family;
use crate::tracepoint::budget::{Limit, Share};
use limits::Limits;

use files::Files;

/// Everything that a session debugs.
pub(crate) struct Debuggee {
    /// The processes. Packets refer to the current one.
    pub(crate) family: Family,
    /// How to start a program.
    pub(crate) program: Program,
    /// The controlling client's choice of stops. All processes inherit it.
    pub(crate) stop_policy: StopPolicy,
    /// The controlling client wants notifications about threads.
    follows_threads: bool,
    /// Name of the client that controls the program.
    pub(crate) controller: Option<String>,
    /// Number of clients that observe the program.
    pub(crate) observers: usize,
    /// The program runs although no client controls it.
    pub(crate) free: bool,
    /// The controlling client has detached.
    pub(crate) released: bool,
    /// The previous process, kept for its observers.
    gone: Option<Tracee>,
    /// The observer that started or attached to the process, until a client takes control.
    pub(crate) brought_by: Option<u32>,
    /// The process to attach to when the next client connects.
    untraced: Option<reattach::Untraced>,
    /// Non-stop mode: threads are stopped one by one.
    pub(crate) non_stop: bool,
    /// The client has asked the server to end (`monitor exit`).
    pub(crate) exit_requested: bool,
    /// The reason why the process is halted.
    pub(crate) last_stop: Option<Stop>,
    /// The error of the last start or attach.
    pub(crate) failure: Option<Error>,
    /// The open files of the client whose packet is being handled.
    pub(super) files: Files,
    /// The server outlives its programs, and clients choose them.
    multi: bool,
    /// The stub ends as soon as its client has detached.
    pub(crate) ends_detached: bool,
    /// Ids of the only processes that a client may attach to. `None` means all.
    attachable: Option<Vec<i32>>,
    /// Threads in calls that a stop would end early or with an error are not stopped.
    leaves_asleep: bool,
    /// The default limit of the cost of tracing. `None` means no limit.
    budget: Option<Share>,
    /// The command line gave the budget, so no client gets more.
    budget_is_bound: bool,
    original: Program,
}

impl Debuggee {
    /// A debuggee without a process. `program` says how to start one.
    pub(crate) fn new(program: Program, limits: Limits, multi: bool) -> Debuggee {
        Debuggee {
            family: Family::default(),
            original: program.clone(),
            program,
            stop_policy: StopPolicy::default(),
            follows_threads: false,
            controller: None,
            observers: 0,
            free: false,
            released: false,
            gone: None,
            brought_by: None,
            untraced: None,
            non_stop: false,
            exit_requested: false,
            last_stop: None,
            failure: None,
            files: Files::new(limits.files),
            multi,
            ends_detached: false,
            attachable: limits.attachable,
            leaves_asleep: limits.leaves_asleep,
            budget: limits.budget,
            budget_is_bound: limits.budget_is_given,
        }
    }

    /// The default limit of the cost of tracing. `None` means no limit.
    pub(super) fn budget(&self) -> Option<Share> {
        self.budget
    }

    /// True if a client may set this limit.
    pub(super) fn permits(&self, limit: Limit) -> bool {
        let bound = self.budget.map_or(Limit::None, Limit::Share);
        !self.budget_is_bound || limit <= bound
    }

    /// The current process, unless it has ended.
    pub(crate) fn live(&mut self) -> Option<&mut Tracee> {
        self.family
            .current
            .as_mut()
            .filter(|tracee| tracee.process.end().is_none())
    }

    /// The current process's id, unless it has ended.
    pub(crate) fn pid(&self) -> Option<Tid> {
        self.family
            .current
            .as_ref()
            .filter(|tracee| tracee.process.end().is_none())
            .map(|it: &Tracee| it.process.pid())
    }

    /// Starts the program again.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let mut tracee = Tracee::start(&self.program, self.family.wait_queue())?;
        tracee.process.leaves_asleep = self.leaves_asleep;
        self.take(tracee);
        Ok(())
    }

    /// Attaches to a process.
    pub(crate) fn attach(&mut self, pid: i32) -> Result<(), Error> {
        if let Some(allowed) = &self.attachable
            && !allowed.contains(&pid)
        {
            return Err(Error::NotAllowed(pid));
        }
        let tracee = Tracee::attach(pid, self.family.wait_queue(), self.leaves_asleep)?;
        self.take(tracee);
        Ok(())
    }

    fn take(&mut self, mut tracee: Tracee) {
        tracee.stop_policy = self.stop_policy.clone();
        (
            tracee.tracepoints.budget.usual,
            tracee.tracepoints.budget.share,
        ) = (self.budget, self.budget);
        tracee.set_non_stop(self.non_stop);
        if self.follows_threads {
            tracee.subscriptions.of(Role::Control).log = Some(ThreadLog::default());
        }
        (self.free, self.released) = (false, false);
        (self.untraced, self.brought_by) = (None, None);
        self.last_stop = Some(Stop::Thread(tracee.process.current(), Cause::Ready));
        self.family.add(tracee);
    }

    /// Changes which events stop the program.
    pub(crate) fn set_stop_policy(&mut self, change: impl FnOnce(&mut StopPolicy)) {
        change(&mut self.stop_policy);
        for tracee in self.family.members() {
            tracee.stop_policy = self.stop_policy.clone();
        }
    }

    /// Turns notifications about threads on or off for a client.
    pub(crate) fn follow_threads(&mut self, role: Role, on: bool) {
        if role == Role::Control {
            self.follows_threads = on;
        }
        if let Some(tracee) = self.live() {
            let subscription = tracee.subscriptions.of(role);
            match (on, &subscription.log) {
                (true, None) => subscription.log = Some(ThreadLog::default()),
                (false, _) => subscription.log = None,
                (true, Some(_)) => {}
            }
        }
    }

    /// Resets what the controlling client has set, because it has left.
    pub(crate) fn controller_left(&mut self) {
        self.controller = None;
        self.stop_all();
        self.follow_threads(Role::Control, false);
        if let Some(tracee) = self.live() {
            tracee.subscriptions.of(Role::Control).limit = None;
            tracee.agree_on_budget();
        }
        if !self.free {
            self.set_stop_policy(|stop_policy| *stop_policy = StopPolicy::default());
        }
        self.stop_policy = StopPolicy::default();
    }

    /// Removes the subscriptions of an observer that has left.
    pub(crate) fn observer_left(&mut self, role: Role) {
        self.observers -= 1;
        for tracee in self.family.members().chain(&mut self.gone) {
            tracee.unsubscribe(role);
        }
    }

    /// Gives a client control of the program and halts the program.
    pub(crate) fn take_control(&mut self, name: String) {
        self.controller = Some(name);
        let was_free = std::mem::take(&mut self.free);
        (self.released, self.brought_by) = (false, None);
        self.set_stop_policy(|_| {});
        if let Some(stop) = self.family.interrupt() {
            self.last_stop = Some(stop);
        }
        if let Some(tracee) = self.live().filter(|_| was_free) {
            tracee.taken();
        }
    }

    /// Detaches from all processes for the controlling client. A program stays traced if it has
    /// observers or commands that persist.
    pub(crate) fn detach_client(&mut self) {
        self.stop_members();
        let kept = |tracee: &Tracee| {
            tracee.subscriptions.is_observed() || tracee.has_persistent_commands()
        };
        let kept = self.family.processes().find(|tracee| kept(tracee));
        let Some(pid) = kept.map(|it: &Tracee| it.process.pid()) else {
            return self.detach_and_remember();
        };
        let others = self.family.processes().map(|it: &Tracee| it.process.pid());
        let others: Vec<Tid> = others.filter(|other| *other != pid).collect();
        for other in others {
            self.family.detach(other);
        }
        if let Some(tracee) = &mut self.family.current {
            tracee.unsubscribe(Role::Control);
            (self.free, self.released) = (true, true);
            self.last_stop = tracee.set_free();
        }
    }

    /// Detaches from one process for the controlling client. Returns true if there is such a
    /// process.
    pub(crate) fn detach_client_from(&mut self, pid: Tid) -> bool {
        let known = self
            .family
            .processes()
            .any(|tracee| tracee.process.pid() == pid);
        if known && self.family.processes().count() == 1 {
            self.detach_client();
            return true;
        }
        self.family.detach(pid)
    }

    /// Lets the program run without a controlling client.
    pub(crate) fn go_free(&mut self) {
        if let Some(tracee) = self.live() {
            let stop = tracee.go_on();
            (self.free, self.last_stop) = (true, stop);
        }
    }

    /// Handles a stop while no client controls the program.
    pub(crate) fn stopped_alone(&mut self, stop: Stop) {
        self.last_stop = match &mut self.family.current {
            Some(tracee) if self.free && tracee.process.end().is_none() => tracee.go_on(),
            _ => Some(stop),
        };
    }

    /// The time at which notifications for this client are due, if they need not be sent
    /// immediately.
    pub(crate) fn notifications_due(&self, role: Role) -> Option<Instant> {
        let subscriptions = self.family.processes().map(|tracee| &tracee.subscriptions);
        let subscriptions = subscriptions.filter_map(|subscriptions| subscriptions.get(role));
        let drained = subscriptions.filter(|subscription| subscription.trace.drained);
        drained
            .filter_map(|subscription| subscription.notifications_due())
            .min()
    }

    /// Excludes processor time that the stub has used for something else than hits.
    pub(crate) fn exclude_from_budgets(&mut self, used: u64) {
        for tracee in self.family.members() {
            tracee.tracepoints.budget.exclude(used);
        }
    }

    /// The process with this id, even if it is gone, for an observer.
    pub(crate) fn observed(&mut self, pid: Tid) -> Option<&mut Tracee> {
        let mut all = self.family.members().chain(&mut self.gone);
        all.find(|tracee| tracee.process.pid() == pid)
    }

    /// Ends non-stop mode and halts all threads.
    pub(crate) fn stop_all(&mut self) {
        if std::mem::take(&mut self.non_stop) {
            self.stop_members();
        }
    }

    /// Ends non-stop mode for the present processes. Processes that come later use the client's
    /// choice.
    fn stop_members(&mut self) {
        for tracee in self.family.members() {
            tracee.set_non_stop(false);
        }
    }

    /// The reason why the process is halted, as far as it is still valid.
    pub(crate) fn halt_reason(&self) -> Option<Stop> {
        let tracee = self.family.current.as_ref()?;
        if let Some(end) = tracee.process.end() {
            return Some(end.clone());
        }
        match &self.last_stop {
            Some(stop @ Stop::Thread(tid, _)) if tracee.process.listed(*tid) => Some(stop.clone()),
            _ => Some(Stop::Thread(tracee.process.current(), Cause::Ready)),
        }
    }

    /// Detaches from all processes.
    pub(crate) fn detach(&mut self) {
        (self.free, self.released) = (false, false);
        self.gone = None;
        for tracee in self.family.dissolve() {
            match self.ends_detached {
                true => tracee.detach_at_end(),
                false => tracee.detach(),
            }
        }
    }

    /// Kills one process. Returns true if there is such a process.
    pub(crate) fn kill_one(&mut self, pid: Tid) -> bool {
        let Some(mut tracee) = self.family.remove(pid) else {
            return false;
        };
        tracee.kill();
        if tracee.subscriptions.is_observed() {
            self.gone = Some(tracee);
        }
        true
    }

    /// Kills all processes.
    pub(crate) fn kill(&mut self) {
        if self.free {
            // The controlling client has detached already. Only observers or persistent commands
            // still keep the program traced.
            return self.detach();
        }
        for mut tracee in self.family.dissolve() {
            tracee.kill();
            if tracee.subscriptions.is_observed() {
                self.gone = Some(tracee);
            }
        }
    }
}

/// An errno as gdbstub's error.
fn refused(errno: Errno) -> TargetError<Infallible> {
    TargetError::Errno(errno as i32 as u8)
}

/// Copies at most `length` bytes from `bytes` at `offset` to `into`, as far as they fit. Returns
/// the number of copied bytes.
fn part(bytes: &[u8], offset: u64, length: usize, into: &mut [u8]) -> usize {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let size = (bytes.len() - start).min(length).min(into.len());
    into[..size].copy_from_slice(&bytes[start..start + size]);
    size
}

impl Target for Debuggee {
    type Arch = machine::Machine;
    type Error = Infallible;

    fn base_ops(&mut self) -> BaseOps<'_, Self::Arch, Self::Error> {
        BaseOps::MultiThread(self)
    }

    // The layer in front of gdbstub does framing and reports forks.
    fn use_rle(&self) -> bool {
        false
    }

    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn use_resume_stub(&self) -> bool {
        false
    }

    fn use_lldb_register_info(&self) -> bool {
        false
    }

    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        // The layer in front of gdbstub answers breakpoint packets.
        true
    }

    fn support_extended_mode(&mut self) -> Option<ExtendedModeOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        Some(self)
    }
}
