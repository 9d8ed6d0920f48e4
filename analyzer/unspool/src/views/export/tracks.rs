//! What the formats of trace viewers share: ids and names of threads, waits, counters and findings
//! as points in time.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::model::schedule::RunState;
use crate::model::sync::{self, ObjectIndex, UseIndex, WaitSpan};
use crate::model::{Finding, Model, Place, ThreadIndex};
use crate::views::wording;

/// The kernel's thread ids are below this (PID_MAX_LIMIT). Ids from here on are ours.
const FIRST_FREE_ID: u64 = 1 << 22;

/// The threads of a recording as tracks of a viewer.
pub(super) struct Tracks {
    /// The process id.
    pub(super) pid: u64,
    /// The process's name.
    pub(super) process: String,
    /// Per thread of the model.
    pub(super) threads: Vec<Track>,
    /// An id that no thread has, for everything else on the processors.
    pub(super) other: u64,
    by_tid: HashMap<u64, Vec<usize>>,
}

/// A thread as a track.
pub(super) struct Track {
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
        let mut used = HashSet::new();
        let mut free = FIRST_FREE_ID + 1;
        let mut by_tid: HashMap<u64, Vec<usize>> = HashMap::new();
        let end_ns = model.recording.duration_ns;
        let main = model.main().and_then(|main| model.thread(main));
        let main_name = main.map_or("", |main| main.name.as_str());
        let threads = model.threads.iter().enumerate().map(|(index, thread)| {
            let own = thread.tid.filter(|tid| used.insert(*tid));
            let id = own.unwrap_or_else(|| {
                free += 1;
                free - 1
            });
            if let Some(tid) = thread.tid {
                by_tid.entry(tid).or_default().push(index);
            }
            let title = wording::title(model, thread, usize::MAX);
            let name = match thread.name.as_str() {
                name if name.is_empty() || name == main_name => title,
                name => format!("{title} ({name})"),
            };
            let from_ns = thread.first_ns().unwrap_or(0);
            Track {
                id,
                name,
                from_ns,
                to_ns: thread.ended_ns.unwrap_or(end_ns).max(from_ns),
            }
        });
        let threads = threads.collect();
        Tracks {
            // Process 0 is the idle one.
            pid: model.target.pid.max(1),
            process: model.target.name.clone(),
            threads,
            other: FIRST_FREE_ID,
            by_tid,
        }
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

/// The number of running threads over time, by the kernel's schedule if it was recorded.
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
    for interval in model.schedule.threads.iter().flatten() {
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
