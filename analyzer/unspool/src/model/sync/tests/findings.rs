//! Tests of the findings, and of programs without any.

use unspool_capture::{
    BlockingCall, Dropped, Gap, GapKind, ProcessEnded, ScheduleKind, ThreadExited,
};

use super::*;
use crate::model::fixture::{schedule_begins, scheduled};
use crate::model::{Doubt, Facts, FindingKind, OrderRisk};

pub(super) fn of_kind(model: &Model, kind: FindingKind) -> Vec<&Finding> {
    model.findings.iter().filter(|f| f.kind == kind).collect()
}

/// The risk of the only finding about lock orders.
pub(super) fn order_risk(model: &Model) -> OrderRisk {
    let [finding] = of_kind(model, FindingKind::LockOrder)[..] else {
        panic!("{:?}", kinds(model))
    };
    let Facts::LockOrder { risk, .. } = finding.facts else {
        panic!("{finding:?}")
    };
    assert_eq!(finding.proved, risk == OrderRisk::Proved);
    risk
}

#[test]
fn a_circle_at_the_end_is_a_deadlock() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .lock(TWO, 2010, B)
        .enter(ONE, 3000, "pthread_mutex_lock", &[B])
        .enter(TWO, 3010, "pthread_mutex_lock", &[A]);
    // Main waits for one of them, and the program is killed: all threads end at once.
    acting.enter(PID, 3020, "pthread_join", &[ONE << 12]);
    for tid in [ONE, TWO, PID] {
        acting.stage.add(ThreadExited {
            tid,
            time_ns: 900_000_000,
            exact: true,
            code: None,
            ..Default::default()
        });
    }
    acting.stage.add(ProcessEnded {
        time_ns: 900_000_000,
        exit_code: None,
        signal: Some(2),
    });
    let model = acting.stage.model();
    let [deadlock] = of_kind(&model, FindingKind::Deadlock)[..] else {
        panic!("{:?}", kinds(&model))
    };
    assert!(deadlock.proved, "{deadlock:?}");
    assert_eq!(deadlock.threads.len(), 2);
    assert_eq!(deadlock.evidence.len(), 4);
    let waits = &deadlock.hang().waits;
    let names: Vec<String> = waits.iter().map(|w| w.awaited.object.to_string()).collect();
    assert_eq!(names, ["mutex lock_b", "mutex lock_a"]);
    for wait in waits {
        assert_eq!(wait.holds.len(), 1, "{wait:?}");
        let taken = &model.sync.paths[wait.taken.unwrap().0];
        let mut lines = taken.frames.iter().filter_map(|frame| frame.place.line);
        assert!(
            lines.next().is_some_and(|line| [21, 41].contains(&line)),
            "{taken:?}"
        );
    }
    // The same circumstances are an inversion, too.
    assert_eq!(of_kind(&model, FindingKind::LockOrder).len(), 1);
    assert_eq!(of_kind(&model, FindingKind::LostWakeup).len(), 0);
}

/// The calls in order of time: each thread takes one lock and waits for the other's.
fn embrace(gap: impl Fn(&mut Acting, u64)) -> Model {
    let mut acting = two_threads();
    gap(&mut acting, 1900);
    acting.lock(ONE, 2000, A).lock(TWO, 2010, B);
    gap(&mut acting, 2500);
    acting.enter(ONE, 3000, "pthread_mutex_lock", &[B]).enter(
        TWO,
        3010,
        "pthread_mutex_lock",
        &[A],
    );
    // A wait that has just begun may end in a moment.
    let model = acting.stage.model();
    assert_eq!(of_kind(&model, FindingKind::Deadlock).len(), 0);
    acting.stage.end(900);
    acting.stage.model()
}

#[test]
fn lost_events_prove_nothing() {
    // The kind and the time of the missing events are unknown.
    let model = embrace(|acting, at| {
        acting.stage.add(Dropped {
            probe: 102,
            count: 3,
            time_ns: at * 1000,
        });
    });
    assert_eq!(kinds(&model), []);
    let gap = |acting: &mut Acting, at: u64| {
        acting.stage.add(Gap {
            probe: 102,
            kind: GapKind::Dropped.into(),
            time_ns: at * 1000,
        });
    };
    // Threads may have released locks during the gap.
    let model = embrace(|acting, at| {
        if at > 2000 {
            gap(acting, at);
        }
    });
    assert_eq!(kinds(&model), []);
    // Only what was before is missing: the order is seen, too.
    let model = embrace(|acting, at| {
        if at < 2000 {
            gap(acting, at);
            acting.stage.add(Dropped {
                probe: 102,
                count: 1,
                time_ns: at * 1000,
            });
        }
    });
    let [deadlock] = of_kind(&model, FindingKind::Deadlock)[..] else {
        panic!("{:?}", kinds(&model))
    };
    assert!(!deadlock.proved);
    assert_eq!(deadlock.hang().doubts, [Doubt::EventsMissing]);
}

