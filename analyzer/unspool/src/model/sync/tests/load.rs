//! Tests of long holds, contention and convoys, and of the recorder's own delays in them.

use unspool_capture::{BlockingCall, Schedule, ScheduleEntry, ScheduleKind, Stood};

use super::*;
use crate::model::fixture::{schedule_begins, scheduled};

/// One thread holds a lock for 50 ms, and another waits for it.
fn held_long() -> Acting {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .enter(TWO, 2100, "pthread_mutex_lock", &[A])
        .unlock(ONE, 52_000, A)
        .leave(TWO, 52_010, "pthread_mutex_lock", 0)
        .unlock(TWO, 52_020, A);
    acting
}

/// Four threads with the ids 11 to 14, of one function.
fn four_threads() -> Acting {
    let mut acting = Acting::new();
    let main = ["orders!main@orders.c:9"];
    for tid in 11..15 {
        acting
            .stage
            .spawn(PID, tid, 0, "orders!one@orders.c:20", &main);
        acting.on(tid, &["orders!one@orders.c:21", END[0], END[1]]);
    }
    acting
}

fn long_hold() -> Model {
    let mut acting = held_long();
    acting.stage.end(100);
    acting.stage.model()
}

/// A writer waits for two readers. The one that it met first leaves 60 ms before the other.
#[test]
fn a_writer_waits_for_the_last_reader() {
    let mut acting = two_threads();
    acting
        .call(ONE, 2000, "pthread_rwlock_rdlock", &[A])
        .call(TWO, 2100, "pthread_rwlock_rdlock", &[A])
        .enter(PID, 3000, "pthread_rwlock_wrlock", &[A])
        .call(ONE, 30_000, "pthread_rwlock_unlock", &[A])
        .call(TWO, 90_000, "pthread_rwlock_unlock", &[A])
        .leave(PID, 90_010, "pthread_rwlock_wrlock", 0)
        .call(PID, 90_020, "pthread_rwlock_unlock", &[A]);
    acting.stage.end(100);
    let model = acting.stage.model();
    let [hold, contention] = ["long-hold", "contention"].map(|kind| {
        let found = model.findings.iter();
        let mut found = found.filter(|finding| finding.kind.as_str() == kind);
        text(&model, found.next().unwrap())
    });
    assert!(hold.starts_with("two (TID 12) held"), "{hold}");
    let part = "lock_a in main (orders.c:9): two (TID 12) held it, taken in two (orders.c:";
    assert!(contention.contains(part), "{contention}");
}

#[test]
fn contention_long_holds_and_convoys() {
    let model = long_hold();
    assert!(
        text(&model, &model.findings[0]).contains("50.0 ms"),
        "{}",
        text(&model, &model.findings[0])
    );
    assert!(
        text(&model, &model.findings[1]).contains("one (TID 11)"),
        "{}",
        text(&model, &model.findings[1])
    );

    let mut acting = four_threads();
    acting.lock(11, 1000, A);
    // Each waits for the three others.
    let mut us = 1000;
    for tid in [12, 13, 14] {
        acting.enter(tid, us + 10 + tid, "pthread_mutex_lock", &[A]);
    }
    for round in 0..40 {
        let holder = 11 + round % 4;
        us += 1000;
        acting.unlock(holder, us, A);
        acting.leave(11 + (round + 1) % 4, us + 5, "pthread_mutex_lock", 0);
        acting.enter(holder, us + 20, "pthread_mutex_lock", &[A]);
    }
    acting.stage.end(50);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("convoy", true)]);
    assert!(
        text(&model, &model.findings[0]).contains("up to 3 at a time"),
        "{}",
        text(&model, &model.findings[0])
    );
}

/// Three threads wait for a fourth again and again, and hold the lock only briefly themselves.
#[test]
fn waits_for_one_thread_are_no_convoy() {
    let mut acting = four_threads();
    let mut us = 1000;
    for _ in 0..40 {
        acting.lock(11, us, A);
        for tid in 12..15 {
            acting.enter(tid, us + tid, "pthread_mutex_lock", &[A]);
        }
        us += 10_000;
        acting.unlock(11, us, A);
        for tid in 12..15 {
            acting.leave(tid, us + 2, "pthread_mutex_lock", 0);
            us += 4;
            acting.unlock(tid, us, A);
        }
    }
    acting.stage.end(500);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("contention", true)]);
    let text = text(&model, &model.findings[0]);
    assert!(text.contains("for one (TID 11)"), "{text}");
}

