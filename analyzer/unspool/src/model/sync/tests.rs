//! Tests of synchronization from fixtures: holders, waiters, and conclusions that must not be
//! drawn.

use unspool_capture::{Gap, GapKind, ProbeKind, Read, ReadRole, Record};

use super::{Sync, TimedOut, Waiting};
use crate::model::fixture::PID;
use crate::model::fixture::sync::Acting;
use crate::model::{Finding, Model};
use crate::platform::layouts::Family;
use crate::primitives::Kind;

mod cancelled;
mod findings;
mod holders;
mod joins;
mod load;
mod lock_order;
mod processors;
mod retries;
mod rwlocks;
mod sentences;
mod words;

const A: u64 = 0xa000;
const B: u64 = 0xb000;
const C: u64 = 0xc000;
const COND: u64 = 0xd000;
const ONE: u64 = 11;
const TWO: u64 = 12;
const END: [&str; 2] = ["libc.so.6!start_thread", "libc.so.6!clone3"];

/// Two threads that run `one` and `two`, from 1 ms to the end.
fn two_threads() -> Acting {
    let mut acting = Acting::new();
    acting.stage.data.insert(A, "lock_a");
    acting.stage.data.insert(B, "lock_b");
    acting.stage.data.insert(C, "gate");
    acting.stage.data.insert(COND, "changed");
    let main = ["orders!main@orders.c:9"];
    acting
        .stage
        .spawn(PID, ONE, 0, "orders!one@orders.c:20", &main);
    acting
        .stage
        .spawn(PID, TWO, 0, "orders!two@orders.c:40", &main);
    acting.on(PID, &main);
    acting.on(ONE, &["orders!one@orders.c:21", END[0], END[1]]);
    acting.on(TWO, &["orders!two@orders.c:41", END[0], END[1]]);
    acting
}

/// The findings, each with whether it is proved.
fn kinds(model: &Model) -> Vec<(&'static str, bool)> {
    let findings = model.findings.iter();
    findings.map(|f| (f.kind.as_str(), f.proved)).collect()
}

/// The sentences of a finding.
fn text(model: &Model, finding: &Finding) -> String {
    crate::views::finding_text::text(model, finding)
}

fn object(sync: &Sync, address: u64) -> &super::Object {
    let mut objects = sync.objects.iter();
    objects.find(|object| object.address == address).unwrap()
}

#[test]
fn holds_and_waits_are_measured() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .enter(TWO, 2100, "pthread_mutex_lock", &[A])
        .unlock(ONE, 2601, A)
        .leave(TWO, 2650, "pthread_mutex_lock", 0)
        .unlock(TWO, 2750, A)
        .stage
        .end(10);
    let model = acting.stage.model();
    let sync = &model.sync;
    let lock = object(sync, A);
    assert_eq!(lock.kind, Kind::Mutex);
    assert_eq!(
        lock.symbol.as_ref().unwrap().function.as_deref(),
        Some("lock_a")
    );
    assert_eq!(
        (lock.taken, lock.waits.count, lock.waits.total_ns),
        (2, 1, 550_000)
    );
    assert_eq!(
        (lock.holds.count, lock.holds.total_ns, lock.holds.max_ns),
        (2, 700_000, 600_000)
    );
    assert_eq!(lock.longest_queue, 1);
    let [pair] = &lock.contention[..] else {
        panic!("{:?}", lock.contention)
    };
    assert_eq!((pair.count, pair.total_ns), (1, 550_000));
    let threads = (pair.longest.0, pair.longest.1);
    assert_eq!(model.thread(threads.0).unwrap().tid, Some(TWO));
    assert_eq!(model.thread(threads.1).unwrap().tid, Some(ONE));
    let two = &sync.threads[2];
    assert_eq!((two.held_ns, two.operations), (550_000, 2));
    assert_eq!(two.alive_ns - two.running_ns(), 550_000);
    assert_eq!(sync.functions[0].name, "pthread_mutex_lock");
    assert_eq!(sync.functions[0].calls, 2);
    assert!(!lock.doubtful);
    assert_eq!(kinds(&model), []);
}

