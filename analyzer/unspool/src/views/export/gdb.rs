//! A command file for gdb that names the threads of a live session or of a core.
//!
//! gdb has no command that selects a thread by its kernel id, so the commands are a `python` block
//! ("Threads In Python", gdb's manual). It is ASCII, because gdb decodes it by the user's locale.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write;

use super::exporter::{Error, Exporter, Options};
use super::tracks::Tracks;
use crate::model::{Key, Model};
use crate::views::text::line::clean;

#[derive(Debug)]
pub(super) struct Gdb;

impl Exporter for Gdb {
    fn name(&self) -> &'static str {
        "gdb"
    }

    fn about(&self) -> &'static str {
        "gdb commands that name the threads of the running program or of its core"
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        let names = names(model);
        if names.is_empty() {
            let text = "no thread with a known TID was there when the recording ended, \
                        so there is nothing to name in gdb";
            return Err(Error::Missing(text.to_owned()));
        }
        write!(
            out,
            "# Names threads by what they do, as Unspool recorded it. In gdb: source FILE\n\
             python\n\
             unspool_pid = {}\n\
             unspool_names = {{}}\n",
            model.target.pid
        )?;
        for (tid, name) in names {
            writeln!(out, "unspool_names[{tid}] = {}", literal(&name))?;
        }
        out.write_all(COMMANDS.as_bytes())?;
        Ok(())
    }
}

/// What follows the names. A name that the terminal's encoding does not have is shown with `?`.
const COMMANDS: &str = r#"
def unspool_name_threads():
    named, others = 0, 0
    for inferior in gdb.inferiors():
        threads = {(one.ptid[1] or one.ptid[2]): one for one in inferior.threads()}
        # Some servers and cores have no process id, but the first thread's id equals it.
        if unspool_pid and unspool_pid != inferior.pid and unspool_pid not in threads:
            continue
        for tid, thread in threads.items():
            name = unspool_names.get(tid)
            if name is None or not thread.is_valid():
                others += 1
                continue
            try:
                thread.name = name
            except UnicodeError:
                thread.name = name.encode("ascii", "replace").decode("ascii")
            named += 1
    if named == 0:
        print("This session has no thread that Unspool recorded in process %d." % unspool_pid)
    else:
        print("Unspool named %d of %d threads." % (named, named + others))

unspool_name_threads()
end
"#;

/// The names of the threads that were there when the recording ended, by their TIDs. Names that
/// belong to several identities are followed by the identity.
fn names(model: &Model) -> BTreeMap<u64, String> {
    let tracks = Tracks::of(model);
    let recording = &model.recording;
    let slack_ns = recording.slack_ns();
    let remaining = model.threads.iter().zip(&tracks.threads);
    // The kernel may give the TID of an ended thread to a thread that the recording does not have.
    let remaining = remaining
        .filter(|(thread, _)| recording.was_there_at_the_end(thread, slack_ns))
        .filter_map(|(thread, track)| Some((thread.tid?, thread.key, track.name.as_str())));
    let by_tid: BTreeMap<u64, (Key, &str)> = remaining
        .map(|(tid, key, name)| (tid, (key, name)))
        .collect();
    let mut keys: HashMap<&str, HashSet<Key>> = HashMap::new();
    for (key, name) in by_tid.values() {
        keys.entry(name).or_default().insert(*key);
    }
    let full = |(key, name): (Key, &str)| match keys.get(name).map_or(0, HashSet::len) {
        0 | 1 => name.to_owned(),
        _ => format!("{name} {key}"),
    };
    let named = by_tid.iter().map(|(tid, named)| (*tid, full(*named)));
    named.collect()
}

/// A string in Python.
fn literal(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in clean(text).chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fixture::{PID, Stage};

    fn exported(stage: &mut Stage) -> Result<String, Error> {
        let mut out = Vec::new();
        Gdb.write(&stage.model(), &Options::default(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn threads_of_several_identities_are_told_apart() {
        let mut stage = Stage::new();
        stage.spawn(
            PID,
            11,
            1,
            "orders!work@orders.c:20",
            &["orders!main@orders.c:9"],
        );
        stage.spawn(
            PID,
            12,
            2,
            "orders!work@orders.c:20",
            &["orders!more@orders.c:7"],
        );
        stage.spawn(
            PID,
            13,
            3,
            "orders!log@orders.c:30",
            &["orders!main@orders.c:10"],
        );
        stage.end(10);
        let text = exported(&mut stage).unwrap();
        let names: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("unspool_names["))
            .collect();
        let [first, second, third, main] = names[..] else {
            panic!("{text}");
        };
        assert!(first.starts_with("11] = \"work ") && second.starts_with("12] = \"work "));
        assert_ne!(first[2..], second[2..]);
        assert_eq!(third, "13] = \"log\"");
        assert_eq!(main, "4242] = \"main\"");
    }

    #[test]
    fn ended_threads_are_left_out() {
        let mut stage = Stage::new();
        stage.spawn(
            PID,
            11,
            1,
            "orders!work@orders.c:20",
            &["orders!main@orders.c:9"],
        );
        stage.exit(11, 5);
        stage.end(5000);
        let text = exported(&mut stage).unwrap();
        assert!(
            !text.contains("names[11]") && text.contains("names[4242]"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_written_without_threads() {
        let mut out = Vec::new();
        let error = Gdb.write(&Model::default(), &Options::default(), &mut out);
        assert!(matches!(error, Err(Error::Missing(_))), "{error:?}");
        assert!(out.is_empty());
    }

    #[test]
    fn literals_are_ascii_and_closed() {
        assert_eq!(literal("a\"b\\\nü"), r#""a\"b\\\U0000fffd\U000000fc""#);
    }
}
