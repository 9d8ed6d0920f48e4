//! Objects and threads that are used in risky, forbidden or costly ways.

use super::{at, function, object, thread, times};
use crate::model::sync::{ObjectIndex, UseIndex, length, place};
use crate::model::{Finding, FindingKind, Model, OrderRisk, OrderStep, ThreadIndex};

pub(super) fn lock_order(model: &Model, steps: &[OrderStep], risk: OrderRisk) -> String {
    let clauses: Vec<String> = steps
        .iter()
        .map(|step| {
            format!(
                "{}{} takes {} while it holds {} ({})",
                within(model, step.taken),
                thread(model, step.thread),
                object(model, step.takes),
                object(model, step.holds),
                times(step.count)
            )
        })
        .collect();
    let orders = match steps.len() {
        2 => "Two locks are taken in both orders".to_owned(),
        count => format!("{count} locks are taken in orders that form a circle"),
    };
    let verdict = match risk {
        OrderRisk::Proved => {
            "Threads that do this at the same time can wait for each other forever.".to_owned()
        }
        OrderRisk::Semaphore(semaphore) => format!(
            "Each of these threads had taken {} and not yet posted it. If enough of them can do so \
             at the same time, they can wait for each other forever.",
            object(model, semaphore)
        ),
        OrderRisk::OneThread => {
            "Only one thread does this, and it cannot deadlock by itself. If two threads ever do \
             it at the same time, they can wait for each other forever."
                .to_owned()
        }
        OrderRisk::EventsMissing => {
            "Events are missing, so it is not certain that these locks were held, or that these \
             threads could run at the same time."
                .to_owned()
        }
        OrderRisk::Apart => {
            "In this recording no two threads could do this at the same time. If two ever do, \
             they can wait for each other forever."
                .to_owned()
        }
        OrderRisk::Successive => {
            "The threads did this one after the other. If nothing enforces that, they can wait for \
             each other forever."
                .to_owned()
        }
        OrderRisk::Reused => {
            "If these were the same locks each time, the threads can wait for each other forever. \
             But memory of locks may have been freed and used again, because their initialization \
             was not recorded."
                .to_owned()
        }
    };
    format!("{orders}: {}. {verdict}", clauses.join("; "))
}

/// The place of a call, to begin a clause with: `in push (queue.c:31), `.
///
/// Objects without a name are named by a place, so the call's place stands apart from them.
fn within(model: &Model, used: UseIndex) -> String {
    match at(model, used) {
        place if place.is_empty() => place,
        place => format!("{}, ", place.trim_start()),
    }
}

pub(super) fn misuse(
    model: &Model,
    kind: FindingKind,
    (who, used): (ThreadIndex, UseIndex),
    index: ObjectIndex,
    count: u64,
    holder: Option<(ThreadIndex, UseIndex)>,
) -> String {
    let verb = match kind {
        FindingKind::DestroyedHeld => "destroys",
        _ => "unlocks",
    };
    let begin = format!(
        "{}{} {verb} {}",
        within(model, used).replacen("in ", "In ", 1),
        thread(model, who),
        object(model, index),
    );
    let often = times(count);
    match holder {
        Some((holder, taken)) if holder == who => format!(
            "{begin} while it still holds it, taken{} ({often}).",
            at(model, taken)
        ),
        Some((holder, taken)) => format!(
            "{begin} while {} holds it, taken{} ({often}).",
            thread(model, holder),
            at(model, taken)
        ),
        None => format!("{begin}, which no thread holds ({often})."),
    }
}

pub(super) fn unlocked_signal(
    model: &Model,
    [condition, mutex]: [ObjectIndex; 2],
    [without, all]: [u64; 2],
    (example, used): (ThreadIndex, UseIndex),
) -> String {
    format!(
        "Threads wait at {} with {}. But {without} of {all} signals came from a thread that had \
         not locked this mutex since its previous signal, for example {}{}. If that thread \
         changed the state that the others wait for, it did so without the mutex, and a wake-up \
         can be lost.",
        object(model, condition),
        object(model, mutex),
        thread(model, example),
        at(model, used),
    )
}

pub(super) fn unjoined(model: &Model, finding: &Finding, ended: bool) -> String {
    let first = finding.threads.first().copied();
    let whose = match finding.threads.len() {
        0 | 1 => ["Its stack and descriptor were", "Until then its stack is"],
        _ => [
            "Their stacks and descriptors were",
            "Until then their stacks are",
        ],
    };
    let what = match (finding.threads.len(), first) {
        (0 | 1, first) => format!(
            "{} ended and was never joined",
            first.map_or("A thread".to_owned(), |first| thread(model, first))
        ),
        (count, first) => format!(
            "{count} threads that run {} ended and were never joined",
            function(model, first)
        ),
    };
    match ended {
        true => format!("{what} or detached. {} never freed.", whose[0]),
        false => format!("{what} or detached so far. {} not freed.", whose[1]),
    }
}

pub(super) fn churn(model: &Model, finding: &Finding, median_ns: u64) -> String {
    let first = finding.threads.first().copied();
    let creation = first.and_then(|first| model.thread(first)?.creation_stack());
    // The stack of a creation begins with the caller; the stack of a call, with the primitive.
    let from = creation.and_then(|stack| stack.frames.first());
    let from = from.map_or(String::new(), |frame| format!(" in {}", place(frame)));
    format!(
        "{} threads that run {} were created{from} with the same creation stack, and half of them \
         lived less than {}. A pool would create them once.",
        finding.threads.len(),
        function(model, first),
        length(median_ns.max(1000)),
    )
}
