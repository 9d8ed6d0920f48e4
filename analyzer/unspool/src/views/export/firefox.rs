//! Profiles for the Firefox Profiler: its "processed profile format", written by samply's crate.
//!
//! Waits, creations and findings are markers. A sample stands where the kernel's schedule changes,
//! with the processor time since the one before, from which the page draws each thread's activity.
//! If the recording has CPU samples, they replace these samples. The crate needs the whole profile
//! in memory, because each thread's tables come before the next.

mod markers;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming,
    ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle,
    ThreadHandle, Timestamp,
};

use self::markers::{Life, Noticed, Wait};
use super::exporter::{Error, Exporter, Options};
use super::tracks::{self, Texts, Tracks};
use crate::model::schedule::{Interval, RunState};
use crate::model::sync::{WaitSpan, Waiting};
use crate::model::{Backtrace, Detail, Model, ThreadIndex};
use crate::views::finding_text;

/// Number of threads that the page shows at first, the most active ones. More are a click away.
const MAX_VISIBLE: usize = 20;

#[derive(Debug)]
pub(super) struct Firefox;

impl Exporter for Firefox {
    fn name(&self) -> &'static str {
        "firefox"
    }

    fn about(&self) -> &'static str {
        "Firefox Profiler's JSON: activity, waits and findings, for profiler.firefox.com"
    }

    fn detail(&self) -> Detail {
        Detail::JOURNAL
    }

    fn write(&self, model: &Model, _: &Options, out: &mut dyn Write) -> Result<(), Error> {
        if model.threads.is_empty() {
            let text = "the recording has no threads, so there is nothing to draw";
            return Err(Error::Missing(text.to_owned()));
        }
        let mut builder = Builder::new(model);
        let waits = tracks::waits(model);
        builder.waits(&waits);
        builder.lives();
        match model.profile.is_known() {
            true => builder.cpu_samples(),
            false => builder.samples(&waits),
        }
        builder.samples_of_others();
        builder.findings(&waits);
        serde_json::to_writer(out, &builder.profile).map_err(io::Error::from)?;
        Ok(())
    }
}

struct Builder<'a> {
    model: &'a Model,
    tracks: Tracks,
    profile: Profile,
    /// Per thread of the model.
    threads: Vec<ThreadHandle>,
    /// The threads' names.
    names: Vec<StringHandle>,
    running: CategoryHandle,
    held: CategoryHandle,
    others: CategoryHandle,
    idle: CategoryHandle,
}

