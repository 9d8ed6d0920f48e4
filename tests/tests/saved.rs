//! Tests that a recording shows the same after its files are gone, replaced, or supplemented.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::build::{Build, Built, Compiler, Link, Tables, Target};
use unspool_tests::program::program;
use unspool_tests::report::{self, Report};
use unspool_tests::{elf, process, qemu, waiting};

pub(crate) fn trials() -> Vec<Trial> {
    [
        (
            "without_its_program",
            without_its_program as fn() -> Result<()>,
        ),
        ("without_its_sysroot", without_its_sysroot),
        ("with_debug_files", with_debug_files),
        ("remembers_directories", remembers_directories),
    ]
    .into_iter()
    .map(|(name, check)| crate::trial(format!("saved::{name}"), check))
    .collect()
}

const LIMIT: Duration = Duration::from_secs(120);

/// Every view of a recording, one after the other.
fn views(capture: &Path) -> Result<String> {
    let names = "tree findings waits objects contention functions timeline";
    let mut all = String::new();
    let mut show = |words: &[&str]| -> Result<()> {
        let (command, options) = words.split_first().context("no command")?;
        let mut shown = report::unspool()?;
        shown.arg(command).arg(capture).args(options);
        all += &process::run(&mut shown, LIMIT)?.success()?.text();
        Ok(())
    };
    for name in names.split(' ') {
        show(&["report", "--view", name])?;
    }
    show(&[
        "report", "--view", "timeline", "--from", "0", "--to", "0.001",
    ])?;
    show(&["report", "--format", "json"])?;
    for graph in ["threads", "sync", "waits"] {
        show(&["export", "--format", "dot", "--graph", graph])?;
    }
    Ok(all)
}

fn built(name: &'static str, target: Target) -> Result<std::sync::Arc<Built>> {
    let build = Build {
        program: name,
        compiler: Compiler::Gcc,
        target,
        level: 2,
        link: Link::Pie,
        tables: Tables::Unwind,
    };
    build.built(program(name))
}

/// A copy of a program that can be removed.
fn copy(of: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join(of.file_name().context("a file")?);
    process::install(of, &copy, 0o755)?;
    Ok(copy)
}

fn different_keys(report: &Report) -> usize {
    let mut keys: Vec<&str> = report.created().map(|thread| &*thread.key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

fn without_its_program() -> Result<()> {
    for name in ["pool", "cxx"] {
        let folder = tempfile::tempdir()?;
        let file = copy(&built(name, Target::X86_64)?.program, folder.path())?;
        shows_the_same(&file, &["--sync"]).context(name)?;
    }
    let options = ["gcc", "-g", "-O1", "-pthread"];
    let (_folder, file) = waiting::compile_in("findings", "convoy.c", &options)?;
    shows_the_same(&file, &["--sync=all", "-q"]).context("convoy")
}

/// Records a program, and reports the recording after the program is gone, and after it is
/// replaced.
fn shows_the_same(file: &Path, options: &[&str]) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let words = [file.to_str().context("a path")?];
    let run = report::record(&capture, options, &words)?.success()?;
    let before = views(&capture)?;
    if let Some((tree, _)) = run.stderr.split_once("\nKept in ") {
        ensure!(before.starts_with(tree), "record: {tree}\nreport: {before}");
    }
    fs::remove_file(file)?;
    let removed = views(&capture)?;
    ensure!(before == removed, "before: {before}\nremoved: {removed}");
    fs::copy("/bin/true", file)?;
    let other = views(&capture)?;
    ensure!(
        before == other,
        "before: {before}\nanother program: {other}"
    );
    Ok(())
}

/// `--sysroot` is a link that disappears, like a board's mounted file system.
fn without_its_sysroot() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (capture, sysroot) = (folder.path().join("capture"), folder.path().join("sysroot"));
    std::os::unix::fs::symlink(qemu::sysroot()?, &sysroot)?;
    let file = copy(&built("pool", Target::T32)?.program, folder.path())?;
    let mut emulator = qemu::start(&file, &[], Stdio::null())?;
    let address = format!("unix:{}", emulator.socket.display());
    let sysroot_text = sysroot.to_str().context("a path")?;
    let options = ["--sysroot", sysroot_text, "--connect", &address];
    let run = report::record(&capture, &options, &[])?.success()?;
    let ended = emulator
        .emulator
        .ends_well("the program under qemu-arm", LIMIT);
    ended.with_context(|| run.to_string())?;
    let before = views(&capture)?;
    let report = report::report(&capture, &[])?;
    ensure!(different_keys(&report) == 4, "{before}");
    fs::remove_file(&sysroot)?;
    fs::remove_file(&file)?;
    let after = views(&capture)?;
    ensure!(before == after, "before\n{before}\nafter\n{after}");
    Ok(())
}

