//! Tests every program in every build: number of threads, their ends, and creation backtraces.
//!
//! The backtraces must equal gdb's frame by frame. For a stripped build, they must equal gdb's for
//! the unstripped one.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use libtest_mimic::Trial;

use unspool_tests::backtrace::{self, Depth};
use unspool_tests::build::{Build, Compiler, Link, Tables, Target};
use unspool_tests::memo::Memo;
use unspool_tests::process::{self, Background, Run};
use unspool_tests::program::{Language, PROGRAMS, Program};
use unspool_tests::qemu;
use unspool_tests::report::{self, Report};
use unspool_tests::truth::{self, Truth};
use unspool_tests::waiting;

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        crate::trial("creation::beside-others".to_owned(), beside_others),
        crate::trial("creation::in-a-pid-namespace".to_owned(), pid_namespace),
        crate::trial(
            "creation::static-then-dynamic".to_owned(),
            static_then_dynamic,
        ),
    ];
    for program in PROGRAMS {
        // The kernel copies less of a stack than the frame of `bigframe`.
        if program.name != "bigframe" {
            trials.push(crate::trial(
                format!("creation::{}::in-another-process", program.name),
                move || in_another_process(program),
            ));
        }
        for build in builds(program) {
            let case = format!("{}::{}", program.name, build.name());
            trials.push(crate::trial(format!("truth::{case}"), move || {
                truth_of(program, build).map(|_| ())
            }));
            let name = format!("creation::{case}");
            trials.push(crate::trial(name.clone(), move || {
                check(program, build, false)
            }));
            // Of a static program without symbols, only the kernel sees creations.
            let is_seen = build.target == Target::X86_64 && program.name != "bigframe";
            if build.link != Link::Static || is_seen {
                trials.push(crate::trial(format!("{name}-stripped"), move || {
                    check(program, build, true)
                }));
            }
        }
    }
    trials
}

fn native(program: &Program) -> Build {
    Build {
        program: program.name,
        compiler: Compiler::Gcc,
        target: Target::X86_64,
        level: 2,
        link: Link::Pie,
        tables: Tables::Default,
    }
}

/// A shell starts the program, stripped and not.
fn in_another_process(program: &'static Program) -> Result<()> {
    let build = native(program);
    let built = build.built(program)?;
    let truth = truth_of(program, build)?;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let files = [
        (&built.program, Depth::Source),
        (&built.stripped, Depth::Addresses),
    ];
    for (file, depth) in files {
        let run = report::record(&capture, &[], &[&file.display().to_string()])?;
        run.success()?;
        let direct = report::report(&capture, &[])?;
        // The last command of a shell replaces it.
        let command = format!("'{}'; true", file.display());
        let run = report::record(&capture, &[], &["sh", "-c", &command])?.success()?;
        let report = report::report(&capture, &[])?;
        backtrace::compare(&truth.creations, &report.creations_in_processes(), depth)
            .map_err(|error| anyhow!("{error:#}\nnotes: {:?}\n{run}", report.notes))?;
        same_identities(program, &direct, &report)?;
        let mut export = report::unspool()?;
        export.args(["export", "--format", "folded", "--stacks", "creations"]);
        let folded = process::run(export.args(["-o", "-"]).arg(&capture), LIMIT)?.success()?;
        let lines = folded.text();
        let counts = lines.lines().map(|line| line.rsplit(' ').next());
        let counts: Option<Vec<usize>> = counts.map(|count| count?.parse().ok()).collect();
        ensure!(
            counts.map(|counts| counts.iter().sum()) == Some(truth.creations.len()),
            "not each creation is exported once\n{folded}"
        );
    }
    Ok(())
}

/// Programs that are not recorded create threads as fast as they can, on all processors.
fn beside_others() -> Result<()> {
    let shortlived = built("shortlived")?;
    let churn = || -> Result<Background> {
        let mut churn = Command::new(&shortlived);
        churn.arg("100000000").process_group(0);
        Ok(Background(process::start(&mut churn)?))
    };
    let mut others = [churn()?, churn()?, churn()?, churn()?];
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    for _ in 0..3 {
        let command = format!("'{}'; true", shortlived.display());
        let run = report::record(&capture, &[], &["sh", "-c", &command])?.success()?;
        let seen = report::report(&capture, &[])?.creations_in_processes();
        ensure!(
            seen.len() == 300,
            "{} creations were seen\n{run}",
            seen.len()
        );
    }
    for other in &mut others {
        ensure!(other.0.try_wait()?.is_none(), "a program has ended");
    }
    Ok(())
}

