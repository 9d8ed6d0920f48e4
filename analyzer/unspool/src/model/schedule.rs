//! The state of each thread at every moment, from the kernel's scheduler: running, runnable or
//! blocked. Recorded calls are separate: they give the object that a thread waited for.

mod calls;
mod futex_places;
mod processes;
mod thread_ids;
mod wakers;

use std::collections::HashMap;

use unspool_capture::{
    Capture, Record, ScheduleEdge, ScheduleEntry, ScheduleKind, ScheduleLoss, StallCause,
};
use unspool_image::Arch;

use super::backtrace::Frames;
use super::{Model, ThreadIndex};
pub use calls::{
    BlockedCall, CallIndex, CallTime, add_time, blocked_within, call_within, stopped_within,
};
use calls::{join_blocks, mark_creation_stops, mark_stops};
use futex_places::WaitPlace;
pub use futex_places::{FutexObject, FutexWait, takes_again};
pub(in crate::model) use processes::{AllThreads, CreationStacks};
pub use processes::{Process, ProcessIndex, Processes};
pub(in crate::model) use thread_ids::by_tid;
pub use wakers::{CallWake, Waker, Wakers};

/// Maximum time by which a wake-up can be recorded before its thread's block, if the waker's
/// processor was faster.
const EARLY_WAKE_NS: u64 = 20_000;

/// Maximum time in which the recorder stops all threads of a program to halt it.
const HALT_NS: u64 = 5_000_000;

/// Maximum difference between the kernel's clock and the server's, in nanoseconds.
const APART_NS: u64 = 100_000_000;

/// The schedule of all threads; empty where it was not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Per thread of the model, in order and without gaps.
    pub threads: Vec<Vec<Interval>>,
    /// The system calls in which threads were blocked, as far as they are known.
    pub calls: Vec<BlockedCall>,
    /// Start and end of the recorded schedule, nanoseconds since the recording began.
    pub span_ns: Option<(u64, u64)>,
    /// True if wake-ups were recorded, so that all waits for a processor are known.
    pub has_wakers: bool,
    /// Number of the kernel's records that were lost.
    pub lost: u64,
    /// Time that the host of a virtual machine took from its processors meanwhile. Threads that it
    /// took a processor from seem to have run.
    pub stolen_ns: Option<u64>,
    /// The recorder's thread that stopped and resumed the threads, if it is known.
    pub recorder_tid: Option<u64>,
    /// The times in which the recorder halted the program, in order.
    halts: Vec<(u64, u64)>,
    /// The calls by their ids in the capture.
    call_of_id: HashMap<u64, Option<CallIndex>>,
    /// By futex call, one of its places.
    pub(in crate::model) places: HashMap<CallIndex, WaitPlace>,
}

/// A time in which a thread's state was the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Since then, nanoseconds since the recording began.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
    /// The thread's state.
    pub state: RunState,
    /// The system call in which it was blocked; none in other states, or if it is not known.
    pub call: Option<CallIndex>,
    /// It continues the block before it in the same call, because only a stop by the recorder came
    /// between them.
    pub continues: bool,
}

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// It ran on this processor.
    Running {
        /// The processor's number.
        cpu: u32,
    },
    /// Another thread had taken its processor.
    Preempted,
    /// It had been woken, or had just been created, and waited for a processor.
    Woken {
        /// The thread that woke or created it, of whatever process; none if an interrupt did.
        waker: Option<u64>,
    },
    /// It waited for something other than a processor.
    Blocked,
    /// The recorder had stopped it.
    Stopped,
    /// Records are missing.
    Unknown,
}

/// Time that a thread spent in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateTimes {
    /// It ran.
    pub running_ns: u64,
    /// It could have run, and waited for a processor.
    pub runnable_ns: u64,
    /// It waited for something else.
    pub blocked_ns: u64,
    /// The recorder had stopped it.
    pub stopped_ns: u64,
    /// Its state is not known.
    pub unknown_ns: u64,
    /// How often it was given a processor.
    pub switches: u64,
    /// How often another thread took its processor.
    pub preemptions: u64,
}