#[test]
fn a_thread_that_waits_for_itself() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .enter(ONE, 3000, "pthread_mutex_lock", &[A])
        .stage
        .end(900);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("self-deadlock", true)]);
    // A recursive one returns, and is held until its last unlock.
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .lock(ONE, 2100, A)
        .unlock(ONE, 2200, A);
    acting.unlock(ONE, 2300, A).stage.end(900);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), []);
    assert_eq!(object(&model.sync, A).holds.total_ns, 299_000);
}

#[test]
fn both_orders_are_an_inversion() {
    let mut acting = two_threads();
    acting.nested(ONE, 2000, A, B);
    acting.nested(TWO, 2100, B, A);
    acting.nested(ONE, 2200, A, B);
    acting.stage.end(5);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("lock-order", true)]);
    let finding = &model.findings[0];
    assert_eq!(
        finding.evidence.len(),
        4,
        "both acquisitions of both orders"
    );
    assert_eq!(finding.objects.len(), 2);
}

#[test]
fn orders_behind_a_semaphore_are_not_proved() {
    let orders = |posts: bool| {
        let mut acting = two_threads();
        let steps = [
            (ONE, 2000, (A, B)),
            (TWO, 2100, (B, A)),
            (ONE, 2200, (A, B)),
        ];
        for (thread, at, (first, second)) in steps {
            acting.call(thread, at, "sem_wait", &[0x5000]);
            if posts {
                acting.call(thread, at + 10, "sem_post", &[0x5000]);
            }
            acting.nested(thread, at + 20, first, second);
        }
        acting.stage.end(5);
        acting.stage.model()
    };
    let model = orders(false);
    assert_eq!(kinds(&model), [("lock-order", false)]);
    let text = text(&model, &model.findings[0]);
    assert!(
        text.contains("Each of these threads had taken the semaphore"),
        "{text}"
    );
    assert_eq!(kinds(&orders(true)), [("lock-order", true)]);
}

#[test]
fn orders_that_cannot_meet_are_not_proved() {
    // A gate lock keeps them apart.
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, C)
        .lock(ONE, 2001, A)
        .lock(ONE, 2010, B);
    acting
        .unlock(ONE, 2020, B)
        .unlock(ONE, 2030, A)
        .unlock(ONE, 2040, C);
    acting
        .lock(TWO, 2100, C)
        .lock(TWO, 2101, B)
        .lock(TWO, 2110, A);
    acting
        .unlock(TWO, 2120, A)
        .unlock(TWO, 2130, B)
        .unlock(TWO, 2140, C);
    acting.stage.end(5);
    assert_eq!(kinds(&acting.stage.model()), []);
    // One thread does both.
    let mut acting = two_threads();
    acting.nested(ONE, 2000, A, B);
    acting.nested(ONE, 2100, B, A);
    acting.stage.end(5);
    assert_eq!(kinds(&acting.stage.model()), [("lock-order", false)]);
    // The first is gone before the second is created.
    let mut acting = Acting::new();
    acting.on(PID, &["orders!main@orders.c:9"]);
    acting.nested(PID, 100, A, B);
    acting.stage.spawn(
        PID,
        ONE,
        2,
        "orders!one@orders.c:20",
        &["orders!main@orders.c:9"],
    );
    acting.on(ONE, &["orders!one@orders.c:21", END[0]]);
    acting.nested(ONE, 4000, B, A);
    acting.stage.end(9);
    assert_eq!(kinds(&acting.stage.model()), [("lock-order", false)]);
    // It is not disproved either, if the creation was not recorded because its probe was paused.
    let mut acting = Acting::new();
    acting.on(PID, &["orders!main@orders.c:9"]);
    acting.nested(PID, 100, A, B);
    acting.stage.seen(ONE, "one", 2);
    acting.on(ONE, &["orders!one@orders.c:21", END[0]]);
    acting.nested(ONE, 4000, B, A);
    acting.stage.end(9);
    assert_eq!(kinds(&acting.stage.model()), [("lock-order", false)]);
    // A join keeps the threads apart. Without one, other communication may do so.
    for joined in [false, true] {
        let mut acting = two_threads();
        acting.lock(ONE, 2000, A).lock(ONE, 2010, B);
        acting.unlock(ONE, 2020, B).unlock(ONE, 2030, A);
        if joined {
            acting.stage.join(TWO, 3, ONE << 12);
        }
        acting.stage.exit(ONE, 4);
        acting.lock(TWO, 5000, B).lock(TWO, 5010, A);
        acting.unlock(TWO, 5020, A).unlock(TWO, 5030, B);
        acting.stage.end(9);
        let expected = match joined {
            true => OrderRisk::Apart,
            false => OrderRisk::Successive,
        };
        assert_eq!(order_risk(&acting.stage.model()), expected);
    }
    // A try-lock never waits.
    let mut acting = two_threads();
    acting.nested(ONE, 2000, A, B);
    acting
        .lock(TWO, 2100, B)
        .call(TWO, 2110, "pthread_mutex_trylock", &[A]);
    acting
        .unlock(TWO, 2120, A)
        .unlock(TWO, 2130, B)
        .stage
        .end(5);
    assert_eq!(kinds(&acting.stage.model()), []);
}

