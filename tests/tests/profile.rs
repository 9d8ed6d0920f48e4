//! Tests profiles with programs whose functions run or block for known times, and where the kernel
//! refuses samples.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;

use unspool_tests::{process, report, waiting, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("known_shares", known_shares as fn() -> Result<()>),
        ("known_shares_by_timer", known_shares_by_timer),
        ("naps_by_timer", naps_by_timer),
        ("known_waits", known_waits),
        ("own_code", own_code),
        ("vdso", vdso),
        ("generated_code", generated_code),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("profile::{name}"), check))
    .collect()
}

const C: &[&str] = &["gcc", "-g", "-O1", "-fomit-frame-pointer", "-pthread"];
const LIMIT: Duration = Duration::from_secs(120);

/// Number of samples in a function.
fn samples(profile: &Value, function: &str, what: &str) -> Result<u64> {
    let functions = profile["functions"].as_array().context("functions")?;
    let found = functions.iter().find(|one| one["name"] == function);
    let found = found.with_context(|| format!("no {function} in {functions:#?}"))?;
    found[what].as_u64().context("a number")
}

/// `three` burns three times the processor time of `one`, in both threads. All samples together are
/// the processor time that the kernel counts. All stacks reach the start of their thread.
fn known_shares() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let json = shares(report::unspool()?, folder.path(), 1, 0.06)?;
    ensure!(json["profile"]["lost"] == 0, "{json:#}");
    ensure!(json["profile"]["by_timer"] == false, "{json:#}");
    Ok(())
}

/// The same where the kernel refuses perf events, so that the stub's timer takes the samples. The
/// report says why, and which setting to change.
fn known_shares_by_timer() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let record = refused_perf_events(folder.path())?;
    // The timer looks less often than the kernel, so take longer for as many different stacks.
    let json = shares(record, folder.path(), 10, 0.12)?;
    ensure!(json["profile"]["by_timer"] == true, "{json:#}");
    let mut view = report::unspool()?;
    view.arg("report").arg(folder.path().join("capture"));
    view.args(["--view", "profile", "--width", "1000"]);
    let text = process::run(&mut view, LIMIT)?.success()?.text();
    ensure!(
        text.contains("timer took the CPU samples") && text.contains("perf_event_open"),
        "{text}"
    );
    Ok(())
}

/// `unspool` where the kernel refuses perf events.
fn refused_perf_events(folder: &Path) -> Result<Command> {
    let confined = folder.join("confined");
    let mut compiler = Command::new("gcc");
    compiler.arg(workspace::root().join("stub/tests/programs/confined.c"));
    process::run(compiler.arg("-o").arg(&confined), LIMIT)?.success()?;
    let mut unspool = Command::new(&confined);
    unspool.arg("refused").arg(workspace::unspool()?);
    Ok(unspool)
}

