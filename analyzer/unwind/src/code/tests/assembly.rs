//! Tests with hand-written assembly: frames that no compiler makes.

use unspool_image::Arch;

use super::super::effect::Target;
use super::super::flow::{Engine, Memory, Shown};
use super::super::machine::machine;
use super::super::state::State;
use super::super::text::Text;
use super::super::{callee_clobbers, instruction_len, plt_resolver};
use super::{States, a32, rows, rules, x86};
use crate::expression::evaluate;
use crate::memory::SnapshotMemory;
use crate::registers::RegisterFile;
use crate::rule::{Cfa, Expression, Place};

/// `__memcpy_neon`: after `popcc`, the stack pointer depends on the carry flag until `bcc` has
/// passed.
#[test]
fn a_conditional_pop() {
    // e52d8004 push {r8}; e2522040 subs r2, r2, #64; 349d8004 popcc {r8}; 3a000000 bcc +0; e49d8004
    // pop {r8}; e12fff1e bx lr
    let function = a32(&[
        0xe52d_8004,
        0xe252_2040,
        0x349d_8004,
        0x3a00_0001,
        0xe49d_8004,
        0xe12f_ff1e,
        0xe12f_ff1e,
    ]);
    let same = |offset| Some((offset, Place::Same));
    let sp = [same(0), same(4), same(4), None, same(4), same(0), same(0)];
    assert_eq!(rows(&function), sp);
    let mut expression = Vec::new();
    for shown in &function.shown {
        if let Shown::State(12, _, state) = shown {
            let rule = state.rule(&mut Vec::new(), &mut |bytes| {
                expression = bytes.to_vec();
                Expression(0)
            });
            assert_eq!(rule, Some((Cfa::Expression(Expression(0)), Place::Same)));
        }
    }
    for (cpsr, cfa) in [(0x2000_0010, 0x1004), (0xd000_0010, 0x1000)] {
        let registers = RegisterFile::new(Arch::Arm, |name| match name {
            "sp" => Some(0x1000),
            "cpsr" => Some(cpsr),
            _ => None,
        });
        let found = evaluate(&expression, None, &registers, &mut SnapshotMemory::new());
        assert_eq!(found, Some(cfa), "{cpsr:x}");
    }
}

/// glibc's `_dl_runtime_resolve`, which the PLT's first entry jumps to with the return address on
/// the stack.
#[test]
fn a_resolver() {
    // e92d001f push {r0-r4}; e51e0004 ldr r0, [lr, #-4]; ebfffffe bl .; e1a0c000 mov ip, r0;
    // e8bd401f pop {r0-r4, lr}; e12fff1c bx ip
    let words = [
        0xe92d_001fu32,
        0xe51e_0004,
        0xebff_fffe,
        0xe1a0_c000,
        0xe8bd_401f,
        0xe12f_ff1c,
    ];
    let function = a32(&words);
    let machine = machine(Arch::Arm).expect("ARM");
    let entries = plt_resolver::entries(machine, &function);
    assert_eq!(entries.len(), 1);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let text = Text::of_bytes(machine, &bytes);
    let start = Target {
        svma: 0,
        thumb: false,
    };
    let mut memory = Memory::new(machine);
    let mut engine = Engine::new(&text, &mut memory, false);
    let function = engine.follow(start, 24, &entries[0], true, &mut States);
    assert!(plt_resolver::is_resolver(machine, &function));
    let saved = |offset| Some((offset, Place::AtCfa(-4)));
    let expected = [saved(4), saved(24), saved(24), saved(24), saved(24)];
    assert_eq!(rows(&function)[..5], expected);
    assert_eq!(rows(&function)[5], Some((0, Place::Same)));
}

/// A function that pops what it has pushed, and the tail of another function. Neither is a
/// resolver.
#[test]
fn no_resolver() {
    let machine = machine(Arch::Arm).expect("ARM");
    // e92d4010 push {r4, lr}; e8bd4010 pop {r4, lr}; e12fff13 bx r3
    let tail_call = a32(&[0xe92d_4010, 0xe8bd_4010, 0xe12f_ff13]);
    assert!(plt_resolver::entries(machine, &tail_call).is_empty());
    // e28dd008 add sp, sp, #8; e8bd4010 pop {r4, lr}; e12fff13 bx r3
    let tail = a32(&[0xe28d_d008, 0xe8bd_4010, 0xe12f_ff13]);
    assert!(plt_resolver::entries(machine, &tail).is_empty());
}

