//! A whole walk: any code and tables, registers, and stack. It ends within its cap, reads nothing
//! beyond the snapshot, and the fast tier says the same.
//!
//! First byte: architecture. Then, each with its length before it: code, `.eh_frame`,
//! `.ARM.exidx`, registers; the rest is stack. The base of the stack is the second register.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use unspool_image::Arch;
use unspool_unwind::{
    CompileOptions, MemoryGap, Module, ModuleMap, RegisterFile, StackMemory, Table, Tracer,
    WalkOptions, walk,
};
use unspool_unwind_fuzz::{arch, image, parts};

const FRAMES: usize = 64;

/// The snapshot, which counts what is asked of it.
struct Counted<'a> {
    base: u64,
    bytes: &'a [u8],
    reads: u64,
}

impl StackMemory for Counted<'_> {
    fn read(&mut self, avma: u64, buf: &mut [u8]) -> Result<(), MemoryGap> {
        self.reads += 1;
        let at = usize::try_from(avma.wrapping_sub(self.base)).ok();
        let bytes = at
            .and_then(|at| self.bytes.get(at..at.checked_add(buf.len())?))
            .ok_or(MemoryGap { avma })?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let arch = arch(*choice);
    let [text, eh_frame, exidx, values, stack] = parts(rest);
    let image = image(arch, &[(".text", text), (".eh_frame", eh_frame), (".ARM.exidx", exidx)]);
    let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
    let mut modules = ModuleMap::new(arch);
    modules.add(Module { id: 1, name: "fuzz".into(), bias: 0, image, table });
    let mask = if arch == Arch::Arm { 0xffff_ffff } else { u64::MAX };
    let mut values = values.chunks(8).map(|chunk| {
        let mut value = [0; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(value) & mask
    });
    let (pc, sp) = (values.next().unwrap_or(0x1_0080), values.next().unwrap_or(0x7000_0000));
    let registers = RegisterFile::new(arch, |name| match name {
        "pc" | "rip" => Some(pc),
        "sp" | "rsp" => Some(sp),
        _ => values.next(),
    });
    let mut memory = Counted { base: sp, bytes: stack, reads: 0 };
    let mut options = WalkOptions::default();
    options.max_frames = FRAMES;
    let walked = walk(&modules, &registers, &mut memory, &options);
    assert!(walked.frames.len() <= FRAMES);
    assert!(memory.reads < 1 << 20, "{} reads", memory.reads);
    let frames: Vec<u64> = walked.frames.iter().map(|frame| frame.pc).collect();
    let mut tracer = Tracer::new();
    for _ in 0..2 {
        let mut traced = Vec::new();
        let end = tracer.trace(&modules, &registers, &mut memory, &options, &mut traced);
        assert_eq!((traced, end), (frames.clone(), walked.end.clone()));
    }
});