/// `one` and `two` take the same locks in both orders. The main thread creates `two` after it has
/// joined `one`, or after `one` has merely ended.
#[test]
fn steps_after_a_join_come_later() {
    for joined_ms in [4, 8] {
        let mut acting = Acting::new();
        let main = ["orders!main@orders.c:9"];
        acting.on(PID, &main);
        acting
            .stage
            .spawn(PID, ONE, 0, "orders!one@orders.c:20", &main);
        acting.on(ONE, &["orders!one@orders.c:21", END[0]]);
        acting.nested(ONE, 2000, A, B);
        acting.stage.exit(ONE, 3);
        acting.stage.join(PID, joined_ms, ONE << 12);
        acting
            .stage
            .spawn(PID, TWO, 5, "orders!two@orders.c:40", &main);
        acting.on(TWO, &["orders!two@orders.c:41", END[0]]);
        acting.nested(TWO, 7000, B, A);
        acting.stage.end(9);
        let expected = match joined_ms {
            4 => OrderRisk::Apart,
            _ => OrderRisk::Successive,
        };
        assert_eq!(order_risk(&acting.stage.model()), expected);
    }
}

/// In each of three rounds of a barrier of two, one order comes before the barrier and the other
/// after it. Variants: the two threads do not use the barrier in every round, or other threads use
/// it, too.
#[test]
fn a_barrier_orders_the_steps_on_its_sides() {
    const BARRIER: u64 = 0x6000;
    let rounds = |size: u64, also_before: bool| {
        let mut acting = two_threads();
        acting.call(PID, 1000, "pthread_barrier_init", &[BARRIER, 0, size]);
        for round in 0..3 {
            let us = 2000 + 1000 * round;
            acting.nested(ONE, us, A, B);
            if also_before && round == 1 {
                acting.nested(TWO, us + 50, B, A);
            }
            for pass in [100, 300] {
                acting.enter(ONE, us + pass, "pthread_barrier_wait", &[BARRIER]);
                acting.enter(TWO, us + pass + 10, "pthread_barrier_wait", &[BARRIER]);
                acting.leave(TWO, us + pass + 20, "pthread_barrier_wait", 1);
                acting.leave(ONE, us + pass + 30, "pthread_barrier_wait", 0);
                if pass == 100 {
                    acting.nested(TWO, us + 200, B, A);
                }
            }
        }
        acting.stage.end(9);
        order_risk(&acting.stage.model()) == OrderRisk::Proved
    };
    assert!(!rounds(2, false));
    assert!(rounds(2, true));
    assert!(rounds(3, false));
}

