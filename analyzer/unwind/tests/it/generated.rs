//! Tests how walks pass through code without a file, with stacks built by hand.

use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, Provenance, RegisterFile, Stack, StackEnd, StackSlice,
    Table, WalkOptions, walk,
};

const X86_64: &[u8] = include_bytes!("../../fuzz/programs/x86_64.elf");
const AARCH64: &[u8] = include_bytes!("../../fuzz/programs/a64.elf");

const BIAS: u64 = 0x40_0000;
const GENERATED: u64 = 0x10_0000;
const STACK: u64 = 0x7000_0000;

/// A program, and the address behind its first direct call.
struct Program {
    arch: Arch,
    bytes: Vec<u8>,
    return_address: u64,
}

impl Program {
    fn all() -> [Program; 2] {
        // 408: call 3a0 <g@plt>; 438: bl 3b0 <g@plt>
        let program = |arch, bytes: &[u8], return_address| Program {
            arch,
            bytes: bytes.to_vec(),
            return_address,
        };
        [
            program(Arch::X86_64, X86_64, 0x40d),
            program(Arch::Aarch64, AARCH64, 0x43c),
        ]
    }

    /// The program with an indirect call instead.
    fn with_indirect_call(mut self) -> Program {
        let call: &[u8] = match self.arch {
            // nop; call *%rax
            Arch::X86_64 => &[0x0f, 0x1f, 0x00, 0xff, 0xd0],
            // blr x2
            _ => &[0x40, 0x00, 0x3f, 0xd6],
        };
        let end = self.return_address as usize;
        self.bytes[end - call.len()..end].copy_from_slice(call);
        self
    }

    fn modules(&self) -> ModuleMap {
        let image = Image::parse("program", self.bytes.clone()).expect("a program");
        let mut modules = ModuleMap::new(self.arch);
        modules.add(Module {
            id: 1,
            name: "program".into(),
            bias: BIAS,
            table: Arc::new(Table::compile(&image, &CompileOptions::default())),
        });
        modules.add_generated_code(GENERATED..GENERATED + 0x1000);
        modules
    }

    /// Walks a stack of frame records: pairs of a saved frame pointer and a return address.
    fn walk(&self, modules: &ModuleMap, records: &[(u64, u64)]) -> Stack {
        let (pc, sp, fp) = match self.arch {
            Arch::X86_64 => ("rip", "rsp", "rbp"),
            _ => ("pc", "sp", "x29"),
        };
        let registers = RegisterFile::new(self.arch, |name| match name {
            _ if name == pc => Some(GENERATED + 0x10),
            _ if name == sp => Some(STACK),
            _ if name == fp => Some(STACK + 16),
            _ => None,
        });
        let words = records.iter().flat_map(|(fp, ra)| [*fp, *ra]);
        let bytes: Vec<u8> = [0, 0]
            .into_iter()
            .chain(words)
            .flat_map(u64::to_le_bytes)
            .collect();
        let mut memory = StackSlice {
            avma: STACK,
            bytes: &bytes,
        };
        walk(modules, &registers, &mut memory, &WalkOptions::default())
    }
}

#[test]
fn an_indirect_call_leads_to_generated_code() {
    for program in Program::all() {
        let program = program.with_indirect_call();
        let caller = BIAS + program.return_address;
        // The caller's file has rules, so its frame register may have any value.
        for saved in [0, 1, STACK + 64, u64::MAX] {
            let stack = program.walk(&program.modules(), &[(saved, caller)]);
            let second = &stack.frames[1];
            assert_eq!(second.pc, caller, "{stack:x?}");
            assert_eq!(second.provenance, Provenance::FramePointer);
            assert_eq!(second.fp, Some(saved));
        }
    }
}

#[test]
fn a_direct_call_does_not_lead_to_generated_code() {
    for program in Program::all() {
        let caller = BIAS + program.return_address;
        let stack = program.walk(&program.modules(), &[(STACK + 64, caller)]);
        let pc = GENERATED + 0x10;
        assert_eq!(stack.frames.len(), 1, "{stack:x?}");
        assert_eq!(stack.end, StackEnd::GeneratedCode { pc });
    }
}

#[test]
fn a_chain_in_generated_code_may_begin_at_a_jump() {
    for program in Program::all() {
        let caller = BIAS + program.return_address;
        let records = [(STACK + 32, GENERATED + 0x20), (STACK + 64, caller)];
        let stack = program.walk(&program.modules(), &records);
        let pcs: Vec<u64> = stack.frames.iter().map(|frame| frame.pc).collect();
        assert_eq!(pcs[..3], [GENERATED + 0x10, GENERATED + 0x20, caller]);
    }
}

#[test]
fn files_that_cannot_be_read_are_not_generated_code() {
    for program in Program::all() {
        let program = program.with_indirect_call();
        let caller = BIAS + program.return_address;
        let mut modules = program.modules();
        modules.add_unreadable(GENERATED..GENERATED + 0x100);
        let stack = program.walk(&modules, &[(STACK + 32, GENERATED + 0x20), (0, caller)]);
        assert_ne!(
            stack.frames.get(1).map(|frame| frame.pc),
            Some(GENERATED + 0x20)
        );
    }
}

#[test]
fn a_rule_leads_to_a_file_that_cannot_be_read() {
    const UNREADABLE: u64 = 0x20_0000;
    for program in Program::all() {
        let mut modules = program.modules();
        modules.add_unreadable(UNREADABLE..UNREADABLE + 0x100);
        let registers = RegisterFile::new(program.arch, |name| match name {
            "rip" | "pc" => Some(BIAS + program.return_address),
            "rsp" | "sp" | "rbp" | "x29" => Some(STACK),
            _ => None,
        });
        // The rule finds this return address wherever it looks.
        let bytes = (UNREADABLE + 0x20).to_le_bytes().repeat(16);
        let mut memory = StackSlice {
            avma: STACK,
            bytes: &bytes,
        };
        let stack = walk(&modules, &registers, &mut memory, &WalkOptions::default());
        let caller = &stack.frames[1];
        assert_eq!(caller.pc, UNREADABLE + 0x20, "{stack:x?}");
        assert_eq!(caller.provenance, Provenance::Cfi);
    }
}

#[test]
fn ranges_of_generated_code_are_merged() {
    let mut modules = ModuleMap::new(Arch::X86_64);
    for range in [
        0x3000..0x4000,
        0x1000..0x2000,
        0x1800..0x3000,
        0x6000..0x6000,
    ] {
        modules.add_generated_code(range);
    }
    let found = [0xfff, 0x1000, 0x2800, 0x3fff, 0x4000, 0x6000];
    let found = found.map(|avma| modules.is_generated_code(avma));
    assert_eq!(found, [false, true, true, true, false, false]);
}
