//! Tests of the comparison: joining by keys and names, and what is noise.

use std::sync::Arc;

use super::join::{Identified, Identity, join};
use super::*;
use crate::model::Key;

const MS: u64 = 1_000_000;

impl Identified for Identity {
    fn identity(&self) -> &Identity {
        self
    }
}

/// A thread of a build, with its key, name and address.
fn thread(build: &str, key: u64, name: &str, address: u64) -> Identity {
    let is_named = name != "?";
    Identity {
        key: Some(Key(key)),
        build: Some(Arc::from(build)),
        full: format!("!{name}<!main<|main"),
        short: is_named.then(|| format!("!{name}")),
        bare: "<<|main".to_owned(),
        is_named,
        order: vec![address],
        own_name: String::new(),
        size: (1, 0),
    }
}

/// Per joined thing, its keys in the runs.
fn joined(runs: Vec<Vec<Identity>>) -> Vec<Vec<Option<u64>>> {
    let key = |one: &Option<Identity>| one.as_ref().and_then(|one| Some(one.key?.0));
    join(runs)
        .iter()
        .map(|joined| joined.runs.iter().map(key).collect())
        .collect()
}

#[test]
fn keys_join_runs_of_one_build() {
    // Without names, only keys tell the threads apart.
    let before = vec![thread("a", 1, "?", 0x10), thread("a", 2, "?", 0x20)];
    let after = vec![thread("a", 2, "?", 0x20), thread("a", 3, "?", 0x30)];
    assert_eq!(
        joined(vec![before, after]),
        [
            vec![Some(1), None],
            vec![Some(2), Some(2)],
            vec![None, Some(3)]
        ]
    );
}

#[test]
fn names_join_rebuilt_programs() {
    // The rebuilt program has another function at the same address, and thus the same key.
    let before = vec![thread("a", 1, "read", 0x10), thread("a", 2, "write", 0x20)];
    let after = vec![thread("b", 1, "write", 0x10), thread("b", 9, "read", 0x90)];
    assert_eq!(
        joined(vec![before, after]),
        [vec![Some(1), Some(9)], vec![Some(2), Some(1)]]
    );
    let renamed = vec![thread("a", 1, "read", 0x10)];
    let others = vec![thread("b", 2, "fetch", 0x10)];
    assert_eq!(joined(vec![renamed, others]).len(), 2);
}

#[test]
fn a_changed_creation_stack_leaves_the_function() {
    let before = thread("a", 1, "work", 0x10);
    let after = Identity {
        full: "!work<!start<!main<|main".to_owned(),
        ..thread("b", 2, "work", 0x10)
    };
    assert_eq!(
        joined(vec![vec![before], vec![after]]),
        [vec![Some(1), Some(2)]]
    );
}

#[test]
fn alike_threads_without_names_keep_their_order() {
    let sized = |identity: Identity, number| Identity {
        size: (number, 0),
        ..identity
    };
    // A new pool of two threads stands between the pools of eight and of four.
    let before = vec![
        sized(thread("a", 1, "?", 0x10), 8),
        sized(thread("a", 2, "?", 0x20), 4),
    ];
    let after = vec![
        sized(thread("b", 3, "?", 0x18), 8),
        sized(thread("b", 4, "?", 0x28), 2),
        sized(thread("b", 5, "?", 0x38), 4),
    ];
    let expected = [
        vec![Some(1), Some(3)],
        vec![Some(2), Some(5)],
        vec![None, Some(4)],
    ];
    assert_eq!(joined(vec![before.clone(), after.clone()]), expected);
    // Later recordings of the new build are joined by their keys.
    let twice = joined(vec![before, after.clone(), after]);
    assert_eq!(twice[2], [None, Some(4), Some(4)]);
}

#[test]
fn a_stripped_build_joins_the_unstripped_build() {
    let named = vec![thread("a", 1, "read", 0x10), thread("a", 2, "write", 0x20)];
    let stripped = vec![thread("b", 3, "?", 0x11), thread("b", 4, "?", 0x21)];
    assert_eq!(
        joined(vec![named, stripped]),
        [vec![Some(1), Some(3)], vec![Some(2), Some(4)]]
    );
}

fn change(before: &[u64], after: &[u64]) -> Change {
    Change {
        before: Spread::of(before.iter().map(|ms| ms * MS)),
        after: Spread::of(after.iter().map(|ms| ms * MS)),
        noise_ns: NOISE_NS,
    }
}

