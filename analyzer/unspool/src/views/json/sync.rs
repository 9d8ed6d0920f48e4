//! Synchronization in the report's JSON: objects, functions, the level of concurrency, findings.
//!
//! The fields are in the order of the output. `docs/reference/report-json.md` documents every
//! field.

use std::cmp::Reverse;

use serde::Serialize;

use super::Frame;
use crate::model::critical_path::Item;
use crate::model::sync::{Caller, Contention, FunctionTimes, Histogram, Object, Slice, Sync, Use};
use crate::model::{Evidence, Facts, Finding, Model, ObjectName, ThreadIndex};
use crate::views::{blocking_call, finding_text};

/// Statistics of durations.
#[derive(Serialize)]
pub(in crate::views) struct Lengths<'a> {
    count: u64,
    total_ns: u64,
    max_ns: u64,
    histogram: &'a [u64],
}

impl<'a> From<&'a Histogram> for Lengths<'a> {
    fn from(lengths: &'a Histogram) -> Lengths<'a> {
        Lengths {
            count: lengths.count,
            total_ns: lengths.total_ns,
            max_ns: lengths.max_ns,
            histogram: &lengths.buckets,
        }
    }
}

#[derive(Serialize)]
pub(in crate::views) struct SyncObject<'a> {
    kind: &'static str,
    address: u64,
    key: String,
    name: Option<String>,
    number: Option<usize>,
    symbol: Option<&'a str>,
    made: bool,
    origin: usize,
    since_ns: u64,
    destroyed_ns: Option<u64>,
    taken: u64,
    waits: Lengths<'a>,
    holds: Lengths<'a>,
    longest_queue: usize,
    complete: bool,
    uses: Vec<SyncUse<'a>>,
    blames: Vec<SyncBlame>,
}

impl<'a> SyncObject<'a> {
    pub(in crate::views) fn of(model: &'a Model, object: &'a Object) -> SyncObject<'a> {
        let sync = &model.sync;
        SyncObject {
            kind: object.kind.as_str(),
            address: object.address,
            key: object.key.to_string(),
            name: sync.name(object).map(|name| name.to_string()),
            number: object.number,
            symbol: object.symbol.as_ref().and_then(|s| s.function.as_deref()),
            made: object.made,
            origin: object.origin.0,
            since_ns: object.since_ns,
            destroyed_ns: object.destroyed_ns,
            taken: object.taken,
            waits: (&object.waits).into(),
            holds: (&object.holds).into(),
            longest_queue: object.longest_queue,
            complete: !object.doubtful,
            uses: object
                .uses
                .iter()
                .map(|used| SyncUse::of(sync, sync.used(*used)))
                .collect(),
            blames: object
                .contention
                .iter()
                .map(|pair| SyncBlame::of(model, pair))
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct SyncUse<'a> {
    operation: &'static str,
    path: usize,
    thread: usize,
    thread_keys: Vec<String>,
    shares: Vec<UseShare>,
    calls: u64,
    waiting_for: &'static str,
    waits: Lengths<'a>,
    timed_out: TimedOutWaits,
    holds: Lengths<'a>,
}

#[derive(Serialize)]
struct TimedOutWaits {
    count: u64,
    total_ns: u64,
}

#[derive(Serialize)]
struct UseShare {
    key: String,
    calls: u64,
    waited_ns: u64,
}

impl<'a> SyncUse<'a> {
    fn of(sync: &'a Sync, used: &'a Use) -> SyncUse<'a> {
        SyncUse {
            operation: used.operation.as_str(),
            path: used.path.0,
            thread: used.thread.0,
            thread_keys: used.shares.iter().map(|s| key(sync, s.identity)).collect(),
            shares: used
                .shares
                .iter()
                .map(|share| UseShare {
                    key: key(sync, share.identity),
                    calls: share.calls,
                    waited_ns: share.waited_ns,
                })
                .collect(),
            calls: used.calls,
            waiting_for: used.waiting.as_str(),
            waits: (&used.waits).into(),
            timed_out: TimedOutWaits {
                count: used.timed_out.count,
                total_ns: used.timed_out.total_ns,
            },
            holds: (&used.holds).into(),
        }
    }
}

pub(super) fn key(sync: &Sync, identity: usize) -> String {
    let key = sync.identities.get(identity).map(|(key, ..)| *key);
    key.unwrap_or_default().to_string()
}

#[derive(Serialize)]
struct SyncBlame {
    waiter_key: String,
    waiter_path: usize,
    holder_key: String,
    holder_path: Option<usize>,
    ended_path: Option<usize>,
    count: u64,
    total_ns: u64,
    max_ns: u64,
    longest_waiter: usize,
    longest_holder: usize,
    for_one: bool,
    holder_calls: Vec<HolderCall>,
}

#[derive(Serialize)]
struct HolderCall {
    text: String,
    blocked_ns: u64,
}

