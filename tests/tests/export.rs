//! Tests the files that `unspool export` writes for other programs: an independent reader opens
//! each, and its totals per thread equal the JSON report's.

pub(super) mod calls;
mod gdb;
mod processes;
mod profiles;
mod samples;
mod trace_processor;
mod traces;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::memo::Memo;
use unspool_tests::{process, python, report, waiting, workspace};

const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("folded", folded as fn() -> Result<()>),
        ("perfetto", || perfetto(&mut by_schema)),
        ("perfetto_samples", || samples::perfetto(&mut by_schema)),
        ("perfetto_trace_processor", trace_processor::all),
        ("chrome", chrome),
        ("firefox", profiles::firefox),
        ("pprof", profiles::pprof),
        ("gdb", gdb::names),
        ("tfile", traces::tfile),
        ("ctf", traces::ctf),
        ("processes::perfetto", || {
            processes::perfetto(&mut by_schema)
        }),
        ("processes::chrome", processes::chrome),
        ("processes::firefox", processes::firefox),
        ("processes::ctf", processes::ctf),
        ("calls", calls::recorded),
        ("pvtrace", calls::pvtrace),
        ("traced", calls::traced),
        ("findings", findings),
        ("options", options),
        ("at_the_end", at_the_end),
        ("refused", refused),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("export::{name}"), check))
    .collect()
}

/// A recording of a program in `programs/`.
struct Recorded {
    folder: TempDir,
    capture: PathBuf,
    json: Value,
}

/// A pool, a contended mutex, a barrier, threads of threads.
const PAGE: &str = "page.c";

fn recorded(source: &'static str) -> Result<Arc<Recorded>> {
    /// Trials share recordings.
    static RECORDED: Memo<&str, Recorded> = Memo::new();
    RECORDED.get(source, || record(source))
}

fn record(source: &str) -> Result<Recorded> {
    record_with(source, &["-q", "--sync=all"])
}

fn record_with(source: &str, options: &[&str]) -> Result<Recorded> {
    let (folder, program) = waiting::compile_in(".", source, &["gcc", "-g", "-O1", "-pthread"])?;
    let capture = folder.path().join("capture");
    let program = program.to_str().context("a path in UTF-8")?;
    report::record(&capture, options, &[program])?.success()?;
    let json = report::json(&capture, &[])?;
    Ok(Recorded {
        folder,
        capture,
        json,
    })
}

pub(super) fn export(
    capture: &Path,
    format: &str,
    output: &Path,
    more: &[&str],
) -> Result<process::Run> {
    let mut command = report::unspool()?;
    command.args(["export", "--format", format, "-o"]);
    command.arg(output).args(more).arg(capture);
    process::run(&mut command, LIMIT)
}

/// A flame graph tool draws each file, with our totals.
fn folded() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let threads = recorded.json["threads"].as_array().context("threads")?;
    let waited = threads.iter().map(|thread| {
        let times = ["held_ns", "others_ns", "idle_ns"].map(|name| &thread["times"][name]);
        times.iter().filter_map(|ns| ns.as_u64()).sum::<u64>()
    });
    let created = threads.iter().filter(|thread| {
        thread["creation"]
            .as_array()
            .is_some_and(|stack| !stack.is_empty())
    });
    for (stacks, total) in [
        ("waits", waited.sum::<u64>()),
        ("creations", created.count() as u64),
    ] {
        let file = recorded.folder.path().join(format!("{stacks}.folded"));
        export(&recorded.capture, "folded", &file, &["--stacks", stacks])?.success()?;
        let mut sum = 0;
        for line in std::fs::read_to_string(&file)?.lines() {
            let (stack, number) = line.rsplit_once(' ').context(line.to_owned())?;
            ensure!(stack.split(';').all(|frame| !frame.is_empty()), "{line}");
            sum += number.parse::<u64>().context(line.to_owned())?;
        }
        ensure!(total > 0 && sum == total, "{stacks}: {sum}, not {total}");
        let mut draw = Command::new("perl");
        draw.arg("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
            .arg(&file);
        let picture = process::run(&mut draw, LIMIT)?.success()?.text();
        // Its outermost frame has the sum, written with commas.
        let all = picture.lines().find(|line| line.contains(">all ("));
        let digits: String = all
            .and_then(|line| line.split(">all (").nth(1))
            .and_then(|rest| rest.split(' ').next())
            .with_context(|| format!("{stacks}: no outermost frame"))?
            .replace(',', "");
        ensure!(digits == total.to_string(), "{stacks}: drawn as {digits}");
        ensure!(stacks == "creations" || picture.contains("mutex door"));
    }
    Ok(())
}

