//! Findings as sentences: the only place that expresses the model's facts about hangs in English.
//! Text views use it, and JSON's `text` and `what`.

use crate::model::critical_path::{Bottleneck, Item};
use crate::model::sync::{caller, length, place as frame_place};
use crate::model::{
    Awaited, Doubt, Evidence, Facts, Finding, FindingKind, Hang, HangReason, HangWait, Model,
    Shows, ThreadIndex,
};
use crate::primitives::Kind;
use crate::views::{text, wording};

/// Maximum number of names in one sentence. JSON has all threads.
const MAX_NAMED: usize = 6;

/// Columns for the name of what limits the run.
const MAX_ITEM_NAME: usize = 80;

/// The text of a finding, in whole sentences.
pub(super) fn text(model: &Model, finding: &Finding) -> String {
    match &finding.facts {
        Facts::Sentences(text) => text.clone(),
        Facts::Bottleneck(limit) => bottleneck(model, finding, limit),
        Facts::Hang(hang) => {
            let mut text = match &hang.reason {
                HangReason::Circle => circle(model, hang),
                HangReason::HolderGone { tid, holder } => holder_gone(model, hang, *tid, *holder),
                HangReason::AllWait {
                    waiting,
                    bystanders,
                } => all_wait(model, finding, hang, *waiting, bystanders),
                HangReason::OnlyUsers => only_users(model, finding, hang),
                HangReason::Readers { readers, others } => {
                    upgraders(model, hang, *readers, *others)
                }
                HangReason::Pool { function } => pool(hang, function),
            };
            for doubt in &hang.doubts {
                text.push(' ');
                text.push_str(reservation(*doubt));
            }
            text
        }
    }
}