/// A lock is released and taken again, and neither is recorded.
#[test]
fn two_holds_with_a_gap_are_not_one_hold() {
    let unlock = 102;
    let lock = 100;
    for (paused, states) in [(&[unlock][..], true), (&[unlock, lock], false)] {
        let mut acting = two_threads();
        acting.lock(ONE, 2000, A);
        for kind in [GapKind::Paused, GapKind::Resumed] {
            for probe in paused {
                acting.stage.add(Gap {
                    probe: *probe,
                    kind: kind.into(),
                    time_ns: 3_000_000,
                });
            }
        }
        acting.lock(TWO, 50_000, B);
        acting.unlock(ONE, 90_000, A);
        let model = acting.stage.model();
        let a = model.sync.objects.iter().find(|object| object.address == A);
        let holds = &a.expect("the lock").holds;
        assert_eq!(holds.count, u64::from(states), "{paused:?}: {holds:?}");
    }
}

#[test]
fn a_hold_that_was_not_seen_to_end_ends_when_another_takes_it() {
    let mut acting = two_threads();
    // The unlock of the first is missing.
    acting
        .lock(ONE, 2000, A)
        .lock(TWO, 3000, A)
        .unlock(TWO, 4000, A);
    acting.stage.end(5);
    let model = acting.stage.model();
    let lock = object(&model.sync, A);
    assert!(lock.doubtful);
    assert_eq!(lock.holds.count, 1, "no end is invented");
    assert_eq!(kinds(&model), []);
}

#[test]
fn an_address_that_is_used_again_is_another_object() {
    let mut acting = two_threads();
    acting.call(ONE, 2000, "pthread_mutex_init", &[0x5000, 0]);
    acting.lock(ONE, 2100, 0x5000).unlock(ONE, 2200, 0x5000);
    acting.call(ONE, 2300, "pthread_mutex_destroy", &[0x5000]);
    acting.call(ONE, 2400, "sem_post", &[0x5000]);
    acting.call(TWO, 2500, "pthread_mutex_init", &[0x5000, 0]);
    acting.lock(TWO, 2600, 0x5000).unlock(TWO, 2700, 0x5000);
    acting.stage.end(9);
    let model = acting.stage.model();
    let here: Vec<_> = model
        .sync
        .objects
        .iter()
        .filter(|o| o.address == 0x5000)
        .collect();
    assert_eq!(
        here.iter()
            .map(|o| (o.kind, o.made, o.destroyed_ns.is_some()))
            .collect::<Vec<_>>(),
        [
            (Kind::Mutex, true, true),
            (Kind::Sem, false, false),
            (Kind::Mutex, true, false)
        ]
    );
    assert_ne!(here[0].key, here[2].key, "made elsewhere");
}

/// A worker that waits for work `times` times.
fn work(acting: &mut Acting, tid: u64, times: u64) {
    for at in 0..times {
        let us = 2000 + 1000 * at;
        acting.lock(tid, us, A);
        acting.enter(tid, us + 10, "pthread_cond_wait", &[COND, A]);
        acting.leave(tid, us + 700, "pthread_cond_wait", 0);
        acting.unlock(tid, us + 800, A);
    }
}

