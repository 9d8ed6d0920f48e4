//! Names what the threads' system calls work on: files, the holders of their locks, the processes
//! at the other ends of pipes, and children.

use std::cell::OnceCell;

use crate::collect::{LocalProcess, PipeUsers};
use crate::model::{CallSubject, FileReference, NamedCall, OtherProcess};
use crate::platform::syscall::writes;

/// Names the files and processes of the calls of a process of this machine.
pub(in crate::cmd) fn name<'a>(
    calls: impl Iterator<Item = NamedCall<'a>>,
    process: &LocalProcess,
    pipes: &PipeUsers,
) {
    // Finding the children reads all processes, and many threads may wait for them.
    let all_children = OnceCell::new();
    for call in calls {
        match call.on {
            CallSubject::Children { awaited, processes } => {
                let all = || all_children.get_or_init(|| process.children());
                let pids = process
                    .awaited_children(call.tid, *awaited, all)
                    .into_iter();
                *processes = pids.map(named).collect();
            }
            CallSubject::FileLock {
                descriptor,
                name,
                holders,
            } => {
                *name = process.file(*descriptor);
                let pids = process.file_lock_holders(call.tid, *descriptor).into_iter();
                *holders = pids.map(named).collect();
            }
            CallSubject::File {
                reference: FileReference::Path(address),
                name,
                ..
            } => *name = process.path_at(*address),
            CallSubject::File {
                reference: FileReference::Descriptor(descriptor),
                name,
                other_end,
                is_complete,
            } => {
                *name = process
                    .file(*descriptor)
                    .and_then(|file| file_name(file, *descriptor));
                if let Some(pipe) = name.as_deref().filter(|name| name.starts_with("pipe:")) {
                    let users = pipes.at_other_end(pipe, writes(call.name));
                    *other_end = users.map(named).collect();
                    *is_complete = pipes.is_complete();
                }
            }
        }
    }
}

/// The name of the file behind a descriptor: a path, `pipe:[7]`, or `eventfd 5` for
/// `anon_inode:[eventfd]` at descriptor 5.
fn file_name(file: String, descriptor: i32) -> Option<String> {
    let Some(kind) = file.strip_prefix("anon_inode:") else {
        return Some(file);
    };
    let kind = kind.trim_start_matches('[').trim_end_matches(']');
    // The name says no more than `epoll_wait`.
    (kind != "eventpoll").then(|| format!("{kind} {descriptor}"))
}

fn named(pid: u64) -> OtherProcess {
    let process = u32::try_from(pid).map(LocalProcess::new);
    OtherProcess {
        pid,
        program: process.ok().and_then(|it| it.name()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_of_descriptors() {
        let name = |file: &str| file_name(file.to_owned(), 5);
        assert_eq!(name("/tmp/a").as_deref(), Some("/tmp/a"));
        assert_eq!(name("anon_inode:[eventfd]").as_deref(), Some("eventfd 5"));
        assert_eq!(name("anon_inode:inotify").as_deref(), Some("inotify 5"));
        assert_eq!(name("anon_inode:[eventpoll]"), None);
    }
}
