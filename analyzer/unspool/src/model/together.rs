//! Joins the models of processes that were attached to and recorded together.
//!
//! Each process has a whole model. It also gets the threads of the others, as it has those of the
//! processes that it started: so wake-ups and the timeline reach from one process to another.

use std::collections::{HashMap, HashSet};

use super::schedule::{CallIndex, Interval, RunState};
use super::{Finding, Model, Note, Process, Severity, State, ThreadIndex, finding, wait_graph};

impl Model {
    /// Joins the models of processes that were recorded together. The first of them becomes the
    /// result, with the findings about all, and has the `further` ones. Each of these has the
    /// findings in which its threads take part. Of a process that was inspected at the end, only
    /// the hangs are added, to the process that started it.
    pub fn together(mut first: Model, mut further: Vec<Model>) -> Model {
        let is_inspected = |model: &mut Model| model.recording.is_inspection();
        let mut inspected: Vec<Model> = further.extract_if(.., is_inspected).collect();
        let is_alone = further.is_empty();
        if !is_alone {
            first.join(further);
        }
        for model in &mut first.recorded {
            let own: Vec<Model> =
                (inspected.extract_if(.., |one| model.has_started(one))).collect();
            if !own.is_empty() {
                model.add_inspected_at_end(own);
            }
        }
        // Threads of one process may wait for each other at pipes.
        if !inspected.is_empty() || is_alone && first.was_in_calls_at_end() {
            first.add_inspected_at_end(inspected);
        }
        first
    }

    /// True if threads waited for processes in system calls when the recording ended.
    fn was_in_calls_at_end(&self) -> bool {
        let mut states = self
            .at_end
            .iter()
            .flat_map(|at_end| &at_end.inspection.states);
        states.any(|state| state.subject().is_some())
    }

    fn has_started(&self, other: &Model) -> bool {
        let mut started = self.processes.all.iter();
        started.any(|process| process.pid == other.target.pid && !process.is_apart)
    }

    /// Adds the hangs of processes that were inspected at the end, and those of them and this one
    /// together.
    fn add_inspected_at_end(&mut self, mut others: Vec<Model>) {
        let recorded = self.processes.all.len();
        let recorded_threads = self.any_threads().count();
        let (across, indices) = loop {
            let indices = others.iter().map(|other| self.index_inspected(other));
            let indices: Vec<Vec<ThreadIndex>> = indices.collect();
            let across = self.hangs_across_inspected(&others, &indices);
            // A process that was not recorded is shown only if it hangs.
            let has_hang = |indices: &[ThreadIndex]| {
                let mut threads = across.iter().flat_map(|hang| &hang.threads);
                threads.any(|thread| indices.contains(thread))
            };
            let shown: Vec<bool> = (others.iter().zip(&indices))
                .map(|(other, indices)| {
                    !other.findings.is_empty()
                        || has_hang(indices)
                        || indices.iter().all(|index| index.0 < recorded_threads)
                })
                .collect();
            if shown.iter().all(|shown| *shown) {
                break (across, indices);
            }
            self.processes.truncate(recorded);
            let mut shown = shown.into_iter();
            others.retain(|_| shown.next() == Some(true));
        };
        for (other, indices) in others.into_iter().zip(indices) {
            self.add_hangs_of(other, &indices);
        }
        wait_graph::add_hangs(self, across);
        finding::sort(&mut self.findings);
    }

    /// The threads of a process that was inspected at the end. Adds those that were not recorded.
    fn index_inspected(&mut self, other: &Model) -> Vec<ThreadIndex> {
        self.as_recorded(other).unwrap_or_else(|| {
            let first = self.threads.len() + self.processes.threads.len();
            let threads = other.threads.clone();
            self.processes.add_inspected(&other.target, threads);
            let indices = first..first + other.threads.len();
            indices.map(ThreadIndex).collect()
        })
    }

