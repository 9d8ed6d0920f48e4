//! Tests of calls whose ends are recorded, are missing, or belong to other calls.

use unspool_capture::{
    Capture, Dropped, Gap, GapKind, Missed, ModuleLoaded, ModuleUnloaded, Probe, ProbeKind, Read,
    ReadRole, Record, ThreadExited,
};

use super::{Call, Calls, Moment};
use crate::model::fixture::{PID, Stage};

const LOCK: u32 = 10;
const LOCK_END: u32 = 11;
const SLOW: u32 = 12;
const SLOW_END: u32 = 13;
const WAIT: u32 = 14;
const RETURN: u32 = 15;
const STACK: &[&str] = &["libc.so.6!lock", "orders!main"];

/// A program in which `lock` jumps to `slow`, and the futex call is seen.
fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.instrument(LOCK, "libc.so.6!lock", ProbeKind::Enter);
    stage.instrument(SLOW, "libc.so.6!slow", ProbeKind::Enter);
    stage.instrument(WAIT, "libc.so.6!wait", ProbeKind::FutexWait);
    stage.instrument_end(LOCK_END, ProbeKind::Leave, &[LOCK]);
    stage.instrument_end(SLOW_END, ProbeKind::Leave, &[LOCK, SLOW]);
    stage.instrument_end(RETURN, ProbeKind::FutexReturn, &[WAIT]);
    stage
}

/// The events of a capture as text: `+` entered, `-` left, `?` lost, `!` and `|` cut short, `.` and
/// `:` unfinished (`|` and `:` not for sure).
fn events_as_text(stage: &mut Stage) -> (Vec<String>, Calls, Vec<Call>) {
    let capture = Capture::from_records(stage.records.clone());
    let model = stage.model_of(&capture);
    let (mut story, mut ended) = (Vec::new(), Vec::new());
    let calls = Calls::interpret(&capture, &model, stage, &mut |calls, moment| {
        let (sign, call) = match moment {
            Moment::Missing { .. } => return,
            Moment::Entered(call) => ("+", call),
            Moment::Left(call) => ("-", call),
            Moment::Lost { call, .. } => ("?", call),
            Moment::CutShort { call, sure: true } => ("!", call),
            Moment::CutShort { call, sure: false } => ("|", call),
            Moment::Unfinished { call, sure: true } => (".", call),
            Moment::Unfinished { call, sure: false } => (":", call),
        };
        if sign != "+" {
            ended.push(call.clone());
        }
        story.push(format!(
            "{sign}{}{}",
            calls.function(call.function).name,
            call.number
        ));
    });
    (story, calls, ended)
}

#[test]
fn calls_have_beginning_end_result_and_path() {
    let mut stage = stage();
    let first = stage.enter(PID, 100, LOCK, 0x7000, &[0xaa, 1, 2, 3], STACK);
    stage.leave(PID, 180, LOCK_END, 0x7000, 16);
    stage.enter_as(PID, 200, LOCK, 0x6f00, &[0xbb], first);
    stage.leave(PID, 230, LOCK_END, 0x6f00, 0);
    let (story, calls, ended) = events_as_text(&mut stage);
    assert_eq!(story, ["+lock0", "-lock0", "+lock1", "-lock1"]);
    let [one, two] = &ended[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (one.entered_ns, one.left_ns, one.result),
        (100, Some(180), Some(16))
    );
    assert_eq!(
        (two.entered_ns, two.left_ns, two.result),
        (200, Some(230), Some(0))
    );
    assert_eq!(
        (&one.args[..], &two.args[..]),
        (&[0xaa, 1, 2, 3][..], &[0xbb][..])
    );
    assert_eq!(one.path, two.path, "one stack");
    let functions: Vec<_> = calls
        .path(one.path)
        .frames
        .iter()
        .map(|f| f.place.function.clone())
        .collect();
    assert_eq!(functions, [Some("lock".into()), Some("main".into())]);
    assert_eq!(
        (calls.count, calls.lost, calls.strangers, calls.paths.len()),
        (2, 0, 0, 2)
    );
}