/// Many threads wait for one hold, and each waits once.
#[test]
fn waits_for_one_hold_are_no_convoy() {
    let mut acting = Acting::new();
    let main = ["orders!main@orders.c:9"];
    acting.on(PID, &["orders!main@orders.c:10"]);
    acting.lock(PID, 1000, A);
    let tids = 11..41;
    for tid in tids.clone() {
        acting
            .stage
            .spawn(PID, tid, 0, "orders!one@orders.c:20", &main);
        acting.on(tid, &["orders!one@orders.c:21", END[0], END[1]]);
        acting.enter(tid, 2000 + tid, "pthread_mutex_lock", &[A]);
    }
    let mut us = 40_000;
    acting.unlock(PID, us, A);
    for tid in tids {
        acting.leave(tid, us + 5, "pthread_mutex_lock", 0);
        us += 10;
        acting.unlock(tid, us, A);
    }
    acting.stage.end(50);
    let model = acting.stage.model();
    let kinds = kinds(&model);
    assert!(kinds.contains(&("contention", true)), "{kinds:?}");
    assert!(!kinds.contains(&("convoy", true)), "{kinds:?}");
}

/// A hold and a wait of 100 ms. The recorder may have stopped threads for a part of this time, and
/// the finding states this part.
#[test]
fn recorder_delays_are_not_the_programs() {
    let found_in = |end_ms: u64, stood_us: std::ops::Range<u64>| {
        let mut acting = two_threads();
        acting
            .lock(ONE, 2000, A)
            .enter(TWO, 2100, "pthread_mutex_lock", &[A])
            .unlock(ONE, 102_000, A)
            .leave(TWO, 102_010, "pthread_mutex_lock", 0);
        acting.stage.add(Stood {
            cause: 0,
            from_ns: stood_us.start * 1000,
            to_ns: stood_us.end * 1000,
        });
        acting.stage.end(end_ms);
        acting.stage.model()
    };
    let found = |stood_us| found_in(700, stood_us);
    let both = |proved| [("long-hold", proved), ("contention", proved)];
    assert_eq!(
        kinds(&found(110_000..160_000)),
        both(true),
        "at other times"
    );
    assert_eq!(kinds(&found(90_000..110_000)), both(true));
    let model = found(40_000..100_000);
    assert_eq!(kinds(&model), both(false));
    for finding in &model.findings {
        let text = text(&model, finding);
        assert!(text.contains("for up to 60.0 ms of that"), "{text}");
    }
    assert_eq!(model.sync.stood_ns, 60_000_000);
    let said = |note: &crate::model::Note| note.text.contains("by up to 60.0 ms in total");
    assert!(model.notes.iter().any(said), "{:?}", model.notes);
    assert_eq!(kinds(&found(3000..90_000)), []);
    // Another thread waits for a processor as well.
    let model = found_in(1900, 110_000..710_000);
    assert_eq!(kinds(&model), both(false));
    let text = text(&model, &model.findings[0]);
    assert!(text.contains("kept the processors busy"), "{text}");
}

/// Two threads take a semaphore in turn. The thread that took it posts it, or the main thread does.
fn semaphore(taker_posts: bool) -> Model {
    let mut acting = two_threads();
    acting.enter(ONE, 1900, "sem_wait", &[A]);
    acting.leave(ONE, 1910, "sem_wait", 0);
    let mut us = 2000;
    for _ in 0..10 {
        for (holder, next) in [(ONE, TWO), (TWO, ONE)] {
            acting.enter(next, us + 100, "sem_wait", &[A]);
            let poster = if taker_posts { holder } else { PID };
            acting.enter(poster, us + 30_000, "sem_post", &[A]);
            acting.leave(poster, us + 30_010, "sem_post", 0);
            acting.leave(next, us + 30_020, "sem_wait", 0);
            us += 30_100;
        }
    }
    acting.stage.end(620);
    acting.stage.model()
}

#[test]
fn a_semaphore_that_its_takers_post_is_a_lock() {
    let model = semaphore(true);
    let lock = object(&model.sync, A);
    assert!(lock.used_as_lock);
    assert_eq!(
        (lock.taken, lock.holds.count, lock.waits.count),
        (21, 20, 20)
    );
    assert_eq!(kinds(&model), [("long-hold", false), ("contention", false)]);
    let found = text(&model, &model.findings[0]);
    assert!(found.contains("held semaphore lock_a for 30."), "{found}");
    assert!(found.contains("treats it as a lock"), "{found}");
    let waiting = model.sync.uses.iter().filter(|used| used.waits.count > 0);
    assert!(waiting.clone().count() > 0);
    for used in waiting {
        assert_eq!(used.waiting, Waiting::Held);
    }
}

#[test]
fn a_semaphore_that_others_post_is_no_lock() {
    let model = semaphore(false);
    let semaphore = object(&model.sync, A);
    assert!(!semaphore.used_as_lock);
    assert_eq!((semaphore.taken, semaphore.holds.count), (0, 0));
    assert_eq!(semaphore.longest_hold, None);
    assert_eq!(kinds(&model), []);
}

