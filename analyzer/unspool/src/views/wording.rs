//! Short phrases of text views: times, counts, thread ids, endings.
//!
//! Apart so that all views use the same wording.

use std::collections::BTreeSet;

use unspool_rsp::signals;

pub(super) use namesakes::told_apart;

pub(super) use crate::model::sync::length as duration;
use crate::model::sync::{Exclusion, Histogram, OrderEdge};
use crate::model::{Creation, Ending, Facts, Model, OrderRisk, OrderStep, Thread, ThreadIndex};
use crate::views::call_waits::{Threads, Woken, WokenBy};

mod namesakes;

/// Maximum number of columns for the lock or semaphore that excludes a circle of lock orders.
const MAX_GATE_WIDTH: usize = 60;

/// Says that a circle cannot block any thread.
const ALONE: &str = "one thread alone, which cannot deadlock by itself";

/// A point in time, such as `0.012 s`.
pub(super) fn moment(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

/// A range of durations: `2.1–2.3 ms`, or both with their units.
pub(super) fn durations(shortest: u64, longest: u64) -> String {
    let (a, b) = (duration(shortest), duration(longest));
    match (a.split_once(' '), b.split_once(' ')) {
        _ if a == b => a,
        (Some((value, unit)), Some((_, other))) if unit == other => format!("{value}–{b}"),
        _ => format!("{a} – {b}"),
    }
}

/// `1 thread`, `2 threads`.
pub(super) fn count(number: usize, noun: &str) -> String {
    let plural = if noun.ends_with('s') { "es" } else { "s" };
    format!("{number} {noun}{}", if number == 1 { "" } else { plural })
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(items: &[String]) -> String {
    match items {
        [] | [_] => items.concat(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// `TID 7`, `TIDs 7–9, 12`, or the whole range if there are many runs. Some ids may be unknown.
pub(super) fn tids(all: Vec<Option<u64>>) -> String {
    let tids: Vec<u64> = all.iter().copied().flatten().collect();
    let unknown = all.len() - tids.len();
    let unknown = match (unknown, tids.len()) {
        (0, _) => "",
        (1, 0) => return "TID not known".to_owned(),
        (_, 0) => return "TIDs not known".to_owned(),
        _ => " and others not known",
    };
    ids("TID", tids) + unknown
}

/// `pid 7`, `pids 7–9, 12`, or the whole range if there are many runs.
pub(super) fn ids(noun: &str, mut ids: Vec<u64>) -> String {
    ids.sort_unstable();
    ids.dedup();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for id in &ids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*id) => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    let few = runs.len() <= 4;
    let text: Vec<String> = runs
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}–{last}"),
        })
        .collect();
    match (&ids[..], few) {
        ([], _) => String::new(),
        ([only], _) => format!("{noun} {only}"),
        (_, true) => format!("{noun}s {}", text.join(", ")),
        ([first, .., last], false) => format!("{noun}s {first} … {last}"),
    }
}

/// The quoted names of some threads, without `except`, which the reader already knows.
pub(super) fn names(threads: &[&Thread], except: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for thread in threads {
        let name = thread.name.as_str();
        if !name.is_empty() && name != except && !names.contains(&name) {
            names.push(name);
        }
        if names.len() > 64 {
            break;
        }
    }
    let quote = |name: &&str| format!("\"{}\"", super::text::line::clean(name));
    match &names[..] {
        [first, .., last] if names.len() > 3 => format!("{} … {}", quote(first), quote(last)),
        some => some.iter().map(quote).collect::<Vec<_>>().join(", "),
    }
}

/// The lifetimes of these threads.
pub(super) fn life(threads: &[&Thread]) -> Option<String> {
    let first = threads.iter().filter_map(|t| t.first_ns()).min()?;
    let before = threads.iter().any(|t| t.creation == Creation::Before);
    if before {
        let last = threads.iter().filter_map(|t| t.ended_ns).max();
        let until = last.map_or(String::new(), |last| format!(", until {}", moment(last)));
        return Some(format!("ran before the recording began{until}"));
    }
    if threads.iter().any(|t| t.ending == Ending::Unknown) {
        let last = threads.iter().filter_map(|t| t.first_ns()).max()?;
        return Some(match last == first {
            true => format!("created at {}", moment(first)),
            false => format!("created {} – {}", moment(first), moment(last)),
        });
    }
    if threads.iter().any(|t| t.ending == Ending::Alive) {
        return Some(format!("from {}", moment(first)));
    }
    let last = threads.iter().max_by_key(|t| t.ended_ns)?;
    let about = if last.end_exact { "" } else { "≤ " };
    let span = format!("{} – {about}{}", moment(first), moment(last.ended_ns?));
    let lives: Vec<u64> = threads
        .iter()
        .filter_map(|t| t.ended_ns?.checked_sub(t.started_ns.or(t.created_ns)?))
        .collect();
    match (lives.iter().min(), lives.iter().max()) {
        (Some(shortest), Some(longest)) if threads.len() > 1 => Some(format!(
            "{span}, each lived {about}{}",
            durations(*shortest, *longest)
        )),
        _ => Some(span),
    }
}

/// The ends of these threads, such as `joined` or `3 exited, 1 alive at the end`.
pub(super) fn endings(model: &Model, threads: &[&Thread]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for thread in threads {
        let text = ending(model, thread);
        match kinds.iter_mut().find(|(kind, _)| *kind == text) {
            Some((_, number)) => *number += 1,
            None => kinds.push((text, 1)),
        }
    }
    // A list of many different joiners would be long and of little interest.
    if kinds.len() > 4 {
        kinds.clear();
        for thread in threads {
            let text = thread.ending.as_str().to_owned();
            match kinds.iter_mut().find(|(kind, _)| *kind == text) {
                Some((_, number)) => *number += 1,
                None => kinds.push((text, 1)),
            }
        }
    }
    match &kinds[..] {
        [(only, _)] => only.clone(),
        many => {
            let each: Vec<String> = many.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            each.join("; ")
        }
    }
}

fn ending(model: &Model, thread: &Thread) -> String {
    match thread.ending {
        Ending::Alive if thread.detached => "alive at the end, detached".to_owned(),
        Ending::Alive => "alive at the end".to_owned(),
        Ending::Exited => "exited".to_owned(),
        Ending::Unknown if thread.detached => "detached, its end was not seen".to_owned(),
        Ending::Unknown => "its end was not seen".to_owned(),
        Ending::Detached => "exited, detached".to_owned(),
        Ending::Joined if thread.joiner == thread.creator() => "joined".to_owned(),
        Ending::Joined => match thread.joiner.and_then(|joiner| model.thread(joiner)) {
            Some(joiner) => format!("joined by {}", one(model, joiner, 40)),
            None => "joined".to_owned(),
        },
    }
}

/// The name of a thread in a sentence: its function, or `main`.
pub(super) fn title(model: &Model, thread: &Thread, width: usize) -> String {
    if model
        .main()
        .and_then(|ThreadIndex(main)| model.threads.get(main))
        == Some(thread)
    {
        return "main".to_owned();
    }
    match &thread.function {
        Some(place) => super::text::frames::function(place, width),
        None => match thread.tid {
            Some(tid) => format!("TID {tid}"),
            None => "a thread of unknown function".to_owned(),
        },
    }
}

/// A thread of another process: its name, if that is not the first thread's, or its function.
pub(super) fn of_other(model: &Model, index: ThreadIndex) -> String {
    let Some(thread) = model.any_thread(index) else {
        return String::new();
    };
    let process = model.process(index);
    let first = process.and_then(|(_, process)| model.processes.threads_of(process).first());
    let is_own = !thread.name.is_empty() && first.is_some_and(|first| first.name != thread.name);
    match &thread.function {
        Some(place) if !is_own => super::text::frames::function(place, usize::MAX),
        _ => super::text::line::clean(&thread.name),
    }
}

/// Like [`title`] for a single thread, whose own name may say more than its function.
pub(super) fn one(model: &Model, thread: &Thread, width: usize) -> String {
    match model.name_instead(thread) {
        Some(name) => super::names::shorten(&super::text::line::clean(name), width),
        None => title(model, thread, width),
    }
}

/// Wakers that are no threads of the program.
pub(super) const INTERRUPT: &str = "an interrupt (device, timer or network)";
pub(super) const OUTSIDE: &str = "another process or the kernel";
pub(super) const RECORDER: &str = "the recorder";

/// What woke blocked threads.
pub(super) fn waker(model: &Model, woken: &Woken, blocked: Threads, room: usize) -> String {
    match woken.by {
        WokenBy::Threads(identity) => {
            let wakers = Threads {
                identity,
                one: woken.one,
            };
            match model.sync.identities.get(identity) {
                Some((.., 2..)) if wakers.one.is_none() && identity == blocked.identity => {
                    "one another".to_owned()
                }
                _ => threads(model, wakers, room),
            }
        }
        WokenBy::Interrupt => INTERRUPT.to_owned(),
        WokenBy::Outside => OUTSIDE.to_owned(),
        WokenBy::Recorder => RECORDER.to_owned(),
    }
}

/// The threads of some identities: `main, 3 × worker "billing"`. Counts the identities that do not
/// fit, because a name cut to a few characters is useless.
pub(super) fn identities(model: &Model, identities: &[usize], room: usize) -> String {
    const MAX_NAMES: usize = 3;
    /// Minimum number of columns for one name.
    const MIN_NAME_WIDTH: usize = 16;
    let several = identities.len().clamp(1, MAX_NAMES);
    let named = (1..=several)
        .rev()
        .find(|count| room / count >= MIN_NAME_WIDTH);
    let (named, others) = identities.split_at(named.unwrap_or(1).min(identities.len()));
    let share = |room| {
        let part = |identity: &usize| self::identity(model, *identity, room);
        let parts: Vec<String> = named.iter().map(part).collect();
        let is_twice = |name: &String| parts.iter().filter(|part| *part == name).count() > 1;
        let with_ids = named
            .iter()
            .zip(&parts)
            .map(|(identity, name)| match is_twice(name) {
                true => format!("{name} ({})", tids_of(model, *identity)),
                false => name.clone(),
            });
        with_ids.collect::<Vec<String>>()
    };
    // Short names leave more room for long names.
    let whole = share(room).join(", ");
    let mut parts = match super::text::line::width(&whole) <= room {
        true => vec![whole],
        false => share(room / named.len().max(1)),
    };
    let others = others.iter();
    let others = others.filter_map(|identity| model.sync.identities.get(*identity));
    let others: usize = others.map(|(_, _, count)| count).sum();
    if others > 0 {
        parts.push(match others {
            1 => "another".to_owned(),
            others => format!("{others} others"),
        });
    }
    parts.join(", ")
}

/// The ids of the threads of an identity.
fn tids_of(model: &Model, identity: usize) -> String {
    let threads = model.sync.identity_of.iter().enumerate();
    let members = threads.filter(|(_, of)| **of == identity);
    tids(
        members
            .map(|(thread, _)| model.threads.get(thread)?.tid)
            .collect(),
    )
}

/// `3 × worker "billing"`
pub(super) fn identity(model: &Model, identity: usize, room: usize) -> String {
    if let Some((program, count)) = model.program(identity) {
        return program_of(program, *count, room);
    }
    let of_sync = model.sync.identities.get(identity);
    let Some((thread, count)) = of_sync.and_then(|it| Some((model.thread(it.1)?, it.2))) else {
        return "unknown threads".to_owned();
    };
    let number = match count {
        1 => String::new(),
        count => format!("{count} × "),
    };
    let room = room.saturating_sub(number.len()).max(12);
    // The first thread does not represent all threads of unknown function.
    let unknown = thread.function.is_none() && count > 1;
    let title = match unknown {
        true => "thread of unknown function".to_owned(),
        false if count == 1 => one(model, thread, room),
        false => title(model, thread, room),
    };
    let mut text = number + &title;
    let main = model.main().and_then(|main| model.thread(main));
    let name = names(&[thread], main.map_or("", |main| &main.name));
    let is_left_out = match count {
        1 => model.name_instead(thread).is_some(),
        _ => unknown || !model.has_one_name(identity),
    };
    if !name.is_empty() && !is_left_out && super::text::line::width(&text) + 1 + name.len() <= room
    {
        text = format!("{text} {name}");
    }
    text
}

/// The name of a Linux signal: `SIGUSR1`.
pub(super) fn signal(linux: u32) -> String {
    let known = u8::try_from(linux).ok();
    known.map_or_else(|| format!("SIG{linux}"), signals::linux_name)
}

/// `1 process`, `3 processes`
pub(super) fn processes(count: usize) -> String {
    match count {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

/// What speaks against a deadlock in the circle of a pair of locks, in a few words. None if nothing
/// does, or if the pair is in no circle.
pub(super) fn circle_note(
    model: &Model,
    edge: &OrderEdge,
    finding: Option<usize>,
) -> Option<String> {
    let finding = finding.and_then(|at| model.findings.get(at));
    if let Some(Facts::LockOrder { steps, risk }) = finding.map(|finding| &finding.facts) {
        return order_doubt(model, steps, *risk);
    }
    let words = match edge.exclusion? {
        Exclusion::OneThread => ALONE,
        Exclusion::Gate(gate) => {
            let gate = super::object_name::one(&model.sync, gate, MAX_GATE_WIDTH);
            return Some(format!("threads hold {gate} meanwhile"));
        }
        Exclusion::TimeLimit => "a wait has a time limit",
        Exclusion::SharedHolds => "readers share a lock",
        Exclusion::ShorterCircle => "a shorter circle of these locks is a finding",
        Exclusion::Limit => "not judged, because it is too long or there are too many",
    };
    Some(words.to_owned())
}

/// What speaks against a deadlock in a circle that is a finding.
fn order_doubt(model: &Model, steps: &[OrderStep], risk: OrderRisk) -> Option<String> {
    let threads: BTreeSet<ThreadIndex> = steps.iter().map(|step| step.thread).collect();
    let words = match risk {
        OrderRisk::Proved => return None,
        OrderRisk::Semaphore(semaphore) => {
            let semaphore = super::object_name::one(&model.sync, semaphore, MAX_GATE_WIDTH);
            return Some(format!("all threads had taken {semaphore}"));
        }
        OrderRisk::EventsMissing => "events are missing",
        OrderRisk::OneThread => ALONE,
        OrderRisk::Apart if threads.len() == steps.len() => {
            "a creation, join or barrier keeps its threads apart"
        }
        OrderRisk::Apart => "one thread takes several of its steps",
        OrderRisk::Successive => "its threads ran one after the other",
        OrderRisk::Reused => "different locks may have had the same memory",
    };
    Some(words.to_owned())
}

/// Why circles may be missing from the lock order. None if no pair of locks is known to be missing.
pub(super) fn missing_circles(model: &Model) -> Option<String> {
    let recording = &model.recording;
    if !recording.misses_lock_calls() {
        let text = "Pairs of locks were left out, so circles may be missing.";
        return model.sync.lock_order.cut.then(|| text.to_owned());
    }
    Some(match recording.lock_calls_missed() {
        0 => "Some lock calls were not recorded, so circles may be missing.".to_owned(),
        missed => format!(
            "{} beginnings and ends of lock calls were recorded and at least {missed} missed. Circles \
             may be missing.",
            recording.lock_calls_recorded
        ),
    })
}

/// Processes of one program: `process tar`, `3 × process cc1`.
pub(super) fn program_of(program: &str, count: usize, room: usize) -> String {
    let number = match count {
        1 => String::new(),
        count => format!("{count} × "),
    };
    let name = match program {
        "" => "of unknown program".to_owned(),
        name => super::text::line::clean(name),
    };
    let room = room.saturating_sub(number.len() + 8).max(12);
    format!("{number}process {}", super::names::shorten(&name, room))
}

/// Some threads of an identity: `3 × worker "billing"`, or `worker 4711` if it is one of them.
pub(super) fn threads(model: &Model, threads: Threads, room: usize) -> String {
    if let Some((_, process)) = threads.one.and_then(|one| model.process(one)) {
        let program = model.processes.program(process);
        let name = program.map_or("", |(name, _)| name);
        let alone = program.is_none_or(|(_, count)| *count == 1);
        let pid = match alone {
            true => String::new(),
            false => format!(" {}", process.pid),
        };
        return program_of(name, 1, room.saturating_sub(pid.len())) + &pid;
    }
    let thread = threads.one.and_then(|one| model.thread(one));
    match (thread, model.sync.identities.get(threads.identity)) {
        (Some(thread), Some((.., 2..))) => match thread.tid {
            Some(tid) if thread.function.is_some() => {
                format!("{} {tid}", one(model, thread, room.saturating_sub(8)))
            }
            // Without a function, the title is the thread id.
            _ => one(model, thread, room),
        },
        _ => told_apart(model, threads.identity, room),
    }
}

/// A count in words: `once`, `12 times`, `12.3 k times`.
pub(super) fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => often(count).replace('×', "times"),
    }
}

/// A count with a narrow sign: `12 ×`, `12.3 k ×`.
pub(super) fn often(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} ×"),
        10_000..1_000_000 => format!("{:.1} k ×", count as f64 / 1e3),
        _ => format!("{:.1} M ×", count as f64 / 1e6),
    }
}

