//! `QUnspoolSchedule`: the kernel's records of when threads run (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::schedule::{Places, Schedule};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

/// `1` begins the recording, and `1;places` one that also has the places at which threads block.
/// `1;places;stack` adds words of their stacks. The reply names the kind of records, the size of
/// the rings, whether there are places, and the stub's thread. `0` sends the remaining records and
/// ends the recording.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    match rest {
        b"0" => {
            session.notify_schedule(true);
            session.schedule = None;
            Answer::ok()
        }
        b"1" | b"1;places" | b"1;places;stack" => {
            let places = match rest {
                b"1" => Places::None,
                b"1;places" => Places::Registers,
                _ => Places::Stack,
            };
            let Some(tracee) = debuggee.live() else {
                return Answer::error(Errno::ESRCH);
            };
            session.schedule = None;
            match Schedule::open(tracee.process.pid(), places) {
                Ok(schedule) => {
                    let kind = match schedule.has_wakers() {
                        true => "wakers",
                        false => "switches",
                    };
                    let places = match schedule.has_places() {
                        true => ";places",
                        false => "",
                    };
                    // All changes of threads by ptrace come from this one.
                    let own = nix::unistd::gettid().as_raw();
                    let size = schedule.ring_bytes();
                    let reply = format!("{kind};{size:x}{places};stub={own:x}");
                    session.schedule = Some(schedule);
                    Answer::Reply(reply.into_bytes())
                }
                Err(refusal) => Answer::Reply(format!("E.{refusal}").into_bytes()),
            }
        }
        _ => Answer::error(Errno::EINVAL),
    }
}
