//! Tests of histories from constructed captures: creations, ends, and missing data.

use crate::model::fixture::{PID, Stage, TIMED_JOIN};
use crate::model::{Creation, Ending, Model, Severity, Thread, ThreadIndex};
use unspool_capture::{Capture, Cut, CutReason, Dropped, Record, ThreadSeen};

const MAIN: &[&str] = &[
    "orders!start@orders.c:27",
    "orders!main@orders.c:125",
    "libc.so.6!__libc_start_main",
];

fn thread(model: &Model, tid: u64) -> &Thread {
    let mut found = model
        .threads
        .iter()
        .filter(|thread| thread.tid == Some(tid));
    let first = found.next().unwrap_or_else(|| panic!("no thread {tid}"));
    assert!(found.next().is_none(), "two threads {tid}");
    first
}

fn notes(model: &Model) -> String {
    model
        .notes
        .iter()
        .map(|note| format!("{}\n", note.long()))
        .collect()
}

#[test]
fn a_thread_from_creation_to_join() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 5, "orders!worker", MAIN);
    stage.name(11, "pool", 7);
    stage.join(PID, 7, 11 << 12);
    stage.exit(11, 8);
    stage.end(9);
    let model = stage.model();
    assert_eq!(model.notes, []);
    let worker = thread(&model, 11);
    assert_eq!(worker.name, "pool");
    assert_eq!(
        worker.function.as_ref().unwrap().function.as_deref(),
        Some("worker")
    );
    assert_eq!(worker.creator(), model.main());
    assert_eq!(worker.joiner, model.main());
    let stack = worker.creation_stack().unwrap();
    let names: Vec<_> = stack
        .frames
        .iter()
        .map(|f| f.place.function.as_deref().unwrap())
        .collect();
    assert_eq!(
        names,
        ["start", "main", "__libc_start_main"],
        "without pthread_create"
    );
    assert_eq!(
        (worker.created_ns, worker.started_ns),
        (Some(5_000_001), Some(6_000_002))
    );
    assert_eq!(
        (worker.ended_ns, worker.ending, worker.end_exact),
        (Some(8_000_000), Ending::Joined, true)
    );
    let main = thread(&model, PID);
    assert_eq!(
        (&main.creation, main.ending),
        (&Creation::Main, Ending::Exited)
    );
}

#[test]
fn inlined_callers_of_the_creation_function_stay() {
    let mut stage = Stage::new();
    stage.spawn(
        PID,
        11,
        5,
        "orders!worker",
        &["~orders!inlined", "orders!outer"],
    );
    let model = stage.model();
    let stack = thread(&model, 11).creation_stack().unwrap();
    assert_eq!(stack.frames.len(), 2);
    assert!(stack.frames[0].inlined);
}

#[test]
fn equal_creations_are_told_apart_by_handle() {
    let mut stage = Stage::new();
    let one = stage.create(PID, 1, "orders!worker", 0, &["orders!first"]);
    let two = stage.create(PID, 2, "orders!worker", 0, &["orders!second"]);
    // The later creation's thread is first to run; its own handle (fs_base) is what lies at `two`.
    let handles = [(one, 0xa000), (two, 0xb000)];
    stage.start(12, 3, "orders!worker", 0, &handles, 0xb000);
    stage.start(11, 4, "orders!worker", 0, &handles[..1], 0xa000);
    let model = stage.model();
    let caller = |tid| {
        let stack = thread(&model, tid).creation_stack().unwrap();
        stack.frames[0]
            .place
            .function
            .as_deref()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        (caller(11).as_str(), caller(12).as_str()),
        ("first", "second")
    );
    assert!(!notes(&model).contains("order of events"));
}

#[test]
fn a_place_that_is_used_again_keeps_its_first_handle() {
    let mut stage = Stage::new();
    let place = stage.create(PID, 1, "orders!worker", 0, &["orders!first"]);
    stage.create(PID, 2, "orders!worker", 0, &["orders!second"]);
    // The content of the place was read before it was overwritten.
    stage.same_place(place, 0xa000);
    // By then the creator has returned, and other things lie there.
    stage.start(12, 3, "orders!worker", 0, &[(place, 0x7ffc)], 0xb000);
    stage.start(11, 4, "orders!worker", 0, &[(place, 0x7ffc)], 0xa000);
    let model = stage.model();
    let stack = thread(&model, 12).creation_stack().unwrap();
    assert_eq!(stack.frames[0].place.function.as_deref(), Some("second"));
    assert!(!notes(&model).contains("order of events"));
}

