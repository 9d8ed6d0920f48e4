//! Compares the output of each method with objdump.

use std::process::Command;

use super::*;

/// The code as objdump shows it.
fn disassembled(code: &[u8], option: &str) -> Vec<String> {
    let name = format!("unspool-a32-{:?}", std::thread::current().id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, code).unwrap();
    let output = Command::new("arm-linux-gnueabihf-objdump")
        .args(["-D", "-b", "binary", "-m", "arm", option])
        .arg(&file)
        .output()
        .expect("binutils-arm-linux-gnueabihf");
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    lines
        .map(|(_, line)| {
            let (_, text) = line.split_once('\t').unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            let words = words.join(" ");
            words.split([';', '@']).next().unwrap().trim().to_owned()
        })
        .collect()
}

/// An instruction, and objdump's text.
type Row = (fn(&mut Assembler), &'static [&'static str]);

const STRAIGHT: &[Row] = &[
    (|a| a.put(NOP), &["nop {0}"]),
    (|a| a.put(TO_NEXT_WORD), &["ldr pc, [pc, #-4]"]),
    (|a| a.mov(3, 0x1234), &["movw r3, #4660"]),
    (
        |a| a.mov(3, 0xffff_f234),
        &["movw r3, #62004", "movt r3, #65535"],
    ),
    (|a| a.mov_r(1, SP), &["mov r1, sp"]),
    (|a| a.mov_if(If::Lower, 2, 0), &["movcc r2, #0"]),
    (|a| a.mov_r_if(If::Lower, 2, 0), &["movcc r2, r0"]),
    (|a| a.add(LR, 4, 0x4000), &["add lr, r4, #16384"]),
    (|a| a.adds(2, 0, 1), &["adds r2, r0, #1"]),
    (|a| a.adc(3, 1, 0), &["adc r3, r1, #0"]),
    (|a| a.subs(LR, LR, 1), &["subs lr, lr, #1"]),
    (|a| a.eor(LR, LR, 32), &["eor lr, lr, #32"]),
    (|a| a.cmp(0, 512), &["cmp r0, #512"]),
    (
        |a| a.add_r(10, 10, 11, 3),
        &["add r10, r10, r11, lsl #3", "add sl, sl, fp, lsl #3"],
    ),
    (|a| a.adds_r(2, 0, 0), &["adds r2, r0, r0"]),
    (|a| a.adc_r(3, 1, 1), &["adc r3, r1, r1"]),
    (|a| a.add_r_if(If::NotEqual, 3, 3, 5), &["addne r3, r3, r5"]),
    (|a| a.sub_r(0, 7, 8), &["sub r0, r7, r8"]),
    (|a| a.subs_r(0, 7, 1), &["subs r0, r7, r1"]),
    (|a| a.orrs_r(0, 0, 1), &["orrs r0, r0, r1"]),
    (|a| a.cmp_r(8, 2), &["cmp r8, r2"]),
    (|a| a.umull(0, 1, 5, 2), &["umull r0, r1, r5, r2"]),
    (|a| a.mla(1, 5, 2, 3), &["mla r1, r5, r2, r3"]),
    (|a| a.lsr(1, 2, 22), &["lsr r1, r2, #22"]),
    (|a| a.and_r(2, 2, 0), &["and r2, r2, r0"]),
    (|a| a.ldr(0, SP, 56), &["ldr r0, [sp, #56]"]),
    (
        |a| a.ldr_if(If::NotEqual, 12, 3, 0),
        &["ldrne r12, [r3]", "ldrne ip, [r3]"],
    ),
    (
        |a| a.str(12, 9, 156),
        &["str r12, [r9, #156]", "str ip, [r9, #156]"],
    ),
    (|a| a.ldr_next(0, 1, 4), &["ldr r0, [r1], #4"]),
    (|a| a.ldr_next(0, 1, 1), &["ldrb r0, [r1], #1"]),
    (|a| a.str_next(0, 3, 4), &["str r0, [r3], #4"]),
    (|a| a.str_next(0, 3, 1), &["strb r0, [r3], #1"]),
    (
        |a| a.ldm(1, 0x29),
        &["ldmia r1!, {r0, r3, r5}", "ldm r1!, {r0, r3, r5}"],
    ),
    (|a| a.stm(2, 0x29), &["stmia r2!, {r0, r3, r5}"]),
    (|a| a.push(0x4003), &["push {r0, r1, lr}"]),
    (|a| a.ldrex(2, 1), &["ldrex r2, [r1]"]),
    (|a| a.strex(3, 0, 1), &["strex r3, r0, [r1]"]),
    (
        |a| a.ldrexd(0, 4),
        &["ldrexd r0, r1, [r4]", "ldrexd r0, [r4]"],
    ),
    (
        |a| a.strexd(9, 2, 4),
        &["strexd r9, r2, r3, [r4]", "strexd r9, r2, [r4]"],
    ),
    (|a| a.dmb(), &["dmb ish"]),
    (|a| a.isb(), &["isb sy"]),
    (|a| a.mrs(0), &["mrs r0, CPSR", "mrs r0, APSR"]),
    (|a| a.msr(0), &["msr CPSR_f, r0", "msr APSR_nzcvq, r0"]),
    (|a| a.thread_pointer(5), &["mrc 15, 0, r5, cr13, cr0, {3}"]),
    (|a| a.clock(0, 1), &["mrrc 15, 1, r0, r1, cr14"]),
    (|a| a.trap(), &["udf #16"]),
];