#[test]
fn one_recording_on_a_side_has_a_threshold() {
    assert!(change(&[100], &[115]).is_noise());
    assert!(!change(&[100], &[116]).is_noise());
    assert!(change(&[1000], &[1150]).is_noise());
    assert!(!change(&[1000], &[849]).is_noise());
    // Two recordings of a side show some of the noise.
    assert!(change(&[1000, 1000], &[1100]).is_noise());
    assert!(!change(&[1000, 1000], &[1101]).is_noise());
    assert!(change(&[0], &[10]).is_noise());
    assert!(!change(&[0], &[11]).is_noise());
}

#[test]
fn several_recordings_have_a_spread() {
    assert!(
        !change(&[100], &[200]).is_marked(),
        "one recording on each side shows no noise"
    );
    assert!(change(&[100], &[200, 210]).is_marked());
    let spread = Spread::of([30, 10, 20, 41]);
    assert_eq!((spread.min, spread.median, spread.max), (10, 25, 41));
    assert_eq!(Spread::of([]), Spread::default());
    // The ranges overlap, whatever the medians.
    assert!(change(&[100, 200, 100], &[200, 300, 300]).is_noise());
    assert!(!change(&[100, 200], &[300, 301]).is_noise());
    // Ranges of two recordings may differ by chance.
    assert!(change(&[100, 101], &[102, 103]).is_noise());
    let five = change(&[100, 101, 99, 100, 102], &[103, 104, 105, 103, 104]);
    assert!(!five.is_noise());
    assert_eq!(five.gap(), MS);
}

/// A run with a net length and one kind of threads: their path and work in milliseconds.
fn run(net: u64, threads: &[(&str, u64, u64, u64)], saved: u64) -> Run {
    Run::for_test(net * MS, threads, saved * MS)
}

fn first(diff: &Diff) -> Option<(Subject, Cause, i64)> {
    let first = diff.effects.first().filter(|effect| !effect.is_noise)?;
    let ms = first.effect_ns / MS as i64;
    Some((first.subject, first.cause, ms))
}

#[test]
fn effects_have_causes() {
    let compare = |before: Run, after: Run| Diff::of(vec![before], vec![after]);
    let base = || run(500, &[("work", 4, 500, 1000)], 0);
    // More work.
    let diff = compare(base(), run(600, &[("work", 4, 600, 1200)], 0));
    assert_eq!(first(&diff), Some((Subject::Threads(0), Cause::Work, 100)));
    assert!(diff.is_slower(10.0) && !diff.is_slower(25.0));
    assert_eq!(diff.slower_items(10.0).count(), 1);
    // As much work, now under a lock.
    let diff = compare(base(), run(1000, &[("work", 4, 1000, 1000)], 520));
    assert_eq!(
        first(&diff),
        Some((Subject::Lock(0), Cause::Contention, 500))
    );
    // As much work, one after the other without a lock.
    let diff = compare(base(), run(1000, &[("work", 4, 1000, 1000)], 0));
    let parallelism = Some((Subject::Threads(0), Cause::Parallelism, 500));
    assert_eq!(first(&diff), parallelism);
    // Another pool takes processors.
    let after = [("work", 4, 550, 1000), ("audit", 4, 250, 600)];
    let diff = compare(base(), run(800, &after, 0));
    assert_eq!(first(&diff), Some((Subject::Threads(1), Cause::New, 250)));
    let diff = compare(run(800, &after, 0), base());
    assert_eq!(first(&diff), Some((Subject::Threads(1), Cause::Gone, -250)));
    assert!(!diff.is_slower(0.0));
}

#[test]
fn a_path_that_moves_is_no_difference() {
    // Both threads take equally long, so either may have the path.
    let before = run(500, &[("one", 1, 490, 490), ("two", 1, 10, 490)], 0);
    let after = run(500, &[("one", 1, 10, 491), ("two", 1, 490, 489)], 0);
    let diff = Diff::of(vec![before], vec![after]);
    assert_eq!(first(&diff), None);
    assert_eq!(diff.slower_items(0.0).count(), 0);
    assert!(diff.can_judge());
}

#[test]
fn one_recording_shows_only_what_the_run_shows() {
    let before = || run(500, &[("one", 1, 300, 300), ("two", 1, 200, 200)], 0);
    let after = |net| run(net, &[("one", 1, 360, 360), ("two", 1, 200, 200)], 0);
    let compare = |net, count| {
        let diff = Diff::of(vec![before(); count], vec![after(net); count]);
        (first(&diff).is_some(), diff.slower_items(10.0).count())
    };
    // The thread takes 60 ms longer, the run does not.
    assert_eq!(compare(500, 1), (false, 0));
    assert_eq!(compare(520, 1), (false, 0));
    assert_eq!(compare(530, 1), (true, 1));
    assert_eq!(compare(500, 2), (true, 1));
}

