//! Compiles a tracepoint's condition, so that a collector records only hits that satisfy it.
//!
//! The stub evaluates each condition when it drains a hit. This takes microseconds. Also, the
//! collector has read the memory by then, and that read may fault for a hit that does not match. So
//! conditions on registers alone are also part of the collector. The bytecode's stack is in
//! registers.

use crate::bytecode::{Binary, Op};

use super::assembler::{Assembler, JE, JMP, Label};
use super::collector::frame_index;

/// The registers of the bytecode's stack, bottom first: rax, rdx, rbx, rsi, rdi, r8 to r11. rbp is
/// the frame, and rcx holds shift counts and masks.
const STACK: [u8; 9] = [0, 2, 3, 6, 7, 8, 9, 10, 11];
const RCX: u8 = 1;

/// Appends code that goes to [`Label::Leave`] unless the condition holds. Appends nothing for a
/// condition that needs more than registers, or that may fail: the stub alone evaluates it.
pub(super) fn check(a: &mut Assembler, condition: &[u8]) {
    let start = a.code.len();
    if compile(a, condition).is_none() {
        a.forget_from(start);
    }
}

fn compile(a: &mut Assembler, condition: &[u8]) -> Option<()> {
    let (mut at, mut depth) = (0, 0);
    loop {
        let (op, next) = Op::decode(condition, at).ok()?;
        at = next;
        let top = |below: usize| STACK.get(usize::checked_sub(depth, below + 1)?).copied();
        match op {
            Op::Const(value) => {
                load(a, *STACK.get(depth)?, value);
                depth += 1;
            }
            Op::Reg(number) => {
                let (to, index) = (*STACK.get(depth)?, frame_index(number)?);
                // mov to, [rbp + 8 * index]
                let modrm = 0x45 | (to & 7) << 3;
                a.put(&[rex(to, 0), 0x8b, modrm, 8 * index as u8]);
                depth += 1;
            }
            Op::Dup => {
                let (from, to) = (top(0)?, *STACK.get(depth)?);
                put(a, &[0x89], from, to);
                depth += 1;
            }
            Op::Pop => {
                top(0)?;
                depth -= 1;
            }
            Op::Swap => put(a, &[0x87], top(0)?, top(1)?),
            Op::LogNot => {
                let value = top(0)?;
                put(a, &[0x85], value, value);
                set(a, value, 0x94);
            }
            Op::BitNot => put(a, &[0xf7], 2, top(0)?),
            Op::ZeroExt(bits) => {
                let value = top(0)?;
                if bits < 64 {
                    load(a, RCX, (1 << bits) - 1);
                    put(a, &[0x21], RCX, value);
                }
            }
            Op::Binary(binary) => {
                operate(a, binary, top(1)?, top(0)?)?;
                depth -= 1;
            }
            Op::End => {
                let value = top(0)?;
                put(a, &[0x85], value, value);
                a.jump(JE, Label::Leave);
                return Some(());
            }
            _ => return None,
        }
    }
}

/// Appends `first = first OP second`.
fn operate(a: &mut Assembler, binary: Binary, first: u8, second: u8) -> Option<()> {
    match binary {
        Binary::Add => put(a, &[0x01], second, first),
        Binary::Sub => put(a, &[0x29], second, first),
        Binary::Mul => put(a, &[0x0f, 0xaf], first, second),
        Binary::BitAnd => put(a, &[0x21], second, first),
        Binary::BitOr => put(a, &[0x09], second, first),
        Binary::BitXor => put(a, &[0x31], second, first),
        Binary::RshUnsigned => {
            put(a, &[0x89], second, RCX);
            // The processor ignores all but six bits of the count.
            put(a, &[0xd3], 5, first);
            a.put(&[0x48, 0x83, 0xf9, 63]); // cmp rcx, 63
            a.put(&[0x76, 3]); // jbe over the next instruction
            put(a, &[0x31], first, first);
        }
        Binary::Equal | Binary::LessSigned | Binary::LessUnsigned => {
            put(a, &[0x39], second, first);
            let opcode = match binary {
                Binary::Equal => 0x94,
                Binary::LessSigned => 0x9c,
                _ => 0x92,
            };
            set(a, first, opcode);
        }
        _ => return None,
    }
    Some(())
}

/// `REX.W` with the upper bits of the fields `reg` and `rm`.
fn rex(reg: u8, rm: u8) -> u8 {
    0x48 | reg >> 3 << 2 | rm >> 3
}

/// Appends an instruction with two registers, or with an extension of its opcode as `reg`.
fn put(a: &mut Assembler, opcode: &[u8], reg: u8, rm: u8) {
    a.put(&[rex(reg, rm)]);
    a.put(opcode);
    a.put(&[0xc0 | (reg & 7) << 3 | rm & 7]);
}

/// Appends `mov to, value`.
fn load(a: &mut Assembler, to: u8, value: u64) {
    a.put_64(&[rex(0, to), 0xb8 | to & 7], value);
}

