//! Sums of a profile with recursion, several threads and unnamed functions.

use super::*;
use crate::model::Place;

/// A profile with these samples: a thread, and its functions from the innermost on.
fn profile(samples: &[(usize, &[&str])]) -> Profile {
    let mut profile = Profile {
        period_ns: 10_000_000,
        span_ns: Some((0, 100)),
        sampled: Sampled::Running,
        ..Profile::default()
    };
    for (at, (thread, functions)) in samples.iter().enumerate() {
        let frames = functions.iter().map(|name| NamedFrame {
            place: Place {
                function: (!name.is_empty()).then(|| (*name).into()),
                module: Some("/bin/burn".into()),
                ..Place::default()
            },
            inlined: false,
            provenance: unspool_unwind::Provenance::Cfi,
            called: Some("other".into()),
        });
        profile.stacks.push(Arc::new(Backtrace {
            frames: frames.collect(),
            truncated: None,
        }));
        profile.samples.push(CpuSample {
            time_ns: at as u64,
            tid: 7,
            thread: Some(ThreadIndex(*thread)),
            cpu: 0,
            stack: at,
            in_kernel: false,
            is_cut: at == 0,
        });
    }
    profile
}

fn example() -> Profile {
    profile(&[
        (0, &["leaf", "walk", "walk", "main"]),
        (0, &["leaf", "main"]),
        (0, &["walk", "main"]),
        (1, &["", "work(int)", "start"]),
    ])
}

#[test]
fn recursion_counts_once() {
    let profile = example();
    let breakdown = Breakdown::of(&profile);
    let hits: Vec<(&str, u64, u64)> = breakdown
        .hits(&profile.counts())
        .into_iter()
        .map(|(index, hits)| {
            let name = &*breakdown.functions[index.0].name;
            (name, hits.flat, hits.cum)
        })
        .collect();
    let expected = [
        ("leaf", 2, 2),
        ("walk", 1, 2),
        ("[burn]", 1, 1),
        ("main", 0, 3),
        ("start", 0, 1),
        ("work(int)", 0, 1),
    ];
    assert_eq!(hits, expected);
    let times = profile.stack_times();
    let second = times
        .iter()
        .filter(|one| one.thread == Some(ThreadIndex(1)));
    let second = breakdown.hits(&breakdown.weights(second));
    assert_eq!(second.len(), 3);
    assert_eq!(second[0].1.flat, profile.period_ns);
    assert_eq!((profile.hz(), profile.time_ns(4)), (100, 40_000_000));
}

#[test]
fn callers_and_callees() {
    let profile = example();
    let breakdown = Breakdown::of(&profile);
    let [walk] = breakdown.named("walk")[..] else {
        panic!("{:?}", breakdown.functions);
    };
    let near = breakdown.neighbours(walk, &profile.counts());
    let name = |index: Option<FunctionIndex>| index.map(|at| &*breakdown.functions[at.0].name);
    let names = |all: &[(Option<FunctionIndex>, u64)]| -> Vec<_> {
        all.iter().map(|(at, count)| (name(*at), *count)).collect()
    };
    assert_eq!(names(&near.callers), [(Some("main"), 2), (Some("walk"), 1)]);
    assert_eq!(names(&near.callees), [(Some("leaf"), 1), (Some("walk"), 1)]);
    assert_eq!(breakdown.named("work").len(), 1);
    assert_eq!(breakdown.named("wo").len(), 1);
    assert_eq!(breakdown.named("missing"), []);
    let [main] = breakdown.named("main")[..] else {
        panic!("{:?}", breakdown.functions);
    };
    let near = breakdown.neighbours(main, &profile.counts());
    assert_eq!(near.callers, [(None, 3)]);
}

#[test]
fn missing_samples_are_noted() {
    let mut profile = example();
    profile.lost = 3;
    profile.sampled = Sampled::InUserMode;
    let notes = profile.notes(0);
    assert_eq!(notes.len(), 3, "{notes:?}");
    assert!(notes[0].text.contains("3 of 7"), "{notes:?}");
    assert_eq!(Profile::default().notes(1), []);
    let notes = profile.notes(1);
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(
        notes[0].text.contains("processes that it started"),
        "{notes:?}"
    );
}

#[test]
fn arguments_are_no_part_of_the_name() {
    let cases = [
        ("sort<Order*, Less>(Order*, Order*)", "sort"),
        (
            "std::vector<Order>::push_back(Order&&)",
            "std::vector::push_back",
        ),
        (
            "(anonymous namespace)::run(int)",
            "(anonymous namespace)::run",
        ),
        (
            "<alloc::Vec<T> as Drop>::drop",
            "<alloc::Vec as Drop>::drop",
        ),
        ("Queue::operator()(Order) const", "Queue::operator() const"),
        ("work", "work"),
    ];
    for (name, short) in cases {
        assert_eq!(without_arguments(name), short);
    }
}
