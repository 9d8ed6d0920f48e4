//! Tests the same programs on ARM and AArch64 under QEMU's user mode. It has its own gdb server,
//! provides no `/proc` of the program, and cannot stop all threads. Also tests each C library's
//! layouts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::board::{Linked, Machine};
use unspool_tests::inspection::{Conditions, Inspection, Library};
use unspool_tests::waiting::{self, HERE, KernelView, Waiting};
use unspool_tests::{process, qemu, workspace};

/// An instruction set: compiler, option, emulator, and the machine with its libraries.
struct Isa {
    name: &'static str,
    compiler: &'static str,
    option: &'static str,
    emulator: &'static str,
    machine: Machine,
    programs: &'static [&'static str],
    musl: &'static [&'static str],
    /// The size of its pointers, which decides the layouts.
    layouts: &'static str,
}

const ALL: &[&str] = &[
    "abba", "again", "joins", "kinds", "lost", "ring", "timed", "upgrade",
];

/// musl records too little for the other programs, or nothing without robust mutexes.
const ALL_OF_MUSL: &[&str] = &["abba", "joins", "kinds", "lost", "ring", "timed", "upgrade"];

const ISAS: [Isa; 3] = [
    Isa {
        name: "a32",
        compiler: "arm-linux-gnueabihf-gcc",
        option: "-marm",
        emulator: "qemu-arm",
        machine: Machine::Arm,
        programs: &["abba", "kinds"],
        musl: &["abba", "kinds"],
        layouts: "glibc-32.txt",
    },
    Isa {
        name: "t32",
        compiler: "arm-linux-gnueabihf-gcc",
        option: "-mthumb",
        emulator: "qemu-arm",
        machine: Machine::Arm,
        programs: ALL,
        musl: ALL_OF_MUSL,
        layouts: "glibc-32.txt",
    },
    Isa {
        name: "a64",
        compiler: "aarch64-linux-gnu-gcc",
        option: "-march=armv8-a",
        emulator: "qemu-aarch64",
        machine: Machine::Arm64,
        programs: ALL,
        musl: ALL_OF_MUSL,
        layouts: "glibc-64.txt",
    },
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![crate::trial("waits::layouts::x86_64", || {
        let (_folder, file) = waiting::compile("layouts.c", &["gcc"])?;
        layouts(&mut Command::new(file), "glibc-64.txt")
    })];
    for isa in &ISAS {
        let few: &[&str] = &["abba", "kinds"];
        for (linked, suffix, programs) in [
            (Linked::Glibc, "", isa.programs),
            (Linked::Musl, "-musl", isa.musl),
            (Linked::MuslInside, "-musl-static", few),
        ] {
            for program in programs {
                let name = format!("waits::{program}::qemu-{}{suffix}", isa.name);
                trials.push(crate::trial(name, move || {
                    let sysroot = isa.machine.sysroot()?;
                    agrees_with_program(
                        program,
                        isa,
                        &linked.options(isa.machine)?,
                        linked.library(),
                        &sysroot,
                    )
                }));
            }
        }
        let name = format!("waits::layouts::{}", isa.name);
        trials.push(crate::trial(name, || {
            let (_folder, file) = waiting::compile("layouts.c", &[isa.compiler, isa.option])?;
            let mut emulator = Command::new(isa.emulator);
            emulator.arg("-L").arg(&*isa.machine.sysroot()?).arg(file);
            layouts(&mut emulator, isa.layouts)
        }));
    }
    trials
}

/// A test beside the table of layouts compares it with these files.
fn layouts(command: &mut Command, file: &str) -> Result<()> {
    let run = process::run(command, Duration::from_secs(60))?.success()?;
    let file = Path::new("analyzer/unspool/src/platform/layouts").join(file);
    let ours = std::fs::read_to_string(workspace::root().join(file))?;
    ensure!(run.text() == ours, "{run}\nour table has\n{ours}");
    Ok(())
}

fn agrees_with_program(
    program: &str,
    isa: &Isa,
    options: &[String],
    library: Library,
    sysroot: &Path,
) -> Result<()> {
    let mut command = vec![
        isa.compiler,
        "-std=gnu11",
        "-g",
        "-O1",
        "-pthread",
        "-DBYSTANDER",
        isa.option,
    ];
    command.extend(options.iter().map(String::as_str));
    let (folder, file) = waiting::compile(&format!("{program}.c"), &command)?;
    // The emulator supports neither priority inheritance nor robust mutexes; any argument avoids
    // both.
    let arguments: &[&str] = if program == "kinds" {
        &["emulated"]
    } else {
        &[]
    };
    let started = qemu::start_with(isa.emulator, sysroot, &file, arguments, Stdio::piped())?;
    let session = qemu::Session::go(&started)?;
    let qemu::Waiting {
        emulator,
        socket: _,
        ..
    } = started;
    let mut waiting = Waiting::listen_to(emulator, Some(folder))?;
    // The program's threads are the emulator's, and wait at addresses in its mapping.
    waiting.wait_until_blocked(KernelView {
        moved: true,
        own_words: library == Library::Musl,
        ..HERE
    })?;
    waiting.give()?;
    let socket = session.stopped()?;
    if program == "upgrade" {
        // Two readers that both want to write are stuck. No action of the running thread can help.
        // No lock stores its readers, so this is inferred.
        for wrong in &mut waiting.findings {
            wrong.proved = false;
        }
    } else {
        // One thread does not wait.
        waiting
            .findings
            .retain(|wrong| !wrong.tids.is_empty() && wrong.kind != "lost-wakeup");
    }
    let (seen, run) = Inspection::of(&[
        "--connect",
        &format!("unix:{}", socket.display()),
        "--sysroot",
        &sysroot.display().to_string(),
    ])?;
    let conditions = Conditions {
        library,
        named: true,
        state: "waiting",
        low: 0,
        stands: false,
    };
    seen.compare(&waiting, conditions)
        .with_context(|| run.to_string())?;
    let said = seen.notes.iter().any(|note| note.contains("/proc"));
    ensure!(said, "nothing is said of what is not known: {run}");
    Ok(())
}
