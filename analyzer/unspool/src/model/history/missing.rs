//! What a history cannot tell, counted while it is read and put into sentences at the end.
//!
//! A recording that failed must never look like a program without threads: the sentences that would
//! change how the rest is read are errors, and views show them first.

use std::collections::{BTreeMap, BTreeSet};

use unspool_capture::{Calls, Missed, ProbeKind};

use super::{Creation, History, Note, Source};
use crate::model::thread::{Ending, Thread};
use crate::model::{Paused, Recording};

#[derive(Default)]
pub(super) struct Counts {
    pub(super) create_probes: u64,
    pub(super) creations: u64,
    pub(super) inferred: u64,
    pub(super) unfollowed: u64,
    pub(super) ends_missed: u64,
    pub(super) undeclared: u64,
    pub(super) join_assumed: bool,
    /// The last word about each probe that was paused.
    pub(super) missed: BTreeMap<u32, Missed>,
    /// Events of each probe.
    pub(super) hits: BTreeMap<u32, u64>,
    events: u64,
    highest: Option<u64>,
    lowest: u64,
    recent: Vec<u64>,
}

impl Counts {
    /// Notes an event's number; false if that event was there already.
    pub(super) fn sequence(&mut self, seq: u64) -> bool {
        // Writers that do not count leave zero.
        if seq == 0 && self.highest.unwrap_or(0) == 0 {
            self.events += 1;
            self.highest = Some(0);
            return true;
        }
        if self.highest.is_some_and(|highest| seq <= highest) && self.recent.contains(&seq) {
            return false;
        }
        if self.recent.len() >= 1024 {
            self.recent.drain(..512);
        }
        self.recent.push(seq);
        self.events += 1;
        self.lowest = if self.highest.is_none() {
            seq
        } else {
            self.lowest.min(seq)
        };
        self.highest = self.highest.max(Some(seq));
        true
    }

    /// Events that were not looked at one by one.
    pub(super) fn skipped(&mut self, calls: &Calls) {
        for (probe, hits) in &calls.hits {
            *self.hits.entry(*probe).or_default() += hits;
        }
        self.events += calls.count();
        if let Some((low, high)) = calls.numbers {
            self.lowest = self.highest.map_or(low, |_| self.lowest.min(low));
            self.highest = self.highest.max(Some(high));
        }
    }

    fn lost(&self) -> u64 {
        let span = self.highest.map_or(0, |highest| highest - self.lowest + 1);
        if self.highest == Some(0) {
            0
        } else {
            span.saturating_sub(self.events)
        }
    }
}

