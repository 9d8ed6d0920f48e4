//! Simulates a program that hits tracepoints: what the budget spends, and which probes it pauses.

use super::*;
use crate::sys::Tid;

const US: u64 = 1000;
const HOT: u64 = 0x1000;
const COLD: u64 = 0x2000;

fn budget(share: Option<Share>) -> Budget {
    let mut budget = Budget {
        share,
        ..Budget::default()
    };
    budget.begin(SECOND, 0);
    budget
}

/// A simulated tracepoint.
struct Place {
    at: u64,
    /// Nanoseconds of program time between two hits.
    every: u64,
    held: u64,
    cpu: u64,
    needed: bool,
}

/// Two places with the same cost per hit. The rare one must not be paused for the frequent one.
const EQUALLY_DEAR: [Place; 2] = [
    Place {
        at: HOT,
        every: 10 * US,
        held: 5 * US,
        cpu: 8 * US,
        needed: false,
    },
    Place {
        at: COLD,
        every: SECOND / 10,
        held: 5 * US,
        cpu: 8 * US,
        needed: false,
    },
];

/// Number of times that the program passed a place in ten seconds, and number of hits seen.
#[derive(Clone, Copy, Default, Debug)]
struct Came {
    by: u64,
    seen: u64,
}

fn simulate<const N: usize>(budget: &mut Budget, places: &[Place; N]) -> [Came; N] {
    simulate_until(budget, places, 11 * SECOND)
}

fn simulate_until<const N: usize>(budget: &mut Budget, places: &[Place; N], end: u64) -> [Came; N] {
    let (mut now, mut cpu, mut paused) = (SECOND, 0, Vec::new());
    let mut came = [Came::default(); N];
    while now < end {
        now += 10 * US;
        budget.program.last += 10 * US;
        if budget.wait(now) == Some(0) {
            budget.settle(now, cpu);
            for at in budget.resume(now) {
                paused.retain(|other| *other != at);
            }
        }
        for (place, came) in places.iter().zip(&mut came) {
            // In the program's own time: it passes no place while it is stopped.
            if came.by * place.every > budget.program.last {
                continue;
            }
            came.by += 1;
            if paused.contains(&place.at) {
                continue;
            }
            came.seen += 1;
            (now, cpu) = (now + place.held + place.cpu, cpu + place.cpu);
            budget.report();
            if place.needed {
                budget.need(place.at);
            }
            budget.hit(now, place.at, place.held);
            budget.settle(now, cpu);
            while let Some(at) = budget.pause(now) {
                paused.push(at);
            }
        }
    }
    budget.end(now);
    came
}

#[test]
fn no_second_exceeds_the_budget_and_the_most_frequent_is_paused() {
    let mut budget = budget(Some(Share::USUAL));
    let [hot, cold] = simulate(&mut budget, &EQUALLY_DEAR);
    assert!(budget.worst <= SECOND / 20, "{}", budget.worst);
    assert!(budget.spent > SECOND / 20 * 10 / 2, "{}", budget.spent);
    // The program keeps at least 95 % of its speed.
    assert!(hot.by > 950_000, "{hot:?}");
    assert_eq!(cold.seen, cold.by);
    assert_eq!(budget.missed(11 * SECOND, COLD), Missed::default());
    let missed = budget.missed(11 * SECOND, HOT);
    assert!(
        missed.pauses > 10 && missed.paused_ns > 9 * SECOND,
        "{missed:?}"
    );
    let told = hot.seen + missed.hits;
    assert!(told.abs_diff(hot.by) < hot.by / 10, "{told} of {hot:?}");
}

/// The stub's work for its clients does not count as the cost of a hit.
#[test]
fn what_no_hit_causes_is_not_counted() {
    let mut budget = budget(Some(Share::USUAL));
    budget.hit(SECOND + US, HOT, US);
    budget.exclude(SECOND / 2);
    budget.settle(SECOND + 2 * US, SECOND / 2 + 3 * US);
    assert_eq!(
        (budget.spent, budget.pause(SECOND + 3 * US)),
        (4 * US, None)
    );
}

/// A few hits exhaust a small budget at once. What they say about the rate is enough to know that
/// most hits of a short run were missed.
#[test]
fn a_short_run_has_an_estimate() {
    let mut budget = budget(Share::parse("0.1%"));
    let [hot, cold] = simulate_until(&mut budget, &EQUALLY_DEAR, SECOND + 50 * 1000 * US);
    let missed = budget.missed(2 * SECOND, HOT).hits;
    assert!(hot.by > 4000 && cold.by < 2 && hot.seen < 20, "{hot:?}");
    assert!(
        (hot.by / 10..=hot.by).contains(&missed),
        "{missed} of {hot:?}"
    );
}

/// Nothing is known of the rate within a burst.
#[test]
fn the_rate_of_a_burst_is_that_of_a_millisecond() {
    let mut budget = budget(Some(Share::USUAL));
    budget.report();
    for _ in 0..100 {
        budget.hit(SECOND + US, HOT, SECOND / 10);
    }
    budget.settle(SECOND + US, 0);
    assert_eq!(budget.pause(SECOND + US), Some(HOT));
    budget.program.last += SECOND / 100;
    let missed = budget.missed(61 * SECOND, HOT);
    assert_eq!((missed.pauses, missed.hits), (1, 1000));
}

