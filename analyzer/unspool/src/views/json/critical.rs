//! The critical path in the report's JSON.
//!
//! Field order here is the order in the output; `docs/reference/report-json.md` documents every
//! field.

use serde::Serialize;

use super::FunctionPlace;
use crate::model::critical_path::{Group, Impact, Item, Segment};
use crate::model::{CriticalPath as Path, Model};
use crate::views::blocking_call;

#[derive(Serialize)]
pub(in crate::views) struct CriticalPath<'a> {
    from_ns: u64,
    to_ns: u64,
    wakeups: &'static str,
    processors: usize,
    replayed_ns: u64,
    functions: Vec<PathFunction<'a>>,
    groups: Vec<PathGroup<'a>>,
    impacts: Vec<PathImpact<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Vec<PathSegment>>,
}

#[derive(Serialize)]
struct PathFunction<'a> {
    name: Option<&'a str>,
    place: FunctionPlace<'a>,
}

#[derive(Serialize)]
struct PathGroup<'a> {
    key: Option<String>,
    program: Option<&'a str>,
    function: Option<usize>,
    object: Option<usize>,
    call: Option<String>,
    state: &'static str,
    count: u64,
    total_ns: u64,
    share: f64,
}

#[derive(Serialize)]
struct PathImpact<'a> {
    kind: &'static str,
    key: Option<String>,
    program: Option<&'a str>,
    function: Option<usize>,
    object: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock_waits: Option<usize>,
    waits: bool,
    saved_ns: u64,
    share: f64,
    path_ns: u64,
}

#[derive(Serialize)]
struct PathSegment {
    thread: Option<usize>,
    process: Option<usize>,
    from_ns: u64,
    to_ns: u64,
    state: &'static str,
    function: Option<usize>,
    object: Option<usize>,
    call: Option<String>,
}

impl<'a> CriticalPath<'a> {
    /// Nothing if the path is not known.
    pub(in crate::views) fn of(model: &'a Model, segments: bool) -> Option<CriticalPath<'a>> {
        let path = model.critical_path.as_ref()?;
        let (from_ns, to_ns) = path.span_ns();
        Some(CriticalPath {
            from_ns,
            to_ns,
            wakeups: path.basis.as_str(),
            processors: path.processors,
            replayed_ns: path.replayed_ns,
            functions: path
                .functions
                .places()
                .map(|place| PathFunction {
                    name: place.function.as_deref(),
                    place: place.into(),
                })
                .collect(),
            groups: path
                .groups
                .iter()
                .map(|group| PathGroup::of(model, path, group))
                .collect(),
            impacts: path
                .impacts
                .iter()
                .map(|impact| PathImpact::of(model, path, impact))
                .collect(),
            segments: segments.then(|| {
                let segments = path.segments.iter();
                segments.map(|it| PathSegment::of(model, it)).collect()
            }),
        })
    }
}

/// The key of an identity of the program's own threads.
fn key(model: &Model, identity: usize) -> Option<String> {
    let (key, ..) = model.sync.identities.get(identity)?;
    Some(key.to_string())
}

/// The program that another identity means.
fn program(model: &Model, identity: usize) -> Option<&str> {
    let (name, _) = model.program(identity)?;
    Some(name)
}

fn share(part: u64, whole: u64) -> f64 {
    (1000.0 * part as f64 / whole.max(1) as f64).round() / 1000.0
}

impl<'a> PathGroup<'a> {
    fn of(model: &'a Model, path: &Path, group: &Group) -> PathGroup<'a> {
        PathGroup {
            key: key(model, group.identity),
            program: program(model, group.identity),
            function: group.function.map(|function| function.0),
            object: group.object.map(|object| object.0),
            call: group.call.as_ref().map(blocking_call::title),
            state: group.state.as_str(),
            count: group.count,
            total_ns: group.total_ns,
            share: share(group.total_ns, path.length_ns()),
        }
    }
}

impl<'a> PathImpact<'a> {
    fn of(model: &'a Model, path: &Path, impact: &Impact) -> PathImpact<'a> {
        let mut described = PathImpact {
            kind: impact.item.as_str(),
            key: None,
            program: None,
            function: None,
            object: None,
            lock_waits: None,
            waits: false,
            saved_ns: impact.saved_ns,
            share: share(impact.saved_ns, path.replayed_ns),
            path_ns: impact.path_ns,
        };
        match impact.item {
            Item::Threads(identity) => {
                described.key = key(model, identity);
                described.program = program(model, identity);
                described.waits = path.mostly_waits(identity);
                if described.program.is_some() {
                    described.kind = "processes";
                }
            }
            Item::Function(function) => described.function = Some(function.0),
            Item::Lock(object) => described.object = Some(object.0),
            Item::LockWaits(index) => described.lock_waits = Some(index),
            Item::Processors => {}
        }
        described
    }
}

impl PathSegment {
    fn of(model: &Model, segment: &Segment) -> PathSegment {
        let call = segment.call().and_then(|call| model.schedule.call(call));
        let (thread, process) = super::thread_or_process(model, Some(segment.thread));
        PathSegment {
            thread,
            process,
            from_ns: segment.from_ns,
            to_ns: segment.to_ns,
            state: segment.state.as_str(),
            function: segment.function.map(|function| function.0),
            object: segment.object().map(|object| object.0),
            call: call.map(blocking_call::title),
        }
    }
}