#[test]
fn a_thread_is_not_given_a_creation_younger_than_itself() {
    let mut stage = Stage::new();
    stage.create(PID, 1, "orders!worker", 0, &["orders!first"]);
    stage.seen(11, "worker", 2);
    let two = stage.create(PID, 3, "orders!worker", 0, &["orders!second"]);
    // What lies at the second's place is left over from the first.
    stage.start(11, 4, "orders!worker", 0, &[(two, 0xa000)], 0xa000);
    stage.start(12, 5, "orders!worker", 0, &[(two, 0xb000)], 0xb000);
    let model = stage.model();
    for (tid, function) in [(11, "first"), (12, "second")] {
        let stack = thread(&model, tid).creation_stack().unwrap();
        assert_eq!(stack.frames[0].place.function.as_deref(), Some(function));
    }
}

#[test]
fn without_handles_order_decides_and_is_said_to() {
    let mut stage = Stage::new();
    stage.create(PID, 1, "orders!worker", 0, &["orders!first"]);
    stage.create(PID, 2, "orders!worker", 0, &["orders!second"]);
    stage.start(11, 3, "orders!worker", 0, &[], 0);
    stage.start(12, 4, "orders!worker", 0, &[], 0);
    let model = stage.model();
    assert!(matches!(
        thread(&model, 11).creation,
        Creation::Seen { inferred: true, .. }
    ));
    assert!(matches!(
        thread(&model, 12).creation,
        Creation::Seen {
            inferred: false,
            ..
        }
    ));
    let stack = thread(&model, 11).creation_stack().unwrap();
    assert_eq!(stack.frames[0].place.function.as_deref(), Some("first"));
    assert!(notes(&model).contains(
        "Several creations match 1 thread equally well. Unspool chose by the order of events"
    ));
}

#[test]
fn a_tid_used_again_is_another_thread() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.exit(11, 3);
    stage.spawn(PID, 11, 4, "orders!other", MAIN);
    // This thread's end is missed, and a third thread gets the TID.
    stage.spawn(PID, 11, 7, "orders!worker", MAIN);
    let model = stage.model();
    let same: Vec<&Thread> = model.threads.iter().filter(|t| t.tid == Some(11)).collect();
    assert_eq!(same.len(), 3);
    assert_eq!(
        (same[0].ended_ns, same[0].end_exact),
        (Some(3_000_000), true)
    );
    assert_eq!(
        (same[1].ended_ns.is_some(), same[1].end_exact),
        (true, false)
    );
    assert_eq!(same[2].ending, Ending::Alive);
    assert_ne!(same[0].key, same[1].key);
    assert_eq!(same[0].key, same[2].key);
    assert!(notes(&model).contains("The end of 1 thread was not seen"));
}

#[test]
fn seen_before_or_after_its_events_a_thread_is_one() {
    let mut stage = Stage::new();
    let place = stage.create(PID, 1, "orders!worker", 0, MAIN);
    stage.seen(11, "early", 2);
    stage.start(11, 3, "orders!worker", 0, &[(place, 0xa000)], 0xa000);
    stage.seen(11, "again", 4);
    stage.spawn(PID, 12, 5, "orders!worker", MAIN);
    stage.seen(12, "late", 8);
    stage.exit(11, 9);
    stage.exit(11, 9);
    let model = stage.model();
    assert_eq!(model.threads.len(), 3);
    assert_eq!(thread(&model, 11).name, "again");
    assert_eq!(thread(&model, 12).name, "late");
}

