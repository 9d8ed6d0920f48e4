//! Tests the record of a wait at an object of each kind: object, duration, and the thread that
//! ended it.
//!
//! The result must equal the program's statements, and the duration in the kernel's view.

use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::{ended, process, report, waiting};

use super::{C, CLANG, CXX, MUSL, MUSL_STATIC, RUST};

/// Name, program, and compiler command.
type Build = (&'static str, &'static str, &'static [&'static str]);

const BUILDS: &[Build] = &[
    ("gcc", "ended.c", C),
    ("clang", "ended.c", CLANG),
    ("musl", "ended.c", MUSL),
    ("musl-static", "ended.c", MUSL_STATIC),
    ("cxx", "ended.cpp", CXX),
    ("rust", "ended.rs", RUST),
];

pub(super) fn trials() -> Vec<Trial> {
    let modes = ["contended", "all"];
    let both = BUILDS
        .iter()
        .flat_map(|build| modes.map(|mode| (build, mode)));
    both.map(|(build, mode)| {
        let name = format!("findings::ended::{}::{mode}", build.0);
        crate::trial(name, move || agrees_with_program(build, mode))
    })
    .collect()
}

fn agrees_with_program((_, source, command): &Build, mode: &str) -> Result<()> {
    let (folder, file) = waiting::compile_in("findings", source, command)?;
    let capture = folder.path().join("capture");
    let mut record = report::unspool()?;
    let sync = format!("--sync={mode}");
    record.args(["record", "-q", &sync, "--budget", "none", "-o"]);
    record.arg(&capture).arg("--").arg(file);
    let run = process::run(&mut record, Duration::from_secs(120))?.success()?;
    let report = report::json(&capture, &[])?;
    let told = ended::parse_all(&run.text())?;
    ensure!(told.len() >= 5, "{run}");
    ended::compare(&told, &report)
}