/// The evidence of a stack, as a clause without its thread: `waits for mutex log_lock`.
pub(super) fn evidence(evidence: &Evidence) -> String {
    match &evidence.shows {
        Shows::Clause(clause) => clause.clone(),
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
    names.join(" and ")
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
fn place(model: &Model, path: Option<crate::model::calls::PathId>) -> String {
    let path = path.and_then(|path| model.sync.paths.get(path.0));
    let Some(frame) = path.and_then(|path| caller(path)) else {
        return String::new();
    };
    format!(" in {}", frame_place(frame))
}

fn circle(model: &Model, hang: &Hang) -> String {
    if let [wait] = &hang.waits[..] {
        let name = capital(&model.thread_name(wait.thread));
        let at = place(model, wait.path);
        if wait.awaited.object.kind == Kind::Join {
            return format!("{name} waits for its own end{at}.");
        }
        let taken = match place(model, wait.taken) {
            taken if taken.is_empty() => taken,
            taken => format!(", taken{taken}"),
        };
        return format!(
            "{name} waits{at} for {}, which it holds itself{taken}.",
            what(&wait.awaited)
        );
    }
    let joins = hang.waits.iter();
    let joins = joins
        .clone()
        .all(|wait| wait.awaited.object.kind == Kind::Join);
    let each_other = match joins {
        true => "each other's end",
        false => "each other",
    };
    let timed = hang.doubts.contains(&Doubt::Timed);
    format!(
        "{} threads wait for {each_other}{}: {}.",
        hang.waits.len(),
        if timed {
            ""
        } else {
            ", and none of them can go on"
        },
        clauses(hang, |wait| {
            let name = model.thread_name(wait.thread);
            let holds = match &wait.holds[..] {
                [] => String::new(),
                holds => {
                    let taken = match place(model, wait.taken) {
                        taken if taken.is_empty() => taken,
                        taken => format!(", taken{taken},"),
                    };
                    format!("holds {}{taken} and ", list(holds))
                }
            };
            format!("{name} {holds}{}", waits(model, wait))
        })
    )
}

/// `waits in push (queue.c:31) for mutex a`
fn waits(model: &Model, wait: &HangWait) -> String {
    format!(
        "waits{} {} {}",
        place(model, wait.path),
        wait.awaited.object.kind.preposition(),
        what(&wait.awaited)
    )
}

fn clauses(hang: &Hang, clause: impl Fn(&HangWait) -> String) -> String {
    let named = hang.waits.iter().take(MAX_NAMED);
    let text = named.map(clause).collect::<Vec<String>>().join("; ");
    match hang.waits.len().saturating_sub(MAX_NAMED) {
        0 => text,
        more => format!("{text}; and so on, {more} more"),
    }
}

fn holder_gone(
    model: &Model,
    hang: &Hang,
    tid: Option<u64>,
    holder: Option<ThreadIndex>,
) -> String {
    let who = match &hang.waits[..] {
        [one] => format!("{} waits", capital(&model.thread_name(one.thread))),
        all => format!("{} threads wait", all.len()),
    };
    let lock = hang.waits.first();
    let lock = lock.map_or("a lock".to_owned(), |wait| what(&wait.awaited));
    match (holder, tid) {
        (Some(holder), _) => format!(
            "{who} for {lock}. Its holder, {}, has ended without releasing it.",
            model.thread_name(holder)
        ),
        (None, tid) => {
            let tid = tid.map_or(String::new(), |tid| format!(" {tid}"));
            format!(
                "{who} for {lock}. Its holder is thread{tid}, which this process does not have. That thread \
                 has ended, or it held the lock in the parent when this process was forked, or the lock's \
                 memory is damaged. No thread will release the lock."
            )
        }
    }
}

fn all_wait(
    model: &Model,
    finding: &Finding,
    hang: &Hang,
    waiting: usize,
    bystanders: &[ThreadIndex],
) -> String {
    let beginning = match (waiting, bystanders) {
        (1, []) => "The only thread waits, and no thread is left to wake it".to_owned(),
        (2, []) => "Both threads wait, and no thread is left to wake them".to_owned(),
        (all, []) => {
            format!("All {all} threads wait, and no thread is left to wake any of them")
        }
        (1, _) => "One thread waits, and no other can wake it".to_owned(),
        (all, _) => format!("{all} threads wait, and no other can wake any of them"),
    };
    let locks = finding.kind == FindingKind::Deadlock;
    let each = clauses(hang, |wait| {
        let readers = match wait.awaited.readers {
            Some(count) if locks => format!(" (held by {count} for reading)"),
            _ => String::new(),
        };
        format!(
            "{} {}{readers}",
            model.thread_name(wait.thread),
            waits(model, wait)
        )
    });
    let mut text = format!("{beginning}: {each}.");
    if !bystanders.is_empty() {
        let names: Vec<String> = bystanders
            .iter()
            .take(MAX_NAMED)
            .map(|thread| model.thread_name(*thread))
            .collect();
        let more = match bystanders.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (go, run) = match bystanders.len() {
            1 => ("goes", "runs"),
            _ => ("go", "run"),
        };
        text.push_str(&format!(
            " {}{more} {go} on, but {run} only code that wakes no thread.",
            capital(&names.join(", "))
        ));
    }
    text
}

fn only_users(model: &Model, finding: &Finding, hang: &Hang) -> String {
    let each = clauses(hang, |wait| {
        format!("{} {}", model.thread_name(wait.thread), waits(model, wait))
    });
    let why = match finding.kind {
        FindingKind::Deadlock => {
            "These locks do not store who holds them. No other thread was seen using them, so \
             each of these threads most likely holds a lock that another one waits for."
        }
        _ => {
            "No other thread was seen ending such waits, and all these threads wait, so most \
             likely none of them is woken."
        }
    };
    format!("{each}. {why}")
}

fn upgraders(model: &Model, hang: &Hang, readers: u32, others: usize) -> String {
    let each = clauses(hang, |wait| {
        format!("{} {}", model.thread_name(wait.thread), waits(model, wait))
    });
    let others = match others {
        0 => "every thread waits for it".to_owned(),
        1 => "only 1 thread does not wait for it".to_owned(),
        others => format!("only {others} threads do not wait for it"),
    };
    let hold = match readers {
        1 => "1 thread holds".to_owned(),
        readers => format!("{readers} threads hold"),
    };
    format!(
        "{each}. {hold} it for reading, but {others}. So a waiting thread reads it itself and cannot go \
         on: a reader that locks for writing must release its read lock first."
    )
}

fn pool(hang: &Hang, function: &str) -> String {
    let who = match hang.waits.len() {
        1 => format!("The only thread that runs {function} waits for a future"),
        count => format!("All {count} threads that run {function} wait for futures"),
    };
    format!(
        "{who}, from within tasks. If only threads that run this function run such tasks, no \
         thread is left to run the tasks that set the futures."
    )
}

fn bottleneck(model: &Model, finding: &Finding, limit: &Bottleneck) -> String {
    let percent = |ns: u64| format!("{:.0} %", 100.0 * ns as f64 / limit.run_ns.max(1) as f64);
    let saved = format!("{} ({})", percent(limit.saved_ns), length(limit.saved_ns));
    let used = format!(
        "Meanwhile the program could use {:.1} of {} on average.",
        limit.usable,
        wording::count(limit.processors, "processor")
    );
    let what = match limit.item {
        Item::Lock(lock) => {
            let object = finding.objects.first();
            let object = object.map_or(String::new(), |object| object.to_string());
            let waits = &model.sync.object(lock).waits;
            return format!(
                "{} limits the run: if no thread had to wait for it, the run would be {saved} shorter. \
                 All waits for it add up to {}. This is estimated by a replay of what was recorded.",
                capital(&object),
                length(waits.total_ns)
            );
        }
        Item::Threads(identity) => {
            let name = wording::identity(model, identity, MAX_ITEM_NAME);
            match model.sync.identities.get(identity) {
                Some((_, _, 2..)) => format!("Threads {name} limit"),
                _ => format!("Thread {name} limits"),
            }
        }
        Item::Function(function) => {
            let path = model.critical_path.as_ref();
            let name = path.map_or(String::new(), |path| {
                text::frames::function(path.functions.place(function), MAX_ITEM_NAME)
            });
            format!("Function {name} limits")
        }
        Item::Processors => "The number of processors limits".to_owned(),
    };
    format!(
        "{what} the run: with half the processor time here, the run would be {saved} shorter. {} of the \
         critical path belong to it. {used} This is estimated by a replay of what was recorded.",
        length(limit.path_ns)
    )
}

fn reservation(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Timed => "It ends when the time limit of a wait is reached.",
        Doubt::Refused => {
            "The kernel has refused a thread a mutex that it could never get, and the C library \
             lets that thread wait forever. The mutex is inferred from the thread's stack."
        }
        Doubt::Shared => {
            "Several processes share an object here. This assumes that the holder's id means a \
             thread of this process, and not one of another PID namespace."
        }
        Doubt::ReadApart => {
            "The threads and the objects were read one after another, so some may have changed \
             meanwhile."
        }
        Doubt::EventsMissing => {
            "Events are missing or memory was read only once, so this is an inference."
        }
        Doubt::IdsAssumed => {
            "This assumes that the program and the server use the same thread ids."
        }
        Doubt::SignalHandler => "Only a signal handler could end this.",
        Doubt::SignalsUnknown => "Only a signal handler or another process could end this.",
    }
}

fn capital(text: &str) -> String {
    let mut text = text.to_owned();
    if text.is_char_boundary(1) {
        text[..1].make_ascii_uppercase();
    }
    text
}
