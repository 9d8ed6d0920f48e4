//! Tests findings of recordings: programs with one defect each, and healthy programs without
//! findings.
//!
//! The truth is the program's design, its own counts of locks, and the results of Helgrind and DRD
//! for the same binaries.

mod ended;
mod executed;
mod hangs;
mod turns;
mod words;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use unspool_tests::finding::{
    self, C, CASES, CLANG, CXX, Case, Finding, MUSL, MUSL_STATIC, Mode, RUST, Recorded, Report,
    case,
};
use unspool_tests::process::{self, Background, Run};
use unspool_tests::report;
use unspool_tests::waiting;

/// Sources that are also tested with musl, dynamic and static.
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

/// Sources that are also tested with Helgrind and DRD, which know these kinds of findings.
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
        for mode in Mode::ALL {
            trials.push(crate::trial(
                format!("findings::{}::{}", case.name, mode.name()),
                move || found_in(case, mode),
            ));
        }
    }
    for case in CASES
        .iter()
        .filter(|case| MUSL_SOURCES.contains(&case.name))
    {
        for (library, command) in [("musl", MUSL), ("musl-static", MUSL_STATIC)] {
            for mode in Mode::ALL {
                let case = Case { command, ..*case };
                trials.push(crate::trial(
                    format!("findings::{}::{library}::{}", case.name, mode.name()),
                    move || found_in(&case, mode),
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
        "findings::no-false-findings-within-a-budget",
        within_a_budget,
    ));
    trials.push(crate::trial(
        "findings::no-proof-behind-a-semaphore",
        behind_a_semaphore,
    ));
    for by in [&["join"], &["barrier"]] {
        trials.push(crate::trial(
            format!("findings::no-proof-across-a-{}", by[0]),
            move || parted(by),
        ));
    }
    for (how, doing) in HOLDERS {
        for mode in Mode::ALL {
            trials.push(crate::trial(
                format!("findings::a-holder-that-waits::{}::{}", how[0], mode.name()),
                move || holder_that_waits(how, doing, mode),
            ));
        }
    }
    for mode in Mode::ALL {
        trials.push(crate::trial(
            format!("findings::a-semaphore-used-as-a-lock::{}", mode.name()),
            move || semaphore_as_lock(mode),
        ));
        trials.push(crate::trial(
            format!("findings::parked-helpers::{}", mode.name()),
            move || parked_helpers(mode),
        ));
    }
    trials.push(crate::trial(
        "findings::recorder-stalls-are-reported",
        on_one_busy_processor,
    ));
    trials.push(crate::trial("findings::exit-codes", exit_codes));
    trials.push(crate::trial("findings::too-little-seen", too_little_seen));
    let runs = [
        ("lossless", process::run as Runs),
        ("lossless-slow", process::run_on_busy_machine),
    ];
    for (name, run) in runs {
        trials.push(crate::trial(format!("findings::{name}"), move || {
            nothing_is_lost(run)
        }));
    }
    trials.extend(ended::trials());
    trials.extend(executed::trials());
    trials.extend(hangs::trials());
    trials.extend(turns::trials());
    trials.extend(words::trials());
    trials
}

fn record(case: &Case, options: &[&str]) -> Result<Recorded> {
    record_by(process::run, case, options)
}

/// Runs the recorder within a time limit.
type Runs = fn(&mut Command, Duration) -> Result<Run>;

fn record_by(run: Runs, case: &Case, options: &[&str]) -> Result<Recorded> {
    let (folder, file) = waiting::compile_in("findings", case.source, case.command)?;
    let capture = folder.path().join("capture");
    let mut command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(&capture);
    command
        .args(options)
        .arg("--")
        .arg(&file)
        .args(case.arguments);
    let run = run(&mut command, Duration::from_secs(120))?.success()?;
    Ok(Recorded {
        report: read(&capture)?,
        text: run.text(),
    })
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

fn found_in(case: &Case, mode: Mode) -> Result<()> {
    let sync = format!("--sync={}", mode.name());
    finding::repeat_until_expected(|| {
        record(case, &[&sync, "--budget", "none"])?.unconfirmed_load(case, mode)
    })
}

/// Hundreds of threads that only lock and unlock, faster than the recorder can read, and much
/// faster if it rarely runs.
fn nothing_is_lost(run: Runs) -> Result<()> {
    let case = case("hundreds.c", &[], &[]);
    let recorded = record_by(run, &case, &["--sync=all", "--budget", "none"])?;
    let report = &recorded.report;
    ensure!(report.recording.dropped_events == 0, "events were dropped");
    let locks = report.objects.iter().filter(|object| {
        let name = object.name.as_deref().unwrap_or_default();
        name.starts_with("locks[")
    });
    let created = report.threads.iter();
    let created = created.filter(|thread| thread.origin == "created");
    let told = format!(
        "taken {} by {} threads",
        locks.map(|object| object.taken).sum::<u64>(),
        created.count()
    );
    ensure!(
        recorded.text.contains(&told),
        "seen: {told}\n{}",
        recorded.text
    );
    Ok(())
}

/// The terms of Helgrind and DRD for our findings, and whether they report them in all our
/// programs.
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
            let name = object.split('[').next().unwrap_or(object);
            ensure!(
                text.contains(&format!("\"{name}\"")),
                "{kind}: nothing of {name}\n{text}"
            );
        }
    }
    Ok(())
}