impl Interval {
    /// Its length in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

impl RunState {
    /// Whether the thread could have run, and waited for a processor.
    pub fn is_runnable(&self) -> bool {
        matches!(self, RunState::Preempted | RunState::Woken { .. })
    }

    /// The word for it in reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            RunState::Running { .. } => "running",
            RunState::Preempted | RunState::Woken { .. } => "runnable",
            RunState::Blocked => "blocked",
            RunState::Stopped => "stopped",
            RunState::Unknown => "unknown",
        }
    }
}

impl Schedule {
    /// Reads the schedule, and refines the threads' beginnings and ends with it.
    pub(super) fn of(capture: &Capture, model: &mut Model, frames: &mut dyn Frames) -> Schedule {
        let mut reader = Reader::default();
        let mut schedule = Schedule::default();
        let mut losses: Vec<ScheduleLoss> = Vec::new();
        let mut stolen_before_ns = None;
        let arch = Arch::from_gdb_name(&capture.target.arch);
        let mut halts: Vec<(u64, u64)> = Vec::new();
        let places = futex_places::of(capture, frames);
        let mut known_calls = HashMap::new();
        for record in &capture.records {
            let part = match record {
                Record::Schedule(part) => part,
                Record::Processes(part) => {
                    schedule.add_calls(part, arch, (&places, &mut known_calls));
                    continue;
                }
                Record::Stood(stood) => {
                    if stood.cause() == StallCause::Halted {
                        halts.push((stood.from_ns, stood.to_ns));
                    }
                    continue;
                }
                _ => continue,
            };
            let begun_ns = schedule.span_ns.map_or(part.time_ns, |(from, _)| from);
            let mut last_ns = part.time_ns;
            schedule.add_calls(part, arch, (&places, &mut known_calls));
            for entry in part.entries() {
                last_ns = entry.time_ns;
                reader.entry(entry, schedule.call_of(entry), begun_ns);
            }
            match part.edge() {
                ScheduleEdge::Ends => {
                    last_ns = last_ns.max(part.time_ns);
                    let stolen = part.stolen_ns.zip(stolen_before_ns);
                    schedule.stolen_ns = stolen.map(|(now, before)| now.saturating_sub(before));
                }
                ScheduleEdge::Begins | ScheduleEdge::BeginsWithWakers => {
                    stolen_before_ns = part.stolen_ns;
                }
                ScheduleEdge::Unspecified => {}
            }
            schedule.recorder_tid = schedule.recorder_tid.or(part.recorder_tid);
            schedule.has_wakers |= part.edge() == ScheduleEdge::BeginsWithWakers;
            losses.extend(&part.losses);
            schedule.span_ns = Some((begun_ns, last_ns));
        }
        let Some((begun_ns, last_ns)) = schedule.span_ns else {
            return schedule;
        };
        losses.sort_unstable_by_key(|loss| loss.from_ns);
        halts.sort_unstable();
        schedule.lost = losses.iter().map(|loss| loss.count).sum();
        let launched = model.recording.source == Some(unspool_capture::Source::Launched);
        schedule.threads = vec![Vec::new(); model.threads.len()];
        let lives = reader.finish(last_ns);
        let by_tid = by_tid(model.threads.iter());
        for (tid, lives) in lives {
            let same_id = by_tid.get(&tid).map_or(&[][..], Vec::as_slice);
            for life in lives {
                let Some(index) = life.thread(same_id, model) else {
                    continue;
                };
                let thread = &mut model.threads[index.0];
                if life.is_born {
                    thread.started_ns = Some(life.from_ns);
                }
                // A thread that was alive when the program ended gets no end time.
                if life.is_ended && thread.ended_ns.is_some() {
                    thread.ended_ns = Some(life.to_ns);
                }
                let mut intervals = with_losses(life.intervals, &losses);
                mark_stops(&mut intervals, &halts);
                // A thread that existed before was stopped, if the recorder started the program.
                let before = thread.started_ns.unwrap_or(0);
                if !life.is_born && before < begun_ns {
                    let first = Interval {
                        from_ns: before,
                        to_ns: life.from_ns,
                        state: match launched {
                            true => RunState::Stopped,
                            false => RunState::Unknown,
                        },
                        call: None,
                        continues: false,
                    };
                    intervals.insert(0, first);
                }
                if !life.is_ended {
                    let last = Interval {
                        from_ns: life.to_ns,
                        to_ns: thread.ended_ns.unwrap_or(model.recording.duration_ns),
                        state: RunState::Unknown,
                        call: None,
                        continues: false,
                    };
                    intervals.push(last);
                }
                if schedule.threads[index.0].is_empty() {
                    merge(&mut intervals);
                    if let Some(recorder) = schedule.recorder_tid {
                        mark_creation_stops(&mut intervals, recorder, &schedule.calls);
                        join_blocks(&mut intervals, recorder);
                    }
                    schedule.threads[index.0] = intervals;
                }
            }
        }
        schedule.halts = halts;
        schedule
    }

