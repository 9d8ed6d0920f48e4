//! Loads and stores of A32: single, multiple, coprocessor and vector. T32 uses them, too, because
//! the same fields have the same meaning there.

use super::{PC, SP, WORD, bit, field, writes};
use crate::code::effect::{Effect, Flow, InstructionBuilder, Table, TableForm};

/// The base register's update. Rm = 15: none; 13: by the transfer's size; else by Rm (ARM ARM
/// A7.7). The size rarely matters, because these instructions do not use sp. If one does, sp
/// becomes unknown.
pub(super) fn element_writeback(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    if w & 0xf == 15 {
        builder
    } else {
        writes(builder, 1 << field(w, 16))
    }
}

/// `vldm`, `vstm`, `vldr`, `vstr`, `ldc`, `stc`, and the two-register moves: cond 110P UDWL Rn.
///
/// T32 uses this, too. `pc` is the value of the program counter that the instruction reads.
pub(in crate::code) fn coprocessor_transfer(
    builder: InstructionBuilder<'_>,
    w: u32,
    pc: u64,
) -> InstructionBuilder<'_> {
    let (p, u, d, write, load) = (bit(w, 24), bit(w, 23), bit(w, 22), bit(w, 21), bit(w, 20));
    let rn = field(w, 16);
    if !p && !u && !write {
        // mrrc, vmov of two core registers: 1100 010L Rt2 Rt
        return if d && load {
            writes(builder, 1 << field(w, 12) | 1 << rn)
        } else {
            builder
        };
    }
    // FLDMX, FSTMX: the odd count includes the extra word; it is part of the size.
    let bytes = ((w & 0xff) << 2) as i32;
    let bytes = if u { bytes } else { -bytes };
    // vldr: 101x, of 4 or 8 bytes
    if rn == PC && p && !write && load && w >> 9 & 7 == 0b101 {
        data(
            builder,
            pc.wrapping_add_signed(bytes.into()),
            if bit(w, 8) { 8 } else { 4 },
        )
    } else if write {
        builder.effect(Effect::Add {
            to: rn,
            from: rn,
            by: bytes,
        })
    } else {
        builder
    }
}

/// A5.2.8: halfwords, signed bytes, doublewords
pub(super) fn extra_load_store(
    builder: InstructionBuilder<'_>,
    w: u32,
    svma: u64,
) -> InstructionBuilder<'_> {
    let (rn, rt) = (field(w, 16), field(w, 12));
    let (load, kind) = (bit(w, 20), w >> 5 & 3);
    let immediate = bit(w, 22);
    let offset = (w >> 4 & 0xf0 | w & 0xf) as i32;
    let offset = if bit(w, 23) { offset } else { -offset };
    let double = !load && kind != 1;
    let mask = 1u32 << rt | u32::from(double) << (rt + 1);
    let store = !load && kind != 2;
    let address = Address {
        rn,
        offset: immediate.then_some(offset),
        index: bit(w, 24),
        write: !bit(w, 24) || bit(w, 21),
    };
    if rn == PC && immediate && !store {
        let at = svma.wrapping_add(8).wrapping_add_signed(offset.into());
        data(builder, at, 8).clobber(mask & 0x7fff)
    } else if store && kind == 3 {
        address.transfer(builder, |base, offset| Effect::Store { base, offset, mask })
    } else if store {
        // A halfword is never loaded into or stored to the slot of a saved register.
        address.transfer(builder, |_, _| Effect::Clobber(0))
    } else if double {
        address.transfer(builder, |base, offset| Effect::Load { base, offset, mask })
    } else {
        address.transfer(builder, |_, _| Effect::Clobber(mask & 0x7fff))
    }
}

/// The addressing mode: a base register, an offset, and whether and when it is added.
pub(in crate::code) struct Address {
    pub(in crate::code) rn: u8,
    /// The immediate offset. `None` if it is a register.
    pub(in crate::code) offset: Option<i32>,
    /// The offset is added before the access.
    pub(in crate::code) index: bool,
    /// The base register gets the sum.
    pub(in crate::code) write: bool,
}

impl Address {
    /// The access `effect(base, offset)` and the change of the base register, in an order in which
    /// both are right.
    pub(in crate::code) fn transfer<'m>(
        &self,
        builder: InstructionBuilder<'m>,
        effect: impl Fn(u8, i32) -> Effect,
    ) -> InstructionBuilder<'m> {
        let instruction = builder.base(self.rn);
        let Some(offset) = self.offset else {
            // The address is unknown: ignore a store, and clobber what a load writes.
            let access = match effect(self.rn, 0) {
                Effect::Load { mask, .. } => Effect::Clobber(mask & 0x7fff),
                Effect::Store { .. } => Effect::Clobber(0),
                other => other,
            };
            let instruction = instruction.effect(access);
            return if self.write {
                instruction.clobber(1 << self.rn)
            } else {
                instruction
            };
        };
        let add = Effect::Add {
            to: self.rn,
            from: self.rn,
            by: offset,
        };
        match (self.index, self.write) {
            (true, false) => instruction.effect(effect(self.rn, offset)),
            (false, false) => instruction.effect(effect(self.rn, 0)),
            // A store below sp would be forgotten when sp moves, so move sp first.
            (true, true) => instruction.effect(add).effect(effect(self.rn, 0)),
            (false, true) => match effect(self.rn, 0) {
                access @ Effect::Load { mask, .. } if mask >> self.rn & 1 == 1 => {
                    instruction.effect(access)
                }
                access => instruction.effect(access).effect(add),
            },
        }
    }
}

