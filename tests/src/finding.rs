//! Findings of recordings: programs with one defect each, and healthy programs without findings.
//!
//! Each case states the expected findings. The programs themselves print how often they took each
//! lock. Native trials and board trials share this module.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

/// gcc, C.
pub const C: &[&str] = &["gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
/// clang, C.
pub const CLANG: &[&str] = &["clang", "-std=gnu11", "-g", "-O2", "-pthread"];
/// gcc, C++.
pub const CXX: &[&str] = &["g++", "-std=c++20", "-g", "-O1", "-pthread"];
/// musl's gcc, dynamic.
pub const MUSL: &[&str] = &["musl-gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
/// musl's gcc, static.
pub const MUSL_STATIC: &[&str] = &["musl-gcc", "-std=gnu11", "-g", "-O1", "-pthread", "-static"];
/// Rust's compiler.
pub const RUST: &[&str] = &["rustc", "-g", "-O", "--edition=2021"];

/// An expected finding: its kind, the names of its objects, and for each piece of evidence the
/// function of the program that did it.
pub type Expected = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// A program, and its expected findings in each mode.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of the case.
    pub name: &'static str,
    /// The source in `programs/findings`.
    pub source: &'static str,
    /// The program's arguments.
    pub arguments: &'static [&'static str],
    /// The compiler command on this machine.
    pub command: &'static [&'static str],
    /// Findings under `--sync=all`.
    pub all: &'static [Expected],
    /// Findings under `--sync=contended`.
    pub contended: &'static [Expected],
}

/// A case from its source.
pub const fn case(
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
    &["forks[0]", "forks[1]", "forks[2]", "forks[3]", "forks[4]"],
    &["dine"; 10],
);

/// For Rust's locks, only waits and wakes are recorded.
const RUST_HOLD: &[Expected] = &[
    (
        "long-hold",
        &["rust::SETTINGS"],
        &["rust::main::{closure#0}", "rust::look"],
    ),
    (
        "contention",
        &["rust::SETTINGS"],
        &["rust::look", "rust::main::{closure#0}"],
    ),
];

/// All cases.
pub const CASES: &[Case] = &[
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
        &[
            ("long-hold", &["settings"], &["save", "look"]),
            ("contention", &["settings"], &["look", "save"]),
        ],
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
    Case {
        name: "signals-after-unlock",
        arguments: &["under-mutex"],
        ..case("signals.c", &[], &[])
    },
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
        ..case("rust.rs", RUST_HOLD, RUST_HOLD)
    },
];

/// The extent of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `--sync=all`.
    All,
    /// `--sync=contended`.
    Contended,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Mode; 2] = [Mode::All, Mode::Contended];

    /// The value of `--sync`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::All => "all",
            Mode::Contended => "contended",
        }
    }

    fn expected(self, case: &Case) -> &'static [Expected] {
        match self {
            Mode::All => case.all,
            Mode::Contended => case.contended,
        }
    }
}

