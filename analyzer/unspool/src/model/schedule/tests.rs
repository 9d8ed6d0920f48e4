//! Tests of schedules by the kernel's records, and of the time in each state.

use unspool_capture::{
    BlockingCall, Schedule as Part, ScheduleKind, ScheduleLoss, StallCause, Stood,
};

use super::*;
use crate::model::fixture::{PID, Stage, schedule_begins, scheduled_on};
use crate::model::{Creation, Ending};

const MS: u64 = 1_000_000;

/// A schedule from the first millisecond on. Each entry has the microsecond, the kind, the thread,
/// the processor, and the detail.
fn recorded(
    entries: &[(u64, ScheduleKind, u64, u32, u64)],
    losses: &[ScheduleLoss],
) -> Vec<Record> {
    let begins = schedule_begins();
    let part = Part {
        losses: losses.to_vec(),
        ..scheduled_on(entries)
    };
    vec![begins.into(), part.into()]
}

fn model(stage: &mut Stage, records: Vec<Record>, end_ms: u64) -> Model {
    for record in records {
        stage.add(record);
    }
    stage.end(end_ms);
    stage.model()
}

fn index(model: &Model, tid: u64) -> ThreadIndex {
    let position = model.threads.iter().position(|t| t.tid == Some(tid));
    ThreadIndex(position.expect("the thread"))
}

/// A thread's intervals: microseconds, and the state's word.
fn states(model: &Model, tid: u64) -> Vec<(u64, u64, &'static str)> {
    let intervals = model.schedule.of_thread(index(model, tid)).iter();
    intervals
        .map(|it| (it.from_ns / 1000, it.to_ns / 1000, it.state.as_str()))
        .collect()
}

use ScheduleKind::{Blocks, Created, Ended, Found, Preempted, Runs, Woken};

#[test]
fn states_add_up_to_the_life() {
    let mut stage = Stage::new();
    let records = recorded(
        &[
            (1000, Found, PID, 0, b't'.into()),
            (1500, Runs, PID, 0, 0),
            (2000, Created, 7, 0, PID),
            (2200, Runs, 7, 1, 0),
            (2500, Blocks, PID, 0, 0),
            (3000, Preempted, 7, 1, 0),
            (3300, Runs, 7, 0, 0),
            (4000, Woken, PID, 0, 7),
            (4100, Runs, PID, 1, 0),
            (5000, Ended, 7, 0, 0),
            (6000, Blocks, PID, 1, 0),
        ],
        &[],
    );
    let model = model(&mut stage, records, 500);
    // No other record tells of this thread.
    let seven = index(&model, 7);
    let thread = model.thread(seven).unwrap();
    assert_eq!(thread.started_ns, Some(2 * MS));
    assert_eq!((thread.ended_ns, thread.end_exact), (Some(5 * MS), true));
    assert_ne!(thread.creation, Creation::Main);
    assert_eq!(
        states(&model, PID),
        [
            (0, 1500, "stopped"),
            (1500, 2500, "running"),
            (2500, 4000, "blocked"),
            (4000, 4100, "runnable"),
            (4100, 6000, "running"),
            (6000, 500_000, "unknown"),
        ]
    );
    assert_eq!(
        states(&model, 7),
        [
            (2000, 2200, "runnable"),
            (2200, 3000, "running"),
            (3000, 3300, "runnable"),
            (3300, 5000, "running"),
        ]
    );
    let times = model.schedule.times(seven);
    assert_eq!((times.running_ns, times.runnable_ns), (2_500_000, 500_000));
    assert_eq!((times.switches, times.preemptions), (2, 1));
    let total = model.sync.processors.totals[seven.0];
    assert_eq!((total.on_cpu_ns, total.runnable_ns), (2_500_000, 500_000));
    let wakers = |tid| {
        let intervals = model.schedule.of_thread(index(&model, tid));
        let states = intervals.iter().map(|it| it.state);
        states
            .filter(|it| matches!(it, RunState::Woken { .. }))
            .collect::<Vec<_>>()
    };
    assert_eq!(wakers(PID), [RunState::Woken { waker: Some(7) }]);
    assert_eq!(wakers(7), [RunState::Woken { waker: Some(PID) }]);
    let at = |us: u64| model.schedule.at(seven, us * 1000).map(|it| it.state);
    assert_eq!(at(1999), None);
    assert_eq!(at(2200), Some(RunState::Running { cpu: 1 }));
    assert_eq!(at(5000), None);
}

