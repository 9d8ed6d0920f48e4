//! Tests that `record` does not change the program's input, output, exit code and signals, and what
//! it leaves behind when it ends early.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use unspool_tests::process::{self, Background};
use unspool_tests::report;
use unspool_tests::waiting;

pub(crate) fn trials() -> Vec<Trial> {
    [
        ("exit_code", exit_code as fn() -> Result<()>),
        ("ended_by_a_signal", ended_by_a_signal),
        ("standard_input", standard_input),
        ("signals_of_its_own", signals_of_its_own),
        ("children", children),
        ("fork_and_threads", fork_and_threads),
        ("report_on_standard_error", report_on_standard_error),
        ("interrupted", interrupted),
        ("interrupted_with_children", interrupted_with_children),
        ("attach_and_detach", attach_and_detach),
        ("last_threads", last_threads),
        ("ended_with_its_group", ended_with_its_group),
        ("stopped", stopped),
        ("killed", killed),
        ("started_by_a_link", started_by_a_link),
        ("functions_of_a_link", functions_of_a_link),
        ("word_of_the_command", word_of_the_command),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("record::{name}"), check))
    .collect()
}

const LIMIT: Duration = Duration::from_secs(30);

fn record(folder: &Path, words: &[&str]) -> Result<Command> {
    let mut command = report::unspool()?;
    command
        .args(["record", "-q", "-o"])
        .arg(folder.join("capture"))
        .arg("--")
        .args(words);
    Ok(command)
}

fn exit_code() -> Result<()> {
    for code in [0, 1, 7, 255] {
        let folder = tempfile::tempdir()?;
        let mut command = record(folder.path(), &["sh", "-c", &format!("exit {code}")])?;
        let run = process::run(&mut command, LIMIT)?;
        ensure!(run.code()? == code, "{run}");
        ensure!(
            run.stdout.is_empty() && run.stderr.is_empty(),
            "says something\n{run}"
        );
    }
    Ok(())
}

fn ended_by_a_signal() -> Result<()> {
    for (signal, number) in [("TERM", 15), ("SEGV", 11), ("KILL", 9), ("TRAP", 5)] {
        let folder = tempfile::tempdir()?;
        let mut command = record(folder.path(), &["sh", "-c", &format!("kill -{signal} $$")])?;
        let run = process::run(&mut command, LIMIT)?;
        ensure!(run.code()? == 128 + number, "SIG{signal}\n{run}");
    }
    Ok(())
}

fn standard_input() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let input: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut command = record(folder.path(), &["cat"])?;
    let run = process::run_with_input(&mut command, &input, LIMIT)?.success()?;
    ensure!(
        run.stdout == input,
        "{} bytes of {} came through",
        run.stdout.len(),
        input.len()
    );
    Ok(())
}

fn signals_of_its_own() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script =
        "trap 'echo caught' USR1 INT ALRM; kill -USR1 $$; kill -INT $$; kill -ALRM $$; echo end";
    let mut command = record(folder.path(), &["sh", "-c", script])?;
    let run = process::run(&mut command, LIMIT)?.success()?;
    ensure!(run.text() == "caught\ncaught\ncaught\nend\n", "{run}");
    Ok(())
}

/// Children run unchanged. An inherited breakpoint would end them with SIGTRAP.
fn children() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = "for n in 1 2 3; do echo $n | cat | cat; done; (exit 3) || echo $?";
    let mut command = record(folder.path(), &["sh", "-c", script])?;
    let run = process::run(&mut command, LIMIT)?.success()?;
    ensure!(run.text() == "1\n2\n3\n3\n", "{run}");
    Ok(())
}

/// A program with threads that forks children with threads, by fork and by vfork or clone.
fn fork_and_threads() -> Result<()> {
    let script = "\
import os, subprocess, threading
def work(): results.append(1)
results = []
for n in range(3):
    thread = threading.Thread(target=work); thread.start(); thread.join()
child = os.fork()
if child == 0:
    thread = threading.Thread(target=work); thread.start(); thread.join()
    os._exit(len(results))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(subprocess.run(['/usr/bin/python3', '-S', '-c',
    'import threading; t = threading.Thread(); t.start(); t.join(); print(5)'],
    capture_output=True, text=True).stdout.strip())
";
    let folder = tempfile::tempdir()?;
    let mut command = record(folder.path(), &["/usr/bin/python3", "-S", "-c", script])?;
    let run = process::run(&mut command, LIMIT)?.success()?;
    ensure!(run.text() == "4\n5\n", "{run}");
    let report = report::report(&folder.path().join("capture"), &[])?;
    let created = report.created().count();
    ensure!(
        created >= 3,
        "{created} threads of the program itself, 3 expected"
    );
    Ok(())
}