#[test]
fn as_objdump_reads_it() {
    for (make, texts) in STRAIGHT {
        let mut a = Assembler::default();
        make(&mut a);
        let seen = disassembled(&a.code, "-Marm");
        // One instruction may have two names.
        let same = seen == *texts || seen.len() == 1 && texts.contains(&&*seen[0]);
        assert!(same, "{seen:?}, expected {texts:?}");
    }
}

#[test]
fn labels_forward_and_backward() {
    let mut a = Assembler::default();
    let ahead = a.label();
    let behind = a.mark();
    a.b(ahead);
    for when in [If::Equal, If::NotEqual, If::HigherOrSame] {
        a.b_if(when, ahead);
    }
    for when in [If::Lower, If::Higher, If::Less] {
        a.b_if(when, behind);
    }
    a.here(ahead);
    a.ldr_of(2, behind);
    assert_eq!(a.link(), Some(()));
    let seen: Vec<String> = disassembled(&a.code, "-Marm");
    let expected = [
        "b 0x1c",
        "beq 0x1c",
        "bne 0x1c",
        "bcs 0x1c",
        "bcc 0x0",
        "bhi 0x0",
        "blt 0x0",
        "ldr r2, [pc, #-36]",
    ];
    assert_eq!(seen, expected);
}

#[test]
fn literals_after_the_code() {
    for (thumb, option, expected) in [
        (
            false,
            "-Marm",
            [
                "ldr r6, [pc, #12]",
                "ldrne pc, [pc, #12]",
                "ldr r6, [r6]",
                "add r6, r5, #4032",
                "add r6, r6, #-16777216",
            ],
        ),
        (
            true,
            "-Mforce-thumb",
            [
                "ldr.w r6, [pc, #16]",
                "ldr.w pc, [pc, #16]",
                "ldr.w r6, [r6]",
                "add.w r6, r5, #4032",
                "add.w r6, r6, #4278190080",
            ],
        ),
    ] {
        let mut a = Assembler::default();
        a.ldr_number(thumb, 6, 0x1234_5678);
        if thumb {
            a.ldr_number(thumb, PC, 9);
        } else {
            a.ldr_number_if(If::NotEqual as u8, PC, 9);
        }
        a.ldr_in(thumb, 6, 6);
        a.add_in(thumb, 6, 5, 0xfc0);
        a.add_in(thumb, 6, 6, 0xff00_0000);
        a.numbers();
        assert_eq!(a.link(), Some(()));
        let (code, numbers) = a.code.split_at(20);
        assert_eq!(numbers, [0x78, 0x56, 0x34, 0x12, 9, 0, 0, 0]);
        let seen = disassembled(code, option);
        assert_eq!(seen, expected);
    }
    // In T32, the offset of a literal counts from an aligned address.
    let mut a = Assembler::default();
    a.put_half(0xbf00);
    a.ldr_number(true, 6, 1);
    a.align();
    a.numbers();
    assert_eq!(a.link(), Some(()));
    assert_eq!(
        disassembled(&a.code[2..6], "-Mforce-thumb"),
        ["ldr.w r6, [pc, #4]"]
    );
}

#[test]
fn jumps_to_addresses() {
    assert_eq!(jump(0x1_0008, 0x1_0000), Some(0xea00_0000 | 0x00ff_fffc));
    assert_eq!(jump(0, 1 << 26), None);
    for to in [0x10_0000_u64, 0x1f_fffe, 0x2, 0x80_0000] {
        let code = jump_t32(0x10_0000, to).expect("near");
        let seen = disassembled(&code.to_le_bytes(), "-Mforce-thumb");
        let distance = to as i32 - 0x10_0000;
        assert_eq!(seen, [format!("b.w {:#x}", distance)], "{code:#x}");
    }
    assert_eq!(jump_t32(0, 1 << 25), None);
}
