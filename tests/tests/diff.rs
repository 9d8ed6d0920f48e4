//! Tests `unspool diff` on a program and its variants with one planted change each.
//!
//! Each variant is a build of its own, with symbols and stripped. Other programs of the machine
//! disturb single recordings, so a comparison may be repeated with new recordings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use super::critical;
use unspool_tests::process::{self, Run};
use unspool_tests::{report, trial, waiting, workspace};

const LIMIT: Duration = Duration::from_secs(120);
/// Comparisons that are made until one is as expected.
const ATTEMPTS: usize = 4;
/// Pairs of equal runs that are compared.
const EQUAL_PAIRS: usize = 6;

/// A planted change, and the effect that must be first.
struct Case {
    name: &'static str,
    option: &'static str,
    kinds: &'static [&'static str],
    cause: &'static str,
    /// Names of the item in a build with symbols.
    names: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "moved_lock",
        option: "-DLOCKED",
        kinds: &["lock"],
        cause: "contention",
        names: &["table"],
    },
    Case {
        name: "new_pool",
        option: "-DPOOL",
        kinds: &["threads"],
        cause: "new",
        names: &["audit"],
    },
    Case {
        name: "slower_section",
        option: "-DSLOW",
        kinds: &["threads", "function"],
        cause: "work",
        names: &["serve", "parse"],
    },
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial::alone("diff::equal_runs".to_owned(), equal_runs),
        trial::alone("diff::of_other_processes".to_owned(), of_other_processes),
        trial::alone("diff::lock_waits".to_owned(), || lock_waits(false)),
        trial::alone("diff::lock_waits_of_processes".to_owned(), || {
            lock_waits(true)
        }),
        crate::trial("diff::several_recordings".to_owned(), several_recordings),
        crate::trial("diff::exit_codes".to_owned(), exit_codes),
        crate::trial("diff::bad_files".to_owned(), bad_files),
    ];
    for case in CASES {
        for stripped in [false, true] {
            let suffix = if stripped { "_stripped" } else { "" };
            let name = format!("diff::{}{suffix}", case.name);
            trials.push(trial::alone(name, move || is_first(case, stripped)));
        }
    }
    trials
}

/// Compiles a variant.
pub(super) fn build(option: &str, stripped: bool) -> Result<(TempDir, PathBuf)> {
    let symbols = if stripped { "-s" } else { "-g" };
    let command = ["gcc", "-std=gnu11", "-O1", "-pthread", symbols, option];
    waiting::compile_in("critical", "compare.c", &command)
}

pub(super) fn record(program: &Path, capture: &Path) -> Result<()> {
    record_with(&["--sync", "--budget", "none"], &[program], capture)
}

/// Records a program with its arguments.
fn record_with(options: &[&str], program: &[&Path], capture: &Path) -> Result<()> {
    let mut command = critical::first_served(&workspace::unspool()?);
    command.args(["record", "-q", "-o"]).arg(capture);
    command.args(options).arg("--").args(program);
    process::run(&mut command, LIMIT)?.success()?;
    Ok(())
}

pub(super) fn diff(arguments: &[&Path], options: &[&str]) -> Result<Run> {
    let mut command: Command = report::unspool()?;
    command.arg("diff").args(arguments).args(options);
    process::run(&mut command, LIMIT)
}

/// The comparison as JSON, and whether `--fail-on regression` failed.
fn compare(before: &Path, after: &Path) -> Result<(Value, bool)> {
    let options = ["--format", "json", "--fail-on", "regression"];
    let run = diff(&[before, after], &options)?;
    let code = run.code()?;
    ensure!(code == 0 || code == 3, "exit code {code}\n{run}");
    ensure!((code == 3) == run.stderr.contains("failing: "), "{run}");
    Ok((serde_json::from_slice(&run.stdout)?, code == 3))
}

