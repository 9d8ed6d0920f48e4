//! Tests of waits that only system calls show: holders, and threads that can never continue.

use unspool_capture::{Blocked, BlockingCall, ProcessEnded, ScheduleKind};

use super::findings::of_kind;
use super::*;

use crate::model::fixture::{schedule_begins, scheduled};
use crate::model::{FindingKind, HangReason};

/// The kernel gives a robust mutex up shortly before it reports the end of the owner.
#[test]
fn a_hold_ends_with_its_thread() {
    for exit_ms in [80, 90] {
        let mut acting = two_threads();
        acting
            .lock(ONE, 2000, A)
            .enter(TWO, 2100, "pthread_mutex_lock", &[A]);
        acting.stage.exit(ONE, exit_ms);
        // EOWNERDEAD
        acting
            .leave(TWO, 80_100, "pthread_mutex_lock", 130)
            .unlock(TWO, 80_200, A);
        acting.stage.end(100);
        let model = acting.stage.model();
        let mutex = object(&model.sync, A);
        assert!(!mutex.doubtful);
        let held_ns = if exit_ms == 80 {
            77_999_000
        } else {
            78_099_000
        };
        assert_eq!((mutex.taken, mutex.holds.max_ns), (2, held_ns));
        let hold = mutex.longest_hold.as_ref().unwrap();
        assert_eq!((hold.waiting.len(), hold.waited_ns), (1, 78_000_000));
        let found = kinds(&model);
        assert!(found.contains(&("long-hold", true)), "{found:?}");
    }
}

/// A recording of a lock's waits and wakes alone. `two` holds the lock for 900 ms while two other
/// threads wait. These then hold it briefly, one after the other. Later the probe of the waits is
/// paused, and `missed` calls are missing.
fn contended_lock(missed: u64) -> Model {
    contended(two_threads(), missed)
}

