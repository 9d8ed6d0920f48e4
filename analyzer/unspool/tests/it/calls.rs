//! Compares recorded calls with the programs' own logs, with the hit counts of gdb's breakpoints,
//! and with the kernel's view of waiting threads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use unspool::model::calls::{Call, Calls, Moment};
use unspool::model::{Model, Symbolizer, base_name};
use unspool_capture::Capture;
use unspool_image::Finder;

use crate::running::{Run, unspool};

mod functions;

/// Builds one of the programs in tests/programs.
fn program(dir: &Path, name: &str, options: &[&str]) -> PathBuf {
    program_by("cc", dir, name, options)
}

fn program_by(compiler: &str, dir: &Path, name: &str, options: &[&str]) -> PathBuf {
    let output = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/programs")
        .join(name)
        .with_extension("c");
    let status = Command::new(compiler)
        .args(["-pthread", "-o"])
        .arg(&output)
        .args(options)
        .arg(source)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "cannot build {name}");
    output
}

/// A recorded call with names.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    tid: u64,
    function: String,
    futex: bool,
    call: Call,
    /// Left, lost or unfinished. `None` for functions whose ends are not recorded.
    end: Option<&'static str>,
    /// The functions of its path, the called one first.
    path: Vec<String>,
    /// The file of its caller.
    caller: String,
}

/// The contents of a recording.
struct Recorded {
    stdout: String,
    stderr: String,
    /// The calls, in the order in which they began.
    calls: Vec<Told>,
    count: Calls,
    model: Model,
}

impl Recorded {
    fn of(dir: &TempDir, options: &[&str], words: &[&Path], arguments: &[&str]) -> Recorded {
        let file = dir.path().join("capture");
        let mut command = unspool();
        command
            .args(["record", "-q", "-o"])
            .arg(&file)
            .args(options)
            .arg("--")
            .args(words)
            .args(arguments);
        let run = Run::of(&mut command);
        run.succeeds();
        Recorded::read(&file, run)
    }

    fn read(file: &Path, run: Run) -> Recorded {
        let capture = Capture::read(file).expect("a capture");
        let mut symbolizer = Symbolizer::new(Finder::default());
        let model = Model::build(&capture, &mut symbolizer);
        let dropped = (model.recording.dropped, model.recording.calls_dropped);
        assert_eq!(dropped, (0, 0), "{:?}", model.notes);
        let mut calls: BTreeMap<u64, Told> = BTreeMap::new();
        let count = Calls::read(&capture, &model, &mut symbolizer, &mut |all, moment| {
            let (call, end) = match moment {
                Moment::Missing { .. } => return,
                Moment::Entered(call) => (call, None),
                Moment::Left(call) => (call, Some("left")),
                Moment::Lost { call, .. } | Moment::CutShort { call, .. } => (call, Some("lost")),
                Moment::Unfinished { call, .. } => (call, Some("unfinished")),
            };
            let function = all.function(call.function);
            let frames = || all.path(call.path).physical();
            let name = |frame: &unspool::model::NamedFrame| {
                frame.place.function.as_deref().unwrap_or("?").to_owned()
            };
            let caller = frames().nth(1).and_then(|frame| frame.place.module_name());
            let told = Told {
                tid: model
                    .thread(call.thread)
                    .and_then(|thread| thread.tid)
                    .unwrap_or(0),
                function: function.name.clone(),
                futex: function.futex,
                call: call.clone(),
                end,
                path: frames().map(name).collect(),
                caller: caller.unwrap_or("?").to_owned(),
            };
            calls.insert(call.number, told);
        });
        Recorded {
            stdout: run.stdout,
            stderr: run.stderr,
            calls: calls.into_values().collect(),
            count,
            model,
        }
    }

    /// The calls that one file's functions made, without futex calls.
    fn from(&self, file: &Path) -> impl Iterator<Item = &Told> {
        let file = base_name(file.to_str().unwrap()).to_owned();
        // The library of a static program is in the same file.
        let own = ["main", "work", "private_objects"];
        let calls = self.calls.iter();
        calls.filter(move |told| {
            let caller = told.path.get(1).map_or("?", String::as_str);
            !told.futex && told.caller == file && own.contains(&caller)
        })
    }
}

/// `tid function object result`, as the program prints it.
type Line = (u64, String, u64, i64);

fn noted(stdout: &str) -> Vec<Line> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let object = u64::from_str_radix(words[2].trim_start_matches("0x"), 16).unwrap();
        (
            words[0].parse().unwrap(),
            words[1].to_owned(),
            object,
            words[3].parse().unwrap(),
        )
    };
    stdout.lines().map(line).collect()
}

/// Each thread's lines, in order.
fn by_thread(lines: impl IntoIterator<Item = Line>) -> BTreeMap<u64, Vec<Line>> {
    let mut threads: BTreeMap<u64, Vec<Line>> = BTreeMap::new();
    for line in lines {
        threads.entry(line.0).or_default().push(line);
    }
    threads
}

