//! Tests waits in a running process: `inspect` must agree with the program's statements, with the
//! kernel's view of its threads, and with gdb's view of its locks. Healthy programs have no
//! findings.

mod emulated;
mod hostile;
mod load;
mod processes;
mod recorded;
mod recorded_processes;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::inspection::{self, Conditions, Inspection, Library, Wait};
use unspool_tests::waiting::{self, HERE, KernelView, Waiting};
use unspool_tests::{process, report, workspace};

/// Builds of one source; the last part of a name says what is removed.
const BUILDS: &[(&str, &[&str])] = &[
    ("gcc-O0", &["gcc", "-std=gnu11", "-g", "-O0", "-pthread"]),
    (
        "gcc-O2-stripped",
        &["gcc", "-std=gnu11", "-O2", "-s", "-pthread"],
    ),
    (
        "clang-O2",
        &["clang", "-std=gnu11", "-g", "-O2", "-pthread"],
    ),
];

/// Programs that print what there is to find.
const PROGRAMS: &[&str] = &[
    "abba", "again", "exited", "forked", "joins", "kinds", "lost", "ring", "shared", "ticks",
    "timed", "upgrade",
];

/// Other languages, and another C library, whose ordinary locks do not record their holder.
const OTHERS: &[(&str, &str, &[&str])] = &[
    (
        "cxx.cpp",
        "g++-O0",
        &["g++", "-std=c++20", "-g", "-O0", "-pthread"],
    ),
    (
        "cxx.cpp",
        "g++-O2",
        &["g++", "-std=c++20", "-g", "-O2", "-pthread"],
    ),
    (
        "rust.rs",
        "rustc-O",
        &["rustc", "-g", "-O", "--edition=2021"],
    ),
    (
        "kinds.c",
        "static",
        &["gcc", "-std=gnu11", "-g", "-O2", "-static", "-pthread"],
    ),
    (
        "abba.c",
        "robust",
        &["gcc", "-std=gnu11", "-g", "-O1", "-pthread", "-DROBUST"],
    ),
    (
        "abba.c",
        "musl-static",
        &[
            "musl-gcc",
            "-std=gnu11",
            "-g",
            "-O1",
            "-pthread",
            "-static",
            "-DROBUST",
        ],
    ),
    (
        "ring.c",
        "inherits-gcc-O0",
        &["gcc", "-std=gnu11", "-g", "-O0", "-pthread", "-DINHERITS"],
    ),
    (
        "ring.c",
        "inherits-gcc-O2-stripped",
        &["gcc", "-std=gnu11", "-O2", "-s", "-pthread", "-DINHERITS"],
    ),
    (
        "ring.c",
        "inherits-clang-O2",
        &["clang", "-std=gnu11", "-g", "-O2", "-pthread", "-DINHERITS"],
    ),
    (
        "ring.c",
        "inherits-static",
        &[
            "gcc",
            "-std=gnu11",
            "-g",
            "-O2",
            "-static",
            "-pthread",
            "-DINHERITS",
        ],
    ),
    (
        "ticks.c",
        "thread-gcc-O1",
        &["gcc", "-std=gnu11", "-g", "-O1", "-pthread", "-DTHREAD"],
    ),
    (
        "kinds.c",
        "musl",
        &["musl-gcc", "-std=gnu11", "-g", "-O1", "-pthread"],
    ),
    (
        "kinds.c",
        "musl-stripped",
        &["musl-gcc", "-std=gnu11", "-s", "-O2", "-pthread"],
    ),
];

/// Programs for musl. Its ordinary mutexes have no holder, so some are made robust.
const MUSL_PROGRAMS: &[(&str, &[&str])] = &[
    ("abba.c", &[]),
    ("abba.c", &["-DROBUST"]),
    ("again.c", &["-DROBUST"]),
    ("ring.c", &["-DROBUST"]),
    ("timed.c", &["-DROBUST"]),
    ("joins.c", &[]),
    ("lost.c", &[]),
    ("shared.c", &[]),
    ("upgrade.c", &[]),
];

/// Programs for a newer Debian's C library, with another layout of condition variables; stripped.
const NEWER: &[&str] = &["abba", "joins", "kinds", "upgrade"];