/// The waker's processor is faster than that of the thread that blocks.
#[test]
fn a_wake_up_before_the_thread_is_blocked() {
    let mut stage = Stage::new();
    let records = recorded(
        &[
            (1000, Found, PID, 0, b'R'.into()),
            (1990, Woken, PID, 1, 9),
            (2000, Blocks, PID, 0, 0),
            (2300, Runs, PID, 0, 0),
            // This wake-up came long before, and had already been handled.
            (2400, Woken, PID, 1, 9),
            (3000, Blocks, PID, 0, 0),
            (4000, Runs, PID, 0, 0),
        ],
        &[],
    );
    let model = model(&mut stage, records, 4);
    assert_eq!(
        states(&model, PID)[1..],
        [
            (1000, 2000, "running"),
            (2000, 2300, "runnable"),
            (2300, 3000, "running"),
            (3000, 4000, "blocked"),
        ]
    );
}

#[test]
fn lost_records_leave_time_unknown() {
    let mut stage = Stage::new();
    let loss = |from_us: u64, to_us: u64, cpu| ScheduleLoss {
        from_ns: from_us * 1000,
        to_ns: to_us * 1000,
        cpu,
        count: 5,
    };
    let records = recorded(
        &[
            (1000, Found, PID, 0, b'S'.into()),
            (2000, Runs, PID, 0, 0),
            (3000, Blocks, PID, 0, 0),
            (5000, Runs, PID, 1, 0),
            (7000, Blocks, PID, 1, 0),
            // That it ran before was lost.
            (8000, Blocks, PID, 1, 0),
            (9000, Runs, PID, 1, 0),
        ],
        &[
            loss(2500, 2600, 1),
            loss(3500, 3600, 0),
            loss(6000, 6500, 1),
        ],
    );
    let model = model(&mut stage, records, 9);
    assert_eq!(
        states(&model, PID)[2..],
        [
            (2000, 3000, "running"),
            (3000, 3500, "blocked"),
            (3500, 5000, "unknown"),
            (5000, 6000, "running"),
            (6000, 8000, "unknown"),
            (8000, 9000, "blocked"),
        ]
    );
    assert_eq!(model.schedule.lost, 15);
}

/// A reused thread id, and threads that the server reports a little late.
#[test]
fn threads_of_one_id() {
    let mut stage = Stage::new();
    stage.told(7, PID, 2, 0x7000);
    stage.exit(7, 4);
    let records = recorded(
        &[
            (1900, Created, 7, 0, PID),
            (2000, Runs, 7, 0, 0),
            (3900, Ended, 7, 0, 0),
            (5000, Created, 7, 1, PID),
            (5100, Runs, 7, 1, 0),
            (6000, Ended, 7, 1, 0),
        ],
        &[],
    );
    let model = model(&mut stage, records, 500);
    let threads = model.threads.iter().enumerate();
    let sevens: Vec<_> = threads.filter(|(_, t)| t.tid == Some(7)).collect();
    let lives: Vec<_> = sevens
        .iter()
        .map(|(_, t)| (t.started_ns, t.ended_ns))
        .collect();
    let us = |us: u64| Some(us * 1000);
    assert_eq!(lives, [(us(1900), us(3900)), (us(5000), us(6000))]);
    assert!(sevens.iter().all(|(_, t)| t.ending == Ending::Exited));
    let running = sevens
        .iter()
        .map(|(at, _)| model.schedule.times(ThreadIndex(*at)).running_ns);
    assert_eq!(running.collect::<Vec<_>>(), [1_900_000, 900_000]);
}

/// Entries in any order, of any thread, cause no panic.
#[test]
fn nonsense() {
    let kinds = [Runs, Blocks, Preempted, Created, Ended, Woken, Found];
    let mut seed = 1u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let mut at = 1000;
        let entries: Vec<_> = (0..50)
            .map(|_| {
                at += random(300);
                let kind = kinds[random(7) as usize];
                (at, kind, PID + random(3), random(2) as u32, random(200))
            })
            .collect();
        let loss = ScheduleLoss {
            from_ns: random(20) * MS,
            to_ns: random(20) * MS,
            cpu: 0,
            count: random(9),
        };
        let model = model(&mut Stage::new(), recorded(&entries, &[loss]), 30);
        for intervals in &model.schedule.threads {
            assert!(intervals.iter().all(|it| it.from_ns < it.to_ns));
            assert!(intervals.is_sorted_by(|a, b| a.to_ns <= b.from_ns));
        }
    }
}

