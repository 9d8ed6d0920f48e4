//! Decodes bytes to operations, with the names and the order of the GDB manual ("Bytecode
//! Descriptions").

use super::Fault;

/// One instruction with its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op<'a> {
    /// `a b => a OP b`, for every operation on two values.
    Binary(Binary),
    /// `addr size =>`: collects memory.
    Trace,
    /// `addr => addr`: collects this number of bytes.
    TraceQuick(u64),
    /// `a => !a`
    LogNot,
    /// `a => ~a`
    BitNot,
    /// `a => a`, sign-extended from this number of bits.
    Ext(u64),
    /// `addr => value`: a value in memory with this number of bytes.
    Ref(usize),
    /// `a =>`: jumps to this offset unless `a` is zero.
    IfGoto(usize),
    /// Jumps to this offset.
    Goto(usize),
    /// `=> n`
    Const(u64),
    /// `=> value`: the register with this number.
    Reg(usize),
    /// Ends; the top of the stack is the value.
    End,
    /// `a => a a`
    Dup,
    /// `a =>`
    Pop,
    /// `a => a`, reduced to this number of low bits.
    ZeroExt(u64),
    /// `a b => b a`
    Swap,
    /// `=> value`: the trace state variable with this number.
    Getv(u32),
    /// `a => a`: sets the trace state variable with this number.
    Setv(u32),
    /// Collects the trace state variable with this number.
    Tracev(u32),
    /// `addr size =>`: collects a string of at most `size` bytes.
    Tracenz,
    /// `a ... => a ... a`: copies the value at this depth below the top.
    Pick(usize),
    /// `a b c => c a b`
    Rot,
    /// Prints `count` values from the stack with this format.
    Printf { count: u64, format: &'a [u8] },
}

/// An operation on the two values on top of the stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    DivSigned,
    DivUnsigned,
    RemSigned,
    RemUnsigned,
    Lsh,
    RshSigned,
    RshUnsigned,
    BitAnd,
    BitOr,
    BitXor,
    Equal,
    LessSigned,
    LessUnsigned,
}

impl<'a> Op<'a> {
    /// The bytecode of `printf`.
    pub(super) const PRINTF: u8 = 0x34;

    /// Decodes the instruction at offset `at`. Also returns the offset of the next one.
    ///
    /// # Errors
    /// [`Fault::OutOfCode`] if the code ends too early, [`Fault::Unsupported`] for floating point
    /// and unknown codes.
    #[inline]
    pub(crate) fn decode(code: &'a [u8], at: usize) -> Result<(Op<'a>, usize), Fault> {
        let mut operands = Operands { code, at };
        let op = match operands.number(1)? as u8 {
            0x02 => Op::Binary(Binary::Add),
            0x03 => Op::Binary(Binary::Sub),
            0x04 => Op::Binary(Binary::Mul),
            0x05 => Op::Binary(Binary::DivSigned),
            0x06 => Op::Binary(Binary::DivUnsigned),
            0x07 => Op::Binary(Binary::RemSigned),
            0x08 => Op::Binary(Binary::RemUnsigned),
            0x09 => Op::Binary(Binary::Lsh),
            0x0a => Op::Binary(Binary::RshSigned),
            0x0b => Op::Binary(Binary::RshUnsigned),
            0x0c => Op::Trace,
            0x0d => Op::TraceQuick(operands.number(1)?),
            0x0e => Op::LogNot,
            0x0f => Op::Binary(Binary::BitAnd),
            0x10 => Op::Binary(Binary::BitOr),
            0x11 => Op::Binary(Binary::BitXor),
            0x12 => Op::BitNot,
            0x13 => Op::Binary(Binary::Equal),
            0x14 => Op::Binary(Binary::LessSigned),
            0x15 => Op::Binary(Binary::LessUnsigned),
            0x16 => Op::Ext(operands.number(1)?),
            size @ 0x17..=0x1a => Op::Ref(1 << (size - 0x17)),
            0x20 => Op::IfGoto(operands.number(2)? as usize),
            0x21 => Op::Goto(operands.number(2)? as usize),
            size @ 0x22..=0x25 => Op::Const(operands.number(1 << (size - 0x22))?),
            0x26 => Op::Reg(operands.number(2)? as usize),
            0x27 => Op::End,
            0x28 => Op::Dup,
            0x29 => Op::Pop,
            0x2a => Op::ZeroExt(operands.number(1)?),
            0x2b => Op::Swap,
            0x2c => Op::Getv(operands.number(2)? as u32),
            0x2d => Op::Setv(operands.number(2)? as u32),
            0x2e => Op::Tracev(operands.number(2)? as u32),
            0x2f => Op::Tracenz,
            // trace16
            0x30 => Op::TraceQuick(operands.number(2)?),
            0x32 => Op::Pick(operands.number(1)? as usize),
            0x33 => Op::Rot,
            Self::PRINTF => Op::Printf {
                count: operands.number(1)?,
                format: operands.text()?,
            },
            other => return Err(Fault::Unsupported(other)),
        };
        Ok((op, operands.at))
    }
}

/// The operands after a bytecode.
struct Operands<'a> {
    code: &'a [u8],
    at: usize,
}

impl<'a> Operands<'a> {
    #[inline]
    fn bytes(&mut self, size: usize) -> Result<&'a [u8], Fault> {
        let end = self.at.checked_add(size).ok_or(Fault::OutOfCode)?;
        let bytes = self.code.get(self.at..end).ok_or(Fault::OutOfCode)?;
        self.at = end;
        Ok(bytes)
    }

    /// A big-endian number with this number of bytes.
    #[inline]
    fn number(&mut self, size: usize) -> Result<u64, Fault> {
        let bytes = self.bytes(size)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A two-byte length, and a text of that length, without its final zero.
    fn text(&mut self) -> Result<&'a [u8], Fault> {
        let length = self.number(2)? as usize;
        let text = self.bytes(length)?;
        Ok(text.strip_suffix(&[0]).unwrap_or(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_follow_their_codes() {
        // reg 1, const16 0x1234, trace16 256, printf of one value, end
        let code = [
            0x26, 0, 1, 0x23, 0x12, 0x34, 0x30, 1, 0, 0x34, 1, 0, 3, b'%', b'd', 0, 0x27,
        ];
        let mut at = 0;
        let mut ops = Vec::new();
        while at < code.len() {
            let (op, next) = Op::decode(&code, at).expect("an instruction");
            ops.push(op);
            at = next;
        }
        let printf = Op::Printf {
            count: 1,
            format: b"%d",
        };
        assert_eq!(
            ops,
            [
                Op::Reg(1),
                Op::Const(0x1234),
                Op::TraceQuick(256),
                printf,
                Op::End
            ]
        );
    }

    #[test]
    fn incomplete_and_unknown_code_fails() {
        for cut in [
            &[][..],
            &[0x26, 0],
            &[0x25, 1, 2, 3],
            &[0x34, 1, 0, 9, b'x'],
        ] {
            assert_eq!(Op::decode(cut, 0), Err(Fault::OutOfCode), "{cut:?}");
        }
        assert_eq!(Op::decode(&[0x27], 1), Err(Fault::OutOfCode));
        // float
        assert_eq!(Op::decode(&[0x01], 0), Err(Fault::Unsupported(0x01)));
    }
}
