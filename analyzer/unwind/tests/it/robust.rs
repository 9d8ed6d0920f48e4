//! Walks random stacks. Whatever registers and memory hold, a walk ends, stays in the snapshot, and
//! moves up.

use std::path::PathBuf;
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{CompileOptions, Module, ModuleMap, RegisterFile, Table, Tracer, WalkOptions};

use crate::harness::walk::{BASE, Snapshot, check};
use crate::tools::need;

const SIZE: u64 = 16 << 10;

/// Pseudo-random numbers.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn stacks_of_nonsense(arch: Arch, path: &str, bias: u64, count: usize) {
    need(&[path]);
    let image = Image::open(&PathBuf::from(path)).expect("image");
    let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
    let starts: Vec<u64> = table.rows_of_all().map(|row| row.start + bias).collect();
    let mut modules = ModuleMap::new(arch);
    modules.add(Module {
        id: 0,
        name: path.into(),
        bias,
        table,
    });
    let size = arch.address_size();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut tracer = Tracer::new();
    let (mut frames, mut longest) = (0, 0);
    for index in 0..count {
        let word = |random: &mut Random| match random.below(8) {
            0..=3 => starts[random.below(starts.len() as u64) as usize] + random.below(12),
            4 | 5 => BASE + random.below(SIZE) / size as u64 * size as u64,
            6 => 0,
            _ => random.next(),
        };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < SIZE {
            bytes.extend(&word(&mut random).to_le_bytes()[..size]);
        }
        let pc = starts[random.below(starts.len() as u64) as usize];
        let sp = BASE + random.below(SIZE / 2) / 16 * 16;
        let registers = RegisterFile::new(arch, |name| match name {
            "pc" | "rip" => Some(pc),
            "sp" | "rsp" => Some(sp),
            "cpsr" => Some(random.below(2) << 5),
            _ if random.below(5) == 0 => None,
            _ => Some(word(&mut random) & if size == 4 { 0xffff_ffff } else { u64::MAX }),
        });
        let mut options = WalkOptions::default();
        options.max_frames = 1 + index % 80;
        options.scan = index % 3 != 0;
        let mut memory = Snapshot {
            base: BASE,
            bytes: &bytes,
            reads: 0,
        };
        let stack = check(&modules, &registers, &mut memory, &options, &mut tracer);
        frames += stack.frames.len();
        longest = longest.max(stack.frames.len());
    }
    println!("{path}: {count} stacks of nonsense, {frames} frames, longest {longest}");
    assert!(frames > count && longest > 4, "{frames} {longest}");
}

#[test]
fn x86_64() {
    stacks_of_nonsense(
        Arch::X86_64,
        "/lib/x86_64-linux-gnu/libc.so.6",
        0x7f00_0000_0000,
        4000,
    );
}

#[test]
fn aarch64() {
    stacks_of_nonsense(
        Arch::Aarch64,
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
        0x7f_0000_0000,
        4000,
    );
}

#[test]
fn arm() {
    stacks_of_nonsense(
        Arch::Arm,
        "/usr/arm-linux-gnueabihf/lib/libc.so.6",
        0x2000_0000,
        4000,
    );
}
