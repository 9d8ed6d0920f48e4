//! Finds out which programs the traced process starts in other processes.
//!
//! Separate from `children.rs`, which keeps traps out of such a process. A child of vfork(2) stays
//! traced until it executes a file, so its program is exact. The stub detaches from a child of
//! fork(2) at once, because its own parent may want to trace it. The stub then polls `/proc` for a
//! short time, until the child has executed something.

use std::time::{Duration, Instant};

use crate::sys::Tid;

use super::Tracee;

/// First interval between two checks of a forked process. Later ones are longer.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Longest time for which a forked process is watched.
const WATCH_LIMIT: Duration = Duration::from_secs(1);
/// Number of forked processes that are watched at the same time.
const MAX_WATCHED: usize = 64;

/// Forked processes that have not executed a file yet.
#[derive(Default)]
pub(super) struct ForkedProcesses(Vec<Forked>);

struct Forked {
    pid: Tid,
    since: Instant,
    next_check: Instant,
}

impl Tracee {
    /// Logs a new process, and watches it if nothing will report what it executes.
    pub(super) fn process_started(&mut self, creator: Tid, pid: Tid, forked: bool) {
        if !self.subscriptions.follow_threads() {
            return;
        }
        for log in self.subscriptions.logs() {
            log.started(pid, creator);
        }
        if forked && self.forks.forked.0.len() < MAX_WATCHED {
            let since = Instant::now();
            self.forks.forked.0.push(Forked {
                pid,
                since,
                next_check: since + CHECK_INTERVAL,
            });
        }
    }

    /// Logs the file that a child executes now.
    pub(super) fn process_executed(&mut self, pid: Tid) {
        if let Some(file) = executable(pid) {
            for log in self.subscriptions.logs() {
                log.executed(pid, file.clone());
            }
        }
    }

    /// Time of the next check of forked processes.
    pub(crate) fn forked_check_due(&self) -> Option<Instant> {
        self.forks
            .forked
            .0
            .iter()
            .map(|forked| forked.next_check)
            .min()
    }

    /// Checks the forked processes that are due.
    pub(super) fn check_forked(&mut self) {
        if self.forks.forked.0.is_empty() {
            return;
        }
        let now = Instant::now();
        let own = executable(self.process.any_task());
        let mut named = Vec::new();
        self.forks.forked.0.retain_mut(|forked| {
            if forked.next_check > now {
                return true;
            }
            let Some(file) = executable(forked.pid) else {
                return false;
            };
            if Some(&file) != own.as_ref() {
                named.push((forked.pid, file));
                return false;
            }
            let age = now.duration_since(forked.since);
            forked.next_check = now + CHECK_INTERVAL.max(age / 4);
            age < WATCH_LIMIT
        });
        for (pid, file) in named {
            for log in self.subscriptions.logs() {
                log.executed(pid, file.clone());
            }
        }
    }
}

fn executable(pid: Tid) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    Some(path.into_os_string().into_vec())
}