#[test]
fn joins_and_detaches_find_their_threads() {
    let mut stage = Stage::new();
    // Joined before it was seen to start.
    let place = stage.create(PID, 1, "orders!worker", 0, MAIN);
    stage.join(PID, 2, 0xa000);
    stage.start(11, 3, "orders!worker", 0, &[(place, 0xa000)], 0xa000);
    stage.exit(11, 4);
    // The handle again, for a thread that is detached by itself.
    let place = stage.create(PID, 5, "orders!worker", 0, MAIN);
    stage.start(12, 6, "orders!worker", 0, &[(place, 0xa000)], 0xa000);
    stage.detach(12, 7, 0xa000);
    stage.exit(12, 8);
    // Created detached, alive.
    stage.create(PID, 9, "orders!worker", 0, MAIN);
    stage.with_detached_attr();
    stage.start(13, 10, "orders!worker", 0, &[], 0xc000);
    // Exited, and no thread joins it.
    stage.spawn(PID, 14, 11, "orders!worker", MAIN);
    stage.exit(14, 13);
    let model = stage.model();
    let ending = |tid| thread(&model, tid).ending;
    assert_eq!(ending(11), Ending::Joined);
    assert_eq!(ending(12), Ending::Detached);
    assert_eq!(
        (ending(13), thread(&model, 13).detached),
        (Ending::Alive, true)
    );
    assert_eq!(ending(14), Ending::Exited);
}

/// On ARM and AArch64 the thread pointer points behind the thread's structure, and the handle is
/// the structure's address.
#[test]
fn handles_lie_below_thread_pointers() {
    let mut stage = Stage::new();
    stage.on_aarch64();
    for (tid, ms, pointer) in [(11, 1, 0xa_0000), (12, 3, 0xa_5000), (13, 5, 0xb_0000)] {
        stage.create(PID, ms, "orders!worker", 0, MAIN);
        stage.told(tid, PID, ms + 1, pointer);
    }
    stage.join(PID, 7, 0xa_5000 - 0x700);
    stage.exit(12, 8);
    stage.detach(PID, 9, 0xb_0000 - 0x700);
    stage.exit(13, 10);
    stage.exit(11, 11);
    let model = stage.model();
    let ending = |tid| thread(&model, tid).ending;
    assert_eq!(ending(12), Ending::Joined);
    assert_eq!(ending(13), Ending::Detached);
    assert_eq!(ending(11), Ending::Exited);
}

/// Two joins of a handle with one thread that had it: the other thread's start was recorded late,
/// and it would look as if it was never joined.
#[test]
fn joins_without_a_thread_leave_ends_in_doubt() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.join(PID, 3, 11 << 12);
    stage.join(PID, 5, 11 << 12);
    assert!(!stage.model().recording.knows_joins());

    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.join(PID, 3, 11 << 12);
    // In musl, pthread_join calls another join function.
    stage.event(PID, 3, TIMED_JOIN, vec![11 << 12], Vec::new(), None);
    stage.detach(PID, 4, 12 << 12);
    stage.spawn(PID, 12, 5, "orders!worker", MAIN);
    assert!(stage.model().recording.knows_joins());
    stage.detach(PID, 6, 13 << 12);
    stage.detach(PID, 7, 13 << 12);
    stage.spawn(PID, 13, 8, "orders!worker", MAIN);
    assert!(!stage.model().recording.knows_joins());
}

#[test]
fn a_thread_that_continues_after_a_join_has_joined() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.spawn(PID, 12, 3, "orders!worker", MAIN);
    stage.join(PID, 5, 11 << 12);
    stage.join(PID, 6, 12 << 12);
    let model = stage.model();
    assert_eq!(
        (thread(&model, 11).ending, thread(&model, 11).end_exact),
        (Ending::Joined, false)
    );
    assert_eq!(
        thread(&model, 12).ending,
        Ending::Alive,
        "main may still wait for it"
    );
}

#[test]
fn joins_imply_ends_if_no_exits_are_reported() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!listener", MAIN);
    stage.spawn(11, 12, 3, "orders!worker", MAIN);
    stage.spawn(PID, 13, 5, "orders!worker", MAIN);
    stage.join(11, 7, 12 << 12);
    stage.join(PID, 8, 11 << 12);
    stage.join(PID, 9, 13 << 12);
    let running = stage.model();
    for tid in [11, 12] {
        assert_eq!(
            (
                thread(&running, tid).ending,
                thread(&running, tid).end_exact
            ),
            (Ending::Joined, false)
        );
    }
    assert_eq!(
        thread(&running, 13).ending,
        Ending::Alive,
        "main may still wait for it"
    );
    stage.end(10);
    let model = stage.model();
    assert_eq!(thread(&model, 13).ending, Ending::Joined);
    assert!(notes(&model).contains("Unspool assumes that the main thread's last join returned"));
}

