//! `qXfer:libraries-svr4:read`: the dynamic linker's list, complete or from an entry that gdb
//! knows.

use std::fmt::Write;

use nix::errno::Errno;

use super::{Answer, range, transfer};
use crate::ptrace::link_map::{Libraries, Start};
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::number;
use crate::session::xml::attribute;

/// `ANNEX:offset,length`. The annex is empty or `start=ADDRESS;prev=ADDRESS;lmid=ADDRESS`.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let mut parts = rest.splitn(2, |byte| *byte == b':');
    let annex = parts.next().unwrap_or_default();
    let part = parts.next().unwrap_or_default();
    let Some(tracee) = debuggee.live() else {
        return Answer::error(Errno::ESRCH);
    };
    // Read the list only for the first part, so that all parts belong to the same list.
    if range(part).is_some_and(|(offset, _)| offset == 0) {
        let value = |key: &[u8]| {
            let mut items = annex.split(|byte| *byte == b';');
            items.find_map(|item| number(item.strip_prefix(key)?))
        };
        let libraries = match value(b"start=").filter(|start| *start != 0) {
            Some(entry) => Some(tracee.process.libraries_from(Start {
                entry,
                previous: value(b"prev=").unwrap_or(0),
                namespace: value(b"lmid=").unwrap_or(0),
            })),
            None => tracee.process.libraries(),
        };
        let Some(libraries) = libraries else {
            // The client may find the list by the dynamic linker's symbols.
            return Answer::error(Errno::ENOENT);
        };
        session.libraries = describe(&libraries).into_bytes();
    }
    transfer(&session.libraries, part)
}

fn describe(libraries: &Libraries) -> String {
    let mut text = String::from("<library-list-svr4 version=\"1.0\"");
    if let Some(main) = libraries.main {
        let _ = write!(text, " main-lm=\"{main:#x}\"");
    }
    text.push('>');
    for library in &libraries.loaded {
        let _ = write!(
            text,
            "<library name=\"{}\" lm=\"{:#x}\" l_addr=\"{:#x}\" l_ld=\"{:#x}\" lmid=\"{:#x}\"/>",
            attribute(&library.path),
            library.link_map,
            library.bias,
            library.dynamic,
            library.namespace,
        );
    }
    text.push_str("</library-list-svr4>");
    text
}