/// The program that chooses the recorded threads in the kernel knows the ids of the first
/// namespace. In others, the kernel records the creations of all programs, so that those of the
/// other tests may take the place of some.
fn pid_namespace() -> Result<()> {
    const TRIES: usize = 20;
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let command = format!("'{}'; true", built("nest")?.display());
    for _ in 0..TRIES {
        let mut record = Command::new("unshare");
        record.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        record.arg(report::unspool()?.get_program());
        record
            .args(["record", "-o"])
            .arg(&capture)
            .args(["--", "sh", "-c", &command]);
        process::run(&mut record, LIMIT)?.success()?;
        let report = report::report(&capture, &[])?;
        let seen = report.creations_in_processes().len();
        let missing = report
            .notes
            .iter()
            .any(|note| note.to_string().contains("not seen"));
        ensure!(seen == 30 || missing, "{seen} creations of 30, and no note");
        if seen == 30 {
            return Ok(());
        }
    }
    bail!("none of {TRIES} recordings has all creations")
}

/// A program without names, whose joins nothing shows, executes one whose joins are recorded. A
/// thread of the first program was not left without a join because of that.
fn static_then_dynamic() -> Result<()> {
    let compiled = |options: &[&str]| {
        let compiler = [&["gcc", "-O1", "-pthread"], options].concat();
        waiting::compile_in(".", "joins_and_executes.c", &compiler)
    };
    let (_first, unnamed) = compiled(&["-static", "-s"])?;
    let (folder, named) = compiled(&[])?;
    let capture = folder.path().join("capture");
    let command = [unnamed, named].map(|file| file.display().to_string());
    let run = report::record(&capture, &[], &[&command[0], &command[1]])?.success()?;
    let report = report::json(&capture, &[])?;
    let threads = report["threads"].as_array().context("threads")?;
    let created = threads
        .iter()
        .filter(|thread| thread["creator_tid"].is_u64());
    ensure!(created.count() == 2, "{threads:#?}\n{run}");
    let findings = report["findings"].to_string();
    ensure!(!findings.contains("unjoined"), "{findings}\n{run}");
    Ok(())
}

fn built(name: &str) -> Result<PathBuf> {
    let program = PROGRAMS.iter().find(|program| program.name == name);
    let program = program.context("no such program")?;
    Ok(native(program).built(program)?.program.clone())
}

/// Compares the thread functions and keys of a program that a shell started with those of the
/// program alone. There functions are an argument of a call, and here the stack shows them.
fn same_identities(program: &Program, direct: &Report, started: &Report) -> Result<()> {
    let alone = direct.created().map(|thread| &thread.function_place);
    let mut alone: Vec<_> = alone.collect();
    let threads = || {
        let processes = started.processes.iter();
        let threads = processes.flat_map(|process| &process.threads);
        threads.filter(|thread| !thread.creation.is_empty())
    };
    let mut shown: Vec<_> = threads().map(|thread| &thread.function_place).collect();
    if program.language == Language::Cxx {
        // An object on the heap has the callable of a `std::thread`.
        shown.retain(|place| place.is_some());
        alone.retain(|place| shown.contains(place));
        shown.retain(|place| !alone.contains(place));
        ensure!(
            shown.is_empty(),
            "no thread of {} begins in {shown:?}",
            program.name
        );
        return Ok(());
    }
    alone.sort();
    shown.sort();
    ensure!(
        alone == shown && alone.iter().all(|place| place.is_some()),
        "alone, the threads of {} begin in {alone:?}, and started by a shell in {shown:?}",
        program.name
    );
    let mut keys: Vec<&str> = direct.created().map(|thread| &*thread.key).collect();
    let mut others: Vec<&str> = threads()
        .filter_map(|thread| thread.key.as_deref())
        .collect();
    keys.sort_unstable();
    others.sort_unstable();
    ensure!(
        keys == others,
        "alone, the keys are {keys:?}, else {others:?}"
    );
    Ok(())
}

fn builds(program: &Program) -> Vec<Build> {
    let native = native(program);
    let mut builds = Vec::new();
    for level in [0, 2, 3] {
        for link in [Link::Pie, Link::Fixed, Link::Static] {
            let possible = match program.language {
                Language::C | Language::Cxx => link != Link::Static || program.libraries.is_empty(),
                Language::Rust => link != Link::Fixed,
            };
            // How a program is linked does not depend on its optimization.
            let possible = possible && (level != 3 || link == Link::Pie);
            if possible {
                builds.push(Build {
                    level,
                    link,
                    ..native
                });
            }
            if possible && clang(program) && level != 3 && link == Link::Pie {
                builds.push(Build {
                    compiler: Compiler::Clang,
                    level,
                    link,
                    ..native
                });
            }
        }
    }
    if program.concurrent {
        return builds; // qemu-user's gdb server cannot stop two threads at once
    }
    let states: &[Target] = match program.language {
        Language::C | Language::Cxx => &[Target::A32, Target::T32],
        Language::Rust => &[Target::A32], // the state of rustc's armv7 target
    };
    for &target in states {
        for level in [0, 2, 3] {
            let arm = Build {
                target,
                level,
                ..native
            };
            match program.language {
                Language::C => {
                    if level != 3 {
                        builds.push(Build {
                            tables: Tables::Unwind,
                            ..arm
                        });
                    }
                    builds.push(Build {
                        tables: Tables::None,
                        ..arm
                    });
                }
                Language::Cxx => builds.push(arm),
                Language::Rust if level == 2 => builds.push(arm),
                Language::Rust => {}
            }
        }
        if program.name == "pool" {
            builds.push(Build {
                target,
                link: Link::Static,
                ..native
            });
            builds.push(Build {
                target,
                link: Link::Fixed,
                ..native
            });
        }
    }
    builds
}

