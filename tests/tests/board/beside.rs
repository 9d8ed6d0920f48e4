//! Tests `unspool record --connect` beside a gdb that controls the program on the board. gdb stops,
//! steps and resumes as usual, and the recording is complete, whichever connects first.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::process::{self, Background};
use unspool_tests::{report, truth};

use super::{ISAS, Isa, place};

const LIMIT: Duration = Duration::from_secs(200);

pub(super) fn trials() -> Vec<Trial> {
    let of = |isa: Isa| {
        [
            ("record_joins_gdb", gdb_first as fn(Isa) -> _),
            ("gdb_joins_record", gdb_second),
        ]
        .map(|(name, check)| {
            super::trial(format!("beside::{name}-{}", isa.name), move || check(isa))
        })
    };
    ISAS.into_iter().flat_map(of).collect()
}

/// gdb's commands in between: it stops where threads start, steps, and resumes.
const SESSION: [&str; 9] = [
    "break short_life",
    "continue",
    "stepi",
    "stepi",
    "continue",
    "next",
    "delete",
    "info threads",
    "detach",
];

fn gdb_first(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/churn.c")?;
    let placed = place(isa.machine, &program)?;
    let stub = format!("unspool-stub --budget none 0.0.0.0:0 {} 10", placed.there);
    let server = isa.board()?.serve(&stub)?;
    let folder = tempfile::tempdir()?;
    let (came, recorded) = (folder.path().join("came"), folder.path().join("recorded"));
    let wait = format!(
        "shell touch {}; while [ ! -e {} ]; do sleep 0.1; done",
        came.display(),
        recorded.display()
    );
    let gdb = gdb(&placed.here, placed.sysroot.path(), server.port, &wait)?;
    process::wait_until("gdb has connected", LIMIT, || came.exists())?;
    let capture = folder.path().join("capture");
    let mut recording = record(&capture, placed.sysroot.path(), server.port)?;
    process::wait_until("the recording runs", LIMIT, || {
        report::has_note(&capture, "controls the program")
    })?;
    std::fs::write(&recorded, "")?;
    stopped_often(gdb)?;
    recording.ends_well("the recording", LIMIT)?;
    let said = server.finish()?;
    ensure!(said.contains("lived 40\n"), "{said}");
    check(&capture, placed.sysroot.path(), 44)
}

fn gdb_second(isa: Isa) -> Result<()> {
    let (program, _folder) = isa.compile("stub/tests/programs/churn.c")?;
    let placed = place(isa.machine, &program)?;
    let there = &placed.there;
    // The program waits for a file.
    let stub = format!("unspool-stub --budget none 0.0.0.0:0 {there} 10 {there}.go");
    let server = isa.board()?.serve(&stub)?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let mut recording = record(&capture, placed.sysroot.path(), server.port)?;
    let states = format!(
        "for p in /proc/[0-9]*; do [ \"$(readlink $p/exe)\" = {there} ] && grep State: $p/status; done"
    );
    let mut asleep = Ok(String::new());
    process::wait_until("the program waits", LIMIT, || {
        asleep = isa.board().and_then(|board| board.shell(&states));
        asleep
            .as_ref()
            .map_or(true, |text| text.contains("S (sleeping)"))
    })?;
    asleep?;
    let (came, goes) = (folder.path().join("came"), folder.path().join("goes"));
    let wait = format!(
        "shell touch {}; while [ ! -e {} ]; do sleep 0.1; done",
        came.display(),
        goes.display()
    );
    let gdb = gdb(&placed.here, placed.sysroot.path(), server.port, &wait)?;
    process::wait_until("gdb has connected", LIMIT, || came.exists())?;
    process::wait_until("that is noticed", LIMIT, || {
        report::has_note(&capture, "another client took control")
    })?;
    isa.board()?.shell(&format!("touch {there}.go"))?;
    std::fs::write(&goes, "")?;
    stopped_often(gdb)?;
    recording.ends_well("the recording", LIMIT)?;
    let said = server.finish()?;
    ensure!(said.contains("lived 40\n"), "{said}");
    check(&capture, placed.sysroot.path(), 44)
}

fn gdb(program: &Path, sysroot: &Path, port: u16, before: &str) -> Result<Background> {
    let mut gdb = truth::multiarch(sysroot);
    gdb.arg(program);
    let connect = format!("target remote 127.0.0.1:{port}");
    for command in [&connect[..], before].into_iter().chain(SESSION) {
        gdb.args(["-ex", command]);
    }
    gdb.stdin(Stdio::null()).stdout(Stdio::piped());
    Ok(Background(process::start(&mut gdb)?))
}

/// Checks that gdb saw threads start (`next` ends where another one does), and detached.
fn stopped_often(mut gdb: Background) -> Result<()> {
    let output = gdb.0.stdout.take().context("piped")?;
    let text = std::io::read_to_string(output)?;
    let stops = text.matches("hit Breakpoint 1, ").count();
    ensure!(stops >= 2, "gdb says:\n{text}");
    gdb.ends_well("gdb", LIMIT)
}

fn record(capture: &Path, sysroot: &Path, port: u16) -> Result<Background> {
    let mut command: Command = report::unspool()?;
    command.args(["record", "-q", "-o"]).arg(capture);
    command.arg("--sysroot").arg(sysroot);
    command.args(["--connect", &format!("127.0.0.1:{port}")]);
    Ok(Background(process::start(&mut command)?))
}

/// Checks that every creation is recorded, with the function that created the thread.
fn check(capture: &Path, sysroot: &Path, threads: usize) -> Result<()> {
    let sysroot = sysroot.display().to_string();
    let report = report::report(capture, &["--sysroot", &sysroot])?;
    let made = |function: &str| {
        let of = |frame: &report::ReportFrame| frame.function.as_deref() == Some(function);
        let created = report.created();
        created
            .filter(|thread| thread.creation.first().is_some_and(of))
            .count()
    };
    let (by_main, by_parents) = (made("main"), made("parent"));
    ensure!(
        by_main == 4 && by_main + by_parents == threads,
        "main made {by_main} and its threads {by_parents}: {:?}",
        report.notes
    );
    Ok(())
}
