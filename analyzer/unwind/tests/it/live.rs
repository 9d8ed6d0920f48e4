//! Stops programs with gdb at one instruction after another; our frames must equal gdb's.

use std::collections::{BTreeMap, HashMap};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, Provenance, RegisterFile, SnapshotMemory, Stack, StackEnd,
    Table, Tracer, WalkOptions, walk,
};

use crate::tools::{Scratch, compile, need, output, stripped};

const FUNCTIONS: &str = "main,leaf,many,big_frame,dynamic,shrink_wrapped,choose,deep,compare,sorted,varargs,tail,floats,handler,interrupted";

/// The registers, stack and gdb's frames at one stop.
#[derive(Default)]
struct Snapshot {
    modules: Vec<(u64, PathBuf)>,
    registers: HashMap<String, u64>,
    memory: Vec<(u64, Vec<u8>)>,
    frames: Vec<(u64, String)>,
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("hex number")
}

fn parse(text: &str) -> Vec<Snapshot> {
    let mut snapshots: Vec<Snapshot> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "snapshot" {
            snapshots.push(Snapshot::default());
            continue;
        }
        let snapshot = snapshots.last_mut().expect("snapshot first");
        match words[0] {
            "module" => snapshot.modules.push((hex(words[1]), words[2].into())),
            "register" => {
                snapshot.registers.insert(words[1].into(), hex(words[2]));
            }
            "memory" => {
                let bytes = words[2].as_bytes().chunks(2);
                let bytes = bytes.map(|pair| {
                    u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex")
                });
                snapshot.memory.push((hex(words[1]), bytes.collect()));
            }
            _ => snapshot.frames.push((hex(words[1]), words[2].into())),
        }
    }
    snapshots
}

/// Counts over all stops.
#[derive(Debug, Default)]
struct Outcome {
    stops: usize,
    /// Stops where gdb's frames equal ours.
    equal: usize,
    /// The part of these whose stack is complete.
    complete: usize,
    scanned: usize,
    /// Stops where a signal interrupted one of the frames.
    interrupted: usize,
    /// Stops where gdb did not reach the program's start.
    lost: usize,
    /// Time of a second walk of each stop, and its number of frames.
    warm: std::time::Duration,
    frames: usize,
    differences: Vec<String>,
    /// The reasons why stacks are not complete.
    ends: BTreeMap<String, usize>,
}

fn compare(text: &str, arch: Arch, replace: Option<(&Path, &Path)>) -> Outcome {
    compare_by(text, arch, replace, &CompileOptions::default())
}