#[test]
fn marks_and_verdict_have_the_same_noise() {
    let side = |net: u64| {
        let mut run = run(net, &[("work", 1, net, net)], 0);
        run.stolen_ns = 200 * MS;
        run
    };
    let diff = Diff::of(vec![side(500), side(510)], vec![side(650), side(660)]);
    assert!(diff.is_noise() && first(&diff).is_none());
    assert!(!diff.threads[0].path_ns.is_marked());
}

#[test]
fn a_disturbed_machine_hides_no_regression() {
    let disturbed = |net: u64| {
        let mut run = run(net, &[("work", 1, net, net)], 0);
        run.stolen_ns = 600 * MS;
        run
    };
    let diff = Diff::of(vec![disturbed(500)], vec![disturbed(1000)]);
    assert!(diff.is_noise() && !diff.can_judge());
    assert_eq!(diff.doubts, [Doubt::Disturbed]);
    let diff = Diff::of(vec![disturbed(500)], vec![disturbed(520)]);
    assert!(diff.is_noise() && diff.can_judge());
}

#[test]
fn a_busy_machine_makes_no_regression() {
    // Both recordings took equally long. A larger part of the first counts as delay by others.
    let busy = |net: u64, others: u64| {
        let mut run = run(net, &[("work", 1, net, net)], 0);
        run.others_ns = others * MS;
        run.wall_ns += run.others_ns;
        run
    };
    let diff = |others| Diff::of(vec![busy(213, 122)], vec![busy(323, others)]);
    assert!(diff(12).is_noise());
    assert!(!diff(110).is_noise());
}

#[test]
fn work_that_moves_between_threads_of_one_function_cancels_out() {
    // Any of the threads may do most of the work.
    let side = |ms: u64, first: bool| {
        let (heavy, light) = (("role", ms, ms), ("role", 0, 50));
        let (a, b) = if first {
            (heavy, light)
        } else {
            (light, heavy)
        };
        let threads = [("role a", 1, a.1, a.2), ("role b", 1, b.1, b.2)];
        run(ms, &threads, 0)
    };
    let several = |ms, roles: &[bool]| roles.iter().map(|role| side(ms, *role)).collect();
    let mixed: [&[bool]; 4] = [
        &[true],
        &[false],
        &[true, true, false],
        &[false, true, false],
    ];
    for before in mixed {
        for after in mixed {
            let diff = Diff::of(several(300, before), several(500, after));
            let found = first(&diff).map(|(_, cause, ms)| (cause, ms));
            assert_eq!(found, Some((Cause::Work, 200)), "{before:?} {after:?}");
            assert!(diff.is_slower(10.0) && diff.slower_items(10.0).count() == 1);
            let equal = Diff::of(several(500, before), several(500, after));
            assert_eq!(first(&equal), None, "{before:?} {after:?}");
        }
    }
    let diff = Diff::of(several(300, &[true]), several(500, &[false]));
    assert_eq!((diff.threads.len(), diff.threads[0].identities), (1, 2));
}

#[test]
fn threads_with_own_tasks_are_compared_one_by_one() {
    let of = |a: u64, b: u64| run(a + b, &[("work a", 1, a, a), ("work b", 1, b, b)], 0);
    let diff = Diff::of(vec![of(300, 200)], vec![of(500, 200)]);
    assert_eq!(first(&diff), Some((Subject::Threads(0), Cause::Work, 200)));
    assert_eq!(diff.threads.len(), 2);
    // The path moves to a thread that is off it otherwise, and the work grows there only.
    let before = run(500, &[("read", 1, 400, 400), ("work b", 1, 100, 400)], 0);
    let after = run(700, &[("read", 1, 400, 400), ("work b", 1, 300, 600)], 0);
    let diff = Diff::of(vec![before], vec![after]);
    assert_eq!(first(&diff), Some((Subject::Threads(1), Cause::Work, 200)));
    // A new pool with the same function has an effect of its own.
    let before = run(500, &[("work a", 4, 500, 1000)], 0);
    let after = [("work a", 4, 550, 1000), ("work b", 4, 250, 600)];
    let diff = Diff::of(vec![before], vec![run(800, &after, 0)]);
    assert_eq!(first(&diff), Some((Subject::Threads(1), Cause::New, 250)));
}
