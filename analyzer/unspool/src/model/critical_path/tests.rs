//! Tests of the critical path and of replays with built schedules and waits. Times are
//! microseconds.

mod contended;
mod inexact;
mod work;

use super::replay::{Change, Replay};
use super::steps::Steps;
use super::*;
use crate::model::identity::Key;
use crate::model::schedule::{Interval, RunState};
use crate::model::sync::{UseIndex, Waiting};
use crate::model::thread::{Creation, Ending};
use crate::primitives::{Kind, Operation};
use std::sync::Arc;

const US: u64 = 1000;

/// A recording under construction. Thread ids are 100 and up, in the order of the threads.
#[derive(Default)]
struct Built {
    threads: Vec<Thread>,
    schedule: Schedule,
    waits: Vec<WaitSpan>,
    uses: Vec<Use>,
    objects: Vec<Object>,
    lock_of: HashMap<(ThreadIndex, CallIndex), Awaited>,
}

fn ran(cpu: u32) -> RunState {
    RunState::Running { cpu }
}

fn woken(by: u64) -> RunState {
    RunState::Woken { waker: Some(by) }
}

const TIMER: RunState = RunState::Woken { waker: None };

impl Built {
    fn new() -> Built {
        let mut built = Built::default();
        built.schedule.has_wakers = true;
        built.schedule.span_ns = Some((0, 0));
        built
    }

    /// Adds a thread and its intervals, each given by its end.
    fn thread(&mut self, creator: Option<usize>, from: u64, states: &[(u64, RunState)]) -> usize {
        let index = self.threads.len();
        let mut now = from * US;
        let intervals: Vec<Interval> = states
            .iter()
            .map(|(to, state)| Interval {
                from_ns: std::mem::replace(&mut now, to * US),
                to_ns: to * US,
                state: *state,
                call: None,
                continues: false,
            })
            .collect();
        self.threads.push(Thread {
            key: Key(index as u64),
            creation: match creator {
                Some(creator) => Creation::Seen {
                    creator: ThreadIndex(creator),
                    stack: Arc::default(),
                    inferred: false,
                },
                None => Creation::Main,
            },
            created_ns: Some(from * US),
            started_ns: Some(from * US),
            ended_ns: Some(now),
            end_exact: true,
            ending: Ending::Exited,
            ..Thread::new(Some(100 + index as u64))
        });
        self.schedule.threads.push(intervals);
        let to = self.schedule.span_ns.map_or(0, |(_, to)| to.max(now));
        self.schedule.span_ns = Some((0, to));
        index
    }

    fn object(&mut self, kind: Kind, waiting: Waiting) -> UseIndex {
        let object = ObjectIndex(self.objects.len());
        let used = UseIndex(self.uses.len());
        self.objects.push(Object::for_test(kind, used));
        self.uses
            .push(Use::for_test(object, Operation::Lock, waiting));
        used
    }

    fn wait(&mut self, thread: usize, used: UseIndex, from: u64, to: u64, waker: Option<usize>) {
        self.waits.push(WaitSpan {
            thread: ThreadIndex(thread),
            used,
            from_ns: from * US,
            to_ns: to * US,
            holder: None,
            waker: waker.map(ThreadIndex),
        });
    }

    fn facts<'a>(&'a self, identity_of: &'a [usize]) -> Facts<'a> {
        Facts {
            own_identities: usize::MAX,
            threads: &self.threads,
            schedule: &self.schedule,
            waits: &self.waits,
            uses: &self.uses,
            objects: &self.objects,
            identity_of,
            lock_of: &self.lock_of,
            duration_ns: self.schedule.span_ns.map_or(0, |(_, to)| to),
            processors: None,
            launched: true,
        }
    }

    fn path(&self) -> CriticalPath {
        let identities: Vec<usize> = (0..self.threads.len()).collect();
        CriticalPath::of(&self.facts(&identities), Functions::default()).expect("a path")
    }