fn compare_by(
    text: &str,
    arch: Arch,
    replace: Option<(&Path, &Path)>,
    options: &CompileOptions,
) -> Outcome {
    let mut tables: HashMap<PathBuf, (Image, Arc<Table>)> = HashMap::new();
    let mut outcome = Outcome::default();
    let mut tracer = Tracer::new();
    let mut walked = Vec::new();
    for (index, snapshot) in parse(text).into_iter().enumerate() {
        let mut modules = ModuleMap::new(arch);
        for (id, (text, path)) in snapshot.modules.iter().enumerate() {
            let path = match replace {
                Some((from, to)) if from == path => to,
                _ => path,
            };
            let (image, table) = tables.entry(path.into()).or_insert_with(|| {
                let image = Image::open(path).expect("module");
                let table = Table::compile(&image, options);
                (image, Arc::new(table))
            });
            let section = image.section(".text").expect(".text");
            modules.add(Module {
                id: id as u32,
                name: path.display().to_string(),
                bias: text.wrapping_sub(section.svma),
                table: table.clone(),
            });
        }
        let registers = RegisterFile::new(arch, |name| snapshot.registers.get(name).copied());
        let mut memory = SnapshotMemory::new();
        for (avma, bytes) in snapshot.memory {
            memory.insert(avma, bytes);
        }
        let stack = walk(&modules, &registers, &mut memory, &WalkOptions::default());
        let start = std::time::Instant::now();
        walk(&modules, &registers, &mut memory, &WalkOptions::default());
        outcome.warm += start.elapsed();
        outcome.frames += stack.frames.len();
        let ours: Vec<u64> = stack.frames.iter().map(|frame| frame.pc).collect();
        // The fast tier returns the same frames, with and without its memory of earlier walks.
        for _ in 0..2 {
            let mut traced = Vec::new();
            let options = WalkOptions::default();
            let end = tracer.trace(&modules, &registers, &mut memory, &options, &mut traced);
            assert_eq!((&traced, end), (&ours, stack.end), "stop {index}");
        }
        walked.push((modules, registers, memory, stack.clone()));
        let theirs: Vec<u64> = snapshot.frames.iter().map(|frame| frame.0).collect();
        outcome.stops += 1;
        if !stack.end.is_complete() {
            *outcome.ends.entry(stack.end.to_string()).or_default() += 1;
        }
        outcome.complete += usize::from(stack.end.is_complete());
        outcome.scanned += usize::from(
            stack
                .frames
                .iter()
                .any(|frame| frame.provenance == Provenance::Scan),
        );
        outcome.interrupted += usize::from(stack.frames.iter().any(|frame| frame.signal_frame));
        for pair in stack.frames.windows(2).filter(|pair| pair[1].signal_frame) {
            assert_eq!(pair[0].pc, pair[0].address_for_lookup, "trampoline");
        }
        // gdb may stop earlier than we do. All frames it prints are right.
        if ours.starts_with(&theirs) && stack.end != StackEnd::FrameLimit {
            outcome.equal += 1;
        } else {
            let arrived = snapshot
                .frames
                .last()
                .is_some_and(|(_, name)| name == "_start");
            outcome.lost += usize::from(!arrived && stack.frames.len() > snapshot.frames.len());
            let ours: Vec<String> = stack
                .frames
                .iter()
                .map(|frame| format!("{:#x} {}", frame.pc, frame.provenance))
                .collect();
            let theirs: Vec<String> = snapshot
                .frames
                .iter()
                .map(|(pc, name)| format!("{pc:#x} {name}"))
                .collect();
            outcome.differences.push(format!(
                "stop {index}: ours {ours:?} ({}), gdb's {theirs:?}",
                stack.end
            ));
        }
    }
    from_slices(walked);
    outcome
}

/// Tables from bytes, with only the code beside them, give the same stacks.
fn from_slices(walked: Vec<(ModuleMap, RegisterFile, SnapshotMemory, Stack)>) {
    let mut tables: HashMap<String, Arc<Table>> = HashMap::new();
    for (index, (modules, registers, mut memory, stack)) in walked.into_iter().enumerate() {
        let mut portable = ModuleMap::new(modules.arch());
        for module in modules.modules() {
            let read = || {
                // The walks compiled single rules. All rules must exist to be written.
                module.table.rows_of_all().for_each(drop);
                let mut table = Table::from_slice(&module.table.to_bytes()).expect("a table");
                let image = module.table.image().expect("an image");
                for part in image.segments().iter().filter(|part| part.is_executable()) {
                    let code = image.bytes_at(part.svma, part.file_size as usize);
                    table = table.with_bytes(part.svma, code.expect("code"));
                }
                Arc::new(table)
            };
            portable.add(Module {
                table: tables
                    .entry(module.name.clone())
                    .or_insert_with(read)
                    .clone(),
                ..module.clone()
            });
        }
        let again = walk(&portable, &registers, &mut memory, &WalkOptions::default());
        assert_eq!(again, stack, "stop {index}");
    }
}

fn native(dir: &Path, program: &Path, stops: usize, functions: &str) -> String {
    native_up_to("", dir, program, stops, functions)
}

/// gdb's frames up to the function `last`.
fn native_up_to(last: &str, dir: &Path, program: &Path, stops: usize, functions: &str) -> String {
    let out = dir.join("snapshots");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/snapshot.py");
    output(
        Command::new("gdb")
            .args(["-nx", "-batch", "-x"])
            .arg(script)
            .arg(program)
            .env("SNAPSHOT_OUT", &out)
            .env("SNAPSHOT_STOPS", stops.to_string())
            .env("SNAPSHOT_FUNCTIONS", functions)
            .env("SNAPSHOT_START", "run")
            .env("SNAPSHOT_LAST", last)
            .env("LC_ALL", "C")
            .stdin(Stdio::null()),
    );
    std::fs::read_to_string(out).expect("snapshots")
}