/// The histogram of durations as a line of bars, with its limits: `▁▂█▁ 1 µs … 4 ms`.
pub(super) fn bars(lengths: &Histogram) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some(first) = lengths.buckets.iter().position(|count| *count > 0) else {
        return String::new();
    };
    let most = lengths.buckets.iter().copied().max().unwrap_or(1).max(1);
    let bar = |count: &u64| match count {
        0 => ' ',
        // A logarithmic scale, because a few long durations matter among thousands of short ones.
        count => {
            let part = (*count as f64).ln_1p() / (most as f64).ln_1p();
            HEIGHTS[((part * 7.0).round() as usize).min(7)]
        }
    };
    let bars: String = lengths.buckets[first..].iter().map(bar).collect();
    let end = duration(1 << lengths.buckets.len().min(63));
    format!("{} │{bars}│ {end}", duration(1 << first.min(63)))
}

/// A summary of the findings, and the command that shows them. `None` if there are none.
pub(super) fn findings(model: &Model) -> Option<String> {
    let first = model.findings.first()?;
    let mut kinds: Vec<&str> = vec![first.kind.as_str()];
    for finding in &model.findings {
        if !kinds.contains(&finding.kind.as_str()) {
            kinds.push(finding.kind.as_str());
        }
    }
    Some(format!(
        "{}: {}; `unspool report --view findings{}` shows {}.",
        count(model.findings.len(), "finding"),
        kinds.join(", "),
        model.recording.file,
        if model.findings.len() == 1 {
            "it"
        } else {
            "them"
        }
    ))
}