impl SyncBlame {
    fn of(model: &Model, pair: &Contention) -> SyncBlame {
        let sync = &model.sync;
        let mut calls = pair.holder_calls.clone();
        calls.sort_by_key(|(_, ns)| Reverse(*ns));
        let calls = calls.into_iter().filter_map(|(call, blocked_ns)| {
            let text = blocking_call::title(model.schedule.call(call)?);
            Some(HolderCall { text, blocked_ns })
        });
        SyncBlame {
            waiter_key: key(sync, pair.waiting),
            waiter_path: sync.used(pair.waiter).path.0,
            holder_key: key(sync, pair.holding),
            holder_path: pair.holder.map(|holder| sync.used(holder).path.0),
            ended_path: pair.ended.map(|path| path.0),
            count: pair.count,
            total_ns: pair.total_ns,
            max_ns: pair.max_ns,
            longest_waiter: pair.longest.0.0,
            longest_holder: pair.longest.1.0,
            for_one: pair.for_one,
            holder_calls: calls.collect(),
        }
    }
}

#[derive(Serialize)]
pub(in crate::views) struct Function<'a> {
    name: &'a str,
    calls: u64,
    times: Lengths<'a>,
    total_ns: u64,
    own_ns: u64,
    threads: u64,
    callers: Vec<FunctionCaller<'a>>,
}

impl<'a> Function<'a> {
    pub(in crate::views) fn of(function: &'a FunctionTimes) -> Function<'a> {
        Function {
            name: &function.name,
            calls: function.calls,
            times: (&function.times).into(),
            total_ns: function.total_ns,
            own_ns: function.own_ns,
            threads: function.threads,
            callers: function.callers.iter().map(FunctionCaller::of).collect(),
        }
    }
}

#[derive(Serialize)]
struct FunctionCaller<'a> {
    path: usize,
    calls: u64,
    total_ns: u64,
    last_args: &'a [u64],
}

impl<'a> FunctionCaller<'a> {
    fn of(caller: &'a Caller) -> FunctionCaller<'a> {
        FunctionCaller {
            path: caller.path.0,
            calls: caller.calls,
            total_ns: caller.total_ns,
            last_args: &caller.args,
        }
    }
}

#[derive(Serialize)]
pub(in crate::views) struct Concurrency {
    running: f64,
    on_cpu: Option<f64>,
    runnable: Option<f64>,
    levels: Vec<Level>,
    limits: Vec<Limit>,
    slices: Vec<SliceOfTime>,
}

#[derive(Serialize)]
struct Level {
    threads: usize,
    ns: u64,
}

#[derive(Serialize)]
struct Limit {
    object: usize,
    waited_ns: u64,
}

#[derive(Serialize)]
struct SliceOfTime {
    from_ns: u64,
    to_ns: u64,
    running: f64,
    on_cpu: Option<f64>,
    runnable: Option<f64>,
    held: f64,
    others: f64,
    idle: f64,
    limit: Option<usize>,
}

impl Concurrency {
    pub(in crate::views) fn of(sync: &Sync) -> Concurrency {
        let level = &sync.concurrency;
        let thousandths = |number: f64| (number * 1000.0).round() / 1000.0;
        Concurrency {
            running: thousandths(level.running),
            on_cpu: level.turns.map(|(on_cpu, _)| thousandths(on_cpu)),
            runnable: level.turns.map(|(_, runnable)| thousandths(runnable)),
            levels: level
                .levels
                .iter()
                .map(|(threads, ns)| Level {
                    threads: *threads,
                    ns: *ns,
                })
                .collect(),
            limits: level
                .limits
                .iter()
                .map(|(object, ns)| Limit {
                    object: object.0,
                    waited_ns: *ns,
                })
                .collect(),
            slices: level
                .slices
                .iter()
                .map(|slice: &Slice| SliceOfTime {
                    from_ns: slice.from_ns,
                    to_ns: slice.to_ns,
                    running: thousandths(slice.running),
                    on_cpu: slice.turns.map(|(on_cpu, _)| thousandths(on_cpu)),
                    runnable: slice.turns.map(|(_, runnable)| thousandths(runnable)),
                    held: thousandths(slice.held),
                    others: thousandths(slice.others),
                    idle: thousandths(slice.idle),
                    limit: slice.limit.map(|object| object.0),
                })
                .collect(),
        }
    }
}

/// A finding as JSON.
#[derive(Serialize)]
pub(in crate::views) struct JsonFinding<'a> {
    kind: &'static str,
    proved: bool,
    threads: Vec<usize>,
    tids: Vec<Option<u64>>,
    circle: bool,
    objects: Vec<FindingObject<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_waits: Option<usize>,
    text: String,
    evidence: Vec<FindingEvidence<'a>>,
}

#[derive(Serialize)]
pub(super) struct FindingObject<'a> {
    pub(super) kind: &'static str,
    pub(super) address: u64,
    pub(super) name: Option<&'a str>,
}

