//! Tests recordings of several processes that already run: `record --attach PID,PID`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use unspool_tests::process::{self, Background};
use unspool_tests::report;
use unspool_tests::waiting::{self, HERE, Waiting};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("creations", creations as fn() -> Result<()>),
        ("one_ends_first", one_ends_first),
        ("deadlock", deadlock),
        ("by_name", by_name),
        ("wake_each_other", wake_each_other),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("several::{name}"), check))
    .collect()
}

const C: &[&str] = &["gcc", "-g", "-O1", "-pthread"];
const LIMIT: Duration = Duration::from_secs(120);
/// A time in which the recorder has begun, and records something.
const WHILE: Duration = Duration::from_millis(700);

/// A shell that executes these words when it gets a line.
fn waiting_shell(script: &str, program: &Path) -> Result<Background> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("read line; {script}"));
    shell.arg(program).stdin(Stdio::piped());
    shell.stdout(Stdio::null());
    Ok(Background(process::start(&mut shell)?))
}

fn go_on(shell: &mut Background) -> Result<()> {
    Ok(shell.0.stdin.as_mut().context("piped")?.write_all(b"\n")?)
}

/// Starts `unspool record` with these options, which attach to all `pids`, and waits for that.
fn record(capture: &Path, options: &[&str], pids: &[u32]) -> Result<Background> {
    let mut record = report::unspool()?;
    record.args(["record", "-q", "-o"]).arg(capture);
    let record = Background(process::start(record.args(options))?);
    for pid in pids {
        process::wait_until("the recorder comes", LIMIT, || !process::is_untraced(*pid))?;
    }
    std::thread::sleep(WHILE);
    Ok(record)
}

fn listed(pids: &[u32]) -> String {
    let words: Vec<String> = pids.iter().map(u32::to_string).collect();
    words.join(",")
}

/// Ends a recording as Ctrl-C does, and checks that the processes go on.
fn interrupt(mut record: Background, pids: &[u32]) -> Result<()> {
    kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
    record.ends_well("the recorder", LIMIT)?;
    for pid in pids {
        ensure!(process::is_untraced(*pid), "{pid} is traced, or has ended");
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        ensure!(!status.contains("State:\tT"), "{status}");
    }
    Ok(())
}

fn pids_of(report: &Value) -> Vec<u64> {
    let further = report["recorded"].as_array().into_iter().flatten();
    let all = std::iter::once(report).chain(further);
    all.filter_map(|one| one["target"]["pid"].as_u64())
        .collect()
}

fn same(pids: &[u32]) -> Vec<u64> {
    pids.iter().copied().map(u64::from).collect()
}

/// Each process has its threads, with their functions and the places of their creation. Each can be
/// the first one. When all have ended, so has the recording.
fn creations() -> Result<()> {
    let (folder, file) = waiting::compile_in(".", "pool.c", C)?;
    let capture = folder.path().join("capture");
    let start = || waiting_shell("exec \"$0\"", &file);
    let mut both = [start()?, start()?];
    let pids = both.each_ref().map(|one| one.0.id());
    let options = ["--sync", "--budget", "none", "--attach", &listed(&pids)];
    let mut record = record(&capture, &options, &pids)?;
    both.iter_mut().try_for_each(go_on)?;
    record.ends_well("the recorder", LIMIT)?;
    for order in [pids, [pids[1], pids[0]]] {
        let json = report::json(&capture, &["--process", &order[0].to_string()])?;
        ensure!(
            pids_of(&json) == same(&order),
            "{order:?}: {:?}",
            pids_of(&json)
        );
        for one in [&json, &json["recorded"][0]] {
            let threads = one["threads"].as_array().context("threads")?.iter();
            let workers = threads.filter(|it| it["function"] == "worker");
            let workers: Vec<&Value> = workers.collect();
            let is_placed = |it: &&Value| it["creation"][0]["function"] == "launch";
            ensure!(
                workers.len() == 8 && workers.iter().all(is_placed),
                "{workers:#?}"
            );
            let processes = one["processes"].as_array().context("processes")?;
            ensure!(processes.len() == 1, "{processes:#?}");
            ensure!(
                processes[0]["threads"].as_array().map(Vec::len) == Some(9),
                "{processes:#?}"
            );
        }
    }
    let mut command = report::unspool()?;
    command.arg("report").arg(&capture);
    let text = process::run(&mut command, LIMIT)?.success()?.text();
    for pid in pids {
        ensure!(text.contains(&format!("pool (pid {pid}, ")), "{text}");
    }
    command.args(["--process", "1"]);
    let run = process::run(&mut command, LIMIT)?;
    ensure!(
        run.code()? == 1 && run.stderr.contains("--process 1: the recording has only"),
        "{run}"
    );
    Ok(())
}

