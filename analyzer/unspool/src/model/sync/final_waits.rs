//! Waits that had not ended when the recording did, each with the threads that can end it.
//!
//! Only the replay knows the holders at the end. The wait graph draws the conclusions.

use super::findings::Basis;
use super::holds::Held;
use super::misuse::StillWaiting;
use super::objects::{Object, ObjectIndex, UseIndex};
use super::replay::Replay;
use crate::model::{ProgramEnd, Thread, ThreadIndex};
use crate::primitives::{Kind, Operation};

/// A call that began this shortly before the end may still return.
pub(in crate::model) const JUST_BEGUN_NS: u64 = 50_000_000;

/// Minimum length of a wait that supports a conclusion from unseen events.
pub(in crate::model) const LASTING_NS: u64 = 500_000_000;

/// A wait at the end of a recording.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::model) struct FinalWait {
    pub(in crate::model) thread: ThreadIndex,
    pub(in crate::model) object: ObjectIndex,
    pub(in crate::model) used: UseIndex,
    /// Its length so far, since the thread was last woken.
    pub(in crate::model) ns: u64,
    /// True if the wait has a timeout.
    pub(in crate::model) timed: bool,
    /// True if the wait certainly had not ended.
    pub(in crate::model) sure: bool,
    pub(in crate::model) holders: Vec<FinalHolder>,
    /// The living threads that were seen to use the lock, or to end waits at another object; `None`
    /// if too little was seen to say.
    pub(in crate::model) users: Option<Vec<ThreadIndex>>,
}

/// A thread that can end a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct FinalHolder {
    pub(in crate::model) thread: ThreadIndex,
    /// Where it took the lock.
    pub(in crate::model) taken: Option<UseIndex>,
    /// Both the wait and the hold are certain.
    pub(in crate::model) sure: bool,
}

/// True unless a thread ended before the program did.
pub(in crate::model) fn is_alive(recording: &crate::model::Recording, thread: &Thread) -> bool {
    let slack_ns = match recording.program_end {
        Some(ProgramEnd::Signal(_)) => recording.slack_ns(),
        _ => JUST_BEGUN_NS,
    };
    recording.was_there_at_the_end(thread, slack_ns)
}

/// Returns one wait per thread. Of nested calls it takes the outermost, which says what the thread
/// waits for.
pub(super) fn of(basis: &Basis<'_>, replay: &Replay<'_>) -> Vec<FinalWait> {
    let mut all = replay.misuse.still.clone();
    all.sort_by_key(|waiting| (waiting.thread, waiting.since_ns));
    all.dedup_by_key(|waiting| waiting.thread);
    let end_ns = basis.model.recording.duration_ns;
    let waits = all.iter().map(|waiting| FinalWait {
        thread: waiting.thread,
        object: waiting.object,
        used: waiting.used,
        ns: end_ns.saturating_sub(waiting.since_ns),
        timed: waiting.timed,
        sure: waiting.sure,
        holders: holders(basis, replay, waiting),
        users: users(basis, &basis.objects[waiting.object.0]),
    });
    waits.collect()
}

fn holders(basis: &Basis<'_>, replay: &Replay<'_>, waiting: &StillWaiting) -> Vec<FinalHolder> {
    let object = &basis.objects[waiting.object.0];
    let sure = waiting.sure && !waiting.timed && basis.lossless();
    let ns = (basis.model.recording.duration_ns).saturating_sub(waiting.since_ns);
    match waiting.operation {
        Operation::Join => {
            let threads = &basis.model.threads;
            let alive = |thread: &Thread| is_alive(&basis.model.recording, thread);
            let joined = |thread: &Thread| thread.joiner == Some(waiting.thread) && alive(thread);
            let called = threads.iter().position(joined).map(ThreadIndex);
            let there = |joined: &ThreadIndex| threads.get(joined.0).is_some_and(alive);
            let joined = called.or(waiting.owner.filter(there));
            let holder = joined.map(|thread| FinalHolder {
                thread,
                taken: None,
                sure,
            });
            holder.into_iter().collect()
        }
        Operation::Lock | Operation::ReadLock | Operation::WriteLock => {
            if let Some(owner) = waiting.owner {
                // The owner read at the beginning of the wait may have changed since.
                return vec![FinalHolder {
                    thread: owner,
                    taken: None,
                    sure: false,
                }];
            }
            // Rather miss a deadlock than report one from holds that ended unseen.
            if !basis.model.recording.is_certain_between_gaps() {
                return Vec::new();
            }
            let shared = waiting.operation == Operation::ReadLock;
            let mut holders = Vec::new();
            for holder in replay.holds.holders(waiting.object) {
                let Some(held) = held(replay, *holder, waiting.object) else {
                    continue;
                };
                // Readers do not exclude each other, nor does a reader exclude itself.
                if shared && held.shared || replay.gaps.may_be_free(object.kind, held.stamp) {
                    continue;
                }
                let itself = *holder == waiting.thread;
                holders.push(FinalHolder {
                    thread: *holder,
                    taken: Some(held.taken),
                    // The owner of a recursive lock takes it again at once.
                    sure: sure && !object.doubtful && (!itself || ns >= JUST_BEGUN_NS),
                });
            }
            holders
        }
        _ => Vec::new(),
    }
}

fn held(replay: &Replay<'_>, thread: ThreadIndex, object: ObjectIndex) -> Option<Held> {
    let all = replay.holds.of(thread);
    all.iter().find(|held| held.object == object).copied()
}

/// The living threads that could end waits at an object, judged by their recorded calls there.
fn users(basis: &Basis<'_>, object: &Object) -> Option<Vec<ThreadIndex>> {
    let recording = &basis.model.recording;
    let is_lock = object.kind.is_lock();
    // Each user of a lock holds it at times and may wait for it, so that some of its calls are seen
    // even with gaps. A thread that only ends waits may have done so in a gap.
    if recording.too_little_seen() || !is_lock && recording.misses_calls() {
        return None;
    }
    let ends_waits = |operation: Operation| match object.kind {
        Kind::Mutex | Kind::Rwlock => true,
        Kind::Barrier => operation == Operation::Arrive,
        _ => matches!(
            operation,
            Operation::Signal | Operation::Broadcast | Operation::Post
        ),
    };
    let mut identities: Vec<usize> = Vec::new();
    for used in object.uses.iter().map(|used| &basis.uses[used.0]) {
        if ends_waits(used.operation) {
            identities.extend(used.shares.iter().map(|share| share.identity));
        }
    }
    // Wakers are unknown if no wait at the object was ever ended. But each user of a lock can end
    // waits for it.
    if identities.is_empty() && !is_lock {
        return None;
    }
    let threads = basis.model.threads.iter().enumerate();
    let users = threads.filter(|(index, thread)| {
        let identity = basis.identity_of.get(*index);
        identity.is_some_and(|identity| identities.contains(identity))
            && is_alive(recording, thread)
    });
    Some(users.map(|(index, _)| ThreadIndex(index)).collect())
}
