//! Tests many clients of one stub in sequence: inspections, recordings and gdb. The stub gets its
//! program from the command line or from the clients.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::process::{self, Background};
use unspool_tests::{report, waiting, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("started", started as fn() -> Result<()>),
        ("attached", attached),
        ("named_process", named_process),
        ("named_program", named_program),
        ("named_program_is_ended", ended),
        ("large_frames", large_frames),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("looks::{name}"), check))
    .collect()
}

const LIMIT: Duration = Duration::from_secs(60);

/// Has a second thread, and waits until it is killed.
const WAITS: &str = "\
import signal, threading
signal.signal(signal.SIGINT, signal.SIG_DFL)
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
signal.pause()
";

fn python() -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-S", "-c", WAITS]);
    command
}

/// A stub with these arguments, and its address.
pub(crate) fn serve(arguments: impl FnOnce(&mut Command)) -> Result<(Background, String)> {
    let mut command = Command::new(workspace::stub()?);
    arguments(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped());
    let mut stub = Background(process::start(&mut command)?);
    let mut errors = BufReader::new(stub.0.stderr.take().context("piped")?);
    let port = loop {
        let mut line = String::new();
        ensure!(errors.read_line(&mut line)? > 0, "the stub ended");
        if let Some(port) = line.trim().strip_prefix("Listening on port ") {
            break port.to_owned();
        }
    };
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Ok((stub, format!("127.0.0.1:{port}")))
}

/// The waiting program without a stub.
fn run() -> Result<Background> {
    let mut child = Background(process::start(python().stdout(Stdio::piped()))?);
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().context("piped")?).read_line(&mut line)?;
    ensure!(line == "ready\n", "{line:?}");
    Ok(child)
}

pub(crate) fn look(address: &str, options: &[&str]) -> Result<String> {
    let mut command = report::unspool()?;
    command
        .args(["inspect", "--connect", address])
        .args(options);
    Ok(process::run(&mut command, LIMIT)?.success()?.text())
}

/// Starts a recording; the signal that ends it is part of the command.
fn record(capture: &Path, address: &str, rest: &[&str]) -> Result<Background> {
    let mut command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(capture);
    command.args(["--connect", address]).args(rest);
    let child = Background(process::start(&mut command)?);
    process::wait_until("the recording has both threads", LIMIT, || {
        report::report_while_recording(capture).is_ok_and(|report| report.threads.len() == 2)
    })?;
    Ok(child)
}

fn end(recording: &Background) -> Result<()> {
    let pid = Pid::from_raw(recording.0.id().cast_signed());
    Ok(kill(pid, Signal::SIGINT)?)
}

/// The number of threads and the state of the program of a look, by the kernel's account.
fn kernel_view(look: &str) -> Result<(String, String)> {
    let pid = look
        .split_once("(pid ")
        .and_then(|(_, rest)| rest.split(',').next());
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.context("no pid")?))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    Ok((field("Threads:"), field("State:")))
}

/// Ten inspections, a recording, and gdb; the program keeps running.
fn one_after_the_other(address: &str) -> Result<()> {
    process::wait_until("the program has two threads", LIMIT, || {
        look(address, &[]).is_ok_and(|text| text.contains("2 threads"))
    })?;
    for _ in 0..10 {
        let text = look(address, &[])?;
        ensure!(text.contains("2 threads"), "{text}");
    }
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut recording = record(&capture, address, &[])?;
    end(&recording)?;
    recording.ends_well("the recording", LIMIT)?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex"]);
    gdb.arg(format!("target remote {address}"));
    gdb.args(["-ex", "info threads", "-ex", "detach"]);
    let text = process::run(&mut gdb, LIMIT)?.success()?.text();
    ensure!(text.matches("Thread ").count() == 2, "{text}");
    Ok(())
}

fn started() -> Result<()> {
    let (_stub, address) = serve(|stub| {
        stub.args(["127.0.0.1:0", "/usr/bin/python3", "-S", "-c", WAITS]);
    })?;
    // The stub has started it halted, and it stays so until a client resumes it.
    for _ in 0..2 {
        let text = look(&address, &[])?;
        ensure!(
            text.contains("1 thread.") && text.contains("The program was stopped"),
            "{text}"
        );
        let (threads, state) = kernel_view(&text)?;
        ensure!(
            threads == "1" && state.starts_with('t'),
            "{threads} {state}"
        );
    }
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-ex"]);
    gdb.arg(format!("target remote {address}"));
    gdb.args(["-ex", "info threads", "-ex", "detach"]);
    let text = process::run(&mut gdb, LIMIT)?.success()?.text();
    ensure!(text.contains("_start"), "{text}");
    one_after_the_other(&address)?;
    // gdb has detached, and the stub accepts more clients.
    ensure!(look(&address, &[])?.contains("2 threads"));
    Ok(())
}

