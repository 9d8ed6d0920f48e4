//! Packets with which a client subscribes to Unspool's extensions: `QUnspoolThreads`,
//! `QUnspoolTrace`, `QUnspoolFatal` and `QUnspoolBudget` (docs/reference/protocol.md).

use nix::errno::Errno;

use crate::arch;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{PACKET_SIZE, number};
use crate::subscription::role::Role;
use crate::tracepoint::budget::{Limit, Share};

use super::Answer;

/// `QUnspoolThreads`: notifications of threads that begin and end. Stop replies then carry all
/// general registers, and at breakpoints also part of the stack.
pub(super) fn threads(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let (on, stack) = match rest {
        b"0" => (false, Some(0)),
        b"1" => (true, Some(0)),
        [b'1', b',', digits @ ..] => (true, number(digits)),
        _ => (false, None),
    };
    let Some(stack) = stack.and_then(|stack| usize::try_from(stack).ok()) else {
        return Answer::error(nix::errno::Errno::EINVAL);
    };
    session.dialect.general_registers = on;
    session.dialect.stack = stack.min(PACKET_SIZE / 4);
    debuggee.follow_threads(session.role(), on);
    Answer::ok()
}

/// `QUnspoolTrace`: the stub sends trace frames as notifications and removes them from the buffer.
/// With `,parts`, frames have only the registers that are collected.
pub(super) fn drain(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let role = session.role();
    let (mode, register_parts) = match rest.strip_suffix(b",parts") {
        Some(mode) => (mode, true),
        None => (rest, false),
    };
    let (drained, waits) = match mode {
        b"0" => (false, false),
        b"1" => (true, false),
        b"2" => (true, true),
        _ => return Answer::error(Errno::EINVAL),
    };
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    if waits && role != Role::Control && tracee.tracepoints.budget.share.is_some() {
        // An observer may not cost the program more than the budget.
        return Answer::error(Errno::EPERM);
    }
    let trace = tracee.trace(role);
    (trace.drained, trace.waits) = (drained, waits);
    trace.register_parts = drained && register_parts;
    if !trace.register_parts {
        trace.buffer.complete_registers(arch::layout().size);
    }
    trace.known_stacks.clear();
    Answer::ok()
}

/// `QUnspoolFatal`: stop a thread before a signal ends the process, so that the client can read all
/// threads.
/// all threads.
pub(super) fn fatal_signals(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(Errno::EINVAL),
    };
    match session.role() {
        Role::Control => debuggee.set_stop_policy(|stop_policy| stop_policy.fatal = on),
        role @ Role::Observer(_) => match debuggee.live() {
            Some(tracee) => tracee.subscriptions.of(role).wants_fatal = on,
            None => return Answer::error(Errno::ESRCH),
        },
    }
    Answer::ok()
}

/// `QUnspoolBudget`: the share of a processor that tracing may use.
pub(super) fn budget(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let limit = match rest {
        b"none" => Some(Limit::None),
        points => number(points)
            .and_then(|points| Share::from_basis_points(u32::try_from(points).ok()?))
            .map(Limit::Share),
    };
    let Some(limit) = limit else {
        return Answer::error(Errno::EINVAL);
    };
    if !debuggee.permits(limit) {
        return Answer::error(Errno::EPERM);
    }
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    tracee.subscriptions.of(role).limit = Some(limit);
    tracee.agree_on_budget();
    Answer::ok()
}
