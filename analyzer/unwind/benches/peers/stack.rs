//! Generates stacks from rules: frames of random addresses, laid out as their rules say.

use std::path::{Path, PathBuf};
use std::process::Command;

use unspool_image::{Arch, Image};
use unspool_unwind::{Cfa, ModuleMap, Place, RegisterFile, StackSlice, Tracer};

use super::hot::trace;
use super::process::Process;

const SP: u64 = 0x6000_0000;

/// This machine's C library and other libraries.
pub(crate) fn x86_64() -> Process {
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ];
    Process::new(Arch::X86_64, &at_addresses(&files))
}

/// The same libraries for ARM, with libc's debug file.
pub(crate) fn armhf() -> Process {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let output = Command::new(root.join("qemu/sysroot.sh"))
        .arg(target.join("sysroot-armhf"))
        .output()
        .expect("sysroot.sh");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "sysroot.sh: {message}");
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
    let files = [
        sysroot.join("lib/arm-linux-gnueabihf/libc.so.6"),
        sysroot.join("lib/arm-linux-gnueabihf/libm.so.6"),
        "/usr/arm-linux-gnueabihf/lib/libstdc++.so.6".into(),
    ];
    let mut process = Process::new(Arch::Arm, &[]);
    for (id, path) in files.iter().enumerate() {
        let mut image = Image::open(path).expect("armhf library");
        let build_id = image.build_id().expect("build-id").to_string();
        let debug = sysroot.join(format!(
            "usr/lib/debug/.build-id/{}/{}.debug",
            &build_id[..2],
            &build_id[2..]
        ));
        if debug.exists() {
            image = image.with_debug_file(Image::open(&debug).expect("debug file"));
        }
        process.add(id as u32, 0x2000_0000 + 0x100_0000 * id as u64, path, image);
    }
    process
}

pub(crate) fn at_addresses(files: &[&str]) -> Vec<(u64, PathBuf)> {
    let biases = (0..).map(|index| 0x7f00_0000_0000 + 0x1000_0000 * index);
    biases.zip(files.iter().map(PathBuf::from)).collect()
}

/// A stack and its registers.
pub(crate) struct Stack {
    registers: RegisterFile,
    memory: Vec<u8>,
}

impl Stack {
    /// Generates frames that the stack pointer describes, from addresses of all rows.
    pub(crate) fn made_up(process: &Process, frames: usize, seed: u64) -> Stack {
        let size = process.modules.arch().address_size();
        let mut random = Random(seed);
        let mut drawn = Vec::new();
        let mut candidates = Vec::new();
        for module in process.modules.modules() {
            for row in module.table.rows_of_all() {
                if let (Cfa::Register { register, offset }, Place::AtCfa(ra)) =
                    (row.rule.cfa, row.rule.ra)
                    && matches!(register, 7 | 13)
                    && (process.modules.arch() == Arch::Arm) == (register == 13)
                    && (16..512).contains(&offset)
                    && row.end - row.start >= 8
                {
                    candidates.push((row.start + 4 + module.bias, offset, ra));
                }
            }
        }
        while drawn.len() < frames {
            drawn.push(candidates[random.below(candidates.len())]);
        }
        let mut memory = vec![0u8; 512 * (frames + 1)];
        let mut sp = 0;
        for (index, &(_, offset, ra)) in drawn.iter().enumerate() {
            sp += i64::from(offset);
            let at = (sp + i64::from(ra)) as usize;
            let pc = drawn.get(index + 1).map_or(0, |next| next.0);
            memory[at..at + size].copy_from_slice(&pc.to_le_bytes()[..size]);
        }
        let arch = process.modules.arch();
        let first = drawn[0].0;
        let registers = RegisterFile::new(arch, |name| match name {
            "pc" | "rip" => Some(first),
            "sp" | "rsp" => Some(SP),
            "rbp" | "r11" | "r7" => Some(SP + 64),
            _ => None,
        });
        let stack = Stack { registers, memory };
        let mut pcs = Vec::new();
        stack.trace(&mut Tracer::new(), &process.modules, &mut pcs);
        let expected: Vec<u64> = drawn.iter().map(|frame| frame.0).collect();
        assert_eq!(pcs, expected);
        stack
    }

    pub(crate) fn trace(&self, tracer: &mut Tracer, modules: &ModuleMap, pcs: &mut Vec<u64>) {
        let memory = StackSlice {
            avma: SP,
            bytes: &self.memory,
        };
        trace(tracer, modules, &self.registers, memory, pcs);
    }
}

/// Pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % bound as u64) as usize
    }
}