#[test]
fn a_pool_that_waits_for_work_is_idle() {
    let mut acting = two_threads();
    work(&mut acting, ONE, 3);
    acting.enter(PID, 2000, "pthread_join", &[ONE << 12]);
    acting.leave(PID, 9000, "pthread_join", 0);
    acting.stage.end(10);
    let model = acting.stage.model();
    let one = &model.sync.threads[1];
    assert_eq!((one.idle_ns, one.held_ns, one.others_ns), (2_070_000, 0, 0));
    let main = &model.sync.threads[0];
    assert_eq!((main.idle_ns, main.others_ns), (0, 7_000_000));
    let waits = model
        .sync
        .uses
        .iter()
        .find(|u| u.waiting == Waiting::Idle)
        .unwrap();
    assert_eq!(model.sync.object(waits.object).kind, Kind::Cond);
    assert_eq!(
        object(&model.sync, A).waits.count,
        0,
        "the mutex is free meanwhile"
    );
    // A result that is waited for within a piece of work is not.
    let mut acting = two_threads();
    work(&mut acting, ONE, 3);
    acting.on(
        ONE,
        &[
            "orders!result@orders.c:70",
            "orders!one@orders.c:25",
            END[0],
            END[1],
        ],
    );
    acting.lock(ONE, 6000, B);
    acting.enter(ONE, 6010, "pthread_cond_wait", &[0xd100, B]);
    acting.leave(ONE, 6510, "pthread_cond_wait", 0);
    acting.enter(ONE, 7010, "pthread_cond_wait", &[0xd100, B]);
    acting.leave(ONE, 7510, "pthread_cond_wait", 0);
    acting.unlock(ONE, 7600, B).stage.end(10);
    let one = &acting.stage.model().sync.threads[1];
    assert_eq!((one.idle_ns, one.others_ns), (2_070_000, 1_000_000));
}

