//! The stub on a real ARM Linux kernel, in the board that `qemu/board.sh` boots: one boot for all. A binary of its own,
//! and only on request, because an emulated board takes minutes:
//! `cargo test -p unspool-tests --features board --test board`.

mod creation;
mod sessions;
mod steps;
mod threads;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Failed, Trial};

use unspool_tests::board::{self, Board, Machine};
use unspool_tests::process;
use unspool_tests::qemu;
use unspool_tests::workspace;

fn main() {
    let arguments = Arguments::from_args();
    let trials = [
        creation::trials(),
        steps::trials(),
        threads::trials(),
        sessions::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// A trial whose error is shown with its causes.
fn trial(name: &str, check: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || {
        check().map_err(|error| Failed::from(format!("{error:#}")))
    })
}

fn arm() -> Result<&'static Board> {
    board::get(Machine::Arm)
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
fn place(file: &Path) -> Result<Placed> {
    let sysroot = tempfile::Builder::new().prefix("unspool-board").tempdir()?;
    for part in ["lib", "usr"] {
        std::os::unix::fs::symlink(qemu::sysroot()?.join(part), sysroot.path().join(part))?;
    }
    let own = sysroot.path().file_name().context("a name")?;
    let directory = format!("/tmp/{}", own.to_string_lossy());
    let there = arm()?.put(file, &directory)?;
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
fn compile(source: &str, options: &[&str]) -> Result<(PathBuf, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let source = workspace::root().join(source);
    let name = source.file_stem().context("a name")?;
    let program = folder.path().join(name);
    let mut compiler = std::process::Command::new("arm-linux-gnueabihf-gcc");
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
fn address(program: &Path, symbol: &str) -> Result<u32> {
    let mut nm = std::process::Command::new("arm-linux-gnueabihf-nm");
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
    Ok(u32::from_str_radix(digits, 16)? & !1)
}
