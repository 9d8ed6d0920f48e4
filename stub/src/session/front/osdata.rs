//! `qXfer:osdata:read`: what runs on this system (`info os`), from `/proc`.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Answer, range, transfer};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::xml::attribute;

type Columns = Vec<(&'static str, String)>;

struct Table {
    name: &'static str,
    about: &'static str,
    rows: fn() -> Vec<Columns>,
}

const TABLES: &[Table] = &[
    Table {
        name: "processes",
        about: "Listing of all processes",
        rows: processes,
    },
    Table {
        name: "threads",
        about: "Listing of all threads",
        rows: threads,
    },
    Table {
        name: "cpus",
        about: "Listing of all cpus/cores on the system",
        rows: cpus,
    },
];

pub(super) fn answer(session: &mut Session, _: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(2, |byte| *byte == b':');
    let name = parts.next().unwrap_or_default();
    let part = parts.next().unwrap_or_default();
    // Read in parts, it is still one table.
    if range(part).is_some_and(|(offset, _)| offset == 0) {
        let Some(table) = table(name) else {
            return Answer::Reply(b"E00".to_vec());
        };
        session.os_table = table.into_bytes();
    }
    transfer(&session.os_table, part)
}

fn table(name: &[u8]) -> Option<String> {
    let (kind, rows) = if name.is_empty() {
        let row = |table: &Table| {
            let (first, others) = table.name.split_at(1);
            vec![
                ("Type", table.name.to_owned()),
                ("Description", table.about.to_owned()),
                ("Title", first.to_uppercase() + others),
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

fn processes() -> Vec<Columns> {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let row = |pid: u32| {
        let owner = fs::metadata(format!("/proc/{pid}")).ok()?.uid();
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let words = words.strip_suffix(b"\0").unwrap_or(&words);
        let command = if words.is_empty() {
            // A kernel thread.
            format!("[{}]", name(pid, pid))
        } else {
            String::from_utf8_lossy(words).replace('\0', " ")
        };
        let mut cores: Vec<u32> = numbers(&format!("/proc/{pid}/task"))
            .into_iter()
            .filter_map(|tid| core(pid, tid))
            .collect();
        cores.sort_unstable();
        cores.dedup();
        let cores: Vec<String> = cores.iter().map(u32::to_string).collect();
        Some(vec![
            ("pid", pid.to_string()),
            ("user", user(&users, owner)),
            ("command", command),
            ("cores", cores.join(",")),
        ])
    };
    numbers("/proc").into_iter().filter_map(row).collect()
}

fn threads() -> Vec<Columns> {
    let mut rows = Vec::new();
    for pid in numbers("/proc") {
        for tid in numbers(&format!("/proc/{pid}/task")) {
            rows.push(vec![
                ("pid", pid.to_string()),
                ("command", name(pid, pid)),
                ("tid", tid.to_string()),
                (
                    "core",
                    core(pid, tid).map_or(String::new(), |core| core.to_string()),
                ),
            ]);
        }
    }
    rows
}

fn cpus() -> Vec<Columns> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let paragraphs = text
        .split("\n\n")
        .filter(|text| text.starts_with("processor"));
    let value = |paragraph: &str, keys: &[&str]| {
        let mut lines = paragraph.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| keys.contains(&key.trim()));
        found.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    paragraphs
        .map(|paragraph| {
            vec![
                ("processor", value(paragraph, &["processor"])),
                ("model", value(paragraph, &["model name", "CPU part"])),
            ]
        })
        .collect()
}

fn name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

fn core(pid: u32, tid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    // Field 39, counted behind the name, which may contain anything (proc(5)).
    let after = stat.rsplit_once(") ")?.1;
    after.split(' ').nth(39 - 3)?.parse().ok()
}

/// Names in `/etc/passwd` are enough: a static binary has no name service.
fn user(users: &str, owner: u32) -> String {
    let line = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(owner)).then_some(name)
    });
    line.map_or_else(|| owner.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_in_the_list() {
        let table = table(b"processes").expect("there is such a table");
        let ours = format!("<column name=\"pid\">{}</column>", std::process::id());
        assert!(table.contains(&ours), "{table}");
        assert!(self::table(b"no such").is_none());
        assert!(self::table(b"").is_some_and(|types| types.contains("threads")));
    }
}