#[test]
fn waits_seen_in_the_kernel_alone() {
    let mut acting = two_threads();
    let stage = &mut acting.stage;
    stage.instrument(90, "libc.so.6!__lll_lock_wait", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    stage.instrument(92, "libc.so.6!__futex_wait", ProbeKind::FutexWait);
    stage.instrument_end(93, ProbeKind::FutexReturn, &[92]);
    stage.data.insert(COND + 0x28, "changed");
    let path = [
        "libc.so.6!__lll_lock_wait",
        "libc.so.6!pthread_mutex_lock",
        "orders!one@orders.c:22",
        END[0],
    ];
    // glibc's mutex says whose it is: 4 bytes at 8.
    stage.enter(ONE, 2_000_000, 90, 0x7000, &[A, 0x80, 2], &path);
    if let Some(Record::Event(event)) = stage.records.last_mut() {
        let mut bytes = vec![2, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend((TWO as u32).to_le_bytes());
        event.reads.push(Read {
            role: ReadRole::Object.into(),
            address: A,
            bytes,
        });
    }
    stage.leave(ONE, 5_000_000, 91, 0x7000, 0);
    let path = [
        "libc.so.6!__futex_wait",
        "libc.so.6!pthread_cond_wait",
        "orders!one@orders.c:30",
        END[0],
    ];
    for (at, word) in [0x28, 0x2c, 0x28].into_iter().enumerate() {
        let ns = 6_000_000 + 1_000_000 * at as u64;
        stage.enter(ONE, ns, 92, 0x7000, &[COND + word, 0x189, 0], &path);
        stage.leave(ONE, ns + 500_000, 93, 0x7000, 0);
    }
    stage.end(10);
    let model = stage.model();
    let sync = &model.sync;
    let [lock, cond] = &sync.objects[..] else {
        panic!("{:?}", sync.objects)
    };
    assert_eq!(
        (lock.kind, lock.waits.total_ns, lock.taken),
        (Kind::Mutex, 3_000_000, 0)
    );
    let holder = model.thread(lock.contention[0].longest.1).unwrap();
    assert_eq!((holder.tid, lock.contention[0].holder), (Some(TWO), None));
    assert_eq!(
        (cond.kind, cond.waits.count),
        (Kind::Cond, 3),
        "both words are one condition"
    );
    assert_eq!(sync.name(cond).as_deref(), Some("changed"));
    let place = super::caller(sync.path(sync.used(cond.uses[0]))).unwrap();
    assert_eq!(place.place.function.as_deref(), Some("one"));
    let one = &sync.threads[1];
    assert_eq!((one.held_ns, one.idle_ns), (3_000_000, 1_500_000));
}

/// The kernel's result says that a wait reached its limit. A thread can end the call even then.
#[test]
fn waits_until_a_time_limit() {
    const ETIMEDOUT: u64 = -110_i64 as u64;
    let mut acting = two_threads();
    acting
        .stage
        .instrument(90, "libc.so.6!__futex_wait", ProbeKind::FutexWait);
    acting
        .stage
        .instrument_end(91, ProbeKind::FutexReturn, &[90]);
    let wait = "libc.so.6!pthread_cond_wait";
    let path = ["libc.so.6!__futex_wait", wait, "orders!one@orders.c:21"];
    for (ms, kernel, result) in [(2, ETIMEDOUT, 110), (3, ETIMEDOUT, 0), (4, 0, 0)] {
        acting.enter(ONE, ms * 1000, "pthread_cond_wait", &[COND, B]);
        let word = &[COND + 0x28, 0x189, 0];
        let from_ns = ms * 1_000_000 + 100_000;
        acting.stage.enter(ONE, from_ns, 90, 0x7000, word, &path);
        acting
            .stage
            .leave(ONE, from_ns + 300_000, 91, 0x7000, kernel);
        acting.leave(ONE, ms * 1000 + 500, "pthread_cond_wait", result);
    }
    acting.stage.end(10);
    let sync = acting.stage.model().sync;
    let cond = object(&sync, COND);
    let limit = TimedOut {
        count: 1,
        total_ns: 500_000,
    };
    let used = sync.used(cond.uses[0]);
    assert_eq!((used.waits.count, used.timed_out), (3, limit));
}

/// A release has two steps: the word changes, then waiters are woken. A waiter interrupted in
/// between finds the word changed.
#[test]
fn the_next_waker_has_changed_the_word() {
    const EAGAIN: u64 = -11_i64 as u64;
    for others_wait in [false, true] {
        let mut acting = two_threads();
        let stage = &mut acting.stage;
        stage.instrument(90, "orders!__timedwait", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        stage.instrument(92, "orders!pthread_rwlock_unlock", ProbeKind::FutexWake);
        let waiting = [
            "orders!__timedwait",
            "orders!pthread_rwlock_rdlock",
            "orders!one@orders.c:22",
            END[0],
        ];
        let waking = ["orders!pthread_rwlock_unlock", "orders!two@orders.c:44"];
        stage.enter(ONE, 2_000_000, 90, 0x7000, &[A, 0x80, 2], &waiting);
        stage.leave(ONE, 5_000_000, 91, 0x7000, EAGAIN);
        if others_wait {
            stage.enter(PID, 5_100_000, 90, 0x9000, &[A, 0x80, 2], &waiting);
        }
        stage.enter(TWO, 5_500_000, 92, 0x8000, &[A, 0x81, 1], &waking);
        stage.end(10);
        let model = stage.model();
        let lock = object(&model.sync, A);
        let seen = lock.contention.first().map(|pair| {
            let path = &model.sync.paths[pair.ended.unwrap().0];
            let (waiter, ender) = pair.longest;
            let tid = |thread| model.thread(thread).unwrap().tid.unwrap();
            let place = super::caller(path).unwrap().place.clone();
            (tid(waiter), tid(ender), place.line, pair.total_ns)
        });
        let expected = (ONE, TWO, Some(44), 3_000_000);
        assert_eq!(seen, (!others_wait).then_some(expected));
    }
}

#[test]
fn locks_that_one_function_makes_for_others_are_told_apart() {
    let mut acting = two_threads();
    let made = [
        (0xe000, "locks!new_lock@locks.c:5", "orders!one@orders.c:21"),
        (0xe100, "locks!new_lock@locks.c:5", "orders!one@orders.c:25"),
        (0xe200, "locks!new_lock@locks.c:5", "orders!one@orders.c:25"),
        (
            0xe300,
            "locks!new_table@locks.c:9",
            "orders!one@orders.c:25",
        ),
    ];
    for (at, maker, caller) in made {
        acting.on(ONE, &[maker, caller, END[0], END[1]]);
        acting.call(ONE, 2000 + at, "pthread_mutex_init", &[at]);
    }
    acting.stage.end(100);
    let model = acting.stage.model();
    let names = made.map(|(at, ..)| {
        let name = model.sync.name(object(&model.sync, at));
        name.unwrap_or_default().to_string()
    });
    assert_eq!(
        names,
        [
            "made in new_lock (locks.c:5) from one (orders.c:21)",
            "made in new_lock (locks.c:5) from one (orders.c:25)",
            "made in new_lock (locks.c:5) from one (orders.c:25)",
            "made in new_table (locks.c:9)",
        ]
    );
    let numbers = made.map(|(at, ..)| object(&model.sync, at).number);
    assert_eq!(numbers, [None, Some(1), Some(2), None]);
}

/// A function called by a primitive may wait for an object of its own. This is not a wait for the
/// primitive's object.
#[test]
fn a_wait_in_a_callee_of_a_primitive_is_not_the_primitives() {
    let kind = |path: &[&'static str]| {
        let mut acting = two_threads();
        let stage = &mut acting.stage;
        stage.instrument(90, "libc.so.6!syscall", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        stage.enter(ONE, 2_000_000, 90, 0x7000, &[A, 0x80, 2], path);
        stage.leave(ONE, 5_000_000, 91, 0x7000, 0);
        stage.end(10);
        let model = stage.model();
        model.sync.objects[0].kind
    };
    let (once, outer) = ("libc.so.6!pthread_once", "orders!one@orders.c:22");
    let inner = "orders!initialize@orders.c:5";
    let of_library = ["libc.so.6!syscall", once, outer, END[0]];
    assert_eq!(kind(&of_library), Kind::Once);
    let of_program = ["libc.so.6!syscall", inner, once, outer, END[0]];
    assert_eq!(kind(&of_program), Kind::Futex);
    let no_names = ["libc.so.6!syscall", "orders!?", once, outer, END[0]];
    assert_eq!(kind(&no_names), Kind::Futex);
    let in_one_file = ["orders!futex_wait", inner, "orders!pthread_once", END[0]];
    assert_eq!(kind(&in_one_file), Kind::Futex);
}

#[test]
fn the_level_of_concurrency() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 1000, A)
        .enter(TWO, 5000, "pthread_mutex_lock", &[A]);
    acting
        .unlock(ONE, 10_000, A)
        .leave(TWO, 10_000, "pthread_mutex_lock", 0);
    acting.stage.end(20);
    let model = acting.stage.model();
    let level = &model.sync.concurrency;
    let at = |ms: u64| {
        let slice = level
            .slices
            .iter()
            .find(|s| s.to_ns > ms * 1_000_000)
            .unwrap();
        (
            slice.running.round() as u64,
            slice.held.round() as u64,
            slice.limit.is_some(),
        )
    };
    assert_eq!(at(3), (3, 0, false));
    assert_eq!(at(7), (2, 1, true));
    assert_eq!(at(15), (3, 0, false));
    assert_eq!(level.limits.len(), 1);
}

#[test]
fn a_clock_that_jumps_and_a_cut_are_survived() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 5000, A)
        .enter(TWO, 4000, "pthread_mutex_lock", &[A]);
    acting
        .unlock(ONE, 3000, A)
        .leave(TWO, 9_000_000, "pthread_mutex_lock", 0);
    acting
        .unlock(TWO, 10, A)
        .leave(TWO, 11, "pthread_mutex_lock", 0);
    let mut records = acting.stage.records.clone();
    while !records.is_empty() {
        let capture = unspool_capture::Capture::from_records(records.clone());
        let model = acting.stage.model_of(&capture);
        assert!(
            model.findings.iter().all(|f| !f.proved),
            "{:?}",
            model.findings
        );
        records.pop();
    }
}

