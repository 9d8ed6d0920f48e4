//! Tests of the lock order: every pair is counted, and circles are marked.

use unspool_capture::{Dropped, Gap, GapKind, Missed, ModuleLoaded, ModuleUnloaded};

use super::findings::order_risk;
use super::*;
use crate::model::ThreadIndex;
use crate::model::finding::{Facts, OrderRisk};
use crate::model::sync::lock_order::{MAX_EDGES, OrderCounts};
use crate::model::sync::{Exclusion, LockOrder, ObjectIndex, OrderEdge, UseIndex};
use crate::views::Style;

/// Held object, taken object, count, threads, whether it is in a circle: one row per pair.
fn rows(model: &Model) -> Vec<(u64, u64, u64, usize, bool)> {
    let sync = &model.sync;
    let row = |edge: &OrderEdge| {
        let address = |object| sync.object(object).address;
        (
            address(edge.held),
            address(edge.taken),
            edge.count,
            edge.threads.len(),
            edge.in_circle,
        )
    };
    sync.lock_order.edges.iter().map(row).collect()
}

#[test]
fn every_pair_of_nested_locks_is_counted() {
    let mut acting = two_threads();
    for round in 0..40 {
        acting.nested(ONE, 2000 + round * 100, A, B);
    }
    acting
        .nested(TWO, 8000, A, B)
        .lock(TWO, 9000, A)
        .nested(TWO, 9010, B, C)
        .unlock(TWO, 9050, A)
        .lock(TWO, 9100, C)
        .unlock(TWO, 9110, C)
        .stage
        .end(20);
    let model = acting.stage.model();
    assert_eq!(
        rows(&model),
        [
            (A, B, 42, 2, false),
            (A, C, 1, 1, false),
            (B, C, 1, 1, false)
        ]
    );
    let sync = &model.sync;
    let first = &sync.lock_order.edges[0];
    assert_eq!(first.first_ns, 2_010_000);
    let lines = [first.held_at, first.taken_at].map(|used| {
        let used = sync.used(used);
        (used.object, sync.path(used).frames[1].place.line)
    });
    assert_eq!(lines, [(first.held, Some(21)), (first.taken, Some(21))]);
    assert!(LockOrder::findings(&model.findings).is_empty());
}

#[test]
fn pairs_of_a_circle_are_marked_and_lead_to_its_finding() {
    let mut acting = two_threads();
    acting
        .nested(ONE, 2000, A, B)
        .nested(TWO, 3000, B, A)
        .nested(TWO, 4000, A, C)
        .nested(ONE, 5000, A, B)
        .stage
        .end(20);
    let model = acting.stage.model();
    let order = &model.sync.lock_order;
    assert_eq!(
        rows(&model),
        [(A, B, 2, 1, true), (A, C, 1, 1, false), (B, A, 1, 1, true)]
    );
    let findings = LockOrder::findings(&model.findings);
    let found: Vec<Option<&usize>> = (order.edges.iter())
        .map(|edge| findings.get(&(edge.held, edge.taken)))
        .collect();
    assert_eq!(found, [Some(&0), None, Some(&0)]);
    assert_eq!(kinds(&model), [("lock-order", true)]);
}

#[test]
fn a_finding_counts_all_calls_of_its_thread() {
    let mut acting = two_threads();
    acting
        .nested(ONE, 2000, A, B)
        .lock(ONE, 2100, C)
        .nested(ONE, 2110, A, B)
        .unlock(ONE, 2150, C)
        .nested(TWO, 3000, B, A)
        .stage
        .end(20);
    let model = acting.stage.model();
    let Facts::LockOrder { steps, .. } = &model.findings[0].facts else {
        panic!("{:?}", model.findings);
    };
    let mut counts: Vec<u64> = steps.iter().map(|step| step.count).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
}

/// Two threads take two locks in both orders while they hold a third one.
fn gated() -> Model {
    let mut acting = two_threads();
    for (tid, us, outer, inner) in [(ONE, 2000, A, B), (TWO, 3000, B, A)] {
        acting
            .lock(tid, us, C)
            .nested(tid, us + 100, outer, inner)
            .unlock(tid, us + 200, C);
    }
    acting.stage.end(20);
    acting.stage.model()
}

#[test]
fn a_circle_that_another_lock_prevents_is_no_finding() {
    let model = gated();
    assert_eq!(kinds(&model), []);
    let in_circle = rows(&model).into_iter().filter(|row| row.4);
    assert_eq!(in_circle.count(), 2);
}

