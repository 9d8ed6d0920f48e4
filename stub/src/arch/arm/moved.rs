//! Moves the instructions that a jump to a collector displaces: assembles code that has their
//! effect at another address.
//!
//! An instruction that depends on its address becomes several instructions. If a thread must leave
//! the collector in the middle of them, the stub completes the instruction for it: each [`Place`]
//! holds the remaining effect.

use super::super::fast::{Order, Standing};
use super::assembler::{Assembler, LR, PC, R};
use super::collector::{JUMP, is_t32};
use super::displace::{a32_is_free, halves, t32_is_free};
use super::flow::{ALWAYS, Flow};
use super::relative::{self, Value};
use super::user_regs::{set_word, word};
use super::{a32, t32};

/// The way to move an instruction.
enum Moved {
    /// It is copied unchanged.
    Copied,
    Set(u8, Value),
    /// It jumps to an address whose lowest bit is the instruction set.
    Goes {
        to: u32,
        when: When,
        /// Whether it sets the link register.
        links: bool,
    },
}

#[derive(PartialEq, Eq)]
enum When {
    Always,
    Flags(u8),
    /// The encoding of the instruction itself, CBZ or CBNZ.
    Zero(u16),
}

/// A place in the assembled code at which a thread may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Offset from the collector's start.
    pub(super) offset: usize,
    pub(super) standing: Standing,
    /// The address at which the thread would be without the collector. Bit 0 selects T32.
    pub(super) goes_to: u32,
    rest: Rest,
}

/// The remaining effect of an instruction that has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    Nothing,
    Set(u8, u32),
    Add(u8, u32),
    Load(u8, u32),
}

impl Place {
    /// Applies the remaining effect. `None` if memory cannot be read.
    pub(super) fn finish(
        &self,
        general: &mut [u8],
        read: &dyn Fn(u64, &mut [u8]) -> bool,
    ) -> Option<()> {
        let (register, value) = match self.rest {
            Rest::Nothing => return Some(()),
            Rest::Set(register, value) => (register, value),
            Rest::Add(register, value) => {
                (register, word(general, register.into()).wrapping_add(value))
            }
            Rest::Load(register, address) => {
                let mut value = [0; 4];
                if !read(address.into(), &mut value) {
                    return None;
                }
                (register, u32::from_le_bytes(value))
            }
        };
        set_word(general, register.into(), value);
        Some(())
    }
}

/// Length of the first instructions, as many as the jump needs, in bytes. `None` if one of them
/// cannot be moved.
pub(super) fn length(kind: usize, code: &[u8], at: u64) -> Option<usize> {
    let mut done = 0;
    while done < JUMP {
        let (length, moved) = decode(kind, code.get(done..)?, at.wrapping_add(done as u64) as u32)?;
        done += length;
        if matches!(moved, Moved::Goes { .. }) && done < JUMP {
            return None;
        }
    }
    Some(done)
}

/// The first instruction's length, and the way to move it.
fn decode(kind: usize, code: &[u8], at: u32) -> Option<(usize, Moved)> {
    let thumb = is_t32(kind);
    let (instruction, free, set) = if thumb {
        let (first, second) = halves(code)?;
        let set = relative::t32(first, second, at);
        (t32::decode(first, second), t32_is_free(first, second), set)
    } else {
        let code = u32::from_le_bytes(*code.first_chunk()?);
        let set = relative::a32(code, at).filter(|_| code >> 28 == u32::from(ALWAYS));
        (a32::decode(code), a32_is_free(code), set)
    };
    let length = instruction.size as usize;
    if code.len() < length {
        return None;
    }
    let pc = at.wrapping_add(if thumb { 4 } else { 8 });
    let goes = |to: u32, when, links| Moved::Goes { to, when, links };
    let moved = match instruction.flow {
        _ if free => Moved::Copied,
        Flow::Register {
            register,
            link: false,
        }
        | Flow::Plain {
            register,
            add: false,
        } if register != PC as u8 => Moved::Copied,
        Flow::Next => match set? {
            // Not the stack pointer: a signal frame may be written there at any time.
            (13, _) | (_, Value::Entry(..)) => return None,
            // Not a literal in the bytes that the jump will replace.
            (_, Value::Word(address)) if address.wrapping_sub(at).wrapping_add(8) < 16 => {
                return None;
            }
            (register, value) => Moved::Set(register, value),
        },
        Flow::Jump {
            offset,
            exchange,
            link,
        } => {
            let when = match instruction.condition {
                condition if condition >= ALWAYS => When::Always,
                condition => When::Flags(condition),
            };
            if link && when != When::Always {
                return None;
            }
            let from = if exchange { pc & !3 } else { pc };
            goes(
                from.wrapping_add_signed(offset) | u32::from(thumb != exchange),
                when,
                link,
            )
        }
        Flow::JumpIfZero { offset, .. } => {
            let (first, _) = halves(code)?;
            goes(pc.wrapping_add(offset) | 1, When::Zero(first), false)
        }
        _ => return None,
    };
    Some((length, moved))
}