#[test]
fn a_tail_call_ends_with_its_target() {
    let mut stage = stage();
    stage.enter(PID, 100, LOCK, 0x7000, &[], STACK);
    stage.enter(PID, 110, SLOW, 0x7000, &[], STACK);
    stage.enter(PID, 120, WAIT, 0x6800, &[], STACK);
    stage.leave(PID, 300, RETURN, 0x6800, 0);
    stage.leave(PID, 310, SLOW_END, 0x7000, 0);
    let (story, _, ended) = events_as_text(&mut stage);
    assert_eq!(
        story,
        ["+lock0", "+slow1", "+wait2", "-wait2", "-slow1", "-lock0"]
    );
    assert_eq!(
        ended.iter().map(|call| call.within).collect::<Vec<_>>(),
        [Some(1), Some(0), None]
    );
}

#[test]
fn an_end_that_was_not_seen_is_not_invented() {
    let mut stage = stage();
    // Left by longjmp; its place is used again.
    stage.enter(PID, 100, LOCK, 0x7000, &[], STACK);
    stage.enter(PID, 200, LOCK, 0x7000, &[], STACK);
    stage.leave(PID, 250, LOCK_END, 0x7000, 0);
    // Left by longjmp; nothing uses its place.
    stage.enter(PID, 300, LOCK, 0x6000, &[], STACK);
    stage.enter(PID, 400, LOCK, 0x7000, &[], STACK);
    let (story, calls, _) = events_as_text(&mut stage);
    assert_eq!(
        story,
        [
            "+lock0", "?lock0", "+lock1", "-lock1", "+lock2", "+lock3", "?lock2", ".lock3"
        ]
    );
    assert_eq!(calls.lost, 2);
}

#[test]
fn a_call_on_another_stack_does_not_end_the_others() {
    let mut stage = stage();
    stage.enter(PID, 100, LOCK, 0x7000_0000, &[], STACK);
    // A coroutine a little above, and back.
    stage.enter(PID, 110, WAIT, 0x7000_9000, &[], STACK);
    stage.leave(PID, 120, RETURN, 0x7000_9000, 0);
    stage.leave(PID, 130, LOCK_END, 0x7000_0000, 0);
    let (story, ..) = events_as_text(&mut stage);
    assert_eq!(story, ["+lock0", "+wait1", "-wait1", "-lock0"]);
}

#[test]
fn a_call_that_may_have_ended_in_a_pause_has_no_end() {
    let mut stage = stage();
    stage.enter(PID, 100, LOCK, 0x7000, &[], STACK);
    stage.enter(PID, 110, WAIT, 0x6800, &[], STACK);
    stage.add(Missed {
        probe: LOCK_END,
        pauses: 1,
        ..Default::default()
    });
    stage.leave(PID, 200, RETURN, 0x6800, 0);
    stage.leave(PID, 300, LOCK_END, 0x7000, 0);
    stage.enter(PID, 400, WAIT, 0x6800, &[], STACK);
    stage.add(Dropped {
        probe: WAIT,
        count: 1,
        time_ns: 410,
    });
    let (story, ..) = events_as_text(&mut stage);
    assert_eq!(
        story,
        ["+lock0", "+wait1", "-wait1", "?lock0", "+wait2", ":wait2"]
    );
}

/// Two calls can look like one only if the end of the first and the beginning of the second are
/// missing.
#[test]
fn calls_are_not_confused_across_a_gap() {
    let gap = |stage: &mut Stage, probe, kind: GapKind| {
        stage.add(Gap {
            probe,
            kind: kind.into(),
            ..Default::default()
        });
    };
    let mut stage = stage();
    // Its beginnings are missing for a moment: its end is its own.
    stage.enter(PID, 100, LOCK, 0x7000, &[], STACK);
    gap(&mut stage, LOCK, GapKind::Paused);
    gap(&mut stage, LOCK, GapKind::Resumed);
    stage.leave(PID, 110, LOCK_END, 0x7000, 0);
    // So are ends, and it began among those that are missing.
    gap(&mut stage, LOCK_END, GapKind::Paused);
    gap(&mut stage, LOCK, GapKind::Dropped);
    stage.enter(PID, 200, LOCK, 0x7000, &[], STACK);
    gap(&mut stage, LOCK_END, GapKind::Resumed);
    stage.leave(PID, 210, LOCK_END, 0x7000, 0);
    // Both.
    stage.enter(PID, 300, LOCK, 0x7000, &[], STACK);
    gap(&mut stage, LOCK_END, GapKind::Dropped);
    gap(&mut stage, SLOW, GapKind::Dropped);
    stage.leave(PID, 310, LOCK_END, 0x7000, 0);
    // An end may be missing, or not have come.
    stage.enter(PID, 400, WAIT, 0x6800, &[], STACK);
    gap(&mut stage, RETURN, GapKind::Dropped);
    let (story, ..) = events_as_text(&mut stage);
    assert_eq!(
        story,
        [
            "+lock0", "-lock0", "+lock1", "-lock1", "+lock2", "?lock2", "+wait3", ":wait3"
        ]
    );
}