/// The reader decodes the trace. States by its switches, waits and flows are ours.
fn perfetto(reader: TraceReader<'_>) -> Result<()> {
    let recorded = recorded(PAGE)?;
    let file = recorded.folder.path().join("trace.pftrace");
    export(&recorded.capture, "perfetto", &file, &[])?.success()?;
    let read = reader(&file)?;
    compare(&recorded.json, &read)?;
    ensure!(recorded.json["recording"]["schedule"]["lost"] == 0);
    let mut compared = 0;
    for thread in recorded.json["threads"].as_array().context("threads")? {
        let tid = thread["tid"].as_u64().context("tid")?;
        let states = &read["threads"][tid.to_string()]["states"];
        for (name, state) in [("running_ns", "running"), ("runnable_ns", "runnable")] {
            let ours = thread["schedule"][name].as_u64();
            let ours = ours.with_context(|| format!("{tid}: no {name}"))?;
            let theirs = states[state].as_u64().unwrap_or(0);
            ensure!(ours == theirs, "{tid}: {name} is {ours}, read {theirs}");
            compared += ours;
        }
    }
    ensure!(compared > 0, "no time in any state");
    Ok(())
}

/// Each event is one of the format's, slices nest, and waits and flows are ours.
fn chrome() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let file = recorded.folder.path().join("trace.json");
    export(&recorded.capture, "chrome", &file, &[])?.success()?;
    compare(&recorded.json, &by_json(&file)?)
}

/// Threads, waiting times and wake-ups of a trace are the report's.
fn compare(json: &Value, read: &Value) -> Result<()> {
    let threads = json["threads"].as_array().context("threads")?;
    let mut waited = 0;
    for thread in threads {
        let tid = thread["tid"].as_u64().context("tid")?.to_string();
        let seen = &read["threads"][&tid];
        ensure!(seen["name"].is_string(), "thread {tid} has no name");
        for waiting_for in ["held", "others", "idle"] {
            let ours = thread["times"][format!("{waiting_for}_ns")].as_u64();
            let theirs = seen["waits"][waiting_for].as_u64().unwrap_or(0);
            ensure!(
                ours == Some(theirs),
                "{tid}: {waiting_for} {ours:?}, read {theirs}"
            );
            waited += theirs;
        }
    }
    ensure!(waited > 0, "no waits");
    let tids: Vec<u64> = threads
        .iter()
        .filter_map(|thread| thread["tid"].as_u64())
        .collect();
    let flows = read["flows"].as_array().context("flows")?;
    for flow in flows {
        let known = |end: &Value| end.as_u64().is_some_and(|tid| tids.contains(&tid));
        ensure!(known(&flow[0]) && known(&flow[1]), "a flow {flow}");
    }
    ensure!(
        flows.iter().any(|flow| flow[0] != flow[1]),
        "no thread woke another"
    );
    let running = read["counters"].as_array().context("counters")?;
    let most = running.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    ensure!(most >= 1.0, "at most {most} threads ran");
    ensure!(most <= threads.len() as f64, "{most} threads ran");
    Ok(())
}

fn findings() -> Result<()> {
    findings_in("perfetto", &mut by_schema)?;
    findings_in("chrome", &mut by_json)
}

/// A trace has the report's findings, one instant each.
fn findings_in(format: &str, reader: TraceReader<'_>) -> Result<()> {
    let recorded = recorded("inversion.c")?;
    let count = |names: &mut dyn Iterator<Item = &Value>| {
        let mut counts = BTreeMap::new();
        for name in names {
            *counts.entry(name.to_string()).or_insert(0) += 1;
        }
        counts
    };
    let findings = recorded.json["findings"].as_array().context("findings")?;
    let ours = count(&mut findings.iter().map(|finding| &finding["kind"]));
    ensure!(ours.contains_key("\"lock-order\""), "{ours:?}");
    let file = recorded.folder.path().join(format);
    export(&recorded.capture, format, &file, &[])?.success()?;
    let read = reader(&file)?;
    let theirs = count(&mut read["findings"].as_array().context("findings")?.iter());
    ensure!(ours == theirs, "{format}: {ours:?}, read {theirs:?}");
    Ok(())
}