/// Programs that are busy, or idle by design. There is never a finding.
const HEALTHY: &[&str] = &[
    "busy",
    "consumers",
    "joined",
    "once",
    "philosophers",
    "phases",
];

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for program in PROGRAMS {
        for (name, command) in BUILDS {
            trials.push(crate::trial(
                format!("waits::{program}::{name}"),
                move || agrees_with_program(&format!("{program}.c"), command),
            ));
        }
    }
    for (source, name, command) in OTHERS {
        trials.push(crate::trial(format!("waits::{source}::{name}"), || {
            agrees_with_program(source, command)
        }));
    }
    for (source, options) in MUSL_PROGRAMS {
        let name = format!("waits::{source}::musl{}", options.concat());
        let command = ["musl-gcc", "-std=gnu11", "-g", "-O1", "-pthread"];
        let command: Vec<&str> = command.into_iter().chain(options.iter().copied()).collect();
        trials.push(crate::trial(name, move || {
            agrees_with_program(source, &command)
        }));
    }
    for program in NEWER {
        trials.push(crate::trial(
            format!("waits::{program}::glibc-2.41"),
            move || {
                let folder = workspace::newer_glibc("amd64")?.join("usr/lib/x86_64-linux-gnu");
                let folder = folder.display();
                let linker = format!("-Wl,--dynamic-linker={folder}/ld-linux-x86-64.so.2");
                let path = format!("-Wl,-rpath={folder}");
                let command = [BUILDS[0].1, &[&linker, &path]].concat();
                agrees_with_program(&format!("{program}.c"), &command)
            },
        ));
    }
    for program in HEALTHY {
        trials.push(crate::trial(
            format!("waits::healthy::{program}"),
            move || {
                let (folder, file) = waiting::compile(&format!("{program}.c"), BUILDS[0].1)?;
                let waiting = Waiting::start(&mut Command::new(file), folder)?;
                stays_healthy(waiting.pid, 12)
            },
        ));
    }
    trials.push(crate::trial(
        "waits::gdb-reads-the-same-owners",
        owners_as_gdb_has_them,
    ));
    trials.push(crate::trial("waits::text", text));
    trials.push(crate::trial("waits::fail-on", fail_on));
    trials.extend(emulated::trials());
    trials.extend(hostile::trials());
    trials.extend(processes::trials());
    trials.extend(recorded_processes::trials());
    trials.extend(load::trials());
    trials.extend(recorded::trials());
    trials
}

/// Compares the program's and the kernel's view with the inspection.
fn agrees_with_program(source: &str, command: &[&str]) -> Result<()> {
    let (folder, file) = waiting::compile(source, command)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    let (library, view) = match command[0] {
        "musl-gcc" => (Library::Musl, MUSL),
        "rustc" => (Library::Rust, HERE),
        _ => (Library::Glibc, HERE),
    };
    let refused = command.contains(&"-DINHERITS");
    waiting.wait_until_blocked(KernelView { refused, ..view })?;
    if refused {
        // A thread that was not refused may not wait at its mutex yet.
        std::thread::sleep(Duration::from_millis(200));
    }
    let (seen, run) = Inspection::attach(waiting.pid)?;
    seen.compare(&waiting, conditions(library, !command.contains(&"-s")))
        .with_context(|| run.to_string())?;
    if source == "kinds.c" {
        waiting.end()?;
    }
    Ok(())
}

/// musl's threads wait at words of their own for condition variables and barriers.
const MUSL: KernelView = KernelView {
    own_words: true,
    ..HERE
};

/// An inspection of a process on this machine.
fn conditions(library: Library, named: bool) -> Conditions {
    Conditions {
        library,
        named,
        state: "waiting",
        low: 0x7000_0000_0000,
        stands: true,
    }
}

/// gdb 13 with the C library's debug information, `p ((pthread_mutex_t *)
/// ADDRESS)->__data.__owner`.
fn owners_as_gdb_has_them() -> Result<()> {
    let (folder, file) = waiting::compile("kinds.c", BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    let (seen, shown) = Inspection::attach(waiting.pid)?;
    let mutexes: BTreeMap<u64, &Wait> = seen
        .threads
        .iter()
        .filter_map(|thread| thread.wait.as_ref())
        .filter(|wait| wait.kind == "mutex")
        .map(|wait| (wait.address, wait))
        .collect();
    ensure!(mutexes.len() == 6, "{} mutexes\n{shown}", mutexes.len());
    let addresses: Vec<u64> = mutexes.keys().copied().collect();
    let owners = owners(waiting.pid, &addresses)?;
    let ours: Vec<u64> = mutexes
        .values()
        .flat_map(|wait| wait.holders.clone())
        .collect();
    ensure!(
        owners == ours,
        "gdb has {owners:?}, we have {ours:?}\n{shown}"
    );
    waiting.end()
}

/// gdb's owners of glibc's mutexes at these addresses.
fn owners(pid: u32, addresses: &[u64]) -> Result<Vec<u64>> {
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-nx",
        "-batch",
        "-ex",
        "set debuginfod enabled off",
        "-p",
        &pid.to_string(),
    ]);
    for address in addresses {
        gdb.args([
            "-ex",
            &format!("printf \"owner %d\\n\", ((pthread_mutex_t *) {address})->__data.__owner"),
        ]);
    }
    let run = process::run(&mut gdb, Duration::from_secs(120))?.success()?;
    let text = run.text();
    let owners = text
        .lines()
        .filter_map(|line| line.strip_prefix("owner ")?.parse().ok())
        .collect();
    Ok(owners)
}

