//! System V's shared memory, semaphores and message queues, from `/proc/sysvipc`.

use std::collections::BTreeMap;
use std::fs;

use super::{Columns, Names, name};
use crate::sys::local_time;

/// How to show a value from the kernel.
enum As {
    Itself,
    Process,
    User,
    Group,
    Time,
}

/// gdb's column names with the kernel's headings.
type Table = [(&'static str, &'static str, As)];

pub(super) fn regions() -> Vec<Columns> {
    const TABLE: &Table = &[
        ("key", "key", As::Itself),
        ("shmid", "shmid", As::Itself),
        ("permissions", "perms", As::Itself),
        ("size", "size", As::Itself),
        ("creator command", "cpid", As::Process),
        ("last op. command", "lpid", As::Process),
        ("num attached", "nattch", As::Itself),
        ("user", "uid", As::User),
        ("group", "gid", As::Group),
        ("creator user", "cuid", As::User),
        ("creator group", "cgid", As::Group),
        ("last shmat() time", "atime", As::Time),
        ("last shmdt() time", "dtime", As::Time),
        ("last shmctl() time", "ctime", As::Time),
    ];
    rows("shm", TABLE)
}

pub(super) fn semaphores() -> Vec<Columns> {
    const TABLE: &Table = &[
        ("key", "key", As::Itself),
        ("semid", "semid", As::Itself),
        ("permissions", "perms", As::Itself),
        ("num semaphores", "nsems", As::Itself),
        ("user", "uid", As::User),
        ("group", "gid", As::Group),
        ("creator user", "cuid", As::User),
        ("creator group", "cgid", As::Group),
        ("last semop() time", "otime", As::Time),
        ("last semctl() time", "ctime", As::Time),
    ];
    rows("sem", TABLE)
}

pub(super) fn queues() -> Vec<Columns> {
    const TABLE: &Table = &[
        ("key", "key", As::Itself),
        ("msqid", "msqid", As::Itself),
        ("permissions", "perms", As::Itself),
        ("num used bytes", "cbytes", As::Itself),
        ("num messages", "qnum", As::Itself),
        ("last msgsnd() command", "lspid", As::Process),
        ("last msgrcv() command", "lrpid", As::Process),
        ("user", "uid", As::User),
        ("group", "gid", As::Group),
        ("creator user", "cuid", As::User),
        ("creator group", "cgid", As::Group),
        ("last msgsnd() time", "stime", As::Time),
        ("last msgrcv() time", "rtime", As::Time),
        ("last msgctl() time", "ctime", As::Time),
    ];
    rows("msg", TABLE)
}

fn rows(file: &str, table: &Table) -> Vec<Columns> {
    let text = fs::read_to_string(format!("/proc/sysvipc/{file}")).unwrap_or_default();
    let (users, groups) = (Names::of_users(), Names::of_groups());
    let mut lines = text.lines().map(|line| line.split_whitespace());
    let headings: Vec<&str> = lines.next().into_iter().flatten().collect();
    let shown = |value: &str, how: &As| {
        let number = value.parse().unwrap_or(0);
        match how {
            As::Itself => value.to_owned(),
            // A process that has ended has no name any more.
            As::Process => Some(name(number, number))
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| value.to_owned()),
            As::User => users.of(number),
            As::Group => groups.of(number),
            As::Time => value
                .parse()
                .ok()
                .filter(|seconds| *seconds != 0)
                .map(local_time)
                .unwrap_or_default(),
        }
    };
    lines
        .map(|words| {
            let values: BTreeMap<&str, &str> = headings.iter().copied().zip(words).collect();
            let column = |(name, heading, how): &(&'static str, &str, As)| {
                let value = values.get(heading).copied().unwrap_or_default();
                (*name, shown(value, how))
            };
            table.iter().map(column).collect()
        })
        .collect()
}