/// The findings in `unspool report --format json` (docs/reference/report-json.md).
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Report {
    pub objects: Vec<Object>,
    pub findings: Vec<Finding>,
    pub recording: Recording,
    pub threads: Vec<Thread>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Thread {
    pub origin: String,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Recording {
    pub dropped_events: u64,
    pub duration_ns: u64,
    pub late_ns: u64,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Object {
    pub kind: String,
    pub name: Option<String>,
    pub taken: u64,
    pub waits: Lengths,
    pub holds: Lengths,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Lengths {
    pub total_ns: u64,
    pub max_ns: u64,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Finding {
    pub kind: String,
    pub proved: bool,
    pub objects: Vec<Named>,
    pub text: String,
    pub evidence: Vec<Evidence>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Named {
    pub name: Option<String>,
}

#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "docs/reference/report-json.md has them")]
pub struct Evidence {
    pub stack: Option<Vec<Value>>,
}

/// The recording of a program.
#[derive(Debug)]
pub struct Recorded {
    /// The program's output.
    pub text: String,
    /// The report.
    pub report: Report,
}

impl Recorded {
    /// The parsed lines `taken NAME COUNT LONGEST WAITED`.
    pub fn lock_counts(&self) -> Result<BTreeMap<String, LockCounts>> {
        let mut told = BTreeMap::new();
        for line in self.text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["taken", name, count, longest, waited] = words[..] {
                let name = name.to_owned();
                let us = |text: &str| Ok::<_, anyhow::Error>(Duration::from_micros(text.parse()?));
                let (longest, waited) = (us(longest)?, us(waited)?);
                told.insert(
                    name,
                    LockCounts {
                        taken: count.parse()?,
                        longest,
                        waited,
                    },
                );
            }
        }
        Ok(told)
    }

    /// Checks the findings. An error if an expected one is missing or an unexpected one is present.
    /// `Some` describes a finding about load that is not expected and that the program does not
    /// confirm.
    pub fn unconfirmed_load(&self, case: &Case, mode: Mode) -> Result<Option<String>> {
        let mut unconfirmed_load = None;
        let (report, told) = (&self.report, self.lock_counts()?);
        let expected = mode.expected(case);
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
                        && (finding
                            .text
                            .contains("recorder itself may have delayed threads")
                            || finding.text.contains("recorder delayed threads"));
                    // The data of a condition are not recorded.
                    let can_be_proved = finding.kind != "unlocked-signal";
                    ensure!(
                        stood || finding.proved == can_be_proved,
                        "proved is {}: {}",
                        finding.proved,
                        finding.text
                    );
                }
                None if told.values().any(|told| told.confirms(finding)) => {}
                None => {
                    let what = format!(
                        "nothing of the kind is in {}: {finding:#?}\n{}",
                        case.name, self.text
                    );
                    ensure!(LOAD.contains(&finding.kind.as_str()), what);
                    unconfirmed_load = Some(what);
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
        if mode == Mode::All {
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
        Ok(unconfirmed_load)
    }
}

/// Accepts chance findings that do not repeat.
///
/// On a busy machine, a thread may be delayed while it holds a lock, and that is found, too. `once`
/// makes another recording each time and returns its [`Recorded::unconfirmed_load`].
pub fn repeat_until_expected(once: impl Fn() -> Result<Option<String>>) -> Result<()> {
    for _ in 0..3 {
        let Some(unconfirmed_load) = once()? else {
            return Ok(());
        };
        eprintln!("{unconfirmed_load}");
    }
    match once()? {
        Some(always) => bail!("four times: {always}"),
        None => Ok(()),
    }
}

/// The program's own counts for a mutex.
#[derive(Clone, Copy, Debug)]
pub struct LockCounts {
    /// How often it was taken.
    pub taken: u64,
    /// Longest time that it was held.
    pub longest: Duration,
    /// Total time that threads waited for it.
    pub waited: Duration,
}

impl LockCounts {
    /// Whether the program itself observed the load. On a busy machine, a thread may be delayed at
    /// any point.
    pub fn confirms(&self, finding: &Finding) -> bool {
        let felt = Duration::from_millis(10);
        match finding.kind.as_str() {
            "long-hold" => self.longest >= felt,
            "contention" | "convoy" | "bottleneck" => self.waited >= felt,
            _ => false,
        }
    }
}

/// Findings about load need a minimum share of the recording, and must not be caused by the
/// recorder (docs/reference/report-json.md).
const LOAD: [&str; 3] = ["contention", "convoy", "long-hold"];

impl Report {
    /// Whether the machine was so busy that an expected finding about load may be missing: the
    /// recorder was late for most of the recording, which decides who waits for whom, or the
    /// program's own waits were short.
    fn excuses(&self, (kind, objects, _): &Expected) -> bool {
        let objects = self.objects.iter().filter(|object| {
            let name = object.name.as_deref();
            name.is_some_and(|name| objects.contains(&name))
        });
        let waited = objects.map(|object| object.waits.total_ns).max();
        let Recording {
            late_ns,
            duration_ns,
            ..
        } = self.recording;
        // Time in which all threads waited is not counted.
        let late = late_ns * self.threads.len() as u64;
        let own = waited.unwrap_or(0).saturating_sub(late);
        LOAD.contains(kind) && (late_ns > duration_ns / 2 || own < duration_ns / 20)
    }
}

fn passes(evidence: &Evidence, function: &str) -> bool {
    let frames = evidence.stack.iter().flatten();
    let mut names = frames.filter_map(|frame| frame["function"].as_str());
    names.any(|name| name == function)
}
