//! Hangs: threads that cannot continue.

use std::collections::BTreeSet;

use super::{MAX_NAMED, capital, is_doing, list, place, what};
use crate::model::{
    Doubt, Finding, FindingKind, Hang, HangReason, HangWait, Model, State, StopCause, ThreadIndex,
};
use crate::primitives::Kind;
use crate::views::wording;

/// The text of a hang, with the reasons for doubt.
pub(super) fn text(model: &Model, finding: &Finding, hang: &Hang) -> String {
    let mut text = match &hang.reason {
        HangReason::Circle => circle(model, hang),
        HangReason::HolderGone {
            tid,
            holder,
            shared,
        } => holder_gone(model, hang, *tid, *holder, *shared),
        HangReason::AllWait {
            waiting,
            bystanders,
        } => all_wait(model, finding, hang, *waiting, bystanders),
        HangReason::Processes => processes(model, finding),
        HangReason::OnlyUsers => only_users(model, finding, hang),
        HangReason::Readers { readers, others } => upgraders(model, hang, *readers, *others),
        HangReason::Pool { function } => pool(hang, function),
    };
    for by in [StopCause::Signal, StopCause::Frozen] {
        text.push_str(&stopped(model, finding, by));
    }
    for doubt in &hang.doubts {
        text.push(' ');
        text.push_str(reservation(*doubt));
    }
    text
}

/// Names the processes that are stopped. They still wait when they continue.
fn stopped(model: &Model, finding: &Finding, by: StopCause) -> String {
    let is_stopped = |thread: &&ThreadIndex| {
        let state = model.inspected_state(**thread);
        matches!(state, State::Stopped(stop, _) if *stop == by)
    };
    let stopped = finding.threads.iter().filter(is_stopped);
    let stopped: BTreeSet<u64> = stopped.map(|thread| model.pid_of(*thread)).collect();
    let stopped: Vec<String> = stopped.iter().map(u64::to_string).collect();
    let Some(processes) = wording::named_processes(&stopped) else {
        return String::new();
    };
    let (has_stopped, continues) = match by {
        StopCause::Signal => ("A signal such as SIGSTOP has also stopped", "SIGCONT"),
        StopCause::Frozen => ("A cgroup has also frozen", "a thaw"),
    };
    format!(" {has_stopped} {processes}. After {continues} the threads are still stuck.")
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
            " and cannot continue by themselves"
        },
        clauses(hang, hang.waits.len(), |wait| {
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

/// A clause for each wait, up to [`MAX_NAMED`]. The rest of `all` threads is counted.
fn clauses(hang: &Hang, all: usize, clause: impl Fn(&HangWait) -> String) -> String {
    let named = hang.waits.iter().take(MAX_NAMED);
    let named: Vec<String> = named.map(clause).collect();
    let text = named.join("; ");
    match all.saturating_sub(named.len()) {
        0 => text,
        more => format!("{text}; and {more} more"),
    }
}

fn holder_gone(
    model: &Model,
    hang: &Hang,
    tid: Option<u64>,
    holder: Option<ThreadIndex>,
    shared: bool,
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
        (None, Some(tid)) if shared => format!(
            "{who} for {lock}. Its holder has stored the thread id {tid}. No process that Unspool \
             can see maps the lock's memory and has this thread, so the holder has probably ended \
             without releasing the lock."
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
    let each = clauses(hang, waiting, |wait| {
        let readers = match wait.awaited.readers {
            Some(count) if locks => {
                format!(" (held by {})", wording::count(count as usize, "reader"))
            }
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
        let whose = match bystanders.len() {
            1 => "its",
            _ => "their",
        };
        text.push_str(&format!(
            " {}{more} can continue, but Unspool found nothing in {whose} code that wakes a thread.",
            capital(&names.join(", "))
        ));
    }
    text
}

fn processes(model: &Model, finding: &Finding) -> String {
    let clause = |thread: &ThreadIndex| {
        format!(
            "{} {}",
            model.thread_name(*thread),
            is_doing(model, *thread)
        )
    };
    let named = finding.threads.iter().take(MAX_NAMED);
    let mut each: Vec<String> = named.map(clause).collect();
    let more = finding.threads.len() - each.len();
    if more > 0 {
        each.push(format!("and {more} more"));
    }
    let each = each.join("; ");
    match finding.threads.len() {
        1 => format!("{}. It cannot continue by itself.", capital(&each)),
        all => {
            format!("{all} threads wait for each other and cannot continue by themselves: {each}.")
        }
    }
}

fn only_users(model: &Model, finding: &Finding, hang: &Hang) -> String {
    let each = clauses(hang, hang.waits.len(), |wait| {
        format!("{} {}", model.thread_name(wait.thread), waits(model, wait))
    });
    let why = match finding.kind {
        FindingKind::Deadlock => {
            "These locks do not store who holds them. No other thread was seen using them, so \
             each of these threads most likely holds a lock that another one waits for."
        }
        _ => {
            "Only these threads were seen ending such waits, and all of them wait. Most likely \
             nothing wakes them."
        }
    };
    format!("{each}. {why}")
}

fn upgraders(model: &Model, hang: &Hang, readers: u32, others: usize) -> String {
    let each = clauses(hang, hang.waits.len(), |wait| {
        format!("{} {}", model.thread_name(wait.thread), waits(model, wait))
    });
    let others = match others {
        0 => "every thread waits for it".to_owned(),
        others => format!("all threads except {others} wait for it"),
    };
    let hold = match readers {
        1 => "1 thread holds".to_owned(),
        readers => format!("{readers} threads hold"),
    };
    format!(
        "{each}. {hold} it for reading, and {others}. So a thread that waits to write also holds it for \
         reading, and cannot go on. It must release its read lock first."
    )
}

fn pool(hang: &Hang, function: &str) -> String {
    let who = match hang.waits.len() {
        1 => format!("The only thread that runs {function} waits for a future inside a task"),
        count => format!("All {count} threads that run {function} wait for futures inside tasks"),
    };
    format!(
        "{who}. If no other threads run such tasks, the tasks that set the \
         futures never run."
    )
}

fn reservation(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::Timed => "A wait has a time limit, so this may end by itself.",
        Doubt::Refused => {
            "The kernel has refused a thread a mutex that it could never get, and the C library \
             lets that thread wait forever. Unspool inferred the mutex from the thread's stack."
        }
        Doubt::Shared => {
            "Several processes share one of these objects. The finding assumes that the holder's \
             thread id belongs to this process, and not to a process in another PID namespace."
        }
        Doubt::CallsMayEnd => {
            "This assumes that no signal, such as an alarm, and no process that Unspool does not see \
             ends the calls."
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
        Doubt::Unnamed => {
            "No symbols show what kind of object each thread waits at, so this may be a deadlock \
             or a lost wake-up."
        }
    }
}
