//! Tests the names of C++ threads, all of which start in libstdc++: each is named after its
//! callable.
//!
//! The program prints the purpose of each thread. nm must have that symbol at the reported address,
//! and an inspection of the same program must give the same names.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::process::{self, Background};
use unspool_tests::{qemu, report, waiting};

/// A thread's statement, and its expected name.
const FUNCTIONS: [(&str, &str); 6] = [
    ("plain", "plain"),
    ("numbered", "numbered"),
    ("also_numbered", "also_numbered"),
    ("given", "given"),
    ("work", "Pool::work"),
    ("routine", "routine"),
];
/// Callables named by their types, and nm's symbols for them.
const OBJECTS: [(&str, &str); 6] = [
    ("lambda", "main::"),
    ("capturing", "main::"),
    ("job", "Job"),
    ("task", "Task<int>"),
    ("stopped", "main::"),
    ("later", "main::"),
];
/// Callables whose objects contain no function address.
const TYPES: [(&str, &str); 2] = [
    ("serve", "std::thread(void (Pool::*)())"),
    ("answer", "std::async(int (*)())"),
];

/// The order in which main creates them.
const MADE: [&str; ALL] = [
    "plain",
    "numbered",
    "also_numbered",
    "given",
    "work",
    "serve",
    "lambda",
    "capturing",
    "job",
    "task",
    "stopped",
    "routine",
    "later",
    "answer",
];

const ALL: usize = FUNCTIONS.len() + OBJECTS.len() + TYPES.len();

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, compiler, options) in [
        ("gcc-O0", "g++", &["-O0"][..]),
        ("gcc-O2", "g++", &["-O2"]),
        ("gcc-O2-fixed", "g++", &["-O2", "-fno-PIE", "-no-pie"]),
        ("gcc-O2-static", "g++", &["-O2", "-static"]),
        (
            "gcc-O2-relr",
            "g++",
            &["-O2", "-Wl,-z,pack-relative-relocs"],
        ),
        ("clang-O2", "clang++", &["-O2"]),
    ] {
        let check = move || traced(compiler, options);
        trials.push(crate::trial(format!("callables::{name}"), check));
    }
    for (name, compiler, options) in [
        ("gcc-O0-g", "g++", &["-O0", "-g"][..]),
        ("gcc-O1", "g++", &["-O1"]),
        ("clang-O0", "clang++", &["-O0"]),
    ] {
        let check = move || as_looked_at(compiler, options);
        trials.push(crate::trial(format!("callables::inspect-{name}"), check));
    }
    for option in ["-marm", "-mthumb"] {
        let check = move || emulated(option);
        trials.push(crate::trial(format!("callables::qemu{option}"), check));
    }
    trials.push(crate::trial("callables::gdbserver", gdbserver));
    trials
}

fn compile(compiler: &str, options: &[&str]) -> Result<(TempDir, PathBuf)> {
    let mut command = vec![compiler, "-std=c++20", "-Wall", "-Werror", "-pthread"];
    command.extend(options);
    waiting::compile_in(".", "callables.cpp", &command)
}

/// The threads' statements, by thread id.
fn said(lines: impl Iterator<Item = std::io::Result<String>>) -> Result<BTreeMap<u64, String>> {
    lines
        .map(|line| {
            let line = line?;
            let (tid, what) = line.split_once(' ').with_context(|| line.clone())?;
            Ok((tid.parse()?, what.to_owned()))
        })
        .collect()
}

fn report(capture: &Path, more: &[&str]) -> Result<Value> {
    let mut command = report::unspool()?;
    command.arg("report").arg(capture).args(more);
    let run = process::run(command.args(["--format", "json"]), LIMIT)?.success()?;
    Ok(serde_json::from_slice(&run.stdout)?)
}

/// The threads of a report or an inspection, by their statements.
fn by_word(document: &Value, said: &BTreeMap<u64, String>) -> Result<BTreeMap<String, Value>> {
    let threads = document["threads"].as_array().context("threads")?.iter();
    let known = threads.filter_map(|thread| {
        let what = said.get(&thread["tid"].as_u64()?)?;
        Some((what.clone(), thread.clone()))
    });
    let known: BTreeMap<String, Value> = known.collect();
    ensure!(known.len() == ALL, "{said:?}\n{document:#}");
    Ok(known)
}

fn record(program: &Path) -> Result<BTreeMap<String, Value>> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(&capture);
    let run = process::run(command.arg("--").arg(program), LIMIT)?.success()?;
    let said = said(run.stdout.lines())?;
    by_word(&report(&capture, &[])?, &said)
}

/// Demangled symbols by address, from binutils.
fn symbols(program: &Path) -> Result<Vec<(u64, String)>> {
    let run = process::run(Command::new("nm").arg("-C").arg(program), LIMIT)?.success()?;
    let text = run.text();
    let lines = text.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        let (_, name) = rest.split_once(' ')?;
        Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
    });
    Ok(lines.collect())
}

/// The symbols at the reported address of a thread's function.
fn at<'a>(symbols: &'a [(u64, String)], thread: &Value) -> Vec<&'a str> {
    let svma = thread["function_place"]["svma"].as_u64();
    let here = symbols
        .iter()
        .filter(|(address, _)| Some(*address & !1) == svma);
    here.map(|(_, name)| name.as_str()).collect()
}

/// Whether the start code of this object's type is among these symbols.
fn runs(symbols: &[&str], object: &str) -> bool {
    let state = |name: &&str| {
        name.starts_with("std::thread::_State_impl<")
            && name.ends_with("::_M_run()")
            && name.contains(&format!("std::tuple<{object}"))
    };
    symbols.iter().any(state)
}