#[test]
fn readers_do_not_block_readers() {
    let read = |acting: &mut Acting, tid: u64, us: u64, first: u64, second: u64| {
        acting.call(tid, us, "pthread_rwlock_rdlock", &[first]);
        acting.call(tid, us + 10, "pthread_rwlock_rdlock", &[second]);
        acting.call(tid, us + 20, "pthread_rwlock_unlock", &[second]);
        acting.call(tid, us + 30, "pthread_rwlock_unlock", &[first]);
    };
    let mut acting = two_threads();
    read(&mut acting, ONE, 2000, A, B);
    read(&mut acting, TWO, 2100, B, A);
    acting.stage.end(5);
    assert_eq!(kinds(&acting.stage.model()), []);
    // Two readers that both want to write wait for each other.
    let mut acting = two_threads();
    acting.call(ONE, 2000, "pthread_rwlock_rdlock", &[A]);
    acting.call(TWO, 2010, "pthread_rwlock_rdlock", &[A]);
    acting.enter(ONE, 3000, "pthread_rwlock_wrlock", &[A]);
    acting.enter(TWO, 3010, "pthread_rwlock_wrlock", &[A]);
    acting.stage.end(900);
    let model = acting.stage.model();
    assert!(
        model.findings.iter().all(|f| f.proved),
        "{:?}",
        model.findings
    );
    // Each also waits for itself: that is the same hang.
    assert_eq!(
        of_kind(&model, FindingKind::SelfDeadlock),
        Vec::<&Finding>::new()
    );
    assert_eq!(of_kind(&model, FindingKind::Deadlock).len(), 1);
}

#[test]
fn mistakes_are_told() {
    let mut acting = two_threads();
    acting.lock(ONE, 2000, A).unlock(TWO, 2100, A);
    acting
        .lock(ONE, 3000, B)
        .call(TWO, 3100, "pthread_mutex_destroy", &[B]);
    acting
        .lock(ONE, 4000, C)
        .unlock(ONE, 4100, C)
        .unlock(ONE, 4200, C);
    acting.stage.end(9);
    let model = acting.stage.model();
    assert_eq!(
        kinds(&model),
        [
            ("destroyed-held", true),
            ("wrong-unlock", true),
            ("wrong-unlock", true)
        ]
    );
    assert!(text(&model, &model.findings[1]).contains("while one (TID 11) holds it"));
    assert!(text(&model, &model.findings[2]).contains("which no thread holds"));
    // A lock taken before the recording began may be unlocked by any thread.
    let mut acting = two_threads();
    acting.unlock(ONE, 2000, A).stage.end(9);
    assert_eq!(kinds(&acting.stage.model()), []);
    // A thread that ran before may have been in a call that took the lock.
    for (releases, found) in [(1, &[][..]), (2, &[("wrong-unlock", true)])] {
        let mut acting = two_threads();
        acting.stage.attached();
        acting.lock(ONE, 2000, A).unlock(ONE, 2100, A);
        for release in 0..releases {
            acting.unlock(PID, 2200 + release, A);
        }
        acting.stage.end(9);
        assert_eq!(kinds(&acting.stage.model()), found);
    }
}

#[test]
fn signals_without_the_mutex_are_told() {
    let mut acting = two_threads();
    work(&mut acting, ONE, 1);
    acting.call(TWO, 3000, "pthread_cond_signal", &[COND]);
    acting
        .lock(TWO, 3100, A)
        .call(TWO, 3200, "pthread_cond_signal", &[COND])
        .unlock(TWO, 3300, A);
    acting.stage.end(10);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("unlocked-signal", false)]);
    assert!(
        text(&model, &model.findings[0]).contains("1 of 2 signals"),
        "{}",
        text(&model, &model.findings[0])
    );
}

#[test]
fn signals_after_an_unlock_are_correct() {
    let signals = |again: bool| {
        let mut acting = two_threads();
        work(&mut acting, ONE, 1);
        for us in [3000, 3100] {
            acting.lock(TWO, us, A).unlock(TWO, us + 10, A);
            acting.call(TWO, us + 20, "pthread_cond_signal", &[COND]);
        }
        if again {
            // The mutex was locked for the signal before, not for this one.
            acting.call(TWO, 3200, "pthread_cond_signal", &[COND]);
        }
        acting.stage.end(10);
        acting.stage.model()
    };
    assert_eq!(kinds(&signals(false)), []);
    let model = signals(true);
    assert_eq!(kinds(&model), [("unlocked-signal", false)]);
    let text = text(&model, &model.findings[0]);
    assert!(text.contains("1 of 3 signals"), "{text}");
}

#[test]
fn a_condition_may_be_used_with_one_mutex_after_the_other() {
    let mut acting = two_threads();
    for (from, mutex) in [(1000, A), (2000, B)] {
        acting
            .lock(ONE, from, mutex)
            .enter(ONE, from + 10, "pthread_cond_wait", &[COND, mutex])
            .lock(TWO, from + 100, mutex)
            .call(TWO, from + 110, "pthread_cond_signal", &[COND])
            .unlock(TWO, from + 120, mutex)
            .leave(ONE, from + 130, "pthread_cond_wait", 0)
            .unlock(ONE, from + 140, mutex);
    }
    acting.stage.end(10);
    assert_eq!(kinds(&acting.stage.model()), []);
}

