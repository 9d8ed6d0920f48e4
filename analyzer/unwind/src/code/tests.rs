//! Tests with functions as compilers write them, given as bytes, and with bytes that are no
//! function.

use unspool_image::{Arch, Image};

use super::effect::Target;
use super::flow::{Engine, Function, Memory, Shown};
use super::kept_argument::{self, Kept};
use super::machine::machine;
use super::state::State;
use super::text::Text;
use super::{States, analyze_by};
use crate::rule::{Cfa, Expression, Place};

mod assembly;

/// Analyses this test program: symbols, exceptions, thousands of functions.
#[test]
fn the_number_of_threads_does_not_matter() {
    let program = std::env::current_exe().expect("this program");
    let image = Image::open(&program).expect("an ELF file");
    for symbols in [true, false] {
        let alone = analyze_by(&image, symbols, 1);
        assert!(alone.starts.len() > 1000);
        for threads in [2, 5] {
            let found = analyze_by(&image, symbols, threads);
            assert!(found.starts == alone.starts, "{threads} threads");
            assert!(found.rows.iter().eq(alone.rows.iter()), "{threads} threads");
            assert_eq!(found.rows.bytes(), alone.rows.bytes());
        }
    }
}

fn analyse(arch: Arch, bytes: &[u8], thumb: bool) -> Function {
    let machine = machine(arch).expect("an architecture that is analysed");
    let text = Text::of_bytes(machine, bytes);
    let start = Target { svma: 0, thumb };
    let end = bytes.len() as u64;
    let entry = State::entry(machine);
    let mut memory = Memory::new(machine);
    Engine::new(&text, &mut memory, false).follow(start, end, &entry, true, &mut States)
}

fn a64(words: &[u32]) -> Function {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    analyse(Arch::Aarch64, &bytes, false)
}

fn x86(bytes: &[u8]) -> Function {
    analyse(Arch::X86_64, bytes, false)
}

fn a32(words: &[u32]) -> Function {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    analyse(Arch::Arm, &bytes, false)
}

fn t16(halves: &[u16]) -> Function {
    let bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    analyse(Arch::Arm, &bytes, true)
}

/// (CFA register, offset, return address) at every instruction, in order of address; `None` where
/// unknown.
fn rules(function: &Function) -> Vec<Option<(Cfa, Place)>> {
    let mut states: Vec<(u64, &State)> = function
        .shown
        .iter()
        .filter_map(|shown| match shown {
            Shown::State(svma, _, state) => Some((*svma, &**state)),
            Shown::Run(..) => None,
        })
        .collect();
    states.sort_by_key(|state| state.0);
    states
        .iter()
        .map(|(_, state)| state.rule(&mut Vec::new(), &mut |_| Expression(0)))
        .collect()
}

/// (sp offset, return address) at every instruction.
fn rows_by(function: &Function, sp: u8) -> Vec<Option<(i32, Place)>> {
    let row = |rule: Option<(Cfa, Place)>| match rule? {
        (Cfa::Register { register, offset }, ra) if register == sp => Some((offset, ra)),
        _ => None,
    };
    rules(function).into_iter().map(row).collect()
}

fn rows(function: &Function) -> Vec<Option<(i32, Place)>> {
    rows_by(function, 13)
}

/// The classic example: `push {lr}; sub sp, sp, #12` makes a 16-byte frame with the return address
/// in the topmost word.
#[test]
fn the_worked_example() {
    // e52de004 push {lr}; e24dd00c sub sp, sp, #12; ebfffffe bl .; e28dd00c add sp, sp, #12;
    // e49df004 pop {pc}
    let function = a32(&[
        0xe52d_e004,
        0xe24d_d00c,
        0xebff_fffe,
        0xe28d_d00c,
        0xe49d_f004,
    ]);
    let saved = Place::AtCfa(-4);
    let expected = [
        (0, Place::Same),
        (4, saved),
        (16, saved),
        (16, saved),
        (4, saved),
    ]
    .map(Some);
    assert_eq!(rows(&function), expected);
    assert!(function.balanced);
}

