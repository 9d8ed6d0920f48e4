//! Executes bytecode on a stack machine of 64-bit words. The depth of the stack and the number of
//! steps are limited.

use super::{Binary, Fault, Op, printf};

/// Maximum depth of the stack, in words. gdb's own expressions stay far below.
const MAX_DEPTH: usize = 128;
/// Maximum number of steps in one evaluation, so that loops end.
const MAX_STEPS: usize = 10_000;
/// Maximum length of a printed string, in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// The environment of an expression: one thread at one stop.
pub(crate) trait World {
    /// The value of a register, by its number in the protocol.
    fn register(&mut self, number: usize) -> Option<u64>;
    /// Reads all of `into`; `false` if not all can be read.
    fn read(&mut self, address: u64, into: &mut [u8]) -> bool;
    /// Records memory, as far as it can be read.
    fn collect(&mut self, address: u64, length: u64);
    /// Records a string with its final zero, at most `limit` bytes unless `limit` is zero.
    fn collect_string(&mut self, address: u64, limit: u64);
    /// The value of a trace state variable.
    fn variable(&mut self, number: u32) -> i64;
    /// Sets a trace state variable.
    fn set_variable(&mut self, number: u32, value: i64);
    /// Records a trace state variable.
    fn collect_variable(&mut self, number: u32);
    /// Prints this text. `false` if there is no output.
    fn print(&mut self, _text: &[u8]) -> bool {
        false
    }
}

/// Executes `code`. Returns the value on top of the stack at its end, or zero if it is empty.
pub(crate) fn evaluate(code: &[u8], world: &mut dyn World) -> Result<i64, Fault> {
    let mut machine = Machine { stack: Vec::new() };
    let mut at = 0;
    for _ in 0..MAX_STEPS {
        let (op, next) = Op::decode(code, at)?;
        if op == Op::End {
            return Ok(machine.stack.last().copied().unwrap_or(0));
        }
        at = machine.step(op, world)?.unwrap_or(next);
    }
    Err(Fault::Endless)
}

struct Machine {
    stack: Vec<i64>,
}

impl Machine {
    fn pop(&mut self) -> Result<i64, Fault> {
        self.stack.pop().ok_or(Fault::Stack)
    }

    fn push(&mut self, value: i64) -> Result<(), Fault> {
        if self.stack.len() >= MAX_DEPTH {
            return Err(Fault::Stack);
        }
        self.stack.push(value);
        Ok(())
    }

    fn top(&mut self) -> Result<i64, Fault> {
        self.stack.last().copied().ok_or(Fault::Stack)
    }

    fn unary(&mut self, operation: impl FnOnce(i64) -> i64) -> Result<(), Fault> {
        let value = self.pop()?;
        self.push(operation(value))
    }

    /// Executes one instruction. Returns the offset to which it jumps, if it does.
    fn step(&mut self, op: Op<'_>, world: &mut dyn World) -> Result<Option<usize>, Fault> {
        match op {
            Op::Binary(binary) => {
                let (second, first) = (self.pop()?, self.pop()?);
                self.push(result(binary, first, second)?)?;
            }
            Op::Trace => {
                let (length, address) = (self.pop()?, self.pop()?);
                world.collect(address.cast_unsigned(), length.cast_unsigned());
            }
            Op::TraceQuick(length) => world.collect(self.top()?.cast_unsigned(), length),
            Op::LogNot => self.unary(|a| i64::from(a == 0))?,
            Op::BitNot => self.unary(|a| !a)?,
            Op::Ext(bits) => {
                let lost = 64_u64.checked_sub(bits).filter(|lost| *lost < 64);
                self.unary(|a| lost.map_or(a, |lost| a << lost >> lost))?;
            }
            Op::Ref(size) => {
                let address = self.pop()?.cast_unsigned();
                let mut bytes = [0; 8];
                if !world.read(address, &mut bytes[..size]) {
                    return Err(Fault::Unreadable);
                }
                self.push(i64::from_le_bytes(bytes))?;
            }
            Op::IfGoto(to) => {
                if self.pop()? != 0 {
                    return Ok(Some(to));
                }
            }
            Op::Goto(to) => return Ok(Some(to)),
            Op::Const(value) => self.push(value.cast_signed())?,
            Op::Reg(number) => {
                let value = world.register(number).ok_or(Fault::Unreadable)?;
                self.push(value.cast_signed())?;
            }
            Op::End => {}
            Op::Dup => {
                let value = self.top()?;
                self.push(value)?;
            }
            Op::Pop => drop(self.pop()?),
            Op::ZeroExt(bits) => {
                let mask = (bits < 64).then(|| (1_i64 << bits).wrapping_sub(1));
                self.unary(|a| mask.map_or(a, |mask| a & mask))?;
            }
            Op::Swap => {
                let (second, first) = (self.pop()?, self.pop()?);
                self.push(second)?;
                self.push(first)?;
            }
            Op::Getv(number) => self.push(world.variable(number))?,
            Op::Setv(number) => {
                let value = self.top()?;
                world.set_variable(number, value);
            }
            Op::Tracev(number) => world.collect_variable(number),
            Op::Tracenz => {
                let (limit, address) = (self.pop()?, self.pop()?);
                world.collect_string(address.cast_unsigned(), limit.cast_unsigned());
            }
            Op::Pick(down) => {
                let at = self.stack.len().checked_sub(down + 1).ok_or(Fault::Stack)?;
                self.push(self.stack[at])?;
            }
            Op::Rot => {
                let at = self.stack.len().checked_sub(3).ok_or(Fault::Stack)?;
                self.stack[at..].rotate_right(1);
            }
            Op::Printf { count, format } => {
                let text = self.formatted(count, format, world)?;
                if !world.print(&text) {
                    return Err(Fault::Unsupported(Op::PRINTF));
                }
            }
        }
        Ok(None)
    }

