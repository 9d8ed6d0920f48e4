//! What a recording finds wrong: on programs with one thing wrong each, and on healthy ones, of which nothing may be said. The
//! truth is the program's own: what it was written to do, how often it says it took each lock; and what Helgrind and DRD say of
//! the same binaries.

mod ended;
mod hangs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use unspool_tests::process::{self, Background, Run};
use unspool_tests::report;
use unspool_tests::waiting;

const C: &[&str] = &["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
const CLANG: &[&str] = &["clang", "-std=gnu11", "-g", "-O2", "-pthread"];
const CXX: &[&str] = &["g++", "-std=c++20", "-g", "-O1", "-pthread"];
const MUSL: &[&str] = &["musl-gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
const MUSL_STATIC: &[&str] = &["musl-gcc", "-std=gnu11", "-g", "-O1", "-pthread", "-static"];
const RUST: &[&str] = &["rustc", "-g", "-O", "--edition=2021"];

/// A finding that must be there: its kind, the objects by name, and for each piece of evidence the function of the program in which
/// it was done.
type Expected = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// A program, and what is to be found in it when all is recorded, and when only waits are.
struct Case {
    name: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
    command: &'static [&'static str],
    all: &'static [Expected],
    contended: &'static [Expected],
}

const fn case(
    name: &'static str,
    all: &'static [Expected],
    contended: &'static [Expected],
) -> Case {
    Case {
        name,
        source: name,
        arguments: &[],
        command: C,
        all,
        contended,
    }
}

const INVERSION: Expected = (
    "lock-order",
    &["accounts", "journal"],
    &["deposit", "deposit", "audit", "audit"],
);

const PHILOSOPHERS: Expected = (
    "lock-order",
    &[
        "forks",
        "forks+0x28",
        "forks+0x50",
        "forks+0x78",
        "forks+0xa0",
    ],
    &["dine"; 10],
);

const CASES: &[Case] = &[
    case("inversion.c", &[INVERSION], &[]),
    Case {
        name: "inversion-clang",
        command: CLANG,
        ..case("inversion.c", &[INVERSION], &[])
    },
    case("gated.c", &[], &[]),
    case(
        "convoy.c",
        &[("convoy", &["door"], &["pass", "pass"])],
        &[("convoy", &["door"], &["pass", "pass"])],
    ),
    case(
        "hold.c",
        &[
            ("long-hold", &["settings"], &["save", "look"]),
            ("contention", &["settings"], &["look", "save"]),
        ],
        &[("contention", &["settings"], &["look", "save"])],
    ),
    case("consumers.c", &[], &[]),
    case("phases.c", &[], &[]),
    case("readers.c", &[], &[]),
    case("philosophers.c", &[PHILOSOPHERS], &[]),
    Case {
        name: "philosophers-clang",
        command: CLANG,
        ..case("philosophers.c", &[PHILOSOPHERS], &[])
    },
    Case {
        name: "philosophers-polite",
        arguments: &["polite"],
        ..case("philosophers.c", &[], &[])
    },
    case(
        "signals.c",
        &[("unlocked-signal", &["changed", "lock"], &["change"])],
        &[],
    ),
    case(
        "stranger.c",
        &[("wrong-unlock", &["record"], &["meddle", "own"])],
        &[],
    ),
    case(
        "destroyed.c",
        &[("destroyed-held", &["session"], &["close_it", "close_it"])],
        &[],
    ),
    case(
        "unjoined.c",
        &[("unjoined", &[], &["main"])],
        &[("unjoined", &[], &["main"])],
    ),
    case("left.c", &[], &[]),
    case(
        "churn.c",
        &[("churn", &[], &["main"])],
        &[("churn", &[], &["main"])],
    ),
    Case {
        command: CXX,
        ..case("cxx.cpp", &[INVERSION], &[])
    },
    Case {
        command: RUST,
        ..case(
            "rust.rs",
            &[(
                "contention",
                &["rust::SETTINGS"],
                &["rust::look", "rust::main::{closure#0}"],
            )],
            &[(
                "contention",
                &["rust::SETTINGS"],
                &["rust::look", "rust::main::{closure#0}"],
            )],
        )
    },
];

/// What musl's programs are found to do as well, dynamic and static.
const MUSL_SOURCES: &[&str] = &[
    "inversion.c",
    "convoy.c",
    "hold.c",
    "consumers.c",
    "phases.c",
    "signals.c",
    "stranger.c",
    "destroyed.c",
    "unjoined.c",
    "left.c",
];

/// The same, of what others say of it: kinds that they know.
const PEERS: &[&str] = &[
    "inversion.c",
    "philosophers.c",
    "signals.c",
    "stranger.c",
    "destroyed.c",
    "hold.c",
    "consumers.c",
    "phases.c",
    "readers.c",
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in CASES {
        for (mode, expected) in [("all", case.all), ("contended", case.contended)] {
            trials.push(crate::trial(
                format!("findings::{}::{mode}", case.name),
                move || found(case, mode, expected),
            ));
        }
    }
    for case in CASES
        .iter()
        .filter(|case| MUSL_SOURCES.contains(&case.name))
    {
        for (library, command) in [("musl", MUSL), ("musl-static", MUSL_STATIC)] {
            for (mode, expected) in [("all", case.all), ("contended", case.contended)] {
                let case = Case { command, ..*case };
                trials.push(crate::trial(
                    format!("findings::{}::{library}::{mode}", case.name),
                    move || found(&case, mode, expected),
                ));
            }
        }
    }
    for source in PEERS {
        for (suffix, command) in [("", C), ("::clang", CLANG)] {
            trials.push(crate::trial(
                format!("findings::peers::{source}{suffix}"),
                || as_peers(source, command),
            ));
        }
    }
    trials.push(crate::trial(
        "findings::within-a-budget-nothing-is-invented",
        within_a_budget,
    ));
    trials.push(crate::trial(
        "findings::behind-a-semaphore-nothing-is-proved",
        behind_a_semaphore,
    ));
    trials.push(crate::trial(
        "findings::how-long-threads-stood-is-said",
        on_one_busy_processor,
    ));
    trials.push(crate::trial("findings::exit-codes", exit_codes));
    trials.push(crate::trial("findings::lossless", nothing_is_lost));
    trials.extend(ended::trials());
    trials.extend(hangs::trials());
    trials
}

/// `unspool report --format json`, as far as findings go (docs/report-json.md).
#[derive(Debug, Deserialize)]
struct Report {
    objects: Vec<Object>,
    findings: Vec<Finding>,
    recording: Recording,
    threads: Vec<Thread>,
}

#[derive(Debug, Deserialize)]
struct Thread {
    origin: String,
}

#[derive(Debug, Deserialize)]
struct Recording {
    dropped_events: u64,
    duration_ns: u64,
    stood_ns: u64,
}

#[derive(Debug, Deserialize)]
struct Object {
    kind: String,
    name: Option<String>,
    taken: u64,
    waits: Lengths,
    holds: Lengths,
}

#[derive(Debug, Deserialize)]
struct Lengths {
    total_ns: u64,
    max_ns: u64,
}

#[derive(Debug, Deserialize)]
struct Finding {
    kind: String,
    proved: bool,
    objects: Vec<Named>,
    text: String,
    evidence: Vec<Evidence>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Evidence {
    stack: Option<Vec<Value>>,
}

/// A program and its recording.
struct Recorded {
    folder: TempDir,
    run: Run,
    report: Report,
}

impl Recorded {
    fn of(case: &Case, options: &[&str]) -> Result<Recorded> {
        let (folder, file) = waiting::compile_in("findings", case.source, case.command)?;
        let capture = folder.path().join("capture");
        let mut command = report::unspool()?;
        command.args(["record", "-q", "-o"]).arg(&capture);
        command
            .args(options)
            .arg("--")
            .arg(&file)
            .args(case.arguments);
        let run = process::run(&mut command, Duration::from_secs(120))?.success()?;
        Ok(Recorded {
            report: read(&capture)?,
            folder,
            run,
        })
    }

    /// `taken NAME COUNT LONGEST WAITED`, as the program says.
    fn told(&self) -> Result<BTreeMap<String, Told>> {
        let mut told = BTreeMap::new();
        for line in self.run.text().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["taken", name, count, longest, waited] = words[..] {
                let name = name.strip_suffix("+0").unwrap_or(name).to_owned();
                let us = |text: &str| Ok::<_, anyhow::Error>(Duration::from_micros(text.parse()?));
                let (longest, waited) = (us(longest)?, us(waited)?);
                told.insert(
                    name,
                    Told {
                        taken: count.parse()?,
                        longest,
                        waited,
                    },
                );
            }
        }
        Ok(told)
    }
}

/// What a program knows of a mutex.
struct Told {
    taken: u64,
    longest: Duration,
    waited: Duration,
}

impl Told {
    /// On a machine with much to do, a thread may be kept waiting in the middle of anything; the program has seen it, too.
    fn confirms(&self, finding: &Finding) -> bool {
        let felt = Duration::from_millis(10);
        match finding.kind.as_str() {
            "long-hold" => self.longest >= felt,
            "contention" | "convoy" => self.waited >= felt,
            _ => false,
        }
    }
}

/// What is waited and held is only found where it is enough of the recording, and not the recorder's doing (docs/report-json.md).
const LOAD: [&str; 3] = ["contention", "convoy", "long-hold"];

impl Report {
    /// Whether the machine had so much to do that an expected finding about load need not be there: the recording took too long, or
    /// threads stood for the recorder.
    fn excuses(&self, (kind, objects, _): &Expected) -> bool {
        let objects = self.objects.iter().filter(|object| {
            let name = object.name.as_deref();
            name.is_some_and(|name| objects.contains(&name))
        });
        let waited = objects.map(|object| object.waits.total_ns).max();
        let own = waited.unwrap_or(0).saturating_sub(self.recording.stood_ns);
        LOAD.contains(kind) && own < self.recording.duration_ns / 20
    }
}

fn read(capture: &Path) -> Result<Report> {
    let mut command = report::unspool()?;
    command
        .arg("report")
        .arg(capture)
        .args(["--format", "json"]);
    let run = process::run(&mut command, Duration::from_secs(120))?.success()?;
    serde_json::from_slice(&run.stdout).with_context(|| run.to_string())
}

fn found(case: &Case, mode: &str, expected: &[Expected]) -> Result<()> {
    // A thread that is kept waiting with a lock in its hands, as on a machine with much to do, is found, too; but not each time.
    for _ in 0..3 {
        let Some(chance) = found_once(case, mode, expected)? else {
            return Ok(());
        };
        eprintln!("{chance}");
    }
    match found_once(case, mode, expected)? {
        Some(always) => bail!("four times: {always}"),
        None => Ok(()),
    }
}

/// Something about load that is not expected, and that the program itself has not noticed.
fn found_once(case: &Case, mode: &str, expected: &[Expected]) -> Result<Option<String>> {
    let mut chance = None;
    let sync = format!("--sync={mode}");
    let recorded = Recorded::of(case, &[&sync, "--budget", "none"])?;
    let (report, told) = (&recorded.report, recorded.told()?);
    ensure!(report.recording.dropped_events == 0, "events were dropped");
    let mut missing: Vec<&Expected> = expected.iter().collect();
    for finding in &report.findings {
        let is_it = |(kind, objects, places): &&Expected| {
            let names = finding
                .objects
                .iter()
                .filter_map(|object| object.name.as_deref());
            finding.kind == *kind
                && names.eq(objects.iter().copied())
                && finding.evidence.len() == places.len()
                && finding
                    .evidence
                    .iter()
                    .zip(*places)
                    .all(|(evidence, place)| passes(evidence, place))
        };
        match missing.iter().position(is_it) {
            Some(at) => {
                missing.remove(at);
                let stood = LOAD.contains(&finding.kind.as_str())
                    && finding.text.contains("stood for the recorder");
                ensure!(finding.proved || stood, "not proved: {}", finding.text);
            }
            None if told.values().any(|told| told.confirms(finding)) => {}
            None => {
                let what = format!(
                    "nothing of the kind is in {}: {finding:#?}\n{}",
                    case.name, recorded.run
                );
                ensure!(LOAD.contains(&finding.kind.as_str()), what);
                chance = Some(what);
            }
        }
    }
    if missing.iter().any(|expected| report.excuses(expected)) {
        eprintln!(
            "not found, on a busy machine: {missing:?}, {:?}",
            report.recording
        );
        missing.retain(|expected| !report.excuses(expected));
    }
    ensure!(
        missing.is_empty(),
        "not found: {missing:?}\n{:#?}\n{:#?}",
        report.findings,
        report.recording
    );
    if mode == "all" {
        for (name, told) in &told {
            let object = report.objects.iter().find(|object| {
                object.kind == "mutex" && object.name.as_deref() == Some(name.as_str())
            });
            let seen = object.with_context(|| format!("no mutex {name}"))?.taken;
            let count = told.taken;
            ensure!(
                seen == count,
                "{name} was taken {count} times, seen were {seen}"
            );
        }
    }
    drop(recorded.folder);
    Ok(chance)
}

/// Hundreds of threads that do nothing but lock and unlock: more than can be read as fast as it comes.
fn nothing_is_lost() -> Result<()> {
    let case = case("hundreds.c", &[], &[]);
    let recorded = Recorded::of(&case, &["--sync=all", "--lossless"])?;
    let report = &recorded.report;
    ensure!(report.recording.dropped_events == 0, "events were dropped");
    let locks = report.objects.iter().filter(|object| {
        let name = object.name.as_deref().unwrap_or_default();
        name == "locks" || name.starts_with("locks+")
    });
    let created = report.threads.iter();
    let created = created.filter(|thread| thread.origin == "created");
    let told = format!(
        "taken {} by {} threads",
        locks.map(|object| object.taken).sum::<u64>(),
        created.count()
    );
    ensure!(
        recorded.run.text().contains(&told),
        "seen: {told}\n{}",
        recorded.run
    );
    Ok(())
}

fn passes(evidence: &Evidence, function: &str) -> bool {
    let frames = evidence.stack.iter().flatten();
    let mut names = frames.filter_map(|frame| frame["function"].as_str());
    names.any(|name| name == function)
}

/// Helgrind's and DRD's words for what we find, and whether they are about all programs in which we find it.
const WORDS: &[(&str, &str)] = &[
    ("lock order \"", "lock-order"),
    ("unlocked lock at", "wrong-unlock"),
    ("which is currently held by", "wrong-unlock"),
    ("Mutex not locked by calling thread", "wrong-unlock"),
    ("pthread_mutex_destroy of a locked mutex", "destroyed-held"),
    ("Destroying locked mutex", "destroyed-held"),
    ("is not locked by the signalling thread", "unlocked-signal"),
    ("was held during", "long-hold"),
];

fn as_peers(source: &str, command: &[&str]) -> Result<()> {
    let case = CASES
        .iter()
        .find(|case| case.source == source)
        .context("a case")?;
    let (_folder, file) = waiting::compile_in("findings", source, command)?;
    let mut said = BTreeSet::new();
    let mut text = String::new();
    for tool in [
        &["--tool=helgrind", "--fair-sched=yes"][..],
        &[
            "--tool=drd",
            "--fair-sched=yes",
            "--exclusive-threshold=500",
            "--first-race-only=yes",
        ],
    ] {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(tool).arg(&file);
        let run = process::run(&mut valgrind, Duration::from_secs(300))?.success()?;
        let words = WORDS.iter().filter(|(words, _)| run.stderr.contains(words));
        said.extend(words.map(|(_, kind)| *kind));
        text.push_str(&run.stderr);
    }
    let known: BTreeSet<&str> = WORDS.iter().map(|(_, kind)| *kind).collect();
    let ours = case.all.iter().map(|(kind, ..)| *kind);
    let ours: BTreeSet<&str> = ours.filter(|kind| known.contains(kind)).collect();
    ensure!(said == ours, "they say {said:?}, we say {ours:?}\n{text}");
    for (kind, objects, _) in case.all.iter().filter(|(kind, ..)| *kind == "lock-order") {
        for object in *objects {
            let name = object.split('+').next().unwrap_or(object);
            ensure!(
                text.contains(&format!("\"{name}\"")),
                "{kind}: nothing of {name}\n{text}"
            );
        }
    }
    Ok(())
}

/// Most events are missing; what is said must still be so.
fn within_a_budget() -> Result<()> {
    let case = case("busy.c", &[], &[]);
    for mode in ["--sync=all", "--sync=contended"] {
        let recorded = Recorded::of(&case, &[mode])?;
        let told = recorded.told()?;
        for finding in &recorded.report.findings {
            let name = finding.objects.first().and_then(|o| o.name.as_deref());
            let told = told.get(name.unwrap_or_default());
            let seen = told.is_some_and(|told| told.confirms(finding));
            // How much is waited there is for the reader to judge.
            let load = ["contention", "convoy"].contains(&finding.kind.as_str());
            ensure!(load || seen, "{mode}: invented: {finding:#?}");
        }
        // On a machine with much to do, holds are as long as the program itself says; what pauses add is more.
        let longest_told = told.values().map(|told| told.longest).max();
        let most = longest_told.unwrap_or_default() + Duration::from_millis(500);
        for object in &recorded.report.objects {
            let name = object.name.as_deref().unwrap_or_default();
            let longest = Duration::from_nanos(object.holds.max_ns);
            ensure!(
                longest < most,
                "{mode}: {name} held for {longest:?}, by its own word {longest_told:?} at most"
            );
        }
    }
    Ok(())
}

/// Threads that stand until the recorder has a processor: others want it, too, and it has one only.
fn on_one_busy_processor() -> Result<()> {
    let (folder, file) = waiting::compile_in("findings", "busy.c", C)?;
    let capture = folder.path().join("capture");
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut busy = Command::new("taskset");
        busy.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
        others.push(Background(process::start(&mut busy)?));
    }
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0"])
        .arg(report::unspool()?.get_program())
        .args(["record", "-q", "--sync=all", "-o"])
        .arg(&capture)
        .arg("--")
        .arg(&file);
    process::run(&mut command, Duration::from_secs(120))?.success()?;
    drop(others);
    let report = read(&capture)?;
    ensure!(report.recording.stood_ns > 0, "{:#?}", report.recording);
    Ok(())
}

