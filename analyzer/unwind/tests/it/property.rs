//! Properties of every walk (`harness::walk::check`), for stacks that proptest generates.
//!
//! It covers each instruction set and every combination of tables. Some stacks are random, others
//! are valid with some words damaged.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use unspool_image::Arch;
use unspool_unwind::{
    Cfa, ModuleMap, Place, Provenance, RegisterFile, StackEnd, Tracer, WalkOptions,
};

use crate::harness::walk::{BASE, Snapshot, Tables, check, program};

/// The kinds of words in registers and on the stack.
#[derive(Clone, Debug)]
enum Word {
    /// An offset into the code, and the Thumb bit.
    Code(u16, bool),
    /// An offset up the stack in words.
    Stack(u16),
    Number(i8),
    Any(u64),
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        4 => (any::<u16>(), any::<bool>()).prop_map(|(at, thumb)| Word::Code(at, thumb)),
        3 => (0..600u16).prop_map(Word::Stack),
        1 => any::<i8>().prop_map(Word::Number),
        1 => any::<u64>().prop_map(Word::Any),
    ]
}

fn tables() -> impl Strategy<Value = Tables> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(cfi, exidx, code)| Tables {
        cfi,
        exidx,
        code,
    })
}

fn options() -> impl Strategy<Value = WalkOptions> {
    let way = prop_oneof![
        Just(Provenance::Cfi),
        Just(Provenance::Exidx),
        Just(Provenance::Code),
        Just(Provenance::FramePointer)
    ];
    (1..80usize, any::<bool>(), vec(way, 0..3)).prop_map(|(max_frames, scan, prefer)| {
        let mut options = WalkOptions::default();
        (options.max_frames, options.scan, options.prefer) = (max_frames, scan, prefer);
        options
    })
}

/// A process with one program, and words for it.
struct Process {
    modules: ModuleMap,
    text: (u64, u64),
    size: usize,
}

impl Process {
    fn new(number: usize, tables: Tables) -> Process {
        let modules = program(number, tables);
        let module = &modules.modules()[0];
        let text = module
            .table
            .image()
            .expect("an image")
            .section(".text")
            .expect("code");
        Process {
            text: (text.svma + module.bias, text.data.len() as u64),
            size: modules.arch().address_size(),
            modules,
        }
    }

    fn value(&self, word: &Word) -> u64 {
        let value = match *word {
            Word::Code(at, thumb) => (self.text.0 + u64::from(at) % self.text.1) | u64::from(thumb),
            Word::Stack(at) => BASE + u64::from(at) * self.size as u64,
            Word::Number(value) => i64::from(value) as u64,
            Word::Any(value) => value,
        };
        if self.size == 4 {
            value & 0xffff_ffff
        } else {
            value
        }
    }

    /// Generates frames whose rules depend only on the stack pointer. Returns registers, stack, and
    /// the number of frames.
    fn whole(&self, seeds: &[u16]) -> (RegisterFile, Vec<u8>, usize) {
        let arch = self.modules.arch();
        let module = &self.modules.modules()[0];
        let pointer = match arch {
            Arch::Arm => 13,
            Arch::Aarch64 => 31,
            _ => 7,
        };
        let rows: Vec<(u64, i64, i64)> = module
            .table
            .rows_of_all()
            .filter_map(|row| match (row.rule.cfa, row.rule.ra) {
                (Cfa::Register { register, offset }, Place::AtCfa(ra))
                    if register == pointer && offset >= 8 && row.end - row.start >= 2 =>
                {
                    Some((row.start + module.bias, i64::from(offset), i64::from(ra)))
                }
                _ => None,
            })
            .collect();
        // Without tables no frame can be generated.
        let frames: Vec<_> = seeds
            .iter()
            .filter_map(|seed| rows.get(usize::from(*seed) % rows.len().max(1)))
            .collect();
        let mut stack = vec![0; frames.iter().map(|frame| frame.1 as usize).sum::<usize>() + 64];
        let mut cfa = 0;
        let thumb = u64::from(
            module.table.image().expect("an image").thumb_at(
                module
                    .table
                    .image()
                    .expect("an image")
                    .section(".text")
                    .expect("code")
                    .svma,
            ) == Some(true),
        );
        for (index, (_, offset, ra)) in frames.iter().enumerate() {
            cfa += offset;
            // A return address is one past an address of the row.
            let caller = frames
                .get(index + 1)
                .map_or(0, |frame| (frame.0 + 2) | thumb);
            let at = (cfa + ra) as usize;
            stack[at..at + self.size].copy_from_slice(&caller.to_le_bytes()[..self.size]);
        }
        let pc = frames.first().map_or(self.text.0, |frame| frame.0);
        let registers = RegisterFile::new(arch, |name| match name {
            "pc" | "rip" => Some(pc),
            "sp" | "rsp" => Some(BASE),
            "cpsr" => Some(thumb << 5),
            _ => Some(0),
        });
        (registers, stack, frames.len())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nonsense(
        number in 0..4usize,
        tables in tables(),
        thumb in any::<bool>(),
        registers in vec(option::weighted(0.85, word()), 40),
        stack in vec(word(), 0..600),
        options in options(),
    ) {
        let process = Process::new(number, tables);
        let mut values = registers.iter();
        let registers = RegisterFile::new(process.modules.arch(), |name| match name {
            "cpsr" => Some(u64::from(thumb) << 5),
            _ => values.next()?.as_ref().map(|word| process.value(word)),
        });
        let stack: Vec<u8> = stack
            .iter()
            .flat_map(|word| process.value(word).to_le_bytes()[..process.size].to_vec())
            .collect();
        let mut memory = Snapshot { base: BASE, bytes: &stack, reads: 0 };
        check(&process.modules, &registers, &mut memory, &options, &mut Tracer::new());
    }

    #[test]
    fn broken(
        number in 0..4usize,
        tables in tables(),
        seeds in vec(any::<u16>(), 1..40),
        damage in vec((any::<u16>(), word()), 0..6),
        cut in option::weighted(0.3, any::<u16>()),
        options in options(),
    ) {
        let process = Process::new(number, tables);
        let (registers, mut stack, frames) = process.whole(&seeds);
        let words = stack.len() / process.size;
        for (at, word) in &damage {
            let at = usize::from(*at) % words * process.size;
            let value = process.value(word).to_le_bytes();
            stack[at..at + process.size].copy_from_slice(&value[..process.size]);
        }
        if let Some(cut) = cut {
            stack.truncate(usize::from(cut) % stack.len());
        }
        let mut memory = Snapshot { base: BASE, bytes: &stack, reads: 0 };
        let walked = check(&process.modules, &registers, &mut memory, &options, &mut Tracer::new());
        // An undamaged stack must be walked to its end. Exidx rows are valid only at call sites,
        // and these frames are anywhere.
        let unbroken = damage.is_empty() && cut.is_none() && options.prefer.is_empty();
        if unbroken && tables.code && !tables.exidx && options.max_frames > 40 {
            prop_assert_eq!(walked.end, StackEnd::NullReturn, "{:x?}", walked);
            prop_assert_eq!(walked.frames.len(), frames, "{:x?}", walked);
        }
    }
}