/// Debug files that appear later add lines but change no key. Without the program, the stored facts
/// are shown.
fn with_debug_files() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let built = built("pool", Target::X86_64)?;
    let file = copy(&built.stripped, folder.path())?;
    let words = [file.to_str().context("a path")?];
    report::record(&capture, &["-q"], &words)?.success()?;
    let debug = folder.path().join("debug");
    let id = elf::build_id(&file)?.context("no build-id")?;
    let (head, rest) = id.split_at(2);
    let place = debug.join(".build-id").join(head);
    fs::create_dir_all(&place)?;
    let mut split = Command::new("objcopy");
    split
        .arg("--only-keep-debug")
        .arg(&built.program)
        .arg(place.join(format!("{rest}.debug")));
    process::run(&mut split, LIMIT)?.success()?;

    let lines = |report: &Report| {
        let frames = report.created().flat_map(|thread| &thread.creation);
        frames
            .filter(|frame| {
                frame
                    .file
                    .as_deref()
                    .is_some_and(|file| file.ends_with("pool.c"))
            })
            .count()
    };
    let keys = |report: &Report| -> Vec<String> {
        report
            .threads
            .iter()
            .map(|thread| thread.key.clone())
            .collect()
    };
    let debug = ["--debug-dir", debug.to_str().context("a path")?];
    let bare = report::report(&capture, &[])?;
    let rich = report::report(&capture, &debug)?;
    ensure!(
        lines(&bare) == 0 && lines(&rich) >= 8,
        "{} lines",
        lines(&rich)
    );
    ensure!(
        keys(&bare) == keys(&rich) && different_keys(&bare) == 4,
        "{:?}",
        keys(&rich)
    );
    fs::remove_file(&file)?;
    let gone = report::report(&capture, &debug)?;
    ensure!(keys(&bare) == keys(&gone), "{:?}", keys(&gone));
    ensure!(bare.creations() == gone.creations(), "other frames");
    let said = |note: &serde_json::Value| note.to_string().contains("as the recording keeps them");
    ensure!(gone.notes.iter().any(said), "{:?}", gone.notes);
    Ok(())
}

/// A killed recording stores no names; the directories in its header provide them.
fn remembers_directories() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let file = copy(&built("pool", Target::T32)?.program, folder.path())?;
    let mut emulator = qemu::start(&file, &[], Stdio::null())?;
    let address = format!("unix:{}", emulator.socket.display());
    // A recording cannot be completed in a pipe.
    let sysroot = qemu::sysroot()?;
    let mut record = report::unspool()?;
    record.args([
        "record",
        "-o",
        "/dev/stdout",
        "--connect",
        &address,
        "--sysroot",
    ]);
    record.arg(relative(sysroot)?).arg("--exec").arg(&file);
    let run = process::run(&mut record, LIMIT)?.success()?;
    let ended = emulator
        .emulator
        .ends_well("the program under qemu-arm", LIMIT);
    ended.with_context(|| run.to_string())?;
    fs::write(&capture, &run.stdout)?;
    let report = report::report(&capture, &[])?;
    ensure!(different_keys(&report) == 4, "{:?}", report.notes);
    Ok(())
}

/// The path relative to the current directory.
fn relative(path: &Path) -> Result<PathBuf> {
    let here = std::env::current_dir()?;
    let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
    Ok(up.join(path.strip_prefix("/")?))
}
