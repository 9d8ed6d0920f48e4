//! Steps stripped ARM programs instruction by instruction from the very first one. At each stop,
//! the unwound stack must be complete and equal to a shadow call stack.
//!
//! The test compares the first stops of a program, in start code and the dynamic linker, and the
//! first stops from `main` on, most of them in the C library. It only steps through the code in
//! between. `UNSPOOL_STOPS=N` compares the first N stops instead, without a gap.
//! `UNSPOOL_STEPPED_GDB=N` also unwinds with gdb at every Nth stop, and prints the results.

mod gdb;
mod late;
mod shadow;
mod under_qemu;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use unspool_image::Arch;
use unspool_rsp::{Action, Client, Registers, StopReply, TargetDescription};
use unspool_unwind::{
    Frame, ModuleMap, Provenance, RegisterFile, StackEnd, StackSlice, WalkOptions, walk,
};

use shadow::{Seen, Shadow};
use under_qemu::Memory;

/// Number of stops to compare.
#[derive(Clone, Copy)]
struct Plan {
    /// From the program's first instruction on.
    first: usize,
    /// From `main` on.
    from_main: usize,
}

impl Plan {
    /// Takes the number from the environment. By default, the stops cover everything but long runs.
    fn of(fewer: usize) -> Plan {
        match number("UNSPOOL_STOPS") {
            Some(stops) => Plan {
                first: stops,
                from_main: 0,
            },
            None => Plan {
                first: 1_500 / fewer,
                from_main: 4_500,
            },
        }
    }

    fn stops(self) -> usize {
        self.first + self.from_main
    }
}

/// Compiler flags of each program, and the divisor of its number of first stops.
const PROGRAMS: [(&[&str], usize); 8] = [
    (&["-marm", "-O2", "-static"], 1),
    (&["-mthumb", "-O2", "-static"], 1),
    (&["-marm", "-O0", "-static"], 5),
    (&["-mthumb", "-O0", "-static"], 5),
    (&["-marm", "-Os", "-static"], 5),
    (&["-mthumb", "-Os", "-static"], 5),
    (&["-marm", "-O2"], 1),
    (&["-mthumb", "-O3"], 1),
];

fn run(command: &mut Command) {
    let status = command.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{command:?}: {status:?}: is gcc-arm-linux-gnueabihf installed?"
    );
}

/// Builds the program with symbols, and a stripped copy.
fn build(dir: &Path, flags: &[&str]) -> (PathBuf, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/stepped.c");
    let named = dir.join(format!("stepped{}", flags.concat()));
    let bare = named.with_extension("stripped");
    let mut compiler = Command::new("arm-linux-gnueabihf-gcc");
    run(compiler
        .args(flags)
        .args(["-w", "-o"])
        .arg(&named)
        .arg(source));
    run(Command::new("arm-linux-gnueabihf-strip")
        .arg("-o")
        .arg(&bare)
        .arg(&named));
    (named, bare)
}

/// Debian's armhf libraries, unchanged.
fn sysroot() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let sysroot = target.join("sysroot-armhf");
    run(Command::new(root.join("qemu/sysroot.sh"))
        .arg(&sysroot)
        .stdout(std::process::Stdio::null()));
    sysroot
}

fn seen(registers: &Registers, description: &TargetDescription) -> Seen {
    let value = |name: &str| {
        let register = description.register(name).expect("register");
        registers.value(register).expect("value")
    };
    Seen {
        pc: value("pc") & !1,
        sp: value("sp"),
        lr: value("lr"),
        thumb: value("cpsr") >> 5 & 1 == 1,
    }
}

/// The unwound stack at one stop.
struct Unwound {
    /// Number of instructions executed before.
    at: usize,
    function: String,
    /// Program counters of all frames, innermost first.
    pcs: Vec<u64>,
    end: StackEnd,
}

#[derive(Debug, Default)]
struct Outcome {
    stops: usize,
    equal: usize,
    complete: usize,
    /// The direct caller's frame is missing or wrong.
    caller_lost: usize,
    deepest: usize,
    functions: BTreeSet<String>,
    /// By function: the number of stops that differ, and the first one.
    differences: BTreeMap<String, (usize, String)>,
    /// The true stacks at the stops to compare with gdb.
    truths: BTreeMap<usize, Vec<u64>>,
}

impl Outcome {
    fn judge(&mut self, unwound: Unwound, truth: &[u64], ask: usize) {
        let Unwound {
            at,
            function,
            pcs,
            end,
        } = unwound;
        if ask > 0 && at.is_multiple_of(ask) {
            self.truths.insert(at, truth.to_vec());
        }
        self.functions.insert(function.clone());
        self.stops += 1;
        self.deepest = self.deepest.max(truth.len());
        self.complete += usize::from(end.is_complete());
        self.caller_lost += usize::from(pcs.get(1) != truth.get(1));
        if pcs == truth && end.is_complete() {
            self.equal += 1;
            return;
        }
        let entry = self.differences.entry(function).or_default();
        entry.0 += 1;
        if entry.0 == 1 {
            entry.1 = format!("ours {pcs:x?} ({end}), shadow {truth:x?}");
        }
    }
}

