//! Compares steps on ARM with steps on x86-64: the same code, with tables of the same libraries.

use std::hint::black_box;

use unspool_unwind::{ModuleMap, Position, RegisterFile, StackMemory, StackSlice, Tracer};

use super::cold::{ADDRESSES, SP, memory};
use super::process::Process;
use super::stack::{self, Random};
use crate::{Report, each, take_turns};

const ROUNDS: usize = 40;
const STACKS: usize = 1000;

pub(crate) fn run(report: &mut Report) {
    let processes = [stack::x86_64(), stack::armhf()];
    hot(report, &processes);
    cold(report, &processes);
}

/// Compares steps on stacks generated from the rules of both C libraries.
fn hot(report: &mut Report, [intel, arm]: &[Process; 2]) {
    let mut times = Vec::new();
    for (process, seed) in [(intel, 1), (arm, 2)] {
        times.push(stack::Stack::made_up(process, 30, seed));
    }
    let [arm_stack, intel_stack] = [times.pop().expect("two"), times.pop().expect("two")];
    let mut tracers = [Tracer::new(), Tracer::new()];
    let [one, two] = &mut tracers;
    let mut pcs = Vec::new();
    let mut other = Vec::new();
    let [intel_time, arm_time] = take_turns(
        ROUNDS,
        [
            &mut || {
                for _ in 0..STACKS {
                    intel_stack.trace(one, &intel.modules, &mut pcs);
                    black_box(&pcs);
                }
            },
            &mut || {
                for _ in 0..STACKS {
                    arm_stack.trace(two, &arm.modules, &mut other);
                    black_box(&other);
                }
            },
        ],
    );
    let intel = each(intel_time, STACKS * pcs.len());
    let arm = each(arm_time, STACKS * other.len());
    report.say(format!(
        "synthetic stacks of {} and {} frames with warm caches, ns per frame: x86-64 {intel:.2}, ARM {arm:.2}",
        pcs.len(),
        other.len()
    ));
    report.at_most("ARM / x86-64", arm / intel, 1.3);
}

/// Compares steps from equally many addresses of the same libraries.
fn cold(report: &mut Report, processes: &[Process; 2]) {
    let mut times = Vec::new();
    for process in processes {
        let modules = &process.modules;
        let arch = modules.arch();
        let mut random = Random(7);
        let first = &modules.modules()[0];
        let word = first.bias + first.table.image().expect("an image").text_ranges()[0].start + 64;
        let bytes = memory(word, arch.address_size());
        let middle = SP + (64 << 10);
        let registers = RegisterFile::new(arch, |name| match name {
            "pc" | "rip" => Some(word),
            "sp" | "rsp" => Some(middle),
            "rbp" | "r11" | "r7" => Some(middle + 1024),
            "lr" => Some(word),
            _ => None,
        });
        let mut starts = Vec::new();
        for module in modules.modules() {
            let rows = module.table.rows_of_all();
            starts.extend(rows.map(|row| (row.start + module.bias, row.end - row.start)));
        }
        let mut tracer = Tracer::new();
        let template = Position::new(&registers).expect("registers").calling();
        let mut pcs = Vec::new();
        let mut memory = StackSlice {
            avma: SP,
            bytes: &bytes,
        };
        let size = arch.address_size();
        let mut read = move |avma| memory.read_pointer(avma, size).ok();
        while pcs.len() < ADDRESSES {
            let row = starts[random.below(starts.len())];
            let pc = row.0 + 2 * (random.below(row.1 as usize / 2 + 1) as u64) + 2;
            let mut here = template;
            here.pc = pc;
            if tracer.step(modules, &mut here, &mut read).is_ok() {
                pcs.push(pc);
            }
        }
        times.push((modules, template, pcs, bytes));
    }
    let [arm, intel] = [times.pop().expect("two"), times.pop().expect("two")];
    let [intel_time, arm_time] = take_turns(ROUNDS, [&mut || pass(&intel), &mut || pass(&arm)]);
    let [intel, arm] = [intel_time, arm_time].map(|time| each(time, ADDRESSES));
    report.say(format!(
        "cold, {ADDRESSES} addresses of libc, libm, libstdc++, ns a step: x86-64 {intel:.1}, ARM {arm:.1}"
    ));
    report.at_most("ARM / x86-64", arm / intel, 1.3);
}

/// One step from each address.
fn pass((modules, template, pcs, bytes): &(&ModuleMap, Position, Vec<u64>, Vec<u8>)) {
    let mut tracer = Tracer::new();
    let size = modules.arch().address_size();
    let mut memory = StackSlice { avma: SP, bytes };
    let mut read = |avma| memory.read_pointer(avma, size).ok();
    for &pc in pcs {
        let mut here = *template;
        here.pc = pc;
        let _ = black_box(tracer.step(modules, &mut here, &mut read));
        black_box(&here);
    }
}
