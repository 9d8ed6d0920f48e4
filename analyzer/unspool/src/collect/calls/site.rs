//! What is done at one probe of a call: in which cases a hit counts, and what a server with tracepoints collects for it.

use unspool_image::Arch;
use unspool_rsp::{Client, Registers, TraceAction, TraceFrame};
use unspool_unwind::RegisterFile;
use unspool_unwind::code::exits::{Early, Given, Return, SystemCall};

use super::super::abi::Abi;
use super::super::bytecode::*;
use super::super::tracepoints::{FLAGS, RESULT, SP, STACK_LEFT, THREAD, TIME, number};
use super::condition;

/// So much of an object is noted: mutexes, and read-write locks up to their writer, in every known C library.
pub(in crate::collect) const OBJECT: usize = 48;
/// So much of the stack is sent at a hit: nearly all call paths are shorter, and it is done at every hit.
const STACK: u16 = 4096;

/// Bits 0, 6, 9, 11 and 13: `FUTEX_WAIT`, `_LOCK_PI`, `_WAIT_BITSET`, `_WAIT_REQUEUE_PI`, `_LOCK_PI2` (linux/futex.h).
const WAITS: u16 = 1 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13;
/// Bits 1, 3, 4, 5, 7, 10 and 12: `FUTEX_WAKE`, `_REQUEUE`, `_CMP_REQUEUE`, `_WAKE_OP`, `_UNLOCK_PI`, `_WAKE_BITSET`,
/// `_CMP_REQUEUE_PI`.
const WAKES: u16 = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 12;
/// What is not `FUTEX_PRIVATE_FLAG` or `FUTEX_CLOCK_REALTIME`.
const COMMAND: u8 = 0x7f;

/// The numbers of the futex system calls (the kernel's syscall tables; ARM has one for 64-bit time as well).
pub(super) fn futex_numbers(arch: Arch) -> &'static [u32] {
    match arch {
        Arch::X86_64 => &[202],
        Arch::Aarch64 => &[98],
        _ => &[240, 422],
    }
}

/// What a futex system call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::collect) enum Does {
    Wait,
    Wake,
    /// One or the other: its operation tells.
    Either,
}

impl Does {
    /// What an operation does; `None`: neither.
    pub(super) fn of(operation: u32) -> Option<Does> {
        let both = [Does::Wait, Does::Wake];
        both.into_iter().find(|does| does.includes(operation))
    }

    fn includes(self, operation: u32) -> bool {
        let command = operation & u32::from(COMMAND);
        command < 16 && self.operations() >> command & 1 == 1
    }

    /// One bit for each operation.
    fn operations(self) -> u16 {
        match self {
            Does::Wait => WAITS,
            Does::Wake => WAKES,
            Does::Either => WAITS | WAKES,
        }
    }
}

/// What is done at one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collect) enum Site {
    /// A function is entered. Which argument is an object to be noted.
    Enter { object: Option<u8> },
    /// A function returns.
    Leave {
        /// How far the stack pointer is below where it was at the entry.
        below: i32,
        /// A32's condition.
        condition: u8,
        /// What it always returns there, where that is not in its register yet.
        result: Option<u32>,
    },
    /// A futex system call is about to be made.
    Futex {
        does: Does,
        /// It may also be another system call.
        any: bool,
        /// What the instructions between here and the call set its arguments to.
        sets: [Option<Given>; 4],
    },
    /// One that waits returns.
    Returned,
}

impl Site {
    pub(super) fn enter(object: Option<u8>) -> Site {
        Site::Enter { object }
    }

    /// At a return, or where as much is known as there.
    pub(super) fn leave(back: &Return, early: Option<Early>) -> Site {
        Site::Leave {
            below: early.map_or(back.below, |early| early.below),
            condition: back.condition,
            result: early.and_then(|early| early.result),
        }
    }

    pub(super) fn futex(call: &SystemCall, does: Does) -> Site {
        Site::Futex {
            does,
            any: call.number.is_none(),
            sets: call.before.map_or([None; 4], |before| before.sets),
        }
    }

    pub(super) fn returned() -> Site {
        Site::Returned
    }

