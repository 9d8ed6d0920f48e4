//! The part of an A32 assembler that the collector needs (DDI 0406C, A8), and a few T32
//! instructions. Tests compare the output of each method with objdump.
//!
//! Instructions are unconditional unless the method takes a condition. All immediate operands are
//! our constants, which fit.

/// The number of a register.
pub(super) type R = u32;

pub(super) const SP: R = 13;
pub(super) const LR: R = 14;
pub(super) const PC: R = 15;

/// Conditions (A8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum If {
    Equal = 0,
    NotEqual = 1,
    /// Unsigned comparison: at least, below, above.
    HigherOrSame = 2,
    Lower = 3,
    Higher = 8,
    /// Signed comparison: less.
    Less = 11,
    Always = 14,
}

/// A place in the code, which may be placed after its use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

#[derive(Clone, Copy)]
enum Field {
    /// `b`: 24 bits.
    Jump,
    /// `ldr` from a lower address: 12 bits, subtracted.
    After,
    /// `ldr` from a higher address: 12 bits.
    Ahead,
    /// T32 `ldr` from a higher address, counted from an aligned address; in the second halfword.
    AheadT32,
}

/// A sequence of instructions.
#[derive(Default)]
pub(super) struct Assembler {
    pub(super) code: Vec<u8>,
    labels: Vec<Option<usize>>,
    references: Vec<(usize, Label, Field)>,
    numbers: Vec<(Label, u32)>,
}

pub(super) const NOP: u32 = 0xe320_f000;
/// The T32 `nop`, a halfword.
const NOP_T16: u16 = 0xbf00;
/// `ldr pc, [pc, #-4]`: jumps to the address that follows.
pub(super) const TO_NEXT_WORD: u32 = 0xe51f_f004;

/// `b` from one address to another. `None` if it is out of reach.
pub(super) fn jump(from: u64, to: u64) -> Option<u32> {
    let distance = to.wrapping_sub(from.wrapping_add(8)).cast_signed() / 4;
    (-(1 << 23)..1 << 23)
        .contains(&distance)
        .then_some(0xea00_0000 | distance as u32 & 0x00ff_ffff)
}

/// `b.w` of T32 (encoding T4) from one address to another. `None` if it is out of reach.
pub(super) fn jump_t32(from: u64, to: u64) -> Option<u32> {
    let distance = to.wrapping_sub(from.wrapping_add(4)).cast_signed();
    if !(-(1 << 24)..1 << 24).contains(&distance) {
        return None;
    }
    let bits = distance as u32;
    let sign = bits >> 24 & 1;
    // I1 = NOT(J1 EOR S)
    let (j1, j2) = (!(bits >> 23 ^ sign) & 1, !(bits >> 22 ^ sign) & 1);
    let first = 0xf000 | sign << 10 | bits >> 12 & 0x3ff;
    let second = 0x9000 | j1 << 13 | j2 << 11 | bits >> 1 & 0x7ff;
    Some(first | second << 16)
}

impl Assembler {
    /// Adds the literals after all code, with a label for each.
    pub(super) fn numbers(&mut self) {
        for (label, number) in std::mem::take(&mut self.numbers) {
            self.here(label);
            self.put(number);
        }
    }

    /// Adds a halfword.
    pub(super) fn put_half(&mut self, code: u16) {
        self.code.extend_from_slice(&code.to_le_bytes());
    }

    /// Pads up to the start of a word.
    pub(super) fn align(&mut self) {
        if !self.code.len().is_multiple_of(4) {
            self.put_half(NOP_T16);
        }
    }

