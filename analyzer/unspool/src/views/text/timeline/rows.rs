//! The lines of the timeline: which threads each of them shows, and its label.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::frames;
use super::super::line::{clean, width};
use crate::model::{Creation, Model, Process, Thread, ThreadIndex};
use crate::views::groups::{Forest, Group};
use crate::views::{names, wording};

/// Maximum number of threads that all have their own lines.
const MAX_SEPARATE_THREADS: usize = 40;
/// Minimum number of threads with the same identity that share a line if there are more threads.
const MIN_SHARED_LINE: usize = 6;

/// A line for one thread, or for the threads with the same identity.
pub(super) struct Row {
    /// Indices of the model's threads, or of its processes' threads after them.
    pub(super) members: Vec<usize>,
    /// Maximum number of threads that lived at once.
    pub(super) most: usize,
}

/// The rows in the order of their first threads, those of processes that the program
/// started last. Rows whose threads did not live in `time` are left out, and the threads are
/// counted.
pub(super) fn rows(model: &Model, each: bool, time: Range<u64>) -> (Vec<Row>, usize) {
    let mut rows = all_rows(model, each);
    let lives_then = |index: &usize| {
        let thread = model.any_thread(ThreadIndex(*index));
        let span = thread.and_then(|thread| model.span(thread));
        span.is_none_or(|(from, to)| from < time.end && to >= time.start)
    };
    let mut others = 0;
    rows.retain(|row| {
        let is_there = row.members.iter().any(lives_then);
        others += if is_there { 0 } else { row.members.len() };
        is_there
    });
    (rows, others)
}

fn all_rows(model: &Model, each: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = threads_of_program(model, each);
    let own = model.threads.len();
    let others = own..own + model.processes.threads.len();
    if each || others.len() <= MAX_SEPARATE_THREADS {
        rows.extend(others.map(one));
        return rows;
    }
    let mut by_program: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in others {
        let identity = model.identity_of(ThreadIndex(index));
        by_program.entry(identity).or_default().push(index);
    }
    rows.extend(shared(model, by_program.into_values()));
    rows
}

/// One row for each group, or several if the group is small.
fn shared(model: &Model, groups: impl Iterator<Item = Vec<usize>>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for members in groups {
        if members.len() < MIN_SHARED_LINE {
            rows.extend(members.into_iter().map(one));
        } else {
            let most = max_alive(model, &members);
            rows.push(Row { members, most });
        }
    }
    rows.sort_by_key(|row| row.members[0]);
    rows
}

fn one(index: usize) -> Row {
    Row {
        members: vec![index],
        most: 1,
    }
}

fn threads_of_program(model: &Model, each: bool) -> Vec<Row> {
    if each || model.threads.len() <= MAX_SEPARATE_THREADS {
        return (0..model.threads.len()).map(one).collect();
    }
    let indices = |group: &Group| group.members.iter().map(|index| index.0).collect();
    shared(model, Forest::of(model).groups.iter().map(indices))
}

/// Maximum number of threads that lived at once.
fn max_alive(model: &Model, members: &[usize]) -> usize {
    let mut changes: Vec<(u64, i32)> = Vec::new();
    let thread = |index: &usize| model.any_thread(ThreadIndex(*index));
    for thread in members.iter().filter_map(thread) {
        if let Some((from, to)) = model.span(thread) {
            changes.extend([(from, 1), (to, -1)]);
        }
    }
    changes.sort_unstable();
    let mut now = 0;
    let most = changes.iter().map(|(_, change)| {
        now += change;
        now
    });
    most.max()
        .map_or(0, |most| usize::try_from(most).unwrap_or(0))
}

