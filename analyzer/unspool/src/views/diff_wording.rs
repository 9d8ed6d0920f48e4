//! The sentences about a comparison that the text and the page have in common.

use std::collections::BTreeSet;

use super::text::frames;
use super::text::line::clean;
use super::wording;
use crate::model::diff::{Change, Diff, Doubt, Spread, ThreadChange};
use crate::model::{Place, base_name};

/// What prevents a judgement, as a sentence.
pub(super) fn doubt(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::IncompleteRun => {
            "At least one recording lacks the beginning or the end of the program, so wall times cannot be compared."
        }
        Doubt::NoPath => {
            "At least one recording has no critical path, because it contains neither the kernel's schedule nor waits."
        }
        Doubt::UnknownPath => "Much of a critical path is not known.",
        Doubt::TooLittleSeen => "At least one recording misses most calls.",
        Doubt::UnlikeRecordings => {
            "Only some of the recordings have calls (`record --sync`), so the recorder's overhead differs."
        }
        Doubt::UnlikeProcesses => {
            "Some of the recordings lack the processes that the program started (`--no-follow`, or no permission for perf events)."
        }
        Doubt::Disturbed => {
            "The run takes much longer, but other processes and the machine's host may have caused this. \
             Record again when the machine is quiet, or make five recordings of each version."
        }
    }
}

/// Explains the rows that have threads of several identities.
pub(super) const COMPARED_AS_ONE: &str = "† Threads with the same function, created in several places, are compared as one: \
     any of them may do the same work.";

/// The length of the run before and after.
pub(super) fn headline(diff: &Diff) -> String {
    let (before, after) = (clean(&diff.programs.0), clean(&diff.programs.1));
    let programs = match before == after {
        true => before,
        false => format!("{before} and {after}"),
    };
    let mut text = format!("{programs}: the run takes {}", both(&diff.net_ns));
    if let Some(change) = change(&diff.net_ns) {
        text.push_str(&format!(", {change}"));
    }
    if diff.is_noise() {
        text.push_str(", which is noise");
    }
    text + "."
}

/// The delays that the length of the run leaves out; none if there are none.
pub(super) fn left_out(diff: &Diff) -> Option<String> {
    let foreign = [
        ("the recorder", diff.recorder_ns),
        ("other programs on the machine", diff.others_ns),
    ];
    let taken = foreign
        .iter()
        .filter(|(_, change)| change.before.max + change.after.max > 0);
    let taken: Vec<String> = taken
        .map(|(who, change)| format!("{who} ({})", both(change)))
        .collect();
    (!taken.is_empty()).then(|| {
        format!(
            "This excludes the delays by {}. The wall time, which includes them, is {}.",
            taken.join(" and by "),
            both(&diff.wall_ns)
        )
    })
}

/// Which differences count as noise.
pub(super) fn noise(diff: &Diff) -> String {
    let (before, after) = diff.counts;
    let share = diff.net_ns.noise_share() * 100.0;
    let least = wording::duration(diff.net_ns.noise_ns);
    match (before, after) {
        (1, 1) => format!(
            "One recording on each side does not show how much equal runs differ, so a difference of up to \
             {share:.0} % or {least} counts as noise, and the tables mark nothing. Compare several \
             recordings of a side to find smaller differences."
        ),
        (5.., 5..) => format!(
            "{before} recordings before and {after} after: a difference counts if the ranges do not overlap."
        ),
        _ => format!(
            "{before} recordings before and {after} after: a difference counts if the ranges do not overlap, \
             and if it is more than {share:.0} % and {least}."
        ),
    }
}

/// `1.02 s → 1.53 s`, with ranges if there are several recordings.
pub(super) fn both(change: &Change) -> String {
    format!("{} → {}", time(&change.before), time(&change.after))
}

fn time(spread: &Spread) -> String {
    match spread.min == spread.max {
        true => span(spread),
        false => format!("{} ({})", wording::duration(spread.median), span(spread)),
    }
}

/// The range of times, as `1.02–1.53 s`; one time if all are equal.
pub(super) fn span(spread: &Spread) -> String {
    match (spread.min, spread.max) {
        (_, 0) => "0".to_owned(),
        (0, max) => format!("0–{}", wording::duration(max)),
        (min, max) => wording::durations(min, max),
    }
}

/// A count or its range.
pub(super) fn range(spread: &Spread) -> String {
    match spread.min == spread.max {
        true => spread.min.to_string(),
        false => format!("{}–{}", spread.min, spread.max),
    }
}

/// The difference of two times, and its share.
fn change(change: &Change) -> Option<String> {
    let share = change.share()?;
    Some(format!("{} ({})", signed(change.delta()), percent(share)))
}

/// A difference of times with its sign.
pub(super) fn signed(ns: i64) -> String {
    let sign = if ns < 0 { '−' } else { '+' };
    format!("{sign}{}", wording::duration(ns.unsigned_abs()))
}

/// A relative difference with its sign.
pub(super) fn percent(share: f64) -> String {
    let sign = if share < 0.0 { '−' } else { '+' };
    format!("{sign}{:.0} %", share.abs() * 100.0)
}

/// What distinguishes threads from others with the same function and name; none if there are no
/// others. Takes the innermost creating functions that all differ, else their lines, else a number
/// in the order of appearance.
pub(super) fn distinction(diff: &Diff, index: usize) -> Option<String> {
    let own = diff.threads.get(index)?;
    let title = |threads: &ThreadChange| {
        let place = threads.function.as_ref();
        let function = place.and_then(|place| place.function.clone());
        let address = place.and_then(|place| place.svma);
        let address = address.filter(|_| function.is_none());
        let program = threads.program.clone();
        (
            threads.is_main,
            program,
            function,
            address,
            threads.name.clone(),
        )
    };
    let alike = diff.threads.iter().enumerate();
    let alike = alike.filter(|(_, threads)| title(threads) == title(own));
    let (indices, alike): (Vec<usize>, Vec<&ThreadChange>) = alike.unzip();
    let at = indices.iter().position(|other| *other == index)?;
    if alike.len() < 2 {
        return None;
    }
    let words: [fn(&Place) -> Option<String>; 2] = [creating_function, creating_line];
    let depth = alike
        .iter()
        .map(|threads| creation(threads, usize::MAX).len());
    for depth in 0..depth.max().unwrap_or(0) {
        for words in words {
            let all = alike.iter().map(|threads| {
                let frames = creation(threads, depth + 1);
                frames.get(depth).and_then(|place| words(place))
            });
            let all: Vec<Option<String>> = all.collect();
            let distinct: BTreeSet<&String> = all.iter().flatten().collect();
            if distinct.len() == alike.len() {
                return all.into_iter().nth(at).flatten();
            }
        }
    }
    Some(format!("#{}", at + 1))
}

/// The places that created threads, the innermost first.
fn creation(threads: &ThreadChange, most: usize) -> Vec<&Place> {
    let (before, after) = &threads.creation;
    let stack = before.as_ref().or(after.as_ref());
    let frames = stack.into_iter().flat_map(|stack| stack.physical());
    frames.map(|frame| &frame.place).take(most).collect()
}

fn creating_function(place: &Place) -> Option<String> {
    /// Columns of a function's name.
    const ROOM: usize = 32;
    // Its templates differ by the thread function's arguments, which say little.
    let is_library = place.function.as_deref()?.starts_with("std::");
    (!is_library).then(|| format!("of {}", frames::function(place, ROOM)))
}

fn creating_line(place: &Place) -> Option<String> {
    let file = clean(base_name(place.file.as_deref()?));
    Some(format!("of {file}:{}", place.line?))
}
