//! Blocked times in system calls, and what ended them, of threads with the same identity together.

use std::collections::BTreeMap;

use crate::model::schedule::{CallIndex, CallWake, RunState, Waker};
use crate::model::{Model, ThreadIndex};

/// How often threads were blocked, and for how long in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) count: u64,
    pub(super) ns: u64,
}

impl Blocked {
    pub(super) fn add(&mut self, other: Blocked) {
        self.count = self.count.saturating_add(other.count);
        self.ns = self.ns.saturating_add(other.ns);
    }
}

/// What woke threads: [`Waker`] with an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WokenBy {
    Threads(usize),
    Interrupt,
    Outside,
    Recorder,
}

impl WokenBy {
    pub(super) fn of(model: &Model, waker: Waker) -> WokenBy {
        match waker {
            Waker::Thread(thread) => WokenBy::Threads(model.identity_of(thread)),
            Waker::Interrupt => WokenBy::Interrupt,
            Waker::Outside => WokenBy::Outside,
            Waker::Recorder => WokenBy::Recorder,
        }
    }

    /// `thread`, `interrupt`, `outside` or `recorder`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            WokenBy::Threads(_) => "thread",
            WokenBy::Interrupt => "interrupt",
            WokenBy::Outside => "outside",
            WokenBy::Recorder => "recorder",
        }
    }
}

/// Threads of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Threads {
    pub(super) identity: usize,
    /// The thread, if it is only one of them; of another process, one of its threads.
    pub(super) one: Option<ThreadIndex>,
}

impl Threads {
    /// Adds a thread of the same identity.
    fn add(&mut self, model: &Model, thread: ThreadIndex) {
        self.one = self.one.filter(|one| are_shown_alike(model, *one, thread));
    }
}

/// True for a thread and itself, and for two of one other process, because only their process is
/// shown.
fn are_shown_alike(model: &Model, one: ThreadIndex, other: ThreadIndex) -> bool {
    let process = |thread| model.process(thread).map(|(process, _)| process);
    one == other || process(one).is_some_and(|it| process(other) == Some(it))
}

/// The blocked times of the threads of one identity in one system call, or for reasons that were
/// not recorded.
#[derive(Clone, Debug)]
pub(super) struct CallWait {
    pub(super) call: Option<CallIndex>,
    pub(super) threads: Threads,
    pub(super) blocked: Blocked,
    /// What ended them, as far as known; the longest sum first.
    pub(super) wakers: Vec<Woken>,
}

/// The wake-ups by threads of one identity, or by something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Woken {
    pub(super) by: WokenBy,
    /// The thread, if it was only one; of another process, one of its threads.
    pub(super) one: Option<ThreadIndex>,
    pub(super) blocked: Blocked,
}

/// All blocked times, the longest sum first. Leaves out the program's futex calls if the waits at
/// their objects were recorded.
pub(super) fn of(model: &Model) -> Vec<CallWait> {
    of_threads(model, |_| true)
}

/// As [`of`], without the processes that have a report of their own.
pub(super) fn of_report(model: &Model) -> Vec<CallWait> {
    of_threads(model, |thread| !is_apart(model, thread))
}

/// True for a thread of a process that has a report of its own.
fn is_apart(model: &Model, thread: ThreadIndex) -> bool {
    let process = model.process(thread);
    process.is_some_and(|(_, process)| process.is_apart)
}

/// The times for which the recorder had stopped threads. Processes with a report of their own are
/// left out.
pub(super) fn stopped(model: &Model) -> Blocked {
    let mut sum = Blocked::default();
    let threads = (0..model.any_threads().count()).map(ThreadIndex);
    for thread in threads.filter(|thread| !is_apart(model, *thread)) {
        let intervals = model.intervals(thread).iter();
        for stop in intervals.filter(|interval| interval.state == RunState::Stopped) {
            let ns = stop.length_ns();
            sum.add(Blocked { count: 1, ns });
        }
    }
    sum
}

