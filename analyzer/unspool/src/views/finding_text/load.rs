//! Objects that cost time: contention, convoys, long holds.

use super::{at, at_path, object, thread, times};
use crate::model::schedule::{CallIndex, add_time};
use crate::model::sync::{Contention, Object, ObjectIndex, length, place};
use crate::model::{KernelWait, Model, ThreadIndex};
use crate::views::blocking_call;

pub(super) fn long_hold(
    model: &Model,
    index: ObjectIndex,
    kernel: Option<&KernelWait>,
    overloaded: bool,
) -> String {
    let name = object(model, index);
    let Some(hold) = &model.sync.object(index).longest_hold else {
        return format!("A thread held {name} for a long time.");
    };
    let doing = kernel.map_or(String::new(), |wait| {
        let part = match wait.ns > hold.ns / 2 {
            true => "Most of the time",
            false => "Part of the time",
        };
        format!(" {part} {}.", in_kernel(model, wait))
    });
    let longest = match hold.longest_wait {
        Some((ns, used, waiter)) => Some((Some(ns), used, waiter)),
        None => hold.first.map(|(used, waiter)| (None, used, waiter)),
    };
    let waits = longest.map_or(String::new(), |(ns, used, waiter)| {
        let place = at(model, used);
        let long = ns.map_or(String::new(), |ns| format!(" for {}", length(ns)));
        let who = thread(model, waiter);
        match hold.waiting.len() {
            0 | 1 => format!(" Meanwhile {who} waited for it{long}{place}."),
            count => {
                let wait = match ns {
                    Some(ns) => format!("longest wait, of {},", length(ns)),
                    None => "first wait".to_owned(),
                };
                format!(
                    " Meanwhile {count} threads waited for it. The {wait} was that of \
                     {who}{place}. The waits of these threads add up to {}.",
                    length(hold.waited_ns)
                )
            }
        }
    });
    let ns = length(hold.ns);
    let held = match (hold.taken, hold.given_up) {
        (Some(taken), _) => format!("held {name} for {ns}, taken{}", at(model, taken)),
        (None, Some(path)) => {
            let released = at_path(model, path);
            match hold.may_be_shared {
                true => format!(
                    "was the last holder of {name}, which was held for {ns} or longer, \
                     released{released}"
                ),
                false => format!("held {name} for {ns} or longer, released{released}"),
            }
        }
        (None, None) => format!("held {name} for {ns} or longer, until it ended"),
    };
    let others = match hold.may_be_shared {
        true => " Other threads may have held it, too.",
        false => "",
    };
    let runnable = match matters(hold.runnable_ns, hold.ns) {
        true => format!(
            ", of which it waited {} for a processor",
            length(hold.runnable_ns)
        ),
        false => String::new(),
    };
    format!(
        "{} {held}{runnable}.{doing}{others}{waits}{}{}{}",
        thread(model, hold.thread),
        as_lock(model, index),
        of_which(hold.ns, hold.stood_ns),
        doubted(overloaded),
    )
}

pub(super) fn convoy(model: &Model, index: ObjectIndex, overloaded: bool) -> String {
    let name = object(model, index);
    let object = model.sync.object(index);
    let held = match object.holds.count {
        0 => String::new(),
        _ => format!(
            "A hold lasts {} on average. ",
            length(object.holds.mean_ns())
        ),
    };
    // The number of acquisitions is unknown if only waits are recorded.
    let (behind, all) = (object.queued, object.taken.max(object.waits.count));
    let queued = match object.taken {
        0 => format!("{behind} of {all} waits for it began when other threads already waited"),
        _ => format!("{behind} of {all} times it was taken, other threads already waited"),
    };
    format!(
        "Threads queue up at {name}, up to {} at a time: {queued}. {held}A wait lasts {} on \
         average; all waits of all threads add up to {}.{}{}{}{}{}",
        object.longest_queue,
        length(object.waits.mean_ns()),
        length(object.waits.total_ns),
        holders_call(model, object),
        processor(object),
        as_lock(model, index),
        of_which(object.waits.total_ns, object.stood_ns),
        doubted(overloaded),
    )
}

pub(super) fn parking(
    model: &Model,
    owner: ThreadIndex,
    helpers: &[(ObjectIndex, ThreadIndex)],
    waited_ns: u64,
) -> String {
    let owner = thread(model, owner);
    let example = helpers.first().map_or(String::new(), |(lock, helper)| {
        let pair = model.sync.object(*lock).contention.first();
        let place = pair.map_or(String::new(), |pair| at(model, pair.waiter));
        let (helper, lock) = (thread(model, *helper), object(model, *lock));
        format!(" For example, {helper} waits for {lock}{place}.")
    });
    if helpers.len() == 1 {
        return format!(
            "{owner} holds a mutex while it waits for requests, and a helper thread waits until the \
             mutex is released.{example} No other thread waits for it. So {owner} most likely lets \
             the helper sleep this way, and its waits ({} in total) cost no time.",
            length(waited_ns)
        );
    }
    format!(
        "{owner} holds one mutex for each of {} helper threads, and each helper waits until its mutex is \
         released.{example} No other thread waits for these mutexes. So {owner} most likely lets the \
         helpers sleep this way, and their waits ({} in total) cost no time.",
        helpers.len(),
        length(waited_ns)
    )
}