/// Like [`held_long`], and the holder is preempted for a part of the hold, in milliseconds.
fn preempted_for(ms: u64) -> Model {
    let mut acting = held_long();
    let entries = [
        (1_500, ScheduleKind::Runs, ONE),
        (1_600, ScheduleKind::Runs, TWO),
        (2_200, ScheduleKind::Blocks, TWO),
        (3_000, ScheduleKind::Preempted, ONE),
        (3_000 + ms * 1000, ScheduleKind::Runs, ONE),
        (90_000, ScheduleKind::Blocks, ONE),
    ];
    schedule(&mut acting, &entries);
    acting.stage.end(100);
    acting.stage.model()
}

/// Adds the kernel's schedule: times in microseconds.
fn schedule(acting: &mut Acting, entries: &[(u64, ScheduleKind, u64)]) {
    let mut part = Schedule {
        time_ns: 1_000_000,
        ..Schedule::default()
    };
    let mut last_ns = 1_000_000;
    for (us, kind, tid) in entries {
        let entry = ScheduleEntry {
            time_ns: us * 1000,
            kind: *kind,
            tid: *tid,
            cpu: 0,
            detail: 0,
        };
        last_ns = part.push(last_ns, entry);
    }
    acting.stage.add(schedule_begins());
    acting.stage.add(part);
}

/// The main thread waits for two holds, one after the other. Both holders are preempted for 10 ms.
#[test]
fn a_wait_is_explained_by_all_holds_in_it() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .enter(PID, 2100, "pthread_mutex_lock", &[A])
        .enter(TWO, 2200, "pthread_mutex_lock", &[A])
        .unlock(ONE, 32_000, A)
        .leave(TWO, 32_010, "pthread_mutex_lock", 0)
        .unlock(TWO, 62_000, A)
        .leave(PID, 62_010, "pthread_mutex_lock", 0)
        .unlock(PID, 62_020, A);
    let entries = [
        (1_500, ScheduleKind::Runs, ONE),
        (1_600, ScheduleKind::Runs, TWO),
        (2_300, ScheduleKind::Blocks, TWO),
        (5_000, ScheduleKind::Preempted, ONE),
        (15_000, ScheduleKind::Runs, ONE),
        (32_005, ScheduleKind::Runs, TWO),
        (40_000, ScheduleKind::Preempted, TWO),
        (50_000, ScheduleKind::Runs, TWO),
        (90_000, ScheduleKind::Blocks, ONE),
    ];
    schedule(&mut acting, &entries);
    acting.stage.end(100);
    let model = acting.stage.model();
    let found = model.findings.iter().map(|finding| text(&model, finding));
    let found: Vec<String> = found.collect();
    let part = "In 30.0 ms of all these waits, the holder";
    assert!(found.iter().any(|text| text.contains(part)), "{found:#?}");
}

#[test]
fn a_holder_that_waits_for_a_processor_is_not_blamed_for_it() {
    let both = |proved| vec![("long-hold", proved), ("contention", proved)];
    assert_eq!(kinds(&preempted_for(1)), both(true));
    let model = preempted_for(15);
    assert_eq!(kinds(&model), both(true));
    let found = text(&model, &model.findings[0]);
    let part = ", of which it waited 15.0 ms for a processor.";
    assert!(found.contains(part), "{found}");
    let found = text(&model, &model.findings[1]);
    assert!(
        found.contains("In 15.0 ms of all these waits, the holder"),
        "{found}"
    );
    // Without the wait for a processor, 25 ms are not enough for contention.
    let model = preempted_for(26);
    assert_eq!(kinds(&model), [("long-hold", false)]);
    assert_eq!(kinds(&preempted_for(35)), []);
}

/// The main thread holds one mutex for each of two threads. These take their mutex and release it
/// at once, or hold it for `hold_us`. `meets`: the main thread wants the second one meanwhile.
fn parked(hold_us: u64, meets: bool) -> Model {
    let mut acting = Acting::new();
    acting.stage.data.insert(A, "sleeping");
    let main = ["orders!main@orders.c:9"];
    for tid in [ONE, TWO] {
        let created = ["orders!one@orders.c:20"];
        acting.stage.spawn(PID, tid, 0, created[0], &main);
        acting.on(tid, &["orders!one@orders.c:21", END[0], END[1]]);
    }
    acting.on(PID, &main);
    let mut us = 2000;
    for _ in 0..4 {
        for (tid, lock) in [(ONE, A), (TWO, B)] {
            acting.lock(PID, us, lock);
            acting.enter(tid, us + 10, "pthread_mutex_lock", &[lock]);
            us += 20;
        }
        us += 40_000;
        for (tid, lock) in [(ONE, A), (TWO, B)] {
            acting.unlock(PID, us, lock);
            acting.leave(tid, us + 10, "pthread_mutex_lock", 0);
            let meets = meets && lock == B;
            if meets {
                acting.enter(PID, us + 12, "pthread_mutex_lock", &[lock]);
            }
            acting.unlock(tid, us + 10 + hold_us, lock);
            if meets {
                acting.leave(PID, us + 14 + hold_us, "pthread_mutex_lock", 0);
                acting.unlock(PID, us + 16 + hold_us, lock);
            }
            us += 20 + hold_us;
        }
    }
    acting.stage.end(us / 1000 + 1);
    acting.stage.model()
}