fn as_made(threads: &BTreeMap<String, Value>, symbols: &[(u64, String)]) -> Result<()> {
    for (what, name) in FUNCTIONS {
        let thread = &threads[what];
        let here = at(symbols, thread);
        let has = |symbol: &&str| symbol.split('(').next() == Some(name);
        ensure!(
            thread["function"] == name && here.iter().any(has),
            "{what} at {here:?}: {thread:#}"
        );
    }
    for (what, name) in OBJECTS {
        let thread = &threads[what];
        let here = at(symbols, thread);
        let called = thread["function"].as_str().unwrap_or_default();
        ensure!(
            called.starts_with(name) && runs(&here, called),
            "{what} at {here:?}: {thread:#}"
        );
    }
    for (what, name) in TYPES {
        let thread = &threads[what];
        ensure!(thread["function"] == name, "{what}: {thread:#}");
    }
    let mut keys: Vec<&Value> = threads.values().map(|thread| &thread["key"]).collect();
    keys.sort_unstable_by_key(|key| key.as_str());
    keys.dedup();
    ensure!(keys.len() == ALL, "{threads:#?}");
    Ok(())
}

/// Records with tracepoints, twice, and without symbols, where only the address is shown.
fn traced(compiler: &str, options: &[&str]) -> Result<()> {
    let (_folder, program) = compile(compiler, options)?;
    let symbols = symbols(&program)?;
    let threads = record(&program)?;
    as_made(&threads, &symbols)?;
    for (what, again) in record(&program)? {
        let first = &threads[&what];
        ensure!(again["key"] == first["key"], "{first:#}\n{again:#}");
    }
    if options.contains(&"-static") {
        // A static program without symbols cannot be recorded.
        return Ok(());
    }
    let mut strip = Command::new("strip");
    process::run(strip.arg(&program), LIMIT)?.success()?;
    let bare = record(&program)?;
    for (what, object) in OBJECTS {
        let thread = &bare[what];
        let here = at(&symbols, thread);
        ensure!(runs(&here, object), "{what} at {here:?}: {thread:#}");
        // The address identifies the thread.
        let known = &threads[what];
        ensure!(thread["key"] == known["key"], "{thread:#}\n{known:#}");
    }
    Ok(())
}

/// An inspection gives the same names. It knows the functions for [`TYPES`].
fn as_looked_at(compiler: &str, options: &[&str]) -> Result<()> {
    let (_folder, program) = compile(compiler, options)?;
    let threads = record(&program)?;
    let mut running = Command::new(&program);
    let mut running = Background(process::start(running.arg("stay").stdout(Stdio::piped()))?);
    let output = running.0.stdout.take().context("piped")?;
    let said = said(BufReader::new(output).lines().take(ALL))?;
    let mut look = report::unspool()?;
    look.args(["inspect", "--format", "json", "--attach"]);
    look.arg(running.0.id().to_string());
    let run = process::run(&mut look, LIMIT)?.success()?;
    let seen = by_word(&serde_json::from_slice(&run.stdout)?, &said)?;
    for (what, _) in FUNCTIONS.iter().chain(&OBJECTS) {
        let (thread, seen) = (&threads[*what], &seen[*what]);
        ensure!(
            thread["function"] == seen["function"],
            "{thread:#}\n{seen:#}"
        );
    }
    Ok(())
}

fn connect(address: &str, capture: &Path, more: &[&str]) -> Result<()> {
    let mut command = report::unspool()?;
    command.args(["record", "-q", "--connect", address, "-o"]);
    process::run(command.arg(capture).args(more), LIMIT)?.success()?;
    Ok(())
}

/// Records by breakpoints. QEMU does not report all thread ids, so the threads are matched by
/// main's order of creation.
fn emulated(option: &str) -> Result<()> {
    let (folder, program) = compile("arm-linux-gnueabihf-g++", &["-O2", option])?;
    let started = qemu::start(&program, &[], Stdio::null())?;
    let capture = folder.path().join("capture");
    let sysroot = qemu::sysroot()?.to_str().context("a path")?;
    let more = ["--sysroot", sysroot];
    connect(
        &format!("unix:{}", started.socket.display()),
        &capture,
        &more,
    )?;
    let document = report(&capture, &more)?;
    let threads = document["threads"].as_array().context("threads")?;
    let mut created: Vec<&Value> = threads
        .iter()
        .filter(|t| t["origin"] == "created")
        .collect();
    created.sort_by_key(|thread| thread["created_ns"].as_u64());
    ensure!(created.len() == ALL, "{document:#}");
    let named = MADE.iter().map(|what| (*what).to_owned());
    as_made(
        &named.zip(created.into_iter().cloned()).collect(),
        &symbols(&program)?,
    )
}

/// Records by breakpoints.
fn gdbserver() -> Result<()> {
    let (folder, program) = compile("g++", &["-O2"])?;
    let mut server = Command::new("gdbserver");
    server.args(["--once", "127.0.0.1:0"]).arg(&program);
    server.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Background(process::start(&mut server)?);
    let mut says = BufReader::new(server.0.stderr.take().context("piped")?).lines();
    let port = loop {
        let line = says.next().transpose()?.context("gdbserver ended")?;
        if let Some(port) = line.strip_prefix("Listening on port ") {
            break port.to_owned();
        }
    };
    std::thread::spawn(move || says.count());
    let capture = folder.path().join("capture");
    connect(&format!("127.0.0.1:{port}"), &capture, &[])?;
    let output = server.0.stdout.take().context("piped")?;
    let said = said(BufReader::new(output).lines())?;
    as_made(
        &by_word(&report(&capture, &[])?, &said)?,
        &symbols(&program)?,
    )
}