fn of_threads(model: &Model, is_wanted: impl Fn(ThreadIndex) -> bool) -> Vec<CallWait> {
    let recorded = model.sync.recorded && !model.recording.too_little_seen();
    let names_object = |call: Option<CallIndex>| {
        let call = call.and_then(|call| model.schedule.call(call));
        call.is_some_and(|call| call.is_futex && recorded)
    };
    type Times = (Threads, Blocked, Vec<CallWake>);
    let mut all: BTreeMap<(Option<CallIndex>, usize), Times> = BTreeMap::new();
    let wakers = model.wakers();
    let threads = (0..model.any_threads().count()).map(ThreadIndex);
    for thread in threads.filter(|thread| is_wanted(*thread)) {
        let identity = model.identity_of(thread);
        let times = model.schedule.call_times(model.intervals(thread));
        let mut wakes = wakers.call_wakes(thread);
        let is_own = thread.0 < model.threads.len();
        for time in (times.iter()).filter(|time| !(is_own && names_object(time.call))) {
            let one = Some(thread);
            let (threads, blocked, woken) = all.entry((time.call, identity)).or_insert((
                Threads { identity, one },
                Blocked::default(),
                Vec::new(),
            ));
            threads.add(model, thread);
            blocked.add(Blocked {
                count: time.count,
                ns: time.blocked_ns,
            });
            woken.extend(wakes.remove(&time.call).unwrap_or_default());
        }
    }
    let waits = all.into_iter();
    let waits = waits.map(|((call, _), (threads, blocked, wakes))| CallWait {
        call,
        threads,
        blocked,
        wakers: by_identity(model, &wakes),
    });
    let mut waits: Vec<CallWait> = waits.collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.blocked.ns));
    waits
}

/// Sums the wake-ups by the waker's identity. Returns the longest sum first.
pub(super) fn by_identity<'a>(
    model: &Model,
    wakes: impl IntoIterator<Item = &'a CallWake>,
) -> Vec<Woken> {
    let mut wakers: BTreeMap<WokenBy, Woken> = BTreeMap::new();
    for wake in wakes {
        let by = WokenBy::of(model, wake.waker);
        let one = match wake.waker {
            Waker::Thread(thread) => Some(thread),
            _ => None,
        };
        let woken = wakers.entry(by).or_insert(Woken {
            by,
            one,
            blocked: Blocked::default(),
        });
        let is_same =
            |before: &ThreadIndex| one.is_some_and(|one| are_shown_alike(model, *before, one));
        woken.one = woken.one.filter(is_same);
        woken.blocked.add(Blocked {
            count: wake.count,
            ns: wake.blocked_ns,
        });
    }
    let mut wakers: Vec<Woken> = wakers.into_values().collect();
    wakers.sort_by_key(|woken| std::cmp::Reverse(woken.blocked.ns));
    wakers
}

#[cfg(test)]
mod tests {
    use unspool_capture::{BlockingCall, Schedule, ScheduleKind as Kind, Target};

