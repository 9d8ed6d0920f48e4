//! The processes of this machine that have the ends of pipes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};

/// A process that has an end of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipeUser {
    /// Its id.
    pub pid: u64,
    /// It can read.
    pub reads: bool,
    /// It can write.
    pub writes: bool,
}

/// The users of pipes.
#[derive(Debug, Default)]
pub struct PipeUsers {
    /// By the pipes' names in `/proc` (`pipe:[1234]`).
    pub by_pipe: BTreeMap<String, Vec<PipeUser>>,
    /// False if the recorder may not examine all processes.
    pub is_complete: bool,
}

/// Finds the users of pipes, by the names that `/proc` gives to them.
pub fn pipe_users(pipes: &BTreeSet<String>) -> PipeUsers {
    let mut users: BTreeMap<String, Vec<PipeUser>> = BTreeMap::new();
    let mut is_complete = true;
    for pid in numbers("/proc").filter(|_| !pipes.is_empty()) {
        let folder = fs::read_dir(format!("/proc/{pid}/fd"));
        is_complete &= !is_denied(&folder);
        for descriptor in numbers(&format!("/proc/{pid}/fd")) {
            let file = fs::read_link(format!("/proc/{pid}/fd/{descriptor}"));
            is_complete &= !is_denied(&file);
            let Ok(file) = file else {
                continue;
            };
            let Some(pipe) = file.to_str().filter(|file| pipes.contains(*file)) else {
                continue;
            };
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
            let Some((reads, writes)) = info.ok().and_then(|info| access(&info)) else {
                continue;
            };
            let all = users.entry(pipe.to_owned()).or_default();
            match all.last_mut().filter(|user| user.pid == pid) {
                Some(user) => {
                    user.reads |= reads;
                    user.writes |= writes;
                }
                None => all.push(PipeUser { pid, reads, writes }),
            }
        }
    }
    PipeUsers {
        by_pipe: users,
        is_complete,
    }
}

fn is_denied<T>(read: &io::Result<T>) -> bool {
    let error = read.as_ref().err();
    error.is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// The names of a folder's entries, as far as they are numbers.
pub(super) fn numbers(folder: &str) -> impl Iterator<Item = u64> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a descriptor can read and write, from its `fdinfo` (proc(5)).
fn access(info: &str) -> Option<(bool, bool)> {
    let mut lines = info.lines();
    let flags = lines.find_map(|line| line.strip_prefix("flags:"))?;
    let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
    // O_RDONLY, O_WRONLY and O_RDWR (open(2)).
    Some(match flags & 3 {
        0 => (true, false),
        1 => (false, true),
        _ => (true, true),
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn access_of_descriptors() {
        let info = |flags: &str| access(&format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t9\n"));
        assert_eq!(info("0100000"), Some((true, false)));
        assert_eq!(info("02000001"), Some((false, true)));
        assert_eq!(info("0100002"), Some((true, true)));
        assert_eq!(access("pos:\t0\n"), None);
    }

    #[test]
    fn users_of_an_own_pipe() {
        let (reader, writer) = std::io::pipe().unwrap();
        let name = |descriptor: i32| {
            let link = fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap();
            link.to_str().unwrap().to_owned()
        };
        let pipe = name(reader.as_raw_fd());
        let own = |reads, writes| PipeUser {
            pid: std::process::id().into(),
            reads,
            writes,
        };
        let users = || {
            pipe_users(&BTreeSet::from([pipe.clone()]))
                .by_pipe
                .remove(&pipe)
                .unwrap()
        };
        assert_eq!(users(), [own(true, true)]);
        drop(writer);
        assert_eq!(users(), [own(true, false)]);
    }
}
