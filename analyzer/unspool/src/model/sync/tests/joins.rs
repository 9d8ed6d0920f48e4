//! Tests of joined threads, whose handles the C library gives to later threads.

use unspool_capture::ProcessEnded;

use super::findings::of_kind;
use super::{A, ONE, TWO, kinds, two_threads};
use crate::model::FindingKind;
use crate::model::fixture::PID;
use crate::model::fixture::sync::Acting;
use crate::model::sync::Sync;
use crate::primitives::Kind;

const HANDLE: u64 = 0x7f00;

/// The joined threads: the name and the duration of the wait in microseconds.
fn joins(sync: &Sync) -> Vec<(String, u64)> {
    let objects = sync.objects.iter();
    let joins = objects.filter(|object| object.kind == Kind::Join);
    let joins = joins.map(|object| {
        let name = sync.name(object).expect("a name");
        (name.to_string(), object.waits.total_ns / 1000)
    });
    joins.collect()
}

/// Joins the thread by its handle, from another place each time.
fn join(acting: &mut Acting, us: u64, tid: u64, line: &'static str, result: u64) {
    acting.stage.join(PID, us / 1000, tid << 12);
    acting.on(PID, &[line]);
    acting.enter(PID, us, "pthread_join", &[HANDLE]);
    acting.leave(PID, us + 500, "pthread_join", result);
}

#[test]
fn threads_with_the_same_handle_are_different_objects() {
    let mut acting = two_threads();
    join(&mut acting, 2000, 11, "orders!main@orders.c:9", 0);
    join(&mut acting, 4000, 12, "orders!stop@orders.c:30", 0);
    acting.stage.end(9);
    let sync = acting.stage.model().sync;
    assert_eq!(
        joins(&sync),
        [
            ("one joined in main (orders.c:9)".to_owned(), 500),
            ("two joined in stop (orders.c:30)".to_owned(), 500)
        ]
    );
}

#[test]
fn a_failed_join_does_not_free_the_handle() {
    let mut acting = two_threads();
    join(&mut acting, 2000, 11, "orders!main@orders.c:9", 110);
    join(&mut acting, 4000, 11, "orders!main@orders.c:9", 0);
    acting.stage.end(9);
    assert_eq!(joins(&acting.stage.model().sync).len(), 1);
}

#[test]
fn a_join_without_a_recorded_end_has_ended_when_the_next_begins() {
    let mut acting = two_threads();
    acting.on(PID, &["orders!main@orders.c:9"]);
    acting.enter(PID, 2000, "pthread_join", &[HANDLE]);
    join(&mut acting, 4000, 12, "orders!main@orders.c:9", 0);
    acting.stage.end(9);
    let waits: Vec<u64> = joins(&acting.stage.model().sync)
        .into_iter()
        .map(|join| join.1)
        .collect();
    assert_eq!(waits, [0, 500]);
}

/// One place joins threads of several functions.
#[test]
fn a_place_that_joins_different_threads_names_none() {
    let mut acting = two_threads();
    for (us, tid) in [(2000, 11), (4000, 12)] {
        join(&mut acting, us, tid, "orders!main@orders.c:9", 0);
    }
    acting.stage.end(9);
    let sync = acting.stage.model().sync;
    let place = "joined in main (orders.c:9)".to_owned();
    assert_eq!(joins(&sync), [(place.clone(), 500), (place, 500)]);
}

/// The joins may follow after the recording's end, unless the creator has ended.
#[test]
fn a_recording_that_ends_early_shows_no_missing_joins() {
    const KILLED: Option<ProcessEnded> = Some(ProcessEnded {
        time_ns: 3_000_000_000,
        exit_code: None,
        signal: Some(2),
    });
    for (end, creator_ends, unjoined) in [
        (None, false, 0),
        (KILLED, false, 0),
        (None, true, 1),
        (KILLED, true, 1),
    ] {
        let mut acting = Acting::new();
        let serve = "orders!serve@orders.c:20";
        acting
            .stage
            .spawn(PID, ONE, 0, serve, &["orders!main@orders.c:9"]);
        acting
            .stage
            .spawn(ONE, TWO, 10, serve, &["orders!main@orders.c:9"]);
        acting.stage.exit(TWO, 100);
        if creator_ends {
            acting.stage.exit(ONE, 200);
        }
        acting.lock(PID, 2_500_000, A);
        if let Some(end) = end {
            acting.stage.add(end);
        }
        let model = acting.stage.model();
        let found = of_kind(&model, FindingKind::Unjoined);
        let threads: usize = found.iter().map(|f| f.threads.len()).sum();
        assert_eq!(threads, unjoined, "{creator_ends}: {:?}", kinds(&model));
        assert!(found.iter().all(|finding| !finding.proved));
    }
}
