//! Tests graphs of calls: programs built with `-finstrument-functions`, and traces of pvtrace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{LIMIT, export};
use unspool_tests::{process, report, waiting};

/// Number of calls by caller and callee.
pub(in super::super) type Edges = BTreeMap<(String, String), u64>;

/// Recursion, jumps, exceptions, a hundred threads and threads that end within calls: each edge has
/// the count that follows from the source.
pub(super) fn recorded() -> Result<()> {
    let options = ["g++", "-g", "-O0", "-pthread", "-finstrument-functions"];
    let (folder, program) = waiting::compile_in(".", "instrumented.cpp", &options)?;
    let capture = folder.path().join("capture");
    let picture = folder.path().join("calls.svg");
    let program = program.to_str().context("a path in UTF-8")?;
    let request = format!("--export=svg:{}", picture.display());
    report::record(&capture, &["-q", "--calls", &request], &[program])?.success()?;
    ensure!(std::fs::read_to_string(&picture)?.contains(">leave<"));
    // fib(n) makes calls(n) calls, fib(1) and fib(0) none.
    let calls = |n: u32| {
        (2..=n)
            .fold((0_u64, 0_u64), |(one, two), _| (one + two + 2, one))
            .0
    };
    let mut expected = Edges::new();
    for (caller, callee, count) in [
        ("main", "fib", 1),
        ("main", "jumps", 1),
        ("main", "catcher", 1),
        ("work", "fib", 100),
        ("work", "leaf", 50),
        ("work", "leave", 50),
        ("leave", "leaf", 50),
        ("fib", "fib", calls(15) + 100 * calls(10)),
        ("jumps", "jump", 10),
        ("jumps", "leaf", 10),
        ("jump", "leaf", 10),
        ("catcher", "thrower", 10),
        ("catcher", "leaf", 10),
        ("thrower", "thrower", 30),
    ] {
        expected.insert((caller.to_owned(), callee.to_owned()), count);
    }
    let graph = graph(&capture, &["--min-share", "0"], folder.path())?;
    let drawn = edges(&graph)?;
    ensure!(drawn == expected, "{drawn:#?}, not {expected:#?}");
    ensure!(graph.contains("minimums (exception, longjmp, end of the thread): 10"));
    let own = self::graph(
        &capture,
        &["--min-share", "0", "--identity", "work"],
        folder.path(),
    )?;
    let own = edges(&own)?;
    let fib = own.get(&("fib".to_owned(), "fib".to_owned()));
    ensure!(fib == Some(&(100 * calls(10))) && own.len() == 5, "{own:?}");
    Ok(())
}

/// A pvtrace trace gives the same edges as pvtrace's own algorithm. An error names a malformed
/// line.
pub(super) fn pvtrace() -> Result<()> {
    let options = ["g++", "-g", "-O0", "-pthread", "-no-pie", "-DTRACE"];
    let options = [&options[..], &["-finstrument-functions"]].concat();
    let (folder, program) = waiting::compile_in(".", "instrumented.cpp", &options)?;
    let mut run = Command::new(&program);
    process::run(run.current_dir(folder.path()), LIMIT)?.success()?;
    let trace = folder.path().join("trace.txt");
    let text = std::fs::read_to_string(&trace)?;
    let mut stack: Vec<&str> = Vec::new();
    let mut matrix: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for line in text.lines() {
        match line.split_at(1) {
            ("E", function) => {
                if let Some(caller) = stack.last() {
                    *matrix.entry((caller, function)).or_default() += 1;
                }
                stack.push(function);
            }
            _ => drop(stack.pop()),
        }
    }
    let mut names = Command::new("addr2line");
    names.arg("-f").arg("-e").arg(&program);
    let addresses: Vec<&str> = matrix.keys().flat_map(|(a, b)| [*a, *b]).collect();
    let named = process::run(names.arg("-C").args(&addresses), LIMIT)?
        .success()?
        .text();
    let mut named = named.lines().step_by(2).map(|name| {
        let name = name.split('(').next().unwrap_or(name);
        name.to_owned()
    });
    let mut expected = Edges::new();
    for count in matrix.values() {
        let (caller, callee) = (
            named.next().context("a name")?,
            named.next().context("a name")?,
        );
        expected.insert((caller, callee), *count);
    }
    let exec = program.to_str().context("a path in UTF-8")?;
    let options = ["--from", "pvtrace", "--exec", exec];
    let drawn = edges(&graph(&trace, &options, folder.path())?)?;
    ensure!(
        drawn.len() > 3 && drawn == expected,
        "{drawn:#?}, not {expected:#?}"
    );

    std::fs::write(&trace, format!("{text}E 0x12\n"))?;
    let file = folder.path().join("refused");
    let options = [&["--graph", "calls"], &options[..]].concat();
    let run = export(&trace, "dot", &file, &options)?;
    let line = format!("line {} is", text.lines().count() + 1);
    ensure!(run.code()? != 0 && run.stderr.contains(&line), "{run}");
    ensure!(run.stderr.lines().count() == 1 && !file.exists(), "{run}");
    Ok(())
}

/// If nothing calls the hooks, the graph has the functions that `--trace` names. Without `--trace`,
/// the error says what to do.
pub(super) fn traced() -> Result<()> {
    let options = ["gcc", "-g", "-O0", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "nest.c", &options)?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("capture");
    report::record(&capture, &["-q", "--calls"], &[program])?.success()?;
    ensure!(report::has_note(
        &capture,
        "build the program with -finstrument-functions"
    ));
    let file = folder.path().join("refused");
    let run = export(&capture, "dot", &file, &["--graph", "calls"])?;
    ensure!(
        run.code()? != 0 && run.stderr.contains("record them with --calls or --trace"),
        "{run}"
    );
    let other = folder.path().join("other");
    report::record(
        &other,
        &["-q", "--calls", "--trace", "pthread_create"],
        &[program],
    )?
    .success()?;
    let graph = graph(&other, &[], folder.path())?;
    ensure!(graph.contains("-> pthread_create: calls "), "{graph}");
    Ok(())
}

pub(in super::super) fn graph(capture: &Path, options: &[&str], folder: &Path) -> Result<String> {
    let file = folder.join("calls.dot");
    let options = [&["--graph", "calls"], options].concat();
    export(capture, "dot", &file, &options)?.success()?;
    Ok(std::fs::read_to_string(&file)?)
}

/// The exact counts in the hints of a graph: `tooltip="main -> fib: calls 1, total 12 ns"`.
pub(in super::super) fn edges(graph: &str) -> Result<Edges> {
    let mut edges = Edges::new();
    for line in graph.lines() {
        let Some((_, hint)) = line.split_once(", tooltip=\"") else {
            continue;
        };
        let Some((caller, rest)) = hint.split_once(" -> ") else {
            continue;
        };
        let (callee, rest) = rest.split_once(": calls ").context("calls")?;
        let count: String = rest.chars().take_while(char::is_ascii_digit).collect();
        edges.insert((caller.to_owned(), callee.to_owned()), count.parse()?);
    }
    Ok(edges)
}
