//! Stacks of nonsense: whatever registers and memory hold, a walk ends, stays in the snapshot, and goes up.

use std::path::PathBuf;
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, MemoryGap, Module, ModuleMap, RegisterFile, StackMemory, Table, Tracer,
    WalkOptions, walk,
};

use crate::tools::need;

const BASE: u64 = 0x6000_0000;
const SIZE: u64 = 16 << 10;

/// A snapshot that counts what is asked of it.
struct Snapshot {
    bytes: Vec<u8>,
    reads: usize,
}

impl StackMemory for Snapshot {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        self.reads += 1;
        let start = avma.wrapping_sub(BASE);
        let end = start.checked_add(buf.len() as u64);
        match end.filter(|&end| start < SIZE && end <= SIZE) {
            Some(end) => {
                buf.copy_from_slice(&self.bytes[start as usize..end as usize]);
                Ok(())
            }
            None => Err(MemoryGap { avma }),
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
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
        image,
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
        let mut memory = Snapshot { bytes, reads: 0 };
        let stack = walk(&modules, &registers, &mut memory, &options);
        assert!(stack.frames.len() <= options.max_frames, "{index}");
        // A few ways, some words each, and no more than a scan for each frame.
        assert!(
            memory.reads <= 400 * stack.frames.len(),
            "{index}: {}",
            memory.reads
        );
        for pair in stack.frames.windows(2) {
            assert!(
                pair[1].sp >= pair[0].sp || pair[1].signal_frame,
                "{index}: {pair:?}"
            );
        }
        let mut pcs = Vec::new();
        let end = tracer.trace(&modules, &registers, &mut memory, &options, &mut pcs);
        let walked: Vec<u64> = stack.frames.iter().map(|frame| frame.pc).collect();
        assert_eq!(
            (pcs, end),
            (walked, stack.end),
            "{index}: the fast tier differs"
        );
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