    /// True if the recorder halted the program at a moment, or shortly after it.
    pub(super) fn is_halted_at(&self, ns: u64) -> bool {
        let past = self.halts.partition_point(|(_, to_ns)| *to_ns < ns);
        let next = self.halts.get(past);
        next.is_some_and(|(from_ns, _)| *from_ns <= ns.saturating_add(HALT_NS))
    }

    /// True if a schedule was recorded.
    pub fn is_known(&self) -> bool {
        self.span_ns.is_some()
    }

    /// A thread's intervals.
    pub fn of_thread(&self, thread: ThreadIndex) -> &[Interval] {
        self.threads.get(thread.0).map_or(&[], Vec::as_slice)
    }

    /// A thread's interval at a moment.
    pub fn at(&self, thread: ThreadIndex, ns: u64) -> Option<&Interval> {
        let intervals = self.of_thread(thread);
        let after = intervals.partition_point(|interval| interval.from_ns <= ns);
        let interval = intervals.get(after.checked_sub(1)?)?;
        (ns < interval.to_ns).then_some(interval)
    }

    /// The intervals from `from_ns` to `to_ns` in which a thread waited for a processor.
    pub fn runnable_within(
        &self,
        thread: ThreadIndex,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = (u64, u64)> + '_ {
        runnable_spans(self.of_thread(thread), from_ns, to_ns)
    }

    /// Time that a thread spent in each state.
    pub fn times(&self, thread: ThreadIndex) -> StateTimes {
        sum_of(self.of_thread(thread))
    }
}

fn runnable_spans(
    intervals: &[Interval],
    from_ns: u64,
    to_ns: u64,
) -> impl Iterator<Item = (u64, u64)> + '_ {
    let first = intervals.partition_point(|interval| interval.to_ns <= from_ns);
    let within = intervals[first..].iter();
    within
        .take_while(move |interval| interval.from_ns < to_ns)
        .filter(|interval| interval.state.is_runnable())
        .map(move |interval| (interval.from_ns.max(from_ns), interval.to_ns.min(to_ns)))
}

/// Time within a span for which a thread with these intervals waited for a processor.
pub(super) fn runnable_within(intervals: &[Interval], from_ns: u64, to_ns: u64) -> u64 {
    let spans = runnable_spans(intervals, from_ns, to_ns);
    spans.map(|(from_ns, to_ns)| to_ns - from_ns).sum()
}

/// Time that threads with these intervals spent in each state.
pub fn sum_of<'a>(intervals: impl IntoIterator<Item = &'a Interval>) -> StateTimes {
    let mut times = StateTimes::default();
    for interval in intervals {
        let length = interval.length_ns();
        match interval.state {
            RunState::Running { .. } => {
                times.running_ns = times.running_ns.saturating_add(length);
                times.switches += 1;
            }
            RunState::Preempted => {
                times.runnable_ns = times.runnable_ns.saturating_add(length);
                times.preemptions += 1;
            }
            RunState::Woken { .. } => times.runnable_ns = times.runnable_ns.saturating_add(length),
            RunState::Blocked => times.blocked_ns = times.blocked_ns.saturating_add(length),
            RunState::Stopped => times.stopped_ns = times.stopped_ns.saturating_add(length),
            RunState::Unknown => times.unknown_ns = times.unknown_ns.saturating_add(length),
        }
    }
    times
}

