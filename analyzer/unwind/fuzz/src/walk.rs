//! Fuzzes a whole walk with generated registers and stack words, and every combination of tables.
//!
//! The tables belong to a program of each instruction set, or come from sections in the input. The
//! walk must end within its limit, read only the snapshot, and move up the stack, and the fast tier
//! must return the same frames.
//!
//! Input: the program; the tables; options; then the words of registers and stack, each of a kind
//! that leads somewhere ([`Input::word`]).

use std::cell::OnceCell;
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, MemoryGap, Module, ModuleMap, Provenance, RegisterFile, Stack, StackMemory,
    Table, Tracer, WalkOptions, walk,
};

use super::sections;

/// Shared libraries of `programs/frames.c`, one for each instruction set.
const PROGRAMS: [(Arch, &[u8]); 4] = [
    (Arch::Arm, include_bytes!("../programs/a32.elf")),
    (Arch::Arm, include_bytes!("../programs/t32.elf")),
    (Arch::Aarch64, include_bytes!("../programs/a64.elf")),
    (Arch::X86_64, include_bytes!("../programs/x86_64.elf")),
];
const BIAS: u64 = 0x40_0000;
/// Address of the stack.
pub const BASE: u64 = 0x7000_0000;

/// The tables that exist.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    pub cfi: bool,
    pub exidx: bool,
    pub code: bool,
}

/// A process with one of the four programs as its only module.
pub fn program(number: usize, tables: Tables) -> ModuleMap {
    let (arch, bytes) = PROGRAMS[number % PROGRAMS.len()];
    let image = Image::parse("program", bytes.to_vec()).expect("a program");
    process(arch, image, BIAS, tables)
}

fn process(arch: Arch, image: Image, bias: u64, tables: Tables) -> ModuleMap {
    let mut options = CompileOptions::default();
    (options.cfi, options.exidx, options.code) = (tables.cfi, tables.exidx, tables.code);
    let table = Arc::new(Table::compile(&image, &options));
    let mut modules = ModuleMap::new(arch);
    modules.add(Module {
        id: 1,
        name: "fuzz".into(),
        bias,
        table,
    });
    modules
}

/// A stack's bytes, with a count of reads.
pub struct Snapshot<'a> {
    pub base: u64,
    pub bytes: &'a [u8],
    pub reads: usize,
}

impl StackMemory for Snapshot<'_> {
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

/// Walks the stack and says what must hold of every walk.
pub fn check(
    modules: &ModuleMap,
    registers: &RegisterFile,
    memory: &mut Snapshot<'_>,
    options: &WalkOptions,
    tracer: &mut Tracer,
) -> Stack {
    memory.reads = 0;
    let walked = walk(modules, registers, memory, options);
    assert!(walked.frames.len() <= options.max_frames);
    // A few ways, some words each, and no more than a scan for each frame.
    let bound = 400 * walked.frames.len().max(1);
    assert!(memory.reads <= bound, "{} reads", memory.reads);
    for pair in walked.frames.windows(2) {
        assert!(
            pair[1].sp >= pair[0].sp || pair[1].signal_frame,
            "{pair:x?}"
        );
    }
    let frames: Vec<u64> = walked.frames.iter().map(|frame| frame.pc).collect();
    // Again, by what the tracer has remembered.
    for _ in 0..2 {
        let mut traced = Vec::new();
        let end = tracer.trace(modules, registers, memory, options, &mut traced);
        assert_eq!(
            (traced, end),
            (frames.clone(), walked.end),
            "the fast tier differs"
        );
    }
    walked
}

struct Input<'a> {
    bytes: &'a [u8],
    text: (u64, u64),
    size: usize,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    /// `kkkvvvvv`: an address in the code, one on the stack, a number, or any word.
    fn word(&mut self) -> Option<u64> {
        let [head] = self.take()?;
        let value = u64::from(head & 0x1f);
        let word = match head >> 5 {
            0..=2 => {
                let [low] = self.take()?;
                self.text.0 + (value << 8 | u64::from(low)) % self.text.1.max(1)
            }
            3 | 4 => {
                let [low] = self.take()?;
                BASE + (value << 8 | u64::from(low)) * self.size as u64
            }
            5 => value.wrapping_sub(16),
            _ => u64::from_le_bytes(self.take()?),
        };
        Some(if self.size == 4 {
            word & 0xffff_ffff
        } else {
            word
        })
    }
}

thread_local! {
    static KEPT: [[OnceCell<ModuleMap>; 8]; 4] = const { [const { [const { OnceCell::new() }; 8] }; 4] };
}

/// One input.
pub fn run(bytes: &[u8]) {
    let Some((&[which, tables, how], mut rest)) = bytes.split_first_chunk::<3>() else {
        return;
    };
    let number = usize::from(which & 3);
    let arch = PROGRAMS[number].0;
    let mask = usize::from(tables & 7);
    let tables = Tables {
        cfi: mask & 1 != 0,
        exidx: mask & 2 != 0,
        code: mask & 4 != 0,
    };
    KEPT.with(|kept| {
        let own;
        let modules = if which & 4 == 0 {
            kept[number][mask].get_or_init(|| program(number, tables))
        } else {
            // Small ones: what large ones do to tables is for other targets to find.
            let [text, eh_frame, exidx, words] = sections::parts(rest);
            let cut = |part: &'_ [u8]| part[..part.len().min(512)].to_vec();
            let image = sections::image(
                arch,
                &[
                    (".text", &cut(text)),
                    (".eh_frame", &cut(eh_frame)),
                    (".ARM.exidx", &cut(exidx)),
                ],
            );
            rest = words;
            own = process(arch, image, 0, tables);
            &own
        };
        let module = modules.modules().first().expect("a module");
        let text = module
            .table
            .image()
            .expect("an image")
            .section(".text")
            .map_or((0, 1), |text| {
                (text.svma + module.bias, text.data.len() as u64)
            });
        let mut input = Input {
            bytes: rest,
            text,
            size: arch.address_size(),
        };
        let lost = input.take::<4>().map_or(0, u32::from_le_bytes);
        let mut nth = 0;
        let registers = RegisterFile::new(arch, |name| {
            nth += 1;
            match name {
                "cpsr" => Some(u64::from(number == 1) << 5),
                _ if lost >> (nth % 32) & 1 == 1 => None,
                _ => input.word(),
            }
        });
        let mut stack = Vec::new();
        while let Some(word) = input.word().filter(|_| stack.len() < 16 << 10) {
            stack.extend(&word.to_le_bytes()[..input.size]);
        }
        let mut options = WalkOptions::default();
        options.max_frames = 1 + usize::from(how & 0x3f);
        options.scan = how & 0x40 == 0;
        if how & 0x80 != 0 {
            let ways = [
                Provenance::FramePointer,
                Provenance::Code,
                Provenance::Exidx,
                Provenance::Cfi,
            ];
            options.prefer = vec![
                ways[usize::from(which >> 3 & 3)],
                ways[usize::from(which >> 5 & 3)],
            ];
        }
        let mut memory = Snapshot {
            base: BASE,
            bytes: &stack,
            reads: 0,
        };
        check(
            modules,
            &registers,
            &mut memory,
            &options,
            &mut Tracer::new(),
        );
    });
}