    /// The path as thread, beginning and state, in microseconds.
    fn walked(&self) -> Vec<(usize, u64, PathState)> {
        let path = self.path();
        let mut end = path.span_ns().0;
        for segment in &path.segments {
            assert_eq!(segment.from_ns, end, "a gap: {path:#?}");
            end = segment.to_ns;
        }
        let segments = path.segments.iter();
        segments
            .map(|segment| (segment.thread.0, segment.from_ns / US, segment.state))
            .collect()
    }

    /// The length of a replay with a change, on this many processors, in microseconds.
    fn replayed(&self, processors: usize, last: usize, change: Change) -> u64 {
        let identities: Vec<usize> = (0..self.threads.len()).collect();
        let facts = self.facts(&identities);
        let mut steps = Steps::of(&facts).expect("steps");
        steps.processors = processors;
        let span_ns = steps.span_ns().expect("a span");
        let functions = Functions::default();
        let replay = Replay::of(&facts, &steps, &functions, ThreadIndex(last), span_ns);
        replay.length_ns(change) / US
    }
}

use PathState::{Blocked, Runnable, Running, Unknown};

/// A thread is created, and joined.
fn joined() -> Built {
    let mut built = Built::new();
    let main = [
        (100, ran(0)),
        (500, RunState::Blocked),
        (510, woken(101)),
        (600, ran(0)),
    ];
    built.thread(None, 0, &main);
    built.thread(Some(0), 80, &[(90, woken(100)), (505, ran(1))]);
    built
}

#[test]
fn a_join_leads_to_the_joined_thread_and_its_creator() {
    assert_eq!(
        joined().walked(),
        [
            (0, 0, Running),
            (1, 80, Runnable),
            (1, 90, Running),
            (0, 500, Runnable),
            (0, 510, Running),
        ]
    );
}

#[test]
fn a_timer_is_on_the_path_and_a_wait_for_a_thread_is_not() {
    let mut built = Built::new();
    let main = [
        (10, ran(0)),
        (700, RunState::Blocked),
        (701, woken(101)),
        (710, ran(0)),
    ];
    built.thread(None, 0, &main);
    let worker = [
        (300, ran(1)),
        (650, RunState::Blocked),
        (660, TIMER),
        (700, ran(1)),
    ];
    built.thread(Some(0), 10, &worker);
    // It waits for most of the time, and nothing waits for it.
    let other = [
        (20, ran(0)),
        (690, RunState::Blocked),
        (691, TIMER),
        (695, ran(0)),
    ];
    built.thread(Some(0), 10, &other);
    assert_eq!(
        built.walked(),
        [
            (0, 0, Running),
            (1, 10, Running),
            (1, 300, Blocked),
            (1, 650, Runnable),
            (1, 660, Running),
            (0, 700, Runnable),
            (0, 701, Running),
        ]
    );
}

#[test]
fn the_recorder_interrupts_a_call() {
    let recorder = 9;
    // The call goes on afterwards, until another process ends it; or the recording ends first.
    let call = Some(CallIndex(0));
    for (call, continues, expected) in [
        (None, false, PathState::Recorder),
        (call, true, PathState::Outside),
        (call, false, Unknown),
    ] {
        let mut built = Built::new();
        let states = [
            (100, ran(0)),
            (500, RunState::Blocked),
            (510, woken(recorder)),
            (520, ran(0)),
            (550, RunState::Blocked),
            (560, woken(recorder + 1)),
            (600, ran(0)),
        ];
        built.thread(None, 0, &states);
        built.schedule.recorder_tid = Some(recorder);
        let intervals = &mut built.schedule.threads[0];
        (intervals[1].call, intervals[4].call) = (call, call);
        intervals[4].continues = continues;
        let state_at_100 = built.walked()[1].2;
        assert_eq!(state_at_100, expected);
    }
}

#[test]
fn the_end_of_a_wait_was_lost() {
    let mut built = Built::new();
    let states = [
        (100, ran(0)),
        (500, RunState::Blocked),
        (510, RunState::Unknown),
        (600, ran(0)),
    ];
    built.thread(None, 0, &states);
    let state_at_100 = built.walked()[1].2;
    assert_eq!(state_at_100, Unknown);
}

