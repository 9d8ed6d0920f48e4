//! The stub on a real ARM Linux kernel, in the board that `qemu/board.sh` boots: one boot for all. A binary of its own,
//! because an emulated board takes minutes: `cargo test -p unspool-tests --features board --test board`, which tests/run does, too.

mod beside;
mod creation;
mod fast;
mod findings;
mod instructions;
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
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn arm() -> Result<&'static Board> {
    board::get(Machine::Arm)
}

/// What a trial does on a machine, or with an instruction set.
type Check<T> = fn(T) -> Result<()>;

/// An instruction set, and the machine that has it.
#[derive(Debug, Clone, Copy)]
struct Isa {
    name: &'static str,
    machine: Machine,
    target: Target,
    flag: &'static str,
    /// The breakpoint kind of short instructions.
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

    /// Builds a program of the stub's own tests for it, at a fixed address.
    fn compile(self, source: &str) -> Result<(PathBuf, tempfile::TempDir)> {
        compile(self.machine, source, &["-no-pie", self.flag])
    }
}

/// A program on the board, and a sysroot here in which its file has the same place.
struct Placed {
    /// Its path on the board.
    there: String,
    /// Its path here.
    here: PathBuf,
    sysroot: tempfile::TempDir,
}

/// Puts a program on the board, in a directory of its own.
fn place(machine: Machine, file: &Path) -> Result<Placed> {
    // Hard links: a symbolic one out of a sysroot leads nowhere.
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

/// Builds a program of the stub's own tests, or one in assembly, for the board.
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

/// The address of a symbol in a program linked at fixed addresses; T32 functions' lowest bit is taken off.
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
