//! Finds where code keeps the number of a system call, if neither a register nor the instructions
//! directly before the call show it.
//!
//! glibc 2.41 made the number an argument: every call in which a thread can be cancelled goes
//! through one function, whose callers pass the number on their stack. The kernel's samples of
//! blocked x86-64 threads have no register with the number, but they have a few words of the stack.
//! Here the code says which word it is. Symbols are not needed.

use std::collections::BTreeSet;
use std::ops::Range;

use unspool_image::{Arch, Binding, Image};
use unspool_unwind::code::effect::{Effect, Flow, Instruction};
use unspool_unwind::{Cfa, Row, Source, Table, code};

/// Where the number of a system call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallNumber {
    /// It is always this number.
    Constant(u64),
    /// It is in the word at this distance from the stack pointer at the system call, in bytes.
    OnStack(u64),
}

/// DWARF numbers of x86-64's registers (System V ABI, figure 3.36).
const RAX: u8 = 0;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// The system call instruction, and the size of `call rel32` and `jmp rel32` (Intel SDM).
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
const CALL_SIZE: u64 = 5;
/// Size of the return address.
const RETURN_ADDRESS: i64 = 8;

/// Maximum distance between an instruction and the one that loads the number, in bytes.
const MAX_DISTANCE: u64 = 1024;
/// Maximum size of the code that is decoded to find where instructions begin.
const MAX_DECODED: u64 = 64 << 10;
/// Maximum number of functions that pass the number on.
const MAX_CALLERS: usize = 3;

/// Finds the number of the system call whose instruction ends at `after`. `None` if the call is not
/// x86-64's, or if the code does not show one answer.
pub fn find(image: &Image, table: &Table, after: u64) -> Option<CallNumber> {
    if image.arch() != Arch::X86_64 {
        return None;
    }
    let call = after.checked_sub(SYSCALL.len() as u64)?;
    (image.bytes_at(call, SYSCALL.len())? == SYSCALL).then_some(())?;
    // The analysis of code takes longer, so it serves only images without call frame information.
    let source = match table.lookup_from(Source::Cfi, call) {
        Some(_) => Source::Cfi,
        None => Source::Code,
    };
    let code = Code {
        image,
        table,
        source,
    };
    code.resolve(RAX, call, code.depth(call)?, MAX_CALLERS)
}

struct Code<'a> {
    image: &'a Image,
    table: &'a Table,
    /// The rows that show where instructions begin.
    source: Source,
}

/// Decoded code.
struct Listing {
    /// Instructions before an address, in order.
    before: Vec<(u64, Instruction)>,
    /// Targets of all jumps in the code around the address.
    joins: BTreeSet<u64>,
}

/// Where the value of a register comes from.
enum Origin {
    Constant(u64),
    /// The word at this distance from the canonical frame address (CFA).
    Slot(i64),
    /// A register at the start of the function at this address.
    Argument(u8, u64),
}

/// A `call` or `jmp` to the start of a function.
struct Caller {
    site: u64,
    target: u64,
    is_jump: bool,
}

