//! Unwinds snapshots of running Debian programs with Unspool, framehop and (x86-64) libunwind.
//!
//! All must return the same frames, or differ in a way that [`difference`] explains.
//! `UNSPOOL_STOPS=2000 cargo test -p unspool-unwind --test it -- peers --nocapture` sets the number
//! of stops of each program.

#[path = "peers/difference.rs"]
mod difference;
#[path = "peers/emulated.rs"]
mod emulated;
#[path = "peers/libunwind.rs"]
mod libunwind;
#[path = "peers/snapshot.rs"]
mod snapshot;
#[path = "peers/traced.rs"]
mod traced;
#[path = "peers/unwinders.rs"]
mod unwinders;

use std::collections::BTreeMap;
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, Provenance, RegisterFile, StackSlice, Table, WalkOptions,
    walk,
};

use crate::tools::{Scratch, compile, need};
use difference::{Difference, judge};
use snapshot::Snapshot;
use unwinders::Unwinders;

/// Number of stops of each program, unless the environment sets another.
fn stops(few: usize) -> usize {
    std::env::var("UNSPOOL_STOPS").map_or(few, |number| {
        number.parse().expect("UNSPOOL_STOPS: a number")
    })
}

/// The comparison of one program's stops.
#[derive(Default)]
struct Tally {
    stops: usize,
    frames: usize,
    equal: BTreeMap<&'static str, usize>,
    /// By peer and kind: the number of differences, and the first one.
    differing: BTreeMap<(&'static str, Difference), (usize, String)>,
}

impl Tally {
    fn add(&mut self, snapshot: &Snapshot, unwinders: &mut Unwinders) {
        let (ours, peers) = unwinders.unwind(snapshot);
        self.stops += 1;
        self.frames += ours.frames.len();
        for (name, peer) in peers {
            match judge(unwinders.modules(), &ours, &peer) {
                None => *self.equal.entry(name).or_default() += 1,
                Some(difference) => {
                    // An unexplained difference may not occur again, so all evidence is printed at
                    // once.
                    let text = || match difference {
                        Difference::Unexplained => {
                            unwinders.describe(&ours, &peer)
                                + &unwinders.evidence(snapshot, &ours, &peer)
                        }
                        _ => unwinders.describe(&ours, &peer),
                    };
                    let entry = self
                        .differing
                        .entry((name, difference))
                        .or_insert_with(|| (0, text()));
                    entry.0 += 1;
                }
            }
        }
    }

    fn print(&self, program: &str) {
        println!("{program}: {} stops, {} frames", self.stops, self.frames);
        for (name, count) in &self.equal {
            println!("  equal to {name}: {count}");
        }
        for ((name, difference), (count, first)) in &self.differing {
            println!("  {name} differs: {count} x {difference}");
            if *difference == Difference::Unexplained || std::env::var_os("UNSPOOL_SHOW").is_some()
            {
                println!("{first}");
            }
        }
    }