#[test]
fn without_wakers_the_recorded_wakes_serve() {
    let mut built = Built::new();
    built.schedule.has_wakers = false;
    built.thread(
        None,
        0,
        &[(100, ran(0)), (500, RunState::Blocked), (600, ran(0))],
    );
    built.thread(Some(0), 80, &[(505, ran(1))]);
    assert_eq!(
        built.walked(),
        [(0, 0, Running), (0, 100, Blocked), (0, 500, Running)]
    );
    let join = built.object(Kind::Join, Waiting::Others);
    built.wait(0, join, 95, 510, Some(1));
    assert_eq!(
        built.walked(),
        [(0, 0, Running), (1, 80, Running), (0, 500, Running)]
    );
    assert_eq!(built.path().basis, Basis::Futexes);
    // The same where other wake-ups were recorded: kernels leave out some.
    built.schedule.has_wakers = true;
    assert_eq!(built.walked()[1], (1, 80, Running));
    let join = std::mem::take(&mut built.waits);
    assert_eq!(built.walked()[1], (0, 100, Blocked));
    (built.waits, built.schedule.has_wakers) = (join, false);
    // The waker may be unknown.
    built.waits[0].waker = None;
    assert_eq!(built.walked()[1], (0, 100, Unknown));
    // Without a schedule, all but waits counts as running.
    built.waits[0].waker = Some(ThreadIndex(1));
    built.schedule = Schedule::default();
    assert_eq!(
        built.walked(),
        [
            (0, 0, Running),
            (1, 80, Running),
            (1, 505, Unknown),
            (0, 510, Running)
        ]
    );
    assert_eq!(built.path().basis, Basis::Calls);
}

#[test]
fn a_signal_during_a_wait_does_not_end_it() {
    let mut built = Built::new();
    let main = [
        (10, ran(0)),
        (400, RunState::Blocked),
        (401, TIMER),
        (405, ran(0)),
        (700, RunState::Blocked),
        (701, woken(101)),
        (710, ran(0)),
    ];
    built.thread(None, 0, &main);
    built.thread(Some(0), 10, &[(700, ran(1))]);
    let join = built.object(Kind::Join, Waiting::Others);
    built.wait(0, join, 10, 702, Some(1));
    assert_eq!(built.walked()[1], (1, 10, Running));
    let faster = built.replayed(2, 0, Change::Threads(1));
    assert!((355..=375).contains(&faster), "{faster}");
    // The thread ends before the main thread blocks again.
    let intervals = &mut built.schedule.threads[0];
    intervals.truncate(4);
    intervals[1].to_ns = 699 * US;
    intervals[2].from_ns = 699 * US;
    intervals[2].to_ns = 702 * US;
    intervals[3].from_ns = 702 * US;
    intervals[3].to_ns = 710 * US;
    assert_eq!(built.walked()[1], (1, 10, Running));
    let faster = built.replayed(2, 0, Change::Threads(1));
    assert!((355..=375).contains(&faster), "{faster}");
}

#[test]
fn contradictory_wakes_end() {
    let mut built = Built::new();
    let both = |by| {
        [
            (100, ran(0)),
            (500, RunState::Blocked),
            (510, woken(by)),
            (600, ran(0)),
        ]
    };
    built.thread(None, 0, &both(101));
    built.thread(Some(0), 0, &both(100));
    let path = built.path();
    assert_eq!(path.length_ns(), 600 * US);
    // Times that go backwards.
    built.schedule.threads[1][2].from_ns = 50 * US;
    let path = built.path();
    assert!(path.length_ns() <= 600 * US);
    // A schedule without running threads has no path.
    built.schedule.threads = vec![Vec::new(); 2];
    let identities = [0, 1];
    assert_eq!(
        CriticalPath::of(&built.facts(&identities), Functions::default()),
        None
    );
}