#[test]
fn blocked_threads_have_their_system_calls() {
    let mut stage = Stage::new();
    let mut records = recorded(
        &[
            (2000, ScheduleKind::Runs, PID, 0, 0),
            (3000, ScheduleKind::Blocks, PID, 0, 1),
            (5000, ScheduleKind::Runs, PID, 0, 0),
            (6000, ScheduleKind::Blocks, PID, 0, 2),
            (9000, ScheduleKind::Runs, PID, 0, 0),
            // The file becomes known during the wait. Reports show another id of the call in the
            // same words.
            (10_000, ScheduleKind::Blocks, PID, 0, 6),
            (13_000, ScheduleKind::CallKnown, PID, 0, 3),
            (14_000, ScheduleKind::Runs, PID, 0, 0),
            (14_500, ScheduleKind::Blocks, PID, 0, 4),
            (14_800, ScheduleKind::Runs, PID, 0, 0),
            // A call that the capture does not have.
            (15_000, ScheduleKind::Blocks, PID, 0, 5),
        ],
        &[],
    );
    let call = |id, number, file: &str| BlockingCall {
        id,
        number: Some(number),
        args: vec![3, 0],
        file: file.to_owned(),
    };
    let Some(Record::Schedule(part)) = records.last_mut() else {
        panic!("no schedule");
    };
    // read, poll
    part.calls = vec![
        call(1, 0, "pipe:[7]"),
        call(2, 7, "anon_inode:[eventfd]"),
        call(3, 0, "pipe:[7]"),
        call(4, 9, ""),
        call(6, 0, ""),
    ];
    // The recorder halts the program.
    let halted = Stood {
        from_ns: 14_400_000,
        to_ns: 14_900_000,
        cause: StallCause::Halted.into(),
    };
    records.push(halted.into());
    let model = model(&mut stage, records, 20);
    let thread = index(&model, PID);
    let seen = model
        .schedule
        .call_times(model.intervals(thread))
        .into_iter()
        .map(|time| {
            let call = time.call.and_then(|call| model.schedule.call(call));
            let us = |ns| ns / 1000;
            let (sum, longest) = (us(time.blocked_ns), us(time.longest_ns));
            let (name, file) = call.map_or(("", ""), |call| (call.name, call.file.as_str()));
            (name, file, time.count, sum, longest)
        });
    let seen: Vec<_> = seen.collect();
    let expected = [
        ("read", "pipe:[7]", 2, 6000, 4000),
        ("poll", "", 1, 3000, 3000),
    ];
    assert_eq!(seen, expected);
    // Before the schedule began, and while the program was halted.
    assert_eq!(model.schedule.times(thread).stopped_ns, 1_300_000);
    let stopped = |from_us: u64, to_us: u64| {
        stopped_within(model.intervals(thread), from_us * 1000, to_us * 1000)
    };
    assert_eq!(
        (stopped(0, 20_000), stopped(500, 14_000)),
        (1_300_000, 500_000)
    );
    let name = |from_us: u64, to_us: u64| {
        let call = call_within(model.intervals(thread), from_us * 1000, to_us * 1000)?;
        model.schedule.call(call).map(|call| call.name)
    };
    assert_eq!(name(3000, 5000), Some("read"));
    assert_eq!(name(3000, 7000), Some("read"));
    assert_eq!(name(5000, 9000), Some("poll"));
    // The longest call has a part of the time; or no call is known.
    assert_eq!(
        (name(1000, 3500), name(15_000, 20_000)),
        (Some("read"), None)
    );
}

/// Each waker of blocked calls, with the microseconds until then.
fn wakes(model: &Model, tid: u64) -> Vec<(&'static str, Waker, u64, u64)> {
    let mut all = Vec::new();
    for (call, wakes) in model.wakers().call_wakes(index(model, tid)) {
        let Some(call) = call.and_then(|call| model.schedule.call(call)) else {
            continue;
        };
        let (name, wakes) = (call.name, wakes.into_iter());
        all.extend(wakes.map(|it| (name, it.waker, it.count, it.blocked_ns / 1000)));
    }
    all.sort_unstable();
    all
}

/// A reader and a sleeper (threads 7 and 8). The main thread writes.
fn blocked_in_calls(entries: &[(u64, ScheduleKind, u64, u32, u64)]) -> Vec<Record> {
    let mut records = recorded(entries, &[]);
    let Some(Record::Schedule(part)) = records.last_mut() else {
        panic!("no schedule");
    };
    let call = |id, number, file: &str| BlockingCall {
        id,
        number: Some(number),
        args: vec![3, 0],
        file: file.to_owned(),
    };
    // read, nanosleep
    part.calls = vec![call(READ, 0, "pipe:[7]"), call(SLEEP, 35, "")];
    records
}

