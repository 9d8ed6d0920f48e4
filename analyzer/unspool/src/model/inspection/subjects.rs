//! What the system calls of inspected threads work on: named by `/proc`, and as a capture has it.

use std::collections::HashMap;

use unspool_capture::{self as capture, Record};

use super::{CallSubject, NamedCall, OtherProcess, State};
use crate::model::{Model, Thread};

impl Model {
    /// The system calls in which threads are, with what they work on, to be named.
    pub fn call_subjects(&mut self) -> impl Iterator<Item = NamedCall<'_>> {
        calls(&self.threads, &mut self.inspection.states)
    }

    /// Takes over what system calls work on from an earlier model of the same inspection.
    pub fn take_call_subjects(&mut self, earlier: &mut Model) {
        let named = earlier.call_subjects().map(|call| call.on.clone());
        let named: Vec<CallSubject> = named.collect();
        for (call, named) in self.call_subjects().zip(named) {
            *call.on = named;
        }
    }
}

/// Takes over what the capture of an inspection has about the system calls of its threads.
pub(in crate::model) fn take_recorded(
    threads: &[Thread],
    states: &mut [State],
    records: &[Record],
) {
    let recorded = records.iter().filter_map(|record| match record {
        Record::CallSubject(subject) => Some((subject.tid, subject)),
        _ => None,
    });
    let recorded: HashMap<u64, &capture::CallSubject> = recorded.collect();
    for mut call in calls(threads, states) {
        if let Some(subject) = recorded.get(&call.tid) {
            call.take(subject);
        }
    }
}

fn calls<'m>(
    threads: &'m [Thread],
    states: &'m mut [State],
) -> impl Iterator<Item = NamedCall<'m>> {
    fn of(state: &mut State, tid: u64) -> Option<NamedCall<'_>> {
        match state {
            State::InCall { name, on, .. } => Some(NamedCall {
                tid,
                name: (*name)?,
                on: on.as_mut()?,
            }),
            State::Stopped(_, before) => of(before, tid),
            _ => None,
        }
    }
    let threads = threads.iter().zip(states);
    threads.filter_map(|(thread, state)| of(state, thread.tid?))
}

impl NamedCall<'_> {
    /// What a capture has about the call.
    pub fn recorded(&self) -> capture::CallSubject {
        let (file, is_complete) = match &self.on {
            CallSubject::File {
                name, is_complete, ..
            } => (name.clone(), *is_complete),
            CallSubject::FileLock { name, .. } => (name.clone(), false),
            CallSubject::Children { .. } => (None, false),
        };
        let processes = self.on.processes().iter();
        let processes = processes.map(|process| capture::OtherProcess {
            pid: process.pid,
            program: process.program.clone(),
        });
        capture::CallSubject {
            tid: self.tid,
            file: file.unwrap_or_default(),
            processes: processes.collect(),
            is_complete,
        }
    }

    fn take(&mut self, recorded: &capture::CallSubject) {
        let file = Some(recorded.file.clone()).filter(|file| !file.is_empty());
        let all = recorded.processes.iter().map(|process| OtherProcess {
            pid: process.pid,
            program: process.program.clone(),
        });
        let all = all.collect();
        match self.on {
            CallSubject::File {
                name,
                other_end,
                is_complete,
                ..
            } => (*name, *other_end, *is_complete) = (file, all, recorded.is_complete),
            CallSubject::FileLock { name, holders, .. } => (*name, *holders) = (file, all),
            CallSubject::Children { processes, .. } => *processes = all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FileReference;
    use crate::platform::syscall::AwaitedChildren;

    #[test]
    fn a_capture_keeps_the_names() {
        let tar = || OtherProcess {
            pid: 12,
            program: "tar".to_owned(),
        };
        let file = |name: Option<&str>, other_end, is_complete| CallSubject::File {
            reference: FileReference::Descriptor(3),
            name: name.map(str::to_owned),
            other_end,
            is_complete,
        };
        let lock = |name: Option<&str>, holders| CallSubject::FileLock {
            descriptor: 3,
            name: name.map(str::to_owned),
            holders,
        };
        let children = |processes| CallSubject::Children {
            awaited: AwaitedChildren::Any,
            processes,
        };
        for (mut named, mut unnamed) in [
            (
                file(Some("pipe:[7]"), vec![tar()], true),
                file(None, vec![], false),
            ),
            (file(None, vec![], false), file(None, vec![], false)),
            (lock(Some("/a"), vec![tar()]), lock(None, vec![])),
            (children(vec![tar(), tar()]), children(vec![])),
        ] {
            let call = |on| NamedCall {
                tid: 5,
                name: "read",
                on,
            };
            let recorded = call(&mut named).recorded();
            assert_eq!(recorded.tid, 5);
            call(&mut unnamed).take(&recorded);
            assert_eq!(unnamed, named);
        }
    }
}