    /// The beginning of a call, with a stack, rather than an end.
    pub(super) fn begins(self) -> bool {
        matches!(self, Site::Enter { .. } | Site::Futex { .. })
    }

    /// The stack pointer with which the function was entered.
    pub(super) fn entry_sp(self, abi: &Abi, sp: u64) -> u64 {
        match self {
            Site::Leave { below, .. } => abi.wrap(sp.wrapping_add_signed(below.into())),
            _ => sp,
        }
    }

    /// True if the hit belongs to a recorded call, by registers that were read.
    pub(super) fn counts(self, abi: &Abi, registers: &Registers) -> bool {
        match self {
            Site::Enter { .. } => true,
            Site::Leave { condition, .. } => abi
                .flags(registers)
                .is_none_or(|flags| condition::holds(flags, condition)),
            Site::Futex { does, any, .. } => {
                let called = abi.call_number(registers);
                let futex = |number| {
                    let mut numbers = futex_numbers(abi.arch).iter();
                    numbers.any(|futex| u64::from(*futex) == number)
                };
                (!any || called.is_some_and(futex)) && does_it(does, &self.args(abi, registers))
            }
            Site::Returned => {
                let args = abi.call_arguments(registers, 2).unwrap_or_default();
                does_it(Does::Wait, &args)
            }
        }
    }

    /// The arguments that a call is made with.
    pub(super) fn args(self, abi: &Abi, registers: &Registers) -> Vec<u64> {
        let Site::Futex { sets, .. } = self else {
            return abi.args(registers, 4).unwrap_or_default();
        };
        let mut args = abi.call_arguments(registers, 4).unwrap_or_default();
        let file: RegisterFile = abi.register_file(registers);
        for (argument, given) in args.iter_mut().zip(sets) {
            if let Some(value) = given.and_then(|given| given.value(|number| file.get(number))) {
                *argument = abi.wrap(value);
            }
        }
        args
    }

    /// What a call gives that ends here.
    pub(super) fn result(self, abi: &Abi, registers: &Registers) -> Option<u64> {
        match self {
            Site::Leave {
                result: Some(value),
                ..
            } => Some(value.into()),
            _ => abi.result(registers),
        }
    }

    /// The object's address, if it is to be noted.
    pub(in crate::collect) fn object(self, args: &[u64]) -> Option<u64> {
        let at = match self {
            Site::Enter { object } => usize::from(object?),
            // Who wakes others has no use for what is there.
            Site::Futex { does, .. } if does != Does::Wake => 0,
            _ => return None,
        };
        // The first page is never mapped.
        args.get(at).copied().filter(|address| *address >= 0x1000)
    }

    /// The condition under which a server with tracepoints notes a hit.
    pub(in crate::collect) fn trace_condition(self, abi: &Abi) -> Option<Vec<u8>> {
        let own = abi.call_argument_number(1);
        let (does, any, sets) = match self {
            Site::Enter { .. } | Site::Leave { .. } => return None,
            Site::Futex { does, any, sets } => (does, any, sets),
            Site::Returned => (Does::Wait, false, [None; 4]),
        };
        let operation = match sets[1] {
            // What it will be set to.
            Some(Given::Register(from, 0)) => abi.dwarf_number(from).unwrap_or(own),
            _ => own,
        };
        let [operation_high, operation_low] = operation.to_be_bytes();
        let [high, low] = does.operations().to_be_bytes();
        let code = [
            CONST16,
            high,
            low,
            REG,
            operation_high,
            operation_low,
            CONST8,
            COMMAND,
            BIT_AND,
            RSH_UNSIGNED,
            CONST8,
            1,
            BIT_AND,
        ];
        // What the instruction itself gives is known.
        let mut code = match tells(sets) {
            true => Vec::new(),
            false => code.to_vec(),
        };
        if any {
            let [high, low] = abi.call_number_number().to_be_bytes();
            for (index, futex) in futex_numbers(abi.arch).iter().enumerate() {
                let [wanted_high, wanted_low] = (*futex as u16).to_be_bytes();
                code.extend([REG, high, low, CONST16, wanted_high, wanted_low, EQUAL]);
                if index > 0 {
                    code.push(BIT_OR);
                }
            }
            if !tells(sets) {
                code.push(BIT_AND);
            }
        }
        if code.is_empty() {
            return None;
        }
        code.push(END);
        Some(code)
    }

