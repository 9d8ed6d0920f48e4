//! Where threads were blocked: the intervals of the schedule, with the stacks that the kernel
//! sampled when they began.
//!
//! Sums instead of single waits, because a program can block a hundred thousand times per second.

use std::sync::Arc;

use foldhash::HashMap;
use unspool_capture::Record;

use super::{Lives, Profile, StackTime};
use crate::model::backtrace::{Backtrace, Frames};
use crate::model::critical_path::{Blocking, End, blocking};
use crate::model::schedule::{CallIndex, Interval, RunState, Waker, Wakers};
use crate::model::sync::ObjectIndex;
use crate::model::{Model, ThreadIndex};

/// Maximum length of a stop of one thread by the recorder, at a probe. Longer ones are halts of the
/// program.
const MAX_STOP_NS: u64 = 10_000_000;

/// The time in which threads were blocked, by stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OffCpu {
    /// The sums, the longest first.
    pub sums: Vec<BlockedSum>,
    /// Start and end of the time in which samples were taken, nanoseconds since the recording
    /// began.
    pub span_ns: (u64, u64),
    /// Number of samples that are missing, because the kernel's buffers were full or the rate was
    /// above the limit. Some of them are of threads that did not block.
    pub lost: u64,
    /// Number of waits whose stack continues beyond the bytes that were copied.
    pub cut: u64,
}

/// The reason why a recording has no off-CPU stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NoOffCpu {
    /// No samples were taken at all.
    #[default]
    NoSamples,
    /// The recorder did not ask for them, because it is an older version.
    OlderRecorder,
    /// The recording has no schedule, so the times are not known.
    NoSchedule,
    /// The server could not take them, with its reason.
    Refused(String),
}

/// The waits of a thread with the same stack, reason and waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedSum {
    /// What they have in common.
    pub key: BlockedKey,
    /// Number of waits.
    pub count: u64,
    /// The sum of their lengths, in nanoseconds.
    pub ns: u64,
    /// The longest one, in nanoseconds.
    pub longest_ns: u64,
}

/// What the waits of a [`BlockedSum`] have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockedKey {
    /// The thread that was blocked.
    pub thread: ThreadIndex,
    /// Index into [`Profile::stacks`]; none if the kernel took no sample.
    pub stack: Option<usize>,
    /// The system call, if it is known.
    pub call: Option<CallIndex>,
    /// The synchronization object, if the recorded calls show it.
    pub object: Option<ObjectIndex>,
    /// What ended the wait, as far as it is known.
    pub waker: Option<Waker>,
}

impl OffCpu {
    /// Sums the blocked intervals of all threads. Also returns further stacks for the profile, of
    /// waits without a sample.
    pub(in crate::model) fn of(
        records: &[Record],
        model: &Model,
        frames: &mut dyn Frames,
    ) -> Result<(OffCpu, Vec<Arc<Backtrace>>), NoOffCpu> {
        if !model.profile.is_known() {
            return Err(NoOffCpu::NoSamples);
        }
        let begun_ns = begun(records)?;
        let (from_ns, to_ns) = model.schedule.span_ns.ok_or(NoOffCpu::NoSchedule)?;
        let mut off_cpu = OffCpu {
            span_ns: (from_ns.max(begun_ns), to_ns),
            ..OffCpu::default()
        };
        let lives = Lives::of(model);
        let (mut stacks, further) = Stacks::of(records, model, &lives, frames);
        (off_cpu.lost, off_cpu.cut) = (stacks.lost, stacks.cut());
        let own = model.own_threads();
        let facts = model.path_facts(&own);
        let wakers = model.wakers();
        let mut sums: HashMap<BlockedKey, BlockedSum> = HashMap::default();
        for (index, blocking) in blocking(&facts, &wakers).into_iter().enumerate() {
            let thread = ThreadIndex(index);
            let intervals = model.schedule.of_thread(thread);
            for blocking in blocking {
                let interval = &intervals[blocking.at];
                let ns = overlap_ns(interval, off_cpu.span_ns);
                let stack = stacks.remove(thread, blocking.at);
                if ns == 0 || is_stop(interval, &blocking, stack) {
                    continue;
                }
                let used = blocking.used.map(|used| model.sync.used(used));
                let next = intervals.get(blocking.at + 1);
                // The recorder stopped the thread meanwhile, which ends no call.
                let goes_on = interval.call.is_some() && goes_on(&intervals[blocking.at + 1..]);
                let key = BlockedKey {
                    thread,
                    stack,
                    call: interval.call,
                    object: used.map(|used| used.object),
                    waker: next
                        .filter(|_| !goes_on)
                        .and_then(|next| match blocking.end {
                            End::Outside if model.schedule.is_halted_at(next.from_ns) => {
                                Some(Waker::Recorder)
                            }
                            end => waker(&wakers, thread, next, end),
                        }),
                };
                let sum = sums.entry(key).or_insert(BlockedSum {
                    key,
                    count: 0,
                    ns: 0,
                    longest_ns: 0,
                });
                sum.count = sum.count.saturating_add(u64::from(!interval.continues));
                sum.ns = sum.ns.saturating_add(ns);
                sum.longest_ns = sum.longest_ns.max(ns);
            }
        }
        // The part of a wait before a stop may have another stack than the part after it.
        let at_least_one = |sum: BlockedSum| BlockedSum {
            count: sum.count.max(1),
            ..sum
        };
        off_cpu.sums = sums.into_values().map(at_least_one).collect();
        off_cpu
            .sums
            .sort_by_key(|sum| (std::cmp::Reverse(sum.ns), sum.key));
        Ok((off_cpu, further))
    }

