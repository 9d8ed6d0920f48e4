//! The file that the process executes.
//!
//! Separate from `program` because it is known before any module is.

use std::path::Path;

use unspool_rsp::StopReply;

use super::auxv::Auxv;
use super::error::Error;
use super::memory;
use super::rendezvous;
use super::session::Session;
use crate::maps;

/// Number of bytes at the beginning of a file that hold its headers, and usually its build-id.
const BEGINNING: usize = 4096;

/// An executable, and how the process was started from it.
#[derive(Debug, Clone, Default)]
pub(super) struct Executable {
    pub(super) auxv: Auxv,
    /// Path on the target.
    pub(super) path: String,
    /// The path by which the program was started, if known.
    pub(super) started_as: String,
    /// `started_as` is a link to the executable.
    pub(super) started_by_link: bool,
}

impl Executable {
    /// Finds out which file the process runs. `named` is the file that the user named.
    pub(super) fn of(session: &mut Session, named: Option<&Path>) -> Result<Executable, Error> {
        let client = &mut session.client;
        let auxv = Auxv::read(client);
        let on_target = client.exec_file(session.pid).ok().flatten();
        let on_target = on_target.map(|path| maps::without_mark(&path).to_owned());
        let started_as = Some(auxv.file_name).filter(|at| *at != 0);
        let started_as = started_as.and_then(|at| memory::string(client, at));
        let started_as = started_as.filter(|path| !path.is_empty());
        let given = named.map(|file| file.to_string_lossy().into_owned());
        let path = on_target
            .or_else(|| started_as.clone())
            .or(given)
            .ok_or(Error::UnknownProgram)?;
        let started_as = started_as.unwrap_or_default();
        let file_name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        let started_by_link =
            file_name(&started_as) != file_name(&path) && leads_to_executable(session, &started_as);
        Ok(Executable {
            auxv,
            path,
            started_as,
            started_by_link,
        })
    }

    /// True if a program that existed before the recording has not executed its first instruction
    /// yet.
    pub(super) fn has_not_begun(
        &self,
        session: &mut Session,
        stop: &StopReply,
    ) -> Result<bool, Error> {
        let StopReply::Stopped {
            thread: Some(thread),
            ..
        } = stop
        else {
            return Ok(false);
        };
        if self.auxv.interpreter != 0 {
            let (client, abi) = (&mut session.client, &session.abi);
            return Ok(rendezvous::address(client, abi, &self.auxv).is_none());
        }
        let pc = session.pc_of(*thread, stop)?;
        Ok(pc == Some(session.abi.code_address(self.auxv.entry)))
    }
}

/// True if the path by which the program was started leads to its executable, not to a script. Both
/// files then have the same beginning: ELF headers and usually the build-id.
fn leads_to_executable(session: &mut Session, started_as: &str) -> bool {
    let Some(pid) = session.pid else {
        return false;
    };
    // Links in /dev/fd lead to the recorder's own files.
    let path = match started_as {
        "" => return false,
        path if path.starts_with("/dev/fd/") => return false,
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/proc/{pid}/cwd/{path}"),
    };
    let mut beginning = |path: &str| {
        let mut file = session.client.open_file(path).ok()?;
        file.read_at(0, BEGINNING).ok()
    };
    let started = beginning(&path);
    let is_elf = |bytes: &Vec<u8>| bytes.starts_with(b"\x7fELF");
    started.as_ref().is_some_and(is_elf) && started == beginning(&format!("/proc/{pid}/exe"))
}
