//! Tests of waits whose threads were cancelled: they count, and cleanup handlers release the mutex.

use super::*;
use crate::primitives::Operation;

const PROBE_OF_UNLOCK: u32 = 102;
const FRAME: u64 = ONE << 16;

/// A thread begins to wait at the condition, and another one takes the mutex in between.
fn waits() -> Acting {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .enter(ONE, 2100, "pthread_cond_wait", &[COND, A])
        .lock(TWO, 2300, A)
        .unlock(TWO, 2400, A);
    acting
}

/// The thread unlocks the mutex in a cleanup handler, at this stack pointer.
fn handled_at(frame: u64) -> Acting {
    let mut acting = waits();
    let stack = ["libc.so.6!pthread_mutex_unlock", "orders!clean@orders.c:8"];
    acting
        .stage
        .enter(ONE, 2_700_000, PROBE_OF_UNLOCK, frame, &[A], &stack);
    acting
        .stage
        .leave(ONE, 2_701_000, PROBE_OF_UNLOCK + 1, frame, 0);
    acting
}

#[test]
fn an_unlock_by_a_cleanup_handler_ends_the_wait() {
    // The handler runs deeper on the stack, in the frame of the wait, or in one above.
    for frame in [FRAME - 64, FRAME, FRAME + 64] {
        let mut acting = handled_at(frame);
        acting.stage.exit(ONE, 3);
        acting.lock(TWO, 3500, A).unlock(TWO, 3600, A);
        acting.stage.end(10);
        let model = acting.stage.model();
        let (lock, changed) = (object(&model.sync, A), object(&model.sync, COND));
        let waits = (changed.waits.count, changed.waits.total_ns);
        assert_eq!(waits, (1, 600_000), "{frame:#x}");
        assert!(!changed.doubtful && !lock.doubtful, "{frame:#x}");
        // The first hold ends when the wait begins, another when the handler unlocks.
        assert_eq!(lock.holds.count, 4, "{frame:#x}");
        let unlocks = model.sync.uses.iter();
        let unlocks = unlocks.filter(|used| used.operation == Operation::Unlock);
        assert_eq!(unlocks.map(|used| used.calls).sum::<u64>(), 3, "{frame:#x}");
        assert_eq!(kinds(&model), [], "{frame:#x}");
    }
}

/// musl's wait unlocks and locks the mutex by the functions that everybody calls.
#[test]
fn the_second_unlock_within_a_wait_of_musl_is_the_handlers() {
    let mut acting = two_threads();
    acting.stage.family = Some(Family::Musl);
    acting.lock(ONE, 2000, A);
    acting.enter(ONE, 2100, "pthread_cond_wait", &[COND, A]);
    let stack = ["libc.so!pthread_mutex_unlock"];
    for (us, probe) in [(2110, 102), (2600, 100), (2700, 102)] {
        let (stage, inner) = (&mut acting.stage, FRAME - 0x100);
        stage.enter(ONE, us * 1000, probe, inner, &[A], &stack);
        stage.leave(ONE, (us + 1) * 1000, probe + 1, inner, 0);
    }
    acting.stage.exit(ONE, 3);
    acting.stage.end(10_000);
    let model = acting.stage.model();
    let changed = object(&model.sync, COND);
    let waits = (changed.waits.count, changed.waits.total_ns);
    assert_eq!(waits, (1, 600_000));
    let lock = object(&model.sync, A);
    assert_eq!((lock.taken, lock.holds.count), (1, 2));
    assert!(!changed.doubtful && !lock.doubtful);
}

#[test]
fn a_wait_ends_with_its_thread() {
    let mut acting = waits();
    acting.stage.exit(ONE, 3);
    acting.lock(TWO, 3500, A).unlock(TWO, 3600, A);
    acting.stage.end(10_000);
    let model = acting.stage.model();
    let changed = object(&model.sync, COND);
    let waits = (changed.waits.count, changed.waits.total_ns);
    assert_eq!(waits, (1, 900_000));
    // It is not known whether the thread unlocked the mutex.
    assert!(object(&model.sync, A).doubtful);
}

#[test]
fn a_post_by_a_signal_handler_is_no_part_of_the_wait_for_the_semaphore() {
    let mut acting = two_threads();
    acting.enter(ONE, 2100, "sem_wait", &[C]);
    let probe = 100 + 2 * 12;
    let stack = ["libc.so.6!sem_post", "orders!handler@orders.c:8"];
    acting
        .stage
        .enter(ONE, 2_700_000, probe, FRAME - 512, &[C], &stack);
    acting
        .stage
        .leave(ONE, 2_701_000, probe + 1, FRAME - 512, 0);
    acting.leave(ONE, 2800, "sem_wait", 0).stage.end(10);
    let model = acting.stage.model();
    let uses = model.sync.uses.iter();
    let posts = uses.filter(|used| used.operation == Operation::Post);
    assert_eq!(posts.map(|used| used.calls).sum::<u64>(), 1);
    assert_eq!(object(&model.sync, C).waits.count, 1);
}
