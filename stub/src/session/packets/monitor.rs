//! `monitor` commands (`qRcmd`). Some are gdbserver's, and their output is the same because people
//! and programs rely on it. They are handled in front of gdbstub, which cannot refuse a command.

use std::fmt::Write;

use nix::errno::Errno;

use super::Answer;
use crate::session::Session;
use crate::session::debuggee::Debuggee;
use crate::session::framing::{hex, unhex};
use crate::sys::monotonic_ns;

const HELP: &str = "\
The following monitor commands are supported:
  budget cost of tracing, and number of hits missed to keep to the budget
  exit   end the server (kills a program that it started and that never ran)
  help   this text
  set debug 0|1, set remote-debug 0|1, set debug-format all|none
         accepted without effect
";

pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    let Some(command) = unhex(rest) else {
        return Answer::error(Errno::EINVAL);
    };
    if command == b"budget" {
        let text = budget(debuggee);
        return print(session, &text);
    }
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
    let printed = print(session, text);
    if known {
        printed
    } else {
        Answer::error(Errno::EINVAL)
    }
}

fn print(session: &mut Session, text: &str) -> Answer {
    if !text.is_empty() {
        let mut console = b"O".to_vec();
        hex(text.as_bytes(), &mut console);
        session.framing.send(&console);
    }
    Answer::ok()
}

/// One line about the total cost, and one line per tracepoint.
fn budget(debuggee: &mut Debuggee) -> String {
    let Some(tracee) = debuggee.family.current.as_mut() else {
        return "There is no program.\n".to_owned();
    };
    tracee.drain_jump_pads();
    let now = monotonic_ns();
    let budget = &mut tracee.tracepoints.budget;
    let limit = match budget.share {
        Some(share) => format!("{} %", percent(share.basis_points().into())),
        None => "none".to_owned(),
    };
    let mut text = format!(
        "Budget: {limit}; most expensive second: {} %; largest excess at once: {} us; in total: \
         {} us; exempt from the budget: {} us.\n",
        percent(budget.worst / 100_000),
        budget.overrun / 1000,
        budget.spent / 1000,
        budget.exempt / 1000
    );
    let subscriptions = tracee.subscriptions.each();
    for tracepoint in
        subscriptions.flat_map(|(_, subscription)| subscription.trace.tracepoints.values())
    {
        let missed = budget.missed(now, tracepoint.at);
        let _ = writeln!(
            text,
            "Tracepoint {} at {:#x}: {} hits; paused {} times, {} ms; about {} hits missed.",
            tracepoint.number,
            tracepoint.address,
            tracepoint.hits,
            missed.pauses,
            missed.paused_ns / 1_000_000,
            missed.hits
        );
    }
    text
}

/// Formats hundredths as a decimal number.
fn percent(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
