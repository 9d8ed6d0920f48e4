//! The JSON of `unspool diff`.
//!
//! Field order here is the order in the output; `docs/reference/report-json.md` documents every
//! field.

use std::io::{self, Write};

use serde::Serialize;

use super::{Frame, FunctionPlace, SCHEMA_VERSION};
use crate::model::Key;
use crate::model::diff::{self, Subject};
use crate::views::diff_wording;

#[derive(Serialize)]
struct Document<'a> {
    schema_version: u32,
    programs: Pair<&'a str>,
    recordings: Pair<usize>,
    can_judge: bool,
    doubts: Vec<&'static str>,
    noise_share: f64,
    noise_ns: u64,
    wall_ns: Change,
    net_ns: Change,
    recorder_ns: Change,
    others_ns: Change,
    stolen_ns: Change,
    effects: Vec<Effect>,
    threads: Vec<Threads<'a>>,
    objects: Vec<Object<'a>>,
    functions: Vec<Function<'a>>,
}

#[derive(Serialize)]
struct Pair<T> {
    before: T,
    after: T,
}

#[derive(Serialize)]
struct Change {
    before: Spread,
    after: Spread,
    delta: i64,
    noise: bool,
    marked: bool,
}

#[derive(Serialize)]
struct Spread {
    min: u64,
    median: u64,
    max: u64,
}

#[derive(Serialize)]
struct Effect {
    kind: &'static str,
    index: usize,
    cause: &'static str,
    effect_ns: i64,
    noise: bool,
    value_ns: Change,
}

#[derive(Serialize)]
struct Threads<'a> {
    main: bool,
    process: Option<&'a str>,
    keys: Pair<Option<String>>,
    function: Option<&'a str>,
    function_place: Option<FunctionPlace<'a>>,
    name: &'a str,
    creation: Pair<Vec<Frame<'a>>>,
    distinction: Option<String>,
    identities: usize,
    number: Change,
    running_ns: Change,
    runnable_ns: Change,
    waiting_ns: Change,
    path_ns: Change,
    work_ns: Change,
}

#[derive(Serialize)]
struct Object<'a> {
    kind: Option<&'static str>,
    process: Option<&'a str>,
    name: Option<&'a str>,
    number: Change,
    waits: Change,
    waited_ns: Change,
    taken: Change,
    held_ns: Change,
    path_ns: Change,
    saved_ns: Change,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Option<&'a str>,
    place: FunctionPlace<'a>,
    path_ns: Change,
    work_ns: Change,
}

impl Change {
    /// Times are noise below a threshold, counts if the ranges overlap.
    fn time(change: &diff::Change) -> Change {
        Change::of(change, change.is_noise())
    }

    fn count(change: &diff::Change) -> Change {
        Change::of(change, change.gap() == 0)
    }

    fn of(change: &diff::Change, noise: bool) -> Change {
        Change {
            before: Spread::of(&change.before),
            after: Spread::of(&change.after),
            delta: change.delta(),
            noise,
            marked: change.has_spread() && !noise,
        }
    }
}

impl Spread {
    fn of(spread: &diff::Spread) -> Spread {
        Spread {
            min: spread.min,
            median: spread.median,
            max: spread.max,
        }
    }
}

impl Effect {
    fn of(effect: &diff::Effect) -> Effect {
        let (kind, index) = match effect.subject {
            Subject::Threads(index) => ("threads", index),
            Subject::Lock(index) => ("lock", index),
            Subject::Function(index) => ("function", index),
        };
        Effect {
            kind,
            index,
            cause: effect.cause.as_str(),
            effect_ns: effect.effect_ns,
            noise: effect.is_noise,
            value_ns: Change::time(&effect.path_ns),
        }
    }
}

impl<'a> Threads<'a> {
    fn of(diff: &'a diff::Diff, index: usize) -> Threads<'a> {
        let threads = &diff.threads[index];
        let key = |key: Option<Key>| key.map(|key| key.to_string());
        let function = threads.function.as_ref();
        Threads {
            main: threads.is_main,
            process: threads.program.as_deref(),
            keys: Pair {
                before: key(threads.keys.0),
                after: key(threads.keys.1),
            },
            function: function.and_then(|place| place.function.as_deref()),
            function_place: function.map(FunctionPlace::from),
            name: &threads.name,
            creation: Pair {
                before: super::frames(threads.creation.0.as_ref()),
                after: super::frames(threads.creation.1.as_ref()),
            },
            distinction: diff_wording::distinction(diff, index),
            identities: threads.identities,
            number: Change::count(&threads.number),
            running_ns: Change::time(&threads.running_ns),
            runnable_ns: Change::time(&threads.runnable_ns),
            waiting_ns: Change::time(&threads.waiting_ns),
            path_ns: Change::time(&threads.path_ns),
            work_ns: Change::time(&threads.work_ns),
        }
    }
}

impl<'a> Object<'a> {
    fn of(object: &'a diff::ObjectChange) -> Object<'a> {
        Object {
            kind: object.kind.map(|kind| kind.as_str()),
            process: object.program.as_deref(),
            name: object.name.as_deref(),
            number: Change::count(&object.number),
            waits: Change::count(&object.waits),
            waited_ns: Change::time(&object.waited_ns),
            taken: Change::count(&object.taken),
            held_ns: Change::time(&object.held_ns),
            path_ns: Change::time(&object.path_ns),
            saved_ns: Change::time(&object.saved_ns),
        }
    }
}

/// Writes a comparison as one JSON document.
///
/// # Errors
/// Returns an error if `out` cannot be written.
pub fn write(diff: &diff::Diff, out: &mut dyn Write) -> io::Result<()> {
    super::write(out, &document(diff))
}

/// The document of a comparison.
pub(in crate::views) fn document(diff: &diff::Diff) -> impl Serialize {
    Document {
        schema_version: SCHEMA_VERSION,
        programs: Pair {
            before: &diff.programs.0,
            after: &diff.programs.1,
        },
        recordings: Pair {
            before: diff.counts.0,
            after: diff.counts.1,
        },
        can_judge: diff.can_judge(),
        doubts: diff.doubts.iter().map(|doubt| doubt.as_str()).collect(),
        noise_share: diff.net_ns.noise_share(),
        noise_ns: diff.net_ns.noise_ns,
        wall_ns: Change::time(&diff.wall_ns),
        net_ns: Change::time(&diff.net_ns),
        recorder_ns: Change::time(&diff.recorder_ns),
        others_ns: Change::time(&diff.others_ns),
        stolen_ns: Change::time(&diff.stolen_ns),
        effects: diff.effects.iter().map(Effect::of).collect(),
        threads: (0..diff.threads.len())
            .map(|index| Threads::of(diff, index))
            .collect(),
        objects: diff.objects.iter().map(Object::of).collect(),
        functions: diff
            .functions
            .iter()
            .map(|function| Function {
                name: function.place.function.as_deref(),
                place: FunctionPlace::from(&function.place),
                path_ns: Change::time(&function.path_ns),
                work_ns: Change::time(&function.work_ns),
            })
            .collect(),
    }
}