    use super::*;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};
    use crate::views::{Style, graph, text};

    /// Two threads of one identity wait for the main thread, for one of them, for a timer, and for
    /// a reason that is not known. The recorder stops the main thread.
    fn model() -> Model {
        let mut stage = Stage::new();
        let main = ["orders!main@orders.c:9"];
        for tid in [7, 8] {
            stage.spawn(PID, tid, 1, "orders!work@orders.c:20", &main);
        }
        stage.add(Schedule {
            recorder_tid: Some(99),
            ..schedule_begins()
        });
        let call = |id, number, file: &str| BlockingCall {
            id,
            number: Some(number),
            args: vec![3, 0],
            file: file.to_owned(),
        };
        let part = scheduled(&[
            (2000, Kind::Runs, PID, 0),
            (2100, Kind::Runs, 7, 0),
            (3000, Kind::Blocks, 7, 1),
            (3100, Kind::Runs, 8, 0),
            (4000, Kind::Blocks, 8, 1),
            (6000, Kind::Woken, 7, PID),
            (6100, Kind::Runs, 7, 0),
            (7000, Kind::Woken, 8, 7),
            (7100, Kind::Runs, 8, 0),
            (8000, Kind::Blocks, 8, 2),
            (9000, Kind::Woken, 8, 0),
            (9100, Kind::Runs, 8, 0),
            (9400, Kind::Blocks, 8, 0),
            (9700, Kind::Woken, 8, 7),
            (9800, Kind::Runs, 8, 0),
            (9850, Kind::Blocks, PID, 3),
            (9900, Kind::Woken, PID, 99),
            (9910, Kind::Runs, PID, 0),
        ]);
        stage.add(Schedule {
            calls: vec![call(1, 0, "pipe:[7]"), call(2, 7, ""), call(3, 435, "")],
            ..part
        });
        stage.end(10);
        stage.model()
    }

    #[test]
    fn wakers_are_named_by_identity() {
        let model = model();
        let mut out = Vec::new();
        text::waits::write(&model, &mut out, &Style::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, calls) = text.split_once("Blocked in system calls\n").unwrap();
        let expected = "  read() of pipe:[7]  6.00 ms, twice
     6.00 ms twice         2 × work
                           woken by main: 3.00 ms, once
                           woken by work 7: 3.00 ms, once
  poll()  1.00 ms, once
     1.00 ms once          work 8, woken by an interrupt (device, timer or network)
  not in a known system call  300 µs, once
      300 µs once          work 8, woken by work 7
  stopped by the recorder  1.05 ms, twice
";
        assert_eq!(calls, expected);
    }

    #[test]
    fn threads_of_another_process_are_one_waker() {
        let other = |pid| {
            let mut stage = Stage::new();
            stage.add(Target {
                arch: "i386:x86-64".into(),
                executable: "/bin/other".into(),
                pid,
                parent_pid: PID,
                ..Target::default()
            });
            stage.seen(pid + 1, "helper", 1);
            stage.seen(pid + 2, "helper", 1);
            stage.end(5);
            stage.model()
        };
        let mut stage = Stage::new();
        stage.end(5);
        let model = Model::together(stage.model(), vec![other(90), other(95)]);
        let wakers = |pids: &[u64]| {
            let others = model.threads.len()..model.any_threads().count();
            let of_pids = others.map(ThreadIndex);
            let wakes = of_pids.filter(|thread| pids.contains(&model.pid_of(*thread)));
            let wakes = wakes.map(|thread| CallWake {
                waker: Waker::Thread(thread),
                count: 1,
                blocked_ns: 5,
            });
            let wakes: Vec<CallWake> = wakes.collect();
            let wakers = by_identity(&model, &wakes).into_iter();
            let process = |woken: Woken| woken.one.map(|thread| model.pid_of(thread));
            (wakes.len() > 1, wakers.map(process).collect::<Vec<_>>())
        };
        assert_eq!(wakers(&[90]), (true, vec![Some(90)]));
        assert_eq!(wakers(&[95]), (true, vec![Some(95)]));
        assert_eq!(wakers(&[90, 95]), (true, vec![None]));
    }

    #[test]
    fn small_rows_are_summed_unless_all_are_wanted() {
        let mut stage = Stage::new();
        let functions = ["orders!a", "orders!b", "orders!c", "orders!d", "orders!e"];
        let mut entries = Vec::new();
        for (tid, function) in (11..).zip(functions) {
            stage.spawn(PID, tid, 1, function, &["orders!main@orders.c:9"]);
            let us = 1000 * (tid - 9);
            entries.extend([
                (us, Kind::Runs, tid, 0),
                (us + 100, Kind::Blocks, tid, 1),
                (us + 100 + 10 * (20 - tid), Kind::Woken, tid, PID),
            ]);
        }
        stage.add(schedule_begins());
        let calls = vec![BlockingCall {
            id: 1,
            number: Some(7),
            args: vec![0, 0],
            file: String::new(),
        }];
        stage.add(Schedule {
            calls,
            ..scheduled(&entries)
        });
        stage.end(10);
        let model = stage.model();
        let text = |all_rows| {
            let (style, mut out) = (Style::default(), Vec::new());
            let style = Style { all_rows, ..style };
            text::waits::write(&model, &mut out, &style).unwrap();
            String::from_utf8(out).unwrap()
        };
        let (few, all) = (text(false), text(true));
        assert!(few.contains("    50.0 µs in 1 more row\n"), "{few}");
        assert!(few.contains("`--each` shows all rows."), "{few}");
        assert!(all.contains("     50.0 µs once          e"), "{all}");
        assert!(
            !all.contains("more row") && !all.contains("--each"),
            "{all}"
        );
    }

    #[test]
    fn the_graph_of_waits_has_dashed_edges() {
        let mut out = Vec::new();
        graph::waits::write(&model(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let edges: Vec<&str> = text.lines().filter(|line| line.contains(" -> ")).collect();
        let label = "label=\" \\nread() of pipe:[7]\\n3.00 ms, once\\n \"";
        let edge = |to: &str| format!("  t1 -> {to} [{label}, style=dashed];");
        assert_eq!(edges, [edge("t0"), edge("t1")]);
        assert!(text.contains("\\ndashed: a thread was blocked in a system call"));
    }
}