/// The programs that are also built with clang.
fn clang(program: &Program) -> bool {
    matches!(
        program.name,
        "pool" | "nest" | "recursion" | "bigframe" | "cxx"
    )
}

fn check(program: &'static Program, build: Build, stripped: bool) -> Result<()> {
    let built = build.built(program)?;
    let truth = truth_of(program, build)?;
    ensure!(
        truth.exit == Some(0),
        "the program failed under gdb: {:?}",
        truth.exit
    );
    ensure!(
        truth.creations.len() == program.threads,
        "gdb saw {} creations of {}",
        truth.creations.len(),
        program.threads
    );

    let file = if stripped {
        &built.stripped
    } else {
        &built.program
    };
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture");
    let (run, report) = match build.target {
        Target::X86_64 => record_native(file, &capture)?,
        _ => record_arm(file, &capture)?,
    };
    let depth = if stripped {
        Depth::Addresses
    } else {
        Depth::Source
    };
    // Compare the frames first, because a wrong frame tells more than a wrong count.
    backtrace::compare(&truth.creations, &report.creations(), depth)
        .and_then(|()| match stripped && build.link == Link::Static {
            // Without names, nothing shows calls of `pthread_join`.
            true => functions_are_known(program, &report),
            false => counts_and_ends(program, build, &report),
        })
        .map_err(|error| anyhow!("{error:#}\nnotes: {:?}\n{run}", report.notes))
}

fn record_native(program: &Path, capture: &Path) -> Result<(Run, Report)> {
    let run = report::record(capture, &[], &[&program.display().to_string()])?.success()?;
    let name = program
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    ensure!(
        run.text().starts_with(&format!("{name}: ")) && run.text().lines().count() == 1,
        "standard output is not the program's\n{run}"
    );
    let report = report::report(capture, &[])?;
    Ok((run, report))
}

fn record_arm(program: &Path, capture: &Path) -> Result<(Run, Report)> {
    let sysroot = qemu::sysroot()?.display().to_string();
    let run = qemu::with_program(program, &[], |emulator| {
        let address = format!("unix:{}", emulator.socket.display());
        let run = report::record(
            capture,
            &["--sysroot", &sysroot, "--connect", &address],
            &[],
        )?
        .success()?;
        let ended = emulator
            .emulator
            .ends_well("the program under qemu-arm", LIMIT);
        ended.with_context(|| run.to_string())?;
        Ok(run)
    })?;
    let report = report::report(capture, &["--sysroot", &sysroot])?;
    Ok((run, report))
}

fn functions_are_known(program: &Program, report: &Report) -> Result<()> {
    let known = report.created();
    let known = known.filter(|thread| thread.function_place.is_some());
    ensure!(
        known.count() == program.threads,
        "not each of {} threads has a function",
        program.threads
    );
    Ok(())
}

fn counts_and_ends(program: &Program, build: Build, report: &Report) -> Result<()> {
    let created = report.created().count();
    ensure!(
        created == program.threads,
        "{created} threads with a creation backtrace, {} were created; notes: {:?}",
        program.threads,
        report.notes
    );
    let mut ends: BTreeMap<&str, usize> = BTreeMap::new();
    for thread in report.created() {
        *ends.entry(&thread.end).or_default() += 1;
        ensure!(
            thread.creator_tid.is_some(),
            "thread {:?} has no creator",
            thread.tid
        );
        ensure!(
            report
                .threads
                .iter()
                .any(|other| other.tid.is_some() && other.tid == thread.creator_tid),
            "the creator of thread {:?} is not in the report",
            thread.tid
        );
        ensure!(
            thread.tid.is_some() || build.target != Target::X86_64,
            "a thread without id: {thread:?}"
        );
    }
    if build.target != Target::X86_64 {
        return Ok(()); // joins are not recorded under qemu-user, which the report says
    }
    for (end, count) in program.ends {
        let seen = ends.get(end).copied().unwrap_or(0);
        ensure!(
            seen == *count,
            "{count} threads are {end}, the report says {ends:?}"
        );
    }
    Ok(())
}

/// gdb runs once for each build; its result also serves the stripped build.
fn truth_of(program: &'static Program, build: Build) -> Result<Arc<Truth>> {
    static KNOWN: Memo<Build, Truth> = Memo::new();
    let truth = KNOWN.get(build, || {
        let file = build.built(program)?;
        match build.target {
            Target::X86_64 => truth::native(&file.program, &[]),
            _ => truth::arm(&file.program, &[]),
        }
    })?;
    ensure!(
        truth.exit == Some(0),
        "the program failed under gdb: {:?}",
        truth.exit
    );
    ensure!(
        truth.creations.len() == program.threads,
        "gdb saw {} creations of {}",
        truth.creations.len(),
        program.threads
    );
    Ok(truth)
}
