//! `qXfer:threads:read`: all threads with their names and processors, as XML.

use std::fmt::Write;

use super::{Answer, range, transfer};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::xml::attribute;

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    // Read in parts, it is still one list.
    if range(rest).is_some_and(|(offset, _)| offset == 0) {
        session.threads = list(session, debuggee).into_bytes();
    }
    transfer(&session.threads, rest)
}

fn list(session: &Session, debuggee: &mut Debuggee) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<threads>\n");
    for process in debuggee.family.known() {
        let pid = process.pid();
        for tid in process.threads() {
            let id = session.dialect.thread_id(pid, tid);
            let _ = write!(text, "<thread id=\"{id}\"");
            if let Some(core) = process.thread_core(tid) {
                let _ = write!(text, " core=\"{core}\"");
            }
            if let Some(name) = process.thread_name(tid) {
                let _ = write!(text, " name=\"{}\"", attribute(&name));
            }
            text.push_str("/>\n");
        }
    }
    text.push_str("</threads>\n");
    text
}