impl Code<'_> {
    /// Finds the value of `register` before the instruction at `at`. `cfa` is the distance of that
    /// function's CFA from the stack pointer at the system call.
    fn resolve(&self, register: u8, at: u64, cfa: i64, callers: usize) -> Option<CallNumber> {
        let into = self.callers_of(at.saturating_sub(MAX_DISTANCE)..at);
        let starts: BTreeSet<u64> = into.iter().map(|caller| caller.target).collect();
        let (register, start) = match self.origin(register, at, &starts)? {
            Origin::Constant(number) => return Some(CallNumber::Constant(number)),
            Origin::Slot(distance) => {
                let distance = u64::try_from(cfa + distance).ok()?;
                return (distance % 8 == 0).then_some(CallNumber::OnStack(distance));
            }
            Origin::Argument(register, start) => (register, start),
        };
        if callers == 0 || self.is_visible(start) {
            return None;
        }
        let mut answer = None;
        for caller in into.iter().filter(|caller| caller.target == start) {
            // The bytes of a call, but inside another instruction.
            if self.listing(caller.site, 0).is_none() {
                continue;
            }
            let pushed = if caller.is_jump { RETURN_ADDRESS } else { 0 };
            let cfa = cfa + self.depth(caller.site)? - pushed;
            let found = self.resolve(register, caller.site, cfa, callers - 1)?;
            if answer.replace(found).is_some_and(|other| other != found) {
                return None;
            }
        }
        answer
    }

    /// The origin of a register's value before the instruction at `at`. `starts` are starts of
    /// functions.
    fn origin(&self, mut register: u8, at: u64, starts: &BTreeSet<u64>) -> Option<Origin> {
        let Listing { before, joins } = self.listing(at, MAX_DISTANCE)?;
        // Another value may arrive by a jump that skips the load.
        let is_only_path = |load: u64| joins.range(load + 1..=at).next().is_none();
        for (svma, instruction) in before.iter().rev() {
            if !matches!(
                instruction.flow,
                Flow::Next | Flow::Branch(_) | Flow::IfZero { .. }
            ) {
                return None;
            }
            for effect in instruction.effects().iter().rev() {
                if effect.writes() >> register & 1 == 0 {
                    continue;
                }
                let found = match *effect {
                    Effect::Add { from, by: 0, .. } | Effect::Half { from, .. } => {
                        register = from;
                        continue;
                    }
                    Effect::Constant { value, .. } => Origin::Constant(value.into()),
                    Effect::Load { base, offset, mask } if mask.is_power_of_two() => {
                        Origin::Slot(i64::from(offset) - self.above(base, *svma)?)
                    }
                    _ => return None,
                };
                return is_only_path(*svma).then_some(found);
            }
            if starts.contains(svma) {
                return is_only_path(*svma).then_some(Origin::Argument(register, *svma));
            }
        }
        None
    }

    /// The distance of the CFA above a register, at an instruction.
    fn above(&self, register: u8, svma: u64) -> Option<i64> {
        let sources = match register {
            RSP => &[Source::Cfi, Source::Code][..],
            RBP => &[Source::Cfi],
            _ => return None,
        };
        sources.iter().find_map(
            |source| match self.table.lookup_from(*source, svma)?.rule.cfa {
                Cfa::Register {
                    register: base,
                    offset,
                } if base == register => Some(offset.into()),
                _ => None,
            },
        )
    }

    /// The distance of the CFA above the stack pointer, at an instruction.
    fn depth(&self, svma: u64) -> Option<i64> {
        self.above(RSP, svma)
    }

    fn row(&self, svma: u64) -> Option<Row<'_>> {
        self.table.lookup_from(self.source, svma)
    }

    /// Decodes about `distance` bytes before and after `end`, where an instruction must begin.
    fn listing(&self, end: u64, distance: u64) -> Option<Listing> {
        // Rows of the unwind table start where instructions do.
        let mut start = self.row(end.checked_sub(1)?)?.start;
        while end - start < distance
            && let Some(row) = self.row(start - 1).filter(|row| row.end == start)
        {
            start = row.start;
        }
        if end - start > MAX_DECODED {
            return None;
        }
        let (mut before, mut joins) = (Vec::new(), BTreeSet::new());
        let mut at = start;
        while at < end || at < end + distance && self.row(at).is_some() {
            let bytes = self.image.bytes_from(at)?;
            let Some(instruction) = code::instruction(Arch::X86_64, bytes, at, false) else {
                break;
            };
            if let Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } =
                instruction.flow
            {
                joins.insert(target.svma);
            }
            let next = at + u64::from(instruction.len);
            if at < end {
                before.push((at, instruction));
                // The last one must end where the next begins.
                (next <= end).then_some(())?;
            }
            at = next;
        }
        (at >= end).then_some(Listing { before, joins })
    }

    /// All bytes in the image that look like a direct call or jump to an address in `range`.
    fn callers_of(&self, range: Range<u64>) -> Vec<Caller> {
        let mut callers = Vec::new();
        for text in self.image.text_ranges() {
            let Ok(size) = usize::try_from(text.end - text.start) else {
                continue;
            };
            let Some(bytes) = self.image.bytes_at(text.start, size) else {
                continue;
            };
            for index in memchr::memchr2_iter(CALL, JUMP, bytes) {
                let Some(distance) = bytes.get(index + 1..index + 5) else {
                    break;
                };
                let distance = i32::from_le_bytes(distance.try_into().unwrap_or_default());
                let site = text.start + index as u64;
                let target = (site + CALL_SIZE).wrapping_add_signed(distance.into());
                // A jump inside the range does not leave its function.
                let is_jump = bytes[index] == JUMP;
                if range.contains(&target) && !(is_jump && range.contains(&site)) {
                    callers.push(Caller {
                        site,
                        target,
                        is_jump,
                    });
                }
            }
        }
        callers
    }

    /// Whether other images, or pointers to the function, may call it.
    fn is_visible(&self, start: u64) -> bool {
        let symbol = self.image.symbols().containing(start);
        symbol.is_some_and(|symbol| symbol.svma == start && symbol.binding != Binding::Local)
    }
}

#[cfg(test)]
mod tests {
    use unspool_unwind::CompileOptions;

    use super::*;

