//! The profile: where threads spent processor time, and where they were blocked, by the kernel's
//! samples.
//!
//! Each CPU sample stands for one interval of its thread's processor time. The model keeps all
//! samples; [`Breakdown`] sums them by function.

mod annotation;
mod namesakes;
mod off_cpu;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use unspool_capture::{Record, SamplesEdge};

pub use annotation::{AddressHits, LineHits};
pub use off_cpu::{BlockedKey, BlockedSum, NoOffCpu, OffCpu};

use super::backtrace::{Backtrace, Frames, NamedFrame};
use super::{Model, Note, ThreadIndex, Topic};
use crate::platform::STUB_CODE;
use namesakes::Namesakes;

/// Maximum difference between the kernel's clock and the server's, in nanoseconds.
const CLOCK_DIFFERENCE_NS: u64 = 100_000_000;

/// The CPU samples of all threads; empty where none were taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Interval of the samples, in nanoseconds of each thread's processor time.
    pub period_ns: u64,
    /// Start and end of sampling, nanoseconds since the recording began.
    pub span_ns: Option<(u64, u64)>,
    /// The threads that were sampled.
    pub sampled: Sampled,
    /// The samples, in the order of their times.
    pub samples: Vec<CpuSample>,
    /// The samples' stacks.
    pub stacks: Vec<Arc<Backtrace>>,
    /// Number of samples that are missing.
    pub lost: u64,
    /// Where threads were blocked, or the reason why that is not known.
    pub off_cpu: Result<OffCpu, NoOffCpu>,
}

/// The threads that are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Running threads, sampled by the kernel.
    Running,
    /// Threads that run in user mode, sampled by the kernel.
    InUserMode,
    /// Running threads, sampled by a timer of the server. No sample says whether its thread was in
    /// the kernel.
    ByTimer,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            period_ns: 0,
            span_ns: None,
            sampled: Sampled::InUserMode,
            samples: Vec::new(),
            stacks: Vec::new(),
            lost: 0,
            off_cpu: Err(NoOffCpu::default()),
        }
    }
}

/// Time that a thread spent with one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackTime {
    /// The thread, if it is known.
    pub thread: Option<ThreadIndex>,
    /// Index into [`Profile::stacks`], or [`Profile::no_stack`].
    pub stack: usize,
    /// The time, in nanoseconds.
    pub ns: u64,
}

/// A thread that ran, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSample {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The kernel's id of the thread.
    pub tid: u64,
    /// The thread, if it is known.
    pub thread: Option<ThreadIndex>,
    /// The processor.
    pub cpu: u32,
    /// Index into [`Profile::stacks`].
    pub stack: usize,
    /// The thread ran in the kernel, on behalf of the stack's innermost function.
    pub in_kernel: bool,
    /// The stack continues beyond the bytes that were copied.
    pub is_cut: bool,
}

impl Profile {
    /// Reads the samples, and names their stacks.
    pub(super) fn of(records: &[Record], model: &Model, frames: &mut dyn Frames) -> Profile {
        let mut profile = Profile::default();
        let lives = Lives::of(model);
        for (at, record) in records.iter().enumerate() {
            let Record::Samples(part) = record else {
                continue;
            };
            let stacks = part.new_stacks.iter();
            profile
                .stacks
                .extend(stacks.map(|snapshot| frames.backtrace(at, snapshot)));
            let begins = match part.edge() {
                SamplesEdge::Begins => Some(Sampled::Running),
                SamplesEdge::BeginsInUserMode => Some(Sampled::InUserMode),
                SamplesEdge::BeginsByTimer => Some(Sampled::ByTimer),
                SamplesEdge::Ends | SamplesEdge::Unspecified => None,
            };
            if let Some(sampled) = begins {
                (profile.period_ns, profile.sampled) = (part.period_ns, sampled);
            }
            let from_ns = profile.span_ns.map_or(part.time_ns, |(from, _)| from);
            let mut to_ns = profile.span_ns.map_or(part.time_ns, |(_, to)| to);
            to_ns = to_ns.max(part.time_ns);
            profile.lost = profile.lost.saturating_add(part.lost);
            for sample in part.samples() {
                let stack = sample.stack as usize;
                if stack >= profile.stacks.len() {
                    // Only a damaged capture has such samples.
                    continue;
                }
                to_ns = to_ns.max(sample.time_ns);
                profile.samples.push(CpuSample {
                    time_ns: sample.time_ns,
                    tid: sample.tid,
                    thread: lives.at(sample.tid, sample.time_ns),
                    cpu: sample.cpu,
                    stack,
                    in_kernel: sample.in_kernel,
                    is_cut: sample.is_cut,
                });
            }
            profile.span_ns = Some((from_ns, to_ns));
        }
        profile.samples.sort_by_key(|sample| sample.time_ns);
        profile
    }