/// A5.3: words and bytes
pub(super) fn load_store(
    builder: InstructionBuilder<'_>,
    w: u32,
    svma: u64,
) -> InstructionBuilder<'_> {
    let (rn, rt) = (field(w, 16), field(w, 12));
    let (load, byte, register) = (bit(w, 20), bit(w, 22), bit(w, 25));
    let offset = (w & 0xfff) as i32;
    let offset = if bit(w, 23) { offset } else { -offset };
    let address = Address {
        rn,
        offset: (!register).then_some(offset),
        index: bit(w, 24),
        write: !bit(w, 24) || bit(w, 21),
    };
    let mask = 1u32 << rt;
    if !load {
        if byte {
            return address.transfer(builder, |_, _| Effect::Clobber(0));
        }
        return address.transfer(builder, |base, offset| Effect::Store { base, offset, mask });
    }
    if rn == PC && !register && !byte && rt != PC {
        let at = svma.wrapping_add(8).wrapping_add_signed(i64::from(offset)) & 0xffff_ffff;
        return builder.effect(Effect::Literal {
            to: rt,
            svma: at as u32,
        });
    }
    if rt == PC {
        // ldr pc, [pc, rm, lsl #2]
        if register && w & 0xff0 == 0x100 {
            return builder.flow(Flow::Table(Table {
                svma: (rn == PC).then_some(svma + 8),
                base: rn,
                form: TableForm::Addresses,
            }));
        }
        // ldr pc, [sp], #4
        let instruction = address.transfer(builder, |_, _| Effect::Clobber(0));
        return instruction.flow(if rn == SP && !register && !bit(w, 24) {
            Flow::Return
        } else {
            Flow::Indirect(None)
        });
    }
    if byte && rn == PC && !register {
        let at = svma.wrapping_add(8).wrapping_add_signed(offset.into());
        return data(builder, at, 1).clobber(mask);
    }
    if byte {
        return address.transfer(builder, |_, _| Effect::Clobber(mask));
    }
    if register && w & 0xff0 == 0x100 && !address.write {
        return builder.effect(Effect::Indexed {
            to: rt,
            base: rn,
            entry: WORD,
        });
    }
    address.transfer(builder, |base, offset| Effect::Load { base, offset, mask })
}

/// A5.5: cond 100P USWL Rn list
pub(super) fn block_transfer(builder: InstructionBuilder<'_>, w: u32) -> InstructionBuilder<'_> {
    block(
        builder,
        field(w, 16),
        w & 0xffff,
        (bit(w, 24), bit(w, 23)),
        bit(w, 21),
        bit(w, 20),
    )
}

/// An instruction that loads `size` bytes of data from its own function.
pub(in crate::code) fn data(
    builder: InstructionBuilder<'_>,
    svma: u64,
    size: u8,
) -> InstructionBuilder<'_> {
    builder.effect(Effect::Data {
        svma: svma as u32,
        size,
    })
}

/// `ldm` and `stm` in all modes; T32 uses it, too. `mode`: before, up.
pub(in crate::code) fn block(
    builder: InstructionBuilder<'_>,
    rn: u8,
    mask: u32,
    mode: (bool, bool),
    write: bool,
    load: bool,
) -> InstructionBuilder<'_> {
    let size = 4 * mask.count_ones() as i32;
    let (first, by) = match mode {
        (false, true) => (0, size),
        (true, true) => (4, size),
        (true, false) => (-size, -size),
        (false, false) => (4 - size, -size),
    };
    let add = Effect::Add {
        to: rn,
        from: rn,
        by,
    };
    let mut instruction = builder.base(rn);
    if !load {
        instruction = if write {
            // The address depends on the old base; see `Address::transfer` for the order.
            instruction.effect(add).effect(Effect::Store {
                base: rn,
                offset: first - by,
                mask,
            })
        } else {
            instruction.effect(Effect::Store {
                base: rn,
                offset: first,
                mask,
            })
        };
        return instruction;
    }
    instruction = instruction.effect(Effect::Load {
        base: rn,
        offset: first,
        mask: mask & 0x7fff,
    });
    if write && mask >> rn & 1 == 0 {
        instruction = instruction.effect(add);
    }
    if mask >> 15 & 1 == 1 {
        instruction = instruction.flow(Flow::Return);
    }
    instruction
}
