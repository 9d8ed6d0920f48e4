//! `g` and `p` while a trace frame is selected; else they are gdbstub's.

use super::{Answer, trace};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;

pub(super) fn all(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    read(session, debuggee, None)
}

pub(super) fn one(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    // A number that is none is no register's.
    let wanted = number(rest).and_then(|number| usize::try_from(number).ok());
    read(session, debuggee, Some(wanted.unwrap_or(usize::MAX)))
}

fn read(session: &Session, debuggee: &mut Debuggee, only: Option<usize>) -> Answer {
    let process = debuggee.live();
    process
        .and_then(|process| trace::frame::registers(session, process, only))
        .unwrap_or(Answer::PassOn)
}
