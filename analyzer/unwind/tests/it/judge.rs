//! The decoders against Capstone, an independent judge: every instruction in the text of whole
//! programs.
//!
//! Compared are the length, where control goes, which registers change and to what, and which
//! registers are saved or restored where. A decoder may know less than the judge about a value; it
//! may never contradict it.

#[path = "judge/aarch64.rs"]
mod aarch64;
#[path = "judge/arm.rs"]
mod arm;
#[path = "judge/capstone.rs"]
mod capstone;
#[path = "judge/explained.rs"]
mod explained;
#[path = "judge/statement.rs"]
mod statement;
#[path = "judge/x86_64.rs"]
mod x86_64;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use unspool_image::{Arch, CodeKind, Image};
use unspool_unwind::code::instruction;

use crate::tools::{Scratch, armhf_sysroot, compile, need};
use capstone::{Judge, Set};
use statement::{Statement, Value, Way};

/// Differences that are printed for each kind.
const SHOWN_EXAMPLES: usize = 3;

/// One difference between the two decoders.
struct Difference<'d> {
    set: Set,
    mnemonic: &'d str,
    operands: &'d str,
    own: &'d Statement,
    judged: &'d Statement,
}

/// Counts the differences found.
#[derive(Default)]
struct Tally {
    compared: u64,
    /// Places where the judge knows no instruction.
    unknown: u64,
    /// Differences with an explanation, by their explanation.
    explained: BTreeMap<&'static str, u64>,
    /// Other differences, by aspect and mnemonic, with examples.
    unexplained: BTreeMap<String, (u64, Vec<String>)>,
}

/// The aspects in which the two statements contradict each other.
fn contradictions(own: &Statement, judged: &Statement) -> Vec<&'static str> {
    if own.len != judged.len {
        return vec!["length"];
    }
    let (ours, theirs) = (&own.written, &judged.written);
    let values = ours
        .iter()
        .filter_map(|(register, value)| Some((value, theirs.get(register)?)));
    let aspects = [
        ("flow", own.way != judged.way),
        ("condition", own.condition != judged.condition),
        (
            "missing register",
            theirs.keys().any(|it| !ours.contains_key(it)),
        ),
        (
            "extra register",
            ours.keys().any(|it| !theirs.contains_key(it)),
        ),
        (
            "values",
            !values.clone().all(|(own, judged)| agree(own, judged)),
        ),
        (
            "moves",
            !own.moves.iter().all(|moved| judged.moves.contains(moved)),
        ),
    ];
    let differing = aspects.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(aspect, _)| aspect).collect()
}

/// Whether our decoder's value is the judge's. Our decoder may know less.
fn agree(own: &Value, judged: &Value) -> bool {
    match (own, judged) {
        (Value::Other, _) => true,
        // Constants of our decoders have 32 bits, and so do ARM's addresses.
        (Value::Constant(own), Value::Constant(judged)) => *own as u32 == *judged as u32,
        (Value::Sum(base, own), Value::Sum(other, judged)) => {
            base == other && *own as u32 == *judged as u32
        }
        _ => false,
    }
}

/// The conditions of the instructions in an IT block, the last one first: `cccc mmmm`, firstcond
/// and mask (ARM ARM, A8.8.54).
fn it_conditions(it: u8) -> Vec<u8> {
    let (first, mask) = (it >> 4, it & 15);
    let others = (1..4 - mask.trailing_zeros()).map(|index| first & 14 | mask >> (4 - index) & 1);
    let mut conditions: Vec<u8> = std::iter::once(first).chain(others).collect();
    conditions.reverse();
    conditions
}

impl Tally {
    fn add(&mut self, difference: &Difference<'_>, svma: u64) {
        self.compared += 1;
        for aspect in contradictions(difference.own, difference.judged) {
            if let Some(why) = explained::explanation(aspect, difference) {
                *self.explained.entry(why).or_default() += 1;
                continue;
            }
            let key = format!("{:?} {aspect}: {}", difference.set, difference.mnemonic);
            let (count, examples) = self.unexplained.entry(key).or_default();
            *count += 1;
            if examples.len() < SHOWN_EXAMPLES {
                examples.push(format!(
                    "{svma:#x} {} {}\n      own {:?}\n      judge {:?}",
                    difference.mnemonic, difference.operands, difference.own, difference.judged
                ));
            }
        }
    }