impl History<'_> {
    pub(super) fn note_missing(&mut self) {
        let mut notes = Vec::new();
        let hits = self.counts.hits.iter();
        let of_calls = hits.filter(|(id, _)| {
            let probe = self.probes.get(id);
            probe.is_some_and(|probe| probe.kind().is_of_calls())
        });
        self.recording.calls_recorded = of_calls.map(|(_, hits)| hits).sum();
        let inspected = self.recording.source == Some(Source::Inspected);
        if let Some(cut) = &self.capture.cut {
            notes.push(Note::error(format!(
                "This recording is incomplete: {cut}. Threads and ends after {:.3} s are missing.",
                self.recording.duration_ns as f64 / 1e9
            )));
        }
        let dropped = self.recording.dropped.max(self.counts.lost());
        self.recording.joins_are_missing |= dropped > self.recording.dropped;
        self.recording.dropped = dropped;
        let others = dropped.saturating_sub(self.recording.calls_dropped);
        if others > 0 {
            notes.push(Note::error(format!(
                "{} lost while recording: threads and creation stacks may be missing.",
                count(others, "event was", "events were")
            )));
        }
        if self.recording.calls_dropped > 0 {
            notes.push(Note::error(format!(
                "{} lost while recording: they came faster than they could be read. Calls are missing, or their ends.",
                count(self.recording.calls_dropped, "beginning or end of calls was", "beginnings and ends of calls were")
            )));
        }
        if self.threads.is_empty() {
            notes.push(Note::error(
                "No thread was recorded: this says nothing about the program.",
            ));
        } else if self.counts.create_probes == 0 && !inspected {
            notes.push(Note::error(
                "No thread creation was watched: no creation function (pthread_create) was found in the \
                 program, so threads may be missing and no creation stack is known.",
            ));
        }
        let unseen = self
            .threads
            .iter()
            .filter(|t| t.creation == Creation::Unseen)
            .count() as u64;
        let paused = self.note_pauses(unseen, &mut notes);
        if unseen > 0 && !inspected && !paused {
            notes.push(Note::warning(format!(
                "The creation of {} was not seen: created by other means than the watched functions, or \
                 while nobody watched.",
                count(unseen, "thread", "threads")
            )));
        }
        let before: Vec<&Thread> = self
            .threads
            .iter()
            .filter(|t| t.creation == Creation::Before)
            .collect();
        if !before.is_empty() && !inspected {
            let unnamed = |t: &&&Thread| t.function.is_none();
            let unnamed = before.iter().filter(unnamed).count() as u64;
            let named = before.len() as u64 - unnamed;
            let functions = match (named, unnamed) {
                (0, _) => "Their functions are not known either".to_owned(),
                (_, 0) => "Their functions were told from their stacks".to_owned(),
                _ => format!(
                    "The functions of {named} were told from their stacks; those of {unnamed} are not known"
                ),
            };
            notes.push(Note::info(format!(
                "{} before the recording began: who created them, and where, is not known. {functions}.",
                count(before.len() as u64, "thread ran", "threads ran")
            )));
        }
        let failed = self.pending.len() as u64;
        if failed > 0 {
            notes.push(Note::warning(format!(
                "{} not lead to a thread that was seen: creation failed, or the thread had not started \
                 when the recording ended.",
                count(failed, "creation did", "creations did")
            )));
        }
        if self.counts.unfollowed > 0 {
            notes.push(Note::info(format!(
                "Of {} neither id nor end is known: the server could not be asked for ids before it ended, or not at \
                 all (a creation that fails looks the same).",
                count(self.counts.unfollowed, "thread", "threads")
            )));
        }
        if self.counts.inferred > 0 {
            notes.push(Note::info(format!(
                "For {} the creation was told from the order of events only, among several alike.",
                count(self.counts.inferred, "thread", "threads")
            )));
        }
        if self.counts.ends_missed > 0 {
            notes.push(Note::info(format!(
                "The end of {} was not seen; their thread ids were used again later.",
                count(self.counts.ends_missed, "thread", "threads")
            )));
        }
        let vague = |t: &&Thread| t.ending != Ending::Alive && !t.end_exact;
        let vague = self.threads.iter().filter(vague).count() as u64;
        if vague > 0 {
            notes.push(Note::info(format!(
                "The end of {} was noticed late: times marked with ≤ are the latest possible.",
                count(vague, "thread", "threads")
            )));
        }
        if self.counts.join_assumed {
            notes.push(Note::info(
                "The main thread's last join was taken to have returned before the program exited; the end \
                 of the joined thread was not reported.",
            ));
        }
        if self.counts.undeclared > 0 {
            notes.push(Note::warning(format!(
                "{} of unknown probes left out.",
                count(self.counts.undeclared, "event was", "events were")
            )));
        }
        if self.capture.unknown > 0 {
            notes.push(Note::warning(format!(
                "{} of a kind this version does not know: a newer Unspool may show more.",
                count(self.capture.unknown, "record is", "records are")
            )));
        }
        self.notes.extend(notes);
    }
}

