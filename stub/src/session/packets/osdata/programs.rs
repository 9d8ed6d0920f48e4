//! Processes, their groups, threads and files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Columns, Names, name, numbers};
use crate::sys::Tid;
use crate::sys::stat::Stat;

pub(super) fn processes() -> Vec<Columns> {
    let users = Names::of_users();
    let row = |pid: u32| {
        let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let mut cores: Vec<String> = numbers(&format!("/proc/{pid}/task"))
            .into_iter()
            .filter_map(|tid| field(pid, tid, CORE))
            .collect();
        cores.sort_unstable();
        cores.dedup();
        Some(vec![
            ("pid", pid.to_string()),
            ("user", users.of(owner)),
            ("command", command_line(pid)?),
            ("cores", cores.join(",")),
        ])
    };
    numbers("/proc").into_iter().filter_map(row).collect()
}

/// Process groups, each with its leader first.
pub(super) fn groups() -> Vec<Columns> {
    let group = |pid| Some((field(pid, pid, GROUP)?.parse().ok()?, pid));
    let mut processes: Vec<(u32, u32)> = numbers("/proc").into_iter().filter_map(group).collect();
    processes.sort_unstable_by_key(|(leader, pid)| (*leader, leader != pid, *pid));
    let row = |(leader, pid): (u32, u32)| {
        Some(vec![
            ("pgid", leader.to_string()),
            ("leader command", name(leader, leader)),
            ("pid", pid.to_string()),
            ("command line", command_line(pid)?),
        ])
    };
    processes.into_iter().filter_map(row).collect()
}

pub(super) fn threads() -> Vec<Columns> {
    let mut rows = Vec::new();
    for pid in numbers("/proc") {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            rows.push(vec![
                ("pid", pid.to_string()),
                ("command", name(pid, pid)),
                ("tid", tid.to_string()),
                ("core", field(pid, tid, CORE).unwrap_or_default()),
            ]);
        }
    }
    rows
}

pub(super) fn files() -> Vec<Columns> {
    let mut rows = Vec::new();
    for pid in numbers("/proc") {
        for number in numbers(&format!("/proc/{pid}/fd")) {
            // The file may have been closed meanwhile.
            let Ok(file) = fs::read_link(format!("/proc/{pid}/fd/{number}")) else {
                continue;
            };
            rows.push(vec![
                ("pid", pid.to_string()),
                ("command", name(pid, pid)),
                ("file descriptor", number.to_string()),
                ("name", file.to_string_lossy().into_owned()),
            ]);
        }
    }
    rows
}

fn command_line(pid: u32) -> Option<String> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.strip_suffix(b"\0").unwrap_or(&words);
    Some(if words.is_empty() {
        // A kernel thread.
        format!("[{}]", name(pid, pid))
    } else {
        String::from_utf8_lossy(words).replace('\0', " ")
    })
}

/// Field numbers of `stat`, as in proc(5).
const GROUP: usize = 5;
const CORE: usize = 39;

fn field(pid: u32, tid: u32, number: usize) -> Option<String> {
    let [process, thread] = [pid, tid].map(|id| Tid(id.cast_signed()));
    let stat = Stat::of_thread(process, thread)?;
    stat.field(number).map(str::to_owned)
}
