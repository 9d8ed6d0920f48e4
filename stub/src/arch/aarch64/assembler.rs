//! The part of an A64 assembler that the collector needs (Arm ARM DDI 0487, C6.2). Tests compare
//! the output of each method with objdump.
//!
//! Registers are numbers; 31 is the stack pointer or zero, depending on the instruction. All
//! immediate operands are our constants, which fit.

/// The number of a register.
pub(super) type R = u8;

/// Register 31 as zero, and as the stack pointer.
pub(super) const ZR: R = 31;
pub(super) const SP: R = 31;

/// Conditions (C1.2.4).
#[derive(Clone, Copy)]
pub(super) enum If {
    Equal = 0,
    NotEqual = 1,
    /// Unsigned comparison: at least, below, above.
    HigherOrSame = 2,
    Lower = 3,
    Higher = 8,
    /// Signed comparison: less.
    Less = 11,
}

/// System registers: bits 20 to 5 of `mrs` and `msr` (C5.2, D19).
#[derive(Clone, Copy)]
pub(super) enum System {
    /// The flags.
    Nzcv = 0xda10,
    /// The thread pointer.
    ThreadPointer = 0xde82,
    /// The clock that all processors share.
    Clock = 0xdf02,
}

/// A place in the code, which may be placed after its use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// The field that holds a distance to a label.
#[derive(Clone, Copy)]
enum Field {
    /// 26 bits at bit 0.
    Jump,
    /// 19 bits at bit 5.
    Near,
}

/// A sequence of instructions.
#[derive(Default)]
pub(super) struct Assembler {
    pub(super) code: Vec<u8>,
    labels: Vec<Option<usize>>,
    references: Vec<(usize, Label, Field)>,
}

pub(super) const NOP: u32 = 0xd503_201f;

/// `b` from one address to another. `None` if it is out of reach.
pub(super) fn jump(from: u64, to: u64) -> Option<u32> {
    let distance = to.wrapping_sub(from).cast_signed() / 4;
    (-(1 << 25)..1 << 25)
        .contains(&distance)
        .then_some(0x1400_0000 | distance as u32 & 0x03ff_ffff)
}

impl Assembler {
    /// Adds an instruction.
    pub(super) fn put(&mut self, code: u32) {
        self.code.extend_from_slice(&code.to_le_bytes());
    }

    fn put_3(&mut self, code: u32, d: R, n: R, m: R) {
        self.put(code | u32::from(m) << 16 | u32::from(n) << 5 | u32::from(d));
    }

