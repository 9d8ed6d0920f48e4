//! What changed the length of the run: each item's effect, and its cause.
//!
//! The critical path alone does not tell. Of two threads that take equally long, either may have
//! the path; and if work moves under a lock, the path gets longer in threads that do no more work.
//! So an effect is limited by what else changed:
//!
//! | item | effect |
//! |---|---|
//! | threads, as many as before | growth of their path or of their work, whichever is less |
//! | threads, new, gone, more or fewer | growth of their path |
//! | function | growth of its path or of its work, whichever is less |
//! | lock | growth of what the run would save without contention |
//!
//! A lock has at most what the threads leave unexplained. What locks leave unexplained, too,
//! belongs to threads whose path grew without more work.

use super::spread::Change;
use super::{Diff, FunctionChange, ThreadChange};

/// An item's difference is noise below one part in this many of the run.
const MIN_RUN_DIVISOR: u64 = 50;
/// [`MIN_RUN_DIVISOR`] with one recording on each side.
const MIN_RUN_DIVISOR_OF_ONE: u64 = 20;
/// [`MIN_RUN_DIVISOR_OF_ONE`] for a lock. Its effect is what other items leave unexplained, so it
/// may contain all noise of the run.
const MIN_RUN_DIVISOR_OF_LOCK: u64 = 10;

/// A cause of a longer or shorter run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The item.
    pub subject: Subject,
    /// Why it has an effect.
    pub cause: Cause,
    /// By how much it makes the run longer, nanoseconds; negative if shorter.
    pub effect_ns: i64,
    /// The item's part of the critical path. Of a lock, what the run would save without contention.
    pub path_ns: Change,
    /// True if two runs of one program may differ by as much.
    pub is_noise: bool,
}

/// What has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Threads, by their index in [`Diff::threads`].
    Threads(usize),
    /// A lock, by its index in [`Diff::objects`].
    Lock(usize),
    /// A function, by its index in [`Diff::functions`].
    Function(usize),
}

/// Why an item has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There are threads of a new identity.
    New,
    /// There are no threads of that identity any more.
    Gone,
    /// There are more or fewer threads of that identity.
    Number,
    /// The threads or the function do more or less work.
    Work,
    /// Threads wait more or less for the lock.
    Contention,
    /// The threads do as much work as before, and less or more of it at the same time as others.
    Parallelism,
}

impl Cause {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::New => "new",
            Cause::Gone => "gone",
            Cause::Number => "number",
            Cause::Work => "work",
            Cause::Contention => "contention",
            Cause::Parallelism => "parallelism",
        }
    }
}

/// A difference of an item up to this is noise, nanoseconds.
pub(super) fn noise_floor(net_ns: &Change) -> u64 {
    let divisor = match net_ns.has_spread() {
        true => MIN_RUN_DIVISOR,
        false => MIN_RUN_DIVISOR_OF_ONE,
    };
    net_ns.before.median / divisor
}

/// All effects, the largest first; noise comes last.
pub(super) fn ranked(diff: &Diff) -> Vec<Effect> {
    let has_spread = diff.net_ns.has_spread();
    let least = noise_floor(&diff.net_ns);
    let least_of_lock = least.max(diff.net_ns.before.median / MIN_RUN_DIVISOR_OF_LOCK);
    let mut effects = Vec::new();
    for (index, threads) in diff.threads.iter().enumerate() {
        effects.push(of_threads(Subject::Threads(index), threads, least));
    }
    let rest = unexplained(diff, &effects);
    for (index, object) in diff.objects.iter().enumerate() {
        let saved = object.saved_ns;
        let effect_ns = lesser(saved.delta(), rest);
        let is_small =
            saved.is_few() && effect_ns.unsigned_abs() <= least_of_lock.max(saved.noise_ns);
        effects.push(Effect {
            subject: Subject::Lock(index),
            cause: Cause::Contention,
            effect_ns,
            path_ns: saved,
            is_noise: is_small || saved.is_noise_below(least_of_lock),
        });
    }
    add_parallelism(diff, &mut effects, least_of_lock);
    for (index, function) in diff.functions.iter().enumerate() {
        let effect = of_function(Subject::Function(index), function, least);
        if !is_thread_function(diff, function, &effect, &effects) {
            effects.push(effect);
        }
    }
    if !has_spread {
        for effect in &mut effects {
            effect.is_noise |= !is_in_run(diff, effect);
        }
    }
    effects.retain(|effect| effect.effect_ns != 0);
    effects.sort_by_key(|effect| {
        let size = std::cmp::Reverse(effect.effect_ns.unsigned_abs());
        (effect.is_noise, size)
    });
    effects
}

