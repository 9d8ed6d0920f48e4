//! Tests the stub on a real ARM Linux kernel, on the board that `qemu/board.sh` boots once for all.
//!
//! It is a binary of its own, because an emulated board takes minutes. tests/run also runs it:
//! `cargo test -p unspool-tests --features board --test board`.

mod beside;
mod creation;
mod diff;
mod fast;
mod findings;
mod instructions;
mod lock_waits;
mod scratch;
mod serial;
mod server;
mod sessions;
mod steps;
mod threads;
mod waits;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::Arguments;

use unspool_tests::board::{self, Board, Machine};
use unspool_tests::build::Target;
use unspool_tests::process;
use unspool_tests::trial::trial;
use unspool_tests::workspace;

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        creation::trials(),
        instructions::trials(),
        steps::trials(),
        threads::trials(),
        sessions::trials(),
        beside::trials(),
        fast::trials(),
        scratch::trials(),
        serial::trials(),
        server::trials(),
        waits::trials(),
        findings::trials(),
        lock_waits::trials(),
        diff::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn arm() -> Result<&'static Board> {
    board::get(Machine::Arm)
}

/// A trial on a machine or with an instruction set.
type Check<T> = fn(T) -> Result<()>;

/// An instruction set, and a machine that has it.
#[derive(Debug, Clone, Copy)]
struct Isa {
    name: &'static str,
    machine: Machine,
    target: Target,
    flag: &'static str,
    /// The breakpoint kind of its short instructions.
    kind: u32,
}

const ISAS: [Isa; 3] = [
    Isa {
        name: "a32",
        machine: Machine::Arm,
        target: Target::A32,
        flag: "-marm",
        kind: 4,
    },
    Isa {
        name: "t32",
        machine: Machine::Arm,
        target: Target::T32,
        flag: "-mthumb",
        kind: 2,
    },
    Isa {
        name: "a64",
        machine: Machine::Arm64,
        target: Target::A64,
        flag: "-march=armv8-a",
        kind: 4,
    },
];

impl Isa {
    fn board(self) -> Result<&'static Board> {
        board::get(self.machine)
    }

    /// Builds one of the stub's test programs for it, at a fixed address.
    fn compile(self, source: &str) -> Result<(PathBuf, tempfile::TempDir)> {
        compile(self.machine, source, &["-no-pie", self.flag])
    }
}

/// A program on the board, and a local sysroot that contains it at the same path.
struct Placed {
    /// Its path on the board.
    there: String,
    /// Its path here.
    here: PathBuf,
    sysroot: tempfile::TempDir,
}

/// Copies a program to the board, into its own directory.
fn place(machine: Machine, file: &Path) -> Result<Placed> {
    // Hard links, because a symbolic one cannot lead out of a sysroot.
    let sysroot = tempfile::Builder::new()
        .prefix("unspool-board")
        .tempdir_in(workspace::target_directory())?;
    let mut copy = std::process::Command::new("cp");
    copy.args(["-a", "--link", "--no-target-directory"])
        .arg(machine.sysroot()?.as_path())
        .arg(sysroot.path());
    process::run(&mut copy, Duration::from_secs(60))?.success()?;
    let own = sysroot.path().file_name().context("a name")?;
    let directory = format!("/tmp/{}", own.to_string_lossy());
    let there = board::get(machine)?.put(file, &directory)?;
    let here = sysroot.path().join(there.trim_start_matches('/'));
    std::fs::create_dir_all(here.parent().context("a parent")?)?;
    std::fs::copy(file, &here)?;
    Ok(Placed {
        there,
        here,
        sysroot,
    })
}

/// Builds one of the stub's test programs, or an assembly program, for the board.
fn compile(
    machine: Machine,
    source: &str,
    options: &[&str],
) -> Result<(PathBuf, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let source = workspace::root().join(source);
    let name = source.file_stem().context("a name")?;
    let program = folder.path().join(name);
    let mut compiler = std::process::Command::new(machine.tool("gcc"));
    compiler
        .args(["-g", "-O1", "-pthread"])
        .args(options)
        .arg("-o")
        .arg(&program)
        .arg(&source);
    process::run(&mut compiler, Duration::from_secs(60))?.success()?;
    Ok((program, folder))
}

/// The address of a symbol in a program linked at fixed addresses, without the Thumb bit.
fn address(machine: Machine, program: &Path, symbol: &str) -> Result<u64> {
    let mut nm = std::process::Command::new(machine.tool("nm"));
    nm.arg(program);
    let text = process::run(&mut nm, Duration::from_secs(20))?
        .success()?
        .text();
    let line = text
        .lines()
        .find(|line| line.ends_with(&format!(" {symbol}")));
    let digits = line
        .and_then(|line| line.split(' ').next())
        .with_context(|| format!("no symbol {symbol}"))?;
    Ok(u64::from_str_radix(digits, 16)? & !1)
}
