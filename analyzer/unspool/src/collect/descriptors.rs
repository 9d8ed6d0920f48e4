//! The files behind the descriptors of local processes, as looks at `/proc` show them.
//!
//! The recorder learns of a wait only after it has begun, and the program may have given the
//! descriptor to another file since. A file counts as known in two cases: the recorder reads it
//! during the wait, or it is a pipe or socket that the descriptor had before the wait began and
//! after that, and no other file has ever been seen there.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::kernel_state::file_of;
use super::local_process::monotonic_ns;
use crate::platform::syscall::writes;

/// A process of this machine, and one of its descriptors.
pub(super) type Descriptor = (u64, i32);

/// Starts of the names of calls that work on sockets only.
const ON_SOCKETS: &[&str] = &["accept", "connect", "recv", "sendto", "sendm"];

/// Permissions of a link in `/proc/PID/fd`, which are those of the descriptor (proc(5)).
pub(super) const MAY_READ: u32 = 0o400;
pub(super) const MAY_WRITE: u32 = 0o200;

/// The file that a descriptor had at each look since a time.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The file, as `/proc` names it, and the permissions of the link.
    file: (String, u32),
    /// The time of the first of these looks, by the monotonic clock.
    since_ns: u64,
    /// The time of the last one.
    last_ns: u64,
    /// The descriptor had another file, or was closed.
    is_reused: bool,
}

/// The last known files of descriptors.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    seen: HashMap<Descriptor, Seen>,
    /// Descriptors that had more than one file.
    reused: HashSet<Descriptor>,
    /// Descriptors that need no further look for the present records.
    looked: HashSet<Descriptor>,
}

impl Descriptors {
    /// Makes further calls of [`Self::look`] look again.
    pub(super) fn expire(&mut self) {
        self.looked.clear();
    }

    /// Forgets a process that has ended, or one whose id belongs to a new process.
    pub(super) fn forget(&mut self, pid: u64) {
        self.seen.retain(|(owner, _), _| *owner != pid);
        self.looked.retain(|(owner, _)| *owner != pid);
        self.reused.retain(|(owner, _)| *owner != pid);
    }

    /// Looks at a descriptor, unless that has happened for the present records.
    pub(super) fn look(&mut self, descriptor: Descriptor) -> Option<&Seen> {
        if self.looked.insert(descriptor) {
            let (pid, number) = descriptor;
            let mode = fs::symlink_metadata(format!("/proc/{pid}/fd/{number}"));
            let file = file_of(pid, number).zip(mode.ok());
            let file = file.map(|(file, mode)| (file, mode.permissions().mode()));
            self.add(descriptor, file, monotonic_ns());
        }
        self.seen.get(&descriptor)
    }

    /// Adds what a look has shown.
    fn add(&mut self, descriptor: Descriptor, file: Option<(String, u32)>, now_ns: u64) {
        let Some(file) = file else {
            if self.seen.remove(&descriptor).is_some() {
                self.reused.insert(descriptor);
            }
            return;
        };
        match self.seen.get_mut(&descriptor) {
            Some(seen) if seen.file == file => seen.last_ns = now_ns,
            _ => {
                if self.seen.contains_key(&descriptor) {
                    self.reused.insert(descriptor);
                }
                let seen = Seen {
                    file,
                    since_ns: now_ns,
                    last_ns: now_ns,
                    is_reused: self.reused.contains(&descriptor),
                };
                self.seen.insert(descriptor, seen);
            }
        }
    }
}

impl Seen {
    /// The time of the last look.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// True if the looks began before a wait, and the last one was later. Programs open named files
    /// again and again at one number, but keep the descriptors of pipes and sockets.
    pub(super) fn covers(&self, begin_ns: u64) -> bool {
        let (file, _) = &self.file;
        let is_kept = file.starts_with("pipe:") || file.starts_with("socket:");
        is_kept && !self.is_reused && (self.since_ns..=self.last_ns).contains(&begin_ns)
    }

    /// The file, if a call can wait for it. Otherwise the descriptor has been given to another one.
    pub(super) fn file_for(&self, call: &str) -> Option<&str> {
        let (file, mode) = &self.file;
        let needed = match call {
            _ if writes(call) => MAY_WRITE,
            _ if call.starts_with("read") || call.starts_with("pread") => MAY_READ,
            _ => 0,
        };
        let on_socket = ON_SOCKETS.iter().any(|start| call.starts_with(start));
        let is_possible = mode & needed == needed && (!on_socket || file.starts_with("socket:"));
        is_possible.then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTOR: Descriptor = (7, 3);

    /// The descriptor after looks at these times.
    fn looks(all: &[(u64, &str)]) -> Seen {
        let mut descriptors = Descriptors::default();
        for (ns, file) in all {
            descriptors.add(DESCRIPTOR, Some(((*file).to_owned(), 0o500)), *ns);
        }
        descriptors.seen.remove(&DESCRIPTOR).unwrap()
    }

    #[test]
    fn waits_between_equal_looks_have_a_file() {
        let covered = |looks: &Seen| [199, 200, 250, 300, 301].map(|ns| looks.covers(ns));
        let kept = looks(&[(200, "pipe:[2]"), (300, "pipe:[2]")]);
        assert_eq!(covered(&kept), [false, true, true, true, false]);
        let reused = looks(&[(100, "pipe:[1]"), (200, "pipe:[2]"), (300, "pipe:[2]")]);
        assert_eq!(covered(&reused), [false; 5]);
        let named = looks(&[(200, "/tmp/a"), (300, "/tmp/a")]);
        assert_eq!(covered(&named), [false; 5]);
    }

    #[test]
    fn closed_descriptors_have_no_file() {
        let mut descriptors = Descriptors::default();
        for (ns, file) in [
            (100, Some("pipe:[1]")),
            (200, None),
            (300, Some("pipe:[1]")),
        ] {
            let file = file.map(|file| (file.to_owned(), 0o500));
            descriptors.add(DESCRIPTOR, file, ns);
        }
        assert!(!descriptors.seen[&DESCRIPTOR].covers(300));
    }

    #[test]
    fn files_that_a_call_cannot_use() {
        let seen = looks(&[(100, "pipe:[1]")]);
        let files =
            ["read", "pread64", "write", "recvfrom", "ioctl"].map(|call| seen.file_for(call));
        let pipe = Some("pipe:[1]");
        assert_eq!(files, [pipe, pipe, None, None, pipe]);
    }

    #[test]
    fn looks_at_own_descriptors() {
        let (read, write) = std::io::pipe().unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&write);
        let mut descriptors = Descriptors::default();
        let descriptor = (std::process::id().into(), number);
        let seen = descriptors.look(descriptor).unwrap().clone();
        assert!(seen.file_for("write").unwrap().starts_with("pipe:["));
        assert_eq!(seen.file_for("read"), None);
        drop((read, write));
        assert_eq!(descriptors.look(descriptor).unwrap().file, seen.file);
        descriptors.expire();
        let now = descriptors.look(descriptor);
        assert!(now.is_none_or(|now| now.file != seen.file));
    }
}
