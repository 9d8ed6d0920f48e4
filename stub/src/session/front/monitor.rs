//! Commands typed by a person (`monitor ...`, `qRcmd`), some of them gdbserver's: what they print, people and
//! programs look for. In front of gdbstub, which cannot refuse one.

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{hex, unhex};

const HELP: &str = "\
The following monitor commands are supported:
  exit   end the server (a program it started and that never ran is killed)
  help   this text
  set debug 0|1, set remote-debug 0|1, set debug-format all|none
         accepted; there is no such output
";

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(command) = unhex(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    let (text, known) = match &command[..] {
        b"exit" => {
            debuggee.exit_requested = true;
            ("", true)
        }
        b"help" => (HELP, true),
        b"set debug 1" => ("Debug output enabled.\n", true),
        b"set debug 0" => ("Debug output disabled.\n", true),
        b"set remote-debug 1" => ("Protocol debug output enabled.\n", true),
        b"set remote-debug 0" => ("Protocol debug output disabled.\n", true),
        b"set debug-format all" => ("All extra debug format options enabled.\n", true),
        b"set debug-format none" => ("All extra debug format options disabled.\n", true),
        _ => ("Unknown monitor command; see 'monitor help'.\n", false),
    };
    if !text.is_empty() {
        let mut console = b"O".to_vec();
        hex(text.as_bytes(), &mut console);
        session.framing.send(&console);
    }
    if known {
        Answer::ok()
    } else {
        Answer::error(Errno::EINVAL)
    }
}