fn is_first(case: &Case, stripped: bool) -> Result<()> {
    let (folder, before) = build("-DORIGINAL", stripped)?;
    let (_folder, after) = build(case.option, stripped)?;
    let captures = ["before", "after"].map(|name| folder.path().join(name));
    let mut failures = Vec::new();
    for _ in 0..ATTEMPTS {
        record(&before, &captures[0])?;
        record(&after, &captures[1])?;
        let (diff, failed) = compare(&captures[0], &captures[1])?;
        match check(case, &diff, stripped) {
            Ok(()) if failed => return Ok(()),
            Ok(()) => failures.push("--fail-on did not fail".to_owned()),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    bail!("{}", failures.join("\n"))
}

fn check(case: &Case, diff: &Value, stripped: bool) -> Result<()> {
    let first = &diff["effects"][0];
    ensure!(first["noise"] == false, "no effect: {:#}", diff["net_ns"]);
    let kind = first["kind"].as_str().unwrap_or_default();
    ensure!(
        case.kinds.contains(&kind) && first["cause"] == case.cause,
        "{first:#}"
    );
    let index = first["index"].as_u64().context("an index")?;
    let list = match kind {
        "threads" => "threads",
        "lock" => "objects",
        _ => "functions",
    };
    let item = &diff[list][usize::try_from(index)?];
    let name = item["function"].as_str().or(item["name"].as_str());
    let known = name.is_some_and(|name| case.names.contains(&name));
    ensure!(stripped || known, "{item:#}");
    // The other threads are joined: only the added pool is new.
    let threads = diff["threads"].as_array().context("threads")?;
    let unjoined = threads.iter().filter(|threads| {
        let number = |side: &str| threads["number"][side]["max"].as_u64().unwrap_or(0);
        number("before") == 0 || number("after") == 0
    });
    let expected = usize::from(case.cause == "new");
    ensure!(unjoined.count() == expected, "{threads:#?}");
    Ok(())
}

/// Equal runs have no regression. One pair of them may be disturbed.
fn equal_runs() -> Result<()> {
    let (folder, program) = build("-DORIGINAL", false)?;
    let capture = |number: usize| folder.path().join(format!("capture{number}"));
    record(&program, &capture(0))?;
    let mut failures = Vec::new();
    for pair in 0..EQUAL_PAIRS {
        record(&program, &capture(pair + 1))?;
        let (diff, failed) = compare(&capture(pair), &capture(pair + 1))?;
        if failed {
            failures.push(format!("{diff:#}"));
        }
        let threads = diff["threads"].as_array().context("threads")?;
        ensure!(threads.len() == 2, "{threads:#?}");
    }
    ensure!(failures.len() <= 1, "{}", failures.join("\n"));
    Ok(())
}

/// A change in a process that the program starts is first, and a recording without processes is
/// not compared.
fn of_other_processes() -> Result<()> {
    let (folder, before) = build("-DORIGINAL", false)?;
    let (_folder, after) = build("-DSLOW", false)?;
    let captures = ["before", "after"].map(|name| folder.path().join(name));
    let record = |options: &[&str], program: &Path, capture: &Path| {
        let script = ["sh", "-c", "\"$0\"; true"].map(Path::new);
        record_with(options, &[&script[..], &[program]].concat(), capture)
    };
    let name = before.file_name().and_then(|name| name.to_str());
    let mut failures = Vec::new();
    for _ in 0..ATTEMPTS {
        record(&[], &before, &captures[0])?;
        record(&[], &after, &captures[1])?;
        let (diff, failed) = compare(&captures[0], &captures[1])?;
        let first = &diff["effects"][0];
        let index = first["index"].as_u64().context("an index")?;
        let threads = &diff["threads"][usize::try_from(index)?];
        let is_process = threads["process"].as_str() == name;
        if failed && first["cause"] == "work" && first["kind"] == "threads" && is_process {
            break;
        }
        failures.push(format!("{first:#}\n{threads:#}"));
    }
    ensure!(failures.len() < ATTEMPTS, "{}", failures.join("\n"));
    record(&["--no-follow"], &after, &captures[1])?;
    let run = diff(&[&captures[0], &captures[1]], &["--fail-on", "regression"])?;
    ensure!(
        run.code()? == 4 && run.text().contains("--no-follow"),
        "{run}"
    );
    Ok(())
}

/// A moved lock is first, also if only the kernel's schedule shows the waits for it.
fn lock_waits(started: bool) -> Result<()> {
    let (folder, before) = build("-DORIGINAL", false)?;
    let (_folder, after) = build("-DLOCKED", false)?;
    let captures = ["before", "after"].map(|name| folder.path().join(name));
    let name = before.file_name().and_then(|name| name.to_str());
    let mut failures = Vec::new();
    for _ in 0..ATTEMPTS {
        for (program, capture) in [&before, &after].into_iter().zip(&captures) {
            let script = ["sh", "-c", "\"$0\"; true"].map(Path::new);
            let script = if started { &script[..] } else { &[] };
            record_with(&[], &[script, &[program]].concat(), capture)?;
        }
        let (diff, failed) = compare(&captures[0], &captures[1])?;
        let first = &diff["effects"][0];
        let objects = diff["objects"].as_array().context("objects")?;
        let [table] = &objects[..] else {
            bail!("{objects:#?}");
        };
        let is_lock = first["kind"] == "lock" && first["cause"] == "contention";
        ensure!(table["kind"] == "mutex" && table["name"] == "table");
        ensure!(table["process"].as_str() == name.filter(|_| started));
        if failed && is_lock {
            return Ok(());
        }
        failures.push(format!("{first:#}\n{table:#}"));
    }
    bail!("{}", failures.join("\n"))
}

/// Several recordings on a side have a spread.
fn several_recordings() -> Result<()> {
    let (folder, program) = build("-DORIGINAL", false)?;
    let captures = ["a", "b", "c"].map(|name| folder.path().join(name));
    for capture in &captures {
        record(&program, capture)?;
    }
    let [a, b, c] = &captures;
    let [before, after] = ["--before", "--after"].map(Path::new);
    let text = diff(&[before, a, before, b, after, c], &[])?
        .success()?
        .text();
    ensure!(text.contains("2 recordings before and 1 after"), "{text}");
    let run = diff(&[before, a, b, after, c], &["--format", "json"])?;
    let json: Value = serde_json::from_str(&run.success()?.text())?;
    let wall = &json["wall_ns"]["before"];
    ensure!(wall["min"].as_u64() < wall["max"].as_u64(), "{wall:#}");
    ensure!(json["recordings"]["before"] == 2, "{json:#}");
    Ok(())
}

/// Exit code 4: a recording that does not have the whole run.
fn exit_codes() -> Result<()> {
    let (folder, program) = build("-DORIGINAL", false)?;
    let [whole, part] = ["whole", "part"].map(|name| folder.path().join(name));
    record(&program, &whole)?;
    // Without calls, one of the recordings is unlike the other.
    let program = program.to_str().context("a path in UTF-8")?;
    report::record(&part, &["-q"], &[program])?.success()?;
    let run = diff(&[&whole, &part], &["--fail-on", "regression"])?;
    ensure!(run.code()? == 4, "{run}");
    ensure!(run.stderr.contains("too little"), "{run}");
    ensure!(diff(&[&whole, &part], &[])?.code()? == 0, "{run}");
    let run = diff(&[&whole, &whole], &["--fail-on", "regression:0"])?;
    ensure!(run.code()? == 0, "{run}");
    for wrong in ["slower", "regression:", "regression:-1", "regression:x"] {
        let run = diff(&[&whole, &whole], &["--fail-on", wrong])?;
        ensure!(run.code()? == 2, "{wrong}: {run}");
    }
    Ok(())
}

/// Missing, damaged and foreign files are one clear sentence each.
fn bad_files() -> Result<()> {
    let (folder, program) = build("-DORIGINAL", false)?;
    let [whole, cut, foreign, missing] =
        ["whole", "cut", "foreign", "missing"].map(|name| folder.path().join(name));
    record(&program, &whole)?;
    let bytes = fs::read(&whole)?;
    fs::write(&cut, &bytes[..bytes.len() / 2])?;
    fs::write(&foreign, "no recording")?;
    for (file, words) in [
        (&missing, "there is no recording"),
        (&cut, "cut at byte"),
        (&foreign, "not an Unspool recording"),
    ] {
        for pair in [[&whole, file], [file, &whole]] {
            let run = diff(&pair.map(PathBuf::as_path), &[])?;
            ensure!(run.code()? == 1, "{run}");
            ensure!(run.stdout.is_empty(), "{run}");
            ensure!(run.stderr.lines().count() == 1, "{run}");
            let name = file.to_str().context("a path in UTF-8")?;
            ensure!(
                run.stderr.contains(words) && run.stderr.contains(name),
                "{run}"
            );
        }
    }
    let run = diff(&[&whole], &[])?;
    ensure!(run.code()? == 2, "{run}");
    Ok(())
}