/// The text view, without its line breaks.
fn shown(model: &Model) -> String {
    let mut out = Vec::new();
    crate::views::text::lock_order::write(model, &mut out, &Style::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The exclusion of each pair, by the addresses of the held and the taken lock.
fn exclusions(model: &Model) -> Vec<(u64, u64, Option<Exclusion>)> {
    let sync = &model.sync;
    let address = |object| sync.object(object).address;
    let edges = sync.lock_order.edges.iter();
    edges
        .map(|edge| (address(edge.held), address(edge.taken), edge.exclusion))
        .collect()
}

#[test]
fn missed_calls_of_locks_are_told() {
    let missed = |hits| {
        let mut acting = two_threads();
        acting.nested(ONE, 2000, A, B);
        // These calls are all recorded, and say nothing about locks.
        for call in 0..30 {
            acting.call(TWO, 3000 + 10 * call, "sem_post", &[0x5000]);
        }
        acting.stage.add(Missed {
            probe: 100,
            pauses: 1,
            paused_ns: 1_000_000,
            hits,
            time_ns: 5_000_000,
        });
        acting.stage.end(20);
        acting.stage.model()
    };
    // The fixture's probes of ends have no function.
    for (hits, few) in [(4, false), (5, true)] {
        let model = missed(hits);
        assert!(!model.recording.too_little_seen());
        assert_eq!(model.recording.too_few_lock_calls(), few);
        let text = shown(&model);
        let line = format!(
            "4 beginnings and ends of lock calls were recorded and at least {hits} missed."
        );
        assert!(text.contains(&line), "{text}");
    }
    let mut acting = two_threads();
    acting.nested(ONE, 2000, A, B);
    let complete = shown(&acting.stage.model());
    assert!(!complete.contains("may be missing"), "{complete}");
    acting.stage.add(Dropped {
        probe: 102,
        count: 9,
        time_ns: 5_000_000,
    });
    let model = acting.stage.model();
    assert!(model.recording.too_few_lock_calls());
    assert!(shown(&model).contains("ircles may be missing"));
}

#[test]
fn locks_that_are_not_tracked_are_told() {
    for (locks, told) in [(16, false), (17, true)] {
        let mut acting = two_threads();
        let address = |at: u64| 0x1_0000 + 0x100 * at;
        for at in 0..locks {
            acting.lock(ONE, 2000 + 10 * at, address(at));
        }
        for at in (0..locks).rev() {
            acting.unlock(ONE, 4000 - 10 * at, address(at));
        }
        acting.stage.end(20);
        let model = acting.stage.model();
        assert_eq!(model.sync.lock_order.cut, told);
        let text = shown(&model);
        let line = "Pairs of locks were left out, so circles may be missing.";
        assert_eq!(text.contains(line), told, "{text}");
        assert_eq!(text.contains("more than 16 locks at a time"), told);
    }
}

#[test]
fn circles_without_a_finding_have_a_reason() {
    let gated = gated();
    let gate = gated.sync.lock_order.edges.iter();
    let gate = gate.filter_map(|edge| edge.exclusion).next();
    let Some(Exclusion::Gate(gate)) = gate else {
        panic!("{gate:?}");
    };
    assert_eq!(gated.sync.object(gate).address, C);
    let text = shown(&gated);
    let title = "Circles without a finding: threads hold mutex gate meanwhile";
    assert!(text.contains(title), "{text}");

    let mut acting = two_threads();
    acting.nested(ONE, 2000, A, B).lock(TWO, 3000, B);
    acting
        .call(TWO, 3010, "pthread_mutex_timedlock", &[A, 0])
        .unlock(TWO, 3020, A)
        .unlock(TWO, 3030, B)
        .stage
        .end(20);
    let reason = Some(Exclusion::TimeLimit);
    let timed = acting.stage.model();
    assert_eq!(exclusions(&timed), [(A, B, reason), (B, A, reason)]);

    // One thread, which a gate prevents from being a finding.
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, C)
        .nested(ONE, 2010, A, B)
        .nested(ONE, 2110, B, A)
        .unlock(ONE, 2200, C)
        .stage
        .end(20);
    let alone = acting.stage.model();
    let reasons: Vec<Option<Exclusion>> = exclusions(&alone).iter().map(|e| e.2).collect();
    assert_eq!(reasons.iter().flatten().count(), 2, "{reasons:?}");
    assert!(shown(&alone).contains("one thread alone, which cannot deadlock by itself"));

    // A and B are a finding, so the longer circle is none.
    let mut acting = two_threads();
    acting
        .nested(ONE, 2000, A, B)
        .nested(TWO, 3000, B, A)
        .nested(TWO, 3100, B, C)
        .nested(ONE, 4000, C, A)
        .stage
        .end(20);
    let shorter = Some(Exclusion::ShorterCircle);
    assert_eq!(
        exclusions(&acting.stage.model()),
        [(A, B, None), (B, A, None), (B, C, shorter), (C, A, shorter)]
    );
}

#[test]
fn a_circle_of_one_thread_is_told() {
    let mut acting = two_threads();
    acting
        .nested(ONE, 2000, A, B)
        .nested(ONE, 2100, B, A)
        .stage
        .end(20);
    let model = acting.stage.model();
    let text = shown(&model);
    let title = "inferred: one thread alone, which cannot deadlock by itself";
    assert!(text.contains(title), "{text}");
    let sentence = super::text(&model, &model.findings[0]);
    assert!(sentence.contains("Only one thread does this"), "{sentence}");

    // One thread does both, and could not meet the other, which is created later.
    let mut acting = Acting::new();
    acting.on(PID, &["orders!main@orders.c:9"]);
    acting.nested(PID, 100, A, B).nested(PID, 200, B, A);
    let main = ["orders!main@orders.c:9"];
    acting
        .stage
        .spawn(PID, ONE, 2, "orders!one@orders.c:20", &main);
    acting.on(ONE, &["orders!one@orders.c:21", END[0]]);
    acting.nested(ONE, 4000, B, A).stage.end(9);
    let text = shown(&acting.stage.model());
    assert!(text.contains("a creation, join or barrier"), "{text}");
}

#[test]
fn threads_of_equal_name_have_ids() {
    let mut acting = two_threads();
    let elsewhere = ["orders!main@orders.c:10"];
    acting
        .stage
        .spawn(PID, 13, 1, "orders!one@orders.c:20", &elsewhere);
    acting.on(13, &["orders!one@orders.c:21", END[0], END[1]]);
    acting
        .nested(ONE, 2000, A, B)
        .nested(13, 3000, A, B)
        .stage
        .end(20);
    let text = shown(&acting.stage.model());
    assert!(text.contains("by one (TID 11), one (TID 13),"), "{text}");
}

#[test]
fn two_circles_with_a_common_lock_are_told_from_a_bridge() {
    const D: u64 = 0xe000;
    const E: u64 = 0xe100;
    let mut acting = two_threads();
    let pairs = [(A, B), (B, A), (B, C), (C, D), (D, E), (E, C)];
    for (at, (outer, inner)) in pairs.into_iter().enumerate() {
        acting.nested(ONE, 2000 + at as u64 * 100, outer, inner);
    }
    acting.stage.end(20);
    let rows = rows(&acting.stage.model());
    let bridges = rows.iter().filter(|row| !row.4);
    assert_eq!(
        bridges.map(|row| (row.0, row.1)).collect::<Vec<_>>(),
        [(B, C)]
    );
    assert_eq!(rows.len(), 6);
}

#[test]
fn a_wait_at_a_condition_takes_its_mutex_again() {
    let mut acting = two_threads();
    acting
        .lock(ONE, 2000, A)
        .lock(ONE, 2010, B)
        .enter(ONE, 2020, "pthread_cond_wait", &[COND, A])
        .leave(ONE, 2100, "pthread_cond_wait", 0)
        .unlock(ONE, 2110, B)
        .unlock(ONE, 2120, A)
        .stage
        .end(20);
    assert_eq!(
        rows(&acting.stage.model()),
        [(A, B, 1, 1, true), (B, A, 1, 1, true)]
    );
}

#[test]
fn a_hold_that_may_be_two_orders_nothing() {
    let mut acting = two_threads();
    acting.lock(ONE, 2000, A);
    for kind in [GapKind::Paused, GapKind::Resumed] {
        for probe in [100, 102] {
            acting.stage.add(Gap {
                probe,
                kind: kind.into(),
                time_ns: 2_005_000,
            });
        }
    }
    acting
        .lock(ONE, 2010, B)
        .unlock(ONE, 2020, B)
        .unlock(ONE, 2030, A);
    acting.stage.end(20);
    assert_eq!(rows(&acting.stage.model()), []);
}

/// A thread that holds `held` takes all of the other objects.
fn take_all(counts: &mut OrderCounts, held: usize, taken: impl Iterator<Item = usize>) {
    for taken in taken {
        let [held, taken] = [held, taken].map(|at| (ObjectIndex(at), UseIndex(at)));
        counts.takes(ThreadIndex(0), held, taken, 1000);
    }
}

#[test]
fn the_lowest_pairs_of_a_hold_are_kept_at_the_limit() {
    let mut counts = OrderCounts::default();
    let half = 2..2 + MAX_EDGES / 2 + 1;
    for held in 0..2 {
        take_all(&mut counts, held, half.clone().rev());
        counts.confirm(ThreadIndex(0), ObjectIndex(held));
    }
    let order = counts.finish();
    assert!(order.cut);
    assert_eq!(order.edges.len(), MAX_EDGES);
    let last = order.edges.last().map(|edge| (edge.held.0, edge.taken.0));
    assert_eq!(last, Some((1, MAX_EDGES / 2)));
}

#[test]
fn pairs_of_unfinished_holds_are_limited() {
    let full = 1..=MAX_EDGES;
    let mut counts = OrderCounts::default();
    take_all(&mut counts, 0, full.clone());
    counts.discard(ThreadIndex(0), ObjectIndex(0));
    take_all(&mut counts, 0, full.clone());
    counts.confirm(ThreadIndex(0), ObjectIndex(0));
    take_all(&mut counts, 0, full.clone());
    take_all(&mut counts, 0, full.clone());
    counts.confirm(ThreadIndex(0), ObjectIndex(0));
    let order = counts.finish();
    assert!(!order.cut);
    assert!(order.edges.iter().all(|edge| edge.count == 3));

    let mut counts = OrderCounts::default();
    take_all(&mut counts, 0, full);
    take_all(&mut counts, MAX_EDGES, 0..1);
    counts.discard(ThreadIndex(0), ObjectIndex(0));
    counts.confirm(ThreadIndex(0), ObjectIndex(MAX_EDGES));
    let order = counts.finish();
    assert!(order.cut);
    assert_eq!(order.edges, []);
}

/// Threads take two locks in both orders again and again, at addresses that nothing names.
#[test]
fn locks_in_memory_that_can_be_used_again_are_not_proved() {
    let risk = |initialized: bool| {
        let (x, y) = (0x9000, 0x9100);
        let mut acting = two_threads();
        if initialized {
            for lock in [x, y] {
                acting.call(PID, 1000, "pthread_mutex_init", &[lock]);
            }
        }
        for us in [2000, 3000] {
            // Each time at another place.
            let place = ["orders!one@orders.c:21", "orders!one@orders.c:22"][us as usize / 3000];
            acting.on(ONE, &[place, END[0], END[1]]);
            acting.nested(ONE, us, x, y).nested(TWO, us + 100, y, x);
        }
        acting.stage.end(5);
        order_risk(&acting.stage.model())
    };
    assert_eq!(risk(true), OrderRisk::Proved);
    assert_eq!(risk(false), OrderRisk::Reused);
}

#[test]
fn three_locks_in_a_circle() {
    let mut acting = two_threads();
    let three = 13;
    acting.stage.spawn(
        PID,
        three,
        0,
        "orders!three@orders.c:60",
        &["orders!main@orders.c:9"],
    );
    acting.on(three, &["orders!three@orders.c:61", END[0]]);
    for (at, (tid, first, second)) in [(ONE, A, B), (TWO, B, C), (three, C, A)]
        .into_iter()
        .enumerate()
    {
        let us = 2000 + 100 * at as u64;
        acting.nested(tid, us, first, second);
        acting.nested(tid, us + 1000, first, second);
    }
    acting.stage.end(5);
    let model = acting.stage.model();
    assert_eq!(kinds(&model), [("lock-order", true)]);
    assert_eq!(model.findings[0].objects.len(), 3);
}

#[test]
fn locks_of_libraries_at_the_same_addresses_are_told_apart() {
    let orders = |second: &str| {
        let mut acting = two_threads();
        let load = |id, path: &str, time_ns| ModuleLoaded {
            id,
            time_ns,
            path: path.into(),
            build_id: path.into(),
            start: A.min(B),
            end: A.max(B) + 0x1000,
            ..ModuleLoaded::default()
        };
        acting.stage.add(load(100, "first.so", 0));
        acting.nested(ONE, 2000, A, B).lock(ONE, 2100, A);
        acting.stage.add(ModuleUnloaded {
            id: 100,
            time_ns: 2_500_000,
        });
        acting.stage.add(load(101, second, 2_600_000));
        acting.nested(TWO, 3000, B, A).stage.end(20);
        let model = acting.stage.model();
        (model.sync.objects.len(), rows(&model))
    };
    let (objects, pairs) = orders("second.so");
    assert_eq!(pairs, [(A, B, 1, 1, false), (B, A, 1, 1, false)]);
    // The locks of the same library are the same objects again.
    let (again, circle) = orders("first.so");
    assert_eq!(circle, [(A, B, 1, 1, true), (B, A, 1, 1, true)]);
    assert_eq!(objects, again + 2);
}
