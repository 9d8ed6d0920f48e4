//! Stripped ARM programs, stepped instruction by instruction from the very first one: at each stop the unwound
//! stack must be complete and equal to a shadow call stack kept beside.
//!
//! `UNSPOOL_STOPS=N` sets how many stops of each program are compared.

mod shadow;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use unspool_image::{Arch, Image};
use unspool_rsp::{Action, Client, ClientOptions, Registers, StopReply, TargetDescription};
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, RegisterFile, StackEnd, StackSlice, Table, WalkOptions, walk,
};

use shadow::{Seen, Shadow};

/// Stops of each program, unless the environment says otherwise.
const STOPS: usize = 6_000;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "{command:?}: {status:?}: is gcc-arm-linux-gnueabihf installed?"
    );
}

/// The program with symbols, and stripped of them.
fn build(dir: &Path, flags: &[&str]) -> (PathBuf, PathBuf) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/stepped.c");
    let named = dir.join(format!("stepped{}", flags.concat()));
    let bare = named.with_extension("stripped");
    let mut compiler = Command::new("arm-linux-gnueabihf-gcc");
    run(compiler
        .args(flags)
        .args(["-static", "-w", "-o"])
        .arg(&named)
        .arg(source));
    run(Command::new("arm-linux-gnueabihf-strip")
        .arg("-o")
        .arg(&bare)
        .arg(&named));
    (named, bare)
}

/// The program under qemu-arm, halted before its first instruction, with an empty environment: what it
/// executes then is the same each time.
fn start(program: &Path) -> (Server, Client) {
    let socket = program.with_extension("socket");
    let child = Command::new("qemu-arm")
        .arg("-g")
        .arg(&socket)
        .arg(program)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("qemu-arm: is qemu-user installed?");
    let server = Server(child);
    let deadline = Instant::now() + Duration::from_secs(30);
    let stream = loop {
        match UnixStream::connect(&socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "qemu-arm: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let options = ClientOptions {
        timeout: Duration::from_secs(60),
        ..ClientOptions::default()
    };
    (server, Client::over(stream, options).expect("session"))
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

/// Bytes of the instruction. T32: 32 bits if the first five are 11101, 11110 or 11111 (ARM ARM, A6.1).
fn length(image: &Image, at: Seen) -> u64 {
    if !at.thumb {
        return 4;
    }
    let half = image.bytes_at(at.pc, 2).expect("code");
    if half[1] >= 0xe8 { 4 } else { 2 }
}

/// What was unwound at one stop.
struct Unwound {
    function: String,
    /// Of all frames, innermost first.
    pcs: Vec<u64>,
    end: StackEnd,
}

#[derive(Debug, Default)]
struct Outcome {
    stops: usize,
    equal: usize,
    complete: usize,
    /// The frame right above the innermost is missing or another.
    caller_lost: usize,
    deepest: usize,
    functions: BTreeSet<String>,
    /// By function: how many stops differ, and the first of them.
    differences: BTreeMap<String, (usize, String)>,
}

impl Outcome {
    fn judge(&mut self, unwound: Unwound, truth: &[u64]) {
        let Unwound { function, pcs, end } = unwound;
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

fn compare(named: &Path, bare: &Path, stops: usize) -> Outcome {
    let names = Image::open(named).expect("program");
    let image = Image::open(bare).expect("stripped program");
    assert!(image.symbols().is_empty(), "stripped");
    let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
    let mut modules = ModuleMap::new(Arch::Arm);
    modules.add(Module {
        id: 1,
        name: "stepped".into(),
        bias: 0,
        image: image.clone(),
        table,
    });
    let (_server, mut client) = start(bare);
    let description = client.description().clone();
    let thread = client.stop_reason().expect("halted").thread();
    let thread = thread.unwrap_or_else(|| client.threads().expect("threads")[0]);
    let mut shadow = Shadow::default();
    let mut outcome = Outcome::default();
    let mut previous: Option<Seen> = None;
    // Stops between two stacks, whose direct caller is not yet known.
    let mut between: Vec<Unwound> = Vec::new();
    let mut top = 0;
    while outcome.stops < stops {
        let registers = client.registers(thread).expect("registers");
        let here = seen(&registers, &description);
        match previous {
            Some(before) => shadow.step(before, length(&image, before), here),
            None => top = here.sp,
        }
        // Up to the first argument, which lies on the stack the program was given.
        let size = usize::try_from(top.saturating_sub(here.sp)).expect("size") + 64;
        let bytes = client.read_memory(here.sp, size).expect("stack");
        let file = RegisterFile::new(Arch::Arm, |name| {
            registers.value(description.register(name)?)
        });
        let mut memory = StackSlice {
            avma: here.sp,
            bytes: &bytes,
        };
        let stack = walk(&modules, &file, &mut memory, &WalkOptions::default());
        let function = names.symbols().containing(here.pc);
        let unwound = Unwound {
            function: function.map_or("?", |symbol| symbol.name).to_owned(),
            pcs: stack.frames.iter().map(|frame| frame.pc).collect(),
            end: stack.end,
        };
        let truth: Vec<u64> = std::iter::once(here.pc).chain(shadow.callers()).collect();
        if shadow.is_switched() {
            between.push(unwound);
        } else {
            for unwound in between.drain(..) {
                let truth: Vec<u64> = [&unwound.pcs[..1], &truth].concat();
                outcome.judge(unwound, &truth);
            }
            outcome.judge(unwound, &truth);
        }
        previous = Some(here);
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

#[test]
fn every_instruction_of_stripped_arm_programs_has_its_whole_stack() {
    let stops =
        std::env::var("UNSPOOL_STOPS").map_or(STOPS, |text| text.parse().expect("a number"));
    let dir = tempfile::tempdir().expect("directory");
    for flags in [["-marm", "-O2"], ["-mthumb", "-O2"]] {
        let (named, bare) = build(dir.path(), &flags);
        let start = Instant::now();
        let outcome = compare(&named, &bare, stops);
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
        assert!(outcome.functions.len() >= 20, "{:?}", outcome.functions);
        assert!(outcome.stops >= stops, "{}", outcome.stops);
        assert!(outcome.equal * 1000 >= outcome.stops * 999, "see above");
        assert_eq!(outcome.caller_lost, 0, "see above");
    }
}