#[test]
fn threads_that_the_program_took_with_it_were_alive() {
    let mut stage = Stage::new();
    for (tid, ms) in [(11, 1), (12, 3), (13, 5)] {
        stage.spawn(PID, tid, ms, "orders!worker", MAIN);
    }
    stage.join(PID, 20, 12 << 12);
    stage.exit(11, 22);
    stage.exit(12, 29);
    stage.exit(13, 30);
    stage.end(31);
    let model = stage.model();
    assert_eq!(
        thread(&model, 11).ending,
        Ending::Exited,
        "long before the program's end"
    );
    assert_eq!(thread(&model, 12).ending, Ending::Joined);
    assert_eq!(
        (thread(&model, 13).ending, thread(&model, 13).ended_ns),
        (Ending::Alive, None)
    );
}

#[test]
fn a_thread_that_continues_was_not_joined() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.join(PID, 3, 11 << 12);
    stage.detach(PID, 4, 99);
    stage.create(11, 5, "orders!worker", 0, MAIN);
    let model = stage.model();
    assert_eq!(thread(&model, 11).ending, Ending::Alive);
    assert_eq!(model.threads.len(), 2);
}

#[test]
fn a_cut_capture_says_so_and_links_what_is_left() {
    let mut stage = Stage::new();
    stage.create(PID, 1, "orders!worker", 0, MAIN);
    stage.seen(11, "", 2);
    stage.create(PID, 3, "orders!worker", 1, MAIN);
    let mut capture = Capture::from_records(stage.records.clone());
    capture.cut = Some(Cut {
        offset: 77,
        reason: CutReason::NoEnd,
    });
    let model = stage.model_of(&capture);
    assert!(model.recording.cut);
    assert_eq!(model.notes[0].severity, Severity::Error);
    assert!(
        model.notes[0].text.contains("cut at byte 77"),
        "{}",
        model.notes[0].text
    );
    assert!(matches!(
        thread(&model, 11).creation,
        Creation::Seen { inferred: true, .. }
    ));
    assert!(notes(&model).contains("The id and the end of 1 thread are not known"));
}

#[test]
fn a_creation_without_a_start_is_counted_where_starts_are_watched() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.create(PID, 3, "orders!worker", 1, MAIN);
    let model = stage.model();
    assert_eq!(model.threads.len(), 2);
    assert!(notes(&model).contains("1 creation did not lead to a thread that was seen"));
}

#[test]
fn where_starts_are_not_watched_threads_are_known_by_their_stacks() {
    let mut stage = Stage::new();
    let place = stage.create(PID, 1, "orders!worker", 0, &["orders!first"]);
    stage.create(PID, 2, "orders!worker", 0, &["orders!second"]);
    stage.same_place(place, 0xa0_0000);
    // The first one's stack is used again, so both had the same handle.
    stage.meet(12, 4, 0x9f_f000, &[(place, 0xa0_0000)]);
    let other = stage.create(PID, 5, "orders!other", 0, &["orders!third"]);
    stage.meet(13, 6, 0x8f_f000, &[(place, 0xa0_0000), (other, 0x90_0000)]);
    stage.create(13, 7, "orders!other", 0, &["orders!other"]);
    stage.end(9);
    let model = stage.model();
    let told = |thread: &Thread| {
        let stack = thread.creation_stack().unwrap();
        let creator = model.thread(thread.creator().unwrap()).unwrap();
        (
            thread.tid,
            stack.frames[0]
                .place
                .function
                .as_deref()
                .unwrap()
                .to_owned(),
            creator.tid,
            thread.ending,
        )
    };
    let created: Vec<_> = model.threads[1..].iter().map(told).collect();
    assert_eq!(
        created,
        [
            (Some(12), "second".into(), Some(PID), Ending::Alive),
            (Some(13), "third".into(), Some(PID), Ending::Alive),
            (None, "first".into(), Some(PID), Ending::Unknown),
            (None, "other".into(), Some(13), Ending::Unknown),
        ]
    );
    assert!(notes(&model).contains("The id and the end of 2 threads are not known"));
    assert!(!notes(&model).contains("order of events"));
}