    /// The text that `printf` prints. Below the values on the stack are the function and the
    /// channel with which the program would print.
    fn formatted(
        &mut self,
        count: u64,
        format: &[u8],
        world: &mut dyn World,
    ) -> Result<Vec<u8>, Fault> {
        self.pop()?;
        self.pop()?;
        let values = (0..count).map(|_| self.pop());
        let values = values.collect::<Result<Vec<i64>, Fault>>()?;
        let text = printf::format(format, &values, &mut |at| string(world, at));
        text.ok_or(Fault::Unsupported(Op::PRINTF))
    }
}

/// The result of an operation on two values.
fn result(operation: Binary, a: i64, b: i64) -> Result<i64, Fault> {
    let (ua, ub) = (a.cast_unsigned(), b.cast_unsigned());
    let result = match operation {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::DivSigned | Binary::DivUnsigned | Binary::RemSigned | Binary::RemUnsigned
            if b == 0 =>
        {
            return Err(Fault::DivisionByZero);
        }
        Binary::DivSigned => a.wrapping_div(b),
        Binary::DivUnsigned => (ua / ub).cast_signed(),
        Binary::RemSigned => a.wrapping_rem(b),
        Binary::RemUnsigned => (ua % ub).cast_signed(),
        Binary::Lsh => shift(a, b, i64::checked_shl, 0),
        Binary::RshSigned => shift(a, b, i64::checked_shr, a >> 63),
        Binary::RshUnsigned => u32::try_from(ub)
            .ok()
            .and_then(|b| ua.checked_shr(b))
            .unwrap_or(0)
            .cast_signed(),
        Binary::BitAnd => a & b,
        Binary::BitOr => a | b,
        Binary::BitXor => a ^ b,
        Binary::Equal => i64::from(a == b),
        Binary::LessSigned => i64::from(a < b),
        Binary::LessUnsigned => i64::from(ua < ub),
    };
    Ok(result)
}

/// The string at `at`, as far as it can be read and within [`MAX_TEXT`].
fn string(world: &mut dyn World, mut at: u64) -> Vec<u8> {
    // Parts end at multiples of their size, so that no part crosses a page boundary.
    const PART: usize = 64;
    let mut text = Vec::new();
    while text.len() < MAX_TEXT {
        let mut part = [0; PART];
        let part = &mut part[at as usize % PART..];
        if !world.read(at, part) {
            break;
        }
        let end = part.iter().position(|byte| *byte == 0);
        text.extend_from_slice(&part[..end.unwrap_or(part.len())]);
        if end.is_some() {
            break;
        }
        at = at.wrapping_add(part.len() as u64);
    }
    text
}