fn all_operations(options: &[&str], record: &[&str], threads: &str, rounds: &str) {
    let dir = tempfile::tempdir().unwrap();
    let locks = program(dir.path(), "locks", options);
    let options: Vec<&str> = ["--sync=all", "--budget", "none"]
        .iter()
        .chain(record)
        .copied()
        .collect();
    let recorded = Recorded::of(&dir, &options, &[&locks], &[threads, rounds]);
    let seen = recorded.from(&locks).map(|told| {
        let call = &told.call;
        let result = call.result.map_or(0, |result| i64::from(result as i32));
        (told.tid, told.function.clone(), call.args[0], result)
    });
    let (seen, noted) = (by_thread(seen), by_thread(noted(&recorded.stdout)));
    assert_eq!(
        seen.keys().collect::<Vec<_>>(),
        noted.keys().collect::<Vec<_>>()
    );
    for (thread, noted) in &noted {
        let seen = &seen[thread];
        let same = seen
            .iter()
            .zip(noted)
            .take_while(|(seen, noted)| seen == noted);
        let same = same.count();
        assert!(
            seen == noted,
            "thread {thread}: {} of {} are the same; then {:?}, where the program has {:?}",
            same,
            noted.len(),
            &seen[same..(same + 3).min(seen.len())],
            &noted[same..(same + 3).min(noted.len())],
        );
    }
    assert_eq!(recorded.count.strangers, 0);
    let lost = recorded
        .calls
        .iter()
        .filter(|told| told.end == Some("lost"));
    assert_eq!(lost.count(), 0);
    // Every call with a recorded end ended after it began, and before the thread's next one began.
    for tid in noted.keys() {
        let of: Vec<&Told> = recorded
            .from(&locks)
            .filter(|told| told.tid == *tid)
            .collect();
        for two in of.windows(2) {
            if let Some(left) = two[0].call.left_ns {
                assert!(
                    two[0].call.entered_ns <= left && left <= two[1].call.entered_ns,
                    "{two:?}"
                );
            }
        }
    }
    for told in recorded.from(&locks) {
        assert!(
            told.path
                .iter()
                .any(|name| name == "main" || name == "work"),
            "{told:?}"
        );
    }
}

#[test]
fn recorded_operations_equal_the_programs_log() {
    all_operations(&["-O2"], &[], "4", "20");
}

#[test]
fn operations_of_a_static_program_are_recorded() {
    all_operations(&["-O2", "-static"], &[], "3", "10");
}

#[test]
fn operations_are_recorded_by_traps() {
    all_operations(&["-O2"], &["--probes", "traps"], "3", "10");
}

#[test]
fn operations_are_recorded_by_breakpoints() {
    all_operations(&["-O2"], &["--probes", "breakpoints"], "2", "5");
}

/// Reads a note on how calls were recorded, such as `... (4 of 135 probes use traps; ...)`.
fn uses_jumps(note: &str) -> bool {
    let counts = note
        .split_once(" probes use traps")
        .and_then(|(before, _)| {
            let (_, counts) = before.rsplit_once('(')?;
            counts.split_once(" of ")
        });
    match counts {
        Some((traps, all)) => traps.parse::<u32>().unwrap() < all.parse().unwrap(),
        None => note.starts_with("No probe stopped a thread"),
    }
}

/// A recording must not stop a thread that creates another: the tracepoints for which the analyzer
/// allows a jump must have one.
#[test]
fn creations_are_recorded_by_jumps() {
    let dir = tempfile::tempdir().unwrap();
    let locks = program(dir.path(), "locks", &["-O2"]);
    for options in [&[][..], &["--sync"]] {
        let log = dir.path().join("log");
        let options = [options, &["--rsp-log", log.to_str().unwrap()]].concat();
        Recorded::of(&dir, &options, &[&locks], &["1", "5"]);
        let log = std::fs::read_to_string(log).unwrap();
        // `-> QTDP:N:ADDR:E:0:0:FLENGTH` defines a tracepoint that may have a jump.
        let fast = log.lines().filter_map(|line| {
            let (number, rest) = line.split_once("-> QTDP:")?.1.split_once(':')?;
            rest.contains(":F").then_some(number)
        });
        let fast: Vec<_> = fast.collect();
        assert!(fast.len() >= 4, "{fast:?}");
        // The reply to `qUnspoolPlaces` ends with the numbers of the tracepoints with traps.
        let asked = log.rfind("-> qUnspoolPlaces").expect("a request");
        let reply = log[asked..].split_once("<- ").expect("a reply").1;
        let traps = reply.lines().next().and_then(|line| line.split_once(';'));
        let traps: Vec<_> = traps.expect("traps").1.split(',').collect();
        let stops = |number: &&str| traps.contains(number);
        assert!(!fast.iter().any(stops), "{traps:?} stop, of {fast:?}");
    }
}