/// A program of which collectors take most of the time passes more places in a pause.
#[test]
fn the_rate_leaves_out_the_time_in_collectors() {
    let mut budget = budget(Some(Share::USUAL));
    for _ in 0..100_000 {
        budget.program.last += US;
        budget.program.exclude(900);
        budget.hit(SECOND, HOT, 900);
    }
    budget.settle(SECOND, 0);
    assert_eq!(budget.pause(SECOND), Some(HOT));
    budget.program.last += SECOND / 100;
    assert_eq!(budget.missed(61 * SECOND, HOT).hits, 100_000);
}

/// A small budget allows one hit between two pauses. Each count is too short for a rate, but all
/// counts together are not.
#[test]
fn short_counts_have_a_rate_together() {
    let mut budget = budget(Some(Share::USUAL));
    let mut now = SECOND;
    for _ in 0..100 {
        budget.program.last += 100 * US;
        budget.report();
        budget.hit(now, HOT, SECOND / 10);
        budget.settle(now, 0);
        assert_eq!(budget.pause(now), Some(HOT));
        budget.program.last += SECOND / 100;
        now += 10 * SECOND;
        budget.settle(now, 0);
        assert_eq!(budget.resume(now), [HOT]);
    }
    // 100 hits a pause, but not in the first pauses.
    let hits = budget.missed(now, HOT).hits;
    assert!((9_000..=10_000).contains(&hits), "{hits}");
}

/// A few expensive hits cost more than many cheap ones, and the cost must be lowered.
#[test]
fn the_most_expensive_is_paused_not_the_most_frequent() {
    let mut budget = budget(Some(Share::USUAL));
    let cheap = Place {
        at: HOT,
        every: 50 * US,
        held: US / 2,
        cpu: US / 2,
        needed: false,
    };
    let dear = Place {
        at: COLD,
        every: 2000 * US,
        held: 300 * US,
        cpu: 20 * US,
        needed: false,
    };
    let [cheap, dear] = simulate(&mut budget, &[cheap, dear]);
    assert!(budget.worst <= SECOND / 20, "{}", budget.worst);
    assert_eq!(cheap.seen, cheap.by);
    assert!(dear.seen < dear.by / 2, "{dear:?}");
}

/// Every hit of a needed place is seen at any rate. Other places are not paused more for it.
#[test]
fn needed_places_are_never_paused() {
    let needed = |every| Place {
        at: COLD,
        every,
        held: 200 * US,
        cpu: 100 * US,
        needed: true,
    };
    for every in [SECOND / 100, SECOND / 1000, 20 * US] {
        let mut budget = budget(Some(Share::USUAL));
        let [hot, _] = EQUALLY_DEAR;
        let [hot_came, needed_came] = simulate(&mut budget, &[hot, needed(every)]);
        assert_eq!(needed_came.seen, needed_came.by);
        assert_eq!(budget.missed(11 * SECOND, COLD), Missed::default());
        // Other places have the same budget as without it, and can use it.
        assert!(budget.worst <= SECOND / 20, "{}", budget.worst);
        assert!(budget.spent > SECOND / 20 * 10 / 2, "{}", budget.spent);
        assert!(hot_came.seen > 0 && budget.missed(11 * SECOND, HOT).pauses > 0);
        assert!(budget.exempt >= needed_came.seen * 300 * US);
    }
}

#[test]
fn without_a_limit_nothing_is_paused() {
    let mut budget = budget(None);
    let [hot, _] = simulate(&mut budget, &EQUALLY_DEAR);
    assert_eq!(hot.seen, hot.by);
    assert_eq!(budget.missed(11 * SECOND, HOT), Missed::default());
    assert!(budget.worst > SECOND / 3);
}

#[test]
fn a_single_expensive_hit_leaves_a_debt() {
    let mut budget = budget(Some(Share::USUAL));
    let late = 2 * SECOND;
    assert!(budget.hit(late, HOT, SECOND / 2));
    assert_eq!(budget.pause(late), Some(HOT));
    assert_eq!(budget.pause(late), None);
    let wait = budget.wait(late).expect("a pause that ends");
    assert!(wait > 12 * SECOND && wait < 13 * SECOND, "{wait}");
}

/// Threads record hits, and the stub drains them at one moment. The program has already used its
/// processor time for them by then.
#[test]
fn the_rate_of_a_drained_batch_is_not_overestimated() {
    let mut budget = budget(Some(Share::USUAL));
    budget.program.of = Some(Tid(std::process::id().cast_signed()));
    let work = |budget: &mut Budget| {
        let until = budget.program.now() + SECOND / 100;
        while budget.program.now() < until {}
    };
    work(&mut Budget {
        program: ProgramTime {
            of: budget.program.of,
            ..ProgramTime::default()
        },
        ..Budget::default()
    });
    let now = 2 * SECOND;
    budget.begin_batch();
    for _ in 0..100 {
        budget.hit(now, HOT, SECOND / 100);
    }
    budget.end_batch();
    assert_eq!(budget.pause(now), Some(HOT));
    work(&mut budget);
    let missed = budget.missed(now, HOT).hits;
    assert!(missed < 10_000, "{missed} in the time of a hundred");
}
