//! Runs the stub's own trials (`stub/tests/stub`) on the boards.
//!
//! They and the programs they debug are built here. They must hold on other kernels and processors,
//! too: however a session ends, the program continues with its original instructions and correct
//! results.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::board::Machine;
use unspool_tests::memo::Memo;
use unspool_tests::process;
use unspool_tests::workspace;

use super::{ISAS, Isa};

/// The modules of these trials.
const MODULES: [&str; 13] = [
    "attaching",
    "changing_text",
    "children",
    "clients",
    "commands",
    "conditions",
    "crowds",
    "doors",
    "ends",
    "killed",
    "signals",
    "walking",
    "watching",
];

/// Modules in which the program's instruction set does not matter. The stub and the kernel are the
/// same for A32 and T32, so these run with one of them.
const INDEPENDENT: [&str; 9] = [
    "attaching",
    "children",
    "clients",
    "commands",
    "crowds",
    "doors",
    "ends",
    "killed",
    "signals",
];

/// Trials that need x86-64 instructions, a debugger on the machine itself, or a fast machine.
const LEFT_OUT: [&str; 10] = [
    "steps_from_every_instruction",
    "an_instruction_is_changed_under_its_trap",
    "a_second_controller_is_refused_and_learns_the_first",
    "a_socket_file_is_private_and_removed_at_the_end",
    "gdb_attaches_and_detaches_beside_an_observer",
    "gdb_follows_children_with_conditional_breakpoints",
    "gdb_sends_conditions_to_the_server",
    "gdb_prints_the_same",
    "gdb_tells_steps_from_hits",
    "clients_that_do_not_read_do_not_block_others",
];

/// The programs that they debug, and their compiler options.
const PROGRAMS: [(&str, &[&[&str]]); 16] = [
    ("asleep", &[&["-no-pie"]]),
    ("bomb", &[&["-no-pie"]]),
    ("children", &[&["-no-pie"]]),
    ("churn", &[&["-no-pie"]]),
    ("exec", &[&["-no-pie"]]),
    ("family", &[&["-no-pie"]]),
    ("hits", &[&["-no-pie"], &[]]),
    ("loop", &[&["-no-pie"]]),
    ("many", &[&["-no-pie"]]),
    ("relay", &[&["-no-pie"]]),
    ("signals", &[&["-no-pie"], &[]]),
    ("source", &[&["-no-pie"], &[], &["-O0"]]),
    ("spin", &[&["-no-pie"]]),
    ("text", &[&["-no-pie", "-ldl"]]),
    ("there", &[&["-shared", "-fPIC"]]),
    ("waiters", &[&["-no-pie"]]),
];

pub(super) fn trials() -> Vec<Trial> {
    let of = |isa: Isa| {
        let doubled = move |module: &&str| isa.name == "a32" && INDEPENDENT.contains(module);
        let modules = MODULES.into_iter().filter(move |module| !doubled(module));
        modules.map(move |module| {
            let name = format!("stub::{module}-{}", isa.name);
            super::trial(&name, move || run(isa, module))
        })
    };
    ISAS.into_iter().flat_map(of).collect()
}

fn run(isa: Isa, module: &str) -> Result<()> {
    static PLACED: Memo<&'static str, String> = Memo::new();
    let there = PLACED.get(isa.name, || place(isa))?;
    let left_out: String = LEFT_OUT.map(|name| format!(" --skip {name}")).concat();
    let text = isa.board()?.shell(&format!(
        "cd {there}; export UNSPOOL_STUB=/usr/bin/unspool-stub UNSPOOL_PROGRAMS={there} UNSPOOL_TRAP_KIND={}; \
         ./trials --test-threads=1 stub::{module}::{left_out} 2>&1",
        isa.kind
    ))?;
    let passed = text.contains("test result: ok.") && !text.contains(" 0 passed");
    ensure!(passed, "on the board:\n{text}");
    Ok(())
}

/// Copies the trials and their programs to the board; returns the directory.
fn place(isa: Isa) -> Result<String> {
    let folder = tempfile::tempdir()?;
    built(
        isa.machine,
        &["--test", "stub"],
        &folder.path().join("trials"),
    )?;
    for (name, ways) in PROGRAMS {
        for way in ways {
            let program = folder.path().join(format!("{name}{}", way.concat()));
            let source = format!("stub/tests/programs/{name}.c");
            let mut compiler = Command::new(isa.machine.tool("gcc"));
            compiler
                // Bind all symbols at start, so that stepping does not enter the dynamic linker.
                .args(["-g", "-O1", "-pthread", "-Wl,-z,now", isa.flag, "-o"])
                .arg(&program)
                .arg(workspace::root().join(source))
                .args(*way);
            process::run(&mut compiler, Duration::from_secs(60))?.success()?;
        }
    }
    let there = format!("/tmp/trials-{}", isa.name);
    isa.board()?.put_all(folder.path(), &there)?;
    Ok(there)
}

/// Builds trials of the stub statically for a machine. `which` is cargo's name for them.
pub(super) fn built(machine: Machine, which: &[&str], to: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace::root())
        .env("CARGO_TARGET_DIR", workspace::target_directory())
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        // The executable is stripped below.
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .args(["test", "-p", "unspool-stub", "--no-run"])
        .args(which)
        .args(["--target", machine.triple()]);
    let run = process::run(&mut cargo, Duration::from_secs(1200))?.success()?;
    // Executable unittests src/lib.rs (/.../deps/unspool_stub-0123456789abcdef)
    let built = run.stderr.lines().find_map(|line| {
        let (_, path) = line.trim().strip_prefix("Executable ")?.split_once('(')?;
        path.strip_suffix(')')
    });
    let built: PathBuf = built
        .with_context(|| format!("cargo names no executable\n{run}"))?
        .into();
    let mut strip = Command::new(machine.tool("strip"));
    // Cargo prints paths relative to its directory.
    strip.arg("-o").arg(to).arg(workspace::root().join(built));
    process::run(&mut strip, Duration::from_secs(60))?.success()?;
    Ok(())
}