/// An option that a format does not take, and an unknown format, are refused and leave no file.
fn options() -> Result<()> {
    let recorded = recorded(PAGE)?;
    let file = recorded.folder.path().join("refused");
    for (format, more, says) in [
        (
            "folded",
            &["--graph", "sync"][..],
            "--graph cannot be used with --format folded",
        ),
        (
            "perfetto",
            &["--stacks", "waits"],
            "--stacks cannot be used with",
        ),
        (
            "html",
            &["--graph", "sync"],
            "--format html draws only the graph of calls",
        ),
        (
            "gif",
            &[],
            "possible values: dot, svg, html, folded, perfetto, chrome, firefox, pprof, gdb",
        ),
    ] {
        let run = export(&recorded.capture, format, &file, more)?;
        let error = run.stderr.clone();
        ensure!(
            run.code()? != 0 && error.contains(says),
            "{format}: {error}"
        );
        ensure!(!file.exists(), "{format} left a file");
    }
    Ok(())
}

/// A recording writes the files that exports of it write.
fn at_the_end() -> Result<()> {
    let options = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", PAGE, &options)?;
    let program = program.to_str().context("a path in UTF-8")?;
    let capture = folder.path().join("capture");
    let file = |name: &str| folder.path().join(name);
    let formats = ["chrome", "folded", "perfetto", "pprof", "gdb", "tfile"];
    let requests = formats.map(|name| format!("--export={name}:{}", file(name).display()));
    let mut options = vec!["-q", "--sync=all"];
    options.extend(requests.iter().map(String::as_str));
    report::record(&capture, &options, &[program])?.success()?;
    for format in formats {
        let later = file("later");
        export(&capture, format, &later, &[])?.success()?;
        let (now, later) = (std::fs::read(file(format))?, std::fs::read(&later)?);
        ensure!(!now.is_empty() && now == later, "{format} differs");
    }
    Ok(())
}

/// Bad input gets one sentence: nothing to export, no place to write to, a wrong request.
fn refused() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (empty, file) = (folder.path().join("empty"), folder.path().join("file"));
    std::fs::write(&empty, "")?;
    for format in ["firefox", "pprof", "gdb"] {
        let run = export(&empty, format, &file, &[])?;
        ensure!(run.code()? != 0 && run.stderr.lines().count() == 1, "{run}");
        ensure!(!file.exists(), "{format} left a file");
        let nowhere = folder.path().join("no/such/folder");
        let run = export(&recorded(PAGE)?.capture, format, &nowhere, &[])?;
        ensure!(
            run.code()? != 0 && run.stderr.contains("cannot write"),
            "{run}"
        );
    }
    let capture = folder.path().join("capture");
    let mark = folder.path().join("mark");
    let itself = format!("--export=chrome:{}", capture.display());
    for (request, says) in [
        ("--export=gif:x", "the formats are dot, svg, html,"),
        ("--export=chrome", "expected FORMAT:FILE"),
        (
            "--export=html:x",
            "--format html draws only the graph of calls",
        ),
        (
            "--export=chrome:/no/such/folder/x",
            "cannot write /no/such/folder/x",
        ),
        (&itself, "would overwrite the recording"),
    ] {
        let mut command = report::unspool()?;
        command.args(["record", request, "-o"]).arg(&capture);
        command.args(["--", "touch"]).arg(&mark);
        let run = process::run(&mut command, LIMIT)?;
        ensure!(run.code()? != 0 && run.stderr.contains(says), "{run}");
        ensure!(!mark.exists(), "{request}: the program ran");
    }
    Ok(())
}

/// Reads a trace, and returns its totals in the form of `consumers/read_trace.py`.
type TraceReader<'a> = &'a mut dyn FnMut(&Path) -> Result<Value>;

/// Reads a trace for Perfetto by the format's schema.
fn by_schema(file: &Path) -> Result<Value> {
    let schema = "perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    read(&python::with("perfetto==0.59.1", schema)?, "perfetto", file)
}

/// Reads a trace for Chrome by the JSON decoder.
fn by_json(file: &Path) -> Result<Value> {
    read(Path::new("python3"), "chrome", file)
}

fn read(python: &Path, kind: &str, file: &Path) -> Result<Value> {
    let mut reader = Command::new(python);
    reader.arg(workspace::file("consumers/read_trace.py"));
    let run = process::run(reader.arg(kind).arg(file), LIMIT)?.success()?;
    Ok(serde_json::from_str(&run.text())?)
}