/// An early return before the frame is built, and a return from inside an IT block.
#[test]
fn conditional_returns() {
    // b130 cbz r0, 16; b510 push {r4, lr}; f7ff fffe bl .; 2800 cmp r0, #0; bf18 it ne; bd10 popne
    // {r4, pc}; bd10 pop {r4, pc}; 4770 bx lr
    let function = t16(&[
        0xb130, 0xb510, 0xf7ff, 0xfffe, 0x2800, 0xbf18, 0xbd10, 0xbd10, 0x4770,
    ]);
    let (none, saved) = (Some((0, Place::Same)), Some((8, Place::AtCfa(-4))));
    assert_eq!(rows(&function)[..2], [none, none]);
    assert_eq!(rows(&function)[2..7], [saved; 5]);
    assert_eq!(rows(&function).last(), Some(&none));
}

/// An epilogue in two IT blocks with a branch after it, as in lua's `luaD_growstack` by clang. The
/// frame is too large for an immediate: `ldr ip, =-70000; add sp, ip`.
#[test]
fn it_blocks_of_one_condition() {
    // b510 push {r4, lr}; 428a cmp r2, r1; bfbc itt lt; 4620 movlt r0, r4; b001 addlt sp, #4; bfb8
    // it lt; bd10 poplt; b001 add sp, #4; bd10 pop {r4, pc}. The frame has another word: b081 sub
    // sp, #4.
    let function = t16(&[
        0xb510, 0xb081, 0x428a, 0xbfbc, 0x4620, 0xb001, 0xbfb8, 0xbd10, 0xb001, 0xbd10,
    ]);
    let same = Some((0, Place::Same));
    let saved = |offset| Some((offset, Place::AtCfa(-4)));
    assert_eq!(
        rows(&function),
        [
            same,
            saved(8),
            saved(12),
            saved(12),
            saved(12),
            saved(12),
            None,
            None,
            saved(12),
            saved(8)
        ]
    );
    // A comparison in between: the next instruction may execute or not, whatever the earlier
    // condition was. 2900 cmplt r1, #0
    let function = t16(&[
        0xb510, 0xb081, 0x428a, 0xbfbc, 0xb001, 0x2900, 0xbfb8, 0xbd10, 0xb001, 0xbd10,
    ]);
    assert_eq!(rows(&function)[6..], [None; 4]);
}

/// A jump in dead code gets the state of its target.
#[test]
fn dead_code_between_parts() {
    // e92d4010 push {r4, lr}; e3500000 cmp r0, #0; 1a000001 bne 20; e7f000f0 udf; ea000000 b 24;
    // e8bd8010 pop {r4, pc}
    let function = a32(&[
        0xe92d_4010,
        0xe350_0000,
        0x1a00_0001,
        0xe7f0_00f0,
        0xea00_0000,
        0xe8bd_8010,
        0xe8bd_8010,
    ]);
    // Nothing else leads there.
    assert!(function.dead.is_empty());
    // eaffffff b 20
    let function = a32(&[
        0xe92d_4010,
        0xe350_0000,
        0x1a00_0001,
        0xe7f0_00f0,
        0xeaff_ffff,
        0xe8bd_8010,
    ]);
    let dead: Vec<u64> = function
        .dead
        .iter()
        .map(|(target, _)| target.svma)
        .collect();
    assert_eq!(dead, [16]);
}

#[test]
fn frames_by_register() {
    // b500 push {lr}; f8df c00c ldr.w ip, [pc, #12]; 44e5 add sp, ip; f7ff fffe bl .; e7fe b .;
    // bf00 nop; literal
    let function = t16(&[
        0xb500, 0xf8df, 0xc00c, 0x44e5, 0xf7ff, 0xfffe, 0xe7fe, 0xbf00, 0xee90, 0xfffe,
    ]);
    let last = rows(&function).last().copied().flatten();
    assert_eq!(last, Some((70004, Place::AtCfa(-4))));
}