fn report_on_standard_error() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = report::unspool()?;
    command
        .args(["record", "--", "/usr/bin/python3", "-S", "-c", PYTHON])
        .current_dir(&folder);
    let run = process::run_with_input(&mut command, b"\n", LIMIT)?.success()?;
    ensure!(run.text() == "ready\n4\n", "{run}");
    ensure!(
        run.stderr.contains("python3"),
        "no report on standard error\n{run}"
    );
    ensure!(
        folder.path().join("capture.unspool").exists(),
        "not kept under the default name"
    );
    Ok(())
}

/// Prints `ready`, waits for a line, then creates four threads and prints that.
const PYTHON: &str = "\
import sys, threading
print('ready', flush=True)
sys.stdin.readline()
done = []
for n in range(4):
    thread = threading.Thread(target=done.append, args=(n,)); thread.start(); thread.join()
print(len(done), flush=True)
";

/// SIGINT ends the recording, the capture is complete, and a program that it started ends.
fn interrupted() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = record(folder.path(), &["/usr/bin/sleep", "97.125"])?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut unspool = Background(process::start(&mut command)?);
    process::wait_until("the program runs", LIMIT, || sleeping("97.125"))?;
    kill(Pid::from_raw(unspool.0.id().cast_signed()), Signal::SIGINT)?;
    let mut status = None;
    process::wait_until("record ends", LIMIT, || {
        status = unspool.0.try_wait().ok().flatten();
        status.is_some()
    })?;
    ensure!(
        status.and_then(|status| status.code()) == Some(130),
        "{status:?}"
    );
    ensure!(!sleeping("97.125"), "the program still runs");
    report::report(&folder.path().join("capture"), &[])?;
    Ok(())
}

/// Whether `sleep` runs with this argument, which each caller chooses differently.
fn sleeping(argument: &str) -> bool {
    let mut pgrep = Command::new("pgrep");
    pgrep.args([
        "-f",
        "-x",
        &format!("/usr/bin/sleep {}", argument.replace('.', "\\.")),
    ]);
    pgrep
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A program that creates its threads on request.
struct Told(Background);

impl Told {
    fn start(mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = Background(process::start(&mut command)?);
        let mut ready = [0; 6];
        child
            .0
            .stdout
            .as_mut()
            .context("piped")?
            .read_exact(&mut ready)?;
        ensure!(&ready == b"ready\n", "it says {ready:?}");
        Ok(Self(child))
    }

    /// Makes it create its threads; returns its remaining output.
    fn go_on(&mut self) -> Result<String> {
        let mut stdin = self.0.0.stdin.take().context("piped")?;
        stdin.write_all(b"\n")?;
        let mut text = String::new();
        self.0
            .0
            .stdout
            .as_mut()
            .context("piped")?
            .read_to_string(&mut text)?;
        Ok(text)
    }
}

fn python() -> Command {
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-S", "-c", PYTHON]);
    python
}

fn tracer(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.unwrap_or("gone").trim().to_owned()
}

/// At the end of a recording, the processes that the program has started get SIGINT, too, as from a
/// terminal. A shell waits for them, so that it would otherwise be killed, and they would go on.
fn interrupted_with_children() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut record = report::unspool()?;
    record.args(["record", "--duration", "1", "-o"]);
    record.arg(folder.path().join("capture"));
    record.args(["--", "sh", "-c", "sleep 1000 | cat; sleep 1000"]);
    let run = process::run(&mut record, LIMIT)?;
    ensure!(
        run.code()? == 130 && !run.stderr.contains("was killed"),
        "{run}"
    );
    let json = report::json(&folder.path().join("capture"), &[])?;
    let started = json["processes"].as_array().context("processes")?;
    ensure!(started.len() == 2, "{started:#?}");
    for process in started {
        let folder = format!("/proc/{}", process["pid"]);
        ensure!(!std::path::Path::new(&folder).exists(), "{process:#}");
    }
    Ok(())
}

