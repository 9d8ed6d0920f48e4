//! Tests of sentences of findings that count or place things.

use super::{A, COND, END, ONE, text, two_threads};
use crate::model::critical_path::{Bottleneck, Item};
use crate::model::sync::ObjectIndex;
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
    let finding = |waiting: usize, bystanders: &[usize]| Finding {
        kind: FindingKind::LostWakeup,
        proved: true,
        threads: vec![ThreadIndex(1), ThreadIndex(2)],
        circle: false,
        objects: Vec::new(),
        facts: Facts::Hang(Hang {
            reason: HangReason::AllWait {
                waiting,
                bystanders: bystanders.iter().copied().map(ThreadIndex).collect(),
            },
            waits: vec![wait(1), wait(2)],
            doubts: Vec::new(),
        }),
        evidence: Vec::new(),
    };
    let found = text(&model, &finding(3, &[]));
    assert!(found.starts_with("All 3 threads wait"), "{found}");
    assert!(found.ends_with("; and 1 more."), "{found}");
    let found = text(&model, &finding(2, &[]));
    assert!(!found.contains("more"), "{found}");
    // A bystander may be in a system call, such as sigwait's.
    let found = text(&model, &finding(2, &[0]));
    assert!(
        found.contains(" can continue, but Unspool found nothing in its code that wakes a thread."),
        "{found}"
    );
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

/// A reader compares the gain with the part that the finding names, so the text explains a gain
/// that is larger.
#[test]
fn a_gain_that_exceeds_its_part_is_explained() {
    let mut acting = two_threads();
    acting.lock(ONE, 2000, A).unlock(ONE, 3000, A);
    acting.stage.end(9);
    let model = acting.stage.model();
    let lock = model
        .sync
        .objects
        .iter()
        .position(|object| object.address == A);
    let lock = Item::Lock(ObjectIndex(lock.expect("the lock")));
    for (item, saved_ns, is_more) in [
        (Item::Threads(0), 50_000_000, false),
        (Item::Threads(0), 51_000_000, true),
        (lock, 1, true),
        (lock, 0, false),
    ] {
        let finding = Finding {
            kind: FindingKind::Bottleneck,
            proved: false,
            threads: vec![ThreadIndex(1)],
            circle: false,
            objects: Vec::new(),
            facts: Facts::Bottleneck(Bottleneck {
                item,
                saved_ns,
                run_ns: 200_000_000,
                path_ns: 100_000_000,
                processors: 2,
                usable: 1.0,
            }),
            evidence: Vec::new(),
        };
        let found = text(&model, &finding);
        assert_eq!(
            found.contains("would become shorter by more than"),
            is_more,
            "{found}"
        );
    }
}

/// Two callers that nothing within a name's length tells apart make locks of one name.
#[test]
fn locks_of_equal_names_are_numbered() {
    let mut acting = two_threads();
    let inner = ["locks!new_lock@locks.c:5"; 5];
    for (at, caller) in [
        (0xe000, "orders!one@orders.c:21"),
        (0xe100, "orders!one@orders.c:25"),
    ] {
        let mut path = inner.to_vec();
        path.extend([caller, END[0], END[1]]);
        acting.on(ONE, &path);
        acting.call(ONE, 2000 + at, "pthread_mutex_init", &[at]);
    }
    acting.stage.end(100);
    let model = acting.stage.model();
    let objects = model.sync.objects.iter();
    let names: Vec<String> = objects
        .filter_map(|object| model.sync.name(object))
        .map(|name| name.to_string())
        .collect();
    assert_eq!(
        names,
        [
            "made in new_lock (locks.c:5) #1",
            "made in new_lock (locks.c:5) #2"
        ]
    );
}
