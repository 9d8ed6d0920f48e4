//! Finds where code keeps the number of a system call, if neither a register nor the instructions
//! directly before the call show it.
//!
//! `syscall` of a C library gets the number as its first argument. glibc 2.41 made it an argument
//! of every call in which a thread can be cancelled, and passes it on the stack. musl passes it in
//! a register. The kernel's samples of blocked x86-64 threads have no register with the number, but
//! they have a few words of the stack: one of them is the number, or they are return addresses, and
//! the code before these shows what the callers passed. Symbols are needed only where a call goes
//! from one file to another.
//!
//! Each answer decodes a limited number of bytes, and [`Work`] limits all answers of a recording to
//! some seconds, also in files that are made to take long.

use std::cell::Cell;

use unspool_image::{Arch, Image};
use unspool_unwind::code::effect::{Effect, Flow, Instruction, Table as JumpTable, TableForm};
use unspool_unwind::code::onward::{Callee, slot};
use unspool_unwind::{Cfa, Source, Table, code};

/// Where the number of a system call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallNumber {
    /// It is always this number.
    Constant(u64),
    /// It is in the word at this distance from the stack pointer at the system call, in bytes.
    OnStack(u64),
    /// The caller of a function passed it in a register.
    Passed(Passed),
}

/// A number that a function got from its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passed {
    /// An instruction of the function (svma), before which `register` has the number.
    pub at: u64,
    register: u8,
    /// The distance of the function's CFA from the stack pointer at the system call.
    cfa: i64,
}

impl Passed {
    /// The distance of the function's return address from the stack pointer at the system call, in
    /// bytes.
    pub fn return_address(&self) -> Option<u64> {
        let distance = u64::try_from(self.cfa - RETURN_ADDRESS).ok()?;
        (distance % 8 == 0).then_some(distance)
    }
}

/// DWARF numbers of x86-64's registers (System V ABI, figure 3.36).
const RAX: u8 = 0;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// The system call instruction (Intel SDM).
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Size of the return address.
const RETURN_ADDRESS: i64 = 8;

/// Maximum distance between an instruction and the one that loads the number, in bytes.
const MAX_DISTANCE: u64 = 1024;
/// Maximum size of all code that is decoded for one answer.
const MAX_DECODED: u64 = 128 << 10;
/// Maximum size of everything that is read for one recording.
const MAX_READ: u64 = 4 << 30;
/// Maximum number of functions that jump on to the next one.
const MAX_JUMPS: usize = 4;

/// The size of the code and the relocations that were read to find the numbers of a recording.
#[derive(Debug, Default)]
pub struct Work {
    read: Cell<u64>,
}

impl Work {
    /// Adds bytes to be read. `None` if these are too many.
    fn add(&self, bytes: u64) -> Option<()> {
        let read = self.read.get().saturating_add(bytes);
        self.read.set(read);
        (read <= MAX_READ).then_some(())
    }
}

/// Finds the number of the system call whose instruction ends at `after`. `None` if the call is not
/// x86-64's, or if the code does not show one answer.
pub fn find(image: &Image, table: &Table, after: u64, work: &Work) -> Option<CallNumber> {
    if image.arch() != Arch::X86_64 {
        return None;
    }
    let call = after.checked_sub(SYSCALL.len() as u64)?;
    (image.bytes_at(call, SYSCALL.len())? == SYSCALL).then_some(())?;
    let decoded = Cell::new(0);
    let code = Code {
        image,
        table,
        work,
        decoded: &decoded,
    };
    code.resolve(RAX, call, code.depth(call)?)
}

/// Finds the number that a function of `callee` got from its caller in `caller`, where it returns
/// to `after`.
pub fn find_passed(
    passed: Passed,
    callee: (&Image, &Table),
    caller: (&Image, &Table),
    after: u64,
    work: &Work,
) -> Option<CallNumber> {
    let decoded = Cell::new(0);
    let [callee, caller] = [callee, caller].map(|(image, table)| Code {
        image,
        table,
        work,
        decoded: &decoded,
    });
    let (site, target) = caller.call_before(after)?;
    match caller.at_entry(target, &callee, &passed, MAX_JUMPS)? {
        Origin::Argument(register) => {
            let cfa = passed.cfa.checked_add(caller.depth(site)?)?;
            caller.resolve(register, site, cfa)
        }
        known => known.number(passed.cfa),
    }
}

