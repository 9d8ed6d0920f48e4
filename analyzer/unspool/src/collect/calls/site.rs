//! Probe sites of calls: when a hit counts as a recorded call, and what a server with tracepoints
//! collects for it.

use unspool_rsp::{Client, Registers, TraceAction, TraceFrame};
use unspool_unwind::RegisterFile;
use unspool_unwind::code::exits::{Early, Given, Return, SystemCall};

use super::super::bytecode::*;
use super::super::tracepoints::{
    CALL_SITE, FLAGS, FUNCTION, RESULT, RETURN_ADDRESS, SP, STACK_KEY, STACK_LEFT, THREAD, TIME,
    number,
};
use crate::platform::abi::Abi;
use crate::platform::condition;

/// Number of bytes recorded of each object. They cover mutexes, and read-write locks up to their
/// writer, in every known C library.
pub(in crate::collect) const OBJECT: usize = 48;
/// Maximum bytes of stack sent per hit. Nearly all call paths need fewer bytes, and every hit costs
/// time for each byte.
const STACK: u16 = 4096;

/// Bits 0, 6, 9, 11 and 13: `FUTEX_WAIT`, `_LOCK_PI`, `_WAIT_BITSET`, `_WAIT_REQUEUE_PI`,
/// `_LOCK_PI2` (linux/futex.h).
const WAITS: u16 = 1 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 13;
/// Bits 1, 3, 4, 5, 7, 10 and 12: `FUTEX_WAKE`, `_REQUEUE`, `_CMP_REQUEUE`, `_WAKE_OP`,
/// `_UNLOCK_PI`, `_WAKE_BITSET`, `_CMP_REQUEUE_PI`.
const WAKES: u16 = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 10 | 1 << 12;
/// Masks the flags `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME` out of a futex operation.
const COMMAND: u8 = 0x7f;

/// The possible effect of a futex system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::collect) enum Does {
    Wait,
    Wake,
    /// Waits or wakes, depending on its operation.
    Either,
}

impl Does {
    /// Classifies a futex operation; `None` if it neither waits nor wakes.
    pub(super) fn of(operation: u32) -> Option<Does> {
        let both = [Does::Wait, Does::Wake];
        both.into_iter().find(|does| does.includes(operation))
    }

    fn includes(self, operation: u32) -> bool {
        let command = operation & u32::from(COMMAND);
        command < 16 && self.operations() >> command & 1 == 1
    }

    /// Mask with one bit per futex operation.
    fn operations(self) -> u16 {
        match self {
            Does::Wait => WAITS,
            Does::Wake => WAKES,
            Does::Either => WAITS | WAKES,
        }
    }
}

/// The kind of code at a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::collect) enum Site {
    /// The entry of a function. `object` is the index of the argument whose object is recorded.
    Enter { object: Option<u8> },
    /// A return of a function.
    Leave {
        /// Offset from the stack pointer here to its value at the entry.
        below: i32,
        /// The A32 condition of the return instruction.
        condition: u8,
        /// The constant result at this return, if its register does not hold it yet.
        result: Option<u32>,
    },
    /// The instruction before a futex system call, or the call itself.
    Futex {
        does: Does,
        /// True if the instruction may also make another system call.
        any: bool,
        /// The argument values that are set by the instructions between the probe and the call.
        sets: [Option<Given>; 4],
    },
    /// The return of a futex system call that waits.
    Returned,
    /// A hook that a function calls where it begins or ends.
    Hook {
        /// True for the exit hook; `None` if one function is both hooks.
        ends: Option<bool>,
    },
}

impl Site {
    pub(super) fn enter(object: Option<u8>) -> Site {
        Site::Enter { object }
    }

    /// Makes the site of a return, or of an earlier place with the same facts.
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

    /// True if a call begins here, so that the hit carries a stack; false if one ends.
    pub(super) fn begins(self) -> bool {
        matches!(self, Site::Enter { .. } | Site::Futex { .. })
    }

    /// The stack pointer at the function's entry.
    pub(super) fn entry_sp(self, abi: &Abi, sp: u64) -> u64 {
        match self {
            Site::Leave { below, .. } => abi.wrap(sp.wrapping_add_signed(below.into())),
            _ => sp,
        }
    }

    /// True if the hit belongs to a recorded call, judged by registers already read.
    pub(super) fn counts(self, abi: &Abi, registers: &Registers) -> bool {
        match self {
            Site::Enter { .. } | Site::Hook { .. } => true,
            Site::Leave { condition, .. } => abi
                .flags(registers)
                .is_none_or(|flags| condition::holds(flags, condition)),
            Site::Futex { does, any, .. } => {
                let called = abi.call_number(registers);
                let futex = |number| {
                    let mut numbers = abi.platform.system_call.futexes.iter();
                    numbers.any(|futex| *futex == number)
                };
                (!any || called.is_some_and(futex)) && does_it(does, &self.args(abi, registers))
            }
            Site::Returned => {
                let args = abi.call_arguments(registers, 2).unwrap_or_default();
                does_it(Does::Wait, &args)
            }
        }
    }

