//! Tests the critical path on programs with one planted bottleneck each.
//!
//! The truth is each program itself: called with "repaired", its bottleneck is removed, and the
//! time that it then saves is what the report must have predicted. Only a machine without other
//! work can measure this, so it is compared if `UNSPOOL_GAINS` is set
//! (docs/internals/critical-path.md).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use unspool_tests::{process, report, trial, waiting, workspace};

const C: &[&str] = &["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
const LIMIT: Duration = Duration::from_secs(120);

/// How often each variant runs without a recorder; the fastest run counts.
const RUNS: usize = 3;
/// Recordings that are made until one is as expected.
const RECORDINGS: usize = 3;

/// A program and the names of its bottleneck. The first item of the report must be one of them.
struct Case {
    name: &'static str,
    first: &'static [(&'static str, &'static str)],
    /// Whether that is also a finding: time that threads wait for devices is none.
    is_found: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "pipeline",
        first: &[("threads", "parse"), ("function", "parse")],
        is_found: true,
    },
    Case {
        name: "lock",
        first: &[("lock", "table")],
        is_found: true,
    },
    Case {
        name: "convoy",
        first: &[("lock", "door")],
        is_found: true,
    },
    Case {
        name: "barrier",
        first: &[("threads", "do_large_part"), ("function", "do_large_part")],
        is_found: true,
    },
    Case {
        name: "pool",
        first: &[("threads", "do_share"), ("function", "do_share")],
        is_found: false,
    },
    Case {
        name: "producer",
        first: &[("threads", "produce"), ("function", "produce")],
        is_found: true,
    },
    Case {
        name: "chain",
        first: &[("lock", "third")],
        is_found: true,
    },
    Case {
        name: "io",
        // The device is another process.
        first: &[("processes", "io")],
        is_found: false,
    },
    Case {
        name: "processors",
        first: &[("processors", "")],
        is_found: false,
    },
    Case {
        name: "once",
        first: &[("threads", "main"), ("function", "main")],
        is_found: true,
    },
    Case {
        name: "suspect",
        first: &[("threads", "solve"), ("function", "solve")],
        is_found: true,
    },
    Case {
        name: "readers",
        first: &[("lock", "map")],
        is_found: true,
    },
];

pub(crate) fn trials() -> Vec<Trial> {
    let trials = CASES
        .iter()
        .map(|case| trial::alone(format!("critical::{}", case.name), move || found_in(case)));
    trials.collect()
}

/// What a report says about the critical path.
struct Said {
    kind: String,
    name: String,
    predicted: f64,
    findings: Vec<Value>,
}

fn found_in(case: &Case) -> Result<()> {
    let source = format!("{}.c", case.name);
    let (folder, file) = waiting::compile_in("critical", &source, C)?;
    let mut failures = Vec::new();
    let measures = std::env::var_os("UNSPOOL_GAINS").is_some();
    for _ in 0..RECORDINGS {
        let real = measures.then(|| real_gain(&file)).transpose()?;
        let capture = folder.path().join("capture");
        let unspool = workspace::unspool()?;
        let mut record = match measures {
            true => first_served(&unspool),
            false => Command::new(&unspool),
        };
        record.env("NO_COLOR", "1");
        record.args(["record", "-q", "--sync", "--budget", "none", "-o"]);
        record.arg(&capture).arg("--").arg(&file);
        process::run(&mut record, LIMIT)?.success()?;
        let report = report::json(&capture, &[])?;
        is_whole(&report)?;
        let said = said(&report)?;
        println!(
            "{}: {} {} first, predicted {:.3}, really {real:.3?}, {}",
            case.name,
            said.kind,
            said.name,
            said.predicted,
            load()
        );
        match check(case, &said, real) {
            Ok(()) => return Ok(()),
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    bail!("{}\n{}", load(), failures.join("\n"))
}

fn check(case: &Case, said: &Said, real: Option<f64>) -> Result<()> {
    let is_first = |(kind, name): &&(&str, &str)| said.kind == *kind && said.name == *name;
    ensure!(
        case.first.iter().any(|expected| is_first(&expected)),
        "{} {} is first, not one of {:?}",
        said.kind,
        said.name,
        case.first
    );
    if let Some(real) = real {
        // Without a real-time priority, the variants run under different load on a busy machine.
        let allowed = match is_loaded() && !is_first_served() {
            true => 0.30,
            false => 0.15,
        };
        ensure!(
            (said.predicted - real).abs() <= allowed * real,
            "predicted was {:.3}, and the repaired program saves {real:.3}",
            said.predicted
        );
    }
    let found = said.findings.iter().any(|f| f["kind"] == "bottleneck");
    ensure!(found == case.is_found, "{:#?}", said.findings);
    Ok(())
}

/// A command that other programs of the machine do not delay, where that is permitted: the two
/// variants of a program can be compared only under the same conditions.
pub(crate) fn first_served(program: &Path) -> Command {
    match is_first_served() {
        true => real_time(program),
        false => Command::new(program),
    }
}

/// Whether commands may have a real-time priority.
fn is_first_served() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| {
        let tried = real_time(Path::new("true")).output();
        tried.is_ok_and(|output| output.status.success())
    })
}

