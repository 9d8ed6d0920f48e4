//! Findings as sentences: the only place that expresses the model's findings in English. Text views
//! use it, and JSON's `text` and `what`.

mod bottleneck;
mod hang;
mod load;
mod lock_waits;
mod usage;

pub(super) use load::holder_call;
pub(super) use lock_waits::{
    object as lock, text as lock_waits, title as lock_title, whose as whose_lock,
};

use crate::model::calls::PathId;
use crate::model::sync::{ObjectIndex, UseIndex, caller, length, place as frame_place};
use crate::model::{Act, Awaited, Creation, Evidence, Facts, Finding, Model, Shows, ThreadIndex};
use crate::primitives::Kind;
use crate::views::activity::doing;
use crate::views::wording;

/// Maximum number of names in one sentence. JSON has all threads.
const MAX_NAMED: usize = 6;

/// The text of a finding, in whole sentences.
pub(crate) fn text(model: &Model, finding: &Finding) -> String {
    match &finding.facts {
        Facts::Hang(facts) => hang::text(model, finding, facts),
        Facts::Bottleneck(limit) => bottleneck::text(model, finding, limit),
        Facts::LongHold {
            object,
            kernel,
            overloaded,
        } => load::long_hold(model, *object, kernel.as_ref(), *overloaded),
        Facts::Convoy { object, overloaded } => load::convoy(model, *object, *overloaded),
        Facts::Contention { object, overloaded } => load::contention(model, *object, *overloaded),
        Facts::LockWaits(index) => lock_waits(model, &model.lock_waits[*index]),
        Facts::Parking {
            owner,
            helpers,
            waited_ns,
        } => load::parking(model, *owner, helpers, *waited_ns),
        Facts::LockOrder { steps, risk } => usage::lock_order(model, steps, *risk),
        Facts::Misuse {
            thread,
            used,
            object,
            count,
            holder,
        } => usage::misuse(
            model,
            finding.kind,
            (*thread, *used),
            *object,
            *count,
            *holder,
        ),
        Facts::UnlockedSignal {
            condition,
            mutex,
            without,
            all,
            example,
        } => usage::unlocked_signal(model, [*condition, *mutex], [*without, *all], *example),
        Facts::Unjoined { ended } => usage::unjoined(model, finding, *ended),
        Facts::Churn { median_ns } => usage::churn(model, finding, *median_ns),
    }
}

/// The evidence of a stack, as a clause without its thread: `waits for mutex log_lock`.
pub(super) fn evidence(model: &Model, evidence: &Evidence) -> String {
    match &evidence.shows {
        Shows::Act { act, object } => acted(model, *act, *object),
        Shows::Creates(created) => format!("creates {}", thread(model, *created)),
        Shows::Created => "was created here".to_owned(),
        Shows::Activity => is_doing(model, evidence.thread),
        Shows::LongestPart => "has the longest part of the critical path".to_owned(),
        Shows::Took {
            object,
            ended: false,
        } => format!("took {object}"),
        Shows::Took {
            object,
            ended: true,
        } => format!("took {object} and ended"),
        Shows::Waits { holds, awaited } => clause(holds, awaited),
    }
}

/// `is waiting for mutex log_lock`
fn is_doing(model: &Model, thread: ThreadIndex) -> String {
    let doing = doing(model, thread);
    doing.map_or("waits".to_owned(), |doing| format!("is {doing}"))
}

fn acted(model: &Model, act: Act, index: ObjectIndex) -> String {
    let name = object(model, index);
    match act {
        Act::WaitedFor => format!("waited for {name}"),
        Act::Took => format!("took {name}"),
        Act::HadTaken => format!("had taken {name}"),
        Act::TookFor(ns) => format!("took {name} and held it for {}", length(ns)),
        Act::GaveUp => format!("released {name}"),
        Act::GaveUpAfter(ns) => format!("released {name} after {}", length(ns)),
        Act::Takes => format!("takes {name}"),
        Act::TakesWhile(held) => format!("takes {name} while it holds {}", object(model, held)),
        Act::Unlocks => format!("unlocks {name}"),
        Act::Destroys => format!("destroys {name}"),
        Act::Signals => format!("signals {name}"),
    }
}

/// Names a thread: `main`, `worker (TID 7)`.
fn thread(model: &Model, index: ThreadIndex) -> String {
    let Some(thread) = model.thread(index) else {
        return "an unknown thread".to_owned();
    };
    if thread.creation == Creation::Main {
        return "main".to_owned();
    }
    let function = thread.function.as_ref().and_then(|f| f.function.as_deref());
    match (model.name_instead(thread).or(function), thread.tid) {
        (Some(function), Some(tid)) => format!("{function} (TID {tid})"),
        (Some(function), None) => function.to_owned(),
        (None, Some(tid)) => format!("TID {tid}"),
        (None, None) => "a thread of unknown function".to_owned(),
    }
}

/// The name of a thread's function.
fn function(model: &Model, thread: Option<ThreadIndex>) -> String {
    let thread = thread.and_then(|thread| model.thread(thread));
    let function = thread.and_then(|thread| thread.function.as_ref()?.function.as_deref());
    function.map_or("an unknown function".to_owned(), str::to_owned)
}

/// Names an object: `mutex queue_lock`, `the mutex made in new_queue (queue.c:12)`.
fn object(model: &Model, index: ObjectIndex) -> String {
    let object = model.sync.object(index);
    let noun = object.kind.noun();
    match model.sync.name(object) {
        Some(name) if object.symbol.is_some() => format!("{noun} {name}"),
        Some(name) => format!("the {noun} {name}"),
        None => format!("the {noun} at {:#x}", object.address),
    }
}

/// The place of a use, as ` in push (queue.c:31)`. Empty if the path is unknown.
fn at(model: &Model, used: UseIndex) -> String {
    at_path(model, model.sync.used(used).path)
}

fn at_path(model: &Model, path: PathId) -> String {
    place(model, Some(path))
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// `holds mutex a and waits for mutex b`
fn clause(holds: &[Awaited], awaited: &Awaited) -> String {
    let waits = format!(
        "waits {} {}",
        awaited.object.kind.preposition(),
        what(awaited)
    );
    match holds {
        [] => waits,
        holds => format!("holds {} and {waits}", list(holds)),
    }
}

fn list(targets: &[Awaited]) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in targets.iter().map(what) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    wording::list(&names)
}

/// `robust mutex queue_lock`, `the end of thread 7`.
pub(super) fn what(awaited: &Awaited) -> String {
    if awaited.object.kind == Kind::Join {
        return match awaited.joined {
            Some(tid) => format!("the end of thread {tid}"),
            None => "the end of a thread".to_owned(),
        };
    }
    let flavor: String = awaited
        .flavor
        .iter()
        .map(|word| format!("{word} "))
        .collect();
    let named_by_place = awaited.object.name.as_deref().is_some_and(|name| {
        let verbs = ["made in ", "first used in ", "joined in "];
        verbs.iter().any(|verb| name.starts_with(verb))
    });
    let article = if named_by_place { "the " } else { "" };
    format!("{article}{flavor}{}", awaited.object)
}

/// The place of a call, ` in push (queue.c:31)`. Empty if the call was not recorded.
fn place(model: &Model, path: Option<PathId>) -> String {
    let path = path.and_then(|path| model.sync.paths.get(path.0));
    let Some(frame) = path.and_then(|path| caller(path)) else {
        return String::new();
    };
    format!(" in {}", frame_place(frame))
}

fn capital(text: &str) -> String {
    let mut text = text.to_owned();
    if text.is_char_boundary(1) {
        text[..1].make_ascii_uppercase();
    }
    text
}