/// Attach, SIGINT: the program continues with its original code; traps would end it.
fn attach_and_detach() -> Result<()> {
    let mut target = Told::start(python())?;
    let pid = target.0.0.id();
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut command = report::unspool()?;
    command
        .args(["record", "-q", "--attach", &pid.to_string(), "-o"])
        .arg(&capture);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut unspool = Background(process::start(&mut command)?);
    // Wait until it has attached and inserted breakpoints: the file exists and the target runs.
    process::wait_until("record attaches", LIMIT, || {
        capture.exists() && tracer(pid) != "0"
    })?;
    std::thread::sleep(Duration::from_millis(500));
    kill(Pid::from_raw(unspool.0.id().cast_signed()), Signal::SIGINT)?;
    unspool.ends_well("record", LIMIT)?;
    process::wait_until("the target is let go", LIMIT, || tracer(pid) == "0")?;
    let text = target.go_on()?;
    ensure!(text == "4\n", "the target wrote {text:?}");
    target.0.ends_well("the target", LIMIT)?;
    report::report(&capture, &[])?;
    Ok(())
}

/// Threads that the program's exit ends were alive to the end, however long the kernel takes to end
/// them. A thread that ends just before was not.
fn last_threads() -> Result<()> {
    let options = ["cc", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "last_threads.c", &options)?;
    let program = program.to_str().context("UTF-8")?;
    for _ in 0..5 {
        let mut command = record(folder.path(), &[program])?;
        process::run_on_busy_machine(&mut command, LIMIT)?.success()?;
        let report = report::report(&folder.path().join("capture"), &[])?;
        let ends = |function: &str| -> Vec<&str> {
            let threads = report.created();
            let threads = threads.filter(|one| one.function.as_deref() == Some(function));
            threads.map(|thread| thread.end.as_str()).collect()
        };
        ensure!(ends("lasting") == ["alive"; 20], "{:?}", ends("lasting"));
        ensure!(ends("brief") == ["exited"], "{:?}", ends("brief"));
    }
    Ok(())
}

/// timeout(1) sends SIGTERM to the program, the recorder and the stub.
fn ended_with_its_group() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = record(folder.path(), &["sleep", "100"])?;
    let mut timeout = Command::new("timeout");
    timeout.arg("1").arg(program.get_program());
    let run = process::run(timeout.args(program.get_args()), LIMIT)?;
    ensure!(run.code()? == 124 && run.stderr.is_empty(), "{run}");
    let report = report::json(&folder.path().join("capture"), &[])?;
    let recording = &report["recording"];
    let errors = report["errors"].as_array().context("errors")?;
    ensure!(errors.is_empty(), "{errors:#?}");
    // The recorder may end the program, by SIGINT, before the signal of `timeout` arrives.
    let signal = &recording["signal"];
    ensure!(*signal == 15 || *signal == 2, "{recording:#}");
    Ok(())
}

/// A recorder that does not run for a while, as on a busy machine, loses nothing.
fn stopped() -> Result<()> {
    const THREADS: usize = 500;
    let script = format!(
        "\
import sys, threading
print('ready', flush=True); sys.stdin.readline()
for n in range({THREADS}):
    thread = threading.Thread(target=int); thread.start(); thread.join()
print('end.', flush=True)
"
    );
    let folder = tempfile::tempdir()?;
    let mut command = report::unspool()?;
    command
        .args(["record", "-q", "--budget", "none", "-o"])
        .arg(folder.path().join("capture"))
        .args(["--", "/usr/bin/python3", "-S", "-c", &script]);
    let mut unspool = Told::start(command)?;
    let recorder = Pid::from_raw(unspool.0.0.id().cast_signed());
    kill(recorder, Signal::SIGSTOP)?;
    let mut stdin = unspool.0.0.stdin.take().context("piped")?;
    stdin.write_all(b"\n")?;
    let mut end = [0; 5];
    let stdout = unspool.0.0.stdout.as_mut().context("piped")?;
    stdout.read_exact(&mut end)?;
    ensure!(&end == b"end.\n", "it says {end:?}");
    kill(recorder, Signal::SIGCONT)?;
    unspool.0.ends_well("record", LIMIT)?;
    let report = report::report(&folder.path().join("capture"), &[])?;
    let created = report.created().count();
    ensure!(
        created == THREADS,
        "{created} threads of {THREADS}; {:?}",
        report.notes
    );
    Ok(())
}

