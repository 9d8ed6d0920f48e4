//! Tests bad input. Each case must end with one clear message on standard error that says what to
//! do, an exit code other than 0, no panic, and an unharmed target.

mod captures;
mod files;
mod peers;
mod processes;

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::build::{Build, Compiler, Link, Tables, Target};
use unspool_tests::process::{self, Run};

pub(crate) fn trials() -> Vec<Trial> {
    [
        processes::TRIALS,
        peers::TRIALS,
        files::TRIALS,
        captures::TRIALS,
    ]
    .into_iter()
    .flatten()
    .map(|(name, check)| crate::trial(format!("bad_input::{name}"), *check))
    .collect()
}

type Case = (&'static str, fn() -> Result<()>);

/// A normal build to start from.
const DEFAULT_BUILD: Build = Build {
    program: "pool",
    compiler: Compiler::Gcc,
    target: Target::X86_64,
    level: 2,
    link: Link::Pie,
    tables: Tables::Default,
};

/// Runs `command`, which must fail as described above. Its message must contain each of `words`
/// (`a|b`: one of them), in any case.
fn fails(command: &mut Command, words: &[&str]) -> Result<Run> {
    fails_within(command, words, Duration::from_secs(20))
}

fn fails_within(command: &mut Command, words: &[&str], limit: Duration) -> Result<Run> {
    let run = process::run(command, limit)?;
    let code = run.code()?;
    ensure!(code != 0, "exit code 0\n{run}");
    complains(&run, words)?;
    Ok(run)
}

/// Checks for one clear message: at most three lines, no panic, these words.
fn complains(run: &Run, words: &[&str]) -> Result<()> {
    ensure!(
        run.status.code() != Some(101),
        "exit code of a panic\n{run}"
    );
    ensure!(!run.stderr.contains("panicked"), "panicked\n{run}");
    ensure!(
        !run.stderr.trim().is_empty(),
        "nothing on standard error\n{run}"
    );
    let lines = run.stderr.trim_end().lines().count();
    ensure!(lines <= 3, "{lines} lines on standard error\n{run}");
    let message = run.stderr.to_lowercase();
    for word in words {
        ensure!(
            word.split('|')
                .any(|word| message.contains(&word.to_lowercase())),
            "the message does not say {word:?}\n{run}"
        );
    }
    Ok(())
}
