//! The CPU profile as JSON: functions, stacks and samples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Frame;
use crate::model::Model;
use crate::model::profile::{Breakdown, CpuSample};

/// The samples of a recording.
#[derive(Serialize)]
pub(super) struct Profile<'a> {
    hz: u64,
    period_ns: u64,
    from_ns: u64,
    to_ns: u64,
    kernel: bool,
    lost: u64,
    functions: Vec<Function>,
    stacks: Vec<Stack<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples: Option<Vec<Sample>>,
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
            kernel: profile.has_kernel,
            lost: profile.lost,
            functions: functions.collect(),
            stacks: stacks.collect(),
            samples: each.then(|| profile.samples.iter().map(Sample::of).collect()),
        })
    }
}
