//! What threads waited for in the kernel, as far as that was looked at while the program ran.

use std::sync::Arc;

use foldhash::HashMap;
use unspool_capture::Record;
use unspool_image::Arch;

use crate::model::backtrace::{Backtrace, Frames};
use crate::model::schedule::RunState;
use crate::model::{Model, Thread, ThreadIndex};
use crate::syscall::Call;

/// A time that a thread spent in the kernel.
#[derive(Clone, Debug)]
pub(super) struct Blocking {
    /// It was there from then on, or had been before.
    from_ns: u64,
    /// When it was looked at.
    seen_ns: u64,
    /// It had not run by then.
    to_ns: u64,
    /// The system call's name; none if it is in no system call, but waits for memory.
    pub(super) call: Option<&'static str>,
    /// The word, if the call is a wait at a futex.
    pub(super) futex: Option<u64>,
    /// What the descriptor in its first argument stands for.
    pub(super) file: String,
    pub(super) stack: Arc<Backtrace>,
}

/// All such times, by thread, in order.
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
                    // A later thread may have the same id.
                    let Some(thread) = model.threads.iter().rposition(has_id) else {
                        continue;
                    };
                    let thread = ThreadIndex(thread);
                    let place = (seen.tid, seen.pc, seen.sp);
                    if let Some(snapshot) = &seen.snapshot {
                        stacks.insert(place, frames.backtrace(at, snapshot));
                    }
                    let mut args = [0; 6];
                    for (arg, value) in args.iter_mut().zip(&seen.args) {
                        *arg = *value;
                    }
                    let call = seen.number.map(|number| Call { number, args });
                    let call = call.as_ref().zip(arch);
                    let span = match model.schedule.is_known() {
                        true => blocked_span(model, thread, seen.time_ns),
                        false => Some((seen.since_ns, seen.time_ns)),
                    };
                    // It ran when it was read.
                    let Some((from_ns, to_ns)) = span else {
                        continue;
                    };
                    let list = waits.threads.entry(thread).or_default();
                    list.push(Blocking {
                        from_ns,
                        seen_ns: seen.time_ns,
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

    /// In which wait in the kernel a thread spent most of a time, and how much of it at least.
    pub(super) fn longest(
        &self,
        thread: ThreadIndex,
        from_ns: u64,
        to_ns: u64,
    ) -> Option<(&Blocking, u64)> {
        let all = self.threads.get(&thread)?.iter();
        let inside = all.filter(|one| (from_ns..=to_ns).contains(&one.seen_ns));
        let part = |one: &Blocking| {
            let end = one.to_ns.min(to_ns);
            end.saturating_sub(one.from_ns.max(from_ns))
        };
        let all = inside.map(|one| (one, part(one)));
        all.max_by_key(|(_, ns)| *ns)
    }
}

/// When a thread was blocked without a break that was blocked at this moment, by its schedule.
fn blocked_span(model: &Model, thread: ThreadIndex, ns: u64) -> Option<(u64, u64)> {
    let interval = model.schedule.at(thread, ns)?;
    let blocked = interval.state == RunState::Blocked;
    blocked.then_some((interval.from_ns, interval.to_ns))
}