    /// The deadlocks of threads of several processes, of which the `others` were inspected after
    /// this one. They have the threads with these `indices`.
    fn hangs_across_inspected(
        &mut self,
        others: &[Model],
        indices: &[Vec<ThreadIndex>],
    ) -> Vec<Finding> {
        let Some(mut at_end) = self.at_end.take() else {
            return Vec::new();
        };
        let inspection = &mut at_end.inspection;
        let count = self.any_threads().count();
        inspection.states.resize(count, State::Unknown);
        let mut stacks = HashMap::new();
        for (other, indices) in others.iter().zip(indices) {
            inspection.add_handlers(&other.inspection);
            let seen = other.threads.iter().map(|thread| thread.stack.clone());
            stacks.extend(indices.iter().copied().zip(seen));
            for (index, state) in indices.iter().zip(&other.inspection.states) {
                inspection.states[index.0] = state.clone();
            }
        }
        self.link_holders(&mut inspection.states);
        let stood = |tids: &HashSet<u64>| tids & &at_end.stood;
        let mut found = wait_graph::across_processes(self, inspection, stood);
        for evidence in found.iter_mut().flat_map(|finding| &mut finding.evidence) {
            if evidence.stack.is_none() {
                evidence.stack = stacks.get(&evidence.thread).cloned().flatten();
            }
        }
        self.at_end = Some(at_end);
        found
    }

    fn join(&mut self, mut further: Vec<Model>) {
        let mut alone = vec![self.clone()];
        alone.extend(further.iter().cloned());
        let all = std::iter::once(&mut *self).chain(&mut further);
        for (index, model) in all.enumerate() {
            let mut order: Vec<&Model> = alone.iter().collect();
            order[..=index].rotate_right(1);
            model.add_recorded(order[1..].iter().copied());
            let found = model.hangs_across(&order);
            let is_shown = |finding: &Finding| {
                let mut threads = finding.threads.iter();
                index == 0 || threads.any(|thread| model.thread(*thread).is_some())
            };
            let found: Vec<Finding> = found.into_iter().filter(is_shown).collect();
            model.findings.extend(found);
            model.keep_costly_lock_waits();
            finding::sort(&mut model.findings);
        }
        self.recorded = further;
    }

    /// This model, and those of the processes that were recorded together with it.
    pub fn all_recorded(&self) -> impl Iterator<Item = &Model> {
        std::iter::once(self).chain(&self.recorded)
    }

    /// Lets another of the processes that were recorded together be the first. Returns false if it
    /// was not recorded.
    pub fn put_first(&mut self, pid: u64) -> bool {
        let mut recorded = std::mem::take(&mut self.recorded);
        let found = recorded.iter_mut().find(|other| other.target.pid == pid);
        let is_found = found.is_some() || self.target.pid == pid;
        if let Some(other) = found {
            std::mem::swap(self, other);
        }
        self.recorded = recorded;
        is_found
    }

    /// If several processes have the same note, keeps it only for the last one of them, and adds
    /// the number of processes to it.
    pub fn merge_notes(&mut self) {
        let mut counts: HashMap<Note, usize> = HashMap::new();
        let notes = self.all_recorded().flat_map(|one| &one.notes);
        for note in notes.filter(|note| note.severity != Severity::Error) {
            *counts.entry(note.clone()).or_default() += 1;
        }
        let mut left = counts.clone();
        let others = self.recorded.iter_mut().map(|one| &mut one.notes);
        for notes in std::iter::once(&mut self.notes).chain(others) {
            notes.retain_mut(|note| {
                let Some(more) = left.get_mut(note) else {
                    return true;
                };
                *more -= 1;
                let (is_last, count) = (*more == 0, counts[note]);
                if is_last && count > 1 {
                    let text = note.text.trim_end_matches('.');
                    note.text = format!("{text} (in {count} processes)");
                }
                is_last
            });
        }
    }

    /// The process that had started this one, if it was recorded, too.
    pub fn recorded_parent(&self) -> Option<&Process> {
        let parent = self.target.parent_pid?;
        let mut apart = self.processes.all.iter();
        apart.find(|process| process.is_apart && process.pid == parent)
    }

