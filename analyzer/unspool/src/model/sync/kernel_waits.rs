//! The waits of threads in the kernel, as sampled while the program ran.

use std::sync::Arc;

use foldhash::HashMap;
use unspool_capture::Record;
use unspool_image::Arch;

use crate::model::backtrace::{Backtrace, Frames};
use crate::model::schedule::RunState;
use crate::model::{Model, Thread, ThreadIndex};
use crate::platform::syscall::Call;

/// A span of time that a thread spent blocked in the kernel.
#[derive(Clone, Debug)]
pub(super) struct Blocking {
    /// Latest time at which the span can have begun.
    from_ns: u64,
    /// Time until which the thread had certainly not run.
    to_ns: u64,
    /// Name of the system call; none for a page fault, outside any system call.
    pub(super) call: Option<&'static str>,
    /// The futex word, if the call waits at one.
    pub(super) futex: Option<u64>,
    /// The file behind the descriptor in the first argument.
    pub(super) file: String,
    pub(super) stack: Arc<Backtrace>,
}

/// All spans, by thread, in order of time.
#[derive(Debug, Default)]
pub(super) struct KernelWaits {
    threads: HashMap<ThreadIndex, Vec<Blocking>>,
}

impl KernelWaits {
    pub(super) fn of(
        records: &[Record],
        arch: Option<Arch>,
        model: &Model,
        frames: &mut dyn Frames,
    ) -> KernelWaits {
        let mut waits = KernelWaits::default();
        // By thread id, the last blocking, if the thread has not run since.
        let mut open: HashMap<u64, ThreadIndex> = HashMap::default();
        let mut stacks: HashMap<(u64, u64, u64), Arc<Backtrace>> = HashMap::default();
        for (at, record) in records.iter().enumerate() {
            match record {
                Record::CpuTimes(times) => {
                    for time in &times.threads {
                        open.remove(&time.tid);
                    }
                    for thread in open.values() {
                        if let Some(last) = waits.last(*thread) {
                            last.to_ns = last.to_ns.max(times.time_ns);
                        }
                    }
                }
                Record::Blocked(seen) => {
                    let has_id = |t: &Thread| {
                        t.tid == Some(seen.tid)
                            && t.first_ns().is_none_or(|first| first <= seen.time_ns)
                    };
                    // A later thread may reuse the id.
                    let Some(thread) = model.threads.iter().rposition(has_id) else {
                        continue;
                    };
                    let thread = ThreadIndex(thread);
                    let place = (seen.tid, seen.pc, seen.sp);
                    if let Some(snapshot) = &seen.snapshot {
                        stacks.insert(place, frames.backtrace(at, snapshot));
                    }
                    let call = seen.number;
                    let call = call.map(|number| Call::with_first(number, &seen.args));
                    let call = call.as_ref().zip(arch);
                    let span = match model.schedule.is_known() {
                        true => blocked_span(model, thread, seen.time_ns),
                        false => Some((seen.since_ns, seen.time_ns)),
                    };
                    // The thread was running when it was sampled.
                    let Some((from_ns, to_ns)) = span else {
                        continue;
                    };
                    let list = waits.threads.entry(thread).or_default();
                    list.push(Blocking {
                        from_ns,
                        to_ns,
                        call: call.map(|(call, arch)| call.name(arch).unwrap_or("syscall")),
                        futex: call.and_then(|(call, arch)| Some(call.futex(arch)?.address)),
                        file: seen.file.clone(),
                        stack: stacks.get(&place).cloned().unwrap_or_default(),
                    });
                    open.insert(seen.tid, thread);
                }
                _ => {}
            }
        }
        waits
    }

    fn last(&mut self, thread: ThreadIndex) -> Option<&mut Blocking> {
        self.threads.get_mut(&thread)?.last_mut()
    }

    /// The sampled wait in the kernel that covers most of a span, and the time that it covers at
    /// least.
    pub(super) fn longest(
        &self,
        thread: ThreadIndex,
        from_ns: u64,
        to_ns: u64,
    ) -> Option<(&Blocking, u64)> {
        let all = self.threads.get(&thread)?.iter();
        let part = |one: &Blocking| {
            let end = one.to_ns.min(to_ns);
            end.saturating_sub(one.from_ns.max(from_ns))
        };
        let parts = all.map(|one| (one, part(one))).filter(|(_, ns)| *ns > 0);
        parts.max_by_key(|(_, ns)| *ns)
    }
}

/// The span without interruption in which a thread was blocked at a moment, by its schedule.
fn blocked_span(model: &Model, thread: ThreadIndex, ns: u64) -> Option<(u64, u64)> {
    let interval = model.schedule.at(thread, ns)?;
    let blocked = interval.state == RunState::Blocked;
    blocked.then_some((interval.from_ns, interval.to_ns))
}