/// A frame record with a pointer authentication code, built by pre-index and removed by post-index.
#[test]
fn a64_frame_record() {
    // d503233f paciasp; a9be7bfd stp x29, x30, [sp, #-32]!; 910003fd mov x29, sp; f9000bf3 str x19,
    // [sp, #16]; 94000000 bl .; f9400bf3 ldr x19, [sp, #16]; a8c27bfd ldp x29, x30, [sp], #32;
    // d50323bf autiasp; d65f03c0 ret
    let function = a64(&[
        0xd503_233f,
        0xa9be_7bfd,
        0x9100_03fd,
        0xf900_0bf3,
        0x9400_0000,
        0xf940_0bf3,
        0xa8c2_7bfd,
        0xd503_23bf,
        0xd65f_03c0,
    ]);
    let (none, saved) = (Some((0, Place::Same)), Some((32, Place::AtCfa(-24))));
    let expected = [none, none, saved, saved, saved, saved, saved, none, none];
    assert_eq!(rows_by(&function, 31), expected);
    let signed: Vec<bool> = function
        .shown
        .iter()
        .map(|shown| matches!(shown, Shown::State(.., state) if state.is_signed()))
        .collect();
    assert_eq!(
        signed,
        [false, true, true, true, true, true, true, true, false]
    );
}

/// A frame that is too large for an immediate: `mov x16, #0x11170; sub sp, sp, x16`.
#[test]
fn a64_large_frame() {
    // a9bf7bfd stp x29, x30, [sp, #-16]!; d2822e10 mov x16, #0x1170; f2a00030 movk x16, #1, lsl
    // #16; cb3063ff sub sp, sp, x16; d4207d00 brk #1000
    let function = a64(&[
        0xa9bf_7bfd,
        0xd282_2e10,
        0xf2a0_0030,
        0xcb30_63ff,
        0xd420_7d00,
    ]);
    let last = rows_by(&function, 31).last().copied().flatten();
    assert_eq!(last, Some((16 + 0x11170, Place::AtCfa(-8))));
}

/// The usual frame with rbp, and `leave`.
#[test]
fn x86_frame_pointer() {
    // 55 push rbp; 48 89 e5 mov rbp, rsp; 48 83 ec 20 sub rsp, 0x20; e8 fb ff ff ff call; c9 leave;
    // c3 ret
    let function = x86(&[
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc9, 0xc3,
    ]);
    let ra = Place::AtCfa(-8);
    let expected = [8, 16, 16, 48, 48, 8].map(|offset| Some((offset, ra)));
    assert_eq!(rows_by(&function, 7), expected);
    assert!(function.balanced);
}

/// A realigned stack whose CFA is in r10 and then only in memory, as GCC makes it for vectors.
#[test]
fn x86_realigned() {
    // 4c 8d 54 24 08 lea r10, [rsp+8]; 48 83 e4 e0 and rsp, -32; 41 ff 72 f8 push [r10-8]; 55 push
    // rbp; 48 89 e5 mov rbp, rsp; 41 52 push r10; e8 00.. call; 4c 8b 55 f8 mov r10, [rbp-8]; c9
    // leave; 49 8d 62 f8 lea rsp, [r10-8]; c3 ret
    let function = x86(&[
        0x4c, 0x8d, 0x54, 0x24, 0x08, 0x48, 0x83, 0xe4, 0xe0, 0x41, 0xff, 0x72, 0xf8, 0x55, 0x48,
        0x89, 0xe5, 0x41, 0x52, 0xe8, 0x01, 0x00, 0x00, 0x00, 0x4c, 0x8b, 0x55, 0xf8, 0xc9, 0x49,
        0x8d, 0x62, 0xf8, 0xc3,
    ]);
    let ra = Place::AtCfa(-8);
    let at = |register, offset| Some((Cfa::Register { register, offset }, ra));
    let memory = Some((Cfa::Expression(Expression(0)), ra));
    assert_eq!(
        rules(&function),
        [
            at(7, 8),
            at(7, 8),
            at(10, 0),
            at(10, 0),
            at(10, 0),
            at(10, 0),
            at(10, 0),
            memory,
            at(10, 0),
            at(10, 0),
            at(7, 8),
        ]
    );
    assert!(function.balanced);
}