/// True if the run became longer or shorter by at least half of an effect. With one recording on
/// each side nothing else shows that an item's time is no chance.
fn is_in_run(diff: &Diff, effect: &Effect) -> bool {
    let shown = lesser(diff.net_ns.delta(), effect.effect_ns);
    shown.unsigned_abs() >= effect.effect_ns.unsigned_abs() / 2
}

/// The effect of threads by their work.
pub(super) fn of_threads(subject: Subject, threads: &ThreadChange, least: u64) -> Effect {
    let number = threads.number;
    let path_noise = threads.path_ns.is_noise_below(least);
    let cause = match (number.before.max, number.after.max) {
        (0, _) => Cause::New,
        (_, 0) => Cause::Gone,
        _ if number.gap() > 0 => Cause::Number,
        _ => {
            return Effect {
                subject,
                cause: Cause::Work,
                effect_ns: lesser(threads.path_ns.delta(), threads.work_ns.delta()),
                path_ns: threads.path_ns,
                is_noise: path_noise || threads.work_ns.is_noise_below(least),
            };
        }
    };
    Effect {
        subject,
        cause,
        effect_ns: threads.path_ns.delta(),
        path_ns: threads.path_ns,
        is_noise: path_noise,
    }
}

fn of_function(subject: Subject, function: &FunctionChange, least: u64) -> Effect {
    let (path, work) = (function.path_ns, function.work_ns);
    Effect {
        subject,
        cause: Cause::Work,
        effect_ns: lesser(path.delta(), work.delta()),
        path_ns: path,
        is_noise: path.is_noise_below(least) || work.is_noise_below(least),
    }
}

/// The part of the difference between the runs that these effects do not explain.
fn unexplained(diff: &Diff, effects: &[Effect]) -> i64 {
    let real = effects.iter().filter(|effect| !effect.is_noise);
    let explained: i64 = real.map(|effect| effect.effect_ns).sum();
    diff.net_ns.delta() - explained
}

/// The smaller of two differences; 0 if they have different signs.
fn lesser(one: i64, other: i64) -> i64 {
    match one.signum() == other.signum() {
        true if one.unsigned_abs() <= other.unsigned_abs() => one,
        true => other,
        false => 0,
    }
}

/// Gives what is unexplained to threads whose path grew without more work.
fn add_parallelism(diff: &Diff, effects: &mut Vec<Effect>, least: u64) {
    if diff.is_noise() {
        return;
    }
    let whole = diff.net_ns.delta();
    let mut rest = unexplained(diff, effects);
    if rest.signum() != whole.signum() {
        return;
    }
    let without_work = |index: usize, threads: &ThreadChange| {
        let path = threads.path_ns.delta();
        let own = effects
            .iter()
            .find(|effect| effect.subject == Subject::Threads(index));
        let own = own.filter(|effect| !effect.is_noise);
        path - own.map_or(0, |effect| effect.effect_ns)
    };
    let mut more: Vec<(usize, i64)> = diff
        .threads
        .iter()
        .enumerate()
        .map(|(index, threads)| (index, without_work(index, threads)))
        .filter(|(_, ns)| ns.signum() == whole.signum())
        .collect();
    more.sort_by_key(|(_, ns)| std::cmp::Reverse(ns.unsigned_abs()));
    for (index, ns) in more {
        let effect_ns = lesser(ns, rest);
        let path_ns = diff.threads[index].path_ns;
        if effect_ns.unsigned_abs() <= least.max(path_ns.noise_ns) || path_ns.is_noise_below(least)
        {
            continue;
        }
        effects.push(Effect {
            subject: Subject::Threads(index),
            cause: Cause::Parallelism,
            effect_ns,
            path_ns,
            is_noise: false,
        });
        rest -= effect_ns;
    }
}

/// True if a thread function has the same effect as its threads, so that it says nothing more.
fn is_thread_function(
    diff: &Diff,
    function: &FunctionChange,
    effect: &Effect,
    effects: &[Effect],
) -> bool {
    let Some(name) = &function.place.function else {
        return false;
    };
    let is_own = |threads: &ThreadChange| match threads.is_main {
        true => &**name == "main",
        false => {
            let own = threads.function.as_ref();
            own.and_then(|place| place.function.as_ref()) == Some(name)
        }
    };
    let threads = effects.iter().filter(|of| match of.subject {
        Subject::Threads(index) => is_own(&diff.threads[index]),
        _ => false,
    });
    let (mut any, mut told) = (false, 0);
    for of in threads {
        any = true;
        told += if of.is_noise { 0 } else { of.effect_ns };
    }
    let rest = effect.effect_ns - lesser(effect.effect_ns, told);
    any && (effect.is_noise || rest.unsigned_abs() <= told.unsigned_abs() / 10)
}