/// The same on x86-64, where the resolver finds its frame by `rbx`. Two words lie below its return
/// address.
#[test]
fn a_resolver_of_x86_64() {
    let code = [
        &[0x53][..],                     //  0 push rbx
        &[0x48, 0x89, 0xe3],             //  1 mov rbx, rsp
        &[0x48, 0x83, 0xe4, 0xc0],       //  4 and rsp, -0x40
        &[0x48, 0x8b, 0x73, 0x10],       //  8 mov rsi, [rbx+0x10]
        &[0xe8, 0xef, 0xff, 0xff, 0xff], // 12 call 0
        &[0x49, 0x89, 0xc3],             // 17 mov r11, rax
        &[0x48, 0x89, 0xdc],             // 20 mov rsp, rbx
        &[0x48, 0x8b, 0x1c, 0x24],       // 23 mov rbx, [rsp]
        &[0x48, 0x83, 0xc4, 0x18],       // 27 add rsp, 0x18
        &[0x41, 0xff, 0xe3],             // 31 jmp r11
    ]
    .concat();
    let machine = machine(Arch::X86_64).expect("x86-64");
    let text = Text::of_bytes(machine, &code);
    let start = Target {
        svma: 0,
        thumb: false,
    };
    let mut memory = Memory::new(machine);
    let mut engine = Engine::new(&text, &mut memory, false);
    let end = code.len() as u64;
    let called = State::entry(machine);
    let function = engine.follow(start, end, &called, true, &mut States);
    let entries = plt_resolver::entries(machine, &function);
    assert_eq!(entries.len(), 1);
    let function = engine.follow(start, end, &entries[0], true, &mut States);
    assert!(plt_resolver::is_resolver(machine, &function));
    let cfas: Vec<Option<i32>> = rules(&function)
        .into_iter()
        .map(|rule| match rule?.0 {
            Cfa::Register { offset, .. } => Some(offset),
            _ => None,
        })
        .collect();
    // First by rsp, then by rbx, then by rsp again. At the final jump only the return address is
    // left.
    let expected = [24, 32, 32, 32, 32, 32, 32, 32, 32, 8].map(Some);
    assert_eq!(cfas, expected);
}

/// OpenSSL's SHA for AVX2. The caller's stack pointer is at the bottom of an aligned frame. An
/// inner loop moves the frame down and copies the pointer along, and an outer loop moves the frame
/// back up.
#[test]
fn a_frame_that_loops_move() {
    let code = [
        &[0x48, 0x89, 0xe0][..],                           //  0 mov rax, rsp
        &[0x48, 0x83, 0xec, 0x40],                         //  3 sub rsp, 0x40
        &[0x48, 0x83, 0xe4, 0xc0],                         //  7 and rsp, -0x40
        &[0x48, 0x89, 0x44, 0x24, 0x38],                   // 11 mov [rsp+0x38], rax
        &[0x31, 0xc0],                                     // 16 xor eax, eax
        &[0x48, 0x8b, 0x74, 0x24, 0x38],                   // 18 mov rsi, [rsp+0x38]
        &[0x48, 0x89, 0x74, 0x24, 0xf8],                   // 23 mov [rsp-8], rsi
        &[0x31, 0xf6],                                     // 28 xor esi, esi
        &[0x48, 0x8d, 0x64, 0x24, 0xc0],                   // 30 lea rsp, [rsp-0x40]
        &[0xff, 0x74, 0x24, 0x38],                         // 35 push [rsp+0x38]
        &[0x48, 0x8d, 0x64, 0x24, 0x08],                   // 39 lea rsp, [rsp+8]
        &[0x75, 0xf0],                                     // 44 jne 30
        &[0x48, 0x8d, 0xa4, 0x24, 0x00, 0x02, 0x00, 0x00], // 46 lea rsp, [rsp+0x200]
        &[0x75, 0xda],                                     // 54 jne 18
    ]
    .concat();
    let function = x86(&code);
    let memory = Some((Cfa::Expression(Expression(0)), Place::AtCfa(-8)));
    let by = |register, offset| Some((Cfa::Register { register, offset }, Place::AtCfa(-8)));
    let expected = [
        by(7, 8),
        by(7, 8),
        by(7, 0x48),
        by(0, 8),
        by(0, 8),
        memory,
        by(4, 8),
        by(4, 8),
        memory,
        memory,
        memory,
        memory,
        memory,
    ];
    assert_eq!(rules(&function)[..13], expected);
}