impl<'a> FindingObject<'a> {
    pub(super) fn of(object: &'a ObjectName) -> FindingObject<'a> {
        FindingObject {
            kind: object.kind.as_str(),
            address: object.address,
            name: object.name.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct FindingEvidence<'a> {
    thread: usize,
    what: String,
    stack: Option<Vec<Frame<'a>>>,
}

impl<'a> JsonFinding<'a> {
    pub(in crate::views) fn of(model: &Model, finding: &'a Finding) -> JsonFinding<'a> {
        JsonFinding {
            kind: finding.kind.as_str(),
            proved: finding.proved,
            threads: finding.threads.iter().map(|thread| thread.0).collect(),
            tids: finding
                .threads
                .iter()
                .map(|thread: &ThreadIndex| model.any_thread(*thread).and_then(|thread| thread.tid))
                .collect(),
            circle: finding.circle,
            objects: finding.objects.iter().map(FindingObject::of).collect(),
            lock_waits: match finding.facts {
                Facts::LockWaits(index) => Some(index),
                Facts::Bottleneck(limit) => match limit.item {
                    Item::LockWaits(index) => Some(index),
                    _ => None,
                },
                _ => None,
            },
            text: finding_text::text(model, finding),
            evidence: finding
                .evidence
                .iter()
                .map(|evidence: &Evidence| FindingEvidence {
                    thread: evidence.thread.0,
                    what: finding_text::evidence(model, evidence),
                    stack: evidence.stack.as_deref().map(|s| super::frames(Some(s))),
                })
                .collect(),
        }
    }
}

/// A call path.
#[derive(Serialize)]
pub(in crate::views) struct CallPath<'a> {
    frames: Vec<Frame<'a>>,
    truncated: Option<&'a str>,
}

/// All call paths. Other fields refer to them by index.
pub(in crate::views) fn paths(sync: &Sync) -> Vec<CallPath<'_>> {
    sync.paths
        .iter()
        .map(|path| CallPath {
            frames: super::frames(Some(path)),
            truncated: path.truncated.as_deref(),
        })
        .collect()
}

/// A thread's time by activity. Present only if synchronization was recorded.
#[derive(Serialize)]
pub(in crate::views) struct Times {
    alive_ns: u64,
    running_ns: u64,
    on_cpu_ns: Option<u64>,
    runnable_ns: Option<u64>,
    held_ns: u64,
    others_ns: u64,
    idle_ns: u64,
    operations: u64,
    creations: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<Vec<WaitSpan>>,
}

#[derive(Serialize)]
struct WaitSpan {
    from_ns: u64,
    to_ns: u64,
    waiting_for: &'static str,
    object: usize,
}

impl Times {
    pub(in crate::views) fn of(model: &Model, thread: usize, waits: bool) -> Option<Times> {
        let sync = &model.sync;
        if !sync.recorded {
            return None;
        }
        let times = sync.threads.get(thread)?;
        let total = sync.processors.totals.get(thread);
        let turns = match model.schedule.is_known() {
            true => {
                let times = model.schedule.times(ThreadIndex(thread));
                let off_cpu_ns = times.runnable_ns + times.blocked_ns + times.stopped_ns;
                let known = times.unknown_ns <= times.running_ns + off_cpu_ns;
                known.then_some((times.running_ns as f64, times.runnable_ns as f64))
            }
            false => total.and_then(|total| total.of(times.alive_ns)),
        };
        Some(Times {
            alive_ns: times.alive_ns,
            running_ns: times.running_ns(),
            on_cpu_ns: turns.map(|(on_cpu, _)| on_cpu as u64),
            runnable_ns: turns.map(|(_, runnable)| runnable as u64),
            held_ns: times.held_ns,
            others_ns: times.others_ns,
            idle_ns: times.idle_ns,
            operations: times.operations,
            creations: times.creations,
            waits: waits.then(|| spans(sync, thread)),
        })
    }
}

/// The time slices for most of which a thread waited. Merges adjacent slices with the same object.
fn spans(sync: &Sync, thread: usize) -> Vec<WaitSpan> {
    let mut spans: Vec<WaitSpan> = Vec::new();
    let window = sync.slots.window;
    let slots = sync.slots.threads.get(thread).into_iter().flatten();
    for (column, slot) in slots.enumerate() {
        let (from_ns, to_ns) = (window.column_ns(column), window.column_ns(column + 1));
        let Some(used) = slot.used.filter(|_| slot.waited_ns * 2 >= to_ns - from_ns) else {
            continue;
        };
        let used = sync.used(used);
        let (waiting_for, object) = (used.waiting.as_str(), used.object.0);
        match spans.last_mut() {
            Some(last)
                if last.to_ns == from_ns
                    && (last.waiting_for, last.object) == (waiting_for, object) =>
            {
                last.to_ns = to_ns;
            }
            _ => spans.push(WaitSpan {
                from_ns,
                to_ns,
                waiting_for,
                object,
            }),
        }
    }
    spans
}
