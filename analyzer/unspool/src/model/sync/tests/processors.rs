//! Processor times of threads, computed from the kernel's counters.

use unspool_capture::{CpuTime, CpuTimes};

use super::*;
use crate::model::{Cell, Timeline, Window};

/// The kernel's counters at `ms`: per thread, milliseconds on a processor and runnable.
fn account(acting: &mut Acting, ms: u64, times: &[(u64, u64, u64)]) {
    let threads = times.iter().map(|(tid, on_cpu, runnable)| CpuTime {
        tid: *tid,
        on_cpu_ns: on_cpu * 1_000_000,
        runnable_ns: runnable * 1_000_000,
    });
    acting.stage.add(CpuTimes {
        time_ns: ms * 1_000_000,
        threads: threads.collect(),
    });
}

#[test]
fn turns_at_the_processors() {
    let mut acting = two_threads();
    // So that calls are recorded.
    acting.lock(ONE, 1000, A).unlock(ONE, 1001, A);
    // The first thread had lived for long before.
    account(&mut acting, 0, &[(PID, 70, 70)]);
    account(&mut acting, 11, &[(PID, 70, 81), (ONE, 10, 0), (TWO, 0, 5)]);
    // The second thread got no more time, so the report omits it.
    account(&mut acting, 21, &[(PID, 80, 81), (ONE, 10, 10)]);
    acting.stage.end(21);
    let model = acting.stage.model();
    let known = |tid: u64| {
        let index = model
            .threads
            .iter()
            .position(|thread| thread.tid == Some(tid));
        let turn = model.sync.processors.totals[index.unwrap()];
        [turn.on_cpu_ns, turn.runnable_ns, turn.known_ns].map(|ns| (ns + 500_000) / 1_000_000)
    };
    assert_eq!(known(PID), [10, 11, 21]);
    assert_eq!(known(ONE), [10, 10, 20]);
    assert_eq!(known(TWO), [0, 5, 20]);
    let level = &model.sync.concurrency;
    let at = |ms: u64| {
        let mut slices = level.slices.iter();
        let slice = slices.find(|slice| slice.to_ns > ms * 1_000_000).unwrap();
        let (on_cpu, runnable) = slice.turns.unwrap();
        [on_cpu, runnable].map(|threads| (threads * 10.0).round() as u64)
    };
    // In the first ten of its twenty milliseconds, half of the time.
    assert_eq!(at(6), [10, 15]);
    assert_eq!(at(15), [10, 10]);
    let (on_cpu, runnable) = level.turns.unwrap();
    assert!((on_cpu - 20.0 / 21.0).abs() < 0.01, "{on_cpu}");
    assert!((runnable - 26.0 / 21.0).abs() < 0.01, "{runnable}");
}

/// A reused thread id, a clock and counters that go backwards, and unknown threads.
#[test]
fn turns_of_others_and_at_wrong_times() {
    let mut acting = two_threads();
    acting.lock(ONE, 1000, A).unlock(ONE, 1001, A);
    // The kernel reports the second thread before the server does, and that thread gets no more
    // time.
    account(&mut acting, 0, &[(TWO, 0, 0), (99, 5, 5)]);
    account(&mut acting, 5, &[(ONE, 4, 0)]);
    acting.stage.exit(ONE, 10);
    acting.stage.seen(ONE, "again", 12);
    account(&mut acting, 22, &[(ONE, 5, 5)]);
    account(&mut acting, 20, &[(ONE, 9, 9)]);
    account(
        &mut acting,
        30,
        &[(ONE, 1, 1), (TWO, u64::MAX / 2_000_000, 3)],
    );
    acting.stage.end(30);
    let model = acting.stage.model();
    let mut totals = model.threads.iter().zip(&model.sync.processors.totals);
    let again = totals.rfind(|(thread, _)| thread.tid == Some(ONE)).unwrap();
    let known = [again.1.on_cpu_ns, again.1.runnable_ns, again.1.known_ns];
    assert_eq!(known.map(|ns| ns / 1_000_000), [5, 5, 18]);
    for (thread, total) in model.threads.iter().zip(&model.sync.processors.totals) {
        assert!(
            total.on_cpu_ns + total.runnable_ns <= total.known_ns,
            "{thread:?}"
        );
    }
}

/// The timeline cell of a thread that lives for 20 ms and waits for a semaphore in the last `waits`
/// milliseconds. `on_cpu` and `runnable` are its times by the kernel's counters, in milliseconds.
fn cell(on_cpu: u64, runnable: u64, waits: u64) -> Cell {
    let mut acting = two_threads();
    account(&mut acting, 0, &[]);
    if waits > 0 {
        acting.enter(ONE, 21_000 - waits * 1000, "sem_wait", &[A]);
        acting.leave(ONE, 20_999, "sem_wait", 0);
    }
    account(&mut acting, 21, &[(ONE, on_cpu, runnable)]);
    acting.stage.end(21);
    let model = acting.stage.model();
    let window = Window {
        from_ns: 1_000_000,
        to_ns: 21_000_000,
        columns: 1,
    };
    let thread = model.threads.iter().position(|t| t.tid == Some(ONE));
    Timeline::of(&model, window).threads[thread.unwrap()][0]
}

#[test]
fn a_column_shows_what_took_most_of_it() {
    assert_eq!(cell(18, 1, 0), Cell::Alive);
    assert_eq!(cell(11, 9, 0), Cell::Alive);
    assert_eq!(cell(7, 6, 0), Cell::Partly);
    assert_eq!(cell(7, 12, 0), Cell::Runnable);
    assert_eq!(cell(3, 9, 0), Cell::Runnable);
    assert_eq!(cell(2, 3, 0), Cell::Away(None));
    assert!(matches!(cell(6, 2, 9), Cell::Waits(_)));
    assert_eq!(cell(9, 2, 6), Cell::Partly);
}
