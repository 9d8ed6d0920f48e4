//! The profile as JSON: functions, stacks and samples, and where threads were blocked.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Frame;
use crate::model::Model;
use crate::model::profile::{self, BlockedSum, Breakdown, CpuSample, Sampled};
use crate::model::schedule::Waker;
use crate::views::call_waits::WokenBy;
use crate::views::off_cpu;

/// The samples of a recording.
#[derive(Serialize)]
pub(super) struct Profile<'a> {
    hz: u64,
    period_ns: u64,
    from_ns: u64,
    to_ns: u64,
    kernel: bool,
    by_timer: bool,
    lost: u64,
    functions: Vec<Function>,
    stacks: Vec<Stack<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<Vec<Sample>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    off_cpu: Option<OffCpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    off_cpu_missing: Option<String>,
}

/// Where threads were blocked.
#[derive(Serialize)]
struct OffCpu {
    from_ns: u64,
    to_ns: u64,
    waits: u64,
    blocked_ns: u64,
    waits_without_stack: u64,
    without_stack_ns: u64,
    lost: u64,
    cut: u64,
    functions: Vec<BlockedFunction>,
    stacks: Vec<BlockedStack>,
}

/// A function with the time in which threads were blocked.
#[derive(Serialize)]
struct BlockedFunction {
    name: String,
    module: Option<String>,
    flat_ns: u64,
    cum_ns: u64,
}

/// The waits of a thread with the same stack, reason and waker.
#[derive(Serialize)]
struct BlockedStack {
    thread: usize,
    stack: Option<usize>,
    reason: Option<String>,
    object: Option<usize>,
    waker: Option<&'static str>,
    waker_thread: Option<usize>,
    waker_process: Option<usize>,
    waits: u64,
    blocked_ns: u64,
    longest_ns: u64,
}

impl BlockedStack {
    fn of(model: &Model, sum: &BlockedSum) -> BlockedStack {
        let waker = sum.key.waker;
        let (waker_thread, waker_process) = match waker {
            Some(Waker::Thread(thread)) => super::thread_or_process(model, Some(thread)),
            _ => (None, None),
        };
        BlockedStack {
            thread: sum.key.thread.0,
            stack: sum.key.stack,
            reason: off_cpu::reason(model, &sum.key),
            object: sum.key.object.map(|object| object.0),
            waker: waker.map(|waker| WokenBy::of(model, waker).as_str()),
            waker_thread,
            waker_process,
            waits: sum.count,
            blocked_ns: sum.ns,
            longest_ns: sum.longest_ns,
        }
    }
}

impl OffCpu {
    fn of(model: &Model, breakdown: &Breakdown, off_cpu: &profile::OffCpu) -> OffCpu {
        let (waits, blocked_ns) = off_cpu.total(|_| true);
        let (waits_without_stack, without_stack_ns) = off_cpu.total(|key| key.stack.is_none());
        let times = off_cpu.stack_times(&model.profile);
        let hits = breakdown.hits(&breakdown.weights(times.iter())).into_iter();
        let functions = hits.map(|(index, hits)| {
            let function = &breakdown.functions[index.0];
            BlockedFunction {
                name: function.name.to_string(),
                module: function.module.as_deref().map(str::to_owned),
                flat_ns: hits.flat,
                cum_ns: hits.cum,
            }
        });
        let sums = off_cpu.sums.iter();
        OffCpu {
            from_ns: off_cpu.span_ns.0,
            to_ns: off_cpu.span_ns.1,
            waits,
            blocked_ns,
            waits_without_stack,
            without_stack_ns,
            lost: off_cpu.lost,
            cut: off_cpu.cut,
            functions: functions.collect(),
            stacks: sums.map(|sum| BlockedStack::of(model, sum)).collect(),
        }
    }
}

/// A function with its numbers of samples.
#[derive(Serialize)]
struct Function {
    name: String,
    module: Option<String>,
    flat: u64,
    cum: u64,
}

/// A stack with its numbers of samples.
#[derive(Serialize)]
struct Stack<'a> {
    frames: Vec<Frame<'a>>,
    truncated: Option<&'a str>,
    shares: Vec<Share>,
}

/// The samples of one thread.
#[derive(Serialize)]
struct Share {
    thread: Option<usize>,
    samples: u64,
}

/// One sample.
#[derive(Serialize)]
struct Sample {
    time_ns: u64,
    thread: Option<usize>,
    tid: u64,
    cpu: u32,
    stack: usize,
    kernel: bool,
    cut: bool,
}

impl Sample {
    fn of(sample: &CpuSample) -> Sample {
        Sample {
            time_ns: sample.time_ns,
            thread: sample.thread.map(|thread| thread.0),
            tid: sample.tid,
            cpu: sample.cpu,
            stack: sample.stack,
            kernel: sample.in_kernel,
            cut: sample.is_cut,
        }
    }
}

impl<'a> Profile<'a> {
    /// The profile, if samples were taken. `each` includes every sample.
    pub(super) fn of(model: &'a Model, each: bool) -> Option<Profile<'a>> {
        let profile = &model.profile;
        let (from_ns, to_ns) = profile.span_ns.filter(|_| profile.is_known())?;
        let breakdown = Breakdown::of(profile);
        let hits = breakdown.hits(&profile.counts()).into_iter();
        let functions = hits.map(|(index, hits)| {
            let function = &breakdown.functions[index.0];
            Function {
                name: function.name.to_string(),
                module: function.module.as_deref().map(str::to_owned),
                flat: hits.flat,
                cum: hits.cum,
            }
        });
        let mut shares: Vec<BTreeMap<Option<usize>, u64>> = Vec::new();
        shares.resize_with(profile.stacks.len(), BTreeMap::new);
        for sample in &profile.samples {
            let thread = sample.thread.map(|thread| thread.0);
            *shares[sample.stack].entry(thread).or_default() += 1;
        }
        let stacks = profile.stacks.iter().zip(shares).map(|(stack, shares)| {
            let shares = shares.into_iter();
            Stack {
                frames: super::frames(Some(stack)),
                truncated: stack.truncated.as_deref(),
                shares: shares
                    .map(|(thread, samples)| Share { thread, samples })
                    .collect(),
            }
        });
        Some(Profile {
            hz: profile.hz(),
            period_ns: profile.period_ns,
            from_ns,
            to_ns,
            kernel: profile.sampled != Sampled::InUserMode,
            by_timer: profile.sampled == Sampled::ByTimer,
            lost: profile.lost,
            functions: functions.collect(),
            stacks: stacks.collect(),
            off_cpu: (profile.off_cpu.as_ref().ok())
                .map(|off_cpu| OffCpu::of(model, &breakdown, off_cpu)),
            off_cpu_missing: profile.off_cpu.as_ref().err().map(off_cpu::missing),
            samples: each.then(|| profile.samples.iter().map(Sample::of).collect()),
        })
    }
}