#[test]
fn any_bytes_end() {
    let mut value = 1u32;
    for round in 0..800 {
        let bytes: Vec<u8> = (0..400)
            .map(|_| {
                value = value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (value >> 24) as u8
            })
            .collect();
        let (arch, thumb) = match round % 4 {
            0 => (Arch::Arm, false),
            1 => (Arch::Arm, true),
            2 => (Arch::Aarch64, false),
            _ => (Arch::X86_64, false),
        };
        let function = analyse(arch, &bytes, thumb);
        assert!(function.instructions <= 400);
    }
}

#[test]
fn where_an_argument_is_kept() {
    let code = [
        &[0x53][..],                     //  0 push rbx
        &[0x48, 0x83, 0xec, 0x20],       //  1 sub rsp, 0x20
        &[0x48, 0x89, 0x54, 0x24, 0x08], //  5 mov [rsp+8], rdx
        &[0x48, 0x89, 0xcb],             // 10 mov rbx, rcx
        &[0xe8, 0xff, 0xff, 0, 0],       // 13 call far away
        &[0x48, 0x89, 0x44, 0x24, 0x08], // 18 mov [rsp+8], rax
        &[0xe8, 0xff, 0xff, 0, 0],       // 23 call far away
        &[0x48, 0x83, 0xc4, 0x20],       // 28 add rsp, 0x20
        &[0x5b, 0xc3],                   // 32 pop rbx; ret
    ]
    .concat();
    let machine = machine(Arch::X86_64).expect("an architecture that is analysed");
    let text = Text::of_bytes(machine, &code);
    let kept = |argument, call| kept_argument::in_text(&text, false, argument, call);
    assert_eq!(kept(2, 17), [Kept::Slot(-0x28)]);
    assert_eq!(kept(3, 17), [Kept::Register(3)]);
    // Another value is there now.
    assert_eq!(kept(2, 27), []);
    assert_eq!(kept(3, 27), [Kept::Register(3)]);
    // The call may change the register.
    assert_eq!(kept(0, 27), []);
    assert_eq!(kept(4, 17), []);
}

#[test]
fn an_argument_that_only_one_path_keeps() {
    let code = [
        0x2d00, // 0 cmp r5, #0
        0xb510, // 2 push {r4, lr}
        0x4614, // 4 mov r4, r2
        0xd000, // 6 beq 10
        0x2400, // 8 movs r4, #0
        0x4780, // 10 blx r0
        0xbd10, // 12 pop {r4, pc}
    ];
    let bytes: Vec<u8> = code
        .iter()
        .flat_map(|half: &u16| half.to_le_bytes())
        .collect();
    let machine = machine(Arch::Arm).expect("an architecture that is analysed");
    let kept = |bytes: &[u8], call| {
        let text = Text::of_bytes(machine, bytes);
        kept_argument::in_text(&text, true, 2, call)
    };
    assert_eq!(kept(&bytes, 10), []);
    assert_eq!(
        kept(&[&bytes[..8], &bytes[10..]].concat(), 8),
        [Kept::Register(4)]
    );
}

#[test]
fn the_size_of_a_function_may_be_wrong() {
    let program = std::env::current_exe().expect("this program");
    let image = Image::open(&program).expect("an ELF file");
    let text = image.text_ranges();
    let start = text.first().expect("code").start;
    for end in [start, start + 1, u64::MAX] {
        let kept = kept_argument::kept_argument(&image, (start..end, false), 2, start);
        assert_eq!(kept, []);
    }
}