/// `process 12`, `the processes 12, 14 and 3 more`; `None` without a name.
pub(super) fn named_processes(names: &[String]) -> Option<String> {
    match names {
        [] => None,
        [one] => Some(format!("process {one}")),
        [first @ .., last] => Some(format!("the processes {} and {last}", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads of unknown functions have one identity, and not each other's names.
    #[test]
    fn a_thread_of_unknown_function_is_named_by_its_id() {
        let mut stage = crate::model::fixture::Stage::new();
        stage.seen(7, "reader", 1);
        stage.seen(8, "writer", 1);
        let model = stage.model();
        let writer = model.threads.iter().position(|one| one.tid == Some(8));
        let writer = writer.expect("the thread");
        let both = model.sync.identity_of[writer];
        let of = |one| Threads {
            identity: both,
            one,
        };
        assert_eq!(threads(&model, of(Some(ThreadIndex(writer))), 80), "TID 8");
        let all = threads(&model, of(None), 80);
        assert_eq!(all, "2 × thread of unknown function");
    }

    #[test]
    fn signals_have_names() {
        assert_eq!([10, 11, 300].map(signal), ["SIGUSR1", "SIGSEGV", "SIG300"]);
    }

    #[test]
    fn times_have_three_digits() {
        for (ns, text) in [
            (0, "0.00 µs"),
            (840_400, "840 µs"),
            (999_600, "1.00 ms"),
            (2_112_000, "2.11 ms"),
            (52_100_000, "52.1 ms"),
            (1_330_000_000, "1.33 s"),
            (99_970_000_000, "100 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
        assert_eq!(durations(2_110_000, 2_330_000), "2.11–2.33 ms");
        assert_eq!(durations(840_000, 2_330_000), "840 µs – 2.33 ms");
    }

    #[test]
    fn thread_ids_are_ranges() {
        let known = |tids: &[u64]| super::tids(tids.iter().copied().map(Some).collect());
        assert_eq!(known(&[7]), "TID 7");
        assert_eq!(known(&[9, 7, 8, 12]), "TIDs 7–9, 12");
        assert_eq!(known(&[7, 8]), "TIDs 7, 8");
        let many: Vec<u64> = (0..20).map(|i| 100 + 2 * i).collect();
        assert_eq!(known(&many), "TIDs 100 … 138");
        assert_eq!(tids(vec![None]), "TID not known");
        assert_eq!(
            tids(vec![Some(7), None, None]),
            "TID 7 and others not known"
        );
    }
}
