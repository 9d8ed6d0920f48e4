//! What the benchmarks of many threads share: the program, a server of it, the release build, medians.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::{self, Background};
use crate::workspace;
use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;

/// `crowd.c`, running.
pub struct Crowd {
    child: Background,
    /// Where its memory to be read is.
    pub memory: u64,
}

impl Crowd {
    /// Starts it and waits until all threads wait.
    pub fn start(threads: usize, depth: usize, megabytes: usize, busy: bool) -> Result<Crowd> {
        let program = workspace::target_directory().join("crowd");
        let mut compiler = Command::new("cc");
        // A frame for each call.
        compiler.args(["-g", "-O1", "-fno-optimize-sibling-calls", "-pthread", "-o"]);
        compiler
            .arg(&program)
            .arg(workspace::file("benches/crowd.c"));
        process::run(&mut compiler, Duration::from_secs(60))?.success()?;
        let mut command = Command::new(&program);
        command
            .args([threads, depth, megabytes, usize::from(busy)].map(|number| number.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Background(process::start(&mut command)?);
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().context("piped")?).read_line(&mut line)?;
        let memory = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16)?;
        Ok(Crowd { child, memory })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }
}

/// The threads of a process.
pub fn tids(pid: u32) -> Result<Vec<Pid>> {
    let mut tids = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = task?.file_name();
        tids.push(Pid::from_raw(name.to_str().context("a number")?.parse()?));
    }
    Ok(tids)
}

/// A server that listens.
pub struct Served {
    /// The process.
    pub server: Background,
    port: u16,
}

impl Served {
    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Starts `server OPTIONS 127.0.0.1:0 WORDS`.
pub fn serve(server: &Path, options: &[&str], words: &[&str]) -> Result<Served> {
    let mut command = Command::new(server);
    command.args(options).arg("127.0.0.1:0").args(words);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut server = Background(process::start(&mut command)?);
    let mut lines = BufReader::new(server.0.stderr.take().context("piped")?).lines();
    let port = loop {
        let line = lines.next().context("the server ended")??;
        if let Some(port) = line.strip_prefix("Listening on port ") {
            break port.parse()?;
        }
    };
    std::thread::spawn(move || lines.count());
    Ok(Served { server, port })
}

/// A command as users run it: the release build.
pub fn release(name: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(workspace::root());
    build.args(["build", "--quiet", "--release", "-p", name]);
    build.env("CARGO_TARGET_DIR", workspace::target_directory());
    process::run(&mut build, Duration::from_secs(1800))?.success()?;
    let path = workspace::target_directory().join("release").join(name);
    ensure!(path.is_file(), "cargo built no {}", path.display());
    path.canonicalize().context("the command under test")
}

/// Least, median and most.
pub fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}