    /// Compares all instructions of `bytes`, which lie at `svma`.
    fn sweep(&mut self, set: Set, bytes: &[u8], svma: u64) {
        let judge = Judge::new(set);
        let (arch, thumb, step, slot) = match set {
            Set::X86 => (Arch::X86_64, false, 1, 8),
            Set::A64 => (Arch::Aarch64, false, 4, 8),
            Set::A32 => (Arch::Arm, false, 4, 4),
            Set::T32 => (Arch::Arm, true, 2, 4),
        };
        let mut at = 0;
        let mut found = judge.capstone.disasm_iter(bytes, svma).expect("iterator");
        let mut block = Vec::new();
        let mut literals: BTreeSet<u64> = BTreeSet::new();
        while at < bytes.len() {
            if literals.contains(&(svma + at as u64)) {
                at += 4;
                block.clear();
                if let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                    found.reset(rest, svma + at as u64);
                }
                continue;
            }
            let Some(judged) = found.next() else {
                self.unknown += 1;
                at += step;
                if at >= bytes.len() {
                    break;
                }
                found.reset(&bytes[at..], svma + at as u64);
                continue;
            };
            let here = svma + at as u64;
            let len = judged.len();
            let statement = judge.state(&judged);
            let own = instruction(arch, &bytes[at..], here, thumb);
            literals.extend(&statement.literals);
            let it = own.as_ref().map_or(0, |own| own.it);
            let mut own = own.map_or(Statement::new(0), |own| Statement::own(&own, slot));
            if let Some(condition) = block.pop() {
                own.condition = condition;
                if let Way::Jump(target) = own.way
                    && condition != 14
                {
                    own.way = Way::Branch(target);
                }
            }
            if it != 0 {
                block = it_conditions(it);
            }
            let difference = Difference {
                set,
                mnemonic: judged.mnemonic().unwrap_or(""),
                operands: judged.op_str().unwrap_or(""),
                own: &own,
                judged: &statement,
            };
            self.add(&difference, here);
            at += len;
        }
    }

    /// Compares all code of a program.
    fn program(&mut self, path: &Path) {
        let image = Image::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for (set, range) in code(&image) {
            let len = usize::try_from(range.end - range.start).expect("length");
            let bytes = image.bytes_at(range.start, len).expect("text");
            self.sweep(set, bytes, range.start);
        }
    }

    fn print(&self, name: &str) {
        println!(
            "{name}: {} instructions compared, {} places unknown to the judge",
            self.compared, self.unknown
        );
        for (why, count) in &self.explained {
            println!("  {count:8} explained: {why}");
        }
        for (key, (count, examples)) in &self.unexplained {
            println!("  {count:8} UNEXPLAINED {key}");
            for example in examples {
                println!("    {example}");
            }
        }
    }
}

/// The ranges of code in `image`, with their instruction sets.
///
/// On ARM, mapping symbols tell them apart. Stripped programs have none; Debian compiles those of
/// armhf to T32 and those of armel to A32.
fn code(image: &Image) -> Vec<(Set, Range<u64>)> {
    let set = match image.arch() {
        Arch::X86_64 => Set::X86,
        Arch::Aarch64 => Set::A64,
        _ => return arm_code(image),
    };
    let text = image.section(".text").expect("text");
    vec![(set, text.svma..text.svma + text.data.len() as u64)]
}

fn arm_code(image: &Image) -> Vec<(Set, Range<u64>)> {
    let text = image.section(".text").expect("text");
    let range = text.svma..text.svma + text.data.len() as u64;
    let map: Vec<_> = image.symbols().code_map().collect();
    let starts = map.iter().filter(|(svma, _)| range.contains(svma));
    let mut found: Vec<(Set, Range<u64>)> = Vec::new();
    for (svma, kind) in starts {
        if let Some((_, open)) = found.last_mut()
            && open.end == range.end
        {
            open.end = *svma;
        }
        let set = match kind {
            CodeKind::Arm => Set::A32,
            CodeKind::Thumb => Set::T32,
            _ => continue,
        };
        found.push((set, *svma..range.end));
    }
    if found.is_empty() {
        let set = if has_hard_float(image) {
            Set::T32
        } else {
            Set::A32
        };
        found.push((set, range));
    }
    found
}

