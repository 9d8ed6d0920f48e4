//! Single registers (`p P`).

use gdbstub::common::Tid as WireTid;
use gdbstub::target::TargetResult;
use gdbstub::target::ext::base::single_register_access::SingleRegisterAccess;
use nix::errno::Errno;

use super::machine::RegisterNumber;
use super::{Debuggee, refused};
use crate::arch;

impl SingleRegisterAccess<WireTid> for Debuggee {
    fn read_register(
        &mut self,
        tid: WireTid,
        number: RegisterNumber,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let register = arch::layout().register(number.0);
        let register = register.ok_or_else(|| refused(Errno::EINVAL))?;
        let value = buf
            .get_mut(..register.size)
            .ok_or_else(|| refused(Errno::EINVAL))?;
        match self.register(tid, register, value) {
            Ok(()) => Ok(register.size),
            // For a register that this kernel does not show, gdbstub writes `xx`.
            Err(Errno::ENODEV | Errno::ENODATA) => Ok(0),
            Err(errno) => Err(refused(errno)),
        }
    }

    fn write_register(
        &mut self,
        tid: WireTid,
        number: RegisterNumber,
        value: &[u8],
    ) -> TargetResult<(), Self> {
        let register = arch::layout().register(number.0);
        let register = register.ok_or_else(|| refused(Errno::EINVAL))?;
        if value.len() != register.size {
            return Err(refused(Errno::EINVAL));
        }
        let stopped = self.stopped(tid).map_err(refused)?;
        stopped.set_register(register, value).map_err(refused)
    }
}
