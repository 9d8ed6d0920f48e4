//! An inspection of a program as JSON: every thread with its stack.
//!
//! The document includes the threads' waits and the findings.

use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;

use super::{Frame, Target};
use crate::model::{
    CallSubject, Creation, Finding, Model, ObjectName, State, Thread, ThreadIndex, Wait,
};
use crate::views::{Style, finding_text};

/// Writes the threads as one JSON document.
pub fn write(model: &Model, out: &mut dyn Write, _style: &Style) -> io::Result<()> {
    let (notes, errors) = super::notes(model);
    let inspection = Inspection {
        schema_version: super::SCHEMA_VERSION,
        target: Target::of(model),
        threads: inspected(model, 0..model.threads.len()),
        processes: (model.processes.all.iter().filter(|it| it.is_recorded()))
            .map(|process| {
                let first = model.threads.len() + process.first_thread;
                InspectedProcess {
                    pid: process.pid,
                    program: model.processes.program_name(process),
                    executable: &process.executable,
                    threads: inspected(model, first..first + process.threads),
                }
            })
            .collect(),
        findings: findings(model),
        errors,
        notes,
    };
    super::write(out, &inspection)
}

#[derive(Serialize)]
struct Inspection<'a> {
    schema_version: u32,
    target: Target<'a>,
    threads: Vec<InspectedThread<'a>>,
    processes: Vec<InspectedProcess<'a>>,
    findings: Vec<FoundThing<'a>>,
    errors: Vec<String>,
    notes: Vec<String>,
}

/// Another process, which the user named, or for which threads of the named ones wait.
#[derive(Serialize)]
struct InspectedProcess<'a> {
    pid: u64,
    program: &'a str,
    executable: &'a str,
    threads: Vec<InspectedThread<'a>>,
}

fn inspected(model: &Model, threads: Range<usize>) -> Vec<InspectedThread<'_>> {
    let threads = threads.map(ThreadIndex);
    threads
        .filter_map(|index| InspectedThread::of(model, index))
        .collect()
}

#[derive(Serialize)]
struct InspectedThread<'a> {
    tid: Option<u64>,
    name: &'a str,
    key: String,
    function: Option<&'a str>,
    state: Option<&'static str>,
    syscall: Option<&'static str>,
    syscall_number: Option<u64>,
    syscall_file: Option<&'a str>,
    syscall_processes: Vec<SubjectProcess<'a>>,
    wait: Option<WaitingAt<'a>>,
    stack: Vec<Frame<'a>>,
    stack_truncated: Option<&'a str>,
    created_by: Option<&'a str>,
    creation: Vec<Frame<'a>>,
    creation_truncated: Option<&'a str>,
}

impl<'a> InspectedThread<'a> {
    fn of(model: &'a Model, index: ThreadIndex) -> Option<InspectedThread<'a>> {
        let thread: &Thread = model.any_thread(index)?;
        let stack = thread.stack.as_deref();
        let state = model.inspection.state(index);
        let before = match state {
            State::Stopped(_, before) => before,
            other => other,
        };
        let (syscall, syscall_number, on) = match before {
            State::InCall {
                name, number, on, ..
            } => (*name, Some(*number), on.as_ref()),
            _ => (None, None, None),
        };
        let file = match on {
            Some(CallSubject::File { name, .. } | CallSubject::FileLock { name, .. }) => {
                name.as_deref()
            }
            _ => None,
        };
        let processes = on.map_or(&[][..], CallSubject::processes);
        Some(InspectedThread {
            tid: thread.tid,
            name: &thread.name,
            key: thread.key.to_string(),
            function: thread
                .function
                .as_ref()
                .and_then(|place| place.function.as_deref()),
            state: state.as_str(),
            syscall,
            syscall_number,
            syscall_file: file,
            syscall_processes: (processes.iter())
                .map(|process| SubjectProcess {
                    pid: process.pid,
                    program: &process.program,
                })
                .collect(),
            wait: state.wait().map(WaitingAt::of),
            stack: super::frames(stack),
            stack_truncated: match stack {
                Some(stack) => stack.truncated.as_deref(),
                None => Some("the thread's registers were not read"),
            },
            created_by: match &thread.creation {
                Creation::Recorded { by, .. } => Some(by),
                _ => None,
            },
            creation: super::frames(thread.creation_stack()),
            creation_truncated: thread
                .creation_stack()
                .and_then(|stack| stack.truncated.as_deref()),
        })
    }
}

/// A process that can end a system call.
#[derive(Serialize)]
struct SubjectProcess<'a> {
    pid: u64,
    program: &'a str,
}

#[derive(Serialize)]
struct WaitingAt<'a> {
    kind: &'static str,
    address: u64,
    object: Option<&'a str>,
    flavor: &'a [&'static str],
    function: Option<&'static str>,
    holders: Vec<u64>,
    readers: Option<u32>,
    mutex: Option<Object<'a>>,
    timed: bool,
    shared: bool,
    proved: bool,
    unknown: Option<&'a str>,
}

impl<'a> WaitingAt<'a> {
    fn of(wait: &'a Wait) -> WaitingAt<'a> {
        WaitingAt {
            kind: wait.object.kind.as_str(),
            address: wait.object.address,
            object: wait.object.name.as_deref(),
            flavor: &wait.flavor,
            function: wait
                .function
                .filter(|function| !function.internal)
                .map(|function| function.name()),
            holders: (wait.holders.iter().filter(|holder| !holder.is_gone))
                .map(|holder| holder.tid)
                .collect(),
            readers: wait.readers,
            mutex: wait.mutex.as_ref().map(Object::of),
            timed: wait.timed,
            shared: wait.shared,
            proved: wait.proved,
            unknown: wait.unknown.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct Object<'a> {
    kind: &'static str,
    address: u64,
    object: Option<&'a str>,
}

impl<'a> Object<'a> {
    fn of(name: &'a ObjectName) -> Object<'a> {
        Object {
            kind: name.kind.as_str(),
            address: name.address,
            object: name.name.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct FoundThing<'a> {
    kind: &'static str,
    proved: bool,
    threads: Vec<u64>,
    objects: Vec<Object<'a>>,
    text: String,
    evidence: Vec<Shown>,
}

/// Evidence without its stack, which the thread has.
#[derive(Serialize)]
struct Shown {
    tid: Option<u64>,
    what: String,
}

fn findings(model: &Model) -> Vec<FoundThing<'_>> {
    let tid = |thread: &ThreadIndex| model.any_thread(*thread).and_then(|thread| thread.tid);
    let found =
        |finding: &'_ Finding| -> Vec<u64> { finding.threads.iter().filter_map(tid).collect() };
    let each = model.findings.iter().map(|finding| FoundThing {
        kind: finding.kind.as_str(),
        proved: finding.proved,
        threads: found(finding),
        objects: finding.objects.iter().map(Object::of).collect(),
        text: finding_text::text(model, finding),
        evidence: finding
            .evidence
            .iter()
            .map(|one| Shown {
                tid: tid(&one.thread),
                what: finding_text::evidence(model, one),
            })
            .collect(),
    });
    each.collect()
}