    /// The blocked time of each thread and stack. Time without a stack has the index
    /// [`Profile::no_stack`].
    pub fn stack_times(&self, profile: &Profile) -> Vec<StackTime> {
        let sums = self.sums.iter();
        sums.map(|sum| StackTime {
            thread: Some(sum.key.thread),
            stack: sum.key.stack.unwrap_or(profile.no_stack()),
            ns: sum.ns,
        })
        .collect()
    }

    /// Number and total time, in nanoseconds, of the waits that meet a condition.
    pub fn total(&self, is_counted: impl Fn(&BlockedKey) -> bool) -> (u64, u64) {
        let counted = self.sums.iter().filter(|sum| is_counted(&sum.key));
        counted.fold((0u64, 0u64), |(count, ns), sum| {
            (count.saturating_add(sum.count), ns.saturating_add(sum.ns))
        })
    }
}

/// The time since which the server takes samples of threads that block.
fn begun(records: &[Record]) -> Result<u64, NoOffCpu> {
    let parts = records.iter().filter_map(|record| match record {
        Record::Samples(part) => Some((part.time_ns, part.off_cpu.as_ref()?)),
        _ => None,
    });
    let (time_ns, first) = parts
        .min_by_key(|(time_ns, _)| *time_ns)
        .ok_or(NoOffCpu::OlderRecorder)?;
    match first.refusal.is_empty() {
        true => Ok(time_ns),
        false => Err(NoOffCpu::Refused(first.refusal.clone())),
    }
}

/// The part of an interval within a span.
fn overlap_ns(interval: &Interval, (from_ns, to_ns): (u64, u64)) -> u64 {
    let to_ns = interval.to_ns.min(to_ns);
    to_ns.saturating_sub(interval.from_ns.max(from_ns))
}

/// True if the recorder had stopped the thread: for a halt of the program, or at a probe. Stops at
/// probes have no sample.
fn is_stop(interval: &Interval, blocking: &Blocking, stack: Option<usize>) -> bool {
    let is_unexplained = (blocking.used, interval.call, stack) == (None, None, None);
    let is_probe = is_unexplained
        && matches!(blocking.end, End::Recorder | End::Outside)
        && interval.length_ns() <= MAX_STOP_NS;
    is_probe || interval.state == RunState::Stopped
}

/// True if the next call of a thread is the one before, which goes on.
fn goes_on(later: &[Interval]) -> bool {
    let next = later.iter().find(|interval| interval.call.is_some());
    next.is_some_and(|next| next.continues)
}

/// What ended a wait, unless its end is not known or the end of the program ended it.
fn waker(wakers: &Wakers<'_>, thread: ThreadIndex, next: &Interval, end: End) -> Option<Waker> {
    let waker = match end {
        End::By(thread) => Waker::Thread(thread),
        // Without the records of wake-ups, it is only an assumption.
        End::Device if !wakers.are_recorded() || next.state == RunState::Unknown => return None,
        End::Device => Waker::Interrupt,
        End::Outside => Waker::Outside,
        End::Recorder => Waker::Recorder,
        End::NotKnown => return None,
    };
    (!wakers.is_killed(thread, waker, next.from_ns)).then_some(waker)
}

/// The stacks of blocked intervals.
#[derive(Default)]
struct Stacks {
    /// By thread and position of the interval.
    by_interval: HashMap<(ThreadIndex, usize), Taken>,
    lost: u64,
}

/// A stack that was taken of a blocked thread.
#[derive(Clone, Copy)]
struct Taken {
    time_ns: u64,
    /// Index into [`Profile::stacks`].
    stack: usize,
    is_cut: bool,
}