    /// True if threads were sampled.
    pub fn is_known(&self) -> bool {
        self.span_ns.is_some() && self.period_ns > 0
    }

    /// The stack of a sample.
    pub fn stack(&self, sample: &CpuSample) -> &Backtrace {
        &self.stacks[sample.stack]
    }

    /// Number of samples per second of a thread's processor time.
    pub fn hz(&self) -> u64 {
        (1_000_000_000 + self.period_ns / 2)
            .checked_div(self.period_ns)
            .unwrap_or(0)
    }

    /// The processor time that a number of samples stands for, in nanoseconds.
    pub fn time_ns(&self, samples: u64) -> u64 {
        samples.saturating_mul(self.period_ns)
    }

    /// Number of samples of each thread and stack.
    pub fn thread_counts(&self) -> BTreeMap<(Option<ThreadIndex>, usize), u64> {
        let mut counts: BTreeMap<(Option<ThreadIndex>, usize), u64> = BTreeMap::new();
        for sample in &self.samples {
            *counts.entry((sample.thread, sample.stack)).or_default() += 1;
        }
        counts
    }

    /// The processor time of each thread and stack.
    pub fn stack_times(&self) -> Vec<StackTime> {
        let counts = self.thread_counts().into_iter();
        counts
            .map(|((thread, stack), count)| StackTime {
                thread,
                stack,
                ns: self.time_ns(count),
            })
            .collect()
    }

    /// The index that stands for an unknown stack.
    pub fn no_stack(&self) -> usize {
        self.stacks.len()
    }