/// The timer's samples of a thread that sleeps most of the time show what it computes, not how it
/// sleeps, also on a busy machine, where a thread that a timer has woken waits for a processor.
fn naps_by_timer() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (_programs, program) = waiting::compile_in(".", "naps.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = refused_perf_events(folder.path())?;
    record.args(["record", "--cpu=997", "-q", "-o"]);
    process::run(record.arg(&capture).arg("--").arg(&program), LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    let profile = &json["profile"];
    ensure!(profile["by_timer"] == true, "{profile:#}");
    let all = profile["samples"].as_array().context("samples")?.len();
    let (three, one) = (
        samples(profile, "three", "cum")?,
        samples(profile, "one", "cum")?,
    );
    ensure!(
        (three + one) as f64 >= 0.85 * all as f64,
        "{three} and {one} of {all}"
    );
    let of_three = three as f64 / (three + one) as f64;
    // Other programs on the processors may take time from either function.
    ensure!((0.5..0.9).contains(&of_three), "{three} to {one}");
    Ok(())
}

/// Stacks go on through the vDSO, which has no frame pointers, also in a later report.
fn vdso() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "clock.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "--cpu=997", "-q", "-o"]);
    process::run(record.arg(&capture).arg("--").arg(&program), LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    let profile = &json["profile"];
    let all = profile["samples"].as_array().context("samples")?.len();
    let in_main = samples(profile, "main", "cum")?;
    ensure!(all >= 100, "{all} samples");
    ensure!(in_main as f64 >= 0.95 * all as f64, "{in_main} of {all}");
    Ok(())
}

/// Stacks go on through code made at run time that keeps a frame pointer. They end in other such
/// code, and never leave out the function that called it.
fn generated_code() -> Result<()> {
    let with_frame_pointer = &[C, &["-fno-omit-frame-pointer"]].concat();
    for options in [C, with_frame_pointer] {
        let (folder, program) = waiting::compile_in(".", "generated.c", options)?;
        let capture = folder.path().join("capture");
        for keeps in [true, false] {
            let mut record = report::unspool()?;
            record.args(["record", "--cpu=997", "-q", "-o"]);
            record.arg(&capture).arg("--").arg(&program);
            process::run(record.args((!keeps).then_some("omit")), LIMIT)?.success()?;
            let json = report::json(&capture, &[])?;
            let creation = &json["threads"][1]["creation"];
            let has_caller = names(creation).contains(&"calls");
            ensure!(has_caller == keeps, "{creation:#}");
            let stacks = json["profile"]["stacks"].as_array().context("stacks")?;
            for stack in stacks {
                let names = names(&stack["frames"]);
                if !names.contains(&"burn") {
                    continue;
                }
                let ends = !stack["truncated"].is_null();
                let expected = [!keeps, keeps, keeps];
                let seen = [ends, names.contains(&"calls"), names.contains(&"run")];
                ensure!(seen == expected, "{stack:#}");
            }
        }
    }
    Ok(())
}

/// The functions of a stack.
fn names(frames: &Value) -> Vec<&str> {
    let frames = frames.as_array().into_iter().flatten();
    frames
        .filter_map(|frame| frame["function"].as_str())
        .collect()
}

/// The code that records calls in the program has a name, and its samples are not called too deep.
fn own_code() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "hot_lock.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args([
        "record",
        "--sync=all",
        "--cpu=997",
        "--budget",
        "none",
        "-q",
    ]);
    record.arg("-o").arg(&capture).arg("--").arg(&program);
    process::run(&mut record, LIMIT)?.success()?;
    let json = report::json(&capture, &[])?;
    let profile = &json["profile"];
    let all = profile["samples"].as_array().context("samples")?.len() as u64;
    let own = samples(profile, "[unspool]", "flat")?;
    ensure!(own * 10 > all, "{own} of {all}");
    let unknown = samples(profile, "[unknown]", "flat");
    ensure!(unknown.is_err(), "{unknown:?} of {all}");
    let mut view = report::unspool()?;
    view.arg("report")
        .arg(&capture)
        .args(["--view", "profile", "--width", "1000"]);
    let text = process::run(&mut view, LIMIT)?.success()?.text();
    ensure!(
        text.contains("in `[unspool]`: the code that records calls"),
        "{text}"
    );
    ensure!(!text.contains("--cpu-stack"), "{text}");
    Ok(())
}

/// Records the program, which runs this many times longer, checks its samples, and returns the
/// report. The functions' shares may differ by `tolerance`.
fn shares(mut record: Command, folder: &Path, length: u32, tolerance: f64) -> Result<Value> {
    let (_programs, program) = waiting::compile_in(".", "burn.c", C)?;
    let capture = folder.join("capture");
    record.args(["record", "--cpu=997", "-q", "-o"]);
    record.arg(&capture).arg("--").arg(&program);
    record.arg(length.to_string());
    let run = process::run(&mut record, LIMIT)?.success()?;
    let counted_ns: f64 = run.text().trim().parse().context("nanoseconds")?;
    let json = report::json(&capture, &[])?;
    let profile = &json["profile"];
    ensure!(profile["hz"] == 997, "{profile:#}");
    let all = profile["samples"].as_array().context("samples")?;
    let total = all.len() as u64;
    let period_ns = profile["period_ns"].as_f64().context("period")?;
    let lost = profile["lost"].as_u64().context("lost")?;
    let sampled_ns = total as f64 * period_ns;
    let ratio = (sampled_ns + lost as f64 * period_ns) / counted_ns;
    ensure!(
        (0.9..1.1).contains(&ratio) && lost < total,
        "{sampled_ns} sampled, {lost} lost, {counted_ns} counted"
    );

    let share = |part: u64| part as f64 / total as f64;
    ensure!(share(samples(profile, "burn", "flat")?) > 0.95);
    let (three, one) = (
        samples(profile, "three", "cum")?,
        samples(profile, "one", "cum")?,
    );
    let of_three = three as f64 / (three + one) as f64;
    ensure!((of_three - 0.75).abs() < tolerance, "{three} to {one}");

    let stacks = profile["stacks"].as_array().context("stacks")?;
    let mut complete = 0;
    let mut busy = std::collections::BTreeSet::new();
    for stack in stacks {
        for share in stack["shares"].as_array().context("shares")? {
            let count = share["samples"].as_u64().context("samples")?;
            complete += if stack["truncated"].is_null() {
                count
            } else {
                0
            };
            busy.insert(share["thread"].as_u64().context("a known thread")?);
        }
    }
    ensure!(share(complete) >= 0.99, "{complete} of {total}");
    ensure!(busy.len() == 2, "{busy:?}");

    let mut export = report::unspool()?;
    export.args(["export", "--format", "folded", "--stacks", "cpu"]);
    let folded = process::run(export.arg(&capture), LIMIT)?.success()?.text();
    let numbers = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let numbers: Result<Vec<f64>, _> = numbers.map(|(_, number)| number.parse()).collect();
    let sum: f64 = numbers?.iter().sum();
    ensure!((sum - sampled_ns).abs() < 1.0, "{sum} in {folded}");

    let mut view = report::unspool()?;
    view.arg("report").arg(&capture);
    view.args(["--view", "profile", "--focus", "burn"]);
    let text = process::run(&mut view, LIMIT)?.success()?.text();
    let at = |name: &str| text.find(name).with_context(|| format!("{name}: {text}"));
    ensure!(at("three")? < at("one")?, "{text}");
    Ok(json)
}