    fn unexplained(&self) -> usize {
        let all = self.differing.iter();
        all.filter(|entry| entry.0.1 == Difference::Unexplained)
            .map(|entry| entry.1.0)
            .sum()
    }
}

#[test]
fn x86_64() {
    need(&[
        "gcc",
        "gdb",
        "xz",
        "pigz",
        "zstd",
        "bash",
        "/usr/bin/python3",
    ]);
    let directory = Scratch::new("peers");
    let libunwind = libunwind::compile(directory.path());
    let mut unexplained = 0;
    for (program, arguments) in traced::PROGRAMS {
        let mut tally = Tally::default();
        let mut process = traced::Process::start(program, arguments, directory.path());
        let mut unwinders = Unwinders::new(process.arch(), Some(&libunwind));
        while tally.stops < stops(150) {
            if let Some(snapshot) = process.stop() {
                tally.add(&snapshot, &mut unwinders);
            }
        }
        tally.print(program);
        unexplained += tally.unexplained();
    }
    assert_eq!(unexplained, 0);
}

/// New threads at their first instructions, and the threads that create them. They are rare among
/// the stops above, and have no call frame information.
#[test]
fn new_threads() {
    need(&["gcc"]);
    let directory = Scratch::new("peers-new_threads");
    let libunwind = libunwind::compile(directory.path());
    let program = compile(
        directory.path(),
        "gcc",
        "new_threads.c",
        &["-O2", "-pthread"],
    );
    let program = program.to_str().expect("a plain path");
    let mut process = traced::Process::start(program, &[], directory.path());
    let mut unwinders = Unwinders::new(process.arch(), Some(&libunwind));
    let mut tally = Tally::default();
    for _ in 0..5 {
        for snapshot in process.birth(12) {
            let (ours, _) = unwinders.unwind(&snapshot);
            assert!(ours.end.is_complete(), "{ours:x?}");
            tally.add(&snapshot, &mut unwinders);
        }
    }
    tally.print("new_threads");
    assert_eq!(tally.unexplained(), 0);
}

/// During its system call, glibc's `vfork` keeps the return address in rdi, and its stack pointer
/// has the caller's value. The child meanwhile overwrites the address on the stack. `pop %rdi; mov
/// $58, %eax; syscall; push %rdi`: stopped after the system call.
#[test]
fn vfork() {
    let path = "/lib/x86_64-linux-gnu/libc.so.6";
    need(&[path]);
    let image = Image::open(path.as_ref()).expect("image");
    let symbols = image.symbols();
    let start = symbols.named("vfork").first().expect("vfork").svma;
    let code = image.bytes_at(start, 64).expect("code");
    let call = code
        .windows(3)
        .position(|bytes| bytes == [0x0f, 0x05, 0x57]);
    let pc = start + call.expect("the system call") as u64 + 2;
    let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
    let mut modules = ModuleMap::new(Arch::X86_64);
    modules.add(Module {
        id: 0,
        name: path.into(),
        bias: 0,
        table,
    });
    let caller = image.text_ranges()[0].end - 64;
    let registers = RegisterFile::new(Arch::X86_64, |name| match name {
        "rip" => Some(pc),
        "rsp" => Some(0x1000),
        "rdi" => Some(caller),
        _ => None,
    });
    let mut memory = StackSlice {
        avma: 0xf80,
        bytes: &[0; 256],
    };
    let stack = walk(&modules, &registers, &mut memory, &WalkOptions::default());
    let found = stack
        .frames
        .get(1)
        .map(|frame| (frame.pc, frame.sp, frame.provenance));
    assert_eq!(found, Some((caller, 0x1000, Provenance::Cfi)));
}

/// The kernel's own library.
#[test]
fn vdso() {
    need(&["gcc"]);
    let directory = Scratch::new("peers-vdso");
    let libunwind = libunwind::compile(directory.path());
    let program = compile(directory.path(), "gcc", "clock.c", &["-O2"]);
    let program = program.to_str().expect("a plain path");
    let mut process = traced::Process::start(program, &[], directory.path());
    let mut unwinders = Unwinders::new(process.arch(), Some(&libunwind));
    let mut tally = Tally::default();
    for _ in 0..3000 {
        let Some(snapshot) = process.stop() else {
            continue;
        };
        let (ours, _) = unwinders.unwind(&snapshot);
        let place = unwinders.place(ours.frames[0].pc);
        if place.starts_with("vdso") {
            assert!(ours.end.is_complete(), "{place}: {}", ours.end);
            assert!(ours.frames.len() >= 5, "{place}: {ours:x?}");
            tally.add(&snapshot, &mut unwinders);
        }
        if tally.stops == stops(100) {
            break;
        }
    }
    tally.print("vdso");
    assert!(tally.stops >= 50, "{}", tally.stops);
    assert_eq!(tally.unexplained(), 0);
}

#[test]
fn aarch64() {
    need(&["qemu-aarch64"]);
    let directory = Scratch::new("peers-aarch64");
    let sysroot = emulated::sysroot();
    let mut unexplained = 0;
    for (program, arguments) in emulated::PROGRAMS {
        let mut tally = Tally::default();
        let mut process = emulated::Process::start(&sysroot, program, arguments, directory.path());
        let mut unwinders = Unwinders::new(process.arch(), None);
        while tally.stops < stops(100) {
            tally.add(&process.stop(), &mut unwinders);
        }
        tally.print(program);
        unexplained += tally.unexplained();
    }
    assert_eq!(unexplained, 0);
}