fn contended(mut acting: Acting, missed: u64) -> Model {
    let stage = &mut acting.stage;
    stage.instrument(90, "libc.so.6!__lll_lock_wait", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    stage.instrument(92, "libc.so.6!__lll_lock_wake", ProbeKind::FutexWake);
    let waits = [
        "libc.so.6!__lll_lock_wait",
        "libc.so.6!pthread_mutex_lock",
        "orders!one@orders.c:22",
        END[0],
    ];
    let wakes = [
        "libc.so.6!__lll_lock_wake",
        "libc.so.6!pthread_mutex_unlock",
        "orders!two@orders.c:41",
        END[0],
    ];
    let ms = 1_000_000;
    for (tid, at) in [(ONE, 10), (PID, 20)] {
        stage.enter(tid, at * ms, 90, tid << 16, &[A, 0x80, 2], &waits);
    }
    for (waker, woken, at) in [
        (TWO, Some(ONE), 910),
        (ONE, Some(PID), 911),
        (PID, None, 912),
    ] {
        stage.enter(waker, at * ms, 92, waker << 20, &[A, 0x81, 1], &wakes);
        if let Some(woken) = woken {
            stage.leave(woken, at * ms + 1000, 91, woken << 16, 0);
        }
    }
    if missed > 0 {
        for (kind, time_ns) in [
            (unspool_capture::GapKind::Paused, 920 * ms),
            (unspool_capture::GapKind::Resumed, 930 * ms),
        ] {
            stage.add(unspool_capture::Gap {
                probe: 90,
                kind: kind.into(),
                time_ns,
            });
        }
        stage.add(unspool_capture::Missed {
            probe: 90,
            pauses: 1,
            paused_ns: 10 * ms,
            hits: missed,
            time_ns: 930 * ms,
        });
    }
    stage.end(1000);
    stage.model()
}

/// Only the wait is recorded: the kernel wakes the waiter when the owner of a robust mutex ends.
#[test]
fn an_owner_that_ends_held_its_mutex_to_its_end() {
    for (exit_ms, holds) in [(800, 0), (900, 1), (905, 1), (950, 0)] {
        let mut acting = two_threads();
        let stage = &mut acting.stage;
        stage.instrument(90, "libc.so.6!__futex_wait", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        let waits = [
            "libc.so.6!__futex_wait",
            "libc.so.6!pthread_mutex_lock",
            "orders!one@orders.c:22",
            END[0],
        ];
        let ms = 1_000_000;
        stage.enter(ONE, 850 * ms, 90, 0x7000, &[A, 0, 0x8000_000c], &waits);
        let mut memory = vec![0; 12];
        memory[8] = TWO as u8;
        stage.read_object(A, &memory);
        stage.leave(ONE, 901 * ms, 91, 0x7000, 0);
        stage.exit(TWO, exit_ms);
        stage.end(1000);
        let model = stage.model();
        let found = of_kind(&model, FindingKind::LongHold);
        assert_eq!(found.len(), holds, "{exit_ms}: {:?}", kinds(&model));
        for hold in found {
            let text = text(&model, hold);
            let words = "two (TID 12) held mutex lock_a for 5";
            assert!(text.starts_with(words), "{text}");
            assert!(text.contains(" ms or longer, until it ended."), "{text}");
            assert!(text.contains("one (TID 11)"), "{text}");
        }
    }
}

/// The holder falls asleep, and is looked at, before the first waiter shows that it has the lock.
#[test]
fn a_holder_that_was_asleep_before_others_waited() {
    let mut acting = two_threads();
    acting.stage.add(schedule_begins());
    acting.stage.add(scheduled(&[
        (1_500, ScheduleKind::Runs, TWO, 0),
        (3_000, ScheduleKind::Blocks, TWO, 0),
        (905_000, ScheduleKind::Runs, TWO, 0),
    ]));
    acting.stage.add(Blocked {
        time_ns: 5_000_000,
        tid: TWO,
        number: Some(230),
        ..Blocked::default()
    });
    let model = contended(acting, 0);
    let found = text(&model, of_kind(&model, FindingKind::LongHold)[0]);
    let part = "Most of the time it was in clock_nanosleep().";
    assert!(found.contains(part), "{found}");
}

/// The schedule shows short calls, which no look at the threads has seen.
#[test]
fn a_holder_that_was_in_a_system_call_while_others_waited() {
    let mut acting = two_threads();
    acting.stage.add(schedule_begins());
    let mut part = scheduled(&[
        (1_500, ScheduleKind::Runs, TWO, 0),
        (3_000, ScheduleKind::Blocks, TWO, 1),
        (905_000, ScheduleKind::Runs, TWO, 0),
    ]);
    part.calls = vec![BlockingCall {
        id: 1,
        number: Some(0),
        file: "pipe:[7]".to_owned(),
        ..BlockingCall::default()
    }];
    acting.stage.add(part);
    let model = contended(acting, 0);
    let found = text(&model, of_kind(&model, FindingKind::Contention)[0]);
    assert!(found.contains("For 895 ms of that, "), "{found}");
    assert!(found.contains(" was in read() of pipe:[7]."), "{found}");
    let found = text(&model, of_kind(&model, FindingKind::LongHold)[0]);
    let part = "Most of the time it was in read() of pipe:[7].";
    assert!(found.contains(part), "{found}");
}

#[test]
fn a_sample_of_the_waits_proves_no_contention() {
    for (missed, proved) in [(0, true), (1, false), (1000, false)] {
        let model = contended_lock(missed);
        let [contention] = of_kind(&model, FindingKind::Contention)[..] else {
            panic!("{:?}", kinds(&model))
        };
        assert_eq!(contention.proved, proved, "{missed}: {contention:?}");
    }
}

#[test]
fn the_longest_holder_of_a_contended_lock_is_reported() {
    let model = contended_lock(0);
    let [hold] = of_kind(&model, FindingKind::LongHold)[..] else {
        panic!("{:?}", kinds(&model))
    };
    assert!(hold.proved, "{}", text(&model, hold));
    for words in [
        "two (TID 12) held mutex lock_a for 900 ms or longer, released in two (orders.c:41).",
        "Meanwhile 2 threads waited for it. The longest wait, of 900 ms, was that of one (TID 11) in one \
         (orders.c:22).",
        "The waits of these threads add up to 1.79 s.",
    ] {
        assert!(
            text(&model, hold).contains(words),
            "{words}: {}",
            text(&model, hold)
        );
    }
    let two = hold.threads[0];
    let [contention] = of_kind(&model, FindingKind::Contention)[..] else {
        panic!("{:?}", kinds(&model))
    };
    assert_eq!(contention.threads[1], two, "{}", text(&model, contention));
    for words in [
        "at most 900 ms at a time",
        "all waits of all threads add up to 1.79 s",
    ] {
        assert!(
            text(&model, contention).contains(words),
            "{words}: {}",
            text(&model, contention)
        );
    }
    let contention = &object(&model.sync, A).contention;
    assert!(
        contention.iter().all(|pair| pair.longest.1 == two),
        "{contention:?}"
    );
}

/// The function of a once control waits for a semaphore, which is not a wait for the control.
#[test]
fn a_wait_in_a_once_function_is_its_own() {
    const ONCE: u64 = 0x6100;
    const SEMAPHORE: u64 = 0x6200;
    let mut acting = two_threads();
    let stage = &mut acting.stage;
    stage.instrument(80, "libc.so.6!pthread_once", ProbeKind::Enter);
    stage.instrument_end(81, ProbeKind::Leave, &[80]);
    stage.instrument(90, "libc.so.6!__futex_wait", ProbeKind::FutexWait);
    stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
    let once = ["libc.so.6!pthread_once", "orders!one@orders.c:22", END[0]];
    let inner = [
        "libc.so.6!__futex_wait",
        "libc.so.6!sem_wait",
        "orders!load@orders.c:60",
        "libc.so.6!pthread_once",
        "orders!one@orders.c:22",
        END[0],
    ];
    let outer = [&inner[..1], &once[..]].concat();
    stage.enter(ONE, 2_000_000, 80, 0x7100, &[ONCE], &once);
    stage.enter(ONE, 2_001_000, 90, 0x7000, &[SEMAPHORE, 0x80, 0], &inner);
    // Another one comes meanwhile, and waits for the control.
    stage.enter(TWO, 2_100_000, 80, 0x8100, &[ONCE], &once);
    stage.enter(TWO, 2_101_000, 90, 0x8000, &[ONCE, 0x80, 1], &outer);
    stage.leave(ONE, 5_000_000, 91, 0x7000, 0);
    stage.leave(ONE, 5_001_000, 81, 0x7100, 0);
    stage.leave(TWO, 5_002_000, 91, 0x8000, 0);
    stage.leave(TWO, 5_003_000, 81, 0x8100, 0);
    stage.end(10);
    let model = stage.model();
    let of = |address: u64| &object(&model.sync, address).waits;
    assert_eq!(of(SEMAPHORE).total_ns, 2_999_000);
    assert_eq!((of(ONCE).count, of(ONCE).total_ns), (1, 2_903_000));
}

/// Rust's locks store no holder. Two threads wait for each other's lock, while `main` runs.
#[test]
fn locks_that_only_stuck_threads_use() {
    let stuck = |main_uses_one: bool| {
        let mut acting = two_threads();
        let stage = &mut acting.stage;
        let lock = "orders!std::sys::sync::mutex::futex::Mutex::lock_contended";
        stage.instrument(90, lock, ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        if main_uses_one {
            let path = [lock, "orders!main@orders.c:9", END[1]];
            stage.enter(PID, 2_000_000, 90, PID << 16, &[A, 0x80, 2], &path);
            stage.leave(PID, 3_000_000, 91, PID << 16, 0);
        }
        for (tid, word, function) in [
            (ONE, B, "orders!one@orders.c:22"),
            (TWO, A, "orders!two@orders.c:41"),
        ] {
            let path = [lock, function, END[0]];
            stage.enter(tid, 10_000_000, 90, tid << 16, &[word, 0x80, 2], &path);
        }
        // Interrupted: by itself it would not have ended.
        stage.add(ProcessEnded {
            time_ns: 900_000_000,
            exit_code: None,
            signal: Some(2),
        });
        stage.model()
    };
    let model = stuck(false);
    assert_eq!(kinds(&model), [("deadlock", false)]);
    let hang = model.findings[0].hang();
    assert_eq!(hang.reason, HangReason::OnlyUsers);
    let names = hang.waits.iter().map(|w| w.awaited.object.to_string());
    let names: Vec<String> = names.collect();
    assert_eq!(names, ["mutex lock_b", "mutex lock_a"]);
    // The main thread may hold the lock that both wait for.
    assert_eq!(
        of_kind(&stuck(true), FindingKind::Deadlock),
        Vec::<&Finding>::new()
    );
}

/// The threads of a pool wait for futures in the tasks they run, while `main` goes on.
#[test]
fn a_pool_whose_tasks_wait_for_its_tasks() {
    let pool = |second_waits: bool| {
        let mut acting = Acting::new();
        let main = ["orders!main@orders.c:9"];
        acting.on(PID, &main);
        for tid in [ONE, TWO] {
            acting
                .stage
                .spawn(PID, tid, 1, "orders!run@orders.c:20", &main);
        }
        let stage = &mut acting.stage;
        let wait = "libstdc++.so.6!std::__atomic_futex_unsigned_base::_M_futex_wait_until";
        stage.instrument(90, wait, ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        let path = [
            wait,
            "orders!task@orders.c:30",
            "orders!std::__future_base::_Task_state<int ()>::_M_run",
            "orders!run@orders.c:21",
            END[0],
        ];
        let threads: &[u64] = if second_waits { &[ONE, TWO] } else { &[ONE] };
        for tid in threads {
            stage.enter(
                *tid,
                10_000_000,
                90,
                tid << 16,
                &[tid << 8, 0, 1 << 31],
                &path,
            );
        }
        stage.end(900);
        stage.model()
    };
    let model = pool(true);
    assert_eq!(kinds(&model), [("lost-wakeup", false)]);
    let hang = model.findings[0].hang();
    let function = "run".into();
    assert_eq!(hang.reason, HangReason::Pool { function });
    assert_eq!(hang.waits.len(), 2);
    assert_eq!(kinds(&pool(false)), []);
}

/// Another thread takes the mutex of a wait at a condition before the woken thread can.
#[test]
fn a_waiter_that_takes_the_mutex_again_waits_for_its_holder() {
    for result in [0, 110] {
        let mut acting = two_threads();
        let stage = &mut acting.stage;
        stage.instrument(90, "libc.so.6!__futex_wait", ProbeKind::FutexWait);
        stage.instrument_end(91, ProbeKind::FutexReturn, &[90]);
        acting.lock(ONE, 2000, A);
        acting.enter(ONE, 2010, "pthread_cond_wait", &[COND, A]);
        let wait = "libc.so.6!pthread_cond_wait";
        let path = ["libc.so.6!__futex_wait", wait, "orders!one@orders.c:21"];
        let sleep = |acting: &mut Acting, word: u64, from_us: u64, to_us: u64| {
            let (stage, args) = (&mut acting.stage, [word, 0x80, 2]);
            stage.enter(ONE, from_us * 1000, 90, 0x7000, &args, &path);
            stage.leave(ONE, to_us * 1000, 91, 0x7000, 0);
        };
        acting.lock(TWO, 2100, A);
        sleep(&mut acting, COND + 0x28, 2020, 3000);
        sleep(&mut acting, A, 3000, 7990);
        acting.unlock(TWO, 7980, A);
        acting.leave(ONE, 8000, "pthread_cond_wait", result);
        acting.unlock(ONE, 9000, A).stage.end(10);
        let sync = acting.stage.model().sync;
        let (cond, mutex) = (object(&sync, COND), object(&sync, A));
        assert_eq!((cond.waits.count, cond.waits.total_ns), (1, 990_000));
        assert_eq!((mutex.waits.count, mutex.waits.total_ns), (1, 5_000_000));
        assert_eq!((mutex.taken, mutex.holds.count), (2, 3));
        let [contention] = &mutex.contention[..] else {
            panic!("{:?}", mutex.contention)
        };
        assert_eq!(contention.total_ns, 5_000_000);
        assert_eq!(sync.used(contention.holder.unwrap()).thread.0, 2);
        let waiter = sync.used(contention.waiter);
        assert_eq!(waiter.timed_out.count, 0);
        assert_eq!(
            sync.path(waiter).frames[0].place.function.as_deref(),
            Some("pthread_cond_wait")
        );
    }
}
