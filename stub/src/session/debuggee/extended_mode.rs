//! Starts and attaches at the client's request (`vRun vAttach`), and sets start options
//! (`QDisableRandomization QEnvironment... QSetWorkingDir QStartupWithShell`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use gdbstub::common::Pid;
use gdbstub::target::TargetResult;
use gdbstub::target::ext::extended_mode::{
    Args, AttachKind, ConfigureAslr, ConfigureAslrOps, ConfigureEnv, ConfigureEnvOps,
    ConfigureStartupShell, ConfigureStartupShellOps, ConfigureWorkingDir, ConfigureWorkingDirOps,
    CurrentActivePid, CurrentActivePidOps, ExtendedMode, ShouldTerminate,
};
use nix::errno::Errno;

use super::{Debuggee, refused};
use crate::sys::Tid;

/// The process id that gdbstub gets where there is no process.
const NO_PID: Pid = Pid::MIN;

impl ExtendedMode for Debuggee {
    fn run(&mut self, file: Option<&[u8]>, args: Args<'_, '_>) -> TargetResult<Pid, Self> {
        let args: Vec<OsString> = args.map(|arg| OsStr::from_bytes(arg).to_owned()).collect();
        if let Some(file) = file.filter(|file| !file.is_empty()) {
            self.program.words = vec![OsStr::from_bytes(file).to_owned()];
            self.program.words.extend(args);
        } else if !args.is_empty() {
            self.program.words.truncate(1);
            self.program.words.extend(args);
        }
        self.kill();
        match self.start() {
            Ok(()) => Ok(self.current_active_pid().unwrap_or(NO_PID)),
            Err(error) => {
                let errno = error.errno();
                self.failure = Some(error);
                Err(refused(errno))
            }
        }
    }

    fn attach(&mut self, pid: Pid) -> TargetResult<(), Self> {
        let pid = i32::try_from(pid.get()).map_err(|_| refused(Errno::ESRCH))?;
        if self.free {
            // A client has detached from the process, which still has observers.
            if self.pid() == Some(Tid(pid)) {
                self.take_control(self.controller.clone().unwrap_or_default());
                return Ok(());
            }
            self.detach();
        }
        Debuggee::attach(self, pid).map_err(|error| {
            let errno = error.errno();
            self.failure = Some(error);
            refused(errno)
        })
    }

    fn query_if_attached(&mut self, _pid: Pid) -> TargetResult<AttachKind, Self> {
        Ok(match &self.family.current {
            Some(tracee) if tracee.process.attached => AttachKind::Attach,
            _ => AttachKind::Run,
        })
    }

    // The layer in front of gdbstub answers `k`, `vKill` and `R`: they end connections or have no
    // reply.
    fn kill(&mut self, _pid: Option<Pid>) -> TargetResult<ShouldTerminate, Self> {
        Err(refused(Errno::ENOSYS))
    }

    fn restart(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    fn support_configure_aslr(&mut self) -> Option<ConfigureAslrOps<'_, Self>> {
        Some(self)
    }

    fn support_configure_env(&mut self) -> Option<ConfigureEnvOps<'_, Self>> {
        Some(self)
    }

    fn support_configure_startup_shell(&mut self) -> Option<ConfigureStartupShellOps<'_, Self>> {
        Some(self)
    }

    fn support_configure_working_dir(&mut self) -> Option<ConfigureWorkingDirOps<'_, Self>> {
        Some(self)
    }

    fn support_current_active_pid(&mut self) -> Option<CurrentActivePidOps<'_, Self>> {
        Some(self)
    }
}

impl ConfigureAslr for Debuggee {
    fn cfg_aslr(&mut self, disable: bool) -> TargetResult<(), Self> {
        self.program.fixed_addresses = disable;
        Ok(())
    }
}

impl ConfigureEnv for Debuggee {
    fn set_env(&mut self, key: &[u8], value: Option<&[u8]>) -> TargetResult<(), Self> {
        let [key, value] = [key, value.unwrap_or_default()].map(OsStr::from_bytes);
        self.program.environment.set(key, value);
        Ok(())
    }

    fn remove_env(&mut self, key: &[u8]) -> TargetResult<(), Self> {
        self.program.environment.remove(OsStr::from_bytes(key));
        Ok(())
    }

    fn reset_env(&mut self) -> TargetResult<(), Self> {
        self.program.environment = self.original.environment.clone();
        Ok(())
    }
}

impl ConfigureStartupShell for Debuggee {
    /// Ignores the setting. The stub executes programs directly, because the packet holds the
    /// arguments ready for use and a shell could only change them.
    fn cfg_startup_with_shell(&mut self, _enabled: bool) -> TargetResult<(), Self> {
        Ok(())
    }
}

impl ConfigureWorkingDir for Debuggee {
    fn cfg_working_dir(&mut self, directory: Option<&[u8]>) -> TargetResult<(), Self> {
        let directory = directory.filter(|directory| !directory.is_empty());
        self.program.directory = directory.map(|directory| {
            let home = self.program.environment.get(OsStr::new("HOME"));
            // `~` is the home directory on the target, which only the stub knows.
            match (directory.strip_prefix(b"~"), home) {
                (Some(rest), Some(home)) if rest.is_empty() || rest[0] == b'/' => {
                    let mut path = home.to_owned();
                    path.push(OsStr::from_bytes(rest));
                    path.into()
                }
                _ => OsStr::from_bytes(directory).into(),
            }
        });
        Ok(())
    }
}

impl CurrentActivePid for Debuggee {
    fn current_active_pid(&mut self) -> Result<Pid, Self::Error> {
        let pid = self.pid().and_then(|pid| Pid::new(pid.0 as usize));
        Ok(pid.unwrap_or(NO_PID))
    }
}