/// A thread's life, by the kernel's records.
#[derive(Debug)]
struct Life {
    from_ns: u64,
    to_ns: u64,
    /// Its creation was recorded.
    is_born: bool,
    /// Its end was recorded.
    is_ended: bool,
    intervals: Vec<Interval>,
    /// The state since the end of the last interval; none if it is not known yet.
    state: Option<RunState>,
    /// The system call in which it has been blocked since then.
    call: Option<CallIndex>,
    /// A wake-up while it still ran, and its waker.
    early_wake: Option<(u64, Option<u64>)>,
}

impl Life {
    fn new(from_ns: u64, is_born: bool, state: Option<RunState>) -> Life {
        Life {
            from_ns,
            to_ns: from_ns,
            is_born,
            is_ended: false,
            intervals: Vec::new(),
            state,
            call: None,
            early_wake: None,
        }
    }

    /// Another thread has taken the id of this one, which has ended, and goes on as it.
    fn resume(&mut self, time_ns: u64) {
        self.is_ended = false;
        self.state = Some(RunState::Unknown);
        self.change(time_ns, RunState::Unknown, None);
    }

    /// Changes the state now. `before` is the previous state, if only the new record tells it.
    fn change(&mut self, time_ns: u64, before: RunState, state: Option<RunState>) {
        if time_ns > self.to_ns {
            let state = self.state.unwrap_or(before);
            self.intervals.push(Interval {
                from_ns: self.to_ns,
                to_ns: time_ns,
                state,
                call: self.call.filter(|_| state == RunState::Blocked),
                continues: false,
            });
        }
        self.call = None;
        self.to_ns = self.to_ns.max(time_ns);
        self.state = state;
    }

    fn entry(&mut self, entry: ScheduleEntry, call: Option<CallIndex>) {
        let waker = Some(entry.detail).filter(|tid| *tid != 0);
        let runs = matches!(self.state, Some(RunState::Running { .. }));
        match entry.kind {
            ScheduleKind::Runs => {
                if runs {
                    // The thread must have stopped running in between.
                    self.state = Some(RunState::Unknown);
                }
                let cpu = entry.cpu;
                let running = Some(RunState::Running { cpu });
                self.change(entry.time_ns, RunState::Preempted, running);
                self.early_wake = None;
            }
            ScheduleKind::Blocks | ScheduleKind::Preempted => {
                if !runs && self.state.is_some() {
                    self.state = Some(RunState::Unknown);
                }
                let woken = self.early_wake.take();
                let woken =
                    woken.filter(|(at, _)| entry.time_ns.saturating_sub(*at) <= EARLY_WAKE_NS);
                let state = match (entry.kind, woken) {
                    (ScheduleKind::Preempted, _) => RunState::Preempted,
                    (_, Some((_, waker))) => RunState::Woken { waker },
                    (_, None) => RunState::Blocked,
                };
                let before = RunState::Running { cpu: entry.cpu };
                self.change(entry.time_ns, before, Some(state));
                self.call = call;
            }
            ScheduleKind::Woken => match self.state {
                Some(state @ (RunState::Blocked | RunState::Stopped)) => {
                    let woken = Some(RunState::Woken { waker });
                    self.change(entry.time_ns, state, woken);
                }
                _ => self.early_wake = Some((entry.time_ns, waker)),
            },
            ScheduleKind::CallKnown if self.call.is_some() => self.call = call,
            ScheduleKind::Ended => {
                let before = RunState::Running { cpu: entry.cpu };
                self.change(entry.time_ns, before, None);
                self.is_ended = true;
            }
            _ => {}
        }
    }

    /// The thread that lived at the time, of the threads with its id.
    fn thread(&self, same_id: &[ThreadIndex], model: &Model) -> Option<ThreadIndex> {
        let end_ns = model.recording.duration_ns;
        let overlap = same_id.iter().map(|index| {
            let thread = &model.threads[index.0];
            let from = thread.started_ns.or(thread.created_ns).unwrap_or(0);
            let to = thread.ended_ns.unwrap_or(end_ns);
            let common = to.min(self.to_ns) as i128 - from.max(self.from_ns) as i128;
            (common, *index)
        });
        let (common, index) = overlap.max_by_key(|(common, _)| *common)?;
        (common > -i128::from(APART_NS)).then_some(index)
    }
}

