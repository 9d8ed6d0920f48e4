//! Processes of small schedules: threads, times, programs, ids that are reused, the critical path.

use unspool_capture::{ProcessStarted, Schedule as Part, ScheduleKind as Kind};

use super::*;
use crate::model::diff::{Change, Diff, Run};
use crate::model::fixture::{PID, Stage, entry, schedule_begins, scheduled};

/// The main thread, which waits until process 20 ends. That process executes `sh`, and creates
/// process 21, which executes nothing and has a second thread, 22.
fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.add(Part {
        recorder_tid: Some(5),
        ..schedule_begins()
    });
    let entries = |entries: &[(u64, Kind, u64, u64)]| Part {
        names: vec!["sh".to_owned(), "helper".to_owned()],
        ..scheduled(entries)
    };
    stage.add(entries(&[
        (1000, Kind::Runs, PID, 0),
        (2000, Kind::Blocks, PID, 0),
        (8000, Kind::Woken, PID, 20),
        (8100, Kind::Runs, PID, 0),
        (9000, Kind::Ended, PID, 0),
    ]));
    stage.add(Record::Processes(entries(&[
        (1500, Kind::ProcessCreated, 20, PID),
        (2000, Kind::Runs, 20, 0),
        (2500, Kind::Executed, 20, 0),
        (3000, Kind::ProcessCreated, 21, 20),
        (3100, Kind::Blocks, 20, 0),
        (3100, Kind::Runs, 21, 0),
        (3500, Kind::Created, 22, 21),
        (3600, Kind::Named, 22, 1),
        (4000, Kind::Ended, 21, 0),
        (4000, Kind::Runs, 22, 0),
        (7000, Kind::Woken, 20, 22),
        (7000, Kind::Ended, 22, 0),
        (7100, Kind::Runs, 20, 0),
        (8000, Kind::Ended, 20, 0),
        // A stranger.
        (8500, Kind::Runs, 99, 0),
    ])));
    stage.add(ProcessStarted {
        pid: 20,
        creator_tid: Some(PID),
        time_ns: 1_600_000,
        executable: "/bin/dash".to_owned(),
    });
    stage.end(10);
    stage
}

#[test]
fn processes_of_the_schedule() {
    let model = stage().model();
    let all = &model.processes;
    let own = model.threads.len();
    assert_eq!(all.programs, [("sh".to_owned(), 2)]);
    let pids: Vec<u64> = all.all.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [20, 21]);
    let [first, second] = &all.all[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(first.executable, "/bin/dash");
    assert_eq!(first.executed, ["sh"]);
    assert_eq!(first.creator, model.main());
    assert_eq!(second.creator, Some(ThreadIndex(own)));
    assert_eq!((first.threads, second.threads), (1, 2));
    assert_eq!(
        (first.ended_ns, second.ended_ns),
        (Some(8_000_000), Some(7_000_000))
    );
    assert_eq!(all.threads[2].name, "helper");
    let times = all.times(first);
    assert_eq!((times.running_ns, times.runnable_ns), (2_000_000, 600_000));
    assert_eq!(times.blocked_ns, 3_900_000);
    assert_eq!(all.times(second).running_ns, 900_000 + 3_000_000);
    let (index, _) = model.process(ThreadIndex(own + 2)).unwrap();
    assert_eq!(index, ProcessIndex(1));
    assert_eq!(model.process(ThreadIndex(0)), None);
    let identity = model.identity_of(ThreadIndex(own + 2));
    assert_eq!(model.program(identity), Some(&("sh".to_owned(), 2)));
    assert_eq!(model.program(0), None);
}

/// A process forks, and then executes another program.
/// The processes at 100 ns, without losses and creation stacks.
fn finished(found: Found) -> Processes {
    let (model, stacks) = (Stage::new().model(), CreationStacks::default());
    found.finish(Vec::new(), &[], 100, &model, &stacks)
}

#[test]
fn children_keep_the_program_of_their_creator() {
    let mut found = Found::default();
    let names = ["bash", "sleep"].map(str::to_owned);
    for (ns, kind, tid, detail) in [
        (10, Kind::ProcessCreated, 30, PID),
        (20, Kind::Executed, 30, 0),
        (30, Kind::ProcessCreated, 31, 30),
        (40, Kind::Executed, 30, 1),
    ] {
        let entry = entry(ns, kind, tid, 0, detail);
        let name = usize::try_from(detail)
            .ok()
            .and_then(|index| names.get(index));
        found.entry(entry, name, None, 0);
    }
    let all = finished(found);
    let programs = all
        .all
        .iter()
        .map(|process| all.programs[process.program.unwrap()].0.as_str());
    assert_eq!(programs.collect::<Vec<_>>(), ["sleep", "bash"]);
}