#[test]
fn threads_end_their_calls_and_a_tid_is_used_again() {
    let mut stage = stage();
    stage.seen(7, "one", 0);
    stage.enter(7, 100, LOCK, 0x7000, &[], STACK);
    stage.add(ThreadExited {
        tid: 7,
        time_ns: 2_000_000,
        exact: true,
        code: None,
        ..Default::default()
    });
    stage.seen(7, "two", 3);
    stage.enter(7, 4_000_000, LOCK, 0x7000, &[], STACK);
    stage.leave(7, 4_000_100, LOCK_END, 0x7000, 0);
    let (story, _, ended) = events_as_text(&mut stage);
    assert_eq!(story, ["+lock0", "!lock0", "+lock1", "-lock1"]);
    assert_eq!([ended[0].thread.0, ended[1].thread.0], [1, 2]);
}

#[test]
fn the_object_comes_with_the_call() {
    let mut stage = stage();
    stage.enter(PID, 100, WAIT, 0x7000, &[0x5000, 0x80, 2], STACK);
    if let Some(Record::Event(event)) = stage.records.last_mut() {
        event.reads.push(Read {
            role: ReadRole::Object.into(),
            address: 0x5000,
            bytes: vec![2, 0, 0, 0],
        });
    }
    let (story, _, ended) = events_as_text(&mut stage);
    assert_eq!(story, ["+wait0", ".wait0"]);
    assert_eq!(ended[0].object, Some((0x5000, vec![2, 0, 0, 0])));
}

#[test]
fn damaged_events_are_taken_as_they_are() {
    let mut stage = stage();
    stage.instrument_end(99, ProbeKind::Leave, &[98, 1, LOCK]);
    stage.leave(PID, 100, LOCK_END, 0x7000, 0);
    stage.enter_as(PID, 90, LOCK, 0x7000, &[], 12_345);
    stage.leave(PID, 80, 99, 0x7000, 0);
    let (story, calls, ended) = events_as_text(&mut stage);
    assert_eq!(story, ["+lock0", "-lock0"]);
    assert_eq!(
        ended[0].left_ns,
        Some(90),
        "clocks may jump, calls do not end before they begin"
    );
    assert!(calls.path(ended[0].path).frames.is_empty());
}

#[test]
fn a_function_of_a_library_that_is_loaded_again_is_one_function() {
    let mut stage = Stage::new();
    let loads = [
        ("plugin.so", 0x5000_0000),
        ("plugin.so", 0x6000_0000),
        ("other.so", 0x6000_0000),
    ];
    for (probe, (path, bias)) in (10..).step_by(2).zip(loads) {
        stage.add(ModuleLoaded {
            id: 100 + probe,
            path: path.into(),
            bias,
            start: bias,
            end: bias + 0x1000,
            ..ModuleLoaded::default()
        });
        stage.add(Probe {
            id: probe,
            function: "work".into(),
            avma: bias + 0x10,
            module: Some(100 + probe),
            kind: ProbeKind::Enter.into(),
            ..Probe::default()
        });
        stage.instrument_end(probe + 1, ProbeKind::Leave, &[probe]);
        let ns = u64::from(probe) * 1000;
        stage.enter(PID, ns, probe, 0x7000, &[], STACK);
        stage.leave(PID, ns + 500, probe + 1, 0x7000, 0);
        stage.add(ModuleUnloaded {
            id: 100 + probe,
            time_ns: ns + 600,
        });
    }
    stage.end(1);
    let (_, calls, ended) = events_as_text(&mut stage);
    let functions: Vec<usize> = ended.iter().map(|call| call.function.0).collect();
    assert_eq!((functions, calls.functions.len()), (vec![0, 0, 1], 2));
    assert!(ended.iter().all(|call| call.path == ended[0].path));
}
