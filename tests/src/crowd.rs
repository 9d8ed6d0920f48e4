//! Shared parts of the benchmarks: a program with many threads, servers for it, compilation,
//! medians.

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
    /// Address of the memory to read.
    pub memory: u64,
}

impl Crowd {
    /// Starts it, and waits until all threads wait.
    pub fn start(threads: usize, depth: usize, megabytes: usize, busy: bool) -> Result<Crowd> {
        // Each call must have its own frame.
        let flags = ["-g", "-O1", "-fno-optimize-sibling-calls", "-pthread"];
        let program = compile("cc", &flags, "crowd.c", "crowd")?;
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
    /// The port it listens on.
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

/// Attaches Debian's lldb-server to a process. It reports its port only through a pipe, so it gets
/// a port that was just free.
///
/// # Errors
/// It is not installed.
pub fn serve_by_lldb(pid: &str) -> Result<Served> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let mut command = Command::new(LLDB_SERVER);
    command.args(["gdbserver", "--attach", pid]);
    command.arg(format!("127.0.0.1:{port}"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = process::start(&mut command).context("`apt install lldb-14` has it");
    let served = Served {
        server: Background(server?),
        port,
    };
    // In /proc/net/tcp a listening socket has state 0A. A test connection would use up its only
    // one.
    let listens = format!("0100007F:{port:04X} 00000000:0000 0A");
    process::wait_until("lldb-server listens", Duration::from_secs(30), || {
        std::fs::read_to_string("/proc/net/tcp").is_ok_and(|text| text.contains(&listens))
    })?;
    Ok(served)
}

/// The lldb-server used as a peer.
pub const LLDB_SERVER: &str = "/usr/bin/lldb-server-14";

/// Compiles a benchmark program. `name` distinguishes builds of one source.
///
/// # Errors
/// The compiler's messages.
pub fn compile(compiler: &str, flags: &[&str], source: &str, name: &str) -> Result<PathBuf> {
    let program = workspace::target_directory().join(name);
    let mut command = Command::new(compiler);
    command.args(flags).arg("-o").arg(&program);
    command.arg(workspace::file("benches").join(source));
    process::run(&mut command, Duration::from_secs(60))?.success()?;
    Ok(program)
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

/// The stub for this machine, built like one for a board.
///
/// # Errors
/// It cannot be built.
pub fn stub_for_targets() -> Result<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = Command::new(workspace::root().join("stub/build"));
    build.args(["--dynamic", &triple]);
    build.env("CARGO_TARGET_DIR", workspace::target_directory());
    let built = process::run(&mut build, Duration::from_secs(1800))?;
    let path = PathBuf::from(built.success()?.text().trim());
    ensure!(path.is_file(), "stub/build built no {}", path.display());
    Ok(path)
}

/// Minimum, median and maximum.
pub fn min_median_max(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [
        values[0],
        values[values.len() / 2],
        values[values.len() - 1],
    ]
}