#[test]
fn the_critical_path_goes_through_processes() {
    let model = stage().model();
    let path = model.critical_path.as_ref().unwrap();
    let threads = path.segments.iter().map(|segment| segment.thread.0);
    let threads: Vec<usize> = threads.collect();
    let own = model.threads.len();
    // The main thread, `sh`, both threads of its child, `sh`, the main thread.
    let mut order = threads.clone();
    order.dedup();
    assert_eq!(order, [0, own, own + 1, own + 2, own, 0], "{path:#?}");
}

/// A thread that is not the first one executes a program, and takes the id of the first one,
/// which has ended.
#[test]
fn another_thread_executes_a_program() {
    let mut found = Found::default();
    let name = "sh".to_owned();
    for (ns, kind, tid, detail) in [
        (10, Kind::ProcessCreated, 30, PID),
        (20, Kind::Runs, 30, 0),
        (30, Kind::Created, 31, 30),
        (35, Kind::Ended, 30, 0),
        (40, Kind::Runs, 31, 0),
        (50, Kind::Executed, 30, 0),
        (60, Kind::Blocks, 30, 0),
        (80, Kind::Runs, 30, 0),
        (90, Kind::Ended, 30, 0),
    ] {
        found.entry(entry(ns, kind, tid, 0, detail), Some(&name), None, 0);
    }
    let all = finished(found);
    let lives = all
        .threads
        .iter()
        .map(|thread| (thread.started_ns, thread.ended_ns));
    let lives: Vec<(Option<u64>, Option<u64>)> = lives.collect();
    let expected = [(10, 90), (30, 50)].map(|(from, to)| (Some(from), Some(to)));
    assert_eq!(lives, expected);
    assert_eq!(all.all[0].ended_ns, Some(90));
    let times = all.times(&all.all[0]);
    assert_eq!(
        (times.running_ns, times.blocked_ns),
        (15 + 10 + 10 + 10, 20)
    );
}

/// A dead process had the id that a thread has now.
#[test]
fn reused_ids_mean_the_thread_that_lives() {
    let thread = |started_ns: u64, ended_ns| {
        let mut thread = stage().model().threads[0].clone();
        (thread.created_ns, thread.started_ns, thread.ended_ns) =
            (None, Some(started_ns), ended_ns);
        thread
    };
    let threads = [
        thread(1_000_000_000, Some(2_000_000_000)),
        thread(5_000_000_000, None),
    ];
    let ids = ThreadIds::of(&threads[1..], &threads[..1]);
    let of = |ns| ids.at(PID, ns).map(|index| ids.thread(index).started_ns);
    assert_eq!(of(1_500_000_000), Some(Some(1_000_000_000)));
    assert_eq!(of(3_000_000_000), None);
    assert_eq!(of(6_000_000_000), Some(Some(5_000_000_000)));
}

#[test]
fn a_comparison_has_processes_by_their_program() {
    let run = || vec![Run::of(&stage().model())];
    let diff = Diff::of(run(), run());
    let rows: Vec<_> = diff
        .threads
        .iter()
        .map(|row| {
            let median = |change: &Change| change.after.median;
            let (number, path) = (median(&row.number), median(&row.path_ns));
            (
                row.program.as_deref(),
                number,
                median(&row.running_ns),
                path,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            (None, 1, 1_900_000, 1_900_000),
            (Some("sh"), 2, 5_900_000, 5_900_000)
        ]
    );
}

#[test]
fn without_a_schedule_only_starts_are_known() {
    let mut stage = Stage::new();
    stage.add(ProcessStarted {
        pid: 20,
        creator_tid: Some(PID),
        time_ns: 1_600_000,
        executable: "/bin/dash".to_owned(),
    });
    stage.end(10);
    let model = stage.model();
    let [process] = &model.processes.all[..] else {
        panic!("{:#?}", model.processes)
    };
    assert!(!process.is_recorded());
    assert_eq!(process.creator, model.main());
    assert_eq!(model.processes.programs, [("dash".to_owned(), 1)]);
}

#[test]
fn the_levels_of_the_processors_count_other_processes() {
    let model = stage().model();
    let levels = model.processor_levels();
    let at = |us: u64| {
        let level = levels.iter().find(|level| level.to_ns > us * 1000);
        level.map(|level| [level.running, level.runnable].map(|threads| threads.round() as u64))
    };
    // The main thread runs, and process 20 waits for a processor.
    assert_eq!(at(1700), Some([1, 1]));
    // The main thread waits. The first thread of process 21 runs, and the second one waits.
    assert_eq!(at(3700), Some([1, 1]));
    assert_eq!(at(5000), Some([1, 0]));
    let own = model.sync.concurrency.slices.iter();
    let mut own = own.filter(|slice| (3_000_000..7_000_000).contains(&slice.from_ns));
    assert!(own.all(|slice| slice.turns == Some((0.0, 0.0))));
}