    /// What a server with tracepoints collects.
    pub(in crate::collect) fn trace_actions(self, abi: &Abi) -> Vec<TraceAction> {
        let mut code = vec![TRACEV, 0, number(TIME), TRACEV, 0, number(THREAD)];
        let mut actions = Vec::new();
        if self.begins() {
            actions.push(TraceAction::Registers(abi.trace_registers()));
            add_stack(&mut code, abi.sp_number());
            if let Some(argument) = match self {
                Site::Enter { object } => object.map(|index| abi.argument_number(index.into())),
                // Not yet in its register: it is read from where it comes from, or not at all.
                Site::Futex {
                    does: Does::Wake, ..
                } => None,
                Site::Futex {
                    sets: [Some(given), ..],
                    ..
                } => match given {
                    Given::Register(from, 0) => abi.dwarf_number(from),
                    _ => None,
                },
                _ => Some(abi.call_argument_number(0)),
            } {
                let [high, low] = argument.to_be_bytes();
                code.extend([REG, high, low, CONST8, OBJECT as u8, TRACE]);
            }
        } else {
            // Three numbers instead of all registers, which are many times as many bytes.
            let known = match self {
                Site::Leave { result, .. } => result,
                _ => None,
            };
            if let Some(value) = known {
                let [a, b, c, d] = value.to_be_bytes();
                let variable = number(RESULT);
                code.extend([
                    CONST32, a, b, c, d, SETV, 0, variable, POP, TRACEV, 0, variable,
                ]);
            }
            let numbers = [
                (
                    RESULT,
                    Some(abi.result_number()).filter(|_| known.is_none()),
                ),
                (SP, Some(abi.sp_number())),
                (FLAGS, abi.flags_number()),
            ];
            for (variable, register) in numbers {
                if let Some(register) = register {
                    let [high, low] = register.to_be_bytes();
                    let variable = number(variable);
                    code.extend([REG, high, low, SETV, 0, variable, POP, TRACEV, 0, variable]);
                }
            }
        }
        code.push(END);
        actions.push(TraceAction::Expression(code));
        actions
    }
}

/// Whether the instructions before the call say what the operation is: calls that are not of interest
/// were left out when places were chosen.
fn tells(sets: [Option<Given>; 4]) -> bool {
    matches!(sets[1], Some(Given::Constant(_) | Given::Bits { .. }))
}

/// The futex command that an argument says, if it is always the same one.
///
/// glibc flips the flag "private" of an operation that it keeps in a variable; that operation is
/// then `FUTEX_WAIT`, 0.
pub(super) fn command(given: Given) -> Option<u32> {
    if let Given::Bits {
        shift: 0,
        mask: u32::MAX,
        flipped,
        ..
    } = given
    {
        return Some(flipped);
    }
    let (known, value) = given.known_bits();
    (known & u32::from(COMMAND) == u32::from(COMMAND)).then_some(value)
}

/// What is not known is not left out.
fn does_it(does: Does, args: &[u64]) -> bool {
    args.get(1)
        .is_none_or(|operation| does.includes(*operation as u32))
}

/// The stack, or the first [`STACK`] bytes of it.
fn add_stack(code: &mut Vec<u8>, sp: u16) {
    let [sp_high, sp_low] = sp.to_be_bytes();
    let [high, low] = STACK.to_be_bytes();
    let left = [GETV, 0, number(STACK_LEFT)];
    code.extend([REG, sp_high, sp_low]);
    code.extend(left);
    code.extend([CONST16, high, low, LESS_UNSIGNED, IF_GOTO, 0, 0]);
    let small = code.len() - 1;
    code.extend([CONST16, high, low, TRACE, GOTO, 0, 0]);
    let end = code.len() - 1;
    code[small] = code.len() as u8;
    code.extend(left);
    code.push(TRACE);
    code[end] = code.len() as u8;
}

/// What a frame has of the numbers that the end of a call collects.
pub(super) fn variable(frame: &TraceFrame, index: usize) -> Option<u64> {
    let value = frame.variable(Client::trace_variable(index))?;
    Some(value.cast_unsigned())
}