#[test]
fn a_wait_at_a_condition_that_calls_unlock_and_lock_itself_is_one_wait() {
    // musl: pthread_cond_timedwait calls what everybody calls.
    let mut acting = two_threads();
    acting.stage.family = Some(Family::Musl);
    acting.lock(ONE, 2000, A);
    acting.enter(ONE, 2010, "pthread_cond_wait", &[COND, A]);
    let inner = (ONE << 16) - 0x100;
    let stack = ["libc.so.6!pthread_mutex_lock"];
    for (us, probe) in [(2020, 102), (2600, 100)] {
        let stage = &mut acting.stage;
        stage.enter(ONE, us * 1000, probe, inner, &[A], &stack);
        stage.leave(ONE, (us + 50) * 1000, probe + 1, inner, 0);
    }
    acting.leave(ONE, 2700, "pthread_cond_wait", 0);
    acting.unlock(ONE, 2800, A).stage.end(10);
    let model = acting.stage.model();
    assert_eq!(model.findings, []);
    let mutex = object(&model.sync, A);
    assert_eq!((mutex.taken, mutex.waits.count), (1, 0));
    assert_eq!(mutex.holds.count, 2, "before the wait and after it");
    assert_eq!(object(&model.sync, COND).waits.count, 1);
}

/// A thread that ends with the program in a call waited until then, unless the call's end may be
/// missing.
#[test]
fn a_wait_that_may_have_ended_unseen_has_no_length() {
    let lock_end = 101;
    for (paused, waits) in [(false, 1), (true, 0)] {
        let mut acting = two_threads();
        acting.lock(ONE, 2000, A);
        acting.enter(TWO, 2100, "pthread_mutex_lock", &[A]);
        for kind in [GapKind::Paused, GapKind::Resumed] {
            if paused {
                acting.stage.add(Gap {
                    probe: lock_end,
                    kind: kind.into(),
                    time_ns: 3_000_000,
                });
            }
        }
        acting.stage.exit(TWO, 90);
        acting.stage.end(91);
        let model = acting.stage.model();
        let sync = &model.sync;
        assert_eq!(object(sync, A).waits.count, waits, "{paused}");
        assert_eq!(sync.threads[2].held_ns > 0, waits > 0, "{paused}");
        let drawn = sync.slots.threads[2].iter().any(|slot| slot.used.is_some());
        assert_eq!(drawn, waits > 0, "{paused}");
    }
}