/// Most events are missing, but the findings must still be true.
fn within_a_budget() -> Result<()> {
    let case = case("busy.c", &[], &[]);
    for mode in ["--sync=all", "--sync=contended"] {
        let recorded = record(&case, &[mode])?;
        let told = recorded.lock_counts()?;
        for finding in &recorded.report.findings {
            let name = finding.objects.first().and_then(|o| o.name.as_deref());
            let told = told.get(name.unwrap_or_default());
            let seen = told.is_some_and(|told| told.confirms(finding));
            // Whether the amount of waiting matters is for the reader to judge.
            let load = ["contention", "convoy"].contains(&finding.kind.as_str());
            ensure!(load || seen, "{mode}: invented: {finding:#?}");
        }
        // On a busy machine, holds last as long as the program states; pauses may add more.
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

/// If most events are missing, the report must not claim that nothing is wrong.
fn too_little_seen() -> Result<()> {
    // The budget misses nearly all calls of one program, however long it runs.
    let (_folder, busy) = waiting::compile_in("findings", "busy.c", C)?;
    let (folder, traffic) = waiting::compile_in("waits", "traffic.c", C)?;
    let capture = folder.path().join("capture");
    let run = |command: &mut Command| process::run(command, Duration::from_secs(120));
    for (budget, file, argument, little) in [
        ("0.1%", &busy, "2000", true),
        ("0.1%", &busy, "200", true),
        ("none", &traffic, "part", false),
    ] {
        let mut record = report::unspool()?;
        record.args(["record", "-q", "--sync=all", "--budget", budget, "-o"]);
        record.arg(&capture).arg("--").arg(file).arg(argument);
        run(&mut record)?.success()?;
        let report = |options: &[&str]| {
            let mut command = report::unspool()?;
            run(command.arg("report").arg(&capture).args(options))
        };
        let json: serde_json::Value =
            serde_json::from_slice(&report(&["--format", "json"])?.success()?.stdout)?;
        let recording = &json["recording"];
        ensure!(
            recording["too_little_seen"] == little && recording["complete"] == !little,
            "{budget}: {recording:#}"
        );
        ensure!(
            recording["too_few_lock_calls"] == little
                && json["lock_order_note"].is_string() == little,
            "{budget}: {}",
            json["lock_order_note"]
        );
        // The kernel's schedule has the waits then.
        let locks = json["lock_waits"].as_array().context("lock_waits")?;
        ensure!(locks.is_empty() != little, "{budget}: {locks:#?}");
        for view in ["tree", "findings", "waits", "timeline", "lock-order"] {
            let text = report(&["--view", view])?.success()?.stdout;
            let text = String::from_utf8(text)?;
            let begins = text.starts_with("! Too little was recorded to judge:");
            ensure!(begins == little, "{budget}, {view}: {text}");
            ensure!(
                !little || !text.contains("no findings.") && !text.contains(" %"),
                "{budget}, {view}: {text}"
            );
            let unknown = text.contains("? unknown");
            // The kernel's schedule shows that threads were blocked, and in which system call.
            let words: Vec<&str> = text.split_whitespace().collect();
            let words = words.join(" ");
            let blocked = words.contains("╌ blocked (reason not recorded)")
                || words.contains("blocked in pthread_mutex_lock() of");
            let drawn = unknown || blocked;
            ensure!(
                if little && view == "timeline" {
                    drawn
                } else {
                    !unknown
                },
                "{budget}: {text}"
            );
        }
        let unknown = if little { 4 } else { 0 };
        for (kind, code) in [
            ("wrong-unlock", unknown),
            ("lock-order", unknown),
            ("churn", 0),
        ] {
            let found = report(&["--fail-on", kind])?.code()?;
            ensure!(
                found == code,
                "{budget}: --fail-on {kind} exits with {found}"
            );
        }
    }
    Ok(())
}

/// Threads that are stopped until the recorder gets the only processor, which others also want.
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
    ensure!(report.recording.late_ns > 0, "{:#?}", report.recording);
    Ok(())
}

/// The arguments of `blocked.c` that select the holder's wait, and the expected text.
const HOLDERS: &[(&[&str], &str)] = &[
    (&["read"], "it was in read() of pipe:["),
    (&["poll"], "it was in poll()"),
    (&["sleep"], "nanosleep()"),
    (&["cond"], "it waited for condition variable ready"),
];

/// The holder of a lock is named with its own wait, and totals are distinguished from single waits.
fn holder_that_waits(how: &'static [&'static str], doing: &str, mode: Mode) -> Result<()> {
    let case = Case {
        arguments: how,
        ..case("blocked.c", &[], &[])
    };
    let sync = format!("--sync={}", mode.name());
    let recorded = record(&case, &[&sync, "--budget", "none"])?;
    let findings = &recorded.report.findings;
    let hold = findings.iter().find(|finding| finding.kind == "long-hold");
    let hold = hold.with_context(|| format!("{findings:#?}"))?;
    for words in [
        "refill (TID ",
        "held mutex cache_lock for ",
        doing,
        ", called in refill (blocked.c:",
        "Meanwhile 5 threads waited for it",
        "lookup (TID ",
        "The waits of these threads add up to ",
    ] {
        ensure!(hold.text.contains(words), "{words}: {}", hold.text);
    }
    Ok(())
}

