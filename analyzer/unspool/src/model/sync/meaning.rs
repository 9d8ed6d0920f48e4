//! The meaning of recorded calls: the primitive a system call belongs to, and its results.

use super::under_way::Pending;
use crate::model::backtrace::{Place, innermost};
use crate::model::calls::{Call, Calls, PathId};
use crate::primitives::{self, Kind, Operation, Primitive};

/// The address of an object of unknown layout, derived from its futex word. A condition variable in
/// C has two words side by side that alternate (glibc, `__g_signals`).
pub(super) fn pair(primitive: &Primitive, address: u64) -> u64 {
    match primitive.kind {
        Kind::Cond if !primitive.is_of_a_language() => address & !7,
        _ => address,
    }
}

/// The error of a robust mutex whose holder died; the lock is taken (POSIX, `pthread_mutex_lock`).
pub(super) const EOWNERDEAD: u64 = 130;

const FUTEX: Primitive = Primitive {
    names: &["futex"],
    kind: Kind::Futex,
    operation: Operation::Wait,
    object: 0,
    mutex: None,
    timed: false,
    internal: false,
};
static LOCK: Primitive = Primitive {
    names: &["lock of the C library"],
    kind: Kind::Mutex,
    operation: Operation::Lock,
    ..FUTEX
};

/// True for an internal lock of the C library.
pub(super) fn is_own_lock(primitive: &Primitive) -> bool {
    *primitive == LOCK
}

/// The innermost primitive on a path, or an internal lock of the C library; a futex if there is
/// none. `waits_as_lock` if a wait of glibc expects the value of a lock with waiting threads: no
/// other wait outside its primitives does so. Few of glibc's internal functions have names.
pub(super) fn in_path(calls: &Calls, path: PathId, waits_as_lock: bool) -> &'static Primitive {
    let of = |function: &str| {
        let found = primitives::find(function).filter(|one| one.may_wait());
        // musl: src/thread/__lock.c, and the lock of the thread list.
        found.or_else(|| {
            ["__lock", "__tl_lock", "__tl_sync"]
                .contains(&function)
                .then_some(&LOCK)
        })
    };
    let frames = &calls.path(path).frames;
    // A function of the program called by a primitive waits for its own object, not the
    // primitive's.
    let low = frames.first().is_some_and(|frame| frame.place.is_low());
    let outside = |place: &Place| !place.is_within() && (low || place.function.is_some());
    if let Some((_, primitive)) = innermost(frames, of, outside) {
        return primitive;
    }
    let is_own = |place: &Place| place.is_low() && place.function.as_deref() != Some("syscall");
    match frames.first() {
        Some(frame) if waits_as_lock && is_own(&frame.place) => &LOCK,
        _ => &FUTEX,
    }
}

/// True if the function returns 0 or an error number, as C's functions do.
pub(super) fn returns_errors(primitive: &Primitive) -> bool {
    let name = primitive.name();
    name.starts_with("pthread_") || name.starts_with("sem_") || name.starts_with("mtx_")
}

/// True if a wait ended because its time limit was reached.
pub(super) fn has_timed_out(pending: &Pending, call: &Call) -> bool {
    /// The error number (POSIX, `pthread_cond_timedwait`).
    const ETIMEDOUT: u64 = 110;
    match call.result.filter(|_| returns_errors(pending.primitive)) {
        // Another thread may end the wait after its limit and before it returns.
        Some(0) => false,
        // The mutex that a timed wait takes again has no limit.
        Some(ETIMEDOUT) => pending.timed || pending.primitive.operation != Operation::Lock,
        _ => pending.timed_out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_condition_of_unknown_layout() {
        let at = |function| pair(primitives::find(function).expect(function), 0x1004);
        assert_eq!(at("pthread_cond_wait"), 0x1000);
        assert_eq!(at("__pthread_cond_wait_common"), 0x1000);
        assert_eq!(at("std::sys::sync::condvar::futex::Condvar::wait"), 0x1004);
        assert_eq!(at("pthread_mutex_lock"), 0x1004);
    }
}