impl Row {
    pub(super) fn label(&self, model: &Model, room: usize) -> String {
        let process = self.members.first().map(|index| ThreadIndex(*index));
        if let Some((_, process)) = process.and_then(|index| model.process(index)) {
            return self.label_of_process(model, process, room);
        }
        let threads: Vec<&Thread> = self
            .members
            .iter()
            .filter_map(|index| model.threads.get(*index))
            .collect();
        let Some(first) = threads.first() else {
            return String::new();
        };
        let (before, after) = match threads.len() {
            1 => (
                String::new(),
                first.tid.map_or(String::new(), |tid| format!(" {tid}")),
            ),
            count => (format!("{count} × "), format!(" (≤ {})", self.most)),
        };
        let room = room.saturating_sub(width(&before) + width(&after));
        if let ([_], Some(name)) = (&threads[..], model.name_instead(first)) {
            return clean(&format!("{}{after}", names::middle(name, room)));
        }
        let mut title = match (&first.creation, &first.function) {
            (Creation::Main, _) => "main".to_owned(),
            (_, Some(place)) => frames::function(place, room),
            (_, None) => "thread".to_owned(),
        };
        let main = model.main().and_then(|main| model.thread(main));
        let names = wording::names(&threads, main.map_or("", |main| &main.name));
        if !names.is_empty() && width(&title) + 1 + width(&names) <= room {
            title = format!("{title} {names}");
        }
        clean(&format!("{before}{}{after}", names::middle(&title, room)))
    }

    /// `process tar 812`, `24 × process cc1 (≤ 4)`; if it has several threads, `worker of ld 815`,
    /// `65 threads of ld (≤ 51)`
    fn label_of_process(&self, model: &Model, process: &Process, room: usize) -> String {
        let program = model.processes.program_name(process);
        let is_first = |index: &usize| {
            let process = model.process(ThreadIndex(*index));
            let own = model.threads.len();
            process.is_some_and(|(_, process)| own + process.first_thread == *index)
        };
        let firsts = self.members.iter().filter(|index| is_first(index)).count();
        let after = match self.members[..] {
            [index] => {
                let thread = model.any_thread(ThreadIndex(index));
                let tid = thread.and_then(|thread| thread.tid).unwrap_or(process.pid);
                format!(" {tid}")
            }
            _ => format!(" (≤ {})", self.most),
        };
        let room = room.saturating_sub(width(&after));
        if firsts == self.members.len() {
            return wording::program_of(program, firsts, room) + &after;
        }
        let thread = match self.members[..] {
            [index] => Some(wording::of_other(model, ThreadIndex(index))),
            _ => None,
        };
        let threads = match thread {
            Some(name) if name.is_empty() => "thread".to_owned(),
            Some(name) => name,
            None => wording::count(self.members.len(), "thread"),
        };
        let program = match program {
            "" => "unknown program",
            program => program,
        };
        names::middle(&format!("{threads} of {}", clean(program)), room) + &after
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::{Record, Schedule, ScheduleKind as Kind};

    use super::*;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};

    /// The labels of a program that starts `cc1` with a second thread, `pool`.
    fn labels(second: &[u64]) -> Vec<String> {
        let mut stage = Stage::new();
        stage.add(schedule_begins());
        let mut entries = vec![
            (1500, Kind::ProcessCreated, 20, PID),
            (2000, Kind::Runs, 20, 0),
            (2500, Kind::Executed, 20, 0),
        ];
        for tid in second {
            entries.push((3500, Kind::Created, *tid, 20));
            entries.push((3600, Kind::Named, *tid, 1));
        }
        stage.add(Record::Processes(Schedule {
            names: vec!["cc1".to_owned(), "pool".to_owned()],
            ..scheduled(&entries)
        }));
        stage.end(10);
        let model = stage.model();
        let (rows, _) = rows(&model, false, 0..u64::MAX);
        rows.iter().map(|row| row.label(&model, 40)).collect()
    }

    #[test]
    fn threads_of_a_process_are_not_called_processes() {
        assert_eq!(labels(&[21])[1..], ["process cc1 20", "pool of cc1 21"]);
        let many: Vec<u64> = (21..80).collect();
        assert_eq!(labels(&many)[1..], ["60 threads of cc1 (≤ 60)"]);
    }

    #[test]
    fn threads_of_another_time_have_no_row() {
        let mut stage = Stage::new();
        for tid in 0..4 {
            let begin = 10 * tid + 1;
            stage.spawn(PID, tid + 20, begin, "app!work", &["app!main"]);
            stage.exit(tid + 20, 10 * tid + 5);
        }
        stage.end(40);
        let model = stage.model();
        let seen = |time: Range<u64>| {
            let (rows, others) = rows(&model, true, time.start * 1_000_000..time.end * 1_000_000);
            (rows.len(), others)
        };
        assert_eq!(seen(0..40), (5, 0));
        assert_eq!(seen(12..14), (2, 3));
        assert_eq!(seen(6..14), (2, 3));
        assert_eq!(seen(26..29), (1, 4));
    }
}
