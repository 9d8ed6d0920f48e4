//! Tests identities: equal for threads created on the same path, in every run and at every load
//! address, and different for different paths. Also tests the text report of identities.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::build::{Build, Compiler, Link, Tables, Target};
use unspool_tests::process::{self, Background, Run};
use unspool_tests::program::program;
use unspool_tests::report::{self, Report};
use unspool_tests::waiting;

/// Upper bound for a recording.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("pool", pool as fn() -> Result<()>),
        ("nest", nest),
        ("same_in_every_run", same_in_every_run),
        ("stripped", stripped),
        ("before_the_recording", before_the_recording),
        ("names", names),
        ("functions", functions),
        ("text_report", text_report),
        ("text_report_colour", text_report_colour),
        ("demo", demo),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("identity::{name}"), check))
    .collect()
}

fn build(name: &'static str, level: u8) -> Build {
    Build {
        program: name,
        compiler: Compiler::Gcc,
        target: Target::X86_64,
        level,
        link: Link::Pie,
        tables: Tables::Default,
    }
}

struct Recorded {
    folder: tempfile::TempDir,
}

impl Recorded {
    fn of(name: &'static str, level: u8, stripped: bool) -> Result<Self> {
        let built = build(name, level).built(program(name))?;
        let file = if stripped {
            &built.stripped
        } else {
            &built.program
        };
        let folder = tempfile::tempdir()?;
        let file = file.to_str().context("UTF-8")?;
        report::record(&folder.path().join("capture"), &["-q"], &[file])?.success()?;
        Ok(Self { folder })
    }

    fn report(&self) -> Result<Report> {
        report::report(&self.folder.path().join("capture"), &[])
    }

    fn text(&self) -> Result<Run> {
        let mut command = report::unspool()?;
        command
            .arg("report")
            .arg(self.folder.path().join("capture"));
        process::run(&mut command, Duration::from_secs(30))?.success()
    }
}

/// The number of threads with each key, sorted.
fn groups(report: &Report) -> Vec<usize> {
    let mut keys: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in report.created() {
        *keys.entry(&thread.key).or_default() += 1;
    }
    let mut counts: Vec<usize> = keys.into_values().collect();
    counts.sort_unstable();
    counts
}

/// Eight workers of one function: three, two and two by one caller at two places, and one.
fn pool() -> Result<()> {
    for level in [0, 2] {
        let groups = groups(&Recorded::of("pool", level, false)?.report()?);
        ensure!(groups == [1, 2, 2, 3], "-O{level}: groups of {groups:?}");
    }
    Ok(())
}

/// One creation path at every depth, but with different creators.
fn nest() -> Result<()> {
    let groups = groups(&Recorded::of("nest", 0, false)?.report()?);
    ensure!(groups == [2, 4, 8, 16], "groups of {groups:?}");
    Ok(())
}

fn keys(report: &Report) -> Vec<String> {
    let mut keys: Vec<String> = report
        .threads
        .iter()
        .map(|thread| thread.key.clone())
        .collect();
    keys.sort();
    keys
}

fn same_in_every_run() -> Result<()> {
    for name in ["pool", "nest", "cxx", "rust", "library", "churn"] {
        let first = keys(&Recorded::of(name, 2, false)?.report()?);
        let second = keys(&Recorded::of(name, 2, false)?.report()?);
        ensure!(
            first == second,
            "{name}: the keys of two runs differ:\n{first:?}\n{second:?}"
        );
    }
    Ok(())
}

/// Without names, the paths still differ.
fn stripped() -> Result<()> {
    let groups = groups(&Recorded::of("pool", 2, true)?.report()?);
    ensure!(groups == [1, 2, 2, 3], "groups of {groups:?}");
    Ok(())
}

