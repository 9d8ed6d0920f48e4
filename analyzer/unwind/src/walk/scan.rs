//! The last resort: words on the stack that look like return addresses.

use unspool_image::Arch;

use super::State;
use super::step::Step;
use crate::memory::{StackMemory, read_pointer};
use crate::modules::ModuleMap;
use crate::registers::RegisterFile;

/// Number of words to search.
const MAX_WORDS: u64 = 256;

/// The first word from `sp` upward that points to known code directly after a call.
pub(super) fn step(
    modules: &ModuleMap,
    here: &State,
    sp: u64,
    memory: &mut dyn StackMemory,
) -> Option<Step> {
    let size = if modules.arch() == Arch::Arm { 4u64 } else { 8 };
    for index in 0..MAX_WORDS {
        let at = sp.checked_add(index * size)?;
        let word = read_pointer(memory, at, size as usize).ok()?;
        let step = Step::new(here, at + size, word);
        if follows_call(modules, &step.registers) {
            return Some(step);
        }
    }
    None
}

/// Whether the instruction before these registers' pc is a call.
pub(super) fn follows_call(modules: &ModuleMap, registers: &RegisterFile) -> bool {
    let caller = Caller::of(modules, registers);
    caller.is_some_and(|caller| caller.called_directly() || caller.called_indirectly())
}

/// Whether the instruction before these registers' pc is a call of an address in a register or in
/// memory.
pub(super) fn follows_indirect_call(modules: &ModuleMap, registers: &RegisterFile) -> bool {
    Caller::of(modules, registers).is_some_and(|caller| caller.called_indirectly())
}

/// Code before a return address.
struct Caller<'m> {
    modules: &'m ModuleMap,
    pc: u64,
    thumb: bool,
}

impl<'m> Caller<'m> {
    fn of(modules: &'m ModuleMap, registers: &RegisterFile) -> Option<Caller<'m>> {
        let pc = registers.pc().filter(|pc| *pc > 8)?;
        modules.is_text(pc - 1).then(|| Caller {
            modules,
            pc,
            thumb: registers.thumb(),
        })
    }

    fn before(&self, len: u64) -> Option<&'m [u8]> {
        self.modules.bytes(self.pc - len, len as usize)
    }

    /// The last word; `None` if the address is not aligned.
    fn word(&self) -> Option<u32> {
        let bytes = self.before(4).filter(|_| self.pc & 3 == 0)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn called_directly(&self) -> bool {
        match self.modules.arch() {
            // e8 rel32
            Arch::X86_64 => self.before(5).is_some_and(|b| b[0] == 0xe8),
            // bl: 100101..
            Arch::Aarch64 => self.word().is_some_and(|w| w >> 26 == 0x25),
            // bl, blx: 11110..., 11x1....
            _ if self.thumb => self
                .before(4)
                .is_some_and(|b| half(0, b) & 0xf800 == 0xf000 && half(2, b) & 0xc000 == 0xc000),
            // bl: cond 1011; blx label: 1111101h
            _ => self
                .word()
                .is_some_and(|w| w >> 24 & 0xf == 0xb && w >> 28 != 0xf || w >> 25 == 0x7d),
        }
    }

    fn called_indirectly(&self) -> bool {
        match self.modules.arch() {
            // ff /2 with a ModRM of 1 to 6 further bytes
            Arch::X86_64 => (2..=7).any(|len| {
                self.before(len)
                    .is_some_and(|b| b[0] == 0xff && call_length(b[1], b.get(2)) == Some(len))
            }),
            // blr, blraa..: 1101011x 00111111
            Arch::Aarch64 => self
                .word()
                .is_some_and(|w| w & 0xfe7f_0000 == 0xd63f_0000 & 0xfe7f_0000),
            // blx register: 01000111 1mmmm000
            _ if self.thumb => self
                .before(2)
                .is_some_and(|b| half(0, b) & 0xff87 == 0x4780),
            // blx register: 00010010 1111 1111 1111 0011; mov lr, pc; then a jump
            _ => {
                let link = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                self.word().is_some_and(|w| w & 0x0fff_fff0 == 0x012f_ff30)
                    || self
                        .before(8)
                        .filter(|_| self.pc & 3 == 0)
                        .is_some_and(|b| link(b) & 0x0fff_ffff == 0x01a0_e00f)
            }
        }
    }
}

fn half(at: usize, bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Length of `ff /2` with this ModRM byte (and SIB); `None` if it is not a near indirect call.
fn call_length(modrm: u8, sib: Option<&u8>) -> Option<u64> {
    if modrm >> 3 & 7 != 2 {
        return None;
    }
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let sib_bytes = u64::from(mode != 3 && rm == 4);
    Some(
        2 + sib_bytes
            + match mode {
                0 if rm == 5 => 4,
                0 if rm == 4 && sib.is_some_and(|sib| sib & 7 == 5) => 4,
                0 | 3 => 0,
                1 => 1,
                _ => 4,
            },
    )
}