/// Two threads take a lock in turn for 100 µs each, four times.
fn alternating() -> (Built, ObjectIndex) {
    let mut built = Built::new();
    let lock = built.object(Kind::Mutex, Waiting::Held);
    let main = [
        (10, ran(0)),
        (900, RunState::Blocked),
        (901, woken(102)),
        (910, ran(0)),
    ];
    built.thread(None, 0, &main);
    let mut first: Vec<(u64, RunState)> = vec![(100, ran(0))];
    let mut second: Vec<(u64, RunState)> = vec![(11, ran(1))];
    for round in 0..4 {
        let start = 100 + 200 * round;
        // The second one gets it at `start`, and the first one 100 later.
        second.extend([
            (start, RunState::Blocked),
            (start + 1, woken(101)),
            (start + 100, ran(1)),
        ]);
        if round < 3 {
            let waited = start + 100;
            first.extend([
                (waited, RunState::Blocked),
                (waited + 1, woken(102)),
                (waited + 100, ran(0)),
            ]);
        }
    }
    second.push((900, ran(1)));
    built.thread(Some(0), 10, &first);
    built.thread(Some(0), 10, &second);
    let waits: Vec<(usize, u64, u64)> = built
        .schedule
        .threads
        .iter()
        .enumerate()
        .skip(1)
        .flat_map(|(index, intervals)| {
            let blocked = intervals.iter().filter(|i| i.state == RunState::Blocked);
            blocked.map(move |i| (index, i.from_ns / US, i.to_ns / US))
        })
        .collect();
    for (thread, from, to) in waits {
        built.wait(thread, lock, from, to, Some(3 - thread));
    }
    (built, ObjectIndex(0))
}

#[test]
fn a_lock_that_serializes_is_found() {
    let (built, lock) = alternating();
    let path = built.path();
    assert_eq!(path.length_ns(), 910 * US);
    let at_lock: u64 = path
        .segments
        .iter()
        .filter(|segment| segment.object() == Some(lock))
        .map(Segment::length_ns)
        .sum();
    assert!(at_lock > 600 * US, "{path:#?}");
    assert_eq!(
        path.impacts[0].item,
        Item::Lock(lock),
        "{:#?}",
        path.impacts
    );
    // Each thread alone needs about 500 µs.
    let without = built.replayed(2, 0, Change::Lock(lock));
    assert!((480..=540).contains(&without), "{without}");
    assert!((890..=920).contains(&built.replayed(2, 0, Change::Nothing)));
    // On one processor nothing is gained.
    let crowded = built.replayed(1, 0, Change::Lock(lock));
    assert!(crowded > 850, "{crowded}");
}

#[test]
fn a_lock_without_recorded_calls_is_found() {
    let (mut built, _) = alternating();
    for wait in std::mem::take(&mut built.waits) {
        let lock = Awaited::LockWaits(0, CallIndex(0));
        built.lock_of.insert((wait.thread, CallIndex(0)), lock);
    }
    for intervals in built.schedule.threads.iter_mut().skip(1) {
        let blocked = intervals.iter_mut();
        for interval in blocked.filter(|it| it.state == RunState::Blocked) {
            interval.call = Some(CallIndex(0));
        }
    }
    let path = built.path();
    let at_lock = path.segments.iter();
    let at_lock = at_lock.filter(|segment| segment.lock_waits() == Some(0));
    let at_lock: u64 = at_lock.map(Segment::length_ns).sum();
    assert!(at_lock > 600 * US, "{path:#?}");
    assert_eq!(path.impacts[0].item, Item::LockWaits(0));
    let without = built.replayed(2, 0, Change::LockWaits(0));
    assert!((480..=540).contains(&without), "{without}");
    // It is not the recorded object with this number.
    let of_object = built.replayed(2, 0, Change::Lock(ObjectIndex(0)));
    assert!((890..=920).contains(&of_object), "{of_object}");
}

