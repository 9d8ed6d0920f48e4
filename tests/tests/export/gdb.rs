//! Tests the command file for gdb: a real gdb runs it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{LIMIT, export};
use unspool_tests::process::{self, Background};
use unspool_tests::{report, waiting};

/// gdb shows our names of all threads of a running process, and of its core. Another process has
/// no thread to name.
pub(super) fn names() -> Result<()> {
    let options = ["gcc", "-g", "-O1", "-pthread"];
    let (folder, program) = waiting::compile_in(".", "idle.c", &options)?;
    let mut command = Command::new(&program);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Background(process::start(&mut command)?);
    let output = child.0.stdout.take().context("piped")?;
    BufReader::new(output).read_line(&mut String::new())?;
    let pid = child.0.id().to_string();
    let capture = folder.path().join("capture");
    record(&capture, &pid)?;
    let (file, core) = (folder.path().join("names"), folder.path().join("core"));
    export(&capture, "gdb", &file, &[])?.success()?;

    let mut commands = vec!["info threads".to_owned(), "thread find idle".to_owned()];
    commands.push(format!("generate-core-file {}", core.display()));
    let live = gdb(&["-p", &pid], &file, &commands)?;
    let core = core.to_str().context("a path in UTF-8")?;
    let program = program.to_str().context("a path in UTF-8")?;
    let dead = gdb(&[program, core], &file, &commands[..2])?;
    for text in [live, dead] {
        ensure!(text.contains("Unspool named 5 of 5 threads."), "{text}");
        for tid in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            let tid = tid?.file_name().into_string().unwrap_or_default();
            let name = if tid == pid { "\"main\"" } else { "\"idle\"" };
            let line = text
                .lines()
                .find(|line| line.contains(&format!("(LWP {tid})")) && line.contains('"'));
            ensure!(
                line.is_some_and(|line| line.contains(name)),
                "{tid}: {text}"
            );
        }
        ensure!(text.matches("has name 'idle'").count() == 4, "{text}");
    }

    let mut other = Command::new("sleep");
    let other = Background(process::start(other.arg("300"))?);
    let text = gdb(&["-p", &other.0.id().to_string()], &file, &[])?;
    ensure!(
        text.contains("has no thread that Unspool recorded"),
        "{text}"
    );
    Ok(())
}

/// Records a running process with five threads for a moment.
fn record(capture: &Path, pid: &str) -> Result<()> {
    let mut command = report::unspool()?;
    command.args(["record", "-q", "--budget", "none", "-o"]);
    command.arg(capture).args(["--attach", pid]);
    let mut recording = Background(process::start(&mut command)?);
    process::wait_until("the recording has all threads", LIMIT, || {
        report::report_while_recording(capture).is_ok_and(|report| report.threads.len() == 5)
    })?;
    kill(
        Pid::from_raw(recording.0.id().cast_signed()),
        Signal::SIGINT,
    )?;
    recording.ends_well("the recording", LIMIT)
}

fn gdb(session: &[&str], file: &Path, commands: &[String]) -> Result<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch"]).args(session);
    gdb.arg("-x").arg(file);
    for command in commands {
        gdb.args(["-ex", command]);
    }
    Ok(process::run(&mut gdb, LIMIT)?.success()?.text())
}
