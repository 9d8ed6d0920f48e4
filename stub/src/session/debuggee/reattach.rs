//! A program that runs while no client is connected. The stub detaches from it, and attaches again
//! when the next client connects.
//!
//! Separate because such a program is neither traced nor forgotten. Between two clients it runs at
//! full speed, another tracer can attach to it, and the stub can be killed in any way.

use super::Debuggee;
use crate::ptrace::attach::Error;
use crate::sys::Tid;
use crate::sys::stat::Stat;
use crate::tracee::Tracee;

/// A process to attach to when the next client connects.
pub(super) struct Untraced {
    pid: Tid,
    /// The process ran before the stub. Otherwise the stub started it.
    attached: bool,
    /// `starttime` of proc(5), in clock ticks, because another process may reuse the number.
    started: Option<u64>,
}

impl Untraced {
    fn has_ended(&self) -> bool {
        let now = Stat::of(self.pid);
        now.is_none_or(|now| now.has_ended() || now.started() != self.started)
    }
}

impl Debuggee {
    /// Detaches from the program until the next client connects. Keeps tracing a program whose
    /// first thread has ended, because the kernel would not let a tracer attach again.
    pub(crate) fn detach_until_next_client(&mut self) {
        let has_first_thread = |tracee: &mut Tracee| tracee.process.listed(tracee.process.pid());
        if self.multi || self.live().is_none_or(has_first_thread) {
            self.detach_and_remember();
        }
    }

    /// Detaches from the program. Remembers it for the next client, if the server has one program
    /// only.
    pub(super) fn detach_and_remember(&mut self) {
        let next = self
            .live()
            .map(|tracee| (tracee.process.pid(), tracee.process.attached));
        self.detach();
        self.untraced = next
            .filter(|_| !self.multi)
            .map(|(pid, attached)| Untraced {
                pid,
                attached,
                started: Stat::of(pid).and_then(|stat| stat.started()),
            });
    }

    /// Attaches to the remembered program, which is then halted. Returns false if there is none.
    pub(crate) fn reattach(&mut self) -> Result<bool, Error> {
        let Some(untraced) = self.untraced.take_if(|untraced| !untraced.has_ended()) else {
            return Ok(false);
        };
        match Tracee::attach(untraced.pid.0, self.family.wait_queue(), self.leaves_asleep) {
            Ok(mut tracee) => {
                tracee.process.attached = untraced.attached;
                tracee.process.resumed = true;
                self.take(tracee);
                Ok(true)
            }
            Err(error) => {
                self.untraced = Some(untraced);
                Err(error)
            }
        }
    }

    /// Drops the remembered program.
    pub(crate) fn forget_untraced(&mut self) {
        self.untraced = None;
    }

    /// Drops the remembered program if it has ended. Returns true if it had.
    pub(crate) fn untraced_has_ended(&mut self) -> bool {
        self.untraced.take_if(|it| it.has_ended()).is_some()
    }

    /// True if there is a remembered program.
    pub(crate) fn has_untraced(&self) -> bool {
        self.untraced.is_some()
    }

    /// True if the remembered program ran before the stub.
    pub(crate) fn was_attached(&self) -> bool {
        self.untraced.as_ref().is_some_and(|it| it.attached)
    }

    /// True if the program uses the stub's terminal, because the stub started it.
    pub(crate) fn shares_terminal(&self) -> bool {
        self.pid().is_some() || self.untraced.as_ref().is_some_and(|it| !it.attached)
    }
}
