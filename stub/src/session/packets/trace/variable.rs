//! `QTDV`, `qTV`, `qTfV`, `qTsV`: trace state variables.

use nix::errno::Errno;

use super::super::Answer;
use super::{digits, numbers, unhex};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::tracepoint::frame_buffer::Block;

/// Maximum number of trace state variables.
const MAX_VARIABLES: usize = 10_000;

/// `QTDV:n:value:builtin:name`: defines a variable.
pub(in super::super) fn define(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    let read = || {
        let ([number, value, _builtin], rest) = numbers::<3>(rest, b':')?;
        Some((number as u32, value, unhex(rest.strip_prefix(b":")?)?))
    };
    match read() {
        Some((number, value, name))
            if tracee.trace(role).variables.all().count() < MAX_VARIABLES =>
        {
            tracee
                .trace(role)
                .variables
                .define(number, &name, value.cast_signed());
            tracee.tracepoints.fast.placement.unsettle();
            Answer::ok()
        }
        Some(_) => Answer::error(Errno::ENOSPC),
        None => Answer::error(Errno::EINVAL),
    }
}

/// `qTV:n`: `V` and the value, from the selected frame if there is one. `U` if the variable has no
/// value.
pub(in super::super) fn value(
    session: &mut Session,
    debuggee: &mut Debuggee,
    rest: &[u8],
) -> Answer {
    let role = session.role();
    let wanted = number(rest).map(|number| number as u32);
    let (Some(wanted), Some(tracee)) = (wanted, debuggee.live()) else {
        return Answer::Reply(b"U".to_vec());
    };
    let value = match session.frame(tracee) {
        Some(frame) => {
            let blocks = frame.blocks(crate::arch::layout().size);
            blocks.into_iter().find_map(|block| match block {
                Block::Variable { number, value } if number == wanted => Some(value),
                _ => None,
            })
        }
        None => tracee.trace(role).variables.value(wanted),
    };
    Answer::Reply(value.map_or(b"U".to_vec(), |value| format!("V{value:x}").into_bytes()))
}

/// `qTfV`: the first variable.
pub(in super::super) fn first(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let Some(tracee) = debuggee.live() else {
        return Answer::Reply(b"l".to_vec());
    };
    session.upload = tracee
        .trace(session.role())
        .variables
        .all()
        .map(|(number, variable)| {
            let (value, builtin) = (variable.initial, u8::from(variable.builtin));
            let name = digits(&variable.name);
            format!("{number:x}:{value:x}:{builtin:x}:{name}").into_bytes()
        })
        .collect();
    super::upload::next(session, debuggee, &[])
}