/// Appends a `setcc` of the whole register.
fn set(a: &mut Assembler, to: u8, opcode: u8) {
    // mov to, 0, which changes no flags
    a.put_32(&[rex(0, to), 0xc7, 0xc0 | to & 7], 0);
    a.put(&[0x40 | to >> 3, 0x0f, opcode, 0xc0 | to & 7]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::test_process;
    use crate::arch::words::{set_word, word};
    use crate::bytecode::{World, evaluate};
    use crate::sys::memory::Memory;
    use crate::sys::ptrace;
    use crate::sys::wait::{Status, wait};

    const RBP: usize = 4;
    const RIP: usize = 16;
    const FRAME_WORDS: usize = 16;

    /// A thread in a collector.
    struct Frame([u64; FRAME_WORDS]);

    impl World for Frame {
        fn register(&mut self, number: usize) -> Option<u64> {
            Some(self.0[frame_index(number)?])
        }
        fn read(&mut self, _: u64, _: &mut [u8]) -> bool {
            false
        }
        fn collect(&mut self, _: u64, _: u64) {}
        fn collect_string(&mut self, _: u64, _: u64) {}
        fn variable(&mut self, _: u32) -> i64 {
            0
        }
        fn set_variable(&mut self, _: u32, _: i64) {}
        fn collect_variable(&mut self, _: u32) {}
    }

    /// The processor and the stub agree about every condition and all registers.
    #[test]
    fn agrees_with_the_interpreter() {
        const REG: u8 = 0x26;
        // The recorder's condition for `syscall`: a futex operation, and the call's number.
        let futex = [
            0x23, 0x3e, 0xfb, REG, 0, 4, 0x22, 0x7f, 0x0f, 0x0b, 0x22, 1, 0x0f, REG, 0, 0, 0x23, 0,
            0xca, 0x13, 0x0f, 0x27,
        ];
        let mut conditions = vec![futex.to_vec()];
        for binary in [0x02, 0x03, 0x04, 0x0b, 0x0f, 0x10, 0x11, 0x13, 0x14, 0x15] {
            conditions.push(vec![REG, 0, 9, REG, 0, 14, binary, 0x27]);
            // Below five other values, so that the operands are in r9 and r10.
            let mut deep = vec![0x22, 1, 0x28, 0x28, 0x28, 0x28, 0x28];
            deep.extend([REG, 0, 9, REG, 0, 14, binary, 0x27]);
            conditions.push(deep);
        }
        // The logical and the bitwise complement, 8 of the bits, an exchange, a lost value.
        conditions.push(vec![REG, 0, 9, 0x0e, 0x27]);
        conditions.push(vec![REG, 0, 9, 0x12, 0x27]);
        conditions.push(vec![REG, 0, 9, 0x2a, 8, 0x27]);
        conditions.push(vec![REG, 0, 9, REG, 0, 14, 0x2b, 0x03, 0x27]);
        conditions.push(vec![REG, 0, 14, REG, 0, 9, 0x29, 0x27]);
        let tid = test_process::start("/bin/true");
        let (pc, sp) = test_process::pc_and_sp(tid);
        let memory = Memory::open(tid).unwrap();
        let frame = (sp & !0xfff) - 4096;
        let mut general = ptrace::register_set(tid, 1, 27 * 8).unwrap();
        let mut results = [0; 2];
        for condition in conditions {
            let mut a = Assembler::default();
            check(&mut a, &condition);
            assert!(!a.code.is_empty(), "{condition:x?}");
            a.put(&[0xcc]);
            a.here(Label::Leave);
            let leave = a.code.len() as u64;
            a.put(&[0xcc]);
            a.link().unwrap();
            memory.write(pc, &a.code).unwrap();
            for (first, second) in [
                (0, 0),
                (1, 0),
                (0x180, 0xca),
                (0x181, 0xca),
                (0x80, 202),
                (u64::MAX, 1),
                (1, u64::MAX),
                (7, 64),
                (1 << 63, 63),
                (0x8000_0000_0000_0000, 0x8000_0000_0000_0000),
                (5, 4_294_967_296),
            ] {
                let mut world = Frame([0; FRAME_WORDS]);
                for (number, value) in [(9, first), (4, first), (14, second), (0, second)] {
                    world.0[frame_index(number).unwrap()] = value;
                }
                let bytes: Vec<u8> = world.0.iter().flat_map(|word| word.to_le_bytes()).collect();
                memory.write(frame, &bytes).unwrap();
                set_word(&mut general, RBP, frame);
                set_word(&mut general, RIP, pc);
                ptrace::set_register_set(tid, 1, &general).unwrap();
                ptrace::cont(tid, 0).unwrap();
                let report = wait(Some(tid), true);
                let trapped = matches!(report, Ok(Some((_, Status::Signal(libc::SIGTRAP)))));
                assert!(trapped, "{report:?} {condition:x?}");
                let now = word(&ptrace::register_set(tid, 1, 27 * 8).unwrap(), RIP);
                let holds = now != pc + leave + 1;
                let expected = evaluate(&condition, &mut world).unwrap() != 0;
                assert_eq!(holds, expected, "{condition:x?} {first:x} {second:x}");
                results[usize::from(holds)] += 1;
            }
        }
        assert!(results.iter().all(|results| *results > 50), "{results:?}");
        ptrace::kill(tid).unwrap();
    }

    #[test]
    fn leaves_conditions_on_memory_to_the_stub() {
        // reg 5, ref32, end; goto 0; an empty stack; division, which may fail
        for condition in [
            &[0x26, 0, 5, 0x19, 0x27][..],
            &[0x21, 0, 0],
            &[0x27],
            &[0x26, 0, 5, 0x22, 2, 0x05, 0x27],
        ] {
            let mut a = Assembler::default();
            check(&mut a, condition);
            assert!(a.code.is_empty());
        }
    }
}
