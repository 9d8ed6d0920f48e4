//! What the formats of trace viewers share: ids and names of threads, waits, counters and findings
//! as points in time.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::model::schedule::RunState;
use crate::model::sync::{self, ObjectIndex, UseIndex, WaitSpan};
use crate::model::{Finding, Model, Place, Thread, ThreadIndex};
use crate::views::wording;

/// The kernel's thread ids are below this (PID_MAX_LIMIT). Ids from here on are ours.
const FIRST_FREE_ID: u64 = 1 << 22;

/// The threads of a recording as tracks of a viewer.
pub(super) struct Tracks {
    /// The program, and then the recorded processes that it started.
    pub(super) processes: Vec<ProcessTrack>,
    /// Per thread of the model, and then per thread of these processes.
    pub(super) threads: Vec<Track>,
    /// An id that no thread has, for everything else on the processors.
    pub(super) other: u64,
    by_tid: HashMap<u64, Vec<usize>>,
}

/// A process as a group of tracks.
pub(super) struct ProcessTrack {
    /// An id that no other process of the file has: that of its first thread.
    pub(super) pid: u64,
    pub(super) name: String,
    pub(super) started_ns: u64,
    pub(super) ended_ns: Option<u64>,
}

/// A thread as a track.
pub(super) struct Track {
    /// Its process, in [`Tracks::processes`].
    pub(super) process: usize,
    /// An id that no other thread of the file has: the kernel's, unless that is unknown or was used
    /// by an earlier thread.
    pub(super) id: u64,
    /// Function and name.
    pub(super) name: String,
    from_ns: u64,
    to_ns: u64,
}

impl Tracks {
    pub(super) fn of(model: &Model) -> Tracks {
        let mut ids = Ids {
            used: HashSet::new(),
            free: FIRST_FREE_ID + 1,
        };
        let mut by_tid: HashMap<u64, Vec<usize>> = HashMap::new();
        let end_ns = model.recording.duration_ns;
        let main = model.main().and_then(|main| model.thread(main));
        let main_name = main.map_or("", |main| main.name.as_str());
        let threads = model.threads.iter().map(|thread| {
            let title = wording::title(model, thread, usize::MAX);
            let name = match thread.name.as_str() {
                name if name.is_empty() || name == main_name => title,
                name => format!("{title} ({name})"),
            };
            Track::of(thread, 0, ids.of(thread), name, end_ns)
        });
        let mut threads: Vec<Track> = threads.collect();
        // Process 0 is the idle one.
        let pid = model.target.pid.max(1);
        ids.used.insert(pid);
        let mut processes = vec![ProcessTrack {
            pid,
            name: model.target.name.clone(),
            started_ns: 0,
            ended_ns: Some(end_ns),
        }];
        let others = &model.processes;
        for process in others.all.iter().filter(|process| process.is_recorded()) {
            let first = threads.len();
            let members = process.first_thread..process.first_thread + process.threads;
            let members = others.threads[members].iter();
            let program = others.program_name(process);
            threads.extend(members.enumerate().map(|(at, thread)| {
                // A thread that neither executed a program nor got a name has none.
                let name = match wording::of_other(model, ThreadIndex(first + at)) {
                    name if name.is_empty() => program.to_owned(),
                    name => name,
                };
                let id = ids.of(thread);
                Track::of(thread, processes.len(), id, name, end_ns)
            }));
            processes.push(ProcessTrack {
                pid: threads[first].id,
                name: program.to_owned(),
                started_ns: process.started_ns,
                ended_ns: process.ended_ns,
            });
        }
        for (index, thread) in model.any_threads().enumerate() {
            if let Some(tid) = thread.tid {
                by_tid.entry(tid).or_default().push(index);
            }
        }
        Tracks {
            processes,
            threads,
            other: FIRST_FREE_ID,
            by_tid,
        }
    }

    /// The id of the process that a thread belongs to.
    pub(super) fn pid(&self, track: &Track) -> u64 {
        self.processes
            .get(track.process)
            .map_or(0, |process| process.pid)
    }

    /// The track id of the thread that had the kernel's id `tid` at `ns`. For threads of other
    /// programs, `tid` itself.
    pub(super) fn id_at(&self, tid: u64, ns: u64) -> u64 {
        let all = self.by_tid.get(&tid).map_or(&[][..], Vec::as_slice);
        let mut all = all.iter().filter_map(|index| self.threads.get(*index));
        let lives = |track: &&Track| (track.from_ns..=track.to_ns).contains(&ns);
        let first = all.clone().next();
        all.find(lives).or(first).map_or(tid, |track| track.id)
    }
}

