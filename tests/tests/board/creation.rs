//! Compares `unspool record` on the board with gdb-multiarch through the same stub.

use anyhow::{Result, anyhow, ensure};
use libtest_mimic::Trial;

use unspool_tests::backtrace::{self, Depth};
use unspool_tests::build::{Build, Compiler, Link, Tables, Target};
use unspool_tests::program::{self, Program};
use unspool_tests::report;
use unspool_tests::truth;

use unspool_tests::board::{self, Machine};

use super::place;

/// Threads of `shortlived` on the board, where each of them takes a fifth of a second under gdb.
const SHORTLIVED: usize = 60;

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, target, tables) in [
        ("pool", Target::A32, Tables::Unwind),
        ("pool", Target::T32, Tables::Unwind),
        ("pool", Target::A32, Tables::None),
        ("pool", Target::T32, Tables::None),
        ("nest", Target::A32, Tables::None),
        ("nest", Target::T32, Tables::Unwind),
        ("shortlived", Target::T32, Tables::None),
        ("detached", Target::A32, Tables::Unwind),
        ("detached", Target::T32, Tables::None),
        ("pool", Target::A64, Tables::Unwind),
        ("nest", Target::A64, Tables::Unwind),
    ] {
        let build = Build {
            program: name,
            compiler: Compiler::Gcc,
            target,
            level: 2,
            link: Link::Pie,
            tables,
        };
        let case = format!("creation::{name}::{}", build.name());
        trials.push(super::trial(&case, move || match name {
            "shortlived" => {
                let fewer = Program {
                    threads: SHORTLIVED,
                    ends: &[("joined", SHORTLIVED)],
                    ..*program::program(name)
                };
                check(&fewer, build, &SHORTLIVED.to_string())
            }
            _ => check(program::program(name), build, ""),
        }));
    }
    trials
}

/// Compares the build and its stripped form with gdb's results for the build with symbols.
fn check(program: &Program, build: Build, argument: &str) -> Result<()> {
    let machine = match build.target {
        Target::A64 => Machine::Arm64,
        _ => Machine::Arm,
    };
    let board = board::get(machine)?;
    let built = build.built(program::program(build.program))?;
    let placed = place(machine, &built.program)?;
    let started = format!("{} {argument}", placed.there);
    let server = board.serve(&format!("unspool-stub --once 0.0.0.0:0 {started}"))?;
    let truth = truth::board(&placed.here, placed.sysroot.path(), server.port)?;
    let output = server.finish()?;
    ensure!(
        truth.exit == Some(0) && truth.creations.len() == program.threads,
        "under gdb it ends with {:?} and creates {} threads of {}: {output}",
        truth.exit,
        truth.creations.len(),
        program.threads
    );
    for (file, depth) in [
        (&built.program, Depth::Source),
        (&built.stripped, Depth::Addresses),
    ] {
        let placed = place(machine, file)?;
        // On the emulated board, a hit costs more than the default budget allows.
        let started = format!("{} {argument}", placed.there);
        let server = board.serve(&format!(
            "unspool-stub --budget none --once 0.0.0.0:0 {started}"
        ))?;
        let folder = tempfile::tempdir()?;
        let capture = folder.path().join("capture");
        let sysroot = placed.sysroot.path().display().to_string();

        let run = report::record(
            &capture,
            &["--sysroot", &sysroot, "--connect", &server.address()],
            &[],
        )?
        .success()?;
        let output = server.finish()?;
        ensure!(
            output.contains(&format!("\n{}: ", program.name)),
            "the program wrote {output:?}\n{run}"
        );
        let report = report::report(&capture, &["--sysroot", &sysroot])?;
        backtrace::compare(&truth.creations, &report.creations(), depth)
            .and_then(|()| ends(program, &report))
            .map_err(|error| anyhow!("{error:#}\nnotes: {:?}\n{run}", report.notes))?;
    }
    Ok(())
}

fn ends(program: &Program, report: &report::Report) -> Result<()> {
    for (end, count) in program.ends {
        let seen = report.created().filter(|thread| thread.end == *end).count();
        ensure!(seen == *count, "{count} threads are {end}, {seen} say so");
    }
    Ok(())
}
