//! Evaluates DWARF expressions for the CFA on the analysis's values instead of registers and
//! memory.

use crate::code::state::{State, Value};

/// `value + by`
pub(super) fn add(value: Value, by: i32) -> Value {
    let sum = match value {
        Value::Cfa(offset) => offset.checked_add(by).map(Value::Cfa),
        Value::Base(offset) => offset.checked_add(by).map(Value::Base),
        Value::Constant(value) => Some(Value::Constant(value.wrapping_add_signed(by))),
        _ => None,
    };
    sum.unwrap_or(Value::Unknown)
}

/// Evaluates `bytes`, a DWARF expression, at `svma`. Knows the operations that compilers and
/// linkers use for the CFA. With any other, the result is unknown.
pub(super) fn evaluate(bytes: &[u8], state: &State, svma: u64) -> Value {
    run(bytes, state, svma).unwrap_or(Value::Unknown)
}

fn run(bytes: &[u8], state: &State, svma: u64) -> Option<Value> {
    let mut stack: Vec<Value> = Vec::new();
    let mut rest = bytes;
    while let Some((&operation, after)) = rest.split_first() {
        rest = after;
        match operation {
            // DW_OP_deref
            0x06 => {
                let at = stack.pop()?;
                stack.push(state.slot(at));
            }
            // DW_OP_const1u, DW_OP_const1s
            0x08 | 0x09 => {
                let (&byte, after) = rest.split_first()?;
                rest = after;
                let value = if operation == 0x08 {
                    u32::from(byte)
                } else {
                    i32::from(byte as i8) as u32
                };
                stack.push(Value::Constant(value));
            }
            // DW_OP_and, DW_OP_minus, DW_OP_plus, DW_OP_shl, DW_OP_ge
            0x1a | 0x1c | 0x22 | 0x24 | 0x2a => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                let value = match (operation, left, right) {
                    (0x22, left, Value::Constant(by)) => add(left, by as i32),
                    (0x22, Value::Constant(by), right) => add(right, by as i32),
                    (0x1c, left, Value::Constant(by)) => add(left, (by as i32).checked_neg()?),
                    (0x1a, Value::Constant(a), Value::Constant(b)) => Value::Constant(a & b),
                    (0x24, Value::Constant(a), Value::Constant(b)) => {
                        Value::Constant(a.checked_shl(b)?)
                    }
                    (0x2a, Value::Constant(a), Value::Constant(b)) => {
                        Value::Constant(u32::from(a as i32 >= b as i32))
                    }
                    _ => return None,
                };
                stack.push(value);
            }
            // DW_OP_plus_uconst
            0x23 => {
                let (by, after) = leb128(rest, false)?;
                rest = after;
                let value = stack.pop()?;
                stack.push(add(value, by));
            }
            // DW_OP_lit0 to DW_OP_lit31
            0x30..=0x4f => stack.push(Value::Constant(u32::from(operation - 0x30))),
            // DW_OP_breg0 to DW_OP_breg31; 16 is x86-64's instruction pointer
            0x70..=0x8f => {
                let (by, after) = leb128(rest, true)?;
                rest = after;
                let register = operation - 0x70;
                let value = if register == 16 && !state.has_link_register() {
                    Value::Constant(svma as u32)
                } else {
                    state.register(register)
                };
                stack.push(add(value, by));
            }
            _ => return None,
        }
    }
    stack.pop()
}

fn leb128(bytes: &[u8], signed: bool) -> Option<(i32, &[u8])> {
    let mut value = 0i64;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        value |= i64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let width = 7 * (index as u32 + 1);
            if signed && byte & 0x40 != 0 {
                value |= -1 << width;
            }
            return Some((i32::try_from(value).ok()?, &bytes[index + 1..]));
        }
    }
    None
}
