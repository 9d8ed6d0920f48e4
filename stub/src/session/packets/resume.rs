//! Resume packets: `vCont` and its predecessors `c C s S`, and `vCtrlC`, `QNonStop` and `vStopped`.
//!
//! gdbstub drops a signal given to all threads, refuses a step of all threads, and writes only its
//! own kinds of stop replies. So this file answers resume packets, and gdbstub never learns that
//! the program ran.

use nix::errno::Errno;

use crate::ptrace::action::Action;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::signal::from_gdb;
use crate::sys::Tid;

use super::{Answer, ThreadName, thread_name};

/// `vCont?`: the supported actions.
pub(super) fn actions(_: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    Answer::Reply(b"vCont;c;C;s;S;t;r".to_vec())
}

/// `vCont;action[:thread];...`: for each thread, the leftmost action that names it.
pub(super) fn continue_threads(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let Some(asked) = parse(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    resume(session, debuggee, &asked)
}

/// `c`: continues.
pub(super) fn plain_continue(session: &mut Session, debuggee: &mut Debuggee, at: &[u8]) -> Answer {
    move_to(session, debuggee, at);
    old_style(session, debuggee, Action::Continue(0))
}

/// `s`: steps.
pub(super) fn plain_step(session: &mut Session, debuggee: &mut Debuggee, at: &[u8]) -> Answer {
    move_to(session, debuggee, at);
    old_style(session, debuggee, Action::Step(0))
}

/// `C`: continues with a signal.
pub(super) fn continue_with_signal(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    with_signal(session, debuggee, rest, Action::Continue)
}

/// `S`: steps with a signal.
pub(super) fn step_with_signal(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    with_signal(session, debuggee, rest, Action::Step)
}

/// Parses `sig[;addr]`.
fn with_signal(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
    action: fn(i32) -> Action,
) -> Answer {
    let mut parts = rest.splitn(2, |byte| *byte == b';');
    let Some(signal) = parts.next().and_then(wire_signal) else {
        return Answer::error(Errno::EINVAL);
    };
    move_to(session, debuggee, parts.next().unwrap_or_default());
    old_style(session, debuggee, action(signal))
}

/// Sets the program counter, if an old packet names an address.
fn move_to(session: &Session, debuggee: &mut Debuggee, at: &[u8]) {
    let tid = session.resumed.or_else(|| session.thread(debuggee));
    if let (Some(pc), Some(tid), Some(tracee)) = (number(at), tid, debuggee.live())
        && let Some(stopped) = tracee.process.stopped(tid)
    {
        let _ = stopped.set_pc(pc);
    }
}

/// Resumes as gdbserver does: one thread takes this action, and the others continue unless `Hc`
/// named one thread.
fn old_style(session: &mut Session, debuggee: &mut Debuggee, action: Action) -> Answer {
    let Some(tid) = session.resumed.or_else(|| session.thread(debuggee)) else {
        return Answer::error(Errno::ESRCH);
    };
    let mut asked = vec![(action, ThreadName::One(tid))];
    if session.resumed.is_none() {
        asked.push((Action::Continue(0), ThreadName::All));
    }
    resume(session, debuggee, &asked)
}

fn resume(
    session: &mut Session,
    debuggee: &mut Debuggee,
    asked: &[(Action, ThreadName)],
) -> Answer {
    let selected = session.thread(debuggee);
    if debuggee.non_stop {
        return resume_some(session, debuggee, asked);
    }
    if debuggee.family.current.is_none() {
        return Answer::error(Errno::ESRCH);
    }
    if debuggee.family.is_going() {
        return Answer::error(Errno::EBUSY);
    }
    let named = |pid: Tid, tid: Option<Tid>| {
        let action = asked.iter().find(|(_, thread)| match thread {
            ThreadName::All => true,
            ThreadName::AllOf(named) | ThreadName::AnyOf(named) => pid == *named,
            ThreadName::Any => tid.is_some() && tid == selected,
            ThreadName::One(one) => tid == Some(*one),
        });
        action.map_or(Action::Hold, |(action, _)| *action)
    };
    let stop = debuggee.family.resume(named);
    session.waiting = true;
    if let Some(stop) = stop {
        session.stopped(debuggee, stop);
    }
    Answer::Nothing
}

/// Non-stop mode: changes the actions of the named threads only, and replies immediately.
fn resume_some(
    session: &mut Session,
    debuggee: &mut Debuggee,
    asked: &[(Action, ThreadName)],
) -> Answer {
    let stop_notifications = &session.stop_notifications;
    for tracee in debuggee
        .family
        .known()
        .filter(|tracee| tracee.process.end().is_none())
    {
        let pid = tracee.process.pid();
        let all = |thread: &ThreadName| match thread {
            ThreadName::All => true,
            ThreadName::AllOf(named) => pid == *named,
            _ => false,
        };
        let first = |named: &dyn Fn(&ThreadName) -> bool| {
            let found = asked.iter().find(|(_, thread)| named(thread));
            found.map(|(action, _)| *action)
        };
        let named = |tid: Tid| {
            first(&|thread| match thread {
                ThreadName::Any => true,
                ThreadName::AnyOf(named) => pid == *named,
                ThreadName::One(one) => tid == *one,
                thread => all(thread),
            })
        };
        let others = first(&all);
        tracee.resume_some(
            |tid| named(tid).filter(|_| !stop_notifications.hold(tid)),
            others,
        );
    }
    Answer::ok()
}

fn parse(rest: &[u8]) -> Option<Vec<(Action, ThreadName)>> {
    rest.split(|byte| *byte == b';')
        .map(|item| {
            let mut parts = item.splitn(2, |byte| *byte == b':');
            let action = match parts.next()? {
                b"c" => Action::Continue(0),
                b"s" => Action::Step(0),
                b"t" => Action::Hold,
                [b'C', signal @ ..] => Action::Continue(wire_signal(signal)?),
                [b'S', signal @ ..] => Action::Step(wire_signal(signal)?),
                [b'r', range @ ..] => {
                    let comma = range.iter().position(|byte| *byte == b',')?;
                    let (start, end) = (number(&range[..comma])?, number(&range[comma + 1..])?);
                    if start >= end {
                        // An empty range is one step (GDB manual, `vCont;r`).
                        Action::Step(0)
                    } else {
                        Action::StepWhileIn(start, end)
                    }
                }
                _ => return None,
            };
            let thread = parts.next().map_or(Some(ThreadName::All), thread_name)?;
            Some((action, thread))
        })
        .collect()
}

/// Converts a signal from the packet to one that the program can get.
fn wire_signal(digits: &[u8]) -> Option<i32> {
    from_gdb(u8::try_from(number(digits)?).ok()?)
}

/// `vCtrlC`: the interrupt byte as a packet.
pub(super) fn interrupt(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    session.framing.send(b"OK");
    session.interrupt(debuggee);
    Answer::Nothing
}

/// `QNonStop`: turns non-stop mode on or off. In it, threads stop one by one and the stub sends a
/// notification for each stop.
pub(super) fn set_non_stop(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let on = match rest {
        b"0" => false,
        b"1" => true,
        _ => return Answer::error(Errno::EINVAL),
    };
    debuggee.non_stop = on;
    session.stop_notifications.clear();
    for tracee in debuggee.family.members() {
        tracee.set_non_stop(on);
    }
    Answer::ok()
}

/// `vStopped`: the client has seen the last stop and requests the next one.
pub(super) fn next_stop(session: &mut Session, _: &mut Debuggee, _: &[u8]) -> Answer {
    session
        .stop_notifications
        .next()
        .map_or_else(Answer::ok, Answer::Reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read() {
        assert_eq!(
            parse(b"s:p1.2;C1e:3;c"),
            Some(vec![
                (Action::Step(0), ThreadName::One(Tid(2))),
                (Action::Continue(libc::SIGUSR1), ThreadName::One(Tid(3))),
                (Action::Continue(0), ThreadName::All),
            ])
        );
        assert_eq!(
            parse(b"r10,20:1"),
            Some(vec![(Action::StepWhileIn(16, 32), ThreadName::One(Tid(1)))])
        );
    }

    #[test]
    fn malformed_actions_are_refused() {
        for bad in [&b""[..], b"q", b"Czz", b"c:zz", b"r1", b"c;;"] {
            assert_eq!(parse(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