/// SIGKILL: the program continues as without recording; the capture opens and states that it is
/// cut.
fn killed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = record(folder.path(), &[])?;
    command
        .args(python().get_program().to_str())
        .args(python().get_args());
    let mut unspool = Told::start(command)?;
    std::thread::sleep(Duration::from_millis(300));
    kill(
        Pid::from_raw(unspool.0.0.id().cast_signed()),
        Signal::SIGKILL,
    )?;
    process::wait_until("the recorder is dead", LIMIT, || {
        unspool.0.0.try_wait().is_ok_and(|status| status.is_some())
    })?;
    std::thread::sleep(Duration::from_millis(300));
    // The pipes still belong to the program.
    let text = unspool.go_on()?;
    ensure!(
        text == "4\n",
        "the program wrote {text:?} after the recorder's death"
    );
    let mut report = report::unspool()?;
    report.arg("report").arg(folder.path().join("capture"));
    let run = process::run(&mut report, LIMIT)?;
    let all = format!("{}{}", run.text(), run.stderr).to_lowercase();
    ensure!(
        all.contains("cut") || all.contains("incomplete"),
        "does not say it is cut\n{run}"
    );
    Ok(())
}

/// In frames, too, a program has the name of the link by which it was started. A script's name is
/// not its interpreter's.
fn started_by_a_link() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = "/usr/bin/python3";
    let real = std::fs::canonicalize(program)?;
    let real = real.file_name().context("a file")?.to_string_lossy();
    let link = folder.path().join("serpent");
    std::os::unix::fs::symlink(program, &link)?;
    let body = "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()\n";
    let text = folder.path().join("text");
    std::fs::write(&text, format!("#!{program} -S\n{body}"))?;
    process::install(&text, &folder.path().join("script"), 0o755)?;

    for (words, started, shown) in [
        (
            ["./serpent", "-S", "script"].as_slice(),
            "serpent",
            "serpent",
        ),
        (&["./script"], "script", &real),
    ] {
        let mut command = record(folder.path(), words)?;
        process::run(command.current_dir(folder.path()), LIMIT)?.success()?;
        let mut command = report::unspool()?;
        let run = process::run(
            command.arg("report").arg(folder.path().join("capture")),
            LIMIT,
        )?;
        let text = run.success()?.text();
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        ensure!(text.starts_with(&format!("{started} (pid")), "{text}");
        ensure!(
            words
                .windows(3)
                .any(|it| it == ["Py_BytesMain", "in", shown]),
            "not in {shown}: {text}"
        );
    }
    Ok(())
}

/// Functions to record may be named by the link that was started, or by its file.
fn functions_of_a_link() -> Result<()> {
    let program = "/usr/bin/python3";
    let real = std::fs::canonicalize(program)?;
    let real = real.file_name().context("a file")?.to_string_lossy();
    let folder = tempfile::tempdir()?;
    std::os::unix::fs::symlink(program, folder.path().join("serpent"))?;
    for (file, calls) in [("serpent", true), (&real, true), ("snake", false)] {
        let capture = folder.path().join(format!("{file}.unspool"));
        let mut command = report::unspool()?;
        command.args(["record", "-q", "--trace", &format!("{file}:Py_BytesMain")]);
        command.arg("-o").arg(&capture);
        command.args(["--", "./serpent", "-S", "-c", ""]);
        process::run(command.current_dir(folder.path()), LIMIT)?.success()?;
        let mut command = report::unspool()?;
        command.args(["report", "--format", "json"]).arg(capture);
        let text = process::run(&mut command, LIMIT)?.success()?.text();
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let functions = report["functions"].as_array().context("functions")?;
        let called = functions.iter().any(|f| f["name"] == "Py_BytesMain");
        ensure!(called == calls, "{file}: {functions:#?}");
    }
    Ok(())
}

/// Programs that choose what to do by the word they were started with see the same word as without
/// the recorder: a path, or a name that was found in PATH.
fn word_of_the_command() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let link = folder.path().join("shell-by-a-link");
    std::os::unix::fs::symlink("/bin/sh", &link)?;
    let path = link.to_str().context("UTF-8")?;
    let directories = std::env::var("PATH")?;
    let directories = format!("{}:{directories}", folder.path().display());
    for word in [path, "shell-by-a-link"] {
        let mut command = record(folder.path(), &[word, "-c", "echo $0"])?;
        let run = process::run(command.env("PATH", &directories), LIMIT)?.success()?;
        ensure!(run.text().trim() == word, "{word}: {run}");
    }
    Ok(())
}
