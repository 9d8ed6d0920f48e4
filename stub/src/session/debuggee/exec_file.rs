//! The program's file (`qXfer:exec-file:read`).

use std::os::unix::ffi::OsStrExt;

use gdbstub::common::Pid;
use gdbstub::target::TargetResult;
use gdbstub::target::ext::exec_file::ExecFile;
use nix::errno::Errno;

use super::{Debuggee, part, refused};

impl ExecFile for Debuggee {
    fn get_exec_file(
        &self,
        pid: Option<Pid>,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let path = match (&self.family.current, pid) {
            (Some(tracee), None) => tracee.process.executable(),
            (Some(tracee), Some(pid)) if tracee.process.pid().0 as usize == pid.get() => {
                tracee.process.executable()
            }
            (_, Some(pid)) => std::fs::read_link(format!("/proc/{pid}/exe")).ok(),
            (None, None) => None,
        };
        let path = path.ok_or_else(|| refused(Errno::ESRCH))?;
        Ok(part(path.as_os_str().as_bytes(), offset, length, buf))
    }
}