impl Stacks {
    /// Finds the interval of each sample. Intervals without a sample get the stack that the
    /// recorder has read meanwhile, if it has. Those stacks follow the profile's.
    fn of(
        records: &[Record],
        model: &Model,
        lives: &Lives,
        frames: &mut dyn Frames,
    ) -> (Stacks, Vec<Arc<Backtrace>>) {
        let mut stacks = Stacks::default();
        let known = model.profile.stacks.len();
        for record in records {
            let Record::Samples(part) = record else {
                continue;
            };
            let lost = part.off_cpu.as_ref().map_or(0, |off_cpu| off_cpu.lost);
            stacks.lost = stacks.lost.saturating_add(lost);
            for sample in part.off_cpu_samples() {
                let Some(thread) = lives.at(sample.tid, sample.time_ns) else {
                    continue;
                };
                let taken = Taken {
                    time_ns: sample.time_ns,
                    stack: sample.stack as usize,
                    is_cut: sample.is_cut,
                };
                let intervals = model.schedule.of_thread(thread);
                if let Some(at) = stopped(intervals, sample.time_ns)
                    && taken.stack < known
                {
                    stacks.add(thread, at, taken);
                }
            }
        }
        let mut further = Vec::new();
        // By thread id, its last place: program counter, stack pointer and stack.
        let mut places: HashMap<u64, (u64, u64, usize)> = HashMap::default();
        for (at, record) in records.iter().enumerate() {
            let Record::Blocked(read) = record else {
                continue;
            };
            let place = match &read.snapshot {
                Some(snapshot) => {
                    further.push(frames.backtrace(at, snapshot));
                    (read.pc, read.sp, known + further.len() - 1)
                }
                None => match places.get(&read.tid) {
                    Some(place) if (place.0, place.1) == (read.pc, read.sp) => *place,
                    _ => continue,
                },
            };
            places.insert(read.tid, place);
            let Some(thread) = lives.at(read.tid, read.time_ns) else {
                continue;
            };
            let intervals = model.schedule.of_thread(thread);
            let after = intervals.partition_point(|interval| interval.from_ns <= read.time_ns);
            let at = after.checked_sub(1).filter(|at| {
                intervals[*at].state == RunState::Blocked && read.time_ns < intervals[*at].to_ns
            });
            if let Some(at) = at {
                let taken = Taken {
                    time_ns: read.time_ns,
                    stack: place.2,
                    is_cut: false,
                };
                stacks.by_interval.entry((thread, at)).or_insert(taken);
            }
        }
        (stacks, further)
    }

    /// Adds the stack of a sample. If several were taken before a block, because records of the
    /// schedule are missing, the last one counts.
    fn add(&mut self, thread: ThreadIndex, at: usize, taken: Taken) {
        let kept = self.by_interval.entry((thread, at)).or_insert(taken);
        if kept.time_ns < taken.time_ns {
            *kept = taken;
        }
    }

    fn cut(&self) -> u64 {
        self.by_interval
            .values()
            .filter(|taken| taken.is_cut)
            .count() as u64
    }

    fn remove(&mut self, thread: ThreadIndex, at: usize) -> Option<usize> {
        self.by_interval
            .remove(&(thread, at))
            .map(|taken| taken.stack)
    }
}

/// The blocked interval to which the sample of a blocking thread belongs. The kernel takes the
/// sample shortly before it records the switch. `None` if the thread did not block.
fn stopped(intervals: &[Interval], ns: u64) -> Option<usize> {
    let after = intervals.partition_point(|interval| interval.from_ns <= ns);
    let at = after.checked_sub(1)?;
    let before = at.checked_sub(1).map(|before| intervals[before].state);
    let at = match (intervals[at].state, before) {
        (RunState::Running { .. }, _) => at + 1,
        // Two notices of a remote target may differ slightly in their time.
        (RunState::Woken { .. }, Some(RunState::Blocked)) => at - 1,
        _ => at,
    };
    let interval = intervals.get(at)?;
    (interval.state == RunState::Blocked).then_some(at)
}

#[cfg(test)]
mod tests {
    use unspool_capture::{
        Blocked, OffCpuSample, OffCpuSamples, Samples, SamplesEdge, Schedule, ScheduleEdge,
        ScheduleKind as Kind,
    };

    use super::*;
    use crate::model::fixture::{PID, Stage, scheduled};

    fn intervals(states: &[(u64, RunState)]) -> Vec<Interval> {
        let ends = states.iter().skip(1).map(|(from_ns, _)| *from_ns);
        let ends = ends.chain([1000]);
        let all = states.iter().zip(ends);
        all.map(|((from_ns, state), to_ns)| Interval {
            from_ns: *from_ns,
            to_ns,
            state: *state,
            call: None,
            continues: false,
        })
        .collect()
    }

