//! Decodes the bytecode of EHABI 10.3 to typed operations.

use std::fmt;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `vsp = vsp + bytes`
    AddSp(i32),
    /// Pop the core registers of the mask (bit n: rn), lowest first.
    Pop(u16),
    /// `vsp = r[n]`
    SpFrom(u8),
    /// Pop VFP, WMMX or authentication registers. Only their size matters here.
    Skip(u32),
    /// Done.
    Finish,
    /// Refuse to unwind.
    Refuse,
    /// A reserved encoding. A list that contains one cannot be used.
    Spare(u8),
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Op::AddSp(bytes) if bytes < 0 => write!(f, "vsp -= {}", -bytes),
            Op::AddSp(bytes) => write!(f, "vsp += {bytes}"),
            Op::Pop(mask) => {
                f.write_str("pop {")?;
                let mut separator = "";
                for register in (0..16).filter(|register| mask >> register & 1 == 1) {
                    write!(f, "{separator}r{register}")?;
                    separator = ", ";
                }
                f.write_str("}")
            }
            Op::SpFrom(register) => write!(f, "vsp = r{register}"),
            Op::Skip(bytes) => write!(f, "skip {bytes}"),
            Op::Finish => f.write_str("finish"),
            Op::Refuse => f.write_str("refuse"),
            Op::Spare(byte) => write!(f, "spare {byte:#x}"),
        }
    }
}

/// Decodes a whole entry. Operations that are cut off become [`Op::Spare`].
pub fn decode(bytes: &[u8]) -> Vec<Op> {
    let mut operations = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        let mut operand = || match rest.split_first() {
            Some((&byte, after)) => {
                rest = after;
                Some(byte)
            }
            None => None,
        };
        let operation = one(first, &mut operand).unwrap_or(Op::Spare(first));
        operations.push(operation);
        if matches!(operation, Op::Finish | Op::Refuse | Op::Spare(_)) {
            break;
        }
    }
    operations
}

fn one(first: u8, operand: &mut impl FnMut() -> Option<u8>) -> Option<Op> {
    let low3 = u32::from(first & 7);
    Some(match first {
        // 00xxxxxx
        0x00..=0x3f => Op::AddSp((i32::from(first & 0x3f) << 2) + 4),
        // 01xxxxxx
        0x40..=0x7f => Op::AddSp(-((i32::from(first & 0x3f) << 2) + 4)),
        // 1000iiii iiiiiiii: r4..=r15
        0x80..=0x8f => match (u16::from(first & 0xf) << 8) | u16::from(operand()?) {
            0 => Op::Refuse,
            mask => Op::Pop(mask << 4),
        },
        // 10011101 and 10011111 are reserved
        0x9d | 0x9f => Op::Spare(first),
        // 1001nnnn
        0x90..=0x9e => Op::SpFrom(first & 0xf),
        // 10100nnn: r4..=r[4+n]; 10101nnn: and r14
        0xa0..=0xaf => {
            let low = ((1u16 << (low3 + 1)) - 1) << 4;
            Op::Pop(if first & 8 != 0 { low | 1 << 14 } else { low })
        }
        0xb0 => Op::Finish,
        // 10110001 0000iiii: r0..=r3
        0xb1 => match operand()? {
            mask @ 1..=15 => Op::Pop(u16::from(mask)),
            _ => Op::Spare(first),
        },
        // 10110010 uleb128: vsp += 0x204 + (uleb128 << 2)
        0xb2 => {
            let mut value = 0u32;
            let mut shift = 0u32;
            loop {
                let byte = operand()?;
                if shift >= 28 {
                    return None;
                }
                value |= u32::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            Op::AddSp(
                i32::try_from(value)
                    .ok()?
                    .checked_mul(4)?
                    .checked_add(0x204)?,
            )
        }
        // 10110011 sssscccc: D[s]..=D[s+c] stored by FSTMFDX, which adds a word
        0xb3 => Op::Skip((u32::from(operand()? & 0xf) + 1) * 8 + 4),
        // 10110100: return address authentication code
        0xb4 => Op::Skip(4),
        0xb5..=0xb7 => Op::Spare(first),
        // 10111nnn: D8..=D[8+n] stored by FSTMFDX
        0xb8..=0xbf => Op::Skip((low3 + 1) * 8 + 4),
        // 11000nnn: wR10..=wR[10+n]
        0xc0..=0xc5 => Op::Skip((low3 + 1) * 8),
        // 11000110 sssscccc: wR[s]..=wR[s+c]
        0xc6 => Op::Skip((u32::from(operand()? & 0xf) + 1) * 8),
        // 11000111 0000iiii: wCGR0..=wCGR3
        0xc7 => match operand()? {
            mask @ 1..=15 => Op::Skip(4 * mask.count_ones()),
            _ => Op::Spare(first),
        },
        // 11001000, 11001001 sssscccc: D[16+s].. and D[s].. stored by VPUSH
        0xc8 | 0xc9 => Op::Skip((u32::from(operand()? & 0xf) + 1) * 8),
        0xca..=0xcf => Op::Spare(first),
        // 11010nnn: D8..=D[8+n] stored by VPUSH
        0xd0..=0xd7 => Op::Skip((low3 + 1) * 8),
        _ => Op::Spare(first),
    })
}
