//! The stacks at which the processes that the program started created threads.

use std::collections::HashMap;
use std::sync::Arc;

use unspool_capture::{Capture, Record};

use crate::model::backtrace::{Backtrace, Frames, NamedFrame};
use crate::platform::c_library::has_threads;

/// A program with a C library inside has at most this many frames from its creation function to
/// the system call.
const MAX_INNER_FRAMES: usize = 6;

/// By thread id, in the order of their times.
#[derive(Debug, Default)]
pub(super) struct CreationStacks(HashMap<u64, Vec<(u64, Arc<Backtrace>)>>);

impl CreationStacks {
    pub(super) fn of(capture: &Capture, frames: &mut dyn Frames) -> CreationStacks {
        let mut by_number: HashMap<u32, Arc<Backtrace>> = HashMap::new();
        let mut stacks = CreationStacks::default();
        for (at, record) in capture.records.iter().enumerate() {
            let Record::CreationStack(created) = record else {
                continue;
            };
            if let Some(snapshot) = &created.snapshot {
                let stack = from_caller(&frames.backtrace(at, snapshot));
                by_number.insert(created.stack, Arc::new(stack));
            }
            if let Some(stack) = by_number.get(&created.stack) {
                let of_tid = stacks.0.entry(created.tid).or_default();
                of_tid.push((created.time_ns, Arc::clone(stack)));
            }
        }
        stacks
    }

    /// The stack of the thread that had an id at this time.
    pub(super) fn of_thread(&self, tid: u64, from_ns: u64, to_ns: u64) -> Option<&Arc<Backtrace>> {
        let all = self.0.get(&tid)?;
        let earlier = all.partition_point(|(time_ns, _)| *time_ns < from_ns);
        let (time_ns, stack) = all.get(earlier)?;
        (*time_ns <= to_ns).then_some(stack)
    }
}

/// A stack taken in clone(2), from the caller of the creation function on.
fn from_caller(stack: &Backtrace) -> Backtrace {
    let of_library = |frame: &&NamedFrame| {
        let module = frame.place.module.as_deref();
        module.is_some_and(has_threads)
    };
    let creates = |frame: &NamedFrame| {
        let function = frame.place.function.as_deref();
        function.is_some_and(|name| name.contains("pthread_create"))
    };
    let inner = &stack.frames[..stack.frames.len().min(MAX_INNER_FRAMES)];
    let skip = match stack.frames.iter().take_while(of_library).count() {
        0 => inner.iter().rposition(creates).map_or(0, |at| at + 1),
        count => count,
    };
    Backtrace {
        frames: stack.frames[skip..].to_vec(),
        truncated: stack.truncated.clone(),
    }
}
