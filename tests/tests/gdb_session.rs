//! Runs real gdb 13 with `unspool-stub`, as people use it; the steps are in `gdb/session.py`.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use unspool_tests::build::{Build, Compiler, Link, Tables, Target};
use unspool_tests::process::{self, Background};
use unspool_tests::program::program;
use unspool_tests::workspace;

const PLAIN: Build = Build {
    program: "pool",
    compiler: Compiler::Gcc,
    target: Target::X86_64,
    level: 0,
    link: Link::Pie,
    tables: Tables::Default,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for link in [Link::Pie, Link::Fixed] {
        let build = Build { link, ..PLAIN };
        trials.push(trial(&format!("walk-{}", build.name()), move || {
            walk(build)
        }));
    }
    for (name, function, hits) in [
        ("pool", "worker", 8),
        ("nest", "branch", 30),
        ("shortlived", "blink", 300),
        ("churn", "short_work", 120),
        ("detached", "sem_post", 12),
        ("recursion", "descend", 200),
    ] {
        trials.push(trial(&format!("breakpoints-{name}"), move || {
            breakpoints(name, function, hits)
        }));
    }
    trials.push(trial("interrupt", interrupt));
    trials.push(trial("detach", detach));
    trials.push(trial("extended", extended));
    trials.push(trial("attach", attach));
    trials.push(trial("over_standard_input", over_standard_input));
    trials.push(trial("gdb_dies", gdb_dies));
    trials
}

fn trial(name: &str, check: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    crate::trial(format!("gdb_session::{name}"), check)
}

/// A stub that listens; standard output is the program's.
struct Stub {
    process: Background,
    port: u16,
}

impl Stub {
    fn start(mut command: Command) -> Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = Background(process::start(&mut command)?);
        let mut lines = BufReader::new(process.0.stderr.take().context("piped")?);
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                bail!("the stub ended before it listened: {seen}");
            }
            seen.push_str(&line);
            if let Some(port) = line.trim().strip_prefix("Listening on port ") {
                let port = port.parse()?;
                // Read its output, so that it never blocks.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
                return Ok(Self { process, port });
            }
        }
    }

    /// Waits for the stub's end; returns its standard output.
    fn finish(mut self) -> Result<String> {
        let mut status = None;
        process::wait_until("the stub ends", Duration::from_secs(10), || {
            status = self.process.0.try_wait().ok().flatten();
            status.is_some()
        })?;
        ensure!(
            status.is_some_and(|status| status.success()),
            "the stub: {status:?}"
        );
        output(&mut self.process.0)
    }
}

fn output(child: &mut Child) -> Result<String> {
    let mut text = String::new();
    child
        .stdout
        .take()
        .context("piped")?
        .read_to_string(&mut text)?;
    Ok(text)
}

fn unspool_stub(arguments: &[&str], program: &Path) -> Result<Command> {
    let mut command = Command::new(workspace::stub()?);
    command.args(arguments).arg("127.0.0.1:0").arg(program);
    Ok(command)
}

fn gdb(session: &str, stub: &str, program: &Path) -> Command {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"])
        .arg(workspace::file("gdb/settings.gdb"))
        .arg("-x")
        .arg(workspace::file("gdb/session.py"))
        .arg(program)
        .env("SESSION", session)
        .env("STUB", stub);
    gdb
}

fn session(mut gdb: Command) -> Result<()> {
    let run = process::run(&mut gdb, Duration::from_secs(120))?.success()?;
    ensure!(
        run.text().contains("\nsession done\n"),
        "the session did not end\n{run}"
    );
    Ok(())
}

fn walk(build: Build) -> Result<()> {
    let file = &build.built(program("pool"))?.program;
    // Once with the stub inside the analyzer's command, which must behave the same.
    let mut command = Command::new(workspace::unspool()?);
    command.args(["stub", "--once", "127.0.0.1:0"]).arg(file);
    let stub = Stub::start(command)?;
    session(gdb("walk", &format!("127.0.0.1:{}", stub.port), file))?;
    let text = stub.finish()?;
    ensure!(
        text == "pool: 8 workers, sum 31996000\n",
        "the program wrote {text:?}"
    );
    Ok(())
}

