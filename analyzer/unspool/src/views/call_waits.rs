//! Blocked times in system calls, and what ended them, of threads with the same identity together.

use std::collections::BTreeMap;

use crate::model::schedule::{CallIndex, CallWake, Waker};
use crate::model::{Model, ThreadIndex};

/// How often threads were blocked, and for how long in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) count: u64,
    pub(super) ns: u64,
}

impl Blocked {
    pub(super) fn add(&mut self, other: Blocked) {
        self.count += other.count;
        self.ns += other.ns;
    }
}

/// What woke threads: [`Waker`] with an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WokenBy {
    Threads(usize),
    Interrupt,
    Outside,
    Recorder,
}

impl WokenBy {
    pub(super) fn of(model: &Model, waker: Waker) -> WokenBy {
        match waker {
            Waker::Thread(ThreadIndex(thread)) => {
                WokenBy::Threads(model.sync.identity_of.get(thread).copied().unwrap_or(0))
            }
            Waker::Interrupt => WokenBy::Interrupt,
            Waker::Outside => WokenBy::Outside,
            Waker::Recorder => WokenBy::Recorder,
        }
    }

    /// `thread`, `interrupt`, `outside` or `recorder`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            WokenBy::Threads(_) => "thread",
            WokenBy::Interrupt => "interrupt",
            WokenBy::Outside => "outside",
            WokenBy::Recorder => "recorder",
        }
    }
}

/// The blocked times of the threads of one identity in one system call.
#[derive(Clone, Debug)]
pub(super) struct CallWait {
    pub(super) call: CallIndex,
    pub(super) identity: usize,
    pub(super) blocked: Blocked,
    /// What ended them, as far as known; the longest sum first.
    pub(super) wakers: Vec<(WokenBy, Blocked)>,
}

/// All blocked times, the longest sum first. Leaves out futex calls if the waits at their objects
/// were recorded.
pub(super) fn of(model: &Model) -> Vec<CallWait> {
    let recorded = model.sync.recorded && !model.recording.too_little_seen();
    let names_object = |call| {
        let call = model.schedule.call(call);
        call.is_none_or(|call| call.is_futex && recorded)
    };
    let mut all: BTreeMap<(CallIndex, usize), (Blocked, Vec<CallWake>)> = BTreeMap::new();
    let wakers = model.wakers();
    for (thread, identity) in model.sync.identity_of.iter().enumerate() {
        for time in model.schedule.call_times(ThreadIndex(thread)) {
            let (blocked, _) = all.entry((time.call, *identity)).or_default();
            blocked.add(Blocked {
                count: time.count,
                ns: time.blocked_ns,
            });
        }
        for wake in wakers.call_wakes(ThreadIndex(thread)) {
            all.entry((wake.call, *identity)).or_default().1.push(wake);
        }
    }
    all.retain(|(call, _), _| !names_object(*call));
    let mut waits: Vec<CallWait> = (all.into_iter())
        .map(|((call, identity), (blocked, wakes))| CallWait {
            call,
            identity,
            blocked,
            wakers: by_identity(model, &wakes),
        })
        .collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.blocked.ns));
    waits
}

/// Wakers with the same identity together, the longest sum first.
pub(super) fn by_identity<'a>(
    model: &Model,
    wakes: impl IntoIterator<Item = &'a CallWake>,
) -> Vec<(WokenBy, Blocked)> {
    let mut wakers: BTreeMap<WokenBy, Blocked> = BTreeMap::new();
    for wake in wakes {
        let by = wakers.entry(WokenBy::of(model, wake.waker)).or_default();
        by.add(Blocked {
            count: wake.count,
            ns: wake.blocked_ns,
        });
    }
    let mut wakers: Vec<(WokenBy, Blocked)> = wakers.into_iter().collect();
    wakers.sort_by_key(|(_, blocked)| std::cmp::Reverse(blocked.ns));
    wakers
}