/// Threads that ran before the recording have the identities of their functions, also without
/// symbols.
fn before_the_recording() -> Result<()> {
    let mut builds = Vec::new();
    for option in ["-g", "-s"] {
        let options = ["cc", "-O2", option, "-pthread"];
        let (folder, program) = waiting::compile_in(".", "earlier.c", &options)?;
        let capture = folder.path().join("capture");
        let mut command = Command::new(&program);
        let mut child = Background(process::start(command.stdout(Stdio::piped()))?);
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().context("piped")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "{line:?}");
        let mut record = report::unspool()?;
        record.args(["record", "-q", "--attach", &child.0.id().to_string(), "-o"]);
        process::run(record.arg(&capture), LIMIT)?.success()?;
        let report = report::report(&capture, &[])?;
        // The main thread is the first.
        let mut threads = report.threads;
        threads.sort_by_key(|thread| thread.tid);
        let keys = threads.into_iter().map(|thread| thread.key);
        builds.push(keys.collect::<Vec<String>>());
    }
    let [named, stripped] = &builds[..] else {
        unreachable!("two builds")
    };
    ensure!(named == stripped, "{named:?} and stripped {stripped:?}");
    let all: BTreeSet<&String> = named.iter().collect();
    ensure!(all.len() == 4 && named[2] == named[4], "{named:?}");
    Ok(())
}

/// Names set by the program, which the kernel truncates to 15 bytes.
fn names() -> Result<()> {
    let report = Recorded::of("rust", 2, false)?.report()?;
    let names: Vec<&str> = report
        .created()
        .filter_map(|thread| thread.name.as_deref())
        .collect();
    for name in ["io", "a-name-longer-t"] {
        ensure!(
            names.contains(&name),
            "no thread is named {name}: {names:?}"
        );
    }
    Ok(())
}

fn functions() -> Result<()> {
    for (name, function) in [
        ("pool", "worker"),
        ("nest", "branch"),
        ("shortlived", "blink"),
        ("c11", "square"),
        ("recursion", "leaf"),
        ("library", "early"),
        ("library", "plugged"),
    ] {
        let report = Recorded::of(name, 0, false)?.report()?;
        ensure!(
            report
                .created()
                .any(|thread| thread.function.as_deref() == Some(function)),
            "{name}: no thread's function is {function}: {:?}",
            report
                .created()
                .map(|thread| &thread.function)
                .collect::<Vec<_>>()
        );
    }
    Ok(())
}

fn text_report() -> Result<()> {
    for (name, words) in [
        (
            "pool",
            &[
                "worker",
                "start_pool",
                "grow",
                "replace",
                "pool.c:",
                "joined",
            ][..],
        ),
        ("nest", &["branch", "spawn_two", "nest.c:"]),
        ("shortlived", &["blink", "300"]),
        ("detached", &["quiet", "detached"]),
        (
            "cxx",
            &["std::thread", "cxx.cpp:", "bank::Account::deposit"],
        ),
        ("recursion", &["leaf", "descend", "199"]),
    ] {
        let run = Recorded::of(name, 0, false)?.text()?;
        let text = run.text();
        for word in words {
            ensure!(
                text.contains(word),
                "{name}: the report does not say {word}\n{run}"
            );
        }
        for line in text.lines() {
            ensure!(
                line.chars().count() <= 100,
                "{name}: longer than 100 columns: {line:?}"
            );
        }
        ensure!(
            !text.contains('\u{1b}'),
            "{name}: colour, but not on a terminal"
        );
        ensure!(
            text.lines().count() < 150,
            "{name}: {} lines",
            text.lines().count()
        );
    }
    Ok(())
}

/// On a terminal there is colour, unless NO_COLOR is set.
fn text_report_colour() -> Result<()> {
    let recorded = Recorded::of("pool", 0, false)?;
    let command = report::unspool()?;
    let line = format!(
        "{} report {}",
        command.get_program().to_string_lossy(),
        recorded.folder.path().join("capture").display()
    );
    for (no_color, colour) in [(None, true), (Some("1"), false)] {
        // `script` provides a terminal.
        let mut script = Command::new("script");
        script
            .args(["-qec", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        script.envs(no_color.map(|value| ("NO_COLOR", value)));
        let run = process::run(&mut script, Duration::from_secs(30))?.success()?;
        ensure!(run.text().contains("worker"), "{run}");
        ensure!(
            run.text().contains('\u{1b}') == colour,
            "NO_COLOR={no_color:?}\n{run}"
        );
    }
    Ok(())
}

fn demo() -> Result<()> {
    let mut command = report::unspool()?;
    command.arg("demo");
    let run = process::run(&mut command, Duration::from_secs(30))?.success()?;
    let text = run.text();
    ensure!(text.contains("orders.c:"), "no source lines\n{run}");
    ensure!(
        text.lines().all(|line| line.chars().count() <= 100),
        "wider than 100\n{run}"
    );
    ensure!(run.stderr.is_empty(), "complains\n{run}");
    Ok(())
}