fn attached() -> Result<()> {
    let program = run()?;
    let pid = program.0.id().to_string();
    let (mut stub, address) = serve(|stub| {
        stub.args(["--attach", "127.0.0.1:0", &pid]);
    })?;
    one_after_the_other(&address)?;
    // Like gdbserver, it ends when a debugger detaches from the process that it attached to.
    stub.ends_well("the stub", LIMIT)
}

/// A stub whose clients name the process, and its address.
pub(crate) fn multi() -> Result<(Background, String)> {
    serve(|stub| {
        stub.args(["--multi", "127.0.0.1:0"]);
    })
}

fn named_process() -> Result<()> {
    let (_stub, address) = multi()?;
    let mut command = report::unspool()?;
    command.args(["inspect", "--connect", &address]);
    let none = process::run(&mut command, LIMIT)?;
    ensure!(none.code()? == 1, "{none}");
    ensure!(none.stderr.contains("--attach PID"), "{none}");
    let folder = tempfile::tempdir()?;
    for round in 0..2 {
        let program = run()?;
        let pid = program.0.id().to_string();
        for _ in 0..2 {
            let text = look(&address, &["--attach", &pid])?;
            ensure!(
                text.contains("2 threads") && text.contains(&format!("pid {pid}")),
                "{text}"
            );
        }
        let capture = folder.path().join(round.to_string());
        let mut recording = record(&capture, &address, &["--attach", &pid])?;
        end(&recording)?;
        recording.ends_well("the recording", LIMIT)?;
        // The stub detaches when its last client has left.
        process::wait_until("the program is untraced", LIMIT, || {
            process::is_untraced(program.0.id())
        })?;
    }
    Ok(())
}

fn named_program() -> Result<()> {
    let (_stub, address) = multi()?;
    let folder = tempfile::tempdir()?;
    for code in [7, 0] {
        let capture = folder.path().join(code.to_string());
        let mut command = report::unspool()?;
        command.args(["record", "-q", "-o"]).arg(&capture);
        command.args(["--connect", &address, "--", "sh", "-c", "exit $1", "sh"]);
        command.arg(code.to_string());
        let run = process::run(&mut command, LIMIT)?;
        ensure!(run.code()? == code, "{run}");
        ensure!(report::report(&capture, &[])?.threads.len() == 1);
    }
    Ok(())
}

/// A program that the stub started for a recording ends with the recording.
fn ended() -> Result<()> {
    let (_stub, address) = multi()?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let program = ["--", "/usr/bin/python3", "-S", "-c", WAITS];
    let mut recording = record(&capture, &address, &program)?;
    end(&recording)?;
    let mut status = None;
    process::wait_until("the recording ends", LIMIT, || {
        status = recording.0.try_wait().ok().flatten();
        status.is_some()
    })?;
    let code = status.and_then(|status| status.code());
    ensure!(code == Some(128 + 2), "{status:?}");
    Ok(())
}

/// The creations have a frame of 1 MB above them, which a recorder that observes follows, too.
fn large_frames() -> Result<()> {
    let options = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "bigframe.c", &options)?;
    let capture = folder.path().join("capture");
    let (_stub, address) = serve(|stub| {
        stub.arg("127.0.0.1:0").arg(&program);
    })?;
    let mut command = report::unspool()?;
    command.args(["record", "-q", "--connect", &address, "-o"]);
    process::run(command.arg(&capture), LIMIT)?.success()?;
    let report = report::report(&capture, &[])?;
    let created = |thread: &&report::Thread| thread.creator_tid.is_some();
    let created: Vec<&report::Thread> = report.threads.iter().filter(created).collect();
    ensure!(created.len() == 2, "{}", created.len());
    for thread in created {
        let frames = thread.creation.iter();
        let frames: Vec<&str> = frames.filter_map(|f| f.function.as_deref()).collect();
        ensure!(
            frames.starts_with(&["with_a_megabyte", "caller", "main"]),
            "{frames:?}"
        );
    }
    Ok(())
}