/// Assembles the displaced instructions in their instruction set, and the jump back. Returns the
/// places at which a thread may be.
pub(super) fn assemble(a: &mut Assembler, order: &Order) -> Option<Vec<Place>> {
    let thumb = is_t32(order.kind);
    let at = u32::try_from(order.at).ok()?;
    let all = order.displaced.len();
    let in_set = |address: u32| address | u32::from(thumb);
    let standing = |done: usize| match done {
        0 => Standing::Dealt,
        done if done == all => Standing::After,
        _ => Standing::Inside,
    };
    let mut places = Vec::new();
    let mut stands = |a: &Assembler, standing, goes_to, rest| {
        places.push(Place {
            offset: a.at(),
            standing,
            goes_to,
            rest,
        });
    };
    let mut done = 0;
    while done < all {
        let here = at.wrapping_add(done as u32);
        let code = order.displaced.get(done..)?;
        let (length, moved) = decode(order.kind, code, here)?;
        stands(a, standing(done), in_set(here), Rest::Nothing);
        done += length;
        let (standing, next) = (standing(done), in_set(here.wrapping_add(length as u32)));
        match moved {
            Moved::Copied => a.code.extend_from_slice(&code[..length]),
            Moved::Set(register, value) => {
                let r = R::from(register);
                match value {
                    Value::Number(number) => a.ldr_number(thumb, r, number),
                    Value::Word(address) => {
                        a.ldr_number(thumb, r, address);
                        stands(a, standing, next, Rest::Load(register, address));
                        a.ldr_in(thumb, r, r);
                    }
                    // No other register is free, so add one byte after the other.
                    Value::Sum(base, number) => {
                        let (mut base, mut left) = (R::from(base), number);
                        let parts = [0, 8, 16, 24].map(|shift| number & 0xff << shift);
                        for part in parts.into_iter().filter(|part| *part != 0) {
                            if left != number {
                                stands(a, standing, next, Rest::Add(register, left));
                            }
                            a.add_in(thumb, r, base, part);
                            base = r;
                            left -= part;
                        }
                    }
                    Value::Entry(..) => return None,
                }
            }
            Moved::Goes { to, when, links } => {
                if links {
                    a.ldr_number(thumb, LR, next);
                    stands(a, Standing::After, to, Rest::Set(LR as u8, next));
                }
                match when {
                    When::Flags(condition) if !thumb => {
                        a.ldr_number_if(condition, PC, to);
                    }
                    When::Flags(_) | When::Zero(_) => {
                        // Skips the jump back.
                        a.put_half(match when {
                            When::Zero(code) => code & !0x02f8 | 1 << 3,
                            When::Flags(condition) => 0xd001 | u16::from(condition) << 8,
                            When::Always => return None,
                        });
                        stands(a, Standing::After, next, Rest::Nothing);
                        a.ldr_number(thumb, PC, next);
                        stands(a, Standing::After, to, Rest::Nothing);
                        a.ldr_number(thumb, PC, to);
                        return Some(places);
                    }
                    When::Always => {
                        a.ldr_number(thumb, PC, to);
                        return Some(places);
                    }
                }
            }
        }
    }
    let behind = in_set(at.wrapping_add(all as u32));
    stands(a, Standing::After, behind, Rest::Nothing);
    a.ldr_number(thumb, PC, behind);
    Some(places)
}