fn qemu(emulator: &str, dir: &Path, program: &Path, stops: usize, functions: &str) -> String {
    let out = dir.join("snapshots");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/snapshot.py");
    let port = TcpListener::bind("127.0.0.1:0")
        .expect("port")
        .local_addr()
        .expect("port")
        .port();
    let mut server = Command::new(emulator);
    if emulator == "qemu-aarch64" {
        // gdb 13 does not understand the signal frames of a processor with SVE.
        server.args(["-cpu", "cortex-a72"]);
    }
    let mut server = server
        .arg("-g")
        .arg(port.to_string())
        .arg(program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("emulator");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let result = Command::new("gdb-multiarch")
        .args(["-nx", "-batch", "-ex"])
        .arg(format!("target remote 127.0.0.1:{port}"))
        .arg("-x")
        .arg(script)
        .arg(program)
        .env("SNAPSHOT_OUT", &out)
        .env("SNAPSHOT_STOPS", stops.to_string())
        .env("SNAPSHOT_FUNCTIONS", functions)
        .env("SNAPSHOT_START", "continue")
        .env(
            "SNAPSHOT_LEAST",
            if functions == FUNCTIONS {
                "512"
            } else {
                "8192"
            },
        )
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    let _ = server.kill();
    let _ = server.wait();
    let result = result.expect("gdb-multiarch");
    assert!(
        result.status.success(),
        "{}",
        String::from_utf8_lossy(&result.stderr)
    );
    std::fs::read_to_string(out).expect("snapshots")
}

fn report(name: &str, outcome: &Outcome) {
    println!(
        "{name}: {} stops, {} equal to gdb, {} complete, {} lost by gdb, {} with a scanned frame",
        outcome.stops, outcome.equal, outcome.complete, outcome.lost, outcome.scanned
    );
    println!(
        "  {} frames, warm: {:?} for all",
        outcome.frames, outcome.warm
    );
    for end in &outcome.ends {
        println!("  {} x {}", end.1, end.0);
    }
    for difference in outcome.differences.iter().take(6) {
        println!("  {difference}");
    }
}

#[test]
fn x86_64_equals_gdb_at_every_instruction() {
    need(&["gdb", "gcc"]);
    let dir = Scratch::new("x86");
    for flags in [["-O0", "-g"], ["-O2", "-g"]] {
        let program = compile(dir.path(), "gcc", "steps.c", &flags);
        let outcome = compare(
            &native(dir.path(), &program, 500, FUNCTIONS),
            Arch::X86_64,
            None,
        );
        report(&format!("x86-64 {flags:?}"), &outcome);
        assert!(outcome.stops >= 300, "{outcome:?}");
        assert_eq!(outcome.equal, outcome.stops, "{outcome:#?}");
        assert_eq!(outcome.complete, outcome.stops, "{outcome:#?}");
        assert_eq!(outcome.scanned, 0);
    }
}

/// gdb uses the debug information; we use the stripped file.
#[test]
fn stripped_arm_equals_gdb_with_debug_information() {
    need(&["gdb-multiarch", "qemu-arm", "arm-linux-gnueabihf-gcc"]);
    let dir = Scratch::new("arm");
    for (mode, optimize) in [("-marm", "-O2"), ("-mthumb", "-O0"), ("-mthumb", "-O2")] {
        let flags = [mode, optimize, "-g", "-static"];
        let program = compile(dir.path(), "arm-linux-gnueabihf-gcc", "steps.c", &flags);
        let bare = stripped(&program, "arm-linux-gnueabihf-strip");
        let text = qemu("qemu-arm", dir.path(), &program, 400, FUNCTIONS);
        for (name, replace) in [
            ("stripped", Some((program.as_path(), bare.as_path()))),
            ("with symbols", None),
        ] {
            let outcome = compare(&text, Arch::Arm, replace);
            report(&format!("arm {mode} {optimize} {name}"), &outcome);
            assert!(outcome.stops >= 300, "{}", outcome.stops);
            // In libc's qsort, which has no CFI, gdb itself loses callers at a few stops.
            assert!(
                outcome.equal + outcome.lost + 4 >= outcome.stops,
                "{outcome:#?}"
            );
            assert_eq!(outcome.scanned, 0);
        }
    }
}

/// Uses call frame information, and then the code analysis alone.
#[test]
fn aarch64_equals_gdb_at_every_instruction() {
    need(&["gdb-multiarch", "qemu-aarch64", "aarch64-linux-gnu-gcc"]);
    let dir = Scratch::new("aarch64");
    let mut code = CompileOptions::default();
    code.cfi = false;
    for optimize in ["-O0", "-O2"] {
        let flags = [optimize, "-g", "-static"];
        let program = compile(dir.path(), "aarch64-linux-gnu-gcc", "steps.c", &flags);
        let bare = stripped(&program, "aarch64-linux-gnu-strip");
        let text = qemu("qemu-aarch64", dir.path(), &program, 500, FUNCTIONS);
        let replace = Some((program.as_path(), bare.as_path()));
        for (name, options) in [("CFI", &CompileOptions::default()), ("code", &code)] {
            let outcome = compare_by(&text, Arch::Aarch64, replace, options);
            report(&format!("AArch64 {optimize} stripped, {name}"), &outcome);
            assert!(outcome.stops >= 300, "{}", outcome.stops);
            assert_eq!(outcome.equal, outcome.stops, "{outcome:#?}");
            assert_eq!(outcome.complete, outcome.stops, "{outcome:#?}");
            assert_eq!(outcome.scanned, 0);
        }
    }
}

/// musl's `clone` starts threads in its own way, and the function it calls has no call frame
/// information.
#[test]
fn musl_threads_end() {
    need(&["gdb", "musl-gcc"]);
    let dir = Scratch::new("musl");
    for flags in [["-O0", "-g", "-static"], ["-O2", "-g", "-static"]] {
        let program = compile(dir.path(), "musl-gcc", "threads.c", &flags);
        let bare = stripped(&program, "strip");
        // gdb prints wrong frames after `start`, which has no call frame information.
        let text = native_up_to("start", dir.path(), &program, 100, "work,leaf");
        let outcome = compare(&text, Arch::X86_64, Some((&program, &bare)));
        report(&format!("musl {flags:?}"), &outcome);
        assert!(outcome.stops >= 80, "{}", outcome.stops);
        assert_eq!(outcome.complete, outcome.stops, "{outcome:#?}");
        assert_eq!(outcome.equal, outcome.stops, "{outcome:#?}");
        assert_eq!(outcome.scanned, 0);
    }
}

/// From a signal handler's first instruction to its last, and in the trampoline it returns to.
#[test]
fn signal_handlers_return_to_the_interrupted_code() {
    need(&[
        "gdb",
        "gcc",
        "gdb-multiarch",
        "qemu-arm",
        "arm-linux-gnueabihf-gcc",
        "qemu-aarch64",
        "aarch64-linux-gnu-gcc",
        "musl-gcc",
    ]);
    let dir = Scratch::new("signals");
    let program = compile(dir.path(), "gcc", "steps.c", &["-O2", "-g"]);
    let mut texts = vec![(
        "x86-64",
        Arch::X86_64,
        native(dir.path(), &program, 20, "handler"),
    )];
    let musl = Scratch::new("signals-musl");
    let program = compile(
        musl.path(),
        "musl-gcc",
        "steps.c",
        &["-O2", "-g", "-static"],
    );
    texts.push((
        "x86-64, musl",
        Arch::X86_64,
        // gdb cannot unwind musl's functions without call frame information.
        native_up_to("raise", dir.path(), &program, 20, "handler"),
    ));
    for (name, arch, emulator, compiler, flags) in [
        (
            "AArch64",
            Arch::Aarch64,
            "qemu-aarch64",
            "aarch64-linux-gnu-gcc",
            &["-O2", "-static", "-g"][..],
        ),
        (
            "A32",
            Arch::Arm,
            "qemu-arm",
            "arm-linux-gnueabihf-gcc",
            &["-marm", "-O2", "-g", "-static"][..],
        ),
        (
            "T32",
            Arch::Arm,
            "qemu-arm",
            "arm-linux-gnueabihf-gcc",
            &["-mthumb", "-O2", "-g", "-static"],
        ),
    ] {
        let program = compile(dir.path(), compiler, "steps.c", flags);
        let text = qemu(emulator, dir.path(), &program, 20, "handler");
        texts.push((name, arch, text));
    }
    for (name, arch, text) in texts {
        let outcome = compare(&text, arch, None);
        report(name, &outcome);
        assert!(outcome.interrupted >= 5, "{name}: {outcome:#?}");
        assert_eq!(outcome.scanned, 0, "{name}");
        // gdb 13 cannot unwind out of ARM's handlers. The frames up to there are the same.
        assert_eq!(outcome.complete, outcome.stops, "{name}: {outcome:#?}");
        assert_eq!(
            outcome.equal + outcome.lost,
            outcome.stops,
            "{name}: {outcome:#?}"
        );
    }
}
