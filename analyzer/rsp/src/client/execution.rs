//! Running and stopping the target: stop reasons, `vCont`, attach, run, detach, kill.

use std::time::Duration;

use crate::client::Client;
use crate::error::Error;
use crate::stop::StopReply;
use crate::thread::ThreadId;

/// What a thread is to do on [`Client::resume`]. Signals are gdb's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// `c`
    Continue,
    /// `C`: with a signal delivered.
    ContinueWithSignal(u8),
    /// `s`: one instruction.
    Step,
    /// `S`: one instruction, with a signal delivered.
    StepWithSignal(u8),
    /// `t`: stop (of use in non-stop mode only).
    Stop,
}

impl Client {
    /// Extended mode (`!`): the server outlives the program, [`Client::run`] and
    /// [`Client::attach`] work.
    pub fn extended_mode(&mut self) -> Result<(), Error> {
        todo!()
    }
    /// Why the target stands (`?`).
    pub fn stop_reason(&mut self) -> Result<StopReply, Error> {
        todo!()
    }
    /// Resumes the target: each thread does what the first pair that names it says; `None` names
    /// all others. Threads that no pair names stay stopped, where the server can do so.
    pub fn resume(&mut self, actions: &[(Action, Option<ThreadId>)]) -> Result<(), Error> {
        todo!()
    }
    /// Waits for the target to stop. `Ok(None)`: it still runs when the time is over.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<StopReply>, Error> {
        todo!()
    }
    /// Whether the target was resumed and has not reported a stop.
    pub fn is_running(&self) -> bool {
        todo!()
    }
    /// Asks a running target to stop (the byte 0x03); [`Client::wait`] then returns.
    pub fn interrupt(&mut self) -> Result<(), Error> {
        todo!()
    }
    /// Attaches to a process (`vAttach`, extended mode).
    pub fn attach(&mut self, pid: u64) -> Result<StopReply, Error> {
        todo!()
    }
    /// Starts a program (`vRun`, extended mode).
    pub fn run(&mut self, program: &str, args: &[impl AsRef<str>]) -> Result<StopReply, Error> {
        todo!()
    }
    /// Detaches from the process (`D`); it goes on.
    pub fn detach(&mut self) -> Result<(), Error> {
        todo!()
    }
    /// Kills the process (`vKill`, else `k`).
    pub fn kill(&mut self) -> Result<(), Error> {
        todo!()
    }
}