/// The program's jumps and traps must record the same: threads with their identities, and each
/// thread's calls with paths, objects and results.
#[test]
fn jumps_and_traps_record_the_same_calls() {
    let dir = tempfile::tempdir().unwrap();
    let locks = program(dir.path(), "locks", &["-O2", "-no-pie"]);
    let told = |probes: &str| {
        let options = ["--sync=all", "--budget", "none", "--probes", probes];
        let recorded = Recorded::of(&dir, &options, &[&locks], &["1", "20"]);
        let stops = recorded.model.notes.iter();
        let stops = stops.filter(|note| uses_jumps(&note.text)).count();
        assert_eq!(
            stops,
            usize::from(probes == "tracepoints" && std::env::consts::ARCH == "x86_64"),
            "{:?}",
            recorded.model.notes
        );
        let threads: Vec<_> = recorded
            .model
            .threads
            .iter()
            .map(|thread| (thread.key.to_string(), thread.creator(), thread.detached))
            .collect();
        let mut calls: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for told in recorded.calls.iter().filter(|told| !told.futex) {
            let result = told.call.result.map(|result| result as i32);
            let object = told.call.object.as_ref().map(|(_, bytes)| bytes.len());
            let call = (
                told.function.clone(),
                told.end,
                told.path.clone(),
                result,
                object,
            );
            calls.entry(told.tid).or_default().push(call);
            // A global object is at the same address in each run.
            let at = told.call.args[0];
            if at < 1 << 32 {
                calls.entry(0).or_default().push((
                    format!("{at:#x}"),
                    None,
                    Vec::new(),
                    None,
                    None,
                ));
            }
        }
        if let Some(all) = calls.get_mut(&0) {
            all.sort();
        }
        (threads, calls.into_values().collect::<Vec<_>>())
    };
    let (jumps, traps) = (told("tracepoints"), told("traps"));
    assert_eq!(jumps.0, traps.0);
    assert_eq!(jumps.1.len(), traps.1.len());
    for (jumps, traps) in jumps.1.iter().zip(&traps.1) {
        let same = jumps
            .iter()
            .zip(traps)
            .take_while(|(one, other)| one == other)
            .count();
        assert!(
            jumps == traps,
            "after {same}: {:?}, {:?}",
            jumps.get(same),
            traps.get(same)
        );
    }
}

#[test]
fn a_convoy_is_waits_for_one_mutex_with_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let convoy = program(dir.path(), "convoy", &["-O2"]);
    for probes in ["tracepoints", "breakpoints"] {
        let options = ["--sync", "--budget", "none", "--probes", probes];
        let recorded = Recorded::of(&dir, &options, &[&convoy], &["6", "100"]);
        let mut lines = recorded.stdout.lines();
        let (door, holder) = lines.next().unwrap().split_once(' ').unwrap();
        let door = u64::from_str_radix(door.trim_start_matches("0x"), 16).unwrap();
        let waiters: Vec<u64> = lines.map(|line| line.parse().unwrap()).collect();
        for tid in &waiters {
            let mut own = recorded.calls.iter().filter(|told| told.tid == *tid);
            let first = own
                .next()
                .unwrap_or_else(|| panic!("{tid} did not wait: {}", recorded.stderr));
            assert!(first.futex, "{first:?}");
            let call = &first.call;
            assert!(call.left_ns.is_some(), "{:#?}", recorded.calls);
            assert_eq!(call.args[0], door);
            let waited = call.left_ns.unwrap() - call.entered_ns;
            assert!(
                waited > 100_000_000,
                "{waited} ns; it is held for 100 ms once all wait"
            );
            assert!(
                first.path.iter().any(|name| name == "pass"),
                "{:?}",
                first.path
            );
            assert!(
                first.path.iter().any(|name| name.contains("mutex_lock")),
                "{:?}",
                first.path
            );
            // nptl's struct __pthread_mutex_s: lock, count, owner
            let (at, bytes) = call.object.as_ref().expect("the mutex");
            assert_eq!(*at, door);
            let owner = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
            assert_eq!(owner.to_string(), holder);
        }
    }
}

#[test]
fn uncontended_locks_are_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let inversion = program(dir.path(), "inversion", &["-O2"]);
    let recorded = Recorded::of(&dir, &["--sync", "--budget", "none"], &[&inversion], &[]);
    let mutexes = recorded
        .calls
        .iter()
        .filter(|told| told.path.iter().any(|name| name.contains("mutex")));
    assert_eq!(mutexes.count(), 0);
    // Most of its joins, in main, do wait.
    for told in &recorded.calls {
        assert!(told.path.contains(&"main".to_owned()), "{told:?}");
    }
    assert!(!recorded.count.functions.is_empty());
}