    /// Number of samples of each stack.
    pub fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.stacks.len()];
        for sample in &self.samples {
            counts[sample.stack] += 1;
        }
        counts
    }

    /// Number of samples that meet a condition.
    pub fn count(&self, is_counted: impl Fn(&CpuSample) -> bool) -> u64 {
        self.samples.iter().filter(|one| is_counted(one)).count() as u64
    }

    /// Notes on samples that are missing or incomplete. The program has started `processes`.
    pub(super) fn notes(&self, processes: usize) -> Vec<Note> {
        let mut notes = Vec::new();
        if !self.is_known() {
            return notes;
        }
        if processes > 0 {
            let text = "The CPU profile has the program's own threads only, and no processes that it \
                 started.";
            notes.push(Note::info(text).about(Topic::Samples));
        }
        let total = self.samples.len() as u64;
        if self.lost > 0 {
            let (lost, all) = (self.lost, total.saturating_add(self.lost));
            let text = match self.sampled {
                Sampled::ByTimer => format!(
                    "{lost} of {all} CPU samples are missing, because their threads ran too \
                     briefly for the stub's timer to find them running."
                ),
                Sampled::Running | Sampled::InUserMode => format!(
                    "The kernel lost {lost} of {all} CPU samples, because its buffers were full. \
                     Take fewer (`--cpu={}`), or copy less of each stack (`--cpu-stack`).",
                    (self.hz() / 2).max(1),
                ),
            };
            notes.push(Note::warning(text).about(Topic::Samples));
        }
        let cut = self.count(|sample| sample.is_cut);
        if cut * 100 > total {
            let text = format!(
                "{cut} of {total} CPU samples have only the innermost frames of their stack, because \
                 the stack is larger than `--cpu-stack` (at most 61440 bytes)."
            );
            notes.push(Note::warning(text).about(Topic::Samples));
        }
        let in_stub = self.count(|sample| {
            let stack = self.stacks.get(sample.stack);
            let inner = stack.and_then(|stack| stack.frames.first());
            inner.is_some_and(|frame| frame.place.module.as_deref() == Some(STUB_CODE))
        });
        if in_stub * 100 > total {
            let text = format!(
                "{in_stub} of {total} CPU samples are in `{STUB_CODE}`: the code that records calls in \
                 the program. `--sync` without `=all`, or fewer traced functions, cost less."
            );
            notes.push(Note::info(text).about(Topic::Samples));
        }
        if self.sampled == Sampled::InUserMode {
            let text = "The CPU profile leaves out the time that threads spend in the kernel. To \
                 include it, run the stub as root, give it CAP_PERFMON, or set the target's \
                 kernel.perf_event_paranoid to 1 or less.";
            notes.push(Note::info(text).about(Topic::Samples));
        }
        notes
    }

    /// Notes on waits whose stacks or wakers are missing.
    pub(super) fn off_cpu_notes(&self, has_wakers: bool) -> Vec<Note> {
        let mut notes = Vec::new();
        let Ok(off_cpu) = &self.off_cpu else {
            return notes;
        };
        let (count, _) = off_cpu.total(|_| true);
        let (without, _) = off_cpu.total(|key| key.stack.is_none());
        if off_cpu.lost > 0 && without.saturating_mul(100) > count {
            let text = format!(
                "{without} of {count} waits have no stack in the off-CPU profile, because threads \
                 blocked thousands of times per second. Their time counts as `[no stack]`."
            );
            notes.push(Note::info(text).about(Topic::Samples));
        }
        if off_cpu.cut.saturating_mul(100) > count {
            let text = format!(
                "{} of {count} waits have only the innermost frames of their stack in the off-CPU \
                 profile, because at most 24 KiB of each stack are copied.",
                off_cpu.cut
            );
            notes.push(Note::warning(text).about(Topic::Samples));
        }
        if !has_wakers && count > 0 {
            let text = "The off-CPU profile does not say what ended the waits, because the stub \
                 could not record wake-ups. It can if it runs as root and in no container.";
            notes.push(Note::info(text).about(Topic::Samples));
        }
        notes
    }
}

/// The lives of the threads with each id.
struct Lives(HashMap<u64, Vec<(u64, u64, ThreadIndex)>>);

impl Lives {
    fn of(model: &Model) -> Lives {
        let mut lives: HashMap<u64, Vec<(u64, u64, ThreadIndex)>> = HashMap::new();
        for (index, thread) in model.threads.iter().enumerate() {
            if let Some(tid) = thread.tid {
                let from_ns = thread.first_ns().unwrap_or(0);
                let to_ns = thread.ended_ns.unwrap_or(u64::MAX);
                let life = (from_ns, to_ns, ThreadIndex(index));
                lives.entry(tid).or_default().push(life);
            }
        }
        Lives(lives)
    }

    /// The thread with this id that lived at `ns`, or at most [`CLOCK_DIFFERENCE_NS`] before or
    /// after it.
    fn at(&self, tid: u64, ns: u64) -> Option<ThreadIndex> {
        let distance = |(from, to, _): &&(u64, u64, ThreadIndex)| {
            from.saturating_sub(ns).max(ns.saturating_sub(*to))
        };
        let nearest = self.0.get(&tid)?.iter().min_by_key(distance)?;
        (distance(&nearest) <= CLOCK_DIFFERENCE_NS).then_some(nearest.2)
    }
}

/// Index of a function in [`Breakdown::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionIndex(pub usize);