/// Ids of tracks.
struct Ids {
    used: HashSet<u64>,
    /// The next one that the kernel does not use.
    free: u64,
}

impl Ids {
    fn of(&mut self, thread: &Thread) -> u64 {
        let own = thread.tid.filter(|tid| self.used.insert(*tid));
        own.unwrap_or_else(|| {
            self.free += 1;
            self.free - 1
        })
    }
}

impl Track {
    fn of(thread: &Thread, process: usize, id: u64, name: String, end_ns: u64) -> Track {
        let from_ns = thread.first_ns().unwrap_or(0);
        Track {
            process,
            id,
            name,
            from_ns,
            to_ns: thread.ended_ns.unwrap_or(end_ns).max(from_ns),
        }
    }
}

/// The thread that created a thread or started its process, and when.
pub(super) fn creation(model: &Model, thread: ThreadIndex) -> Option<(ThreadIndex, u64)> {
    let Some((_, process)) = model.process(thread) else {
        let own = model.thread(thread)?;
        return own.creator().zip(own.created_ns);
    };
    let is_first = thread.0 == model.threads.len() + process.first_thread;
    let creator = process.creator.filter(|_| is_first)?;
    Some((creator, process.started_ns))
}

/// The waits of each thread in the order of their beginnings. One inside another comes after it,
/// and does not outlast it.
pub(super) fn waits(model: &Model) -> Vec<Vec<WaitSpan>> {
    let mut by_thread: Vec<Vec<WaitSpan>> = vec![Vec::new(); model.threads.len()];
    for wait in model.sync.journal.iter().flat_map(|journal| &journal.waits) {
        if let Some(mine) = by_thread.get_mut(wait.thread.0) {
            mine.push(WaitSpan {
                to_ns: wait.to_ns.max(wait.from_ns),
                ..*wait
            });
        }
    }
    for waits in &mut by_thread {
        waits.sort_by_key(|wait| (wait.from_ns, Reverse(wait.to_ns)));
    }
    by_thread
}

/// The texts of waits. They are made once for each use of an object, because waits are many.
pub(super) struct Texts {
    uses: Vec<UseText>,
}

struct UseText {
    object: String,
    facts: Vec<(&'static str, String)>,
}

impl Texts {
    pub(super) fn of(model: &Model) -> Texts {
        let sync = &model.sync;
        let uses = sync.uses.iter().enumerate().map(|(index, used)| {
            let known = sync.object(used.object);
            let mut facts = vec![
                ("kind", known.kind.as_str().to_owned()),
                ("operation", used.operation.as_str().to_owned()),
                ("waiting_for", used.waiting.as_str().to_owned()),
                ("address", format!("{:#x}", known.address)),
                ("object_key", known.key.to_string()),
            ];
            facts.extend(caller(model, UseIndex(index)).map(|caller| ("in", caller)));
            UseText {
                object: object(model, used.object),
                facts,
            }
        });
        Texts {
            uses: uses.collect(),
        }
    }

    /// The awaited object: `mutex queue_lock`.
    pub(super) fn object(&self, used: UseIndex) -> &str {
        self.uses.get(used.0).map_or("", |text| &text.object)
    }

    /// The facts of a wait, with their names in all formats.
    pub(super) fn facts<'t>(
        &'t self,
        tracks: &'t Tracks,
        wait: &WaitSpan,
    ) -> impl Iterator<Item = (&'static str, &'t str)> {
        let name = |thread: Option<ThreadIndex>| {
            let track = tracks.threads.get(thread?.0)?;
            Some(track.name.as_str())
        };
        let facts = self.uses.get(wait.used.0).map(|text| &text.facts);
        let facts = facts.into_iter().flatten();
        facts
            .map(|(name, value)| (*name, value.as_str()))
            .chain(name(wait.holder).map(|name| ("holder", name)))
            .chain(name(wait.waker).map(|name| ("woken_by", name)))
    }
}

/// The function of the program that called, with its line.
fn caller(model: &Model, used: UseIndex) -> Option<String> {
    let path = model.sync.path(model.sync.used(used));
    sync::caller(path).map(sync::place)
}

/// `mutex queue_lock`
pub(super) fn object(model: &Model, index: ObjectIndex) -> String {
    let object = model.sync.object(index);
    match model.sync.name(object) {
        Some(name) => format!("{} {name}", object.kind.noun()),
        None => format!("{} at {:#x}", object.kind.noun(), object.address),
    }
}

/// A function's name, or its address in its module.
pub(super) fn function(place: &Place) -> String {
    match (&place.function, place.module_name()) {
        (Some(name), _) => name.to_string(),
        (None, Some(module)) => format!("{module}+{:#x}", place.svma.unwrap_or(place.offset)),
        (None, None) => format!("{:#x}", place.avma),
    }
}

