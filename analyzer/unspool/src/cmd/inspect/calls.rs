//! Names what the threads' system calls work on: files, the processes at the other ends of pipes,
//! and children.

use std::collections::{BTreeMap, BTreeSet};

use crate::collect::{LocalProcess, PipeUser, pipe_users};
use crate::model::{CallSubject, Model, OtherProcess};
use crate::platform::syscall::writes;

/// Names the files and processes of the calls of an inspected process of this machine.
pub(super) fn name(model: &mut Model, process: &LocalProcess) {
    let mut pipes = BTreeSet::new();
    let knows_children = process.has_our_thread_ids();
    let is_alone = model.threads.len() == 1;
    let own_pid = model.target.pid;
    for (_, subject) in model.call_subjects() {
        match subject {
            CallSubject::Child(child) if knows_children => *child = named(child.pid),
            CallSubject::Child(_) => {}
            CallSubject::File {
                descriptor, name, ..
            } => {
                // `anon_inode:[eventpoll]` says no more than `epoll_wait`.
                let file = process.file(*descriptor);
                *name = file.filter(|file| !file.starts_with("anon_inode:"));
                pipes.extend(name.clone().filter(|name| name.starts_with("pipe:")));
            }
        }
    }
    let users = pipe_users(&pipes);
    for (call, subject) in model.call_subjects() {
        if let CallSubject::File {
            name: Some(name),
            other_end,
            ..
        } = subject
        {
            *other_end = at_other_end(&users, name, writes(call));
            // The only thread of a process cannot end its own wait.
            other_end.retain(|other| !(is_alone && other.pid == own_pid));
        }
    }
}

fn at_other_end(
    users: &BTreeMap<String, Vec<PipeUser>>,
    pipe: &str,
    writes: bool,
) -> Vec<OtherProcess> {
    let users = users.get(pipe).into_iter().flatten();
    let users = users.filter(|user| if writes { user.reads } else { user.writes });
    users.map(|user| named(user.pid)).collect()
}

fn named(pid: u64) -> OtherProcess {
    let process = u32::try_from(pid).map(LocalProcess::new);
    OtherProcess {
        pid,
        program: process.ok().and_then(|it| it.name()).unwrap_or_default(),
    }
}
