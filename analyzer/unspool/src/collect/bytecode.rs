//! The bytecodes of agent expressions (GDB manual, "Bytecode Descriptions") that tracepoints use.

pub(super) const RSH_UNSIGNED: u8 = 0x0b;
pub(super) const TRACE: u8 = 0x0c;
pub(super) const BIT_AND: u8 = 0x0f;
pub(super) const BIT_OR: u8 = 0x10;
pub(super) const EQUAL: u8 = 0x13;
pub(super) const LESS_UNSIGNED: u8 = 0x15;
pub(super) const REF64: u8 = 0x1a;
pub(super) const IF_GOTO: u8 = 0x20;
pub(super) const GOTO: u8 = 0x21;
pub(super) const CONST8: u8 = 0x22;
pub(super) const CONST16: u8 = 0x23;
pub(super) const CONST32: u8 = 0x24;
pub(super) const REG: u8 = 0x26;
pub(super) const END: u8 = 0x27;
pub(super) const POP: u8 = 0x29;
pub(super) const GETV: u8 = 0x2c;
pub(super) const SETV: u8 = 0x2d;
pub(super) const TRACEV: u8 = 0x2e;
pub(super) const TRACENZ: u8 = 0x2f;