/// Threads are blocked in `asleep`, `reads` and `locks` for as long as the program measures. All
/// stacks reach the start of their thread, and end in the system call and the waker.
fn known_waits() -> Result<()> {
    let (folder, program) = waiting::compile_in(".", "blocked.c", C)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    record.args(["record", "--cpu", "-q", "-o"]);
    record.arg(&capture).arg("--").arg(&program);
    let run = process::run(&mut record, LIMIT)?.success()?;
    let output = run.text();
    let printed: Vec<f64> = output
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let json = report::json(&capture, &[])?;
    let off_cpu = &json["profile"]["off_cpu"];
    let functions = off_cpu["functions"].as_array().context("functions")?;
    // On a busy machine the program's times include waits for a processor.
    let threads = json["threads"].as_array().context("threads")?;
    let runnable = threads.iter().map(|one| &one["schedule"]["runnable_ns"]);
    let runnable_ns: f64 = runnable.filter_map(Value::as_f64).sum();
    for (name, expected) in ["asleep", "reads", "locks"].iter().zip(&printed) {
        let found = functions.iter().find(|one| one["name"] == *name);
        let found = found.with_context(|| format!("no {name} in {functions:#?}"))?;
        let ns = found["cum_ns"].as_f64().context("a number")?;
        let least = expected * 0.95 - runnable_ns;
        ensure!(
            (least..expected * 1.05).contains(&ns),
            "{name}: {ns} of {expected}, {runnable_ns} runnable"
        );
    }

    let stacks = json["profile"]["stacks"].as_array().context("stacks")?;
    let sums = off_cpu["stacks"].as_array().context("sums")?;
    let (mut complete, mut total) = (0, 0);
    for sum in sums {
        let ns = sum["blocked_ns"].as_u64().context("nanoseconds")?;
        total += ns;
        let stack = sum["stack"].as_u64().and_then(|at| stacks.get(at as usize));
        let is_complete = stack.is_some_and(|stack| stack["truncated"].is_null());
        complete += if is_complete { ns } else { 0 };
    }
    ensure!(complete * 100 >= total * 99, "{complete} of {total}");

    let mut export = report::unspool()?;
    export.args(["export", "--format", "folded", "--stacks", "off-cpu"]);
    let folded = process::run(export.arg(&capture), LIMIT)?.success()?.text();
    ensure!(
        folded.contains(";reads;") && folded.contains(";read() of pipe:["),
        "{folded}"
    );
    let numbers = folded.lines().filter_map(|line| line.rsplit_once(' '));
    let numbers: Result<Vec<u64>, _> = numbers.map(|(_, number)| number.parse()).collect();
    ensure!(numbers?.iter().sum::<u64>() == total, "{folded}");

    let mut view = report::unspool()?;
    view.arg("report").arg(&capture);
    view.args(["--view", "profile", "--off-cpu", "--focus", "locks"]);
    let text = process::run(&mut view, LIMIT)?.success()?.text();
    let at = |name: &str| text.find(name).with_context(|| format!("{name}: {text}"));
    ensure!(at("locker")? < at("locks  ")?, "{text}");
    Ok(())
}