    /// Adds the threads of processes that were recorded together with this one.
    fn add_recorded<'m>(&mut self, others: impl Iterator<Item = &'m Model>) {
        self.schedule.threads.resize(self.threads.len(), Vec::new());
        for other in others {
            let base = self.threads.len() + self.processes.threads.len();
            let calls: Vec<CallIndex> = (other.schedule.calls.iter())
                .map(|call| self.schedule.index_of(call))
                .collect();
            self.processes.add_recorded(other, base, &calls);
        }
        // The first thread of a process has its id.
        let creators: Vec<Option<ThreadIndex>> = (self.processes.all.iter())
            .map(|process| match (process.creator, process.creator_tid) {
                (None, Some(tid)) if process.is_apart => {
                    let mut threads = self.any_threads();
                    threads.position(|it| it.tid == Some(tid)).map(ThreadIndex)
                }
                (creator, _) => creator,
            })
            .collect();
        for (process, creator) in self.processes.all.iter_mut().zip(creators) {
            process.creator = creator;
        }
    }

    /// The deadlocks of threads of several processes, from the inspections at the end of the
    /// recording. `alone` are the models of all processes, this one first.
    fn hangs_across(&mut self, alone: &[&Model]) -> Vec<Finding> {
        let ends = alone.iter().filter_map(|model| model.at_end.as_ref());
        let Some(first_ns) = ends.map(|at_end| at_end.from_ns).min() else {
            return Vec::new();
        };
        let mut inspection = alone[0].at_end.clone().unwrap_or_default().inspection;
        let mut stood = HashSet::new();
        let mut base = 0;
        for model in alone {
            if let Some(at_end) = &model.at_end {
                let states = &mut inspection.states;
                states.resize(base, State::Unknown);
                states.extend(at_end.inspection.states.iter().cloned());
                inspection.add_handlers(&at_end.inspection);
                stood.extend(model.waits_since(first_ns));
                stood.extend(&at_end.stood);
            }
            base += model.threads.len() + model.processes.threads.len();
            inspection.states.resize(base, State::Unknown);
        }
        self.link_holders(&mut inspection.states);
        let found = wait_graph::across_processes(self, &inspection, |tids| tids & &stood);
        if let Some(at_end) = &mut self.at_end {
            at_end.inspection = inspection;
        }
        found
    }

    /// The ids of the threads that were in one wait for another thread or process from this time
    /// on, when the first process was inspected. A circle of such threads was closed at that time:
    /// none of them can have released a lock.
    fn waits_since(&self, from_ns: u64) -> impl Iterator<Item = u64> {
        let states = self
            .at_end
            .iter()
            .flat_map(|at_end| &at_end.inspection.states);
        let threads = self.threads.iter().zip(states).enumerate();
        threads.filter_map(move |(index, (thread, state))| {
            let waits = state.wait().is_some() || state.subject().is_some();
            let intervals = self.schedule.of_thread(ThreadIndex(index));
            let recorder = self.schedule.recorder_tid;
            let same = |one, other| self.schedule.may_be_same(one, other);
            let is_asleep = waits && is_asleep_since(intervals, from_ns, recorder, same);
            thread.tid.filter(|_| is_asleep)
        })
    }
}

/// True if a thread was in one wait from this time on. Stops by the recorder wake it, and then it
/// repeats the same system call.
fn is_asleep_since(
    intervals: &[Interval],
    from_ns: u64,
    recorder: Option<u64>,
    same: impl Fn(CallIndex, CallIndex) -> bool,
) -> bool {
    let begun = intervals.partition_point(|interval| interval.from_ns <= from_ns);
    let has_calls = intervals.iter().any(|interval| interval.call.is_some());
    // While the recorder has stopped the thread, it is blocked without a call.
    let is_wait = |interval: &Interval| {
        interval.state == RunState::Blocked && interval.call.is_some() == has_calls
    };
    let ends_later = intervals.last().is_some_and(|last| last.to_ns > from_ns);
    let Some(first) = intervals[..begun].iter().rposition(is_wait) else {
        return false;
    };
    let call = intervals[first].call;
    ends_later
        && intervals[first..]
            .iter()
            .all(|interval| match interval.state {
                RunState::Woken { waker } => waker.is_some() && waker == recorder,
                RunState::Blocked => {
                    let calls = interval.call.zip(call);
                    interval.call.is_none() || calls.is_some_and(|(one, other)| same(one, other))
                }
                _ => true,
            })
}

#[cfg(test)]
mod tests {
    use unspool_capture::Target;

    use super::*;
    use crate::model::fixture::{PID, Stage};

