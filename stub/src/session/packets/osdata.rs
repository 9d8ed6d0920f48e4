//! `qXfer:osdata:read`: tables of this system's processes and resources (`info os`), from `/proc`.

mod ipc;
mod machine;
mod programs;
mod sockets;

use std::fmt::Write;
use std::fs;

use super::{Answer, range, transfer};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::xml::attribute;

type Columns = Vec<(&'static str, String)>;

struct Table {
    name: &'static str,
    about: &'static str,
    title: &'static str,
    rows: fn() -> Vec<Columns>,
}

const fn entry(
    name: &'static str,
    about: &'static str,
    title: &'static str,
    rows: fn() -> Vec<Columns>,
) -> Table {
    Table {
        name,
        about,
        title,
        rows,
    }
}

const TABLES: &[Table] = &[
    entry(
        "cpus",
        "Listing of all cpus/cores on the system",
        "CPUs",
        machine::cpus,
    ),
    entry(
        "files",
        "Listing of all file descriptors",
        "File descriptors",
        programs::files,
    ),
    entry(
        "modules",
        "Listing of all loaded kernel modules",
        "Kernel modules",
        machine::modules,
    ),
    entry(
        "msg",
        "Listing of all message queues",
        "Message queues",
        ipc::queues,
    ),
    entry(
        "processes",
        "Listing of all processes",
        "Processes",
        programs::processes,
    ),
    entry(
        "procgroups",
        "Listing of all process groups",
        "Process groups",
        programs::groups,
    ),
    entry(
        "semaphores",
        "Listing of all semaphores",
        "Semaphores",
        ipc::semaphores,
    ),
    entry(
        "shm",
        "Listing of all shared-memory regions",
        "Shared-memory regions",
        ipc::regions,
    ),
    entry(
        "sockets",
        "Listing of all internet-domain sockets",
        "Internet-domain sockets",
        sockets::all,
    ),
    entry(
        "threads",
        "Listing of all threads",
        "Threads",
        programs::threads,
    ),
];

pub(super) fn answer(session: &mut Session, _: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(2, |byte| *byte == b':');
    let name = parts.next().unwrap_or_default();
    let part = parts.next().unwrap_or_default();
    // Build the table only for the first part, so that all parts belong to the same table.
    if range(part).is_some_and(|(offset, _)| offset == 0) {
        // An unknown table is empty; gdb then reports that itself.
        session.os_table = table(name).unwrap_or_default().into_bytes();
    }
    transfer(&session.os_table, part)
}

fn table(name: &[u8]) -> Option<String> {
    let (kind, rows) = if name.is_empty() {
        let row = |table: &Table| {
            vec![
                ("Type", table.name.to_owned()),
                ("Description", table.about.to_owned()),
                ("Title", table.title.to_owned()),
            ]
        };
        ("types", TABLES.iter().map(row).collect())
    } else {
        let table = TABLES.iter().find(|table| table.name.as_bytes() == name)?;
        (table.name, (table.rows)())
    };
    let mut text = format!("<?xml version=\"1.0\"?>\n<osdata type=\"{kind}\">\n");
    for columns in rows {
        text.push_str("<item>");
        for (name, value) in columns {
            let value = attribute(value.as_bytes());
            let _ = write!(text, "<column name=\"{name}\">{value}</column>");
        }
        text.push_str("</item>\n");
    }
    text.push_str("</osdata>\n");
    Some(text)
}

fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The name of a process, or of a thread of it.
fn name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// Names of users or groups, from `/etc/passwd` or `/etc/group`, because a static binary has no
/// name service.
struct Names(String);

impl Names {
    fn of_users() -> Names {
        Names(fs::read_to_string("/etc/passwd").unwrap_or_default())
    }

    fn of_groups() -> Names {
        Names(fs::read_to_string("/etc/group").unwrap_or_default())
    }

    /// The name for a number, or the number itself if it has none.
    fn of(&self, number: u32) -> String {
        let line = self.0.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(number)).then_some(name)
        });
        line.map_or_else(|| number.to_string(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_include_our_own() {
        let table = table(b"processes").expect("there is such a table");
        let ours = format!("<column name=\"pid\">{}</column>", std::process::id());
        assert!(table.contains(&ours), "{table}");
        assert!(self::table(b"no such").is_none());
        assert!(self::table(b"").is_some_and(|types| types.contains("threads")));
    }
}