impl<'a> Builder<'a> {
    fn new(model: &'a Model) -> Builder<'a> {
        let tracks = Tracks::of(model);
        let recording = &model.recording;
        let start = ReferenceTimestamp::from_millis_since_unix_epoch(
            recording.start_unix_ns as f64 / 1_000_000.0,
        );
        // The page takes this for the width of a sample.
        let interval = match model.profile.is_known() {
            true => SamplingInterval::from_nanos(model.profile.period_ns),
            false => SamplingInterval::from_millis(1),
        };
        let program = &tracks.processes[0];
        let mut profile = Profile::new(&program.name, start, interval);
        // Names are complete, so that the page asks no server for symbols.
        profile.set_symbolicated(true);
        let processes = tracks.processes.iter().map(|process| {
            let started = time(process.started_ns);
            let handle = profile.add_process(&process.name, id(process.pid), started);
            if let Some(ended_ns) = process.ended_ns {
                profile.set_process_end_time(handle, time(ended_ns));
            }
            handle
        });
        let processes: Vec<ProcessHandle> = processes.collect();
        let main = model.main();
        let threads = model.any_threads().zip(&tracks.threads).enumerate();
        let threads = threads.map(|(index, (thread, track))| {
            let first = time(thread.first_ns().unwrap_or(0));
            let is_main = match track.process {
                0 => main == Some(ThreadIndex(index)),
                _ => track.id == tracks.pid(track),
            };
            let process = processes[track.process];
            let handle = profile.add_thread(process, id(track.id), first, is_main);
            profile.set_thread_name(handle, &track.name);
            profile.set_thread_show_markers_in_timeline(handle, true);
            if let Some(ended_ns) = thread.ended_ns {
                profile.set_thread_end_time(handle, time(ended_ns));
            }
            handle
        });
        let threads: Vec<ThreadHandle> = threads.collect();
        for index in by_activity(model).into_iter().take(MAX_VISIBLE) {
            profile.add_initial_visible_thread(threads[index]);
        }
        let names = tracks.threads.iter();
        let names = names.map(|track| profile.intern_string(&track.name));
        Builder {
            names: names.collect(),
            running: profile.add_category("running", CategoryColor::Green),
            held: profile.add_category("waits for a holder", CategoryColor::Red),
            others: profile.add_category("waits for other threads", CategoryColor::Orange),
            idle: profile.add_category("waits for work", CategoryColor::Gray),
            model,
            tracks,
            profile,
            threads,
        }
    }

    fn category(&self, waiting: Waiting) -> CategoryHandle {
        match waiting {
            Waiting::Held => self.held,
            Waiting::Others => self.others,
            Waiting::Idle => self.idle,
        }
    }

    fn waits(&mut self, waits: &[Vec<WaitSpan>]) {
        let texts = Texts::of(self.model);
        for wait in waits.iter().flatten() {
            let used = self.model.sync.used(wait.used);
            let marker = Wait {
                object: self.profile.intern_string(texts.object(wait.used)),
                category: self.category(used.waiting),
                values: markers::VALUES.map(|name| {
                    let mut facts = texts.facts(&self.tracks, wait);
                    let value = facts.find(|(fact, _)| *fact == name);
                    let value = value.map_or("", |(_, value)| value);
                    self.profile.intern_string(value)
                }),
            };
            let thread = self.threads[wait.thread.0];
            let timing = MarkerTiming::Interval(time(wait.from_ns), time(wait.to_ns));
            let marker = self.profile.add_marker(thread, timing, marker);
            let category = self.category(used.waiting);
            let stack = self.stack(thread, self.model.sync.path(used), category);
            self.profile.set_marker_stack(thread, marker, stack);
        }
    }

    /// Creations of threads and processes on the tracks of their creators, and beginnings on their
    /// own.
    fn lives(&mut self) {
        let model = self.model;
        for (index, thread) in model.any_threads().enumerate() {
            let key = match model.thread(ThreadIndex(index)) {
                Some(own) => own.key.to_string(),
                None => String::new(),
            };
            let key = self.profile.intern_string(&key);
            let life = |builder: &mut Self, on: ThreadHandle, ns: u64, name: &str| {
                let life = Life {
                    name: builder.profile.intern_string(name),
                    thread: builder.names[index],
                    key,
                };
                let timing = MarkerTiming::Instant(time(ns));
                builder.profile.add_marker(on, timing, life)
            };
            if let Some((creator, created_ns)) = tracks::creation(model, ThreadIndex(index)) {
                let on = self.threads[creator.0];
                let what = match self.tracks.threads[index].process {
                    0 => "creates a thread",
                    _ => "starts a process",
                };
                let marker = life(self, on, created_ns, what);
                let stack = thread.creation_stack();
                let stack = stack.and_then(|stack| self.stack(on, stack, self.running));
                self.profile.set_marker_stack(on, marker, stack);
            }
            if let Some(started_ns) = thread.started_ns {
                let own = self.threads[index];
                life(self, own, started_ns, "starts");
            }
        }
    }

    fn samples(&mut self, waits: &[Vec<WaitSpan>]) {
        for (index, waits) in waits.iter().enumerate() {
            self.samples_of(index, waits);
        }
    }

    /// Samples of the threads of other processes, whose calls are not recorded.
    fn samples_of_others(&mut self) {
        for index in self.model.threads.len()..self.threads.len() {
            self.samples_of(index, &[]);
        }
    }

    fn samples_of(&mut self, index: usize, waits: &[WaitSpan]) {
        let model = self.model;
        let thread = self.threads[index];
        let own = FrameInfo {
            frame: Frame::Label(self.names[index]),
            category_pair: self.running.into(),
            flags: FrameFlags::empty(),
        };
        let own = std::iter::once(own);
        let own = self.profile.intern_stack_frames(thread, own);
        let mut ran_ns = 0;
        for (ns, ran) in changes(model.intervals(ThreadIndex(index))) {
            let stack = match wait_at(waits, ns) {
                Some(wait) => {
                    let used = model.sync.used(wait.used);
                    let category = self.category(used.waiting);
                    self.stack(thread, model.sync.path(used), category)
                }
                None => own,
            };
            // The format counts microseconds: no part of one is lost in the sum.
            let before_us = ran_ns / 1000;
            ran_ns += ran;
            let delta = CpuDelta::from_micros(ran_ns / 1000 - before_us);
            self.profile.add_sample(thread, time(ns), stack, delta, 1);
        }
    }

    /// The kernel's samples, each with the processor time that it stands for.
    fn cpu_samples(&mut self) {
        let profile = &self.model.profile;
        let delta = CpuDelta::from_micros(profile.period_ns / 1000);
        let mut known: HashMap<(usize, usize), Option<StackHandle>> = HashMap::new();
        for sample in &profile.samples {
            let Some(index) = sample.thread.map(|thread| thread.0) else {
                continue;
            };
            let thread = self.threads[index];
            let stack = match known.get(&(index, sample.stack)) {
                Some(stack) => *stack,
                None => {
                    let stack = self.stack(thread, profile.stack(sample), self.running);
                    known.insert((index, sample.stack), stack);
                    stack
                }
            };
            let ns = time(sample.time_ns);
            self.profile.add_sample(thread, ns, stack, delta, 1);
        }
    }

    fn findings(&mut self, waits: &[Vec<WaitSpan>]) {
        let model = self.model;
        for finding in &model.findings {
            let (ns, thread) = tracks::time_of(model, waits, finding);
            let thread = thread.or(model.main()).unwrap_or(ThreadIndex(0));
            let Some(thread) = self.threads.get(thread.0) else {
                continue;
            };
            let noticed = Noticed {
                kind: self.profile.intern_string(finding.kind.as_str()),
                text: (self.profile).intern_string(&finding_text::text(model, finding)),
                proved: self.profile.intern_string(&finding.proved.to_string()),
            };
            let timing = MarkerTiming::Instant(time(ns));
            self.profile.add_marker(*thread, timing, noticed);
        }
    }

    fn stack(
        &mut self,
        thread: ThreadHandle,
        stack: &Backtrace,
        category: CategoryHandle,
    ) -> Option<StackHandle> {
        let frames = stack.frames.iter().rev();
        let frames: Vec<FrameInfo> = frames
            .map(|frame| FrameInfo {
                frame: Frame::Label((self.profile).intern_string(&tracks::function(&frame.place))),
                category_pair: category.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        self.profile.intern_stack_frames(thread, frames.into_iter())
    }
}

/// The threads, those that ran longest first.
fn by_activity(model: &Model) -> Vec<usize> {
    let mut all: Vec<usize> = (0..model.any_threads().count()).collect();
    all.sort_by_cached_key(|index| {
        if *index >= model.threads.len() {
            let ran = changes(model.intervals(ThreadIndex(*index)));
            return Reverse(ran.map(|(_, ran_ns)| ran_ns).sum());
        }
        let ran_ns = match model.schedule.is_known() {
            true => model.schedule.times(ThreadIndex(*index)).running_ns,
            false => (model.sync.threads.get(*index)).map_or(0, |times| times.running_ns()),
        };
        Reverse(ran_ns)
    });
    all
}

/// The times at which a thread's state changed, each with the processor time since the one before.
fn changes(intervals: &[Interval]) -> impl Iterator<Item = (u64, u64)> {
    let first = intervals.first().map(|first| (first.from_ns, 0));
    let others = intervals.iter().map(|interval| match interval.state {
        RunState::Running { .. } => (interval.to_ns, interval.length_ns()),
        _ => (interval.to_ns, 0),
    });
    first.into_iter().chain(others)
}

/// The innermost of a thread's waits at a moment. Few waits are nested, and none deeply.
fn wait_at(waits: &[WaitSpan], ns: u64) -> Option<&WaitSpan> {
    const MAX_DEPTH: usize = 4;
    let begun = waits.partition_point(|wait| wait.from_ns <= ns);
    let begun = waits[..begun].iter().rev().take(MAX_DEPTH);
    begun.into_iter().find(|wait| ns < wait.to_ns)
}

fn time(ns: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(ns)
}

/// Ids of the kernel, and those of tracks, are far below the limit.
fn id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sync::UseIndex;

    #[test]
    fn the_innermost_wait_is_found() {
        let wait = |from_ns, to_ns| WaitSpan {
            thread: ThreadIndex(0),
            used: UseIndex(0),
            from_ns,
            to_ns,
            holder: None,
            waker: None,
        };
        let waits = [wait(10, 50), wait(20, 30), wait(60, 70)];
        let found = |ns| wait_at(&waits, ns).map(|wait| wait.from_ns);
        let times = [9, 10, 25, 30, 49, 50, 69, 70];
        let expected = [
            None,
            Some(10),
            Some(20),
            Some(10),
            Some(10),
            None,
            Some(60),
            None,
        ];
        assert_eq!(times.map(found), expected);
    }

    #[test]
    fn processor_time_belongs_to_the_end_of_its_interval() {
        let interval = |from_ns, to_ns, state| Interval {
            from_ns,
            to_ns,
            state,
            call: None,
            continues: false,
        };
        let intervals = [
            interval(5, 8, RunState::Running { cpu: 0 }),
            interval(8, 20, RunState::Blocked),
            interval(20, 21, RunState::Running { cpu: 1 }),
        ];
        let changes: Vec<(u64, u64)> = changes(&intervals).collect();
        assert_eq!(changes, [(5, 0), (8, 3), (20, 0), (21, 1)]);
    }

    #[test]
    fn nothing_is_written_without_threads() {
        let mut out = Vec::new();
        let error = Firefox.write(&Model::default(), &Options::default(), &mut out);
        assert!(matches!(error, Err(Error::Missing(_))), "{error:?}");
        assert!(out.is_empty());
    }
}
