//! ARM programs under qemu-arm and qemu-aarch64 that wait for a debugger or are stopped midway.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::process::{self, Background};
use crate::workspace;

/// The armhf sysroot, assembled on first use by `qemu/sysroot.sh`.
pub fn sysroot() -> Result<&'static Path> {
    static SYSROOT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    SYSROOT
        .get_or_init(|| {
            let directory = workspace::target_directory().join("sysroot-armhf");
            let mut script = Command::new(workspace::root().join("qemu/sysroot.sh"));
            script.arg(&directory);
            process::run(&mut script, Duration::from_secs(600))
                .and_then(|run| run.success())
                .map(|_| directory)
                .map_err(|error| format!("{error:#}"))
        })
        .as_ref()
        .map(PathBuf::as_path)
        .map_err(|error| anyhow!("the armhf sysroot: {error}"))
}

/// A program under qemu-arm, stopped at its first instruction until a debugger connects.
pub struct Waiting {
    /// The emulator; its output is the program's.
    pub emulator: Background,
    /// The Unix-domain socket it listens on. Unlike a port, no other trial can take it.
    pub socket: PathBuf,
    _folder: tempfile::TempDir,
}

/// Starts `program` under qemu-arm with the armhf sysroot. Output is discarded or goes to `stdout`.
pub fn start(program: &Path, arguments: &[&str], stdout: Stdio) -> Result<Waiting> {
    start_with("qemu-arm", sysroot()?, program, arguments, stdout)
}

/// The same with any emulator and sysroot.
pub fn start_with(
    emulator: &str,
    sysroot: &Path,
    program: &Path,
    arguments: &[&str],
    stdout: Stdio,
) -> Result<Waiting> {
    let folder = tempfile::Builder::new().prefix("unspool-qemu").tempdir()?;
    let socket = folder.path().join("gdb");
    let mut emulator = Command::new(emulator);
    emulator
        .arg("-L")
        .arg(sysroot)
        .arg("-g")
        .arg(&socket)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(stdout)
        .stderr(Stdio::null());
    let emulator = Background(process::start(&mut emulator)?);
    listens(&socket).with_context(|| program.display().to_string())?;
    Ok(Waiting {
        emulator,
        socket,
        _folder: folder,
    })
}

/// Runs `debug` with the program under qemu-arm. Repeats that if the emulator itself got stuck,
/// which happens about once in 300 runs of programs that create threads (QEMU 7.2).
pub fn with_program<T>(
    program: &Path,
    arguments: &[&str],
    mut debug: impl FnMut(&mut Waiting) -> Result<T>,
) -> Result<T> {
    const ATTEMPTS: usize = 3;
    let mut attempt = 1;
    loop {
        let mut waiting = start(program, arguments, Stdio::null())?;
        match debug(&mut waiting) {
            Err(error) if attempt < ATTEMPTS && waiting.is_stuck()? => {
                eprintln!("qemu-arm waits for its own heap: {error:#}");
                attempt += 1;
            }
            done => return done,
        }
    }
}

impl Waiting {
    /// True if a thread of the emulator waits for the lock of the emulator's own heap. Neither the
    /// program nor the debugger can end that wait.
    fn is_stuck(&mut self) -> Result<bool> {
        if self.emulator.0.try_wait()?.is_some() {
            return Ok(false);
        }
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-p", &self.emulator.0.id().to_string()])
            .args(["-ex", "thread apply all backtrace 3"]);
        let stacks = process::run(&mut gdb, Duration::from_secs(120))?.text();
        Ok(stacks.contains("__lll_lock_wait_private") && stacks.contains("main_arena"))
    }
}

/// A session with an emulator that is started here and handed to another client. QEMU accepts one
/// connection, and does not read from it while the program runs.
pub struct Session {
    server: UnixStream,
    /// The socket at which another client can take over, once the program is stopped.
    pub socket: PathBuf,
}

impl Session {
    /// Connects and resumes the program.
    pub fn go(waiting: &Waiting) -> Result<Session> {
        let mut server = UnixStream::connect(&waiting.socket)?;
        server.write_all(b"+$c#63")?;
        let socket = waiting.socket.with_extension("relay");
        Ok(Session { server, socket })
    }

    /// Waits until a signal stops the program, which QEMU reports before the program gets it. Then
    /// hands the session to the first client that connects.
    pub fn stopped(mut self) -> Result<PathBuf> {
        let mut seen = Vec::new();
        self.server
            .set_read_timeout(Some(Duration::from_secs(60)))?;
        // $T02thread:...;#cs
        while seen.iter().rev().nth(2) != Some(&b'#') {
            let mut byte = [0];
            let read = self.server.read_exact(&mut byte);
            read.with_context(|| format!("QEMU has closed: {seen:?}"))?;
            seen.extend(byte);
        }
        let text = String::from_utf8_lossy(&seen);
        ensure!(text.contains("$T02"), "no stop by signal 2: {text}");
        self.server.write_all(b"+")?;
        self.server.set_read_timeout(None)?;
        let listener = UnixListener::bind(&self.socket)?;
        let server = self.server;
        std::thread::spawn(move || -> std::io::Result<()> {
            let (mut client, _) = listener.accept()?;
            let (mut back, mut replies) = (client.try_clone()?, server.try_clone()?);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut replies, &mut back);
                back.shutdown(Shutdown::Both)
            });
            let mut server = server;
            std::io::copy(&mut client, &mut server)?;
            server.shutdown(Shutdown::Both)
        });
        Ok(self.socket)
    }
}

/// Waits until an emulator accepts connections at `socket`.
pub fn listens(socket: &Path) -> Result<()> {
    // The file exists once the socket is bound. Connections are refused until it listens (flag
    // 0x10000).
    let path = socket.display().to_string();
    process::wait_until("qemu-arm listens", Duration::from_secs(20), || {
        std::fs::read_to_string("/proc/net/unix").is_ok_and(|table| {
            table
                .lines()
                .any(|line| line.ends_with(&path) && line.contains(" 00010000 "))
        })
    })
}