    /// The arguments of the call.
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

    /// The result of a call that ends here.
    pub(super) fn result(self, abi: &Abi, registers: &Registers) -> Option<u64> {
        match self {
            Site::Leave {
                result: Some(value),
                ..
            } => Some(value.into()),
            _ => abi.result(registers),
        }
    }

    /// The object's address, if the object is recorded.
    pub(in crate::collect) fn object(self, args: &[u64]) -> Option<u64> {
        let at = match self {
            Site::Enter { object } => usize::from(object?),
            // A waker does not need the contents of the object.
            Site::Futex { does, .. } if does != Does::Wake => 0,
            _ => return None,
        };
        // The first page is never mapped.
        args.get(at).copied().filter(|address| *address >= 0x1000)
    }

    /// The condition under which a server with tracepoints records a hit.
    pub(in crate::collect) fn trace_condition(self, abi: &Abi) -> Option<Vec<u8>> {
        let own = abi.call_argument_number(1);
        let (does, any, sets) = match self {
            Site::Enter { .. } | Site::Leave { .. } | Site::Hook { .. } => return None,
            Site::Futex { does, any, sets } => (does, any, sets),
            Site::Returned => (Does::Wait, false, [None; 4]),
        };
        let operation = match sets[1] {
            // The instructions before the call copy the operation from another register.
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
        // The planner has already checked an operation that the instructions set.
        let mut code = match sets_operation(sets) {
            true => Vec::new(),
            false => code.to_vec(),
        };
        if any {
            let [high, low] = abi.call_number_number().to_be_bytes();
            for (index, futex) in abi.platform.system_call.futexes.iter().enumerate() {
                let [wanted_high, wanted_low] = (*futex as u16).to_be_bytes();
                code.extend([REG, high, low, CONST16, wanted_high, wanted_low, EQUAL]);
                if index > 0 {
                    code.push(BIT_OR);
                }
            }
            if !sets_operation(sets) {
                code.push(BIT_AND);
            }
        }
        if code.is_empty() {
            return None;
        }
        code.push(END);
        Some(code)
    }

    /// The data that a server with tracepoints collects at a hit.
    pub(in crate::collect) fn trace_actions(self, abi: &Abi) -> Vec<TraceAction> {
        let mut code = vec![TRACEV, 0, number(TIME), TRACEV, 0, number(THREAD)];
        let mut actions = Vec::new();
        if let Site::Hook { .. } = self {
            add_hook(&mut code, abi);
        } else if self.begins() {
            actions.push(TraceAction::Registers(abi.trace_registers()));
            // The server sends the stack of each call path once.
            code.extend([CONST8, 1, SETV, 0, number(STACK_KEY), POP]);
            add_stack(&mut code, abi.sp_number());
            if let Some(argument) = match self {
                Site::Enter { object } => object.map(|index| abi.argument_number(index.into())),
                // The argument is not in its register yet: read it from its source, or not at all.
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
            // Collect three variables: all registers would take many times as many bytes.
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

/// True if the instructions before the call determine the operation. The planner has already left
/// out operations that neither wait nor wake.
fn sets_operation(sets: [Option<Given>; 4]) -> bool {
    matches!(sets[1], Some(Given::Constant(_) | Given::Bits { .. }))
}

/// The futex command of an argument, if it is constant.
///
/// glibc flips the private flag of an operation that it keeps in a variable. That operation is then
/// `FUTEX_WAIT`, 0.
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

/// True if the operation matches `does` or is unknown.
fn does_it(does: Does, args: &[u64]) -> bool {
    args.get(1)
        .is_none_or(|operation| does.includes(*operation as u32))
}

/// Adds code that collects the stack, limited to [`STACK`] bytes.
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

/// Adds code that collects the arguments of a hook, its return address and the stack pointer.
fn add_hook(code: &mut Vec<u8>, abi: &Abi) {
    let return_register = abi.platform.return_register;
    let return_register = return_register.and_then(|number| abi.dwarf_number(number));
    for (variable, register) in [
        (FUNCTION, abi.argument_number(0)),
        (CALL_SITE, abi.argument_number(1)),
        (SP, abi.sp_number()),
        (RETURN_ADDRESS, return_register.unwrap_or(abi.sp_number())),
    ] {
        let [high, low] = register.to_be_bytes();
        code.extend([REG, high, low]);
        // x86-64 keeps the return address on the stack.
        if variable == RETURN_ADDRESS && return_register.is_none() {
            code.push(REF64);
        }
        let variable = number(variable);
        code.extend([SETV, 0, variable, POP, TRACEV, 0, variable]);
    }
}

/// The value of one trace variable in a frame. Ends of calls carry variables instead of registers.
pub(super) fn variable(frame: &TraceFrame, index: usize) -> Option<u64> {
    let value = frame.variable(Client::trace_variable(index))?;
    Some(value.cast_unsigned())
}
