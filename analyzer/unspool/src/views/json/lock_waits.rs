//! Waits for locks of which only the kernel's schedule is known.

use serde::Serialize;

use super::CodePlace;
use super::sync::FindingObject;
use crate::model::schedule::{FutexObject, FutexWait};
use crate::model::{self, Model, ThreadIndex};

/// The object at which a thread waits in a futex call.
#[derive(Serialize)]
pub(super) struct CallObject<'a> {
    kind: &'static str,
    name: Option<&'a str>,
    address: Option<u64>,
}

impl<'a> CallObject<'a> {
    pub(super) fn of(wait: &'a FutexWait) -> Option<CallObject<'a>> {
        let (name, address) = match wait.object.as_ref()? {
            FutexObject::Named { name, .. } => (Some(&**name), None),
            FutexObject::At(address) => (None, Some(*address)),
        };
        Some(CallObject {
            kind: wait.kind.as_str(),
            name,
            address,
        })
    }
}

/// The waits for one lock.
#[derive(Serialize)]
pub(super) struct LockWaits<'a> {
    process: Option<usize>,
    processes: usize,
    object: FindingObject<'a>,
    internal: bool,
    functions: Vec<&'a str>,
    caller: Option<CodePlace<'a>>,
    count: u64,
    total_ns: u64,
    longest_ns: u64,
    unended: u64,
    runnable_ns: u64,
    waiters: Vec<ThreadSum>,
    holders: Vec<ThreadSum>,
}

/// The sum of the waits of a thread, or of the waits for that thread.
#[derive(Serialize)]
struct ThreadSum {
    thread: usize,
    tid: Option<u64>,
    total_ns: u64,
}

impl<'a> LockWaits<'a> {
    pub(super) fn of(model: &Model, waits: &'a model::LockWaits) -> LockWaits<'a> {
        let sums = |threads: &[(ThreadIndex, u64)]| {
            let each = threads.iter().map(|(thread, total_ns)| ThreadSum {
                thread: thread.0,
                tid: model.any_thread(*thread).and_then(|thread| thread.tid),
                total_ns: *total_ns,
            });
            each.collect()
        };
        LockWaits {
            process: waits.process.map(|process| process.0),
            processes: waits.processes,
            object: FindingObject::of(&waits.object),
            internal: waits.is_internal,
            functions: waits.functions.iter().map(|name| &**name).collect(),
            caller: waits.caller.as_ref().map(CodePlace::from),
            count: waits.count,
            total_ns: waits.total_ns,
            longest_ns: waits.longest_ns,
            unended: waits.unended,
            runnable_ns: waits.runnable_ns,
            waiters: sums(&waits.waiters),
            holders: sums(&waits.holders),
        }
    }
}