/// OpenSSL's AES: the stack pointer is exchanged with an aligned address below it.
#[test]
fn an_exchanged_stack_pointer() {
    // 4c 8d 7c 24 80 lea r15, [rsp-0x80]; 49 83 e7 c0 and r15, -0x40; 4c 87 fc xchg rsp, r15; 4c 89
    // 7c 24 10 mov [rsp+0x10], r15; 45 31 ff xor r15d, r15d; 90 nop
    let function = x86(&[
        0x4c, 0x8d, 0x7c, 0x24, 0x80, 0x49, 0x83, 0xe7, 0xc0, 0x4c, 0x87, 0xfc, 0x4c, 0x89, 0x7c,
        0x24, 0x10, 0x45, 0x31, 0xff, 0x90,
    ]);
    let by = |register, offset| Some((Cfa::Register { register, offset }, Place::AtCfa(-8)));
    let memory = Some((Cfa::Expression(Expression(0)), Place::AtCfa(-8)));
    let expected = [by(7, 8), by(7, 8), by(7, 8), by(15, 8), by(15, 8), memory];
    assert_eq!(rules(&function), expected);
}

/// A frame known by a caller-saved register, and a call whose callee does not clobber it.
#[test]
fn a_callee_that_preserves_registers() {
    // 0: 31 c0 xor eax, eax; c3 ret;  3: 4c 8d 1c 24 lea r11, [rsp]; 48 83 e4 f0 and rsp, -16; e8
    // f0 ff ff ff call 0; 49 8d 23 lea rsp, [r11]; c3 ret
    let code = [
        0x31, 0xc0, 0xc3, 0x4c, 0x8d, 0x1c, 0x24, 0x48, 0x83, 0xe4, 0xf0, 0xe8, 0xf0, 0xff, 0xff,
        0xff, 0x49, 0x8d, 0x23, 0xc3,
    ];
    let machine = machine(Arch::X86_64).expect("x86-64");
    let mut text = Text::of_bytes(machine, &code);
    let at = |svma| Target { svma, thumb: false };
    let entry = State::entry(machine);
    let follow = |text: &Text<'_>, from, end| {
        let mut memory = Memory::new(machine);
        Engine::new(text, &mut memory, false).follow(at(from), end, &entry, true, &mut States)
    };
    let before = follow(&text, 3, 20);
    assert_eq!(before.clobber_sensitive, [at(0)]);
    // After the call nothing would be known.
    assert_eq!(rules(&before).len(), 3);
    let leaf = follow(&text, 0, 3);
    let preserved = callee_clobbers::preserved_registers(&text, &leaf);
    assert_eq!(preserved & 0xffff, 0xfffe);
    text.preserved_by.insert(0, preserved);
    let by_r11 = Cfa::Register {
        register: 11,
        offset: 8,
    };
    let behind = rules(&follow(&text, 3, 20))[3];
    assert_eq!(behind, Some((by_r11, Place::AtCfa(-8))));
}

/// AMD's XOP instructions begin with a byte that is otherwise `pop`.
#[test]
fn xop_is_not_pop() {
    // vprotd xmm0, xmm0, 16; pop [rax]
    let len = |bytes: &[u8]| instruction_len(Arch::X86_64, bytes, false);
    assert_eq!(len(&[0x8f, 0xe8, 0x78, 0xc2, 0xc0, 0x10, 0x90]), Some(6));
    assert_eq!(len(&[0x8f, 0x00, 0x90]), Some(2));
}

/// musl's `clone`: the child has no caller, the parent has one.
#[test]
fn a_child_of_clone() {
    // 31 c0 xor eax, eax; b0 38 mov al, 56; 0f 05 syscall; 85 c0 test eax, eax; 75 06 jne +6; 31 ed
    // xor ebp, ebp; 41 ff d1 call r9; f4 hlt; c3 ret
    let function = x86(&[
        0x31, 0xc0, 0xb0, 0x38, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0x06, 0x31, 0xed, 0x41, 0xff, 0xd1,
        0xf4, 0xc3,
    ]);
    let called = Some((
        Cfa::Register {
            register: 7,
            offset: 8,
        },
        Place::AtCfa(-8),
    ));
    let child = Some((Cfa::Unknown, Place::Undefined));
    let rules = rules(&function);
    assert_eq!(rules[..5], [called; 5]);
    assert_eq!(rules[5..7], [child; 2]);
    assert_eq!(rules.last(), Some(&called));
}