#[test]
fn everybody_waits() {
    let mut acting = two_threads();
    for (tid, us) in [(ONE, 2000), (TWO, 2100)] {
        acting
            .lock(tid, us, A)
            .enter(tid, us + 10, "pthread_cond_wait", &[COND, A]);
    }
    acting.enter(PID, 2500, "pthread_join", &[ONE << 12]);
    acting.stage.add(ProcessEnded {
        time_ns: 900_000_000,
        exit_code: None,
        signal: Some(15),
    });
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("lost-wakeup", false)]);
    assert_eq!(model.findings[0].threads.len(), 2);
}

/// The kernel ends the remaining threads one after another when a program ends. A thread that ended
/// while the program ran on was not ended by that.
#[test]
fn threads_that_end_with_the_program_need_no_join() {
    let main = ["orders!main@orders.c:9"];
    for (first_ms, end_ms, unjoined) in [(800, 3000, 0), (300, 3000, 1), (800, 20_000, 1)] {
        let mut acting = Acting::new();
        for tid in [ONE, TWO] {
            let function = "orders!serve@orders.c:20";
            acting.stage.spawn(PID, tid, 0, function, &main);
        }
        acting.lock(PID, 500_000, A);
        acting.stage.exit(ONE, first_ms);
        acting.stage.exit(TWO, end_ms - 100);
        acting.stage.exit(PID, end_ms - 20);
        acting.stage.end(end_ms);
        let model = acting.stage.model();
        let found = of_kind(&model, FindingKind::Unjoined);
        let threads: usize = found.iter().map(|f| f.threads.len()).sum();
        assert_eq!(threads, unjoined, "{first_ms}: {:?}", kinds(&model));
    }
}

/// A program that waits for a timer is not ending yet, so a thread that ends meanwhile was not
/// ended by the program's end.
#[test]
fn a_wait_shows_that_the_program_goes_on() {
    for (ended_ms, unjoined) in [(800, 1), (2600, 0)] {
        let mut acting = Acting::new();
        let main = ["orders!main@orders.c:9"];
        acting
            .stage
            .spawn(PID, ONE, 0, "orders!serve@orders.c:20", &main);
        acting.lock(PID, 500_000, A);
        acting.stage.exit(ONE, ended_ms);
        let mut part = scheduled(&[
            (2000, ScheduleKind::Runs, PID, 0),
            (600_000, ScheduleKind::Blocks, PID, 1),
            (2_500_000, ScheduleKind::Woken, PID, 0),
            (2_500_100, ScheduleKind::Runs, PID, 0),
        ]);
        part.calls = vec![BlockingCall {
            id: 1,
            // nanosleep
            number: Some(35),
            ..BlockingCall::default()
        }];
        acting.stage.add(schedule_begins());
        acting.stage.add(part);
        acting.stage.exit(PID, 2980);
        acting.stage.end(3000);
        let model = acting.stage.model();
        let found = of_kind(&model, FindingKind::Unjoined);
        assert_eq!(found.len(), unjoined, "{ended_ms}: {:?}", kinds(&model));
    }
}

/// Calls whose ends may be missing. Killed threads may have been stuck in them; threads of a
/// program that exits were not.
#[test]
fn a_program_that_exits_was_not_stuck() {
    for (signal, deadlocks) in [(None, 0), (Some(2), 1)] {
        let mut acting = two_threads();
        acting.lock(ONE, 2000, A).lock(TWO, 2010, B);
        acting.enter(ONE, 3000, "pthread_mutex_lock", &[B]);
        acting.enter(TWO, 3010, "pthread_mutex_lock", &[A]);
        for kind in [GapKind::Paused, GapKind::Resumed] {
            acting.stage.add(Gap {
                probe: 101,
                kind: kind.into(),
                time_ns: 4_000_000,
            });
        }
        for tid in [ONE, TWO, PID] {
            acting.stage.exit(tid, 900);
        }
        acting.stage.add(ProcessEnded {
            time_ns: 900_000_000,
            exit_code: signal.is_none().then_some(0),
            signal,
        });
        let model = acting.stage.model();
        let found = of_kind(&model, FindingKind::Deadlock);
        assert_eq!(found.len(), deadlocks, "{signal:?}: {:?}", kinds(&model));
        assert!(found.iter().all(|finding| !finding.proved));
    }
}