/// The number of running threads over time, with those of other processes. It comes from the
/// kernel's schedule if that was recorded.
pub(super) fn running(model: &Model) -> Vec<(u64, f64)> {
    if !model.schedule.is_known() {
        let slices = model.sync.concurrency.slices.iter();
        return slices
            .map(|slice| {
                let running = slice.turns.map_or(slice.running, |(on_cpu, _)| on_cpu);
                (slice.from_ns, running)
            })
            .collect();
    }
    let mut changes: Vec<(u64, i32)> = Vec::new();
    let others = model.processes.intervals.iter();
    for interval in model.schedule.threads.iter().chain(others).flatten() {
        if matches!(interval.state, RunState::Running { .. }) {
            changes.extend([(interval.from_ns, 1), (interval.to_ns, -1)]);
        }
    }
    changes.sort_unstable();
    let mut running = 0;
    let mut levels: Vec<(u64, f64)> = Vec::new();
    for (ns, change) in changes {
        running += change;
        match levels.last_mut() {
            Some(last) if last.0 == ns => last.1 = f64::from(running),
            _ => levels.push((ns, f64::from(running))),
        }
    }
    levels
}

/// The time at which to show a finding, and its thread: the longest wait that belongs to it. One
/// without waits is shown at the end.
pub(super) fn time_of(
    model: &Model,
    waits: &[Vec<WaitSpan>],
    finding: &Finding,
) -> (u64, Option<ThreadIndex>) {
    let concerns = |wait: &&WaitSpan| {
        let object = model.sync.object(model.sync.used(wait.used).object);
        let named = |one: &crate::model::ObjectName| {
            one.address == object.address && one.kind == object.kind
        };
        finding.objects.iter().any(named)
    };
    let threads = finding.threads.iter();
    let threads = threads.filter_map(|thread| waits.get(thread.0));
    let longest = threads
        .flatten()
        .filter(concerns)
        .max_by_key(|wait| wait.to_ns - wait.from_ns);
    match longest {
        Some(wait) => (wait.from_ns, Some(wait.thread)),
        None => (
            model.recording.duration_ns,
            finding.threads.first().copied(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use unspool_capture::{Record, ScheduleKind as Kind};

    use super::super::switches;
    use super::*;
    use crate::model::fixture::{PID, Stage, schedule_begins, scheduled};

    /// The kernel gives the id of an ended process to the next one.
    #[test]
    fn a_reused_id_means_two_processes() {
        let mut stage = Stage::new();
        stage.add(schedule_begins());
        stage.add(scheduled(&[
            (1000, Kind::Runs, PID, 0),
            (2000, Kind::Blocks, PID, 0),
            (3000, Kind::Woken, PID, 20),
            (3100, Kind::Runs, PID, 0),
            (4000, Kind::Blocks, PID, 0),
            (8000, Kind::Woken, PID, 20),
            (8100, Kind::Runs, PID, 0),
            (9000, Kind::Ended, PID, 0),
        ]));
        stage.add(Record::Processes(scheduled(&[
            (1500, Kind::ProcessCreated, 20, PID),
            (2000, Kind::Runs, 20, 0),
            (3000, Kind::Ended, 20, 0),
            (3500, Kind::ProcessCreated, 20, PID),
            (4000, Kind::Runs, 20, 0),
            (8000, Kind::Ended, 20, 0),
        ])));
        stage.end(10);
        let model = stage.model();
        let tracks = Tracks::of(&model);
        let own = FIRST_FREE_ID + 1;
        let ids = tracks.threads.iter().map(|track| track.id);
        assert_eq!(ids.collect::<Vec<_>>(), [PID, 20, own]);
        let pids = tracks.processes.iter().map(|process| process.pid);
        assert_eq!(pids.collect::<Vec<_>>(), [PID, 20, own]);
        let (_, wakes) = switches::of(&model, &tracks);
        let wakes = wakes.iter().map(|wake| (wake.waker, wake.id));
        let wakes: Vec<(u64, u64)> = wakes.collect();
        // Both starts count as wake-ups by the creator.
        assert_eq!(wakes, [(20, PID), (own, PID), (PID, 20), (PID, own)]);
        let creators = (0..3).map(|thread| creation(&model, ThreadIndex(thread)));
        let main = model.main().unwrap();
        let expected = [None, Some((main, 1_500_000)), Some((main, 3_500_000))];
        assert_eq!(creators.collect::<Vec<_>>(), expected);
    }
}
