//! The processes of this machine that have the ends of pipes.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::descriptors::{MAY_READ, MAY_WRITE};
use super::local_process::LocalProcess;

/// A process that has an end of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PipeUser {
    pid: u64,
    /// It is a recorder or a stub. These have the ends that they inherited, but use none of them.
    is_unspool: bool,
    reads: bool,
    writes: bool,
}

/// The users of all pipes, read when they are first needed.
#[derive(Debug, Default)]
pub struct PipeUsers(OnceCell<Users>);

#[derive(Debug)]
struct Users {
    /// By the pipes' names in `/proc` (`pipe:[1234]`).
    by_pipe: BTreeMap<String, Vec<PipeUser>>,
    is_complete: bool,
}

impl PipeUsers {
    /// The processes that can end the wait of a thread that reads from a pipe, or writes to it.
    pub fn at_other_end(&self, pipe: &str, writes: bool) -> impl Iterator<Item = u64> {
        let users = self.users().by_pipe.get(pipe).into_iter().flatten();
        let users = users.filter(|user| !user.is_unspool);
        let users = users.filter(move |user| if writes { user.reads } else { user.writes });
        users.map(|user| user.pid)
    }

    /// False if the recorder may not examine all processes.
    pub fn is_complete(&self) -> bool {
        self.users().is_complete
    }

    fn users(&self) -> &Users {
        self.0.get_or_init(Users::read)
    }
}

impl Users {
    fn read() -> Users {
        let mut users: BTreeMap<String, Vec<PipeUser>> = BTreeMap::new();
        let mut is_complete = shows_all_processes();
        let own = executable("self");
        for pid in numbers("/proc") {
            let process = u32::try_from(pid).map(LocalProcess::new);
            let Some(task) = process.ok().and_then(|process| process.living_task()) else {
                continue;
            };
            let is_unspool = OnceCell::new();
            let folder = format!("{task}/fd");
            is_complete &= !is_denied(&fs::read_dir(&folder));
            for descriptor in numbers(&folder) {
                let link = format!("{folder}/{descriptor}");
                let file = fs::read_link(&link);
                is_complete &= !is_denied(&file);
                let Some(pipe) = file
                    .ok()
                    .and_then(|file| file.into_os_string().into_string().ok())
                else {
                    continue;
                };
                if !pipe.starts_with("pipe:") {
                    continue;
                }
                let Ok(link) = fs::symlink_metadata(link) else {
                    continue;
                };
                let mode = link.permissions().mode();
                let [reads, writes] = [MAY_READ, MAY_WRITE].map(|needed| mode & needed != 0);
                let all = users.entry(pipe).or_default();
                match all.last_mut().filter(|user| user.pid == pid) {
                    Some(user) => {
                        user.reads |= reads;
                        user.writes |= writes;
                    }
                    None => all.push(PipeUser {
                        pid,
                        is_unspool: *is_unspool.get_or_init(|| is_unspool_process(pid, &own)),
                        reads,
                        writes,
                    }),
                }
            }
        }
        Users {
            by_pipe: users,
            is_complete,
        }
    }
}

/// The file that a process executes, by its id or `self`.
fn executable(process: &str) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/exe")).ok()
}

/// True for a recorder and for a stub. `own` is this process's file.
fn is_unspool_process(pid: u64, own: &Option<PathBuf>) -> bool {
    executable(&pid.to_string()).is_some_and(|file| {
        let is_stub = file.file_name().is_some_and(|name| name == "unspool-stub");
        is_stub || own.as_ref() == Some(&file)
    })
}

fn is_denied<T>(read: &io::Result<T>) -> bool {
    let error = read.as_ref().err();
    error.is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Whether `/proc` shows the processes of all users and PID namespaces.
fn shows_all_processes() -> bool {
    /// The first namespace (`PROC_PID_INIT_INO` in the kernel).
    const FIRST: &str = "pid:[4026531836]";
    let namespace = fs::read_link("/proc/self/ns/pid");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let proc = mounts.lines().find(|line| line.contains(" /proc proc "));
    namespace.is_ok_and(|it| it.as_os_str() == FIRST)
        && proc.is_some_and(|proc| !proc.contains("hidepid="))
}

/// The names of a folder's entries, as far as they are numbers.
pub(super) fn numbers(folder: &str) -> impl Iterator<Item = u64> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn an_own_process() {
        let own = executable("self");
        assert!(is_unspool_process(std::process::id().into(), &own));
        let parent = std::os::unix::process::parent_id();
        assert!(!is_unspool_process(parent.into(), &own));
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
            is_unspool: true,
            reads,
            writes,
        };
        // A process that another test starts has all descriptors until it executes its program.
        let users = || {
            let mut users = Users::read().by_pipe.remove(&pipe).unwrap();
            users.retain(|user| user.pid == u64::from(std::process::id()));
            users
        };
        assert_eq!(users(), [own(true, true)]);
        drop(writer);
        assert_eq!(users(), [own(true, false)]);
    }
}