    /// The offset of the next instruction.
    pub(super) fn at(&self) -> usize {
        self.code.len()
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    pub(super) fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// A label for the next instruction.
    pub(super) fn mark(&mut self) -> Label {
        let label = self.label();
        self.here(label);
        label
    }

    /// Fills in all references. `None` if a label was never placed.
    pub(super) fn link(&mut self) -> Option<()> {
        for (at, label, field) in &self.references {
            let target = self.labels[label.0]?;
            let distance = (target as i32 - *at as i32) / 4;
            let bits = match field {
                Field::Jump => distance & 0x03ff_ffff,
                Field::Near => (distance & 0x7_ffff) << 5,
            };
            for (byte, more) in self.code[*at..*at + 4].iter_mut().zip(bits.to_le_bytes()) {
                *byte |= more;
            }
        }
        Some(())
    }

    fn refer(&mut self, code: u32, to: Label, field: Field) {
        self.references.push((self.code.len(), to, field));
        self.put(code);
    }

    /// `b`
    pub(super) fn b(&mut self, to: Label) {
        self.refer(0x1400_0000, to, Field::Jump);
    }

    /// `b.cond`
    pub(super) fn b_if(&mut self, when: If, to: Label) {
        self.b_when(when as u32, to);
    }

    /// `b.cond`, with the condition's number.
    pub(super) fn b_when(&mut self, when: u32, to: Label) {
        self.refer(0x5400_0000 | when, to, Field::Near);
    }

    /// `cbz` of 64 bits.
    pub(super) fn cbz(&mut self, t: R, to: Label) {
        self.refer(0xb400_0000 | u32::from(t), to, Field::Near);
    }

    /// `cbnz` of 64 bits.
    pub(super) fn cbnz(&mut self, t: R, to: Label) {
        self.refer(0xb500_0000 | u32::from(t), to, Field::Near);
    }

    /// `cbnz` of 32 bits.
    pub(super) fn cbnz_w(&mut self, t: R, to: Label) {
        self.refer(0x3500_0000 | u32::from(t), to, Field::Near);
    }

    /// `ldr` of the 32-bit word at a label.
    pub(super) fn ldr_w_of(&mut self, t: R, from: Label) {
        self.refer(0x1800_0000 | u32::from(t), from, Field::Near);
    }

    pub(super) fn nop(&mut self) {
        self.put(NOP);
    }

    pub(super) fn brk(&mut self) {
        self.put(0xd420_0000);
    }

    pub(super) fn isb(&mut self) {
        self.put(0xd503_3fdf);
    }

    /// Orders all earlier loads before all later memory accesses.
    pub(super) fn dmb_ishld(&mut self) {
        self.put(0xd503_39bf);
    }

    pub(super) fn mrs(&mut self, t: R, from: System) {
        self.put(0xd520_0000 | (from as u32) << 5 | u32::from(t));
    }

    pub(super) fn msr(&mut self, to: System, t: R) {
        self.put(0xd500_0000 | (to as u32) << 5 | u32::from(t));
    }

    /// `movz`, and `movk` for the other non-zero halfwords.
    pub(super) fn mov(&mut self, d: R, value: u64) {
        let mut code = 0xd280_0000;
        for part in 0..4 {
            let bits = (value >> (16 * part)) as u32 & 0xffff;
            if bits != 0 || value == 0 && part == 0 {
                self.put(code | part << 21 | bits << 5 | u32::from(d));
                code = 0xf280_0000;
            }
        }
    }

    pub(super) fn mov_r(&mut self, d: R, m: R) {
        self.put_3(0xaa00_0000, d, ZR, m);
    }

    /// Encodes a number below 4096, or a multiple of 4096.
    fn small(number: u32) -> u32 {
        if number < 4096 {
            number << 10
        } else {
            1 << 22 | (number >> 12 & 0xfff) << 10
        }
    }

    pub(super) fn add(&mut self, d: R, n: R, number: u32) {
        self.put_3(0x9100_0000 | Self::small(number), d, n, 0);
    }

    pub(super) fn sub(&mut self, d: R, n: R, number: u32) {
        self.put_3(0xd100_0000 | Self::small(number), d, n, 0);
    }

    pub(super) fn subs(&mut self, d: R, n: R, number: u32) {
        self.put_3(0xf100_0000 | Self::small(number), d, n, 0);
    }

    pub(super) fn adds(&mut self, d: R, n: R, number: u32) {
        self.put_3(0xb100_0000 | Self::small(number), d, n, 0);
    }

    pub(super) fn cmp(&mut self, n: R, number: u32) {
        self.subs(ZR, n, number);
    }

    /// `d = n + (m << shift)`
    pub(super) fn add_r(&mut self, d: R, n: R, m: R, shift: u8) {
        self.put_3(0x8b00_0000 | u32::from(shift) << 10, d, n, m);
    }

    pub(super) fn sub_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xcb00_0000, d, n, m);
    }

    pub(super) fn subs_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xeb00_0000, d, n, m);
    }

    pub(super) fn cmp_r(&mut self, n: R, m: R) {
        self.subs_r(ZR, n, m);
    }

    /// `cmp` of 32 bits.
    pub(super) fn cmp_w(&mut self, n: R, m: R) {
        self.put_3(0x6b00_0000, ZR, n, m);
    }

    pub(super) fn eor_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xca00_0000, d, n, m);
    }

    pub(super) fn mul(&mut self, d: R, n: R, m: R) {
        self.put_3(0x9b00_7c00, d, n, m);
    }

    /// `d = a + n * m`
    pub(super) fn madd(&mut self, d: R, n: R, m: R, a: R) {
        self.put_3(0x9b00_0000 | u32::from(a) << 10, d, n, m);
    }

    pub(super) fn lsr(&mut self, d: R, n: R, shift: u8) {
        self.put_3(0xd340_fc00, d, n, shift);
    }

    pub(super) fn asr(&mut self, d: R, n: R, shift: u8) {
        self.put_3(0x9340_fc00, d, n, shift);
    }

    pub(super) fn and_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0x8a00_0000, d, n, m);
    }

    /// `d = when ? n : m`
    pub(super) fn csel(&mut self, d: R, n: R, m: R, when: If) {
        self.put_3(0x9a80_0000 | (when as u32) << 12, d, n, m);
    }

    /// `ldr` of 64 bits; the offset is in bytes.
    pub(super) fn ldr(&mut self, t: R, n: R, offset: u32) {
        self.put_3(0xf940_0000 | (offset / 8) << 10, t, n, 0);
    }

    pub(super) fn str(&mut self, t: R, n: R, offset: u32) {
        self.put_3(0xf900_0000 | (offset / 8) << 10, t, n, 0);
    }

    /// `ldr` of 32 bits.
    pub(super) fn ldr_w(&mut self, t: R, n: R, offset: u32) {
        self.put_3(0xb940_0000 | (offset / 4) << 10, t, n, 0);
    }

    pub(super) fn str_w(&mut self, t: R, n: R, offset: u32) {
        self.put_3(0xb900_0000 | (offset / 4) << 10, t, n, 0);
    }

    /// `ldp` of two registers, up to 504 bytes from the base.
    pub(super) fn ldp(&mut self, [t, u]: [R; 2], n: R, offset: u32) {
        self.put_3(
            0xa940_0000 | (offset / 8) << 15 | u32::from(u) << 10,
            t,
            n,
            0,
        );
    }

    pub(super) fn stp(&mut self, [t, u]: [R; 2], n: R, offset: u32) {
        self.put_3(
            0xa900_0000 | (offset / 8) << 15 | u32::from(u) << 10,
            t,
            n,
            0,
        );
    }

    /// `ldr` of 1 or 8 bytes, with the base incremented by that number.
    pub(super) fn ldr_next(&mut self, t: R, n: R, bytes: u32) {
        let size = bytes.trailing_zeros() << 30;
        self.put_3(0x3840_0400 | size | bytes << 12, t, n, 0);
    }

    pub(super) fn str_next(&mut self, t: R, n: R, bytes: u32) {
        let size = bytes.trailing_zeros() << 30;
        self.put_3(0x3800_0400 | size | bytes << 12, t, n, 0);
    }

    /// Load-acquire: later memory accesses happen after it.
    pub(super) fn ldar(&mut self, t: R, n: R) {
        self.put_3(0xc8df_fc00, t, n, 0);
    }

    /// Store-release: earlier memory accesses happen before it.
    pub(super) fn stlr(&mut self, t: R, n: R) {
        self.put_3(0xc89f_fc00, t, n, 0);
    }

    pub(super) fn ldaxr(&mut self, t: R, n: R) {
        self.put_3(0xc85f_fc00, t, n, 0);
    }

    /// Stores if the monitor is still set; `s` is then 0.
    pub(super) fn stlxr(&mut self, s: R, t: R, n: R) {
        self.put_3(0xc800_fc00, t, n, s);
    }

    pub(super) fn ldaxr_w(&mut self, t: R, n: R) {
        self.put_3(0x885f_fc00, t, n, 0);
    }

    pub(super) fn stlxr_w(&mut self, s: R, t: R, n: R) {
        self.put_3(0x8800_fc00, t, n, s);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The code as objdump shows it, with single spaces.
    fn disassembled(code: &[u8]) -> Vec<String> {
        let file =
            std::env::temp_dir().join(format!("unspool-a64-{:?}", std::thread::current().id()));
        std::fs::write(&file, code).unwrap();
        let output = Command::new("aarch64-linux-gnu-objdump")
            .args(["-D", "-b", "binary", "-m", "aarch64"])
            .arg(&file)
            .output()
            .expect("binutils-aarch64-linux-gnu");
        std::fs::remove_file(&file).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(":\t"));
        lines
            .map(|(_, line)| {
                let words: Vec<&str> = line.split_whitespace().skip(1).collect();
                let words = words.join(" ");
                words.split(" //").next().unwrap().trim().to_owned()
            })
            .collect()
    }

    /// An instruction, and objdump's text.
    type Row = (fn(&mut Assembler), &'static [&'static str]);

    const STRAIGHT: &[Row] = &[
        (|a| a.nop(), &["nop"]),
        (|a| a.brk(), &["brk #0x0"]),
        (|a| a.isb(), &["isb"]),
        (|a| a.dmb_ishld(), &["dmb ishld"]),
        (|a| a.mrs(9, System::ThreadPointer), &["mrs x9, tpidr_el0"]),
        (|a| a.mrs(0, System::Nzcv), &["mrs x0, nzcv"]),
        (|a| a.msr(System::Nzcv, 0), &["msr nzcv, x0"]),
        (|a| a.mrs(5, System::Clock), &["mrs x5, cntvct_el0"]),
        (|a| a.mov(3, 0), &["mov x3, #0x0"]),
        (
            |a| a.mov(3, 0xffff_8000_0000_1234),
            &[
                "mov x3, #0x1234",
                "movk x3, #0x8000, lsl #32",
                "movk x3, #0xffff, lsl #48",
            ],
        ),
        (|a| a.mov(4, 1 << 16), &["mov x4, #0x10000"]),
        (|a| a.mov_r(1, 30), &["mov x1, x30"]),
        (|a| a.add(8, 10, 0x4000), &["add x8, x10, #0x4, lsl #12"]),
        (|a| a.add(13, SP, 160), &["add x13, sp, #0xa0"]),
        (|a| a.sub(SP, SP, 160), &["sub sp, sp, #0xa0"]),
        (|a| a.subs(2, 2, 64), &["subs x2, x2, #0x40"]),
        (|a| a.adds(2, 2, 64), &["adds x2, x2, #0x40"]),
        (|a| a.cmp(1, 4096), &["cmp x1, #0x1, lsl #12"]),
        (|a| a.add_r(8, 8, 0, 5), &["add x8, x8, x0, lsl #5"]),
        (|a| a.add_r(8, 9, 7, 0), &["add x8, x9, x7"]),
        (|a| a.sub_r(0, 12, 13), &["sub x0, x12, x13"]),
        (|a| a.subs_r(2, 12, 1), &["subs x2, x12, x1"]),
        (|a| a.cmp_r(13, 2), &["cmp x13, x2"]),
        (|a| a.cmp_w(0, 1), &["cmp w0, w1"]),
        (|a| a.eor_r(8, 8, 1), &["eor x8, x8, x1"]),
        (|a| a.mul(0, 0, 9), &["mul x0, x0, x9"]),
        (|a| a.madd(16, 0, 1, 2), &["madd x16, x0, x1, x2"]),
        (|a| a.lsr(0, 1, 54), &["lsr x0, x1, #54"]),
        (|a| a.asr(0, 11, 32), &["asr x0, x11, #32"]),
        (|a| a.and_r(0, 0, 14), &["and x0, x0, x14"]),
        (
            |a| a.csel(2, 2, ZR, If::HigherOrSame),
            &["csel x2, x2, xzr, cs"],
        ),
        (|a| a.ldr(0, SP, 144), &["ldr x0, [sp, #144]"]),
        (|a| a.str(0, 16, 504), &["str x0, [x16, #504]"]),
        (|a| a.ldr_w(1, 0, 96), &["ldr w1, [x0, #96]"]),
        (|a| a.str_w(1, 16, 68), &["str w1, [x16, #68]"]),
        (|a| a.ldp([4, 5], SP, 32), &["ldp x4, x5, [sp, #32]"]),
        (|a| a.stp([30, 0], 16, 336), &["stp x30, x0, [x16, #336]"]),
        (|a| a.ldr_next(4, 1, 8), &["ldr x4, [x1], #8"]),
        (|a| a.ldr_next(4, 1, 1), &["ldrb w4, [x1], #1"]),
        (|a| a.str_next(4, 3, 8), &["str x4, [x3], #8"]),
        (|a| a.str_next(4, 3, 1), &["strb w4, [x3], #1"]),
        (|a| a.ldar(0, 8), &["ldar x0, [x8]"]),
        (|a| a.stlr(0, 15), &["stlr x0, [x15]"]),
        (|a| a.ldaxr(14, 10), &["ldaxr x14, [x10]"]),
        (|a| a.stlxr(1, 0, 10), &["stlxr w1, x0, [x10]"]),
        (|a| a.ldaxr_w(2, 1), &["ldaxr w2, [x1]"]),
        (|a| a.stlxr_w(3, 0, 1), &["stlxr w3, w0, [x1]"]),
    ];

    #[test]
    fn as_objdump_reads_it() {
        for (make, texts) in STRAIGHT {
            let mut a = Assembler::default();
            make(&mut a);
            let seen = disassembled(&a.code);
            // One instruction may have two names.
            let same = seen == *texts || seen.len() == 1 && texts.contains(&&*seen[0]);
            assert!(same, "{seen:?}, expected {texts:?}");
        }
    }

    #[test]
    fn labels_ahead_and_behind() {
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
        a.cbz(3, ahead);
        a.cbnz(17, behind);
        a.here(ahead);
        a.cbnz_w(1, behind);
        a.ldr_w_of(2, behind);
        a.b(behind);
        assert_eq!(a.link(), Some(()));
        let expected = [
            "b 0x24",
            "b.eq 0x24",
            "b.ne 0x24",
            "b.cs 0x24",
            "b.cc 0x0",
            "b.hi 0x0",
            "b.lt 0x0",
            "cbz x3, 0x24",
            "cbnz x17, 0x0",
            "cbnz w1, 0x0",
            "ldr w2, 0x0",
            "b 0x0",
        ];
        let seen: Vec<String> = disassembled(&a.code)
            .into_iter()
            .map(|line| line.split(" <").next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(seen, expected);
        let nowhere = a.label();
        a.b(nowhere);
        assert_eq!(a.link(), None);
        assert_eq!(jump(0x40_0004, 0x40_0000), Some(0x17ff_ffff));
        assert_eq!(jump(0, 1 << 27), None);
    }
}