/// All lives, while records are read.
#[derive(Default)]
struct Reader {
    /// By thread id, one after the other.
    lives: HashMap<u64, Vec<Life>>,
}

impl Reader {
    /// `call`: the system call in which the thread is blocked.
    fn entry(&mut self, entry: ScheduleEntry, call: Option<CallIndex>, begun_ns: u64) {
        let lives = self.lives.entry(entry.tid).or_default();
        let is_first = lives.is_empty();
        let current = lives.last_mut().filter(|life| !life.is_ended);
        match (entry.kind, current) {
            (ScheduleKind::Created, _) => {
                let waker = Some(entry.detail);
                let state = Some(RunState::Woken { waker });
                lives.push(Life::new(entry.time_ns, true, state));
            }
            (ScheduleKind::Found, None) => {
                // A runnable thread runs or waits; the next record tells which.
                let state = match u8::try_from(entry.detail) {
                    Ok(b'R') => None,
                    Ok(b't') => Some(RunState::Stopped),
                    _ => Some(RunState::Blocked),
                };
                lives.push(Life::new(entry.time_ns.max(begun_ns), false, state));
            }
            (ScheduleKind::Unspecified, _) | (ScheduleKind::Found, Some(_)) => {}
            (_, Some(life)) => life.entry(entry, call),
            (_, None) if is_first => {
                let mut life = Life::new(begun_ns, false, Some(RunState::Unknown));
                life.change(entry.time_ns, RunState::Unknown, None);
                life.entry(entry, call);
                lives.push(life);
            }
            // A record of an ended thread: its last moments in the kernel.
            (_, None) => {}
        }
    }

    /// Returns all lives. Threads that have not ended live until `last_ns`.
    fn finish(mut self, last_ns: u64) -> HashMap<u64, Vec<Life>> {
        for life in self.lives.values_mut().flatten() {
            if !life.is_ended {
                life.change(last_ns, RunState::Unknown, None);
            }
        }
        self.lives
    }
}

/// Marks the intervals that lost records make doubtful as unknown.
fn with_losses(intervals: Vec<Interval>, losses: &[ScheduleLoss]) -> Vec<Interval> {
    if losses.is_empty() {
        return intervals;
    }
    let mut all = Vec::with_capacity(intervals.len());
    let mut past = 0;
    for interval in intervals {
        while losses
            .get(past)
            .is_some_and(|loss| loss.to_ns <= interval.from_ns)
        {
            past += 1;
        }
        // Only its own processor can stop a running thread; any processor can start a thread.
        let touches = |loss: &&ScheduleLoss| {
            let same = match interval.state {
                RunState::Running { cpu } => loss.cpu == cpu,
                _ => true,
            };
            same && loss.from_ns < interval.to_ns && loss.to_ns > interval.from_ns
        };
        let later = losses[past..].iter();
        let mut later = later.take_while(|loss| loss.from_ns < interval.to_ns);
        let Some(loss) = later.find(touches) else {
            all.push(interval);
            continue;
        };
        let known_ns = loss.from_ns.max(interval.from_ns);
        all.push(Interval {
            to_ns: known_ns,
            ..interval
        });
        all.push(Interval {
            from_ns: known_ns,
            state: RunState::Unknown,
            call: None,
            ..interval
        });
    }
    all
}

/// Removes empty intervals, and merges neighbours of the same state.
fn merge(intervals: &mut Vec<Interval>) {
    intervals.retain(|interval| interval.from_ns < interval.to_ns);
    intervals.dedup_by(|next, last| {
        let is_same = (last.state, last.call) == (next.state, next.call);
        let goes_on = is_same && last.to_ns == next.from_ns;
        if goes_on {
            last.to_ns = next.to_ns;
        }
        goes_on
    });
    intervals.shrink_to_fit();
}

#[cfg(test)]
mod tests;
