//! Measures hot walks: one stack of 30 frames, repeatedly.

use std::hint::black_box;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder};
use unspool_image::Arch;
use unspool_unwind::{
    ModuleMap, Position, RegisterFile, StackMemory, StackSlice, Tracer, WalkOptions, walk,
};

use super::libunwind;
use super::process::Process;
use crate::{Report, each, take_turns};

const ROUNDS: usize = 60;
const STACKS: usize = 2000;

pub(crate) fn run(report: &mut Report) {
    let directory = tempfile::tempdir().expect("directory");
    let program = libunwind::program(directory.path());
    let out = directory.path().join("hot");
    let theirs = libunwind::run(&program, &["hot".as_ref(), &out]);
    let process = Process::new(Arch::X86_64, &theirs.modules);
    let registers = RegisterFile::new(Arch::X86_64, |name| theirs.registers.get(name).copied());
    let mut memory = StackSlice {
        avma: theirs.memory.0,
        bytes: &theirs.memory.1,
    };
    let frames = theirs.frames.len();
    let mut pcs = Vec::new();
    let mut tracer = Tracer::new();
    trace(&mut tracer, &process.modules, &registers, memory, &mut pcs);
    assert_eq!(pcs, theirs.frames, "our frames are libunwind's");
    let mut cache = CacheX86_64::new();
    let mut hop = Vec::new();
    framehop(&process.framehop, &mut cache, &theirs, &mut hop);
    assert_eq!(hop, theirs.frames, "framehop's frames are libunwind's");
    let options = WalkOptions::default();
    let full = walk(&process.modules, &registers, &mut memory, &options);
    assert_eq!(full.frames.len(), frames);

    let mut memory_of_walk = memory;
    let [ours, hopped, full] = take_turns(
        ROUNDS,
        [
            &mut || {
                for _ in 0..STACKS {
                    trace(&mut tracer, &process.modules, &registers, memory, &mut pcs);
                    black_box(&pcs);
                }
            },
            &mut || {
                for _ in 0..STACKS {
                    framehop(&process.framehop, &mut cache, &theirs, &mut hop);
                    black_box(&hop);
                }
            },
            &mut || {
                for _ in 0..STACKS / 20 {
                    black_box(walk(
                        &process.modules,
                        &registers,
                        &mut memory_of_walk,
                        &options,
                    ));
                }
            },
        ],
    );
    let ours = each(ours, STACKS * frames);
    let hopped = each(hopped, STACKS * frames);
    let full = each(full, STACKS / 20 * frames);
    report.say(format!(
        "hot, one stack of {frames} frames, ns a frame: ours {ours:.2}, framehop {hopped:.2}, libunwind {:.0} \
         with its cache, {:.0} without; all registers (walk) {full:.0}",
        theirs.cached, theirs.uncached
    ));
    report.ratio("framehop / ours", hopped / ours, 1.5);
    report.ratio(
        "libunwind with its cache / ours",
        theirs.cached / ours,
        70.0,
    );
}

/// Walks with the fast tier only. A stack that needs more would have missing frames.
pub(crate) fn trace(
    tracer: &mut Tracer,
    modules: &ModuleMap,
    registers: &RegisterFile,
    mut memory: StackSlice<'_>,
    pcs: &mut Vec<u64>,
) {
    pcs.clear();
    let Some(mut at) = Position::new(registers) else {
        return;
    };
    let size = modules.arch().address_size();
    let mut read = |avma| memory.read_pointer(avma, size).ok();
    loop {
        pcs.push(at.pc);
        if tracer.step(modules, &mut at, &mut read).is_err() {
            return;
        }
    }
}

fn framehop(
    unwinder: &UnwinderX86_64<Vec<u8>>,
    cache: &mut CacheX86_64,
    stack: &libunwind::Output,
    pcs: &mut Vec<u64>,
) {
    pcs.clear();
    let mut memory = StackSlice {
        avma: stack.memory.0,
        bytes: &stack.memory.1,
    };
    let mut read = |avma| memory.read_pointer(avma, 8).map_err(drop);
    let register = |name: &str| stack.registers[name];
    let pc = register("rip");
    let mut registers = UnwindRegsX86_64::new(pc, register("rsp"), register("rbp"));
    let mut address = FrameAddress::from_instruction_pointer(pc);
    loop {
        pcs.push(address.address());
        match unwinder.unwind_frame(address, &mut registers, cache, &mut read) {
            Ok(Some(ra)) => match FrameAddress::from_return_address(ra) {
                Some(next) => address = next,
                None => return,
            },
            _ => return,
        }
    }
}
