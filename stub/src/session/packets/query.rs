//! Packets about the session: `qSupported`, `QStartNoAckMode` and `?`.

use crate::ptrace::stop::{Cause, Stop};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

use super::Answer;

const OURS: &[u8] =
    b";qXfer:threads:read+;qXfer:siginfo:read+;qXfer:siginfo:write+;qXfer:osdata:read+;\
qXfer:libraries-svr4:read+;augmented-libraries-svr4-read+;QCatchSyscalls+;QThreadEvents+;QUnspoolThreads+;QUnspoolTrace+;QUnspoolTrace:parts+;\
qUnspoolStacks+;qUnspoolTimes+;qUnspoolMemoryUsers+;QUnspoolFatal+;QUnspoolBudget+;QUnspoolSchedule+;QUnspoolSchedule:callers+;QUnspoolSchedule:own-creations+;UnspoolProcesses+;UnspoolProcesses:mappings+;UnspoolProcesses:build-ids+;UnspoolProcesses:creations+;QUnspoolSamples+;QUnspoolSamples:off-cpu+;QUnspoolSamples:timer+;QUnspoolSignal+;QPassSignals+;\
QProgramSignals+;swbreak+;hwbreak+;ConditionalBreakpoints+;BreakpointCommands+;QNonStop+;fork-events+;vfork-events+;exec-events+;no-resumed+;binary-upload+;\
ConditionalTracepoints+;TracepointSource+;DisconnectedTracing+;EnableDisableTracepoints+;InstallInTrace+;\
QTBuffer:size+;tracenz+;qXfer:traceframe-info:read+;FastTracepoints+";

/// `qSupported`: the features of gdbstub and our own. Records the client's features.
pub(super) fn supported(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let list = rest.strip_prefix(b":").unwrap_or_default();
    let has = |name: &[u8]| list.split(|byte| *byte == b';').any(|item| item == name);
    session.dialect.multiprocess = has(b"multiprocess+");
    session.dialect.swbreak = has(b"swbreak+");
    session.dialect.hwbreak = has(b"hwbreak+");
    if session.controls() {
        debuggee.set_stop_policy(|stop_policy| {
            stop_policy.execs = has(b"exec-events+");
            stop_policy.forks = has(b"fork-events+") && has(b"multiprocess+");
            stop_policy.vforks = has(b"vfork-events+") && has(b"multiprocess+");
            stop_policy.no_resumed = has(b"no-resumed+");
        });
    }
    let packet = [b"qSupported", rest].concat();
    let mut replies = session.stub.answer(debuggee, &packet);
    let mut reply = replies.pop().unwrap_or_default();
    reply.extend_from_slice(OURS);
    let budget = match debuggee.budget() {
        Some(share) => format!(";UnspoolBudget={:x}", share.basis_points()),
        None => ";UnspoolBudget=none".to_owned(),
    };
    reply.extend_from_slice(budget.as_bytes());
    if !session.controls() {
        reply.extend_from_slice(b";UnspoolObserve+");
    }
    Answer::Reply(reply)
}

/// `QStartNoAckMode`: answered here because framing is ours.
pub(super) fn stop_acks(session: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    session.framing.stop_acks();
    Answer::ok()
}

/// `?`: the reason why the program is halted. `W00` if there is no program.
pub(super) fn halt_reason(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    if debuggee.free {
        // The client has detached; only observers see the program.
        return Answer::Reply(b"W00".to_vec());
    }
    if debuggee.non_stop {
        held_threads(session, debuggee)
    } else {
        last_stop(session, debuggee)
    }
}

/// Replies with the last stop.
pub(super) fn last_stop(session: &mut Session, debuggee: &mut Debuggee) -> Answer {
    let stop = debuggee.halt_reason();
    match (stop, &mut debuggee.family.current) {
        (Some(stop), Some(tracee)) => {
            if let Stop::Thread(tid, _) = stop {
                session.selected = Some(tid);
            }
            Answer::Reply(session.dialect.stop_reply(tracee, &stop))
        }
        _ => Answer::Reply(b"W00".to_vec()),
    }
}

/// Non-stop mode: replies with the first stopped thread. `vStopped` returns the others. `OK` if no
/// thread is stopped.
fn held_threads(session: &mut Session, debuggee: &mut Debuggee) -> Answer {
    let last = debuggee.halt_reason();
    session.stop_notifications.clear();
    for tracee in debuggee.family.members() {
        for tid in tracee.process.held_threads() {
            let stop = match &last {
                Some(stop @ Stop::Thread(stopped, _)) if *stopped == tid => stop.clone(),
                _ => Stop::Thread(tid, Cause::Halted),
            };
            let reply = session.dialect.stop_reply(tracee, &stop);
            // The first one is the reply to this packet, not a notification.
            session.stop_notifications.push(&stop, reply);
        }
    }
    session
        .stop_notifications
        .first()
        .map_or_else(Answer::ok, Answer::Reply)
}
