//! What a thread does at the moment of an inspection, in words. Thread lists and findings both
//! say it.

use crate::model::{CallSubject, Model, OtherProcess, State, StopCause, ThreadIndex};
use crate::platform::syscall::{AwaitedChildren, writes};
use crate::primitives::Kind;
use crate::views::wording;

/// Maximum number of processes named in a sentence.
const MAX_PROCESSES: usize = 4;

/// The activity of a thread, such as `waiting for mutex a`. `None` if it is unknown.
pub(super) fn doing(model: &Model, thread: ThreadIndex) -> Option<String> {
    activity(model, thread, model.inspected_state(thread))
}

fn activity(model: &Model, thread: ThreadIndex, state: &State) -> Option<String> {
    Some(match state {
        State::Unknown | State::Absent => return None,
        State::Running => "running".to_owned(),
        State::Sleeping => "sleeping".to_owned(),
        State::Stopped(stop, before) => {
            let stopped = match stop {
                StopCause::Signal => "stopped by a signal",
                StopCause::Frozen => "frozen by its cgroup",
            };
            match activity(model, thread, before) {
                Some(before) => format!("{stopped} while {before}"),
                None => stopped.to_owned(),
            }
        }
        State::InCall {
            name: Some(name),
            on,
            ..
        } => {
            let on = on
                .as_ref()
                .map_or(String::new(), |on| subject(model, thread, name, on));
            format!("in the system call {name}{on}")
        }
        State::InCall { number, .. } => format!("in the system call of number {number}"),
        State::Waiting(wait) => {
            let what = match wait.holders[..] {
                [holder] if wait.object.kind == Kind::Join => match holder.thread {
                    Some(joined) if joined == thread => "its own end".to_owned(),
                    Some(joined) => format!("the end of {}", model.thread_name(joined)),
                    None => wait.what(),
                },
                _ => wait.what(),
            };
            let mutex = wait
                .mutex
                .as_ref()
                .map_or(String::new(), |mutex| format!(" with {mutex}"));
            let timed = if wait.timed {
                " for a limited time"
            } else {
                ""
            };
            format!(
                "waiting{timed} {} {what}{mutex}",
                wait.object.kind.preposition()
            )
        }
    })
}

/// ` of pipe:[7], which process 12 (tar) can write`, ` for process 12 (cc1)`
fn subject(model: &Model, thread: ThreadIndex, call: &str, subject: &CallSubject) -> String {
    let own = model.process(thread);
    let (own, threads) = own.map_or((model.target.pid, model.threads.len()), |(_, process)| {
        (process.pid, process.threads)
    });
    match subject {
        CallSubject::Children {
            awaited: AwaitedChildren::One(_),
            processes,
            ..
        } => prefixed(" for ", self::processes(processes)),
        CallSubject::Children {
            awaited: AwaitedChildren::Newest,
            processes,
        } => self::processes(processes).map_or(String::new(), |child| {
            format!(" until {child} executes a program or ends")
        }),
        CallSubject::Children { processes, .. } => {
            prefixed(" for any child: ", self::processes(processes))
        }
        CallSubject::FileLock {
            descriptor,
            name,
            holders,
        } => {
            let file = match name {
                Some(name) => name.clone(),
                None => format!("descriptor {descriptor}"),
            };
            let holders = match &holders[..] {
                [holder] if holder.pid == own => Some("this process".to_owned()),
                holders => self::processes(holders),
            };
            let held = holders.map_or(String::new(), |holders| format!(", held by {holders}"));
            format!(" for a lock of {file}{held}")
        }
        CallSubject::File { name: None, .. } => String::new(),
        CallSubject::File {
            name: Some(name),
            other_end,
            is_complete,
            ..
        } => {
            let verb = if writes(call) { "read" } else { "write" };
            let is_own = |other: &OtherProcess| other.pid == own;
            // The only thread of a process cannot end its own wait.
            let others = other_end
                .iter()
                .filter(|other| threads > 1 || !is_own(other));
            let others: Vec<OtherProcess> = others.cloned().collect();
            let which = match (processes(&others), &other_end[..]) {
                (None, [_, ..]) => {
                    let limit = match is_complete {
                        true => "",
                        false => ", as far as Unspool can see,",
                    };
                    format!(", which{limit} only this process can {verb}")
                }
                (others, _) => {
                    others.map_or(String::new(), |it| format!(", which {it} can {verb}"))
                }
            };
            format!(" of {name}{which}")
        }
    }
}

/// `process 12 (tar)`, `the processes 12 (tar), 14 (gzip) and 3 more`
fn processes(all: &[OtherProcess]) -> Option<String> {
    let mut names: Vec<String> = all.iter().take(MAX_PROCESSES).map(process).collect();
    let more = all.len() - names.len();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    wording::named_processes(&names)
}

fn prefixed(prefix: &str, text: Option<String>) -> String {
    text.map_or(String::new(), |text| format!("{prefix}{text}"))
}

fn process(process: &OtherProcess) -> String {
    match process.program.as_str() {
        "" => process.pid.to_string(),
        program => format!("{} ({program})", process.pid),
    }
}