    #[test]
    fn samples_belong_to_the_next_block() {
        let running = RunState::Running { cpu: 0 };
        let woken = RunState::Woken { waker: None };
        let all = intervals(&[
            (0, running),
            (100, RunState::Blocked),
            (200, woken),
            (210, running),
            (300, RunState::Preempted),
            (310, running),
        ]);
        // While it still runs, at the switch, and after it by a clock that is slightly ahead.
        for ns in [99, 100, 101, 205] {
            assert_eq!(stopped(&all, ns), Some(1), "{ns}");
        }
        for ns in [299, 305, 500] {
            assert_eq!(stopped(&all, ns), None, "{ns}");
        }
        assert_eq!(stopped(&[], 5), None);
    }

    #[test]
    fn a_stop_by_the_recorder_ends_no_call() {
        let mut all = intervals(&[
            (0, RunState::Running { cpu: 0 }),
            (100, RunState::Blocked),
            (200, RunState::Running { cpu: 0 }),
            (210, RunState::Blocked),
            (300, RunState::Running { cpu: 0 }),
        ]);
        all[3].call = Some(CallIndex(0));
        assert!(!goes_on(&all[2..]));
        all[3].continues = true;
        assert!(goes_on(&all[2..]));
        assert!(!goes_on(&all[4..]));
    }

    const US: u64 = 1000;

    /// A thread blocks twice. Two samples precede the first wait; the recorder reads the stack of
    /// the second one. `first` is the first record of off-CPU samples.
    fn model(first: Option<OffCpuSamples>) -> Model {
        let mut stage = Stage::new();
        stage.spawn(
            PID,
            7,
            1,
            "orders!work@orders.c:20",
            &["orders!main@orders.c:9"],
        );
        stage.add(Samples {
            time_ns: 2000 * US,
            edge: SamplesEdge::Begins.into(),
            period_ns: 5_000_000,
            off_cpu: first,
            ..Samples::default()
        });
        stage.add(Schedule {
            time_ns: 2000 * US,
            edge: ScheduleEdge::BeginsWithWakers.into(),
            ..Schedule::default()
        });
        stage.add(scheduled(&[
            (2000, Kind::Runs, PID, 0),
            (2100, Kind::Runs, 7, 0),
            (3000, Kind::Blocks, 7, 0),
            (6000, Kind::Woken, 7, PID),
            (6100, Kind::Runs, 7, 0),
            (8000, Kind::Blocks, 7, 0),
            (9000, Kind::Woken, 7, 0),
            (9100, Kind::Runs, 7, 0),
        ]));
        let stacks = ["orders!send@orders.c:3", "orders!receive@orders.c:4"];
        let mut off_cpu = OffCpuSamples::default();
        let mut last_ns = 2000 * US;
        for (us, stack) in [(2900, 1), (2200, 0)] {
            let sample = OffCpuSample {
                time_ns: us * US,
                tid: 7,
                stack,
                is_cut: stack == 1,
            };
            last_ns = off_cpu.push(last_ns, sample);
        }
        let new_stacks = stacks
            .map(|function| stage.snapshot(0, &[function]))
            .to_vec();
        stage.add(Samples {
            time_ns: 2000 * US,
            new_stacks,
            off_cpu: Some(off_cpu),
            ..Samples::default()
        });
        let snapshot = stage.snapshot(0, &["orders!poll@orders.c:5"]);
        stage.add(Blocked {
            time_ns: 8500 * US,
            tid: 7,
            snapshot: Some(snapshot),
            ..Blocked::default()
        });
        stage.end(10);
        stage.model()
    }

    #[test]
    fn each_wait_has_its_last_stack() {
        let model = model(Some(OffCpuSamples::default()));
        let off_cpu = model.profile.off_cpu.as_ref().unwrap();
        let sums = off_cpu.sums.iter();
        let sums: Vec<_> = sums
            .map(|sum| {
                let stack = &model.profile.stacks[sum.key.stack.unwrap()];
                let name = stack.frames[0].place.function.as_deref();
                (name.unwrap(), sum.ns, sum.key.waker)
            })
            .collect();
        let expected = [
            ("receive", 3000 * US, Some(Waker::Thread(ThreadIndex(0)))),
            ("poll", 1000 * US, Some(Waker::Interrupt)),
        ];
        assert_eq!(sums, expected);
        assert_eq!(off_cpu.total(|_| true), (2, 4000 * US));
        assert_eq!((off_cpu.cut, off_cpu.span_ns.0), (1, 2000 * US));
    }

    #[test]
    fn missing_stacks_have_a_reason() {
        let refused = OffCpuSamples {
            refusal: "no tracefs".to_owned(),
            ..OffCpuSamples::default()
        };
        let reason = |first| model(first).profile.off_cpu.unwrap_err();
        let expected = NoOffCpu::Refused("no tracefs".to_owned());
        assert_eq!(reason(Some(refused)), expected);
        let none = begun(&[Record::Samples(Samples::default())]);
        assert_eq!(none, Err(NoOffCpu::OlderRecorder));
    }
}
