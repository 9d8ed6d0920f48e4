//! The data that a tracepoint collects at a hit, for servers that record hits by themselves.
//!
//! A frame holds the same data as a stop: registers, the whole stack, and memory to which the
//! arguments point. If the stack is too long for that, the thread stops as at a breakpoint.

use unspool_capture::ProbeKind;
use unspool_rsp::{Client, TraceAction};

use super::bytecode::*;
use super::creation_args::{ATTR, STATE};
use super::place::Purpose;
use crate::platform::abi::Abi;

/// Maximum size in bytes of a stack that a tracepoint collects. With a longer stack, the program
/// stops, and a stop interrupts system calls of other threads. Buffers of 64 KiB on a stack are
/// usual.
const MAX_COLLECTED_STACK: u32 = 0x20000;
/// Size in bytes of the kernel's thread names: 15 and a zero.
const NAME: u8 = 16;

/// Trace variables in the order of their numbers. The stub sets those that begin with `trace_`
/// (docs/reference/protocol.md, "Tracepoints"). The others hold data collected at hits without a
/// stack: ends of calls, and hooks.
pub(super) const VARIABLES: [&str; 12] = [
    "trace_time",
    "trace_thread",
    "trace_stack_left",
    "trace_stop",
    "result",
    "stack_pointer",
    "flags",
    "trace_needed",
    "trace_stack_key",
    "function",
    "call_site",
    "return_address",
];
pub(super) const TIME: usize = 0;
pub(super) const THREAD: usize = 1;
pub(super) const STACK_LEFT: usize = 2;
const STOP: usize = 3;
pub(super) const RESULT: usize = 4;
pub(super) const SP: usize = 5;
pub(super) const FLAGS: usize = 6;
const NEEDED: usize = 7;
pub(super) const STACK_KEY: usize = 8;
pub(super) const FUNCTION: usize = 9;
pub(super) const CALL_SITE: usize = 10;
pub(super) const RETURN_ADDRESS: usize = 11;

/// The data that the server collects at a hit in `function`.
pub(super) fn actions(abi: &Abi, purpose: Purpose, function: &str) -> Vec<TraceAction> {
    let mut actions = vec![
        TraceAction::Registers(abi.trace_registers()),
        TraceAction::Expression(vec![
            TRACEV,
            0,
            number(TIME),
            TRACEV,
            0,
            number(THREAD),
            END,
        ]),
    ];
    match purpose {
        Purpose::Probe {
            kind: ProbeKind::Create,
            ..
        } => {
            actions.push(TraceAction::Expression(stack(abi.sp_number())));
            let [high, low] = abi.argument_number(1).to_be_bytes();
            let attr = vec![REG, high, low, CONST8, ATTR as u8, TRACE, END];
            actions.push(TraceAction::Expression(attr));
            // The start routine is read later, so collect any argument.
            let [high, low] = abi.argument_number(3).to_be_bytes();
            let argument = vec![REG, high, low, CONST8, STATE as u8, TRACE, END];
            actions.push(TraceAction::Expression(argument));
        }
        Purpose::Name => {
            let [high, low] = abi.argument_number(1).to_be_bytes();
            actions.push(TraceAction::Expression(vec![
                REG, high, low, CONST8, NAME, TRACENZ, END,
            ]));
        }
        // Only an observer traces these: the thread waits until the observer releases it.
        Purpose::Linker | Purpose::Resolver => {
            actions.push(TraceAction::Expression(set(STOP)));
        }
        Purpose::Exec | Purpose::Probe { .. } => {}
    }
    if is_needed(purpose, function) {
        actions.push(TraceAction::Expression(set(NEEDED)));
    }
    actions
}

/// True if no other hit gives the same information, so that the server must never pause or drop it.
/// A program creates, joins, detaches and mostly names a thread once. It may retry the other calls.
fn is_needed(purpose: Purpose, function: &str) -> bool {
    match purpose {
        Purpose::Name => true,
        Purpose::Probe { kind, .. } => match kind {
            ProbeKind::Create | ProbeKind::Detach => true,
            ProbeKind::Join => function == "pthread_join",
            _ => false,
        },
        _ => false,
    }
}

/// Collects the whole stack, or stops the thread if it is too long.
fn stack(sp: u16) -> Vec<u8> {
    let [sp_high, sp_low] = sp.to_be_bytes();
    let left = [GETV, 0, number(STACK_LEFT)];
    let mut code = vec![CONST32];
    code.extend(MAX_COLLECTED_STACK.to_be_bytes());
    code.extend(left);
    let jump = code.len();
    code.extend([LESS_UNSIGNED, IF_GOTO, 0, 0, REG, sp_high, sp_low]);
    code.extend(left);
    code.extend([TRACE, END]);
    code[jump + 3] = code.len() as u8;
    code.extend(set(STOP));
    code
}

/// Sets a trace variable to one.
fn set(index: usize) -> Vec<u8> {
    vec![CONST8, 1, SETV, 0, number(index), END]
}

pub(super) fn number(index: usize) -> u8 {
    Client::trace_variable(index) as u8
}