/// Unwinds all frames, innermost first, and returns them with the reason for the end. `top` is the
/// initial stack pointer of the program. `prefer` lists the sources to try first.
fn unwind(
    client: &mut Client,
    modules: &ModuleMap,
    registers: &Registers,
    top: u64,
    prefer: &[Provenance],
) -> (Vec<Frame>, StackEnd) {
    let file = RegisterFile::new(Arch::Arm, |name| {
        registers.value(client.description().register(name)?)
    });
    let sp = file.sp().expect("sp");
    // Up to the first argument, which is on the program's initial stack.
    let size = usize::try_from(top.saturating_sub(sp)).expect("size") + 64;
    let bytes = client.read_memory(sp, size).expect("stack");
    let mut slice = StackSlice {
        avma: sp,
        bytes: &bytes,
    };
    let mut options = WalkOptions::default();
    options.prefer = prefer.to_vec();
    let stack = walk(modules, &file, &mut slice, &options);
    (stack.frames, stack.end)
}

/// Compares the stops of one program. Collects the true stack at every `ask`th stop.
fn compare(named: &Path, bare: &Path, sysroot: Option<&Path>, plan: Plan, ask: usize) -> Outcome {
    let server = under_qemu::start(bare, sysroot);
    let mut memory = Memory::new(&server, named);
    let mut client = server.connect();
    let description = client.description().clone();
    let thread = client.stop_reason().expect("halted").thread();
    let thread = thread.unwrap_or_else(|| client.threads().expect("threads")[0]);
    let mut shadow = Shadow::default();
    let mut outcome = Outcome::default();
    let mut previous: Option<Seen> = None;
    // Stops during a `longjmp`, whose direct caller is not known yet.
    let mut between: Vec<Unwound> = Vec::new();
    let mut top = 0;
    let mut executed = 0;
    let mut in_main = false;
    while outcome.stops < plan.stops() {
        let registers = client.registers(thread).expect("registers");
        let here = seen(&registers, &description);
        match previous {
            Some(before) => shadow.step(before, memory.length(before.pc, before.thumb), here),
            None => top = here.sp,
        }
        in_main = in_main || memory.function(here.pc) == "main";
        if outcome.stops < plan.first || in_main {
            let (frames, end) = unwind(&mut client, &memory.modules, &registers, top, &[]);
            let unwound = Unwound {
                at: executed,
                function: memory.function(here.pc),
                pcs: frames.iter().map(|frame| frame.pc).collect(),
                end,
            };
            let truth: Vec<u64> = std::iter::once(here.pc).chain(shadow.callers()).collect();
            if shadow.is_switched() {
                between.push(unwound);
            } else {
                for unwound in between.drain(..) {
                    let truth: Vec<u64> = [&unwound.pcs[..1], &truth].concat();
                    outcome.judge(unwound, &truth, ask);
                }
                outcome.judge(unwound, &truth, ask);
            }
        }
        previous = Some(here);
        executed += 1;
        client
            .resume(&[(Action::Step, Some(thread))])
            .expect("step");
        match client.wait(Some(Duration::from_secs(60))).expect("stop") {
            Some(StopReply::Stopped { .. }) => {}
            Some(StopReply::Exited { .. }) => break,
            other => panic!("{other:?}"),
        }
    }
    outcome
}

fn number(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn unwound_stacks_equal_the_shadow_stack_at_every_instruction() {
    let ask = number("UNSPOOL_STEPPED_GDB").unwrap_or(0);
    let dir = tempfile::tempdir().expect("directory");
    let libraries = sysroot();
    let mut short = Vec::new();
    for (flags, fewer) in PROGRAMS {
        let (named, bare) = build(dir.path(), flags);
        let sysroot = (!flags.contains(&"-static")).then_some(libraries.as_path());
        let plan = Plan::of(fewer);
        let start = Instant::now();
        let outcome = compare(&named, &bare, sysroot, plan, ask);
        println!(
            "{flags:?}: {} stops in {:?}, {} functions, deepest {}: {} equal, {} complete, {} without their caller",
            outcome.stops,
            start.elapsed(),
            outcome.functions.len(),
            outcome.deepest,
            outcome.equal,
            outcome.complete,
            outcome.caller_lost
        );
        for (function, (count, first)) in &outcome.differences {
            println!("  {function}: {count} stops, the first: {first}");
        }
        if ask > 0 && sysroot.is_none() {
            let asked = outcome.truths.len();
            for (what, file) in [("stripped", &bare), ("with symbols", &named)] {
                let [equal, lost] = gdb::compare(&bare, file, &outcome.truths);
                println!("  gdb, {what}: {equal} of {asked} equal, {lost} without their caller");
            }
        }
        assert!(outcome.stops >= plan.stops(), "{}", outcome.stops);
        assert!(outcome.functions.len() >= 20, "{:?}", outcome.functions);
        let library = |name: &String| sysroot.is_none() || name.starts_with("libc.so.6:");
        assert!(outcome.functions.iter().any(library), "{flags:?}");
        if outcome.equal * 1000 < outcome.stops * 999 || outcome.caller_lost > 0 {
            short.push(flags);
        }
    }
    assert!(short.is_empty(), "{short:?}: see above");
}
