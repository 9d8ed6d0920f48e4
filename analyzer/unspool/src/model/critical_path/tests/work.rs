//! Tests of the processors that a program could use, and of the time that others had them.

use super::*;
use crate::model::critical_path::Work;

/// Two threads share processor 0 for 20 ms. The second runs on another one between two times.
fn shared(elsewhere: Option<u64>) -> Built {
    let mut built = Built::new();
    let mut intervals = [Vec::new(), Vec::new()];
    for turn in 1..=20_u64 {
        let now = turn * 1000;
        let first = turn.is_multiple_of(2);
        intervals[usize::from(first)].push((now, ran(0)));
        if elsewhere == Some(turn) {
            intervals[usize::from(!first)].push((now - 100, RunState::Preempted));
            intervals[usize::from(!first)].push((now, ran(1)));
        } else {
            intervals[usize::from(!first)].push((now, RunState::Preempted));
        }
    }
    let [first, second] = intervals;
    built.thread(None, 0, &first);
    built.thread(Some(0), 0, &second);
    built
}

#[test]
fn a_program_that_leaves_its_processors_is_not_bound_to_them() {
    let processors = |elsewhere| {
        let built = shared(elsewhere);
        let identities = [0, 1];
        let mut facts = built.facts(&identities);
        facts.processors = Some(2);
        Steps::of(&facts).expect("steps").processors
    };
    assert_eq!(processors(None), 1);
    assert_eq!(processors(Some(10)), 2);
}

#[test]
fn a_run_is_not_shorter_than_its_busiest_thread() {
    let mut built = Built::new();
    let main = [
        (300, ran(0)),
        (350, RunState::Blocked),
        (351, woken(101)),
        (400, ran(0)),
    ];
    built.thread(None, 0, &main);
    built.thread(Some(0), 0, &[(300, woken(100)), (350, ran(1))]);
    let identities = [0, 1];
    let path = built.path();
    let work = Work::of(&built.facts(&identities), &path).expect("work");
    // The path waits for 300 us, half of it for other processes. But the main thread ran for 349.
    assert_eq!(work.runnable.others_ns, 51 * US);
}

/// The part of the path's waits for a processor that other programs are to blame for.
fn others_us(built: &Built) -> u64 {
    let identities: Vec<usize> = (0..built.threads.len()).collect();
    let mut facts = built.facts(&identities);
    facts.processors = Some(2);
    let work = Work::of(&facts, &built.path()).expect("work");
    work.runnable.others_ns / US
}

/// Two threads on processor 0. Each runs for 400 us after it has woken the other one, which waits
/// for that, and for another 100 us.
fn handed_over() -> Built {
    let mut built = Built::new();
    let mut intervals = [vec![(1200, RunState::Blocked)], Vec::new()];
    for turn in 1..=10_u64 {
        let (waker, woken_one) = ((turn % 2) as usize, (turn.is_multiple_of(2)) as usize);
        let now = turn * 1200;
        intervals[waker].push((now + 400, ran(0)));
        intervals[waker].push((now + 1200, RunState::Blocked));
        intervals[woken_one].push((now + 500, woken(100 + waker as u64)));
        intervals[woken_one].push((now + 1200, ran(0)));
    }
    let [first, second] = intervals;
    built.thread(None, 0, &first);
    built.thread(Some(0), 0, &second);
    built
}

#[test]
fn a_wait_behind_a_waker_is_not_due_to_others() {
    assert_eq!(others_us(&handed_over()), 1000);
}

#[test]
fn others_have_the_second_processor_if_the_first_stays_crowded() {
    assert_eq!(others_us(&shared(None)), 0);
    // Half of the times from 4 ms to 9.9 ms and from 14 ms to 20 ms.
    assert_eq!(others_us(&shared(Some(10))), 5950);
}