fn breakpoints(name: &'static str, function: &str, hits: u32) -> Result<()> {
    let file = &Build {
        program: name,
        ..PLAIN
    }
    .built(program(name))?
    .program;
    let stub = Stub::start(unspool_stub(&["--once"], file)?)?;
    let mut gdb = gdb("breakpoints", &format!("127.0.0.1:{}", stub.port), file);
    gdb.env("FUNCTION", function).env("HITS", hits.to_string());
    session(gdb)?;
    let text = stub.finish()?;
    ensure!(
        text.starts_with(&format!("{name}: ")),
        "the program wrote {text:?}"
    );
    Ok(())
}

fn interrupt() -> Result<()> {
    // The boards' programs, too, because the session knows their functions.
    let folder = tempfile::tempdir()?;
    let file = &folder.path().join("sleep");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-g", "-o"])
        .arg(file)
        .arg(workspace::file("programs/sleep.c"));
    process::run(&mut compiler, Duration::from_secs(60))?.success()?;
    let stub = Stub::start(unspool_stub(&["--once"], file)?)?;
    session(gdb("interrupt", &format!("127.0.0.1:{}", stub.port), file))?;
    stub.finish().map(|_| ())
}

fn detach() -> Result<()> {
    let file = &PLAIN.built(program("pool"))?.program;
    let stub = Stub::start(unspool_stub(&["--once"], file)?)?;
    session(gdb("detach", &format!("127.0.0.1:{}", stub.port), file))?;
    let text = stub.finish()?;
    ensure!(
        text == "pool: 8 workers, sum 31996000\n",
        "after the detach: {text:?}"
    );
    Ok(())
}

fn extended() -> Result<()> {
    let file = &PLAIN.built(program("pool"))?.program;
    let mut stub = Stub::start(unspool_stub(&["--multi"], file)?)?;
    session(gdb("extended", &format!("127.0.0.1:{}", stub.port), file))?;
    // With --multi it serves until it is terminated.
    ensure!(
        stub.process.0.try_wait()?.is_none(),
        "the stub ended with the session"
    );
    Ok(())
}

fn attach() -> Result<()> {
    let file = Path::new("/usr/bin/sleep");
    let mut sleep = Command::new(file);
    sleep.arg("60").stdin(Stdio::null());
    let target = Background(process::start(&mut sleep)?);
    let mut command = Command::new(workspace::stub()?);
    command.args(["--multi", "127.0.0.1:0"]);
    let stub = Stub::start(command)?;
    let mut gdb = gdb("attach", &format!("127.0.0.1:{}", stub.port), file);
    gdb.env("TARGET_PID", target.0.id().to_string());
    session(gdb)?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", target.0.id()))?;
    ensure!(
        status.contains("TracerPid:\t0"),
        "still traced after the detach"
    );
    ensure!(
        status.contains("State:\tS"),
        "not running after the detach:\n{status}"
    );
    Ok(())
}

/// `target extended-remote | unspool-stub - PROG`: the connection is a pipe.
fn over_standard_input() -> Result<()> {
    let file = &PLAIN.built(program("pool"))?.program;
    let stub = format!(
        "| {} --once - {}",
        workspace::stub()?.display(),
        file.display()
    );
    session(gdb("detach", &stub, file))
}

/// A client that disappears while breakpoints are inserted leaves the program running unchanged.
fn gdb_dies() -> Result<()> {
    let file = &PLAIN.built(program("pool"))?.program;
    let stub = Stub::start(unspool_stub(&["--once"], file)?)?;
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"])
        .arg(workspace::file("gdb/settings.gdb"))
        .arg(file)
        .args([
            "-ex",
            &format!("target extended-remote 127.0.0.1:{}", stub.port),
        ])
        .args(["-ex", "break worker", "-ex", "continue"])
        .args([
            "-ex",
            "python import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        ]);
    let run = process::run(&mut gdb, Duration::from_secs(60))?;
    ensure!(run.text().contains("hit Breakpoint 1, worker"), "{run}");
    let text = stub.finish()?;
    ensure!(
        text == "pool: 8 workers, sum 31996000\n",
        "after gdb's death: {text:?}"
    );
    Ok(())
}