#[test]
fn parked_helpers_give_one_finding() {
    // The owner may find that a helper still has the mutex.
    assert_eq!(kinds(&parked(5, true)), [("contention", false)]);
    let model = parked(5, false);
    assert_eq!(kinds(&model), [("contention", false)]);
    let [finding] = &model.findings[..] else {
        panic!("{:?}", model.findings)
    };
    assert_eq!((finding.threads.len(), finding.objects.len()), (3, 2));
    let found = text(&model, finding);
    assert!(
        found.contains("one mutex for each of 2 helper threads"),
        "{found}"
    );
    // Threads that use what the mutex protects are no helpers.
    let found = kinds(&parked(9000, false));
    assert!(found.contains(&("long-hold", true)), "{found:?}");
    assert!(found.contains(&("contention", true)), "{found:?}");
}

/// The main thread holds a mutex for which one thread waits `waits` times, each time while the main
/// thread is blocked in a system call.
fn parked_alone(call: u64, waits: u64) -> Model {
    let mut acting = Acting::new();
    let main = ["orders!main@orders.c:9"];
    let created = ["orders!one@orders.c:20"];
    acting.stage.spawn(PID, ONE, 0, created[0], &main);
    acting.on(ONE, &["orders!one@orders.c:21", END[0], END[1]]);
    acting.on(PID, &main);
    acting.stage.add(schedule_begins());
    let mut entries = vec![(1500, ScheduleKind::Runs, PID, 0)];
    for us in (0..waits).map(|wait| 2000 + wait * 50_000) {
        entries.push((us + 100, ScheduleKind::Blocks, PID, 1));
        entries.push((us + 40_000, ScheduleKind::Woken, PID, 0));
        entries.push((us + 40_010, ScheduleKind::Runs, PID, 0));
    }
    acting.stage.add(Schedule {
        calls: vec![BlockingCall {
            id: 1,
            number: Some(call),
            ..BlockingCall::default()
        }],
        ..scheduled(&entries)
    });
    for us in (0..waits).map(|wait| 2000 + wait * 50_000) {
        acting.lock(PID, us, A);
        acting.enter(ONE, us + 50, "pthread_mutex_lock", &[A]);
        acting.unlock(PID, us + 40_100, A);
        acting.leave(ONE, us + 40_110, "pthread_mutex_lock", 0);
        acting.unlock(ONE, us + 40_115, A);
    }
    acting.stage.end(10 + waits * 50);
    acting.stage.model()
}

#[test]
fn a_single_helper_is_parked_while_its_owner_is_idle() {
    const READ: u64 = 0;
    const EPOLL_WAIT: u64 = 232;
    let model = parked_alone(EPOLL_WAIT, 6);
    assert_eq!(kinds(&model), [("contention", false)]);
    let found = text(&model, &model.findings[0]);
    assert!(found.contains("while it waits for requests"), "{found}");
    // A thread may need what the owner reads, or wait only once.
    for (call, waits) in [(READ, 6), (EPOLL_WAIT, 1)] {
        let found = kinds(&parked_alone(call, waits));
        assert!(found.contains(&("contention", true)), "{found:?}");
        assert!(found.contains(&("long-hold", true)), "{found:?}");
    }
}

/// Two threads are in `sem_wait` at a time, and both find the semaphore free.
#[test]
fn calls_that_do_not_wait_are_no_queue() {
    for (us, longest, waits) in [(10, 0, 0), (500, 2, 2)] {
        let mut acting = two_threads();
        acting.enter(ONE, 1000, "sem_wait", &[A]);
        acting.enter(TWO, 1001, "sem_wait", &[A]);
        acting.leave(ONE, 1000 + us, "sem_wait", 0);
        acting.leave(TWO, 1001 + us, "sem_wait", 0);
        acting.stage.end(10);
        let model = acting.stage.model();
        let semaphore = object(&model.sync, A);
        let seen = (semaphore.longest_queue, semaphore.waits.count);
        assert_eq!(seen, (longest, waits), "{us}");
    }
}