/// A shift by any number of bits. `far` is the result if the number exceeds the width.
fn shift(value: i64, by: i64, operation: fn(i64, u32) -> Option<i64>, far: i64) -> i64 {
    let by = u32::try_from(by).ok();
    by.and_then(|by| operation(value, by)).unwrap_or(far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Toy {
        collected: Vec<(u64, u64)>,
        variable: i64,
        printed: Option<Vec<u8>>,
    }

    impl World for Toy {
        fn register(&mut self, number: usize) -> Option<u64> {
            (number < 4).then_some(0x1000 * number as u64)
        }

        fn read(&mut self, address: u64, into: &mut [u8]) -> bool {
            into.fill(address as u8);
            address < 0x8000
        }

        fn collect(&mut self, address: u64, length: u64) {
            self.collected.push((address, length));
        }

        fn collect_string(&mut self, address: u64, limit: u64) {
            self.collected.push((address, limit));
        }

        fn variable(&mut self, _: u32) -> i64 {
            self.variable
        }

        fn set_variable(&mut self, _: u32, value: i64) {
            self.variable = value;
        }

        fn collect_variable(&mut self, number: u32) {
            self.collected.push((number.into(), 0));
        }

        fn print(&mut self, text: &[u8]) -> bool {
            let printed = self.printed.as_mut();
            printed
                .map(|printed| printed.extend_from_slice(text))
                .is_some()
        }
    }

    fn value(code: &[u8]) -> Result<i64, Fault> {
        evaluate(code, &mut Toy::default())
    }

    #[test]
    fn arithmetic() {
        // The manual's example, with registers: reg 1, const8 5, add.
        assert_eq!(value(&[0x26, 0, 1, 0x22, 5, 0x02, 0x27]), Ok(0x1005));
        assert_eq!(
            value(&[0x22, 7, 0x22, 0, 0x05, 0x27]),
            Err(Fault::DivisionByZero)
        );
        assert_eq!(value(&[0x22, 0xff, 0x16, 8, 0x27]), Ok(-1));
        assert_eq!(
            value(&[0x25, 255, 255, 255, 255, 255, 255, 255, 254, 0x2a, 8, 0x27]),
            Ok(254)
        );
        assert_eq!(value(&[0x22, 1, 0x22, 200, 0x09, 0x27]), Ok(0));
        assert_eq!(
            value(&[0x22, 1, 0x22, 2, 0x22, 3, 0x33, 0x03, 0x27]),
            Ok(-1)
        );
        assert_eq!(value(&[0x22, 9, 0x22, 8, 0x32, 1, 0x27]), Ok(9));
    }

    #[test]
    fn memory_and_jumps() {
        assert_eq!(value(&[0x23, 0x12, 0x34, 0x18, 0x27]), Ok(0x3434));
        assert_eq!(
            value(&[0x24, 0, 1, 0, 0, 0x17, 0x27]),
            Err(Fault::Unreadable)
        );
        // if_goto over a const8.
        assert_eq!(value(&[0x22, 7, 0x22, 1, 0x20, 0, 9, 0x22, 8, 0x27]), Ok(7));
        assert_eq!(value(&[0x21, 0, 0]), Err(Fault::Endless));
        assert_eq!(value(&[0x22]), Err(Fault::OutOfCode));
        assert_eq!(value(&[0x02]), Err(Fault::Stack));
        assert_eq!(value(&[0x1b]), Err(Fault::Unsupported(0x1b)));
    }

    #[test]
    fn collecting() {
        let mut toy = Toy::default();
        let code = [
            0x22, 5, 0x2d, 0, 1, 0x2c, 0, 1, 0x0c, // 5, variable 1 = 5, collect 5 bytes at 5
            0x26, 0, 2, 0x0d, 16, // 16 bytes at register 2
            0x30, 1, 0, 0x29, // 256 bytes there
            0x2e, 0, 1, 0x27,
        ];
        assert_eq!(evaluate(&code, &mut toy), Ok(0));
        assert_eq!(toy.collected, [(5, 5), (0x2000, 16), (0x2000, 256), (1, 0)]);
    }

    /// gdb 13's code for `dprintf foo,"At foo entry arg=%d g=%d\n", arg, g`: the last value first,
    /// then channel and function.
    #[test]
    fn printing() {
        let mut code = vec![0x22, 9, 0x26, 0, 1, 0x22, 0, 0x22, 0, 0x34, 2, 0, 27];
        code.extend_from_slice(b"At foo entry arg=%d g=%d\\n\0\x27");
        assert_eq!(value(&code), Err(Fault::Unsupported(0x34)));
        let mut toy = Toy {
            printed: Some(Vec::new()),
            ..Toy::default()
        };
        assert_eq!(evaluate(&code, &mut toy), Ok(0));
        assert_eq!(
            toy.printed.as_deref(),
            Some(&b"At foo entry arg=4096 g=9\n"[..])
        );
        for end in [code.len() - 1, code.len() - 2, 12, 10] {
            let cut = evaluate(&code[..end], &mut toy);
            assert_eq!(cut, Err(Fault::OutOfCode), "{end}");
        }
        code[10] = 3;
        assert_eq!(evaluate(&code, &mut toy), Err(Fault::Stack));
        // The string has no final zero before 0x8000, which cannot be read.
        let mut toy = Toy {
            printed: Some(Vec::new()),
            ..Toy::default()
        };
        let code = b"\x23\x7f\xc1\x22\0\x22\0\x34\x01\0\x04%s\n\0\x27";
        assert_eq!(evaluate(code, &mut toy), Ok(0));
        assert_eq!(toy.printed, Some([&[0xc1; 0x3f][..], b"\n"].concat()));
    }

    #[test]
    fn nonsense_ends() {
        for seed in 0..2000_u32 {
            let code: Vec<u8> = (0..40)
                .map(|i| (seed.wrapping_mul(2_654_435_761 + i) >> 11) as u8)
                .collect();
            let _ = value(&code);
        }
    }
}