/// A second thread waits for the same lock later. Whether the first one still waited then is
/// unknown if the end of its wait may be missing.
#[test]
fn a_wait_that_may_be_over_does_not_count_in_the_queue() {
    let lock_end = 101;
    for (paused, longest, behind) in [(false, 2, 1), (true, 1, 0)] {
        let mut acting = two_threads();
        acting.lock(ONE, 2000, A);
        acting.enter(TWO, 2100, "pthread_mutex_lock", &[A]);
        for kind in [GapKind::Paused, GapKind::Resumed] {
            if paused {
                acting.stage.add(Gap {
                    probe: lock_end,
                    kind: kind.into(),
                    time_ns: 3_000_000,
                });
            }
        }
        acting
            .enter(PID, 4000, "pthread_mutex_lock", &[A])
            .unlock(ONE, 5000, A)
            .leave(TWO, 5100, "pthread_mutex_lock", 0)
            .unlock(TWO, 5200, A)
            .leave(PID, 5300, "pthread_mutex_lock", 0)
            .stage
            .end(10);
        let model = acting.stage.model();
        let lock = object(&model.sync, A);
        let seen = (lock.longest_queue, lock.queued, lock.waits.count);
        assert_eq!(seen, (longest, behind, 2), "{paused}");
    }
}

/// Two identities lock on one path, and one of them waits.
#[test]
fn a_use_counts_calls_by_thread_identity() {
    let mut acting = two_threads();
    acting.on(TWO, &["orders!one@orders.c:21", END[0], END[1]]);
    acting
        .lock(ONE, 1000, A)
        .enter(TWO, 5000, "pthread_mutex_lock", &[A])
        .unlock(ONE, 10_000, A)
        .leave(TWO, 10_000, "pthread_mutex_lock", 0);
    acting.stage.end(20);
    let model = acting.stage.model();
    let mut uses = object(&model.sync, A).uses.iter();
    let lock = uses.find_map(|used| Some(model.sync.used(*used)).filter(|used| used.calls == 2));
    let shares = lock.unwrap().shares.iter();
    let shares: Vec<(u64, u64)> = shares.map(|share| (share.calls, share.waited_ns)).collect();
    assert_eq!(shares, [(1, 0), (1, 5_000_000)]);
}