/// Whether floating-point arguments pass in registers (ELF for the Arm architecture, `e_flags`).
fn has_hard_float(image: &Image) -> bool {
    let flags = image
        .bytes()
        .get(36..40)
        .map(|bytes| u32::from_le_bytes(*bytes.first_chunk().expect("four")));
    flags.is_some_and(|flags| flags & 0x400 != 0)
}

/// Compares the programs that UNSPOOL_JUDGE names, or a few that take seconds.
#[test]
fn decoders_agree_with_capstone() {
    if let Some(paths) = std::env::var_os("UNSPOOL_JUDGE") {
        let paths: Vec<PathBuf> = std::env::split_paths(&paths).collect();
        return check(&paths, 1);
    }
    need(&[
        "arm-linux-gnueabihf-gcc",
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
    ]);
    let armhf = armhf_sysroot().join("lib/arm-linux-gnueabihf");
    let dir = Scratch::new("judge");
    let mut paths: Vec<PathBuf> = vec![
        "/lib/x86_64-linux-gnu/libc.so.6".into(),
        "/usr/aarch64-linux-gnu/lib/libc.so.6".into(),
        armhf.join("libc.so.6"),
    ];
    for optimize in ["-O0", "-O2", "-O3"] {
        let flags = ["-marm", optimize];
        paths.push(compile(
            dir.path(),
            "arm-linux-gnueabihf-gcc",
            "steps.c",
            &flags,
        ));
    }
    check(&paths, 900_000);
}

/// Instructions that are rare in compiled code, or that a decoder once got wrong.
#[test]
fn decoders_agree_with_capstone_on_rare_instructions() {
    const X86: &[&[u8]] = &[
        &[0x66, 0x0f, 0x3a, 0x61, 0xc1, 0x00], // pcmpestri xmm0, xmm1, 0
        &[0xc4, 0xe3, 0x79, 0x63, 0xc1, 0x00], // vpcmpistri xmm0, xmm1, 0
        &[0x66, 0xb9, 0xb4, 0xac],             // mov cx, 0xacb4
        &[0x66, 0x59],                         // pop cx
        &[0x66, 0x51],                         // push cx
        &[0x66, 0x9c],                         // pushf
        &[0x0f, 0x38, 0xf1, 0x44, 0x24, 0x0c], // movbe dword ptr [rsp + 0xc], eax
        &[0x0f, 0xb4, 0x1e],                   // lfs ebx, [rsi]
        &[0x0f, 0x00, 0xc3],                   // sldt ebx
        &[0xf3, 0x0f, 0x1e, 0xfa],             // endbr64
        &[0xf6, 0xe5],                         // mul ch
        &[0xf3, 0x48, 0xab],                   // rep stosq
        &[0xe3, 0x02],                         // jrcxz
        &[0xc8, 0x10, 0x80, 0x00],             // enter 0x8010, 0
        &[0xc9],                               // leave
    ];
    const A64: &[u32] = &[
        0xf8a8_dd91, // ldrab x17, [x12, #0x468]!
        0x1118_6b9f, // add wsp, w28, #0x61a
        0xd9a0_2400, // st2g x0, [x0], #0x20
        0xa9bf_7bfd, // stp x29, x30, [sp, #-0x10]!
        0xf841_0ffe, // ldr x30, [sp, #0x10]!
    ];
    const A32: &[u32] = &[
        0xe107_0783, // smlabb r7, r3, r7, r0
        0xe127_00a3, // smulwb r7, r3, r0
        0xe92d_4ff0, // push {r4-r11, lr}
        0xe49d_f004, // pop {pc}
        0xed2d_8b10, // vpush {d8-d15}
    ];
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let mut tally = Tally::default();
    tally.sweep(Set::X86, &X86.concat(), 0x1000);
    tally.sweep(Set::A64, &words(A64), 0x1000);
    tally.sweep(Set::A32, &words(A32), 0x1000);
    tally.print("rare instructions");
    assert_eq!(tally.compared, (X86.len() + A64.len() + A32.len()) as u64);
    assert_eq!(tally.unknown, 0);
    assert!(
        tally.unexplained.is_empty(),
        "unexplained differences, see above"
    );
}

fn check(paths: &[PathBuf], least: u64) {
    let mut all = Tally::default();
    for path in paths {
        all.program(path);
    }
    all.print(&format!("{} programs", paths.len()));
    assert!(
        all.unexplained.is_empty(),
        "unexplained differences, see above"
    );
    assert!(all.compared >= least, "only {} compared", all.compared);
}