/// How many a semaphore lets in is not recorded.
fn behind_a_semaphore() -> Result<()> {
    let case = Case {
        arguments: &["seated"],
        ..case("philosophers.c", &[], &[])
    };
    let recorded = Recorded::of(&case, &["--sync=all", "--budget", "none"])?;
    let findings = &recorded.report.findings;
    let orders: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.kind == "lock-order")
        .collect();
    let [order] = orders[..] else {
        bail!("{findings:#?}");
    };
    ensure!(
        !order.proved && order.text.contains("had passed semaphore seats"),
        "{order:#?}"
    );
    Ok(())
}

fn exit_codes() -> Result<()> {
    let (folder, file) = waiting::compile_in("findings", "inversion.c", C)?;
    let capture = folder.path().join("capture");
    let record = |options: &[&str]| -> Result<i32> {
        let mut command = report::unspool()?;
        command
            .args(["record", "-q", "--sync=all", "--budget", "none", "-o"])
            .arg(&capture);
        command.args(options).arg("--").arg(&file);
        process::run(&mut command, Duration::from_secs(120))?.code()
    };
    let report = |options: &[&str]| -> Result<i32> {
        let mut command = report::unspool()?;
        command.arg("report").arg(&capture).args(options);
        process::run(&mut command, Duration::from_secs(120))?.code()
    };
    for (options, code) in [
        (&["--fail-on", "lock-order"][..], 3),
        (&["--fail-on", "any"], 3),
        (&["--fail-on", "deadlock,lock-order:proved"], 3),
        (&["--fail-on", "deadlock,convoy"], 0),
        (&["--fail-on", "nonsense"], 2),
        (&[], 0),
    ] {
        let (recorded, reported) = (record(options)?, report(options)?);
        ensure!(
            (recorded, reported) == (code, code),
            "{options:?}: {recorded}, {reported}"
        );
    }
    Ok(())
}
