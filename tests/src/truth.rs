//! Ground truth: thread creation in the same build, as gdb 13 reports it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::backtrace::{Backtrace, Frame};
use crate::{elf, process, qemu, workspace};

/// gdb's results for a whole run.
#[derive(Debug)]
pub struct Truth {
    /// The backtrace at every hit of `pthread_create`, without `pthread_create` itself.
    pub creations: Vec<Backtrace>,
    /// The program's exit code.
    pub exit: Option<i32>,
}

#[derive(Deserialize)]
struct Document {
    exit: Option<i32>,
    stacks: Vec<Stack>,
}

#[derive(Deserialize)]
struct Stack {
    tid: u64,
    frames: Vec<GdbFrame>,
}

#[derive(Deserialize)]
struct GdbFrame {
    kind: String,
    function: Option<String>,
    file: Option<String>,
    line: Option<u32>,
    module: Option<String>,
    section_offset: Option<(String, u64)>,
}

/// Runs `program` under gdb.
pub fn native(program: &Path, arguments: &[&str]) -> Result<Truth> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("truth.json");
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"])
        .arg(workspace::file("gdb/settings.gdb"))
        .arg("-x")
        .arg(workspace::file("gdb/creations.py"))
        .env("UNSPOOL_TRUTH", &out)
        .current_dir(folder.path())
        .arg("--args")
        .arg(program)
        .args(arguments);
    let run = process::run(&mut gdb, Duration::from_secs(120))?;
    creations(&out, None).with_context(|| format!("gdb: {run}"))
}

/// The stacks of all threads of a running process, by thread id, including frame 0.
pub fn stacks(pid: u32) -> Result<BTreeMap<u64, Backtrace>> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("truth.json");
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"])
        .arg(workspace::file("gdb/settings.gdb"))
        .args(["-p", &pid.to_string(), "-x"])
        .arg(workspace::file("gdb/stacks.py"))
        .env("UNSPOOL_TRUTH", &out)
        .current_dir(folder.path());
    let run = process::run(&mut gdb, Duration::from_secs(120))?;
    read(&out, None)
        .with_context(|| format!("gdb: {run}"))
        .map(|(stacks, _)| stacks.into_iter().collect())
}

/// Runs `program` under qemu-arm with gdb-multiarch connected to it.
pub fn arm(program: &Path, arguments: &[&str]) -> Result<Truth> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("truth.json");
    let sysroot = qemu::sysroot()?.display().to_string();
    qemu::with_program(program, arguments, |emulator| {
        let mut gdb = Command::new("gdb-multiarch");
        gdb.args(["-nx", "-batch", "-x"])
            .arg(workspace::file("gdb/settings.gdb"))
            .args(["-ex", &format!("set sysroot {sysroot}")])
            .args([
                "-ex",
                &format!("set debug-file-directory {sysroot}/usr/lib/debug"),
            ])
            // The program's own libraries are beside it, not in the sysroot.
            .arg("-ex")
            .arg(format!(
                "set solib-search-path {}",
                program.parent().unwrap_or(program).display()
            ))
            .args(["-ex", &format!("file {}", program.display())])
            .args([
                "-ex",
                &format!("target remote {}", emulator.socket.display()),
            ])
            .arg("-x")
            .arg(workspace::file("gdb/creations.py"))
            .env("UNSPOOL_TRUTH", &out);
        let run = process::run(&mut gdb, Duration::from_secs(120))?;
        creations(&out, Some(&sysroot)).with_context(|| format!("gdb-multiarch: {run}"))
    })
}

/// gdb-multiarch in batch mode, for a target whose files and debug files are in `sysroot`.
pub fn multiarch(sysroot: &Path) -> Command {
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-x"])
        .arg(workspace::file("gdb/settings.gdb"))
        .args(["-ex", &format!("set sysroot {}", sysroot.display())])
        .args([
            "-ex",
            &format!(
                "set debug-file-directory {}/usr/lib/debug",
                sysroot.display()
            ),
        ]);
    gdb
}

/// Runs `program` on the board under the stub that listens on `port`, with gdb-multiarch connected.
/// All files are in `sysroot`, including the program.
pub fn board(program: &Path, sysroot: &Path, port: u16) -> Result<Truth> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("truth.json");
    let mut gdb = multiarch(sysroot);
    gdb.args(["-ex", &format!("file {}", program.display())])
        .args(["-ex", &format!("target remote 127.0.0.1:{port}")])
        .arg("-x")
        .arg(workspace::file("gdb/creations.py"))
        .env("UNSPOOL_TRUTH", &out);
    let run = process::run(&mut gdb, Duration::from_secs(900))?;
    creations(&out, Some(&sysroot.display().to_string()))
        .with_context(|| format!("gdb-multiarch: {run}"))
}

fn creations(file: &Path, sysroot: Option<&str>) -> Result<Truth> {
    let (stacks, exit) = read(file, sysroot)?;
    let creations = stacks
        .into_iter()
        .map(|(_, mut backtrace)| {
            // Frame 0 is pthread_create; ours start at its caller.
            backtrace.remove(0);
            backtrace
        })
        .collect::<Vec<Backtrace>>();
    ensure!(
        creations.iter().all(|backtrace| !backtrace.is_empty()),
        "gdb does not know the creator"
    );
    Ok(Truth { creations, exit })
}

type Stacks = Vec<(u64, Backtrace)>;

fn read(file: &Path, sysroot: Option<&str>) -> Result<(Stacks, Option<i32>)> {
    let text = std::fs::read(file).context("gdb wrote no result")?;
    let document: Document = serde_json::from_slice(&text)?;
    let mut stacks = Vec::new();
    for stack in &document.stacks {
        let mut backtrace = Backtrace::new();
        for frame in &stack.frames {
            // gdb guesses frames after a function without CFI: after ld.so's _start, it takes argc
            // and argv[0] for return addresses. A backtrace ends at a pc in no file.
            let (Some(module), Some((section, offset))) = (&frame.module, &frame.section_offset)
            else {
                break;
            };
            // A function that left by a tail call has no frame on the stack; gdb infers it from
            // DWARF call sites.
            if frame.kind == "tailcall" {
                continue;
            }
            backtrace.push(Frame {
                module: file_name(module),
                svma: elf::section(Path::new(module), section)? + offset,
                inlined: frame.kind == "inline",
                function: frame.function.clone(),
                source: frame
                    .file
                    .as_ref()
                    .zip(frame.line)
                    .map(|(file, line)| (without(sysroot, file), line)),
            });
        }
        ensure!(!backtrace.is_empty(), "gdb shows no frame at all");
        stacks.push((stack.tid, backtrace));
    }
    Ok((stacks, document.exit))
}

fn without(sysroot: Option<&str>, file: &str) -> String {
    sysroot
        .and_then(|sysroot| file.strip_prefix(sysroot))
        .unwrap_or(file)
        .to_owned()
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