impl History<'_> {
    /// What probes missed that were paused. Whether one of them was to see creations.
    fn note_pauses(&mut self, unseen: u64, notes: &mut Vec<Note>) -> bool {
        let mut creations = false;
        let mut calls = PausedCalls::default();
        // Only a server that was started by the recorder has the budget that the recorder was given.
        let option = match self.capture.header.source() {
            Source::Connected => "the stub's '--budget none'",
            _ => "'--budget none'",
        };
        for (id, missed) in std::mem::take(&mut self.counts.missed) {
            let probe = self.probes.get(&id);
            let kind = probe.map(|probe| probe.kind());
            // Where the server tells of every thread, those are known whose creation nobody saw.
            let exact = kind == Some(ProbeKind::Create)
                && self.counts.create_probes == 1
                && self.capture.target.tells_creators;
            creations |= kind == Some(ProbeKind::Create);
            let joins = matches!(kind, Some(ProbeKind::Join | ProbeKind::Detach));
            self.recording.joins_are_missing |= joins;
            let paused = Paused {
                function: probe.map_or(String::new(), |probe| probe.function.clone()),
                of_calls: kind.is_some_and(ProbeKind::is_of_calls),
                recorded: self.counts.hits.get(&id).copied().unwrap_or(0),
                pauses: missed.pauses,
                paused_ns: missed.paused_ns,
                missed: if exact { unseen } else { missed.hits },
                exact,
            };
            if paused.of_calls {
                calls.add(&paused);
            } else if !paused.exact || paused.missed > 0 {
                notes.push(Note::warning(sentence(&paused, kind, option)));
            }
            self.recording.paused.push(paused);
        }
        if self.recording.too_little_seen() {
            // Before all that is wrong besides: it says how to read everything else.
            self.notes.insert(0, too_little(&self.recording, option));
        } else {
            notes.extend(calls.note(option));
        }
        creations
    }
}

fn too_little(recording: &Recording, option: &str) -> Note {
    Note::error(format!(
        "Too little was seen to judge: {} recorded, and at least {} not. What was not found may be there all \
         the same, and what threads did most of the time is not known. With {option} all are recorded, which \
         takes longer.",
        count(
            recording.calls_recorded,
            "beginning or end of a call was",
            "beginnings and ends of calls were"
        ),
        recording.calls_missed(),
    ))
}

/// The probes of calls are many: one sentence is about all of them.
#[derive(Default)]
struct PausedCalls {
    functions: BTreeSet<String>,
    missed: u64,
    recorded: u64,
    /// The longest of one probe.
    paused_ns: u64,
}

impl PausedCalls {
    fn add(&mut self, paused: &Paused) {
        self.functions
            .insert(unspool_image::function_name(&paused.function));
        self.missed += paused.missed;
        self.recorded += paused.recorded;
        self.paused_ns = self.paused_ns.max(paused.paused_ns);
    }

    fn note(&self, option: &str) -> Option<Note> {
        let first = self.functions.first()?;
        let others = match self.functions.len() - 1 {
            0 => String::new(),
            others => format!(
                " and {}",
                count(others as u64, "other function", "other functions")
            ),
        };
        let paused = format!(
            "atching {first}{others} was paused for moments, up to {} altogether, so that the program pays no more than the budget \
             allows",
            match self.paused_ns {
                short if short < 100_000_000 => format!("{:.1} ms", short as f64 / 1e6),
                long => format!("{:.1} s", long as f64 / 1e9),
            }
        );
        // What the program does between two hits takes longer when each is recorded: it does more when none is.
        Some(Note::warning(match self.missed {
            0 => format!(
                "W{paused}: calls that began or ended in such a moment were not recorded. With {option} all are recorded."
            ),
            missed => format!(
                "At least {} not recorded, beside {} that were: w{paused}. Numbers of calls are too small by that; what may have \
                 begun or ended in such a moment has no length. With {option} all are recorded.",
                count(
                    missed,
                    "beginning or end of a call was",
                    "beginnings and ends of calls were"
                ),
                self.recorded,
            ),
        }))
    }
}

fn sentence(paused: &Paused, kind: Option<ProbeKind>, option: &str) -> String {
    let about = if paused.exact { "" } else { "At least " };
    let consequence = match kind {
        Some(ProbeKind::Create) => {
            " The threads they made are listed, but not where they were created."
        }
        Some(ProbeKind::Join | ProbeKind::Detach) => {
            " Threads may be shown as ended that were joined or detached."
        }
        _ => "",
    };
    let pause = format!(
        "watching them was paused {} for {:.3} s altogether, so that the program pays no more than the budget \
         allows.{consequence} With {option} all are recorded.",
        count(paused.pauses, "time", "times"),
        paused.paused_ns as f64 / 1e9,
    );
    let function = &paused.function;
    match paused.missed {
        0 => format!("Some calls of {function} may not have been recorded: {pause}"),
        missed => format!(
            "{about}{missed} of {} calls of {function} were not recorded: {pause}",
            missed + paused.recorded
        ),
    }
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