/// A function of a profile. All code of a module that no symbol names is one function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProfileFunction {
    /// Its name, or its module's name in brackets if its file names no function there.
    pub name: Arc<str>,
    /// File name of its module, if known.
    pub module: Option<Arc<str>>,
}

impl ProfileFunction {
    fn of(frame: &NamedFrame) -> ProfileFunction {
        let module = frame.place.shown_module();
        // Not the name in the call instruction, because the called function may have made a tail
        // call.
        let name = frame.place.function.clone();
        let name = name.unwrap_or_else(|| match module {
            Some(module) if module.starts_with('[') => module.into(),
            Some(module) => format!("[{module}]").into(),
            None => "[unknown]".into(),
        });
        ProfileFunction {
            name,
            module: module.map(Arc::from),
        }
    }
}

/// Weights of a function: numbers of samples, or nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// The weight of the function itself.
    pub flat: u64,
    /// The weight of it and of the functions that it called. A recursive function counts once.
    pub cum: u64,
}

/// A function's name without template arguments and parameters. Keeps brackets that begin a part
/// of the name, such as `(anonymous namespace)` and `<T as Trait>`, and those of operators.
fn without_arguments(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // The brackets that are open, and whether the content of each is left out.
    let mut open: Vec<bool> = Vec::new();
    let mut last = ' ';
    for letter in name.chars() {
        let hidden = open.last() == Some(&true);
        match letter {
            '<' | '(' => {
                let follows_name = last.is_alphanumeric() || matches!(last, '_' | '>' | ')' | '~');
                let is_operator = short.ends_with("operator") || short.ends_with("operator<");
                open.push(hidden || follows_name && !is_operator);
            }
            // `operator->` and `operator>>` close nothing.
            '>' | ')'
                if !(short.ends_with("operator") || last == '-') && open.pop() == Some(true) =>
            {
                last = letter;
                continue;
            }
            _ => {}
        }
        if open.last() != Some(&true) {
            short.push(letter);
        }
        last = letter;
    }
    short
}

/// The functions of a profile, and the functions of each stack.
#[derive(Clone, Debug, Default)]
pub struct Breakdown {
    /// All functions.
    pub functions: Vec<ProfileFunction>,
    /// Per stack of the profile, its functions, innermost first. The last one is the unknown stack.
    pub stacks: Vec<Vec<FunctionIndex>>,
}

impl Breakdown {
    /// Finds the functions on all stacks.
    pub fn of(profile: &Profile) -> Breakdown {
        let mut breakdown = Breakdown::default();
        let mut known: HashMap<ProfileFunction, FunctionIndex> = HashMap::new();
        let namesakes = Namesakes::of(profile);
        for stack in &profile.stacks {
            let functions = stack.frames.iter().map(|frame| {
                let function = namesakes.function(frame);
                *known.entry(function).or_insert_with_key(|function| {
                    breakdown.functions.push(function.clone());
                    FunctionIndex(breakdown.functions.len() - 1)
                })
            });
            breakdown.stacks.push(functions.collect());
        }
        breakdown.functions.push(ProfileFunction {
            name: "[no stack]".into(),
            module: None,
        });
        let unknown = FunctionIndex(breakdown.functions.len() - 1);
        breakdown.stacks.push(vec![unknown]);
        breakdown
    }

    /// Sums the weights of stacks for each function. The largest `flat` comes first. Stacks without
    /// a weight count nothing.
    pub fn hits(&self, weights: &[u64]) -> Vec<(FunctionIndex, Hits)> {
        let mut hits = vec![Hits::default(); self.functions.len()];
        for (stack, count) in self.weighted(weights) {
            if let Some(inner) = stack.first() {
                let flat = &mut hits[inner.0].flat;
                *flat = flat.saturating_add(count);
            }
            for function in once(stack) {
                let cum = &mut hits[function.0].cum;
                *cum = cum.saturating_add(count);
            }
        }
        let all = hits.into_iter().enumerate();
        let mut all: Vec<(FunctionIndex, Hits)> = all
            .filter(|(_, hits)| hits.cum > 0)
            .map(|(index, hits)| (FunctionIndex(index), hits))
            .collect();
        all.sort_by(|(a, first), (b, second)| {
            let name = |index: &FunctionIndex| &self.functions[index.0].name;
            let counts = (second.flat, second.cum).cmp(&(first.flat, first.cum));
            counts.then_with(|| name(a).cmp(name(b)))
        });
        all
    }

