//! Tests that waits at different words of one object are assigned to that object.

use unspool_capture::ProbeKind;

use super::{A, Acting, B, COND, END, ONE, TWO, object, two_threads};
use crate::model::fixture::PID;
use crate::platform::layouts::Family;
use crate::primitives::{Kind, Operation};

/// `FUTEX_WAIT` and `FUTEX_WAIT_BITSET` with `FUTEX_CLOCK_REALTIME`, of this process.
const WAIT: u64 = 0x80;
const WAIT_BITSET: u64 = 0x189;
/// The word of a lock that one thread holds and another waits for.
const HELD: u64 = 2;

/// Kind and address of the objects of a program whose threads wait in these functions, at these
/// words, with this operation and these values.
fn objects(family: Family, waits: &[(&'static str, u64, u64, u64)]) -> Vec<(Kind, u64)> {
    let mut acting = two_threads();
    let stage = &mut acting.stage;
    stage.family = Some(family);
    stage.instrument(90, "libc.so.6!futex", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    for (at, (function, word, operation, value)) in waits.iter().enumerate() {
        let ns = 2_000_000 + 100_000 * at as u64;
        let path = ["libc.so.6!futex", function, "orders!one@orders.c:22"];
        stage.enter(ONE, ns, 90, 0x7000, &[*word, *operation, *value], &path);
        stage.leave(ONE, ns + 50_000, 91, 0x7000, 0);
    }
    stage.end(10);
    let sync = stage.model().sync;
    let objects = sync.objects.iter();
    objects.map(|one| (one.kind, one.address)).collect()
}

#[test]
fn the_words_of_glibc() {
    let (wait, signal, destroy) = (
        "libc.so.6!pthread_cond_wait",
        "libc.so.6!pthread_cond_signal",
        "libc.so.6!pthread_cond_destroy",
    );
    // __g_signals twice; the lock in __g1_orig_size; __g_refs twice; __wrefs.
    let before_2_41 = [
        (wait, COND + 0x28, WAIT_BITSET, 0),
        (wait, COND + 0x2c, WAIT_BITSET, 0),
        (signal, COND + 0x20, WAIT, 4 << 2 | HELD),
        (signal, COND + 0x10, WAIT, 3),
        (signal, COND + 0x14, WAIT, 1),
        (destroy, COND + 0x24, WAIT, 12),
    ];
    let since_2_41 = [
        (wait, COND + 0x20, WAIT_BITSET, 0),
        (wait, COND + 0x24, WAIT_BITSET, 6),
        (signal, COND + 0x18, WAIT, HELD),
        (destroy, COND + 0x1c, WAIT, 12),
    ];
    for (version, waits) in [(36, &before_2_41[..]), (41, &since_2_41)] {
        let seen = objects(Family::Glibc(Some(version)), waits);
        assert_eq!(seen, [(Kind::Cond, COND)], "2.{version}");
    }
    let (read, write) = (
        "libc.so.6!pthread_rwlock_rdlock",
        "libc.so.6!pthread_rwlock_wrlock",
    );
    let glibc = Family::Glibc(Some(36));
    let waits = [
        (read, A + 8, WAIT_BITSET, 3),
        (read, A, WAIT_BITSET, 2 << 3 | 4 | 2),
        (write, A + 12, WAIT_BITSET, 3),
        (write, A + 8, WAIT_BITSET, 2),
    ];
    assert_eq!(objects(glibc, &waits), [(Kind::Rwlock, A)]);
    let wait = "libc.so.6!pthread_barrier_wait";
    let waits = [(wait, A + 4, WAIT, 1), (wait, A, WAIT, 5)];
    assert_eq!(objects(glibc, &waits), [(Kind::Barrier, A)]);
}

/// Output and memory have locks of their own in the C library.
#[test]
fn the_own_locks_of_glibc() {
    let glibc = Family::Glibc(Some(36));
    for (function, value, kind) in [
        ("libc.so.6!fflush", HELD, Kind::Mutex),
        ("libc.so.6!fflush", 3, Kind::Futex),
    ] {
        let seen = objects(glibc, &[(function, A, WAIT, value)]);
        assert_eq!(seen, [(kind, A)], "{function}");
    }
}

#[test]
fn the_words_of_musl() {
    for (function, word, kind) in [
        ("libc.so!pthread_mutex_timedlock", A + 4, Kind::Mutex),
        ("libc.so!pthread_rwlock_timedwrlock", A, Kind::Rwlock),
        ("libc.so!sem_timedwait", A, Kind::Sem),
    ] {
        let seen = objects(Family::Musl, &[(function, word, WAIT, HELD)]);
        assert_eq!(seen, [(kind, A)], "{function}");
    }
}

/// If the function's internals have no names, a wait for the mutex looks like a wait for the
/// condition.
#[test]
fn a_waiter_that_takes_the_mutex_again_waits_for_the_mutex() {
    let wait = "libc.so.6!pthread_cond_wait";
    let waits = [(wait, COND + 0x28, WAIT_BITSET, 0), (wait, A, WAIT, HELD)];
    let seen = objects(Family::Glibc(Some(36)), &waits);
    assert_eq!(seen, [(Kind::Cond, COND), (Kind::Mutex, A)]);
}

/// musl's threads wait at words on their own stacks. Only a recorded call of the function names the
/// object.
#[test]
fn words_of_their_own_are_of_one_object() {
    for called_first in [true, false] {
        let mut acting = two_threads();
        let wait = "libc.so.6!pthread_cond_wait";
        let place = "orders!wait_for_work@orders.c:7";
        acting.stage.family = Some(Family::Musl);
        let stage = &mut acting.stage;
        stage.instrument(90, "libc.so.6!futex", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        let waits = |acting: &mut Acting, tid: u64, ns: u64| {
            let path = ["libc.so.6!futex", wait, place];
            let (stage, own) = (&mut acting.stage, tid << 20);
            stage.enter(tid, ns, 90, own, &[own + 20, WAIT, HELD], &path);
            stage.leave(tid, ns + 50_000, 91, own, 0);
        };
        let calls = |acting: &mut Acting| {
            acting.on(PID, &[place]);
            acting.enter(PID, 3000, "pthread_cond_wait", &[COND, B]);
            waits(acting, PID, 3_010_000);
            acting.leave(PID, 3100, "pthread_cond_wait", 0);
        };
        match called_first {
            true => {
                calls(&mut acting);
                waits(&mut acting, ONE, 4_000_000);
                waits(&mut acting, TWO, 5_000_000);
            }
            false => {
                waits(&mut acting, ONE, 2_000_000);
                waits(&mut acting, TWO, 2_500_000);
                calls(&mut acting);
            }
        }
        acting.stage.end(10);
        let sync = acting.stage.model().sync;
        let conds = sync.objects.iter().filter(|one| one.kind == Kind::Cond);
        let conds: Vec<_> = conds.map(|one| (one.address, one.waits.count)).collect();
        assert_eq!(conds, [(COND, 3)], "called first: {called_first}");
    }
}

/// glibc stores the writer of a read-write lock, for which readers wait at another word.
#[test]
fn readers_wait_for_the_stored_writer() {
    let mut acting = two_threads();
    let stage = &mut acting.stage;
    stage.family = Some(Family::Glibc(Some(36)));
    stage.instrument(90, "libc.so.6!futex", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    let path = [
        "libc.so.6!futex",
        "libc.so.6!pthread_rwlock_rdlock",
        "orders!one@orders.c:22",
    ];
    // __wrphase_futex, and __cur_writer 16 bytes after it.
    let mut memory = [0; 48];
    memory[16..20].copy_from_slice(&(TWO as u32).to_le_bytes());
    stage.enter(ONE, 2_000_000, 90, 0x7000, &[A + 8, WAIT, 3], &path);
    stage.read_object(A + 8, &memory);
    stage.end(1000);
    let model = stage.model();
    let [wait] = &model.sync.final_waits[..] else {
        panic!("{:?}", model.sync.final_waits)
    };
    let holders = wait.holders.iter();
    let tids: Vec<_> = holders
        .map(|holder| model.thread(holder.thread).and_then(|thread| thread.tid))
        .collect();
    assert_eq!(tids, [Some(TWO)]);
}

/// A signal can sleep at a word of its condition. If its own call is recorded, it counts once.
#[test]
fn a_signal_that_sleeps_is_one_signal() {
    let mut acting = two_threads();
    let stage = &mut acting.stage;
    stage.family = Some(Family::Glibc(Some(36)));
    stage.instrument(90, "libc.so.6!futex", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    let signal = "libc.so.6!pthread_cond_signal";
    stage.instrument(95, signal, ProbeKind::Enter);
    let path = [signal, "orders!one@orders.c:22", END[0]];
    let inner = [&["libc.so.6!futex"], &path[..]].concat();
    stage.enter(ONE, 2_000_000, 95, 0x7100, &[COND], &path);
    let lock = [COND + 0x20, WAIT, 4 << 2 | HELD];
    stage.enter(ONE, 2_001_000, 90, 0x7000, &lock, &inner);
    stage.leave(ONE, 5_000_000, 91, 0x7000, 0);
    stage.end(10);
    let model = stage.model();
    let signals = model.sync.uses.iter();
    let signals = signals.filter(|used| used.operation == Operation::Signal);
    let calls: Vec<u64> = signals.map(|used| used.calls).collect();
    assert_eq!(calls, [1, 0]);
    assert_eq!(object(&model.sync, COND).waits.count, 1);
}
