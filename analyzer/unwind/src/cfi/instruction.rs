//! Decodes call frame instructions to typed operations (DWARF 5, 6.4.2; encodings 7.24).
//! [`super::state`] evaluates them.

use crate::cursor::Cursor;

/// One instruction. Locations and offsets are already multiplied by the CIE's factors. Registers
/// are DWARF numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instruction<'a> {
    /// The row ends here; the next one starts this many bytes later.
    Advance(u64),
    /// The row ends; the next one starts at this encoded address.
    SetLocation(u64),
    /// `cfa = register + offset`
    DefineCfa(u64, i64),
    /// `cfa = register + (offset as it was)`
    CfaRegister(u64),
    /// `cfa = (register as it was) + offset`
    CfaOffset(i64),
    /// `cfa = evaluate(expression)`
    CfaExpression(&'a [u8]),
    /// The caller's value is lost.
    Undefined(u64),
    /// `caller.r = r`
    Same(u64),
    /// `caller.r = *(cfa + offset)`
    Offset(u64, i64),
    /// `caller.r = cfa + offset`
    ValueOffset(u64, i64),
    /// `caller.r = other`
    Register(u64, u64),
    /// `caller.r = *evaluate(expression)`
    Expression(u64, &'a [u8]),
    /// `caller.r = evaluate(expression)`
    ValueExpression(u64, &'a [u8]),
    /// The register gets the CIE's rule again.
    Restore(u64),
    /// Push all rules.
    Remember,
    /// Pop all rules.
    RestoreState,
    /// AArch64: the return address is signed from here on, or no more.
    NegateRaState,
    /// No effect on unwinding: padding, `DW_CFA_GNU_args_size`.
    Nop,
}

/// The CIE's factors and pointer encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Factors {
    pub(crate) code: u64,
    pub(crate) data: i64,
    /// The encoding of `DW_CFA_set_loc` pointers.
    pub(crate) encoding: super::entry::Encoding,
    pub(crate) aarch64: bool,
}

/// Decodes the next instruction. `Err(opcode)` if it is unknown or cut off. `pcrel` gives the
/// address of an offset in `at`.
#[inline]
pub(crate) fn decode<'a>(
    at: &mut Cursor<'a>,
    factors: &Factors,
    pcrel: impl Fn(usize) -> u64,
) -> Result<Instruction<'a>, u8> {
    let opcode = at.u8().ok_or(0)?;
    operands(opcode, at, factors, pcrel).ok_or(opcode)
}

#[inline]
fn operands<'a>(
    opcode: u8,
    at: &mut Cursor<'a>,
    factors: &Factors,
    pcrel: impl Fn(usize) -> u64,
) -> Option<Instruction<'a>> {
    use Instruction as I;
    let low = u64::from(opcode & 0x3f);
    let factored = |offset: u64| (offset as i64).wrapping_mul(factors.data);
    let factored_signed = |offset: i64| offset.wrapping_mul(factors.data);
    let advance = |delta: u64| I::Advance(delta.wrapping_mul(factors.code));
    Some(match opcode {
        0x40..=0x7f => advance(low),
        0x80..=0xbf => I::Offset(low, factored(at.uleb()?)),
        0xc0..=0xff => I::Restore(low),
        0x00 => I::Nop,
        0x01 => {
            let place = pcrel(at.position());
            I::SetLocation(factors.encoding.read(at, place)?)
        }
        0x02 => advance(at.unsigned(1)?),
        0x03 => advance(at.unsigned(2)?),
        0x04 => advance(at.unsigned(4)?),
        0x05 => I::Offset(at.uleb()?, factored(at.uleb()?)),
        0x06 => I::Restore(at.uleb()?),
        0x07 => I::Undefined(at.uleb()?),
        0x08 => I::Same(at.uleb()?),
        0x09 => I::Register(at.uleb()?, at.uleb()?),
        0x0a => I::Remember,
        0x0b => I::RestoreState,
        0x0c => I::DefineCfa(at.uleb()?, at.uleb()? as i64),
        0x0d => I::CfaRegister(at.uleb()?),
        0x0e => I::CfaOffset(at.uleb()? as i64),
        0x0f => I::CfaExpression(at.block()?),
        0x10 => I::Expression(at.uleb()?, at.block()?),
        0x11 => I::Offset(at.uleb()?, factored_signed(at.sleb()?)),
        0x12 => I::DefineCfa(at.uleb()?, factored_signed(at.sleb()?)),
        0x13 => I::CfaOffset(factored_signed(at.sleb()?)),
        0x14 => I::ValueOffset(at.uleb()?, factored(at.uleb()?)),
        0x15 => I::ValueOffset(at.uleb()?, factored_signed(at.sleb()?)),
        0x16 => I::ValueExpression(at.uleb()?, at.block()?),
        // DW_CFA_MIPS_advance_loc8
        0x1d => advance(at.unsigned(8)?),
        // DW_CFA_AARCH64_negate_ra_state_with_pc, DW_CFA_AARCH64_negate_ra_state (aadwarf64, "Call
        // frame instructions")
        0x2c | 0x2d if factors.aarch64 => I::NegateRaState,
        // DW_CFA_GNU_args_size: bytes that an exception handler removes from the stack. It changes
        // no rule.
        0x2e => {
            at.uleb()?;
            I::Nop
        }
        // DW_CFA_GNU_negative_offset_extended
        0x2f => I::Offset(at.uleb()?, factored(at.uleb()?).wrapping_neg()),
        _ => return None,
    })
}