    /// The functions that a name selects: its exact matches, otherwise those that contain it.
    /// Reports leave out template arguments and parameters, so these count only if the name has
    /// brackets.
    pub fn named(&self, wanted: &str) -> Vec<FunctionIndex> {
        let matching = |is_match: &dyn Fn(&str) -> bool| -> Vec<FunctionIndex> {
            let all = self.functions.iter().enumerate();
            all.filter(|(_, function)| is_match(&function.name))
                .map(|(index, _)| FunctionIndex(index))
                .collect()
        };
        // C++ and Rust functions may be named without their arguments.
        let short = |name: &str| name.split('(').next().map(str::trim_end) == Some(wanted);
        let exact = |name: &str| name == wanted || short(name);
        match matching(&exact) {
            none if none.is_empty() => matching(&|name: &str| match wanted.contains(['<', '(']) {
                true => name.contains(wanted),
                false => without_arguments(name).contains(wanted),
            }),
            exact => exact,
        }
    }

    /// The callers and callees of a function, the largest weight first. A stack counts for a pair
    /// if the callee was on it, called by the caller. `None` is the thread's start, or an unknown
    /// caller.
    pub fn neighbours(&self, of: FunctionIndex, weights: &[u64]) -> Neighbours {
        let mut callers: BTreeMap<Option<FunctionIndex>, u64> = BTreeMap::new();
        let mut callees: BTreeMap<Option<FunctionIndex>, u64> = BTreeMap::new();
        for (stack, count) in self.weighted(weights) {
            let (mut above, mut below) = (Vec::new(), Vec::new());
            for (at, function) in stack.iter().enumerate() {
                if *function != of {
                    continue;
                }
                above.push(stack.get(at + 1).copied());
                below.extend(at.checked_sub(1).map(|at| Some(stack[at])));
            }
            for (sums, functions) in [(&mut callers, &mut above), (&mut callees, &mut below)] {
                functions.sort_unstable();
                functions.dedup();
                for function in functions {
                    let sum = sums.entry(*function).or_default();
                    *sum = sum.saturating_add(count);
                }
            }
        }
        let sorted = |sums: BTreeMap<Option<FunctionIndex>, u64>| {
            let mut all: Vec<(Option<FunctionIndex>, u64)> = sums.into_iter().collect();
            all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            all
        };
        Neighbours {
            callers: sorted(callers),
            callees: sorted(callees),
        }
    }

    /// Sums times for each stack.
    pub fn weights<'t>(&self, times: impl Iterator<Item = &'t StackTime>) -> Vec<u64> {
        let mut weights = vec![0; self.stacks.len()];
        for time in times {
            weights[time.stack] = time.ns.saturating_add(weights[time.stack]);
        }
        weights
    }

    /// Stacks with their weights.
    fn weighted<'b>(
        &'b self,
        weights: &'b [u64],
    ) -> impl Iterator<Item = (&'b [FunctionIndex], u64)> {
        let weights = weights.iter().copied();
        let stacks = self.stacks.iter().map(Vec::as_slice).zip(weights);
        stacks.filter(|(_, weight)| *weight > 0)
    }
}

/// The callers and callees of a function, with weights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// The callers.
    pub callers: Vec<(Option<FunctionIndex>, u64)>,
    /// The called functions.
    pub callees: Vec<(Option<FunctionIndex>, u64)>,
}

/// Each function of a stack once.
fn once(stack: &[FunctionIndex]) -> Vec<FunctionIndex> {
    let mut functions = stack.to_vec();
    functions.sort_unstable();
    functions.dedup();
    functions
}

#[cfg(test)]
mod tests;
