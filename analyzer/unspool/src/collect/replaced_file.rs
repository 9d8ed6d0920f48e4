//! Files that a process has mapped and that their paths no longer lead to.
//!
//! An upgrade deletes or replaces the files of programs that run. The kernel keeps the mapped
//! files, and only it can still read them.

use super::session::Session;
use crate::maps;

/// Maximum size in bytes of a file read through the server.
const FILE_LIMIT: u64 = 512 << 20;

/// A path of the file that a program of this machine has mapped at an address, unless `path` leads
/// to it.
pub(super) fn on_this_machine(session: &mut Session, path: &str, avma: u64) -> Option<String> {
    let (pid, maps) = (session.pid?, session.maps()?);
    maps::file_behind(&maps, pid, path, avma)
}

/// Reads the file that the program has mapped at an address through the server. Its path is `path`
/// unless it was deleted or replaced.
pub(super) fn fetch(session: &mut Session, path: &str, avma: u64) -> Result<Vec<u8>, String> {
    let mut paths = vec![path.to_owned()];
    let maps = session.maps().unwrap_or_default();
    let mapping = maps::file_at(&maps, avma);
    if let (Some(file), Some(pid)) = (mapping.filter(|file| file.is_deleted()), session.pid) {
        paths = file.kernel_paths(pid).to_vec();
        let program = session.client.exec_file(session.pid).ok().flatten();
        if program.as_deref() != Some(file.path) {
            paths.truncate(1);
        }
    }
    let mut failure = String::new();
    for path in paths {
        match session.client.read_file(&path, FILE_LIMIT) {
            Ok(bytes) => return Ok(bytes),
            Err(error) => failure = error.to_string(),
        }
    }
    Err(failure)
}
