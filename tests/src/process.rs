//! Runs programs with a time limit, so that a test that hangs fails and says where.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::DirEntry;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The result of a finished program.
#[derive(Debug)]
pub struct Run {
    /// The command line, for messages.
    pub command: String,
    /// Its exit status.
    pub status: ExitStatus,
    /// Standard output, as bytes.
    pub stdout: Vec<u8>,
    /// Standard error, as text.
    pub stderr: String,
    /// Wall time.
    pub took: Duration,
}

impl Run {
    /// The exit code. An error that shows the run if a signal ended the program.
    pub fn code(&self) -> Result<i32> {
        self.status
            .code()
            .ok_or_else(|| anyhow!("ended by {:?}\n{self}", self.status.signal()))
    }

    /// The run itself if its exit code is 0, else an error that shows it.
    pub fn success(self) -> Result<Run> {
        if !self.status.success() {
            bail!("expected exit code 0, {}\n{self}", self.status);
        }
        Ok(self)
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = format!("$ {}\n[{}]\n", self.command, self.status);
        for (name, stream) in [("stdout", &self.text()), ("stderr", &self.stderr)] {
            if !stream.is_empty() {
                let shown: String = stream.chars().take(4000).collect();
                let _ = writeln!(text, "--- {name}\n{}", shown.trim_end());
            }
        }
        f.write_str(&text)
    }
}

/// Starts `command` in its own process group, so that a time limit also ends its children. If the
/// program is not installed, the error names the apt command that installs it.
pub fn start(command: &mut Command) -> Result<Child> {
    command.process_group(0).spawn().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        match (error.kind(), package_of(&program)) {
            (std::io::ErrorKind::NotFound, Some(package)) => {
                anyhow!("{program} is missing: run: sudo apt-get install {package}")
            }
            _ => anyhow!("cannot start {program}: {error}"),
        }
    })
}

/// Copies `from` to `to`, a file that is executed, with these permissions.
///
/// A child that another test starts meanwhile has the files that this process has open, until it
/// executes its program. Linux does not execute a file that is open for writing (`ETXTBSY`). So
/// another process writes it.
pub fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let mut install = Command::new("install");
    install.arg(format!("--mode={mode:o}")).arg(from).arg(to);
    run(&mut install, Duration::from_secs(60))?.success()?;
    Ok(())
}

/// Runs `command` to its end. After `limit`, kills its process group and returns an error. Standard
/// input is empty unless the command sets it.
pub fn run(command: &mut Command, limit: Duration) -> Result<Run> {
    run_with_input(command, b"", limit)
}

/// Like [`run`], with these bytes on standard input.
pub fn run_with_input(command: &mut Command, input: &[u8], limit: Duration) -> Result<Run> {
    run_looked_after(command, input, limit, |_| ())
}

/// Like [`run`], on a simulated busy machine: the command itself, but not its children, gets a
/// processor only a sixth of the time.
pub fn run_on_busy_machine(command: &mut Command, limit: Duration) -> Result<Run> {
    run_looked_after(command, b"", limit, |child| {
        let child = Pid::from_raw(child.id().cast_signed());
        let _ = kill(child, Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(25));
        let _ = kill(child, Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(5));
    })
}

fn run_looked_after(
    command: &mut Command,
    input: &[u8],
    limit: Duration,
    look: impl Fn(&Child),
) -> Result<Run> {
    let line = line(command);
    let stdin = tempfile::tempfile().and_then(|mut file| {
        std::io::Write::write_all(&mut file, input)?;
        std::io::Seek::rewind(&mut file)?;
        Ok(file)
    })?;
    let started = Instant::now();
    let mut child = start(
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped()),
    )?;
    let stdout = drain(child.stdout.take().expect("piped"));
    let stderr = drain(child.stderr.take().expect("piped"));

    let deadline = started + limit;
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > deadline && !late {
            late = true;
            kill_group(&child);
        }
        look(&child);
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = started.elapsed();
    if !late {
        // A pipe stays open while any process that inherited it lives.
        while !(stdout.is_finished() && stderr.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        late = !(stdout.is_finished() && stderr.is_finished());
        if late {
            kill_group(&child);
        }
    }
    let run = Run {
        command: line,
        status,
        stdout: stdout.join().expect("the reader does not panic"),
        stderr: String::from_utf8_lossy(&stderr.join().expect("the reader does not panic"))
            .into_owned(),
        took,
    };
    if late {
        bail!("not finished after {limit:?}\n{run}");
    }
    Ok(run)
}

/// Kills the process group that `child` leads.
pub fn kill_group(child: &Child) {
    let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
}

/// A running program that is killed with its group when dropped.
pub struct Background(pub Child);

impl Background {
    /// Waits until it exits successfully. After `limit`, the error names `what`.
    pub fn ends_well(&mut self, what: &str, limit: Duration) -> Result<()> {
        let mut status = None;
        wait_until(&format!("{what} ends"), limit, || {
            status = self.0.try_wait().ok().flatten();
            status.is_some()
        })?;
        ensure!(status.is_some_and(|status| status.success()), "{status:?}");
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        kill_group(&self.0);
        let _ = self.0.wait();
    }
}

/// True if no process traces this one.
pub fn is_untraced(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| status.contains("TracerPid:\t0\n"))
}

/// Waits until `condition` holds. After `limit`, the error names `what`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !condition() {
        if Instant::now() > deadline {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The system call that each thread of a process is in (proc(5), `/proc/PID/task/TID/syscall`).
pub fn calls(pid: u32) -> BTreeMap<u64, String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let call = |task: DirEntry| {
        let tid = task.file_name().to_str()?.parse().ok()?;
        let call = std::fs::read_to_string(task.path().join("syscall"));
        Some((tid, call.ok()?))
    };
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(call)
        .collect()
}

/// The children of a process, their children, and so on.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        next += 1;
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .filter_map(|n| n.parse::<u32>().ok()),
            );
        }
    }
    all.split_off(1)
}

fn drain(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn line(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

fn package_of(program: &str) -> Option<&'static str> {
    Some(match program {
        "gdb" => "gdb",
        "gdbserver" => "gdbserver",
        "chromedriver" => "chromium chromium-driver",
        "firefox-esr" => "firefox-esr",
        "gdb-multiarch" => "gdb-multiarch",
        "qemu-arm" => "qemu-user",
        "qemu-system-arm" => "qemu-system-arm",
        "gcc" => "gcc libc6-dev",
        "go" => "golang-go",
        "g++" => "g++",
        "clang" | "clang++" => "clang",
        "arm-linux-gnueabihf-gcc" => "gcc-arm-linux-gnueabihf",
        "arm-linux-gnueabihf-g++" => "g++-arm-linux-gnueabihf",
        "strip" | "readelf" => "binutils",
        "arm-linux-gnueabihf-strip" => "binutils-arm-linux-gnueabihf",
        "xz" => "xz-utils",
        "pigz" => "pigz",
        "zstd" => "zstd",
        "/usr/bin/python3" => "python3",
        "script" => "bsdutils",
        "pgrep" => "procps",
        "valgrind" => "valgrind",
        "debuginfod-find" => "debuginfod",
        "setpriv" | "unshare" => "util-linux",
        _ => return None,
    })
}