    // Not inlined, because there are many calls.
    #[inline(never)]
    pub(super) fn put(&mut self, code: u32) {
        self.code.extend_from_slice(&code.to_le_bytes());
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
            let (to, at_32) = (self.labels[label.0]? as i32, *at as i32);
            let distance = to - (at_32 + 8);
            let bits = match field {
                Field::Jump => (distance / 4) & 0x00ff_ffff,
                Field::After => -distance & 0xfff,
                Field::Ahead => distance & 0xfff,
                Field::AheadT32 => ((to - ((at_32 + 4) & !3)) & 0xfff) << 16,
            };
            for (byte, more) in self.code[*at..*at + 4].iter_mut().zip(bits.to_le_bytes()) {
                *byte |= more;
            }
        }
        Some(())
    }

    /// `b`
    pub(super) fn b(&mut self, to: Label) {
        self.b_if(If::Always, to);
    }

    pub(super) fn b_if(&mut self, when: If, to: Label) {
        self.references.push((self.code.len(), to, Field::Jump));
        self.put((when as u32) << 28 | 0x0a00_0000);
    }

    /// `ldr` of the word at an earlier label.
    pub(super) fn ldr_of(&mut self, t: R, from: Label) {
        self.references.push((self.code.len(), from, Field::After));
        self.put(0xe51f_0000 | t << 12);
    }

    /// `ldr` of a literal after the code, in A32 or T32.
    pub(super) fn ldr_number(&mut self, thumb: bool, t: R, number: u32) {
        if thumb {
            self.ldr_ahead(Field::AheadT32, 0xf8df | t << 28, number);
        } else {
            self.ldr_number_if(If::Always as u8, t, number);
        }
    }

    /// `ldr` of a literal, with a condition, in A32.
    pub(super) fn ldr_number_if(&mut self, condition: u8, t: R, number: u32) {
        let code = u32::from(condition) << 28 | 0x059f_0000 | t << 12;
        self.ldr_ahead(Field::Ahead, code, number);
    }

    fn ldr_ahead(&mut self, field: Field, code: u32, number: u32) {
        let label = self.label();
        self.numbers.push((label, number));
        self.references.push((self.code.len(), label, field));
        self.put(code);
    }

    /// `ldr` in A32 or T32.
    pub(super) fn ldr_in(&mut self, thumb: bool, t: R, n: R) {
        if thumb {
            self.put(0xf8d0 | n | t << 28);
        } else {
            self.ldr(t, n, 0);
        }
    }

    /// `add` of a number with at most eight significant bits, in A32 or T32.
    pub(super) fn add_in(&mut self, thumb: bool, d: R, n: R, number: u32) {
        if !thumb {
            return self.add(d, n, number);
        }
        // A6.3.2: a byte, or a byte whose highest bit is set, rotated to the right.
        let bits = if number < 256 {
            number
        } else {
            let turn = number.leading_zeros() + 8;
            turn << 7 | number.rotate_left(turn) & 0x7f
        };
        let first = 0xf100 | bits >> 11 << 10 | n;
        let second = bits >> 8 << 12 & 0x7000 | d << 8 | bits & 0xff;
        self.put(first | second << 16);
    }

    /// `movw` and, if needed, `movt`.
    pub(super) fn mov(&mut self, d: R, value: u32) {
        let number = |code: u32, half: u32| code | half >> 12 << 16 | d << 12 | half & 0xfff;
        self.put(number(0xe300_0000, value & 0xffff));
        if value >> 16 != 0 {
            self.put(number(0xe340_0000, value >> 16));
        }
    }

    pub(super) fn mov_r(&mut self, d: R, m: R) {
        self.put(0xe1a0_0000 | d << 12 | m);
    }

    /// `mov` of a small number, with a condition.
    pub(super) fn mov_if(&mut self, when: If, d: R, number: u32) {
        self.put((when as u32) << 28 | 0x03a0_0000 | d << 12 | number);
    }

    pub(super) fn mov_r_if(&mut self, when: If, d: R, m: R) {
        self.put((when as u32) << 28 | 0x01a0_0000 | d << 12 | m);
    }

    /// Encodes a number of eight bits, rotated by an even distance (A5.2.4).
    fn number(number: u32) -> u32 {
        let places = (0..16).map(|turn| (turn, number.rotate_left(2 * turn)));
        places
            .filter(|(_, rest)| *rest < 256)
            .map(|(turn, rest)| turn << 8 | rest)
            .next()
            .unwrap_or(0)
    }

    fn put_number(&mut self, code: u32, d: R, n: R, number: u32) {
        self.put(code | n << 16 | d << 12 | Self::number(number));
    }

    fn put_3(&mut self, code: u32, d: R, n: R, m: R) {
        self.put(code | n << 16 | d << 12 | m);
    }

    pub(super) fn add(&mut self, d: R, n: R, number: u32) {
        self.put_number(0xe280_0000, d, n, number);
    }

    pub(super) fn adds(&mut self, d: R, n: R, number: u32) {
        self.put_number(0xe290_0000, d, n, number);
    }

    /// Adds with carry.
    pub(super) fn adc(&mut self, d: R, n: R, number: u32) {
        self.put_number(0xe2a0_0000, d, n, number);
    }

    pub(super) fn subs(&mut self, d: R, n: R, number: u32) {
        self.put_number(0xe250_0000, d, n, number);
    }

    pub(super) fn eor(&mut self, d: R, n: R, number: u32) {
        self.put_number(0xe220_0000, d, n, number);
    }

    pub(super) fn cmp(&mut self, n: R, number: u32) {
        self.put_number(0xe350_0000, 0, n, number);
    }

    /// `d = n + (m << shift)`
    pub(super) fn add_r(&mut self, d: R, n: R, m: R, shift: u32) {
        self.put_3(0xe080_0000 | shift << 7, d, n, m);
    }

    pub(super) fn adds_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xe090_0000, d, n, m);
    }

    pub(super) fn adc_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xe0a0_0000, d, n, m);
    }

    pub(super) fn add_r_if(&mut self, when: If, d: R, n: R, m: R) {
        self.put_3((when as u32) << 28 | 0x0080_0000, d, n, m);
    }

    pub(super) fn sub_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xe040_0000, d, n, m);
    }

    pub(super) fn subs_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xe050_0000, d, n, m);
    }

    pub(super) fn and_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xe000_0000, d, n, m);
    }

    pub(super) fn orrs_r(&mut self, d: R, n: R, m: R) {
        self.put_3(0xe190_0000, d, n, m);
    }

    pub(super) fn cmp_r(&mut self, n: R, m: R) {
        self.put_3(0xe150_0000, 0, n, m);
    }

    /// `low, high = n * m`
    pub(super) fn umull(&mut self, low: R, high: R, n: R, m: R) {
        self.put(0xe080_0090 | high << 16 | low << 12 | m << 8 | n);
    }

    /// `d = a + n * m`
    pub(super) fn mla(&mut self, d: R, n: R, m: R, a: R) {
        self.put(0xe020_0090 | d << 16 | a << 12 | m << 8 | n);
    }

    pub(super) fn lsr(&mut self, d: R, m: R, shift: u32) {
        self.put(0xe1a0_0020 | shift << 7 | d << 12 | m);
    }

    pub(super) fn ldr(&mut self, t: R, n: R, offset: u32) {
        self.ldr_if(If::Always, t, n, offset);
    }

    pub(super) fn ldr_if(&mut self, when: If, t: R, n: R, offset: u32) {
        self.put((when as u32) << 28 | 0x0590_0000 | n << 16 | t << 12 | offset);
    }

    pub(super) fn str(&mut self, t: R, n: R, offset: u32) {
        self.put(0xe580_0000 | n << 16 | t << 12 | offset);
    }

    /// `ldr` of a word or a byte, with the base incremented by its size.
    pub(super) fn ldr_next(&mut self, t: R, n: R, bytes: u32) {
        let byte = u32::from(bytes == 1) << 22;
        self.put(0xe490_0000 | byte | n << 16 | t << 12 | bytes);
    }

    pub(super) fn str_next(&mut self, t: R, n: R, bytes: u32) {
        let byte = u32::from(bytes == 1) << 22;
        self.put(0xe480_0000 | byte | n << 16 | t << 12 | bytes);
    }

    /// `ldmia n!`, with a bit for each register.
    pub(super) fn ldm(&mut self, n: R, registers: u32) {
        self.put(0xe8b0_0000 | n << 16 | registers);
    }

    /// `stmia n!`
    pub(super) fn stm(&mut self, n: R, registers: u32) {
        self.put(0xe8a0_0000 | n << 16 | registers);
    }

    /// `stmdb sp!`
    pub(super) fn push(&mut self, registers: u32) {
        self.put(0xe92d_0000 | registers);
    }

    pub(super) fn ldrex(&mut self, t: R, n: R) {
        self.put(0xe190_0f9f | n << 16 | t << 12);
    }

    /// Stores if the monitor is still set; `s` is then 0.
    pub(super) fn strex(&mut self, s: R, t: R, n: R) {
        self.put(0xe180_0f90 | n << 16 | s << 12 | t);
    }

    /// Loads two registers: `t`, which is even, and the next.
    pub(super) fn ldrexd(&mut self, t: R, n: R) {
        self.put(0xe1b0_0f9f | n << 16 | t << 12);
    }

    pub(super) fn strexd(&mut self, s: R, t: R, n: R) {
        self.put(0xe1a0_0f90 | n << 16 | s << 12 | t);
    }

    pub(super) fn dmb(&mut self) {
        self.put(0xf57f_f05b);
    }

    pub(super) fn isb(&mut self) {
        self.put(0xf57f_f06f);
    }

    /// Reads the flags, with the other bits of the state that a program sees.
    pub(super) fn mrs(&mut self, d: R) {
        self.put(0xe10f_0000 | d << 12);
    }

    /// Writes the flags.
    pub(super) fn msr(&mut self, n: R) {
        self.put(0xe128_f000 | n);
    }

    /// Reads the thread pointer: TPIDRURO.
    pub(super) fn thread_pointer(&mut self, t: R) {
        self.put(0xee1d_0f70 | t << 12);
    }

    /// Reads the clock that all processors share: CNTVCT.
    pub(super) fn clock(&mut self, low: R, high: R) {
        self.put(0xec50_0f1e | high << 16 | low << 12);
    }

    /// The instruction that Linux reports as a trap.
    pub(super) fn trap(&mut self) {
        self.put(0xe7f0_01f0);
    }
}

#[cfg(test)]
mod tests;