/// A semaphore that its takers post is a lock, and its finding is inferred. Another one, at which
/// threads wait for work, gives no finding.
fn semaphore_as_lock(mode: Mode) -> Result<()> {
    let sync = format!("--sync={}", mode.name());
    let case = case("semaphore.c", &[], &[]);
    let recorded = record(&case, &[&sync, "--budget", "none"])?;
    let findings = &recorded.report.findings;
    let loads = findings
        .iter()
        .filter(|finding| ["contention", "convoy"].contains(&finding.kind.as_str()));
    let loads: Vec<&Finding> = loads.collect();
    let [finding] = loads[..] else {
        bail!("{findings:#?}");
    };
    for words in ["semaphore gate", "Unspool treats it as a lock"] {
        ensure!(finding.text.contains(words), "{words}: {finding:#?}");
    }
    ensure!(!finding.proved, "{finding:#?}");
    Ok(())
}

/// Threads that another one parks with a mutex each give one inferred finding.
fn parked_helpers(mode: Mode) -> Result<()> {
    let sync = format!("--sync={}", mode.name());
    let case = case("parked.c", &[], &[]);
    let recorded = record(&case, &[&sync, "--budget", "none"])?;
    let findings = &recorded.report.findings;
    let [finding] = &findings[..] else {
        bail!("{findings:#?}");
    };
    ensure!(
        finding.kind == "contention"
            && !finding.proved
            && finding
                .text
                .contains("one mutex for each of 2 helper threads"),
        "{finding:#?}"
    );
    Ok(())
}

/// The count of a semaphore is not recorded.
fn behind_a_semaphore() -> Result<()> {
    let case = Case {
        arguments: &["seated"],
        ..case("philosophers.c", &[], &[])
    };
    one_order(&case, "had taken semaphore seats")
}

/// Two threads cannot run at the same time if a join and a creation, or a barrier, lie between
/// them.
fn parted(arguments: &'static [&'static str]) -> Result<()> {
    let case = Case {
        arguments,
        ..case("apart.c", &[], &[])
    };
    one_order(&case, "no two threads could do this at the same time")
}

/// There is one finding for an order; it is inferred and gives the reason.
fn one_order(case: &Case, why: &str) -> Result<()> {
    let recorded = record(case, &["--sync=all", "--budget", "none"])?;
    let findings = &recorded.report.findings;
    let orders: Vec<&Finding> = findings
        .iter()
        .filter(|finding| finding.kind == "lock-order")
        .collect();
    let [order] = orders[..] else {
        bail!("{findings:#?}");
    };
    ensure!(!order.proved && order.text.contains(why), "{order:#?}");
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
