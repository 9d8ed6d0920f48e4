//! Measures cold steps: one from each of 100,000 distinct addresses in large libraries, unordered.

use std::collections::HashSet;
use std::hint::black_box;
use std::io::Write;
use std::path::PathBuf;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, Unwinder};
use unspool_image::Arch;
use unspool_unwind::{Position, RegisterFile, StackMemory, StackSlice, Tracer};

use super::libunwind;
use super::process::Process;
use super::search::Plain;
use super::stack::{Random, at_addresses};
use crate::{Report, each, take_turns};

pub(crate) const ADDRESSES: usize = 100_000;
const ROUNDS: usize = 12;
pub(crate) const SP: u64 = 0x6000_0000;

pub(crate) fn run(report: &mut Report) {
    measure(
        report,
        "libcrypto, libstdc++, libpython3.11 and libc",
        &[
            "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
            "/lib/x86_64-linux-gnu/libc.so.6",
        ],
    );
    let browser_sized = "/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1";
    measure(report, "libLLVM (110 MB)", &[browser_sized]);
}

/// A stack of which every word is a return address.
pub(crate) fn memory(word: u64, size: usize) -> Vec<u8> {
    word.to_le_bytes()[..size].repeat((1 << 20) / size)
}

fn measure(report: &mut Report, name: &str, files: &[&str]) {
    let process = Process::new(Arch::X86_64, &at_addresses(files));
    let modules = &process.modules;
    let middle = SP + (64 << 10);
    let first = &modules.modules()[0];
    let image = first.table.image().expect("an image");
    let word = first.bias + image.text_ranges()[0].start + 64;
    let bytes = memory(word, 8);
    let mut memory = StackSlice {
        avma: SP,
        bytes: &bytes,
    };
    let mut read = |avma| memory.read_pointer(avma, 8).ok();
    let registers = RegisterFile::new(Arch::X86_64, |name| match name {
        "rip" => Some(word),
        "rsp" => Some(middle),
        "rbp" => Some(middle + 1024),
        _ => None,
    });
    let mut tracer = Tracer::new();
    // Return addresses, like all frames of a stack but the innermost.
    let template = Position::new(&registers).expect("registers").calling();
    let at = |pc: u64| {
        let mut at = template;
        (at.pc, at.sp) = (pc, middle);
        at.set_fp(middle + 1024);
        at
    };

    // Uses addresses whose rule fits one word, and counts the others.
    let plain = Plain::new(modules);
    let mut random = Random(42);
    let mut seen = HashSet::new();
    let (mut pcs, mut slow) = (Vec::new(), 0usize);
    let rows: Vec<(u64, u64)> = modules
        .modules()
        .iter()
        .flat_map(|module| {
            let rows = module.table.rows_of_all();
            rows.map(move |row| (row.start + module.bias, row.end - row.start))
        })
        .collect();
    let mut ends = Vec::with_capacity(rows.len());
    let mut sum = 0;
    for row in &rows {
        sum += row.1 as usize;
        ends.push(sum);
    }
    while pcs.len() < ADDRESSES {
        let place = random.below(sum);
        let row = ends.partition_point(|&end| end <= place);
        // An address inside the row: the return address is one after the address for lookup.
        let pc = rows[row].0 + rows[row].1 - (ends[row] - place) as u64 + 1;
        if !seen.insert(pc) {
            continue;
        }
        let mut here = at(pc);
        match tracer.step(modules, &mut here, &mut read) {
            Ok(()) if plain.step(modules, &at(pc), &mut read).is_some() => pcs.push(pc),
            _ => slow += 1,
        }
    }

    // All contenders find the same caller.
    let directory = tempfile::tempdir().expect("directory");
    let list = directory.path().join("list");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&list).expect("list"));
    let mut sorted: Vec<(usize, u64)> = pcs.iter().copied().enumerate().collect();
    sorted.sort_by_key(|(_, pc)| pc >> 28);
    for (_, pc) in &sorted {
        let (module, svma) = modules.find(*pc).expect("module");
        writeln!(out, "{} {svma:x}", PathBuf::from(&module.name).display()).expect("list");
    }
    out.into_inner().expect("list");
    let program = libunwind::program(directory.path());
    let theirs = libunwind::run(
        &program,
        &["cold".as_ref(), &list, &directory.path().join("cold")],
    );
    let mut cache = CacheX86_64::new();
    let (mut as_framehop, mut as_libunwind, mut as_plain) = (0, 0, 0);
    for ((_, pc), cfa) in sorted.iter().zip(&theirs.cfas) {
        let mut here = at(*pc);
        tracer.step(modules, &mut here, &mut read).expect("a step");
        let ours = (here.pc, here.sp, here.fp().expect("rbp"));
        as_plain += usize::from(plain.step(modules, &at(*pc), &mut read) == Some(ours));
        let mut registers = UnwindRegsX86_64::new(*pc, middle, middle + 1024);
        let address = FrameAddress::from_return_address(*pc).expect("address");
        let ra = process
            .framehop
            .unwind_frame(address, &mut registers, &mut cache, &mut |avma| {
                read(avma).ok_or(())
            });
        let hopped = (
            ra.ok().flatten().unwrap_or(0),
            registers.sp(),
            registers.bp(),
        );
        as_framehop += usize::from(hopped == ours);
        as_libunwind += usize::from(cfa.wrapping_add(middle) == ours.1);
    }

    let mut one = Tracer::new();
    let (mut memory_of_two, mut memory_of_three) = (memory, memory);
    let [ours, searched, hopped] = take_turns(
        ROUNDS,
        [
            &mut || {
                let mut read = |avma| memory.read_pointer(avma, 8).ok();
                for &pc in &pcs {
                    let mut here = at(pc);
                    black_box(one.step(modules, &mut here, &mut read).is_ok());
                    black_box(&here);
                }
            },
            &mut || {
                let mut read = |avma| memory_of_two.read_pointer(avma, 8).ok();
                for &pc in &pcs {
                    black_box(plain.step(modules, &at(pc), &mut read));
                }
            },
            &mut || {
                let mut read = |avma| memory_of_three.read_pointer(avma, 8).map_err(drop);
                for &pc in &pcs {
                    let mut registers = UnwindRegsX86_64::new(pc, middle, middle + 1024);
                    let address = FrameAddress::from_return_address(pc).expect("address");
                    let hopped = process.framehop.unwind_frame(
                        address,
                        &mut registers,
                        &mut cache,
                        &mut read,
                    );
                    black_box(hopped.is_ok());
                    black_box(&registers);
                }
            },
        ],
    );
    let [ours, searched, hopped] = [ours, searched, hopped].map(|time| each(time, ADDRESSES));
    let bytes: usize = modules.modules().iter().map(|m| m.table.bytes()).sum();
    report.say(format!(
        "cold, {ADDRESSES} addresses of {name} ({} rows, {bytes} bytes), ns a step: ours {ours:.1}, binary \
         search {searched:.1}, framehop {hopped:.1}, libunwind uncached {:.0}",
        rows.len(),
        theirs.uncached
    ));
    report.say(format!(
        "  callers as ours: framehop's {as_framehop}, libunwind's {as_libunwind} (CFA), binary search's {as_plain}; \
         {slow} more addresses drawn that need a full rule"
    ));
    report.ratio("framehop / ours", hopped / ours, 10.0);
    report.ratio("libunwind uncached / ours", theirs.uncached / ours, 100.0);
    report.ratio("binary search / ours", searched / ours, 1.5);
}
