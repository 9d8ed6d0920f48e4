//! The processes of this machine that hold locks of files: flock(2), and the record locks of
//! fcntl(2).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::local_process::text;
use super::pipes::numbers;

/// A lock that a process holds or waits for, from `/proc/locks` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileLock<'a> {
    waits: bool,
    /// `FLOCK`, `POSIX`, `OFDLCK`, or a lease.
    kind: &'a str,
    is_exclusive: bool,
    /// The process that asked for the lock; `None` for a lock of an open file description.
    pid: Option<u64>,
    inode: u64,
    /// The first and the last byte.
    range: (u64, u64),
}

impl FileLock<'_> {
    /// Parses `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`. A waiting lock has `->` after its
    /// number.
    fn parse(line: &str) -> Option<FileLock<'_>> {
        let mut words = line.split_whitespace().skip(1).peekable();
        let waits = words.next_if_eq(&"->").is_some();
        let kind = words.next()?;
        let is_exclusive = words.nth(1)? == "WRITE";
        let pid = words.next()?.parse().ok().filter(|pid| *pid > 0);
        let (_, inode) = words.next()?.rsplit_once(':')?;
        let start = words.next()?.parse().ok()?;
        let end = words.next()?.parse().unwrap_or(u64::MAX);
        Some(FileLock {
            waits,
            kind,
            is_exclusive,
            pid,
            inode: inode.parse().ok()?,
            range: (start, end),
        })
    }

    /// True if one of two locks of a file excludes the other.
    fn excludes(&self, other: &FileLock<'_>) -> bool {
        // flock(2) and fcntl(2) do not see each other's locks.
        let is_flock = |lock: &FileLock<'_>| lock.kind == "FLOCK";
        self.inode == other.inode
            && is_flock(self) == is_flock(other)
            && (self.is_exclusive || other.is_exclusive)
            && self.range.0 <= other.range.1
            && other.range.0 <= self.range.1
    }

    /// True if it belongs to an open file description, which several processes may have.
    fn is_of_description(&self) -> bool {
        matches!(self.kind, "FLOCK" | "OFDLCK")
    }
}

/// The processes that hold the lock of a file for which a process waits. Empty if they are not
/// known.
pub(super) fn holders(pid: u64, descriptor: i32) -> BTreeSet<u64> {
    let file = fs::metadata(format!("/proc/{pid}/fd/{descriptor}"));
    let locks = text("/proc/locks").unwrap_or_default();
    let Ok(inode) = file.map(|file| file.ino()) else {
        return BTreeSet::new();
    };
    let mut pids = BTreeSet::new();
    for lock in obstacles(&locks, pid, inode) {
        let users = match lock.is_of_description() {
            true => description_users(&lock),
            false => BTreeSet::new(),
        };
        match users.is_empty() {
            true => pids.extend(lock.pid),
            false => pids.extend(users),
        }
    }
    pids
}

/// The held locks of a file that exclude a lock for which the process waits.
fn obstacles(locks: &str, pid: u64, inode: u64) -> Vec<FileLock<'_>> {
    let locks: Vec<FileLock<'_>> = locks.lines().filter_map(FileLock::parse).collect();
    let (waiting, held): (Vec<_>, Vec<_>) = locks.into_iter().partition(|lock| lock.waits);
    let own = waiting.into_iter().filter(|lock| {
        let is_own = lock.pid.is_none_or(|waiter| waiter == pid);
        lock.inode == inode && is_own
    });
    let own: Vec<FileLock<'_>> = own.collect();
    let held = held.into_iter();
    held.filter(|lock| own.iter().any(|own| own.excludes(lock)))
        .collect()
}

/// The processes that have the open file description of a lock.
fn description_users(lock: &FileLock<'_>) -> BTreeSet<u64> {
    let holds = |pid: u64, descriptor: u64| {
        let file = fs::metadata(format!("/proc/{pid}/fd/{descriptor}"));
        let same = file.is_ok_and(|file| file.ino() == lock.inode);
        same && {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
            let info = info.unwrap_or_default();
            let locks = info.lines().filter_map(|line| line.strip_prefix("lock:"));
            locks
                .filter_map(FileLock::parse)
                .any(|held| held.kind == lock.kind && held.range == lock.range)
        }
    };
    numbers("/proc")
        .filter(|pid| numbers(&format!("/proc/{pid}/fd")).any(|it| holds(*pid, it)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "\
        1: POSIX  ADVISORY  WRITE 50 08:01:77 0 9\n\
        1: -> POSIX  ADVISORY  WRITE 60 08:01:77 5 5\n\
        2: POSIX  ADVISORY  WRITE 51 08:01:77 10 EOF\n\
        3: FLOCK  ADVISORY  WRITE 52 08:01:77 0 EOF\n\
        4: OFDLCK ADVISORY  READ  -1 08:01:88 0 EOF\n\
        4: -> OFDLCK ADVISORY  WRITE -1 08:01:88 0 0\n\
        5: FLOCK  ADVISORY  READ 53 08:01:99 0 EOF\n\
        6: FLOCK  ADVISORY  READ 54 08:01:99 0 EOF\n\
        6:  -> FLOCK  ADVISORY  WRITE 60 08:01:99 0 EOF\n";

    #[test]
    fn locks_that_exclude_the_awaited_one() {
        let pids = |inode| -> Vec<Option<u64>> {
            let found = obstacles(LOCKS, 60, inode).into_iter();
            found.map(|lock| lock.pid).collect()
        };
        assert_eq!(pids(77), [Some(50)]);
        assert_eq!(pids(88), [None]);
        assert_eq!(pids(99), [Some(53), Some(54)]);
        assert!(obstacles(LOCKS, 61, 77).is_empty());
    }

    #[test]
    fn users_of_an_own_lock() {
        let path = std::env::temp_dir().join(format!("lock-of-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        file.lock().unwrap();
        let inode = file.metadata().unwrap().ino();
        let lock = FileLock {
            waits: false,
            kind: "FLOCK",
            is_exclusive: true,
            pid: None,
            inode,
            range: (0, u64::MAX),
        };
        let users = description_users(&lock);
        fs::remove_file(path).unwrap();
        assert_eq!(users, BTreeSet::from([std::process::id().into()]));
    }
}