/// Inspects repeatedly; there must be no finding.
fn stays_healthy(pid: u32, times: usize) -> Result<()> {
    for _ in 0..times {
        let (seen, shown) = Inspection::attach(pid)?;
        ensure!(seen.findings.is_empty(), "{:?}\n{shown}", seen.findings);
        ensure!(seen.threads.len() > 1, "one thread\n{shown}");
    }
    Ok(())
}

/// Tests the text output. At any width the content is the same and lines fit; wide terminals are
/// used.
fn text() -> Result<()> {
    let (folder, file) = waiting::compile("abba.c", BUILDS[0].1)?;
    let waiting = Waiting::start(&mut Command::new(file), folder)?;
    waiting.wait_until_blocked(HERE)?;
    let pid = waiting.pid.to_string();
    // Without a terminal that states its width, lines have 100 columns.
    let widths = [("", 100), ("40", 40), ("80", 80), ("120", 120)];
    let mut longest = Vec::new();
    for (width, columns) in widths {
        let mut options = vec!["--attach", &pid];
        if !width.is_empty() {
            options.extend(["--width", width]);
        }
        let run = inspection::inspect(&options, "text")?;
        let text = run.text();
        let said: Vec<&str> = text.split_whitespace().collect();
        let said = said.join(" ");
        for words in [
            "Deadlock (proved)",
            "2 threads wait for each other",
            "(transfer) holds mutex accounts and waits for mutex journal",
            "(audit) holds mutex journal and waits for mutex accounts",
            "waiting for the end of thread",
        ] {
            ensure!(said.contains(words), "{words}\n{run}");
        }
        let lengths = text.lines().map(|line| line.chars().count());
        longest.push(lengths.max().unwrap_or(0));
        ensure!(
            longest.last() <= Some(&columns),
            "longer than {columns} columns: {run}"
        );
    }
    ensure!(longest[3] > longest[0], "{longest:?} of {widths:?}");
    Ok(())
}

/// The exit code shows scripts whether there is a finding, and the output is complete in any case.
fn fail_on() -> Result<()> {
    let deadlock: &[(&str, i32)] = &[
        ("deadlock", 3),
        ("deadlock:proved", 3),
        ("lost-wakeup,deadlock", 3),
        ("any", 3),
        ("lost-wakeup", 0),
        ("self-deadlock,abandoned-lock", 0),
    ];
    // These waits time out after an hour, so nothing is proved.
    let limited: &[(&str, i32)] = &[
        ("deadlock", 3),
        ("any", 3),
        ("deadlock:proved", 0),
        ("any:proved", 0),
    ];
    for (source, expected) in [("abba.c", deadlock), ("timed.c", limited)] {
        let (folder, file) = waiting::compile(source, BUILDS[0].1)?;
        let waiting = Waiting::start(&mut Command::new(file), folder)?;
        waiting.wait_until_blocked(HERE)?;
        let pid = waiting.pid.to_string();
        for (kinds, code) in expected {
            let mut command = report::unspool()?;
            command.args(["inspect", "--attach", &pid, "--format", "json"]);
            command.args(["--fail-on", kinds]);
            let run = process::run(&mut command, Duration::from_secs(60))?;
            ensure!(run.code()? == *code, "--fail-on {kinds} of {source}: {run}");
            let said = run.stderr.contains("failing on a finding: deadlock");
            ensure!(said == (*code == 3), "{kinds}: {run}");
            let seen: Inspection = serde_json::from_slice(&run.stdout)?;
            seen.compare(&waiting, conditions(Library::Glibc, true))?;
        }
    }
    let mut command = report::unspool()?;
    command.args(["inspect", "--attach", "1", "--fail-on", "deadlok"]);
    let run = process::run(&mut command, Duration::from_secs(60))?;
    ensure!(
        run.code()? == 2 && run.stderr.contains("self-deadlock"),
        "{run}"
    );
    Ok(())
}
