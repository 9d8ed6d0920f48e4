//! Tests capture files that are truncated, foreign or of later versions, and a full disk.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Case, DEFAULT_BUILD, complains, fails};
use unspool_tests::build::Build;
use unspool_tests::process;
use unspool_tests::program::program;
use unspool_tests::report;

pub(super) const TRIALS: &[Case] = &[
    ("capture_cut_anywhere", capture_cut_anywhere),
    ("capture_damaged_anywhere", capture_damaged_anywhere),
    ("capture_of_a_later_version", capture_of_a_later_version),
    ("not_a_capture", not_a_capture),
    ("no_capture", no_capture),
    ("no_source_file", no_source_file),
    ("to_standard_output", to_standard_output),
    ("disk_full_from_the_start", disk_full_from_the_start),
    ("disk_full_while_recording", disk_full_while_recording),
    ("disk_full_for_the_log", disk_full_for_the_log),
    ("not_overwritten", not_overwritten),
];

fn pool() -> Result<String> {
    Ok(DEFAULT_BUILD
        .built(program("pool"))?
        .program
        .display()
        .to_string())
}

/// The bytes of a valid capture.
fn good() -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    report::record(&capture, &["-q"], &[&pool()?])?.success()?;
    Ok(std::fs::read(capture)?)
}

fn report_of(bytes: &[u8]) -> Result<(process::Run, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("capture");
    std::fs::write(&file, bytes)?;
    let mut command = report::unspool()?;
    command.arg("report").arg(&file).args(["--format", "json"]);
    Ok((process::run(&mut command, Duration::from_secs(20))?, folder))
}

/// A recording alone is not taken for the source file.
fn no_source_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("mine.unspool");
    std::fs::write(&capture, good()?)?;
    let mut command = report::unspool()?;
    command
        .arg("report")
        .arg(&capture)
        .args(["--view", "source"]);
    fails(&mut command, &["needs a source file", "mine.unspool"])?;
    Ok(())
}

/// A truncated capture opens up to its last flush. Standard error and the exit code report that the
/// rest is missing.
fn capture_cut_anywhere() -> Result<()> {
    let whole = good()?;
    let mut shown = 0;
    for eighth in 0..8 {
        let cut = &whole[..whole.len() * eighth / 8];
        let (run, _folder) = report_of(cut)?;
        ensure!(
            run.code()? != 0,
            "{} of {} bytes: exit code 0\n{run}",
            cut.len(),
            whole.len()
        );
        complains(&run, &["cut|truncated|incomplete|empty|ends|not a"])?;
        shown += usize::from(!run.stdout.is_empty());
    }
    ensure!(shown > 0, "no cut capture shows what it still holds");
    Ok(())
}

/// A flipped byte is detected or harmless. It never causes a panic, a hang or silently missing
/// data.
fn capture_damaged_anywhere() -> Result<()> {
    let whole = good()?;
    let (intact, _folder) = report_of(&whole)?;
    let intact = intact.success()?;
    for n in 0..16 {
        let at = whole.len() * n / 16 + n % 3;
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        let (run, _folder) = report_of(&damaged)?;
        if run.code()? == 0 {
            ensure!(
                run.stdout == intact.stdout,
                "byte {at:#x} changes the report silently"
            );
        } else {
            complains(&run, &[])?;
        }
    }
    Ok(())
}

fn capture_of_a_later_version() -> Result<()> {
    let mut bytes = good()?;
    set_version(&mut bytes, 0xffff);
    let (run, _folder) = report_of(&bytes)?;
    ensure!(run.code()? != 0, "{run}");
    complains(&run, &["version", "reads|newer"])
}

/// Sets the version in the file header (docs/reference/capture-format.md) and corrects its
/// checksum.
fn set_version(bytes: &mut [u8], version: u16) {
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
}

fn not_a_capture() -> Result<()> {
    for bytes in [&b""[..], b"x", b"some text\n", &[0; 4096], &[0xff; 100]] {
        let (run, _folder) = report_of(bytes)?;
        ensure!(run.code()? != 0, "{run}");
        complains(&run, &["capture|recording"])?;
    }
    Ok(())
}

fn no_capture() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Without a name, `report` reads the last capture of `record` in this folder. If there is none,
    // the message says how to make one.
    fails(
        report::unspool()?.arg("report").current_dir(&folder),
        &["capture.unspool", "no such|record"],
    )?;
    fails(
        report::unspool()?.arg("report").arg(folder.path()),
        &["directory"],
    )?;
    Ok(())
}

fn to_standard_output() -> Result<()> {
    let run = report::record(Path::new("-"), &["-q"], &[&pool()?])?;
    ensure!(run.code()? != 0 && run.text().is_empty(), "{run}");
    complains(&run, &["standard output", "-o"])
}

fn disk_full_from_the_start() -> Result<()> {
    let run = report::record(Path::new("/dev/full"), &["-q"], &[&pool()?])?;
    ensure!(run.code()? != 0, "{run}");
    complains(&run, &["no space", "free|choose|-o"])?;
    ran_or_not_at_all(&run, "pool: 8 workers, sum 31996000\n")
}

fn disk_full_for_the_log() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let run = report::record(&capture, &["-q", "--rsp-log", "/dev/full"], &[&pool()?])?;
    ensure!(run.code()? == 0, "{run}");
    complains(&run, &["/dev/full", "No space"])?;
    ran_or_not_at_all(&run, "pool: 8 workers, sum 31996000\n")
}

/// A file size limit simulates a full disk: the first blocks fit, a later one does not.
fn disk_full_while_recording() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let shortlived = Build {
        program: "shortlived",
        ..DEFAULT_BUILD
    }
    .built(program("shortlived"))?
    .program
    .clone();
    let command = report::unspool()?;
    let mut shell = Command::new("sh");
    shell
        // The recorder writes every 200 ms, and what does not fit in whole is lost. So the limit is
        // many times what it writes at once, and the whole is many times the limit.
        .args(["-c", "ulimit -f 128; exec \"$@\"", "sh"])
        .arg(command.get_program())
        // Within a budget, the recording might fit on a busy machine.
        .args(["record", "-q", "--budget", "none", "-o"])
        .arg(&capture)
        .arg("--")
        .arg(&shortlived)
        .arg("3000");
    let run = process::run(&mut shell, Duration::from_secs(60))?;
    ensure!(run.code()? != 0, "exit code 0\n{run}");
    complains(&run, &["recording", "space|large|room|write"])?;
    ensure!(
        run.text() == "shortlived: 3000 threads\n",
        "the program was harmed\n{run}"
    );
    // The written part is kept and opens.
    let mut report = report::unspool()?;
    report.arg("report").arg(&capture);
    let shown = process::run(&mut report, Duration::from_secs(20))?;
    ensure!(
        shown.text().contains("blink"),
        "what was written does not open\n{shown}"
    );
    Ok(())
}

fn ran_or_not_at_all(run: &process::Run, output: &str) -> Result<()> {
    ensure!(
        run.stdout.is_empty() || run.text() == output,
        "the program was cut off\n{run}"
    );
    Ok(())
}

/// A file that is not a capture is never overwritten.
fn not_overwritten() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let precious = folder.path().join("thesis.txt");
    std::fs::write(&precious, "years of work")?;
    let run = report::record(&precious, &[], &[&pool()?])?;
    ensure!(run.code()? != 0, "{run}");
    complains(&run, &["thesis.txt", "-o"])?;
    ensure!(
        std::fs::read_to_string(&precious)? == "years of work",
        "overwritten"
    );
    ensure!(run.stdout.is_empty(), "the program was run in vain\n{run}");
    Ok(())
}
