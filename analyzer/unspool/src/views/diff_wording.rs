//! The sentences about a comparison that the text and the page have in common.

use super::text::line::clean;
use super::wording;
use crate::model::diff::{Change, Diff, Doubt, Spread};

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