/// The recording goes on when a process ends, and its exit code is kept.
fn one_ends_first() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let script = "exit 3";
    let mut first = waiting_shell(script, Path::new("sh"))?;
    let second = waiting_shell(script, Path::new("sh"))?;
    let pids = [first.0.id(), second.0.id()];
    let mut record = record(&capture, &["--attach", &listed(&pids)], &pids)?;
    go_on(&mut first)?;
    process::wait_until("the shell ends", LIMIT, || {
        first.0.try_wait().is_ok_and(|end| end.is_some())
    })?;
    std::thread::sleep(WHILE);
    ensure!(record.0.try_wait()?.is_none(), "the recorder has ended");
    ensure!(!process::is_untraced(pids[1]), "the other one is left");
    kill(Pid::from_raw(record.0.id().cast_signed()), Signal::SIGINT)?;
    let end = record.0.wait()?;
    ensure!(end.code() == Some(3), "{end:?}");
    ensure!(process::is_untraced(pids[1]), "the other one is traced");
    let json = report::json(&capture, &[])?;
    ensure!(pids_of(&json) == same(&pids), "{:?}", pids_of(&json));
    ensure!(
        json["recording"]["exit_code"] == 3,
        "{:#}",
        json["recording"]
    );
    Ok(())
}

fn start_across() -> Result<(Waiting, [u32; 2])> {
    let (folder, file) = waiting::compile("across.c", C)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    let [child] = process::descendants(waiting.pid)[..] else {
        anyhow::bail!("one child");
    };
    let pids = [waiting.pid, child];
    Ok((waiting, pids))
}

/// A deadlock of two processes is proved, as `inspect` proves it, in either order.
fn deadlock() -> Result<()> {
    let (waiting, mut pids) = start_across()?;
    let [expected] = &waiting.findings[..] else {
        anyhow::bail!("it states one finding");
    };
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    for options in [&[][..], &["--sync"]] {
        let attach = ["--attach", &listed(&pids)];
        let record = record(&capture, &[options, &attach].concat(), &pids)?;
        interrupt(record, &pids)?;
        let json = report::json(&capture, &[])?;
        for process in [&json, &json["recorded"][0]] {
            let [found] = &process["findings"].as_array().context("findings")?[..] else {
                anyhow::bail!("{:#}", process["findings"]);
            };
            let threads = found["tids"].as_array().context("tids")?.iter();
            let mut threads: Vec<u64> = threads.filter_map(Value::as_u64).collect();
            threads.sort_unstable();
            ensure!(
                found["kind"] == "deadlock" && found["proved"] == true && threads == expected.tids,
                "{found:#}"
            );
        }
        pids.reverse();
    }
    let mut view = report::unspool()?;
    view.arg("report").arg(&capture);
    let text = process::run(&mut view, LIMIT)?.success()?.text();
    let parent = format!("Process {} (across) had started it.", waiting.pid);
    ensure!(text.contains(&parent), "{parent}: {text}");
    Ok(())
}

/// Records the processes of a deadlock together, and writes the page of the recording. Returns
/// their ids.
pub(crate) fn record_deadlock(capture: &Path, page: &Path) -> Result<[u32; 2]> {
    let (_waiting, pids) = start_across()?;
    let page = page.to_str().context("a path in UTF-8")?;
    let options = ["--html", page, "--attach", &listed(&pids)];
    interrupt(record(capture, &options, &pids)?, &pids)?;
    Ok(pids)
}

/// A name stands for all processes that have it.
fn by_name() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let name = format!("several-by-name-{}", std::process::id());
    let program = folder.path().join(&name);
    process::install(Path::new("/bin/sleep"), &program, 0o755)?;
    let start = || process::start(Command::new(&program).arg("60")).map(Background);
    let both = [start()?, start()?];
    let pids = both.each_ref().map(|one| one.0.id());
    let capture = folder.path().join("capture");
    let record = record(&capture, &["--attach-name", &name], &pids)?;
    interrupt(record, &pids)?;
    let mut recorded = pids_of(&report::json(&capture, &[])?);
    recorded.sort_unstable();
    let mut expected = same(&pids);
    expected.sort_unstable();
    ensure!(recorded == expected, "{recorded:?}");
    Ok(())
}

/// A process waits at a pipe, and the report names the other one that ends these waits.
fn wake_each_other() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let (read, write) = std::io::pipe()?;
    let mut reader = Command::new("cat");
    let mut writer = Command::new("sh");
    writer.args(["-c", "while sleep 0.02; do echo x; done"]);
    let reader = reader.stdin(read).stdout(Stdio::null());
    let reader = Background(process::start(reader)?);
    let writer = writer.stdin(Stdio::null()).stdout(write);
    let writer = Background(process::start(writer)?);
    let pids = [reader.0.id(), writer.0.id()];
    let record = record(&capture, &["--attach", &listed(&pids)], &pids)?;
    interrupt(record, &pids)?;
    let json = report::json(&capture, &[])?;
    if json["recording"]["schedule"]["wakers"] != true {
        return Ok(());
    }
    let mut view = report::unspool()?;
    view.arg("report").arg(&capture).args(["--view", "waits"]);
    let text = process::run(&mut view, LIMIT)?.success()?.text();
    let of_reader = text.matches("read() of pipe:").count();
    ensure!(of_reader == 1, "{of_reader}: {text}");
    ensure!(text.contains("main, woken by process sh"), "{text}");
    Ok(())
}