    /// Address of the first instruction, after the ELF header and one program header.
    const CODE: u64 = 0x40_0078;

    /// An executable without symbols or unwind information, and its unwind table.
    fn image(code: &[u8]) -> (Image, Table) {
        let size = (CODE & 0xfff) + code.len() as u64;
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(16, 0);
        let half = |value: u16| value.to_le_bytes().to_vec();
        let word = |value: u32| value.to_le_bytes().to_vec();
        let long = |value: u64| value.to_le_bytes().to_vec();
        // ET_EXEC, EM_X86_64; entry, program headers, section headers; sizes and counts
        bytes.extend([half(2), half(62), word(1), long(CODE), long(64), long(0)].concat());
        bytes.extend(
            [
                word(0),
                half(64),
                half(56),
                half(1),
                half(64),
                half(0),
                half(0),
            ]
            .concat(),
        );
        // PT_LOAD, readable and executable
        bytes.extend([word(1), word(5), long(0), long(CODE & !0xfff)].concat());
        bytes.extend([long(CODE & !0xfff), long(size), long(size), long(0x1000)].concat());
        assert_eq!(bytes.len() as u64, CODE & 0xfff);
        bytes.extend(code);
        let image = Image::parse("hand-made", bytes).expect("an executable");
        let table = Table::on_demand(&image, &CompileOptions::default());
        (image, table)
    }

    /// The answer for the last system call in the code.
    fn found(code: &[u8]) -> Option<CallNumber> {
        let (image, table) = image(code);
        let call = code.windows(2).rposition(|bytes| bytes == SYSCALL)?;
        find(&image, &table, CODE + call as u64 + 2)
    }

    /// `call rel32` from an offset to another.
    fn call(from: usize, to: usize) -> Vec<u8> {
        let distance = to as i32 - (from as i32 + 5);
        [&[CALL][..], &distance.to_le_bytes()].concat()
    }

    /// push 7; call middle; pop rax; ret
    ///
    /// middle: push rbx; push r9; `load`; call last; pop rcx; pop rbx; ret
    ///
    /// last: mov r11, rdi; mov rax, rsi; mov rdi, rdx; syscall; ret
    fn three_functions(load: &[u8]) -> Vec<u8> {
        let mut code = vec![0x6a, 7];
        code.extend(call(2, 9));
        code.extend([0x58, 0xc3, 0x53, 0x41, 0x51]);
        code.extend(load);
        code.extend(call(code.len(), code.len() + 8));
        code.extend([0x59, 0x5b, 0xc3]);
        code.extend([
            0x49, 0x89, 0xfb, 0x48, 0x89, 0xf0, 0x48, 0x89, 0xd7, 0x0f, 0x05, 0xc3,
        ]);
        code
    }

    /// mov rsi, [rsp + 24]: the argument that the first function has pushed.
    const LOAD: [u8; 5] = [0x48, 0x8b, 0x74, 0x24, 24];

    #[test]
    fn in_a_caller_of_the_function_with_the_call() {
        assert_eq!(
            found(&three_functions(&LOAD)),
            Some(CallNumber::OnStack(32))
        );
        // mov esi, 7
        let constant = three_functions(&[0xbe, 7, 0, 0, 0]);
        assert_eq!(found(&constant), Some(CallNumber::Constant(7)));
    }

    #[test]
    fn in_the_function_with_the_call() {
        // push 7; call +2; pop rax; ret; push rbx; mov rax, [rsp + 16]; syscall; pop rbx; ret
        let mut code = vec![0x6a, 7];
        code.extend(call(2, 9));
        code.extend([
            0x58, 0xc3, 0x53, 0x48, 0x8b, 0x44, 0x24, 16, 0x0f, 0x05, 0x5b, 0xc3,
        ]);
        assert_eq!(found(&code), Some(CallNumber::OnStack(16)));
    }

    #[test]
    fn none_where_several_are_possible() {
        // jz +5; `LOAD`: only one of two paths loads the register.
        let two_paths = three_functions(&[&[0x74, 5][..], &LOAD].concat());
        assert_eq!(found(&two_paths), None);
        // A second caller passes a constant: mov esi, 7; call last; ret
        let mut two_callers = three_functions(&LOAD);
        let last = two_callers.len() - 12;
        two_callers.extend([0xbe, 7, 0, 0, 0]);
        two_callers.extend(call(two_callers.len(), last));
        two_callers.push(0xc3);
        assert_eq!(found(&two_callers), None);
        // The number is a sum: add rsi, rbx
        let sum = three_functions(&[&LOAD[..], &[0x48, 0x01, 0xde]].concat());
        assert_eq!(found(&sum), None);
    }
}
