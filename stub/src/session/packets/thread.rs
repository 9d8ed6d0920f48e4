//! Thread packets: `T`, `H`, `qC`, thread lists, `qGetTLSAddr`, and `qSymbol` for the symbols that
//! it needs.

use std::fmt::Write;

use nix::errno::Errno;

use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{hex, number, unhex};
use crate::session::thread_db::ThreadDb;
use crate::session::xml::attribute;
use crate::tracee::Tracee;

use super::{Answer, ThreadName, range, thread_name, transfer};

/// `qXfer:threads:read`: all threads with their names and processors, as XML.
pub(super) fn list_as_xml(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    // Build the list only for the first part, so that all parts belong to the same list.
    if range(rest).is_some_and(|(offset, _)| offset == 0) {
        session.threads = describe_threads(session, debuggee).into_bytes();
    }
    transfer(&session.threads, rest)
}

fn describe_threads(session: &Session, debuggee: &mut Debuggee) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<threads>\n");
    for tracee in debuggee.family.known() {
        let pid = tracee.process.pid();
        for tid in tracee.process.tids() {
            let id = session.dialect.thread_id(pid, tid);
            let _ = write!(text, "<thread id=\"{id}\"");
            if let Some(core) = tracee.process.thread_core(tid) {
                let _ = write!(text, " core=\"{core}\"");
            }
            if let Some(name) = tracee.process.thread_name(tid) {
                let _ = write!(text, " name=\"{}\"", attribute(&name));
            }
            text.push_str("/>\n");
        }
    }
    text.push_str("</threads>\n");
    text
}

/// `qfThreadInfo`: all thread ids in one reply. gdbstub answers `qsThreadInfo` with the end of the
/// list.
pub(super) fn list(session: &mut Session, debuggee: &mut Debuggee, _: &[u8]) -> Answer {
    let dialect = session.dialect;
    if debuggee.live().is_none() {
        return Answer::Reply(b"l".to_vec());
    }
    let of = |tracee: &mut Tracee| {
        let pid = tracee.process.pid();
        let ids = tracee.process.tids().map(|tid| dialect.thread_id(pid, tid));
        ids.collect::<Vec<String>>()
    };
    let ids: Vec<String> = debuggee.family.known().flat_map(of).collect();
    Answer::Reply(format!("m{}", ids.join(",")).into_bytes())
}

/// `T`: true if the thread still exists.
pub(super) fn is_alive(_: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    match thread_name(rest) {
        Some(ThreadName::One(tid)) if debuggee.family.process_of(tid).is_some() => Answer::ok(),
        Some(_) => Answer::error(Errno::ESRCH),
        None => Answer::error(Errno::EINVAL),
    }
}

/// `qC`: the selected thread.
pub(super) fn current(session: &mut Session, debuggee: &mut Debuggee) -> Answer {
    match (session.thread(debuggee), debuggee.pid()) {
        (Some(tid), Some(pid)) => {
            Answer::Reply(format!("QC{}", session.dialect.thread_id(pid, tid)).into_bytes())
        }
        _ => Answer::error(Errno::ESRCH),
    }
}

/// `Hg` and `Hc`: selects the thread for register packets, or for `c` and `s`.
pub(super) fn select(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let (Some(operation), Some(name)) = (rest.first(), rest.get(1..).and_then(thread_name)) else {
        return Answer::error(Errno::EINVAL);
    };
    let tracee = match name {
        ThreadName::One(tid) => debuggee.family.process_of(tid),
        ThreadName::AllOf(pid) | ThreadName::AnyOf(pid) => Some(pid),
        ThreadName::All | ThreadName::Any => debuggee.pid(),
    };
    let named = !matches!(name, ThreadName::All | ThreadName::Any);
    match tracee {
        None if named => return Answer::error(Errno::ESRCH),
        Some(pid) if *operation == b'g' && !debuggee.family.select(pid) => {
            return Answer::error(Errno::ESRCH);
        }
        _ => {}
    }
    let tid = match name {
        ThreadName::One(tid) => Some(tid),
        _ => None,
    };
    match operation {
        b'c' => session.resumed = tid,
        b'g' if tid.is_some() => session.selected = tid,
        // For "any thread", select the thread that stopped.
        b'g' if debuggee.live().is_some() => {
            session.selected = debuggee.live().map(|tracee| tracee.process.current());
        }
        b'g' => return Answer::error(Errno::ESRCH),
        _ => return Answer::Reply(Vec::new()),
    }
    Answer::ok()
}

/// `qGetTLSAddr`: the address of a thread-local variable of a module, in one thread.
///
/// `THREAD,OFFSET,LINK-MAP`.
pub(super) fn tls_address(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(3, |byte| *byte == b',');
    let thread = parts.next().and_then(thread_name);
    let (Some(offset), Some(link_map)) =
        (parts.next().and_then(number), parts.next().and_then(number))
    else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(ThreadName::One(tid)) = thread else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(tracee) = debuggee.family.members().find(|p| p.process.listed(tid)) else {
        return Answer::error(Errno::ESRCH);
    };
    let known = session.thread_db.get(&tracee.process.pid());
    match known.and_then(|known| known.block(tracee, tid, link_map)) {
        Some(block) => Answer::Reply(format!("{:x}", block.wrapping_add(offset)).into_bytes()),
        None => Answer::error(Errno::ENXIO),
    }
}

/// `qSymbol`: the client offers to look up symbols. The stub requests those that locate
/// thread-local data.
///
/// `:` alone is an offer. `VALUE:NAME` is the answer to a request, without a value if the client
/// does not know the symbol.
pub(super) fn symbol(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some((value, name)) = rest.strip_prefix(b":").and_then(|rest| {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        Some((&rest[..colon], unhex(&rest[colon + 1..])?))
    }) else {
        return Answer::error(Errno::EINVAL);
    };
    let Some(pid) = debuggee.pid() else {
        return Answer::ok();
    };
    let thread_db = session.thread_db.entry(pid).or_default();
    let wanted = match name.is_empty() {
        true => Some(ThreadDb::first()),
        false => thread_db.answered(&name, number(value)),
    };
    let Some(symbol) = wanted else {
        return Answer::ok();
    };
    let mut reply = b"qSymbol:".to_vec();
    hex(symbol.as_bytes(), &mut reply);
    Answer::Reply(reply)
}