#[test]
fn records_out_of_order_are_put_in_order() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage.exit(11, 5);
    let whole = stage.model();
    let last = stage.records.len() - 1;
    stage.records.swap(last, last - 1);
    assert_eq!(stage.model().threads, whole.threads);
    let doubled: Vec<Record> = stage
        .records
        .iter()
        .flat_map(|r| [r.clone(), r.clone()])
        .collect();
    stage.records = doubled;
    assert_eq!(stage.model().threads, whole.threads);
}

#[test]
fn lost_events_are_counted() {
    let mut stage = Stage::new();
    stage.spawn(PID, 11, 1, "orders!worker", MAIN);
    stage
        .records
        .retain(|record| !matches!(record, Record::Event(event) if event.seq == 1));
    stage.spawn(PID, 12, 3, "orders!worker", MAIN);
    stage.add(Dropped {
        probe: 1,
        count: 4,
        time_ns: 5,
    });
    let model = stage.model();
    assert_eq!(model.recording.dropped, 4);
    assert!(model.notes[0].text.starts_with("4 events were lost"));
    assert_eq!(thread(&model, 11).creation, Creation::Unseen);
}

#[test]
fn nothing_watched_is_no_empty_result() {
    let mut stage = Stage::new();
    stage
        .records
        .retain(|record| !matches!(record, Record::Probe(_)));
    let model = stage.model();
    assert_eq!(model.notes[0].severity, Severity::Error);
    assert!(
        model.notes[0]
            .text
            .starts_with("Thread creations were not recorded")
    );
    let empty = stage.model_of(&Capture::default());
    assert!(empty.notes[0].text.starts_with("No thread was recorded"));
}

#[test]
fn threads_from_before_are_known_by_their_stacks() {
    let mut stage = Stage::new();
    for (tid, function) in [
        (11, "orders!worker"),
        (12, "orders!worker"),
        (13, "orders!other"),
    ] {
        stage.add(ThreadSeen {
            tid,
            existed_before: true,
            ..Default::default()
        });
        stage.look(
            tid,
            0,
            &[
                "libc.so.6!nanosleep",
                function,
                "libc.so.6!start_thread",
                "libc.so.6!clone3",
            ],
        );
    }
    // Stripped: no name in the C library's start code.
    stage.add(ThreadSeen {
        tid: 14,
        existed_before: true,
        ..Default::default()
    });
    stage.look(
        14,
        0,
        &["libc.so.6!?", "orders!worker", "libc.so.6!?", "libc.so.6!?"],
    );
    let model = stage.model();
    let function = |tid| {
        thread(&model, tid)
            .function
            .as_ref()
            .and_then(|f| f.function.as_deref())
    };
    assert_eq!(function(11), Some("worker"));
    assert_eq!(function(13), Some("other"));
    assert_eq!(function(14), Some("worker"));
    let key = |tid| thread(&model, tid).key;
    assert_eq!((key(11), key(11)), (key(12), key(14)));
    assert_ne!(key(11), key(13));
    assert_eq!(thread(&model, 11).creation, Creation::Before);
    assert_eq!(thread(&model, 11).stack.as_ref().unwrap().frames.len(), 4);
    assert!(notes(&model).contains("4 threads ran before the recording began"));
    assert!(notes(&model).contains("Their functions come from their stacks."));
    // One whose stack leads nowhere, and one that could not be looked at.
    for tid in [15, 16] {
        stage.add(ThreadSeen {
            tid,
            existed_before: true,
            ..Default::default()
        });
    }
    stage.look(15, 0, &["libc.so.6!nanosleep"]);
    let model = stage.model();
    let text = "functions of 4 come from their stacks; those of 2 are not known.";
    assert!(notes(&model).contains(text), "{}", notes(&model));
}

#[test]
fn a_hostile_capture_makes_no_circle() {
    let mut stage = Stage::new();
    stage.add(ThreadSeen {
        tid: 11,
        existed_before: true,
        ..Default::default()
    });
    stage.spawn(11, 12, 1, "orders!worker", MAIN);
    // 12 creates what then starts as 11, who is older than it.
    stage.spawn(12, 11, 5, "orders!worker", MAIN);
    let model = stage.model();
    for (index, thread) in model.threads.iter().enumerate() {
        assert!(thread.creator() < Some(ThreadIndex(index)));
    }
}
