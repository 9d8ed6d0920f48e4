//! `qSupported`: gdbstub's features and ours, and what the client understands.

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;

const OURS: &[u8] =
    b";qXfer:threads:read+;qXfer:siginfo:read+;qXfer:siginfo:write+;qXfer:osdata:read+;\
qXfer:libraries-svr4:read+;augmented-libraries-svr4-read+;QCatchSyscalls+;QThreadEvents+;QUnspoolThreads+;QUnspoolTrace+;\
qUnspoolStacks+;qUnspoolTimes+;QUnspoolFatal+;QUnspoolBudget+;QUnspoolSignal+;QPassSignals+;\
QProgramSignals+;swbreak+;hwbreak+;ConditionalBreakpoints+;BreakpointCommands+;QNonStop+;fork-events+;vfork-events+;exec-events+;no-resumed+;binary-upload+;\
ConditionalTracepoints+;TracepointSource+;DisconnectedTracing+;EnableDisableTracepoints+;InstallInTrace+;\
QTBuffer:size+;tracenz+;qXfer:traceframe-info:read+;FastTracepoints+";

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
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