/// A stop by the recorder takes the reader out of its call, which then goes on.
#[test]
fn stops_by_the_recorder_end_no_call() {
    const RECORDER: u64 = 99;
    let mut stage = Stage::new();
    let mut records = blocked_in_calls(&[
        (1000, Runs, PID, 0, 0),
        (2000, Blocks, PID, 0, READ),
        // Stopped, and resumed
        (5000, Woken, PID, 0, RECORDER),
        (5010, Runs, PID, 0, 0),
        // The call is not known this time.
        (5020, Blocks, PID, 0, 0),
        (6000, Woken, PID, 0, RECORDER),
        (6010, Runs, PID, 0, 0),
        (6020, Blocks, PID, 0, READ),
        (9000, Woken, PID, 0, STRANGER),
        (9010, Runs, PID, 0, 0),
        // The next call
        (9020, Blocks, PID, 0, READ),
        (9520, Woken, PID, 0, STRANGER),
        (9530, Runs, PID, 0, 0),
    ]);
    let Some(Record::Schedule(begins)) = records.first_mut() else {
        panic!("no schedule");
    };
    begins.recorder_tid = Some(RECORDER);
    let model = model(&mut stage, records, 10);
    let times = model
        .schedule
        .call_times(model.intervals(index(&model, PID)));
    let seen = times.iter().map(|it| (it.count, it.blocked_ns / 1000));
    // The last one: the second stop
    assert_eq!(seen.collect::<Vec<_>>(), [(2, 6480), (1, 980)]);
    assert_eq!(times[0].longest_ns / 1000, 5980);
    assert_eq!(wakes(&model, PID), [("read", Waker::Outside, 2, 6480)]);
}

const READ: u64 = 1;
const SLEEP: u64 = 2;
const STRANGER: u64 = 77;
const INTERRUPT: u64 = 0;

#[test]
fn wakers_of_blocked_calls() {
    let mut stage = Stage::new();
    let records = blocked_in_calls(&[
        (1000, Created, PID, 0, 1),
        (1100, Runs, PID, 0, 0),
        (1200, Created, 7, 0, PID),
        (1300, Created, 8, 0, PID),
        (1400, Runs, 7, 1, 0),
        (2000, Blocks, 7, 1, READ),
        (2100, Runs, 8, 1, 0),
        (2200, Blocks, 8, 1, SLEEP),
        (3000, Woken, 7, 0, PID),
        (3100, Runs, 7, 1, 0),
        (3200, Blocks, 7, 1, READ),
        (4200, Woken, 7, 0, PID),
        (4300, Runs, 7, 1, 0),
        (4400, Blocks, 7, 1, READ),
        // A timer fires while the main thread runs.
        (4500, Woken, 8, 0, INTERRUPT),
        (4600, Runs, 8, 1, 0),
        (4700, Blocks, 8, 1, SLEEP),
        (4900, Woken, 7, 0, STRANGER),
        (5000, Runs, 7, 1, 0),
        (5100, Blocks, 7, 1, 0),
        (5200, Woken, 7, 0, PID),
        (5300, Runs, 7, 1, 0),
        // The wake-up by an interrupt is not recorded.
        (5400, Runs, 8, 0, 0),
        (5500, Blocks, 8, 0, SLEEP),
    ]);
    let model = model(&mut stage, records, 10);
    let main = Waker::Thread(index(&model, PID));
    assert_eq!(
        wakes(&model, 7),
        [("read", main, 2, 2000), ("read", Waker::Outside, 1, 500),]
    );
    // What ends the last sleep is not known.
    assert_eq!(wakes(&model, 8), [("nanosleep", Waker::Interrupt, 2, 3000)]);
}

/// A thread that ends the program wakes all others.
#[test]
fn the_end_of_the_program_is_no_wake_up() {
    for goes_on in [false, true] {
        let mut stage = Stage::new();
        let mut entries = vec![
            (1000, Created, PID, 0, 1),
            (1100, Runs, PID, 0, 0),
            (1200, Created, 7, 0, PID),
            (1400, Runs, 7, 1, 0),
            (2000, Blocks, 7, 1, READ),
            (3000, Woken, 7, 0, PID),
            (3100, Runs, 7, 1, 0),
        ];
        // The main thread has more to do, so it did not end the program.
        if goes_on {
            entries.extend([
                (3200, Blocks, PID, 0, SLEEP),
                (3300, Woken, PID, 0, INTERRUPT),
                (3400, Runs, PID, 0, 0),
            ]);
        }
        entries.extend([(4000, Ended, 7, 1, 0), (4100, Ended, PID, 0, 0)]);
        let model = model(&mut stage, blocked_in_calls(&entries), 5);
        // The end of the thread itself was not seen: the program ended.
        let seven = index(&model, 7);
        assert_eq!(model.threads[seven.0].ended_ns, None);
        let main = Waker::Thread(index(&model, PID));
        let expected = [("read", main, 1, 1000)];
        assert_eq!(wakes(&model, 7), expected[..usize::from(goes_on)]);
    }
}