#[test]
fn a_faster_thread_meets_the_next_limit() {
    // A producer makes an item in 60 µs, and waits for the consumer, which needs 100 µs.
    let mut built = Built::new();
    let queue = built.object(Kind::Cond, Waiting::Others);
    let mut producer: Vec<(u64, RunState)> = vec![(60, ran(0))];
    for round in 1..10 {
        let taken = 100 * round;
        producer.extend([
            (taken, RunState::Blocked),
            (taken + 1, woken(101)),
            (taken + 60, ran(0)),
        ]);
        built.wait(0, queue, taken - 40, taken, Some(1));
    }
    producer.extend([
        (1000, RunState::Blocked),
        (1001, woken(101)),
        (1002, ran(0)),
    ]);
    built.thread(None, 0, &producer);
    built.thread(Some(0), 0, &[(1000, ran(1))]);
    let length = built.replayed(2, 0, Change::Nothing);
    assert!((990..=1010).contains(&length), "{length}");
    // Twice as fast it needs 50 µs, but gets an item only each 60 µs.
    let faster = built.replayed(2, 0, Change::Threads(1));
    assert!((590..=660).contains(&faster), "{faster}");
    let other = built.replayed(2, 0, Change::Threads(0));
    assert!((960..=1010).contains(&other), "{other}");
}

#[test]
fn processors_limit_a_replay() {
    // Two threads share a processor.
    let mut built = Built::new();
    built.thread(
        None,
        0,
        &[
            (100, ran(0)),
            (200, RunState::Preempted),
            (300, ran(0)),
            (400, RunState::Blocked),
            (401, woken(101)),
            (402, ran(0)),
        ],
    );
    built.thread(
        Some(0),
        0,
        &[
            (100, woken(100)),
            (200, ran(0)),
            (300, RunState::Preempted),
            (400, ran(0)),
        ],
    );
    let length = built.replayed(1, 0, Change::Nothing);
    assert!((395..=405).contains(&length), "{length}");
    let two = built.replayed(1, 0, Change::Processors(2));
    assert!((195..=205).contains(&two), "{two}");
    let impacts = built.path().impacts;
    assert_eq!(impacts[0].item, Item::Processors, "{impacts:#?}");
}

/// A slow thread between two that wait for it in system calls.
#[test]
fn the_path_leads_through_a_pipe() {
    use PathState::Running;
    let mut built = Built::new();
    let blocked = RunState::Blocked;
    // The source waits for room, and the last thread for data. The middle one reads at 10 and 70,
    // and writes at 60 and 130.
    let states = [(20, ran(0)), (70, blocked), (75, woken(101)), (140, ran(0))];
    built.thread(None, 0, &states);
    built.thread(Some(0), 0, &[(10, woken(100)), (130, ran(1))]);
    let states = [
        (5, ran(0)),
        (130, blocked),
        (135, woken(101)),
        (150, ran(0)),
    ];
    built.thread(Some(0), 0, &states);
    for (thread, name, file) in [(0, "write", "pipe:[1]"), (2, "read", "pipe:[2]")] {
        let call = CallIndex(built.schedule.calls.len() as u32);
        built.schedule.calls.push(BlockedCall {
            name,
            file: file.to_owned(),
            is_futex: false,
            waits_for: None,
        });
        built.schedule.threads[thread][1].call = Some(call);
    }
    let path = built.path();
    let read = Some(CallIndex(1));
    let segments = path.segments.iter();
    let segments = segments.map(|it| (it.thread.0, it.from_ns / US, it.state, it.call()));
    let segments: Vec<_> = segments.collect();
    assert_eq!(
        segments,
        [
            (1, 0, PathState::Runnable, None),
            (1, 5, PathState::Runnable, read),
            (1, 10, Running, read),
            (2, 130, PathState::Runnable, None),
            (2, 135, Running, None),
        ]
    );
    let first = &path.groups[0];
    let call = first.call.as_ref().map(|call| call.file.as_str());
    assert_eq!((first.identity, call), (1, Some("pipe:[2]")));
    // A wait at a futex is none for the system call.
    built.schedule.calls[1].is_futex = true;
    assert!(built.path().segments.iter().all(|it| it.awaited.is_none()));
}