struct Code<'a> {
    image: &'a Image,
    table: &'a Table,
    work: &'a Work,
    /// Size of the code that was decoded for this answer.
    decoded: &'a Cell<u64>,
}

/// Decoded code.
struct Listing {
    /// Instructions before an address, in order.
    before: Vec<(u64, Instruction)>,
    /// All jumps in the code around the address, with their targets.
    jumps: Vec<(u64, u64)>,
}

/// Where the value of a register comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Constant(u64),
    /// The word at this distance from the canonical frame address (CFA).
    Slot(i64),
    /// A register at the start of the function.
    Argument(u8),
}

impl Origin {
    /// `cfa` is the distance of the CFA from the stack pointer at the system call.
    fn number(self, cfa: i64) -> Option<CallNumber> {
        match self {
            Origin::Constant(number) => Some(CallNumber::Constant(number)),
            Origin::Slot(distance) => {
                let distance = u64::try_from(cfa.checked_add(distance)?).ok()?;
                (distance % 8 == 0).then_some(CallNumber::OnStack(distance))
            }
            Origin::Argument(_) => None,
        }
    }
}

impl Code<'_> {
    /// Finds the value of `register` before the instruction at `at`. `cfa` is the distance of that
    /// function's CFA from the stack pointer at the system call.
    fn resolve(&self, register: u8, at: u64, cfa: i64) -> Option<CallNumber> {
        let symbol = self.image.symbols().containing(at);
        let start = symbol.map(|symbol| symbol.svma);
        match self.origin(register, at, start) {
            // Only the caller shows for certain where the function starts.
            Some(Origin::Argument(_)) | None => {
                Some(CallNumber::Passed(Passed { at, register, cfa }))
            }
            Some(known) => known.number(cfa),
        }
    }

    /// The origin of a register's value before the instruction at `at`, in a function that starts
    /// at `start`.
    fn origin(&self, mut register: u8, at: u64, start: Option<u64>) -> Option<Origin> {
        let Listing { before, jumps } = self.listing(start, at)?;
        let mut end = at;
        // Another value may arrive by a jump that skips the instruction at `from`.
        let is_only_path = |from: u64, to: u64| {
            let arrives = |target: u64| from < target && target <= to;
            let mut jumps = jumps.iter();
            jumps.all(|(site, target)| !arrives(*target) || (from..to).contains(site))
        };
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
                is_only_path(*svma, end).then_some(())?;
                end = *svma;
                match *effect {
                    Effect::Add { from, by: 0, .. } | Effect::Half { from, .. } => register = from,
                    Effect::Constant { value, .. } => return Some(Origin::Constant(value.into())),
                    Effect::Load { base, offset, mask } if mask.is_power_of_two() => {
                        let distance = i64::from(offset) - self.above(base, *svma)?;
                        return Some(Origin::Slot(distance));
                    }
                    _ => return None,
                }
            }
        }
        (start? == before.first().map_or(at, |(svma, _)| *svma)).then_some(())?;
        is_only_path(start?, end).then_some(Origin::Argument(register))
    }

    /// Where the value of the passed register is when control enters the code at `target`, which
    /// must lead to the function of `callee`. Such code is the function itself, a stub of the
    /// procedure linkage table, or a function that ends in a jump to it.
    fn at_entry(
        &self,
        target: Callee,
        callee: &Code<'_>,
        passed: &Passed,
        jumps: usize,
    ) -> Option<Origin> {
        let start = match target {
            Callee::Code(target) => target.svma,
            Callee::Slot(slot) => {
                self.work.add(self.size_of_relocations())?;
                let Some(name) = self.image.slot_name(slot) else {
                    let svma = self.image.pointer_at(slot)?;
                    let target = code::effect::Target { svma, thumb: false };
                    return self.at_entry(Callee::Code(target), callee, passed, jumps);
                };
                let function = callee.image.symbols().containing(passed.at)?.svma;
                let named = callee.image.symbols().named(&name);
                let is_called = named.iter().any(|symbol| symbol.svma == function);
                return is_called.then(|| callee.argument(passed, function))?;
            }
        };
        if std::ptr::eq(self.image, callee.image)
            && let Some(argument) = callee.argument(passed, start)
        {
            return Some(argument);
        }
        let jumps = jumps.checked_sub(1)?;
        let mut answer = None;
        for (site, target) in self.exits(start)? {
            let found = match self.at_entry(target, callee, passed, jumps)? {
                Origin::Argument(register) => self.origin(register, site, Some(start))?,
                known => known,
            };
            if answer.replace(found).is_some_and(|other| other != found) {
                return None;
            }
        }
        answer
    }

    /// The register that has the passed value at the start of the function, if the function starts
    /// at `start`.
    fn argument(&self, passed: &Passed, start: u64) -> Option<Origin> {
        let distance = passed.at.checked_sub(start)?;
        let origin = (distance <= MAX_DISTANCE)
            .then(|| self.origin(passed.register, passed.at, Some(start)))??;
        matches!(origin, Origin::Argument(_)).then_some(origin)
    }

    /// The jumps out of the code that starts at `start`.
    fn exits(&self, start: u64) -> Option<Vec<(u64, Callee)>> {
        let (mut at, mut exits, mut last) = (start, Vec::new(), start);
        loop {
            let instruction = self.instruction(at)?;
            let next = at + u64::from(instruction.len);
            let mut ends = true;
            match instruction.flow {
                Flow::Next | Flow::Call(_) => ends = false,
                Flow::Branch(target) | Flow::IfZero { target, .. } => {
                    ends = false;
                    match (start..start + MAX_DISTANCE).contains(&target.svma) {
                        true => last = last.max(target.svma),
                        false => exits.push((at, Callee::Code(target))),
                    }
                }
                Flow::Jump(target) if (start..=last.max(at)).contains(&target.svma) => {}
                Flow::Jump(target) => exits.push((at, Callee::Code(target))),
                Flow::Table(JumpTable {
                    svma: Some(slot),
                    form: TableForm::Slot,
                    ..
                }) => exits.push((at, Callee::Slot(slot))),
                Flow::Return | Flow::Trap => {}
                Flow::Indirect(_) | Flow::Table(_) => return None,
            }
            if ends && last < next {
                return Some(exits);
            }
            if next - start > MAX_DISTANCE {
                return None;
            }
            at = next;
        }
    }

    /// The call that returns to `after`: its address, and what it calls.
    fn call_before(&self, after: u64) -> Option<(u64, Callee)> {
        let listing = self.listing(None, after)?;
        let (site, call) = listing.before.last()?;
        let target = match call.flow {
            Flow::Call(Some(target)) => Callee::Code(target),
            Flow::Call(None) => {
                let bytes = self.image.bytes_from(*site)?;
                let called = slot(Arch::X86_64, bytes, after);
                Callee::Slot(called.or_else(|| self.slot_in_register(&listing.before))?)
            }
            _ => return None,
        };
        Some((*site, target))
    }

    /// The slot whose content is in the register of the last instruction, a call. Compilers load
    /// such a register before a loop.
    fn slot_in_register(&self, before: &[(u64, Instruction)]) -> Option<u64> {
        let bytes = |svma: u64, len: usize| self.image.bytes_at(svma, len);
        let ((site, call), before) = before.split_last()?;
        // call r64: [41] ff 11010rrr
        let register = match bytes(*site, call.len.into())? {
            [0xff, operand] if operand & 0xf8 == 0xd0 => operand & 7,
            [0x41, 0xff, operand] if operand & 0xf8 == 0xd0 => operand & 7 | 8,
            _ => return None,
        };
        let load = before.iter().rposition(|(svma, instruction)| {
            // mov r64, [rip + distance]: 01001r00 8b 00rrr101 and four bytes
            let code = bytes(*svma, instruction.len.into());
            code.is_some_and(|code| {
                matches!(code, [prefix, 0x8b, operand, _, _, _, _]
                    if prefix & 0xfb == 0x48
                        && operand & 0xc7 == 5
                        && (prefix & 4) << 1 | operand >> 3 & 7 == register)
            })
        })?;
        let (svma, instruction) = before[load];
        let writes = |instruction: &Instruction| {
            let effects = instruction.effects().iter();
            // An epilogue restores the register.
            let effects =
                effects.filter(|effect| !matches!(effect, Effect::Load { base: RSP, .. }));
            effects.fold(0, |mask, effect| mask | effect.writes())
        };
        let is_kept = |(_, later): &(u64, Instruction)| writes(later) & writes(&instruction) == 0;
        before[load + 1..].iter().all(is_kept).then_some(())?;
        let distance = bytes(svma + 3, 4)?.try_into().ok()?;
        Some((svma + 7).wrapping_add_signed(i32::from_le_bytes(distance).into()))
    }

    /// The size of what is read to find the name of a slot.
    fn size_of_relocations(&self) -> u64 {
        let sections = [".rela.plt", ".rela.dyn", ".dynsym"].into_iter();
        let sections = sections.filter_map(|name| self.image.section(name));
        sections.map(|section| section.data.len() as u64).sum()
    }

    /// The distance of the CFA above a register, at an instruction.
    fn above(&self, register: u8, svma: u64) -> Option<i64> {
        let sources = match register {
            RSP => &[Source::Cfi, Source::Code][..],
            RBP => &[Source::Cfi],
            _ => return None,
        };
        sources
            .iter()
            .find_map(|source| match self.table.cfa_from(*source, svma)?.1 {
                Cfa::Register {
                    register: base,
                    offset,
                } if base == register => Some(offset.into()),
                _ => None,
            })
    }

    /// The distance of the CFA above the stack pointer, at an instruction.
    fn depth(&self, svma: u64) -> Option<i64> {
        self.above(RSP, svma)
    }

    /// Decodes the instruction at an address. `None` also if the answer has taken too long.
    fn instruction(&self, svma: u64) -> Option<Instruction> {
        let instruction =
            code::instruction(Arch::X86_64, self.image.bytes_from(svma)?, svma, false)?;
        let decoded = self.decoded.get() + u64::from(instruction.len);
        self.decoded.set(decoded);
        self.work.add(instruction.len.into())?;
        (decoded <= MAX_DECODED).then_some(instruction)
    }

    /// Decodes the code from `start`, or about [`MAX_DISTANCE`] bytes, to `end`, and as much after
    /// it. An instruction must begin at `end`.
    fn listing(&self, start: Option<u64>, end: u64) -> Option<Listing> {
        let last = end.checked_sub(1)?;
        // The analysis of code takes longer, so it serves only code without call frame information.
        let source = match self.table.cfa_from(Source::Cfi, last) {
            Some(_) => Source::Cfi,
            None => Source::Code,
        };
        let row = |svma: u64| self.table.cfa_from(source, svma).map(|(row, _)| row);
        let is_near = |start: &u64| *start <= end && end - start <= MAX_DISTANCE;
        let start = start.filter(is_near);
        let mut first = match start {
            Some(start) => start,
            // Rows of the unwind table start where instructions do.
            None => row(last)?.start,
        };
        while start.is_none()
            && end - first < MAX_DISTANCE
            && let Some(row) = row(first.checked_sub(1)?).filter(|row| row.end == first)
        {
            first = row.start;
        }
        let (mut before, mut jumps) = (Vec::new(), Vec::new());
        let mut at = first;
        while at < end || at < end + MAX_DISTANCE && row(at).is_some() {
            let Some(instruction) = self.instruction(at) else {
                break;
            };
            if let Flow::Jump(target) | Flow::Branch(target) | Flow::IfZero { target, .. } =
                instruction.flow
            {
                jumps.push((at, target.svma));
            }
            let next = at + u64::from(instruction.len);
            if at < end {
                before.push((at, instruction));
                // The last one must end where the next begins.
                (next <= end).then_some(())?;
            }
            at = next;
        }
        (at >= end).then_some(Listing { before, jumps })
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

    /// The answer for the last system call in the code, if these callers are enough for one. The
    /// functions return to `returns`, the innermost first.
    fn found_from(code: &[u8], returns: &[usize]) -> Option<CallNumber> {
        let (image, table) = image(code);
        let call = code.windows(2).rposition(|bytes| bytes == SYSCALL)?;
        let work = Work::default();
        let mut answer = find(&image, &table, CODE + call as u64 + 2, &work)?;
        for after in returns {
            let CallNumber::Passed(passed) = answer else {
                panic!("{answer:?}, and not {after:#x}");
            };
            let code = (&image, &table);
            answer = find_passed(passed, code, code, CODE + *after as u64, &work)?;
        }
        Some(answer).filter(|answer| !matches!(answer, CallNumber::Passed(_)))
    }

    /// `call rel32` from an offset to another.
    fn call(from: usize, to: usize) -> Vec<u8> {
        let distance = to as i32 - (from as i32 + 5);
        [&[0xe8][..], &distance.to_le_bytes()].concat()
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

    /// Where the functions called in [`three_functions`] return to: before the last 15 bytes.
    fn returns(code: &[u8]) -> [usize; 1] {
        [code.len() - 15]
    }

    #[test]
    fn in_a_caller_of_the_function_with_the_call() {
        let code = three_functions(&LOAD);
        assert_eq!(
            found_from(&code, &returns(&code)),
            Some(CallNumber::OnStack(32))
        );
        // mov esi, 7
        let constant = three_functions(&[0xbe, 7, 0, 0, 0]);
        assert_eq!(
            found_from(&constant, &returns(&constant)),
            Some(CallNumber::Constant(7))
        );
    }

    #[test]
    fn in_the_function_with_the_call() {
        // push 7; call +2; pop rax; ret; push rbx; mov rax, [rsp + 16]; syscall; pop rbx; ret
        let mut code = vec![0x6a, 7];
        code.extend(call(2, 9));
        code.extend([
            0x58, 0xc3, 0x53, 0x48, 0x8b, 0x44, 0x24, 16, 0x0f, 0x05, 0x5b, 0xc3,
        ]);
        assert_eq!(found_from(&code, &[]), Some(CallNumber::OnStack(16)));
    }

    /// mov rax, rdi; syscall; ret, as in a C library's `syscall`, after two callers with a number
    /// of their own. The first one calls a function that jumps to it: mov edi, 202; jmp.
    #[test]
    fn each_caller_has_its_own() {
        let mut code = call(0, 17);
        // ret; mov edi, 7; call; ret
        code.extend([0xc3, 0xbf, 7, 0, 0, 0]);
        code.extend(call(11, 27));
        code.push(0xc3);
        // mov edi, 202; jmp +0
        code.extend([0xbf, 202, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
        code.extend([0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3]);
        assert_eq!(found_from(&code, &[5]), Some(CallNumber::Constant(202)));
        assert_eq!(found_from(&code, &[16]), Some(CallNumber::Constant(7)));
        // Not behind a call
        assert_eq!(found_from(&code, &[6]), None);
    }

    #[test]
    fn none_where_several_are_possible() {
        // jz +5; `LOAD`: only one of two paths loads the register.
        let two_paths = three_functions(&[&[0x74, 5][..], &LOAD].concat());
        assert_eq!(found_from(&two_paths, &returns(&two_paths)), None);
        // The number is a sum: add rsi, rbx
        let sum = three_functions(&[&LOAD[..], &[0x48, 0x01, 0xde]].concat());
        assert_eq!(found_from(&sum, &returns(&sum)), None);
        // The caller calls another function: call +0
        let mut other = three_functions(&LOAD);
        let back = other.len() + 5;
        other.extend([0xe8, 0, 0, 0, 0, 0xc3]);
        assert_eq!(found_from(&other, &[back]), None);
    }
}
