//! Single-steps through whole functions; at each instruction the caller's frame must be the right
//! one.
//!
//! The truth comes from the calls: the stack pointer before the call, and the address behind it. So
//! it depends neither on debug information nor on another unwinder.

#[path = "single_steps/stepper.rs"]
mod stepper;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, Provenance, RegisterFile, SnapshotMemory, Table,
    WalkOptions, walk,
};

use crate::tools::{Scratch, compile, need, stripped};
use stepper::Step;

const LIBRARY_FREE: [&str; 5] = [
    "-nostdlib",
    "-static",
    "-ffreestanding",
    "-fno-builtin",
    "-Wl,-z,noexecstack",
];

/// Optimization levels with what changes prologues and epilogues.
const OPTIONS: [&[&str]; 8] = [
    &["-O0"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-Os"],
    &["-O2", "-fno-omit-frame-pointer"],
    &["-O2", "-fstack-protector-all"],
    &["-O1", "-fno-shrink-wrap", "-fstack-clash-protection"],
];

/// Number of steps, and the wrong ones with their places.
#[derive(Debug, Default)]
struct Steps {
    steps: u64,
    wrong: Vec<String>,
    /// Number of callers by the way in which they were found.
    by_source: BTreeMap<&'static str, u64>,
}

impl Steps {
    fn add(&mut self, other: Steps) {
        self.steps += other.steps;
        self.wrong.extend(other.wrong);
        for (source, count) in other.by_source {
            *self.by_source.entry(source).or_default() += count;
        }
    }

    fn percent_wrong(&self) -> f64 {
        100.0 * self.wrong.len() as f64 / self.steps as f64
    }
}

/// The callers that these sources give at each step.
fn callers(taken: &[Step], file: &Path, arch: Arch, options: &CompileOptions) -> Steps {
    let image = Image::open(file).expect("image");
    let mut modules = ModuleMap::new(arch);
    modules.add(Module {
        id: 0,
        name: file.display().to_string(),
        bias: 0,
        table: Arc::new(Table::compile(&image, options)),
    });
    let mut steps = Steps::default();
    for step in taken {
        let registers = RegisterFile::new(arch, |name| step.registers.get(name).copied());
        let options = WalkOptions::default();
        let mut memory = SnapshotMemory::new();
        for (avma, bytes) in &step.memory {
            memory.insert(*avma, bytes.clone());
        }
        let stack = walk(&modules, &registers, &mut memory, &options);
        let caller = stack.frames.get(1);
        let source = caller.map_or("none", |frame| frame.provenance.as_str());
        *steps.by_source.entry(source).or_default() += 1;
        steps.steps += 1;
        let found = caller.map(|frame| (frame.pc, frame.sp));
        if found != Some(step.caller) || source == Provenance::Scan.as_str() {
            steps.wrong.push(format!(
                "{:#x}: {source} {found:#x?}, not {:#x?}",
                stack.frames.first().map_or(0, |frame| frame.pc),
                step.caller
            ));
        }
    }
    steps
}

/// An architecture and its tools.
struct Machine {
    name: &'static str,
    arch: Arch,
    /// The prefix of the tools' names.
    tools: &'static str,
    /// The debug server's command, without its address.
    server: &'static [&'static str],
    flags: &'static [&'static str],
    /// Maximum share of steps, in percent, at which the code alone does not give the caller.
    max_missing_by_code: f64,
}

/// Steps through the program in all builds. Returns the outcomes with all sources of a stripped
/// file, and with the analysis of its code alone.
fn outcomes(machine: &Machine) -> [Steps; 2] {
    let [compiler, strip] = ["gcc", "strip"].map(|tool| format!("{}{tool}", machine.tools));
    need(&[&compiler, &strip, machine.server[0]]);
    let dir = Scratch::new(machine.name);
    let mut code = CompileOptions::default();
    (code.cfi, code.exidx) = (false, false);
    let mut sums = [Steps::default(), Steps::default()];
    for options in OPTIONS {
        let flags = [&LIBRARY_FREE[..], machine.flags, options].concat();
        let program = compile(dir.path(), &compiler, "whole_functions.c", &flags);
        let taken = stepper::steps(machine, &program);
        assert!(taken.len() > 500, "{options:?}: {} steps", taken.len());
        let bare = stripped(&program, &strip);
        let sources = [&CompileOptions::default(), &code];
        for (sum, sources) in sums.iter_mut().zip(sources) {
            let mut steps = callers(&taken, &bare, machine.arch, sources);
            for wrong in &mut steps.wrong {
                *wrong = format!("{options:?} {wrong}");
            }
            sum.add(steps);
        }
    }
    for (name, steps) in ["all sources", "code alone"].iter().zip(&sums) {
        println!(
            "{} {name}: {} steps, {} wrong ({:.3} %), {:?}",
            machine.name,
            steps.steps,
            steps.wrong.len(),
            steps.percent_wrong(),
            steps.by_source
        );
        for wrong in steps.wrong.iter().take(40) {
            println!("  {wrong}");
        }
    }
    sums
}

fn has_every_caller(machine: &Machine) {
    let [all, code] = outcomes(machine);
    assert!(all.steps > 5000, "{}", all.steps);
    assert!(all.wrong.is_empty(), "{:#?}", all.wrong);
    let missing = code.percent_wrong();
    assert!(missing <= machine.max_missing_by_code, "{:#?}", code.wrong);
}

#[test]
fn x86_64() {
    has_every_caller(&Machine {
        name: "single-steps-x86-64",
        arch: Arch::X86_64,
        tools: "",
        server: &["gdbserver", "--once"],
        flags: &["-mstack-protector-guard=global"],
        // -fstack-clash-protection makes room for a large frame in a loop, behind which the code
        // analysis does not know the frame's size. The search of the stack finds most of these.
        max_missing_by_code: 0.6,
    });
}

#[test]
fn aarch64() {
    has_every_caller(&Machine {
        name: "single-steps-aarch64",
        arch: Arch::Aarch64,
        tools: "aarch64-linux-gnu-",
        server: &["qemu-aarch64", "-g"],
        flags: &[],
        max_missing_by_code: 0.0,
    });
}

const ARM: Machine = Machine {
    name: "single-steps-a32",
    arch: Arch::Arm,
    tools: "arm-linux-gnueabihf-",
    server: &["qemu-arm", "-g"],
    // Debian's compiler writes no exception index for C.
    flags: &["-marm", "-funwind-tables"],
    max_missing_by_code: 0.0,
};

#[test]
fn a32() {
    has_every_caller(&ARM);
}

#[test]
fn t32() {
    has_every_caller(&Machine {
        name: "single-steps-t32",
        flags: &["-mthumb", "-funwind-tables"],
        ..ARM
    });
}
