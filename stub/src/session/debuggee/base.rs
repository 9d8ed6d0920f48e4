//! Registers, memory and threads (`g G M X T H`).

use gdbstub::common::Tid as WireTid;
use gdbstub::target::TargetResult;
use gdbstub::target::ext::base::multithread::MultiThreadBase;
use gdbstub::target::ext::base::single_register_access::SingleRegisterAccessOps;
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use nix::errno::Errno;

use super::machine::RegisterBlock;
use super::{Debuggee, part, refused};
use crate::arch::{self, Register};
use crate::ptrace::thread::Stopped;
use crate::sys::Tid;

impl Debuggee {
    pub(super) fn stopped(&mut self, tid: WireTid) -> Result<&mut Stopped, Errno> {
        let tid = Tid(tid.get() as i32);
        let tracee = self.live().ok_or(Errno::ESRCH)?;
        tracee.process.stopped(tid).ok_or(Errno::ESRCH)
    }

    /// Reads a register of a thread. Only some are known of a thread that cannot be stopped.
    pub(super) fn register(
        &mut self,
        tid: WireTid,
        register: &Register,
        value: &mut [u8],
    ) -> Result<(), Errno> {
        let threads = self.live().map(|tracee| &tracee.process.threads);
        let thread = threads.and_then(|threads| threads.get(&Tid(tid.get() as i32)));
        match thread.and_then(|thread| thread.unstoppable) {
            Some(call) => call.register(register, value),
            None => self.stopped(tid)?.register(register, value),
        }
    }
}

impl MultiThreadBase for Debuggee {
    fn read_registers(&mut self, into: &mut RegisterBlock, tid: WireTid) -> TargetResult<(), Self> {
        if let Some(tracee) = self.live() {
            tracee.stop_if_awake(Tid(tid.get() as i32));
        }
        let layout = arch::layout();
        let mut bytes = vec![0; layout.size];
        let mut hidden = Vec::new();
        for register in &layout.registers {
            let place = register.offset..register.offset + register.size;
            let value = &mut bytes[place.clone()];
            match self.register(tid, register, value) {
                Ok(()) => {}
                Err(Errno::ESRCH) => return Err(refused(Errno::ESRCH)),
                Err(_) => hidden.push(place),
            }
        }
        *into = RegisterBlock::new(&bytes, hidden);
        Ok(())
    }

    fn write_registers(&mut self, from: &RegisterBlock, tid: WireTid) -> TargetResult<(), Self> {
        let bytes = from.bytes();
        let stopped = self.stopped(tid).map_err(refused)?;
        stopped.set_registers(&bytes).map_err(refused)
    }

    fn support_single_register_access(
        &mut self,
    ) -> Option<SingleRegisterAccessOps<'_, WireTid, Self>> {
        Some(self)
    }

    fn read_addrs(
        &mut self,
        start: arch::Word,
        data: &mut [u8],
        _tid: WireTid,
    ) -> TargetResult<usize, Self> {
        let tracee = self.live().ok_or_else(|| refused(Errno::ESRCH))?;
        tracee.read_memory(arch::wide(start), data).map_err(refused)
    }

    fn write_addrs(
        &mut self,
        start: arch::Word,
        data: &[u8],
        _tid: WireTid,
    ) -> TargetResult<(), Self> {
        let tracee = self.live().ok_or_else(|| refused(Errno::ESRCH))?;
        tracee
            .write_memory(arch::wide(start), data)
            .map_err(refused)
    }

    fn list_active_threads(&mut self, visit: &mut dyn FnMut(WireTid)) -> Result<(), Self::Error> {
        if let Some(tracee) = self.live() {
            for tid in tracee.process.tids() {
                WireTid::new(tid.0 as usize).map(&mut *visit);
            }
        }
        Ok(())
    }

    fn is_thread_alive(&mut self, tid: WireTid) -> Result<bool, Self::Error> {
        let tid = Tid(tid.get() as i32);
        Ok(self.live().is_some_and(|tracee| tracee.process.listed(tid)))
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Debuggee {
    fn thread_extra_info(&self, tid: WireTid, buf: &mut [u8]) -> Result<usize, Self::Error> {
        let tracee = self.family.current.as_ref();
        let name = tracee.and_then(|tracee| tracee.process.thread_name(Tid(tid.get() as i32)));
        Ok(part(&name.unwrap_or_default(), 0, usize::MAX, buf))
    }
}