    /// The model of a process that the fixture's program had started.
    fn other() -> Model {
        let mut stage = Stage::new();
        stage.add(Target {
            arch: "i386:x86-64".into(),
            executable: "/bin/other".into(),
            pid: 90,
            parent_pid: PID,
            ..Target::default()
        });
        stage.seen(91, "helper", 1);
        stage.end(5);
        stage.model()
    }

    #[test]
    fn each_process_has_the_threads_of_the_others() {
        let mut stage = Stage::new();
        stage.end(5);
        let (own, other) = (stage.model(), other());
        let counts = [own.threads.len(), other.threads.len()];
        let mut model = Model::together(own, vec![other]);
        let seen = |model: &Model| [model.threads.len(), model.processes.threads.len()];
        assert_eq!(seen(&model), counts);
        assert_eq!(seen(&model.recorded[0]), [counts[1], counts[0]]);
        let [process] = &model.processes.all[..] else {
            panic!("{:?}", model.processes.all);
        };
        assert!(process.is_apart && process.is_recorded());
        assert_eq!((process.pid, process.creator), (90, model.main()));
        let pids = |model: &Model| -> Vec<u64> {
            model.all_recorded().map(|one| one.target.pid).collect()
        };
        assert!(!model.put_first(7000));
        assert_eq!(pids(&model), [PID, 90]);
        assert!(model.put_first(90));
        assert_eq!(pids(&model), [90, PID]);
        assert_eq!(
            model.recorded_parent().map(|process| process.pid),
            Some(PID)
        );
    }

    #[test]
    fn equal_notes_are_shown_once() {
        let mut stage = Stage::new();
        stage.end(5);
        let mut model = Model::together(stage.model(), vec![other(), other()]);
        let notes = [
            vec![Note::info("a"), Note::warning("all"), Note::error("error")],
            vec![Note::warning("all"), Note::error("error"), Note::info("b.")],
            vec![Note::warning("all"), Note::info("b.")],
        ];
        model.notes = notes[0].clone();
        model.recorded[0].notes = notes[1].clone();
        model.recorded[1].notes = notes[2].clone();
        model.merge_notes();
        let left = model.all_recorded().map(|one| one.notes.clone());
        let merged = [
            vec![Note::info("a"), Note::error("error")],
            vec![Note::error("error")],
            vec![
                Note::warning("all (in 3 processes)"),
                Note::info("b (in 2 processes)"),
            ],
        ];
        assert_eq!(left.collect::<Vec<_>>(), merged);
    }

    #[test]
    fn waits_from_one_inspection_to_the_next() {
        let of = |states: &[(u64, u64, RunState)]| -> Vec<Interval> {
            let intervals = states.iter().map(|(from_ns, to_ns, state)| Interval {
                from_ns: *from_ns,
                to_ns: *to_ns,
                state: *state,
                call: None,
                continues: false,
            });
            intervals.collect()
        };
        let woken = |waker| RunState::Woken { waker };
        let is_asleep = |intervals: &[Interval], from_ns, recorder| {
            is_asleep_since(intervals, from_ns, recorder, |one, other| one == other)
        };
        let blocked = [(5, 50, RunState::Blocked), (50, 51, woken(Some(3)))];
        let runs = (51, 52, RunState::Running { cpu: 0 });
        let again = [runs, (52, 60, RunState::Blocked)];
        let all = of(&[&blocked[..], &again].concat());
        assert!(is_asleep(&all, 10, Some(3)));
        assert!(is_asleep(&all, 51, Some(3)));
        // It began later, or another thread than the recorder woke it.
        assert!(!is_asleep(&all, 4, Some(3)));
        assert!(!is_asleep(&all, 10, Some(4)));
        assert!(!is_asleep(&all, 10, None));
        assert!(is_asleep(&all, 55, None));
        assert!(!is_asleep(&all, 70, Some(3)));
        // It was in another call before the recorder stopped it.
        let mut changed = all.clone();
        changed[0].call = Some(CallIndex(0));
        assert!(is_asleep(&changed, 10, Some(3)));
        changed[3].call = Some(CallIndex(1));
        assert!(!is_asleep(&changed, 10, Some(3)));
        assert!(is_asleep(&changed, 55, Some(3)));
    }
}
