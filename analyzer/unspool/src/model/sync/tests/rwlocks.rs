//! Tests of read-write locks of which only system calls are recorded.

use super::findings::of_kind;
use super::*;
use crate::model::FindingKind;

/// Threads wait in `waits` at the word `A + word` of a read-write lock, from 10 ms on. After 300
/// ms, `two` makes a wake in `wakes`. The memory of the lock has `writer` as its writer.
fn contended(waits: &'static str, word: u64, wakes: &'static str, writer: u64) -> Model {
    let mut acting = two_threads();
    let stage = &mut acting.stage;
    stage.family = Some(Family::Glibc(Some(36)));
    stage.instrument(90, "libc.so.6!futex_wait", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    stage.instrument(92, "libc.so.6!futex_wake", ProbeKind::FutexWake);
    let path = ["libc.so.6!futex_wait", waits, "orders!one@orders.c:22"];
    let wakes = ["libc.so.6!futex_wake", wakes, "orders!two@orders.c:41"];
    let ms = 1_000_000;
    // PTHREAD_RWLOCK_FUTEX_USED, and 1 in all but a read phase.
    let expected = if (waits, word) == (WRITE, 8) { 2 } else { 3 };
    let mut memory = [0; 48];
    let writer_at = 24 - word as usize;
    memory[writer_at..writer_at + 8].copy_from_slice(&writer.to_le_bytes());
    for (tid, at) in [(ONE, 10), (PID, 20)] {
        let args = [A + word, 0x189, expected];
        stage.enter(tid, at * ms, 90, tid << 16, &args, &path);
        stage.read_object(A + word, &memory);
    }
    stage.enter(TWO, 310 * ms, 92, TWO << 16, &[A + word, 0x81, 9], &wakes);
    for tid in [ONE, PID] {
        stage.leave(tid, 310 * ms + 1000, 91, tid << 16, 0);
    }
    stage.end(400);
    stage.model()
}

const READ: &str = "libc.so.6!pthread_rwlock_rdlock";
const WRITE: &str = "libc.so.6!pthread_rwlock_wrlock";
const UNLOCK: &str = "libc.so.6!pthread_rwlock_unlock";

/// The writer that releases the lock has held it since the first wait.
#[test]
fn a_writer_holds_a_read_write_lock_for_long() {
    let held = "two (TID 12) held read-write lock lock_a for 300 ms or longer, released in two \
         (orders.c:41). Meanwhile 2 threads waited for it.";
    for (waits, word, writer) in [(READ, 8, TWO), (READ, 8, 0), (WRITE, 12, TWO)] {
        let model = contended(waits, word, UNLOCK, writer);
        let [hold] = of_kind(&model, FindingKind::LongHold)[..] else {
            panic!("{:?}", kinds(&model))
        };
        let text = text(&model, hold);
        assert!(text.starts_with(held) && hold.proved, "{text}");
    }
}

/// Other readers may have held it as well: only the last one wakes the writer.
#[test]
fn readers_hold_a_read_write_lock_for_long() {
    let model = contended(WRITE, 8, UNLOCK, 0);
    let [hold] = of_kind(&model, FindingKind::LongHold)[..] else {
        panic!("{:?}", kinds(&model))
    };
    let text = text(&model, hold);
    let held = "two (TID 12) was the last holder of read-write lock lock_a, which was held for 300 \
         ms or longer, released in two (orders.c:41). Other threads may have held it, too. Meanwhile \
         2 threads waited for it.";
    assert!(text.starts_with(held), "{text}");
}

/// A thread that takes the lock for reading wakes other readers.
#[test]
fn a_reader_that_takes_a_lock_has_not_held_it() {
    for (wakes, writer) in [(READ, 0), (UNLOCK, ONE)] {
        let model = contended(READ, 8, wakes, writer);
        let holds = of_kind(&model, FindingKind::LongHold);
        assert!(holds.is_empty(), "{:?}", kinds(&model));
    }
}
