//! Tests of sentences of findings that count or place things.

use super::{COND, ONE, text, two_threads};
use crate::model::{
    Awaited, Facts, Finding, FindingKind, Hang, HangReason, HangWait, ObjectName, ThreadIndex,
};
use crate::primitives::Kind;

/// A hang names the threads that nothing else explains. The others are counted.
#[test]
fn threads_that_a_hang_does_not_name_are_counted() {
    let mut acting = two_threads();
    acting.stage.end(5);
    let model = acting.stage.model();
    let wait = |thread: usize| HangWait {
        thread: ThreadIndex(thread),
        awaited: Awaited {
            object: ObjectName {
                kind: Kind::Cond,
                address: COND,
                name: Some("changed".into()),
            },
            flavor: Vec::new(),
            joined: None,
            readers: None,
        },
        path: None,
        holds: Vec::new(),
        taken: None,
    };
    let finding = |waiting: usize| Finding {
        kind: FindingKind::LostWakeup,
        proved: true,
        threads: vec![ThreadIndex(1), ThreadIndex(2)],
        circle: false,
        objects: Vec::new(),
        facts: Facts::Hang(Hang {
            reason: HangReason::AllWait {
                waiting,
                bystanders: Vec::new(),
            },
            waits: vec![wait(1), wait(2)],
            doubts: Vec::new(),
        }),
        evidence: Vec::new(),
    };
    let found = text(&model, &finding(3));
    assert!(found.starts_with("All 3 threads wait"), "{found}");
    assert!(found.ends_with("; and 1 more."), "{found}");
    let found = text(&model, &finding(2));
    assert!(!found.contains("more"), "{found}");
}

/// The place of a call stands apart from the place that names its object.
#[test]
fn a_destroyed_object_is_named_by_its_place() {
    let mut acting = two_threads();
    acting.call(ONE, 2000, "pthread_mutex_init", &[0x5000, 0]);
    acting.lock(ONE, 2100, 0x5000);
    acting.call(ONE, 2200, "pthread_mutex_destroy", &[0x5000]);
    acting.stage.end(9);
    let model = acting.stage.model();
    let found = model
        .findings
        .iter()
        .find(|f| f.kind == FindingKind::DestroyedHeld);
    let found = text(&model, found.expect("the finding"));
    let begin =
        "In one (orders.c:21), one (TID 11) destroys the mutex made in one (orders.c:21) while";
    assert!(found.starts_with(begin), "{found}");
}
