//! The auxiliary vector (`qXfer:auxv:read`).

use gdbstub::target::TargetResult;
use gdbstub::target::ext::auxv::Auxv;
use nix::errno::Errno;

use super::{Debuggee, part, refused};

impl Auxv for Debuggee {
    fn get_auxv(&self, offset: u64, length: usize, buf: &mut [u8]) -> TargetResult<usize, Self> {
        let tracee = self.family.current.as_ref();
        let tracee = tracee.ok_or_else(|| refused(Errno::ESRCH))?;
        Ok(part(&tracee.process.auxv(), offset, length, buf))
    }
}
