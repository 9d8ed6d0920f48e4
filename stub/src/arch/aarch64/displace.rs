//! Executes an A64 instruction without the processor if it depends on its address, and otherwise
//! makes a copy of it.
//!
//! ```text
//! slot:   the instruction
//!         b       its successor
//! ```

use super::super::{Displaced, Memory};
use super::assembler::jump;
use super::instruction::{Place, Size, When, address, decode};
use super::user_regs::{PC as PC_AT, STATE as FLAGS_AT, set_word, word};

const LR: u8 = 30;
const ZERO: u8 = 31;

/// Executes an instruction that depends on its address. Returns `false` and changes nothing if it
/// is another instruction, or if its memory cannot be read.
pub(crate) fn emulate(code: &[u8], general: &mut [u8], memory: &dyn Memory) -> bool {
    execute(code, general, memory).is_some()
}

fn execute(code: &[u8], general: &mut [u8], memory: &dyn Memory) -> Option<()> {
    let pc = word(general, PC_AT);
    let next = pc.wrapping_add(4);
    let mut goes_to = next;
    match decode(u32::from_le_bytes(*code.first_chunk()?)) {
        Place::Free | Place::Fixed => return None,
        Place::Hint => {}
        Place::Address {
            register,
            offset,
            page,
        } => {
            set_register(general, register, address(pc, offset, page));
        }
        Place::Literal {
            register,
            offset,
            size,
        } => {
            let mut bytes = [0; 8];
            let length = if size == Size::Double { 8 } else { 4 };
            if !memory.load(pc.wrapping_add_signed(offset), &mut bytes[..length]) {
                return None;
            }
            let value = u64::from_le_bytes(bytes);
            let value = match size {
                Size::Signed => i64::from(value as u32 as i32).cast_unsigned(),
                _ => value,
            };
            set_register(general, register, value);
        }
        Place::Jump { when, offset, link } => {
            if taken(when, general) {
                goes_to = pc.wrapping_add_signed(offset);
            }
            if link {
                set_register(general, LR, next);
            }
        }
        Place::Register { register, link } => {
            goes_to = value(general, register);
            if link {
                set_register(general, LR, next);
            }
        }
    }
    set_word(general, PC_AT, goes_to);
    Some(())
}

/// The code for `slot` with the effect that the instruction at `at` has there. `None` if there is
/// no such code.
pub(crate) fn displace(code: &[u8], at: u64, slot: u64, _kind: usize) -> Option<Displaced> {
    let original = *code.first_chunk::<4>()?;
    if decode(u32::from_le_bytes(original)) != Place::Free {
        return None;
    }
    let back = jump(slot.wrapping_add(4), at.wrapping_add(4))?;
    Some(Displaced {
        code: [original, back.to_le_bytes()].concat(),
        length: 4,
    })
}

fn taken(when: When, general: &[u8]) -> bool {
    match when {
        When::Always => true,
        When::Flags(condition) => holds(condition, word(general, FLAGS_AT)),
        When::Zero {
            register,
            wide,
            zero,
        } => {
            let value = value(general, register);
            let value = if wide { value } else { value & 0xffff_ffff };
            (value == 0) == zero
        }
        When::Bit { register, bit, set } => (value(general, register) >> bit & 1 != 0) == set,
    }
}

/// Whether a condition holds (C1.2.4).
fn holds(condition: u8, state: u64) -> bool {
    let flag = |bit: u32| state >> bit & 1 != 0;
    let (n, z, c, v) = (flag(31), flag(30), flag(29), flag(28));
    let holds = match condition >> 1 & 7 {
        0 => z,
        1 => c,
        2 => n,
        3 => v,
        4 => c && !z,
        5 => n == v,
        6 => n == v && !z,
        _ => return true,
    };
    holds == (condition & 1 == 0)
}

/// The value of a register; number 31 is zero in all these instructions.
fn value(general: &[u8], register: u8) -> u64 {
    if register == ZERO {
        0
    } else {
        word(general, register.into())
    }
}

fn set_register(general: &mut [u8], register: u8, value: u64) {
    if register != ZERO {
        set_word(general, register.into(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words(u64, Vec<u8>);

    impl Memory for Words {
        fn load(&self, address: u64, into: &mut [u8]) -> bool {
            let at = address.wrapping_sub(self.0) as usize;
            let bytes = self.1.get(at..at.wrapping_add(into.len()));
            bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
        }

        fn store(&self, _: u64, _: &[u8]) -> bool {
            false
        }
    }

    fn run(code: u32, set: &[(usize, u64)]) -> Vec<u8> {
        let mut general = vec![0; 34 * 8];
        set_word(&mut general, PC_AT, 0x40_0ff8);
        for (index, value) in set {
            set_word(&mut general, *index, *value);
        }
        let memory = Words(0x40_1000, vec![0xf0, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        assert!(
            emulate(&code.to_le_bytes(), &mut general, &memory),
            "{code:#x}"
        );
        general
    }

    #[test]
    fn addresses_and_literals() {
        assert_eq!(word(&run(0x1000_0100, &[]), 0), 0x40_1018); // adr x0, .+32
        let after = run(0xb0ff_ffe1, &[]); // adrp x1, .-3 pages
        assert_eq!(word(&after, 1), 0x3f_d000);
        assert_eq!(word(&after, PC_AT), 0x40_0ffc);
        assert_eq!(word(&run(0x5800_0043, &[]), 3), 0x0403_0201_ffff_fff0);
        assert_eq!(word(&run(0x1800_0043, &[(3, 9)]), 3), 0xffff_fff0);
        assert_eq!(word(&run(0x9800_0043, &[]), 3), 0xffff_ffff_ffff_fff0);
    }

    #[test]
    fn jumps() {
        let pc = |code, set: &[(usize, u64)]| word(&run(code, set), PC_AT);
        assert_eq!(pc(0x5400_0041, &[]), 0x40_1000); // b.ne
        assert_eq!(pc(0x5400_0041, &[(FLAGS_AT, 1 << 30)]), 0x40_0ffc);
        assert_eq!(pc(0x34ff_ffe5, &[(5, 1 << 40)]), 0x40_0ff4); // cbz w5
        assert_eq!(pc(0xb608_0047, &[(7, 1 << 33)]), 0x40_0ffc); // tbz x7, #33
        let call = run(0x97ff_ffff, &[]);
        assert_eq!(
            (word(&call, PC_AT), word(&call, 30)),
            (0x40_0ff4, 0x40_0ffc)
        );
        let call = run(0xd63f_03c0, &[(30, 0x50_0000)]); // blr x30
        assert_eq!(
            (word(&call, PC_AT), word(&call, 30)),
            (0x50_0000, 0x40_0ffc)
        );
    }

    #[test]
    fn other_instructions_are_copied() {
        let code = 0xa9be_7bfd_u32.to_le_bytes();
        let copy = displace(&code, 0x40_0000, 0x40_1000, 4).expect("stp is copied");
        // b .-4096 at 0x401004 goes to 0x400004.
        assert_eq!(copy.code[..4], code);
        assert_eq!(copy.code[4..], 0x17ff_fc00_u32.to_le_bytes());
        assert_eq!(displace(&code, 0, 1 << 28, 4), None);
        assert_eq!(displace(&0x1400_0002_u32.to_le_bytes(), 0, 64, 4), None);
    }
}
