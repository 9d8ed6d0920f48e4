//! ARM programs under qemu-arm, waiting for a debugger.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

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

/// A program started under qemu-arm, halted at its first instruction until a debugger connects.
pub struct Waiting {
    /// The emulator; its output is the program's.
    pub emulator: Background,
    /// The Unix socket it listens on: no port that another trial could take.
    pub socket: PathBuf,
    _folder: tempfile::TempDir,
}

/// Starts `program` under qemu-arm with the armhf sysroot. Output is discarded or goes to `stdout`.
pub fn start(program: &Path, arguments: &[&str], stdout: Stdio) -> Result<Waiting> {
    let folder = tempfile::Builder::new().prefix("unspool-qemu").tempdir()?;
    let socket = folder.path().join("gdb");
    let mut emulator = Command::new("qemu-arm");
    emulator
        .arg("-L")
        .arg(sysroot()?)
        .arg("-g")
        .arg(&socket)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
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

/// Waits until an emulator takes connections at `socket`.
pub fn listens(socket: &Path) -> Result<()> {
    // The file is there when it is bound; a connection is refused until it listens (flag 0x10000).
    let path = socket.display().to_string();
    process::wait_until("qemu-arm listens", Duration::from_secs(20), || {
        std::fs::read_to_string("/proc/net/unix").is_ok_and(|table| {
            table
                .lines()
                .any(|line| line.ends_with(&path) && line.contains(" 00010000 "))
        })
    })
}
