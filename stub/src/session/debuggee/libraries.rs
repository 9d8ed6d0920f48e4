//! The list of shared libraries (`qXfer:libraries-svr4:read`).

use std::fmt::Write;

use gdbstub::target::TargetResult;
use gdbstub::target::ext::libraries::LibrariesSvr4;
use nix::errno::Errno;

use super::{Debuggee, part, refused};
use crate::session::xml::attribute;
use crate::tracee::libraries::Libraries;

impl LibrariesSvr4 for Debuggee {
    fn get_libraries_svr4(
        &self,
        offset: u64,
        length: usize,
        buf: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let process = self.process.as_ref();
        let process = process.ok_or_else(|| refused(Errno::ESRCH))?;
        let mut list = self.library_list.borrow_mut();
        // A list read in parts is one list: it is made when its first part is asked for.
        if offset == 0 {
            *list = describe(&process.libraries()).into_bytes();
        }
        Ok(part(&list, offset, length, buf))
    }
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