pub(super) fn contention(model: &Model, index: ObjectIndex, overloaded: bool) -> String {
    let name = object(model, index);
    let object = model.sync.object(index);
    let mut text = String::new();
    let pair = object.contention.first();
    if let Some(pair) = pair.filter(|_| object.waits.count == 1) {
        text.push_str(&one_wait(model, &name, pair));
    } else {
        text.push_str(&format!(
            "Threads waited {} for {name}, at most {} at a time; all waits of all threads add up to \
             {}.",
            times(object.waits.count),
            length(object.waits.max_ns),
            length(object.waits.total_ns),
        ));
    }
    if let Some(pair) = pair {
        if object.waits.count > 1 {
            text.push_str(&largest_part(model, pair));
        }
        if let Some((call, ns)) = holder_call(model, &pair.holder_calls, pair.total_ns) {
            let who = match pair.for_one {
                true => format!("{} was", thread(model, pair.longest.1)),
                false => "the other threads were".to_owned(),
            };
            text.push_str(&format!(" For {} of that, {who} in {call}.", length(ns)));
        }
    }
    text.push_str(&processor(object));
    text.push_str(as_lock(model, index));
    text.push_str(&of_which(object.waits.total_ns, object.stood_ns));
    text.push_str(doubted(overloaded));
    text
}

fn one_wait(model: &Model, name: &str, pair: &Contention) -> String {
    let (waiting, holding) = pair.longest;
    let (who, holder) = (thread(model, waiting), thread(model, holding));
    let held = match (pair.holder, pair.ended) {
        (Some(taken), _) => format!(", taken{}", at(model, taken)),
        (None, Some(ended)) => format!(", released{}", at_path(model, ended)),
        (None, None) => String::new(),
    };
    let place = at(model, pair.waiter);
    let long = length(pair.total_ns);
    format!("{who} waited {long} for {name}{place}: {holder} held it{held}.")
}

fn largest_part(model: &Model, pair: &Contention) -> String {
    let (waiting, holding) = pair.longest;
    let seen = match (pair.holder, pair.ended) {
        (Some(holder), _) => format!(", which had taken it{}", at(model, holder)),
        (None, Some(ended)) => format!(", which released it{}", at_path(model, ended)),
        (None, None) => String::new(),
    };
    let who = thread(model, waiting);
    let place = at(model, pair.waiter);
    let for_whom = match pair.for_one {
        true => thread(model, holding),
        false => format!("threads such as {}", thread(model, holding)),
    };
    let whose = match (pair.by_one, pair.count) {
        (true, 1) => format!("The largest part is one wait of {who}{place}"),
        (true, count) => format!("The largest part is {count} waits of {who}{place}"),
        (false, count) => format!(
            "The largest part is {count} waits of several threads, {who} among them,{place}"
        ),
    };
    let sum = match pair.count {
        1 => length(pair.total_ns),
        _ => format!(
            "{} in total, at most {} at a time",
            length(pair.total_ns),
            length(pair.max_ns)
        ),
    };
    format!(" {whose} for {for_whom}{seen}: {sum}.")
}

/// The system call in which the holders were longest during waits, and how long, if it is a large
/// part of these waits.
pub(in crate::views) fn holder_call(
    model: &Model,
    calls: &[(CallIndex, u64)],
    waited_ns: u64,
) -> Option<(String, u64)> {
    let (call, ns) = calls.iter().copied().max_by_key(|(_, ns)| *ns)?;
    let call = model.schedule.call(call)?;
    matters(ns, waited_ns).then(|| (blocking_call::title(call), ns))
}

/// Says in which system call the holders were for a large part of all waits.
fn holders_call(model: &Model, object: &Object) -> String {
    let mut calls = Vec::new();
    for pair in &object.contention {
        for (call, ns) in &pair.holder_calls {
            add_time(&mut calls, *call, *ns);
        }
    }
    holder_call(model, &calls, object.waits.total_ns).map_or(String::new(), |(call, ns)| {
        let ns = length(ns);
        format!(" For {ns} of that, the threads that held it were in {call}.")
    })
}

/// A wait in the kernel, as `it was in read() of pipe:[7], called in refill (cache.cpp:9)`.
fn in_kernel(model: &Model, wait: &KernelWait) -> String {
    let mut frames = wait.stack.frames.iter();
    let caller = frames.find(|frame| !frame.place.is_within());
    let called = caller.map_or(String::new(), |frame| {
        format!(", called in {}", place(frame))
    });
    let Some(call) = wait.call else {
        return format!("it waited for memory to be read in (a page fault){called}");
    };
    if let Some(index) = wait.object {
        return format!("it waited for {}{called}", object(model, index));
    }
    match &wait.file[..] {
        "" => format!("it was in {call}(){called}"),
        file => format!("it was in {call}() of {file}{called}"),
    }
}

/// True if a part of a time is large enough to be mentioned.
pub(super) fn matters(part_ns: u64, ns: u64) -> bool {
    part_ns > ns / 10
}

/// Says how much of the waits was a lack of processors.
fn processor(object: &Object) -> String {
    match matters(object.runnable_ns, object.waits.total_ns) {
        true => format!(
            " In {} of all these waits, the holder or the waiting thread waited for a processor.",
            length(object.runnable_ns)
        ),
        false => String::new(),
    }
}

/// Says why a semaphore counts as a lock.
fn as_lock(model: &Model, index: ObjectIndex) -> &'static str {
    match model.sync.object(index).used_as_lock {
        true => {
            " The threads that wait for this semaphore also post it, so Unspool treats it as a lock."
        }
        false => "",
    }
}

fn doubted(overloaded: bool) -> &'static str {
    match overloaded {
        true => {
            " The recorder delayed threads much of the time. It also kept the processors busy, so \
             that threads held locks while they waited for a processor."
        }
        false => "",
    }
}

/// Says how much of a time the recorder may have caused, if that matters.
fn of_which(ns: u64, stood_ns: u64) -> String {
    match matters(stood_ns, ns) {
        true => format!(
            " The recorder itself may have delayed threads for up to {} of that.",
            length(stood_ns)
        ),
        false => String::new(),
    }
}
