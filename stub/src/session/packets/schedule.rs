//! `QUnspoolSchedule`: the kernel's records of when threads run (docs/reference/protocol.md).

use nix::errno::Errno;

use super::Answer;
use crate::schedule::{Places, Schedule, Wanted};
use crate::session::Session;
use crate::session::debuggee::Debuggee;

/// `1` begins the recording. `;places` after it adds the places at which threads block, `;words`
/// also words of their stacks that may show the call, `;callers` what shows the callers of futex
/// calls, `;processes` the processes that the program starts, `;mappings` the
/// code of these, `;build-ids` its build-ids, and `;creations` the stacks at which they create
/// threads; `;own-creations` those at which the program itself does. The reply names the kind of
/// records, the size of the rings, what else there is, and the stub's thread. `0` sends the
/// remaining records and ends the recording.
pub(super) fn answer(session: &mut Session, debuggee: &mut Debuggee, rest: &[u8]) -> Answer {
    match rest.split_at_checked(1) {
        Some((b"0", b"")) => {
            session.notify_schedule(true);
            session.schedule = None;
            Answer::ok()
        }
        Some((b"1", parts)) => {
            let Some(wanted) = wanted(parts) else {
                return Answer::error(Errno::EINVAL);
            };
            let Some(tracee) = debuggee.live() else {
                return Answer::error(Errno::ESRCH);
            };
            session.schedule = None;
            match Schedule::open(tracee.process.pid(), wanted) {
                Ok(schedule) => {
                    let kind = match schedule.has_wakers() {
                        true => "wakers",
                        false => "switches",
                    };
                    let places = match schedule.has_places() {
                        true => ";places",
                        false => "",
                    };
                    let processes = match wanted.processes {
                        true => ";processes",
                        false => "",
                    };
                    let mappings = match wanted.processes && wanted.mappings {
                        true => ";mappings",
                        false => "",
                    };
                    let creations = match schedule.has_creations() {
                        true => ";creations",
                        false => "",
                    };
                    let own_creations = match schedule.has_own_creations() {
                        true => ";own-creations",
                        false => "",
                    };
                    // All changes of threads by ptrace come from this one.
                    let own = nix::unistd::gettid().as_raw();
                    let size = schedule.ring_bytes();
                    let reply = format!(
                        "{kind};{size:x}{places}{processes}{mappings}{creations}{own_creations};\
                         stub={own:x}"
                    );
                    session.schedule = Some(schedule);
                    Answer::Reply(reply.into_bytes())
                }
                Err(refusal) => Answer::Reply(format!("E.{refusal}").into_bytes()),
            }
        }
        _ => Answer::error(Errno::EINVAL),
    }
}

/// The parts that a client names, each after a semicolon.
fn wanted(parts: &[u8]) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    let mut parts = parts.split(|byte| *byte == b';');
    if !parts.next()?.is_empty() {
        return None;
    }
    for part in parts {
        match part {
            b"places" => wanted.places = Places::Registers,
            b"words" => wanted.places = Places::Words,
            b"callers" => wanted.places = Places::Callers,
            b"processes" => wanted.processes = true,
            b"mappings" => wanted.mappings = true,
            b"build-ids" => wanted.build_ids = true,
            b"creations" => wanted.creations = true,
            b"own-creations" => wanted.own_creations = true,
            _ => return None,
        }
    }
    Some(wanted)
}
