//! Prints DWARF expressions like `readelf`, without the register names.

use alloc::format;
use alloc::string::String;
use core::fmt::Write;

use crate::cursor::Cursor;

/// The operations of `bytes`, for pointers of `pointer` bytes. Unreadable bytes follow in hex.
pub(crate) fn text(bytes: &[u8], pointer: usize) -> String {
    let mut out = String::new();
    let mut at = Cursor::new(bytes);
    while !at.is_empty() {
        if !out.is_empty() {
            out.push_str("; ");
        }
        let rest = at.rest();
        match operation(&mut at, pointer) {
            Some(operation) => out.push_str(&operation),
            None => {
                for byte in rest {
                    let _ = write!(out, "{byte:02x} ");
                }
                break;
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn operation(at: &mut Cursor<'_>, pointer: usize) -> Option<String> {
    let opcode = at.u8()?;
    let plain = match opcode {
        0x06 => "deref",
        0x12 => "dup",
        0x13 => "drop",
        0x14 => "over",
        0x16 => "swap",
        0x17 => "rot",
        0x19 => "abs",
        0x1a => "and",
        0x1b => "div",
        0x1c => "minus",
        0x1d => "mod",
        0x1e => "mul",
        0x1f => "neg",
        0x20 => "not",
        0x21 => "or",
        0x22 => "plus",
        0x24 => "shl",
        0x25 => "shr",
        0x26 => "shra",
        0x27 => "xor",
        0x29 => "eq",
        0x2a => "ge",
        0x2b => "gt",
        0x2c => "le",
        0x2d => "lt",
        0x2e => "ne",
        0x96 => "nop",
        _ => "",
    };
    if !plain.is_empty() {
        return Some(format!("DW_OP_{plain}"));
    }
    Some(match opcode {
        0x03 => format!("DW_OP_addr {:#x}", at.unsigned(pointer)?),
        0x08 | 0x0a | 0x0c | 0x0e => {
            let size = 1 << ((opcode - 0x08) / 2);
            format!("DW_OP_const{size}u {}", at.unsigned(size)?)
        }
        0x09 | 0x0b | 0x0d | 0x0f => {
            let size = 1 << ((opcode - 0x09) / 2);
            format!("DW_OP_const{size}s {}", at.signed(size)? as i64)
        }
        0x10 => format!("DW_OP_constu {}", at.uleb()?),
        0x11 => format!("DW_OP_consts {}", at.sleb()?),
        0x15 => format!("DW_OP_pick {}", at.u8()?),
        0x23 => format!("DW_OP_plus_uconst {}", at.uleb()?),
        0x28 => format!("DW_OP_bra {}", at.signed(2)? as i64),
        0x2f => format!("DW_OP_skip {}", at.signed(2)? as i64),
        0x30..=0x4f => format!("DW_OP_lit{}", opcode - 0x30),
        0x70..=0x8f => format!("DW_OP_breg{} {}", opcode - 0x70, at.sleb()?),
        0x92 => format!("DW_OP_bregx {} {}", at.uleb()?, at.sleb()?),
        0x94 => format!("DW_OP_deref_size {}", at.u8()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::text;

    /// The text that `readelf --debug-dump=frames` prints for a PLT.
    #[test]
    fn plt() {
        let bytes = [
            0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22,
        ];
        assert_eq!(
            text(&bytes, 8),
            "DW_OP_breg7 8; DW_OP_breg16 0; DW_OP_lit15; DW_OP_and; DW_OP_lit11; DW_OP_ge; DW_OP_lit3; \
             DW_OP_shl; DW_OP_plus"
        );
        assert_eq!(text(&[0x12, 0xff, 0x01], 8), "DW_OP_dup; ff 01");
    }
}
