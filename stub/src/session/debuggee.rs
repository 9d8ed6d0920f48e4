//! What a session debugs: a process, or several, how to start another, and the files the client
//! has open. gdbstub's [`Target`] is implemented for it, one extension a file.

mod auxv;
mod base;
mod breakpoints;
mod description;
mod exec_file;
mod extended_mode;
pub(crate) mod files;
mod host_io;
mod machine;
mod registers;

use std::convert::Infallible;
use std::time::Instant;

use gdbstub::target::ext::auxv::AuxvOps;
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::breakpoints::BreakpointsOps;
use gdbstub::target::ext::exec_file::ExecFileOps;
use gdbstub::target::ext::extended_mode::ExtendedModeOps;
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::target_description_xml_override::TargetDescriptionXmlOverrideOps;
use gdbstub::target::{Target, TargetError};
use nix::errno::Errno;

use crate::cli::Limits;
use crate::probe::budget::Share;
use crate::sys::Tid;
use crate::tracee::family::Family;
use crate::tracee::process::Wishes;
use crate::tracee::{Cause, Error, Process, Program, Stop};

use files::Files;

/// What a session debugs.
pub(crate) struct Debuggee {
    /// The processes; the current one is what packets are about.
    pub(crate) family: Family,
    /// How to start a program.
    pub(crate) program: Program,
    /// What the present client wants to be told; every process it gets inherits it.
    pub(crate) wishes: Wishes,
    /// Threads are stopped one by one.
    pub(crate) non_stop: bool,
    /// The client asked the server to end (`monitor exit`).
    pub(crate) exit_requested: bool,
    /// Why the process is halted.
    pub(crate) last_stop: Option<Stop>,
    /// Why the last start or attach failed.
    pub(crate) failure: Option<Error>,
    files: Files,
    /// The only processes that a client may attach to, if not all.
    attachable: Option<Vec<i32>>,
    /// What tracing may cost the program, if that is limited.
    budget: Option<Share>,
    original: Program,
}

impl Debuggee {
    /// Nothing yet, and how to start something.
    pub(crate) fn new(program: Program, limits: Limits) -> Debuggee {
        Debuggee {
            family: Family::default(),
            original: program.clone(),
            program,
            wishes: Wishes::default(),
            non_stop: false,
            exit_requested: false,
            last_stop: None,
            failure: None,
            files: Files::new(limits.files),
            attachable: limits.attachable,
            budget: limits.budget,
        }
    }

    /// The process, if there is one that has not ended.
    pub(crate) fn live(&mut self) -> Option<&mut Process> {
        self.family
            .current
            .as_mut()
            .filter(|process| process.end().is_none())
    }

    /// The process's id, if there is one that has not ended.
    pub(crate) fn pid(&self) -> Option<Tid> {
        self.family
            .current
            .as_ref()
            .filter(|process| process.end().is_none())
            .map(Process::pid)
    }

    /// Starts the program anew.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let process = Process::start(&self.program, self.family.unclaimed())?;
        self.take(process);
        Ok(())
    }

    /// Attaches to a process.
    pub(crate) fn attach(&mut self, pid: i32) -> Result<(), Error> {
        if let Some(allowed) = &self.attachable
            && !allowed.contains(&pid)
        {
            return Err(Error::NotAllowed(pid));
        }
        let process = Process::attach(pid, self.family.unclaimed())?;
        self.take(process);
        Ok(())
    }

    fn take(&mut self, mut process: Process) {
        process.wishes = self.wishes.clone();
        process.budget.share = self.budget;
        process.set_non_stop(self.non_stop);
        self.last_stop = Some(Stop::Thread(process.current(), Cause::Ready));
        self.family.add(process);
    }

    /// Sets what the client wants to be told.
    pub(crate) fn wish(&mut self, change: impl FnOnce(&mut Wishes)) {
        change(&mut self.wishes);
        for process in self.family.members() {
            process.wishes = self.wishes.clone();
        }
    }

    /// A client has left: what it had open and wished for goes with it.
    pub(crate) fn client_left(&mut self) {
        self.files.clear();
        self.wish(|wishes| *wishes = Wishes::default());
    }

    /// When a probe that is paused is to go on.
    pub(crate) fn pause_ends(&self) -> Option<Instant> {
        self.family.current.as_ref()?.pause_ends()
    }

    /// Has paused probes go on whose time has come.
    pub(crate) fn keep_budget(&mut self) {
        if let Some(process) = &mut self.family.current {
            process.keep_budget();
        }
    }

    /// When a client that drains the trace buffer is to be told something.
    pub(crate) fn news_due(&self) -> Option<Instant> {
        let process = self.family.current.as_ref()?;
        process.news_due().filter(|_| process.trace.drained)
    }

    /// Ends non-stop mode: all threads are halted.
    pub(crate) fn stop_all(&mut self) {
        if std::mem::take(&mut self.non_stop) {
            for process in self.family.members() {
                process.set_non_stop(false);
            }
        }
    }

    /// Why the process is halted, as far as that is still true.
    pub(crate) fn halt_reason(&self) -> Option<Stop> {
        let process = self.family.current.as_ref()?;
        if let Some(end) = process.end() {
            return Some(end.clone());
        }
        match &self.last_stop {
            Some(stop @ Stop::Thread(tid, _)) if process.listed(*tid) => Some(stop.clone()),
            _ => Some(Stop::Thread(process.current(), Cause::Ready)),
        }
    }

    /// Lets the processes go.
    pub(crate) fn detach(&mut self) {
        for process in self.family.dissolve() {
            process.detach();
        }
    }

    /// Kills the processes.
    pub(crate) fn kill(&mut self) {
        for mut process in self.family.dissolve() {
            process.kill();
        }
    }
}

/// An errno as gdbstub's error.
fn refused(errno: Errno) -> TargetError<Infallible> {
    TargetError::Errno(errno as i32 as u8)
}

/// The part of `bytes` that starts at `offset`, as much as fits.
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

    // The layer in front owns framing, and what a fork is reported as.
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

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
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