fn real_time(program: &Path) -> Command {
    let mut command = Command::new("chrt");
    command.args(["-r", "1"]).arg(program);
    command
}

/// The part of its time that the repaired program saves.
fn real_gain(file: &Path) -> Result<f64> {
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..RUNS {
        for (repaired, fastest) in fastest.iter_mut().enumerate() {
            let mut command = first_served(file);
            command.args(["repaired"].iter().take(repaired));
            let began = Instant::now();
            process::run(&mut command, LIMIT)?.success()?;
            *fastest = began.elapsed().min(*fastest);
        }
    }
    let [original, repaired] = fastest.map(|time| time.as_secs_f64());
    Ok(1.0 - repaired / original)
}

/// The path's segments must have no gaps, and reach from the program's first event to its last.
fn is_whole(report: &Value) -> Result<()> {
    let path = &report["critical_path"];
    let number = |value: &Value, what: &str| {
        value[what]
            .as_u64()
            .with_context(|| format!("{what}: {value:#}"))
    };
    let (from, to) = (number(path, "from_ns")?, number(path, "to_ns")?);
    let mut now = from;
    for segment in path["segments"].as_array().context("segments")? {
        ensure!(
            number(segment, "from_ns")? == now,
            "a gap before {segment:#}"
        );
        now = number(segment, "to_ns")?;
    }
    ensure!(now == to, "the path ends at {now}, not at {to}");
    let threads = report["threads"].as_array().context("threads")?;
    let main = threads.iter().find(|thread| thread["origin"] == "main");
    let main = main.context("a main thread")?;
    let schedule = &report["recording"]["schedule"];
    let wall = number(main, "ended_ns").or_else(|_| number(schedule, "to_ns"))? - from;
    ensure!(
        (to - from).abs_diff(wall) <= wall / 100,
        "the path takes {} ns, the program {wall} ns",
        to - from
    );
    Ok(())
}

fn said(report: &Value) -> Result<Said> {
    let path = &report["critical_path"];
    let first = &path["impacts"][0];
    let kind = first["kind"].as_str().context("no impact")?.to_owned();
    let index = |value: &Value| value.as_u64().and_then(|at| usize::try_from(at).ok());
    let name = match kind.as_str() {
        "threads" => {
            let threads = report["threads"].as_array().context("threads")?;
            let thread = threads.iter().find(|thread| thread["key"] == first["key"]);
            let thread = thread.context("an identity without threads")?;
            match thread["origin"] == "main" {
                true => &Value::Null,
                false => &thread["function"],
            }
            .as_str()
            .unwrap_or("main")
        }
        "processes" => first["program"].as_str().context("a program")?,
        "function" => {
            let at = index(&first["function"]).context("a function")?;
            path["functions"][at]["name"].as_str().unwrap_or_default()
        }
        "lock" => {
            let at = index(&first["object"]).context("an object")?;
            report["objects"][at]["name"].as_str().unwrap_or_default()
        }
        _ => "",
    };
    Ok(Said {
        name: name.to_owned(),
        predicted: first["share"].as_f64().context("a share")?,
        findings: report["findings"].as_array().cloned().unwrap_or_default(),
        kind,
    })
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("load {}", load.trim())
}

/// Whether more threads want to run than there are processors.
fn is_loaded() -> bool {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text
        .split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, |number| number.get());
    load > processors as f64
}
