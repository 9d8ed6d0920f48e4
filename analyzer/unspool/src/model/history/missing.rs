//! Counts the events and facts that a recording lacks, and writes notes about them at the end.
//!
//! A failed recording must never look like a program without threads. Notes that change how the
//! rest must be read are errors, and views show them first.

use std::collections::{BTreeMap, BTreeSet};

use unspool_capture::{Calls, Missed, ProbeKind, Record};

use super::{Creation, History, Note, Source, Topic};
use crate::model::thread::{Ending, Thread};
use crate::model::{Paused, Recording};
use crate::primitives;

/// Least time, in nanoseconds, from which a probe's rate of hits is estimated.
const MIN_RATE_NS: u64 = 1_000_000;

#[derive(Default)]
pub(super) struct Counts {
    pub(super) create_probes: u64,
    pub(super) creations: u64,
    pub(super) inferred: u64,
    pub(super) unfollowed: u64,
    pub(super) ends_missed: u64,
    pub(super) undeclared: u64,
    pub(super) join_assumed: bool,
    /// The last report about each paused probe.
    pub(super) missed: BTreeMap<u32, Missed>,
    /// Events of each probe.
    pub(super) hits: BTreeMap<u32, u64>,
    events: u64,
    highest: Option<u64>,
    lowest: u64,
    recent: Vec<u64>,
}

impl Counts {
    /// Counts an event's number; returns false if that event was already counted.
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

    /// Counts events that were not processed one by one.
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
        let hits = self.counts.hits.iter();
        let (mut calls, mut lock_calls) = (0, 0);
        for (id, hits) in hits {
            let probe = self.probes.get(id);
            if let Some(probe) = probe.filter(|probe| probe.kind().is_of_calls()) {
                calls += hits;
                if primitives::is_of_lock(&probe.function) {
                    lock_calls += hits;
                }
            }
        }
        self.recording.calls_recorded = calls;
        self.recording.lock_calls_recorded = lock_calls;
        let mut notes = self.lost_records();
        let inspected = self.recording.is_inspection();
        if self.threads.is_empty() {
            let text = "No thread was recorded, so this report says nothing about the program.";
            notes.push(Note::error(text));
        } else if self.counts.create_probes == 0 && !inspected && !self.kernel_saw_creations() {
            notes.push(Note::error(
                "Thread creations were not recorded, because no creation function \
                 (pthread_create) was found in the program. Threads may be missing, and no \
                 thread has a creation stack. In static programs, Unspool sees creations without \
                 this function if it runs as root.",
            ));
        }
        let unseen = |thread: &&Thread| thread.creation == Creation::Unseen;
        let unseen = self.threads.iter().filter(unseen).count() as u64;
        let paused = self.note_pauses(unseen, &mut notes);
        if !inspected {
            let unseen = if paused { 0 } else { unseen };
            notes.extend(self.unknown_creations(unseen));
        }
        notes.extend(self.doubtful_threads());
        notes.extend(self.unknown_records());
        self.notes.extend(notes);
    }

    /// True if the kernel recorded all threads, and where they were created, except for a few that
    /// it lost.
    fn kernel_saw_creations(&self) -> bool {
        let mut records = self.capture.records.iter();
        let has_schedule = records.any(|record| matches!(record, Record::Schedule(_)));
        let has = |is_wanted: &dyn Fn(&Creation) -> bool| {
            let mut threads = self.threads.iter();
            threads.any(|thread| is_wanted(&thread.creation))
        };
        has_schedule
            && (has(&|creation| matches!(creation, Creation::Seen { .. }))
                || !has(&|creation| *creation == Creation::Unseen))
    }

    fn lost_records(&mut self) -> Vec<Note> {
        let mut notes = Vec::new();
        if let Some(cut) = &self.capture.cut {
            notes.push(Note::error(format!(
                "This recording is incomplete: {cut}. Starts and ends of threads after {:.3} s are missing.",
                self.recording.duration_ns as f64 / 1e9
            )));
        }
        let dropped = self.recording.dropped.max(self.counts.lost());
        self.recording.joins_are_missing |= dropped > self.recording.dropped;
        self.recording.dropped = dropped;
        let calls = self.recording.calls_dropped;
        let others = dropped.saturating_sub(calls);
        if others > 0 {
            notes.push(Note::error(format!(
                "{} lost while recording: threads and creation stacks may be missing.",
                count(others, "event was", "events were")
            )));
        }
        if calls > 0 {
            notes.push(Note::error(format!(
                "{} lost while recording, because the recorder could not keep up.",
                count(
                    calls,
                    "beginning or end of a call was",
                    "beginnings and ends of calls were"
                )
            )));
        }
        notes
    }

    /// Notes on threads whose creation is not known; `unseen` of them were created during the
    /// recording.
    fn unknown_creations(&self, unseen: u64) -> Vec<Note> {
        let mut notes = Vec::new();
        if unseen > 0 {
            let text = format!(
                "The creation of {} was not seen.",
                count(unseen, "thread", "threads")
            );
            let details = match self.counts.create_probes {
                0 => {
                    "Without a pthread_create, only the kernel can report creations. The stub must \
                     run as root, or with CAP_PERFMON and a readable tracefs. If threads are \
                     created too fast, the kernel leaves some out."
                }
                _ => {
                    "Other functions than pthread_create created them, or the library that creates \
                     them was loaded too late."
                }
            };
            notes.push(Note::warning(text).with_details(details));
        }
        let before = self.threads.iter();
        let before = before.filter(|thread| thread.creation == Creation::Before);
        let functions: Vec<bool> = before.map(|thread| thread.function.is_some()).collect();
        if !functions.is_empty() {
            let total = functions.len() as u64;
            let named = functions.iter().filter(|is_known| **is_known).count() as u64;
            let details = match (named, total - named) {
                (1, 0) => "Its function comes from its stack.".to_owned(),
                (_, 0) => "Their functions come from their stacks.".to_owned(),
                (0, 1) => "Its function is not known either.".to_owned(),
                (0, _) => "Their functions are not known either.".to_owned(),
                (_, unnamed) => format!(
                    "The functions of {named} come from their stacks; those of {unnamed} are not known."
                ),
            };
            let text = format!(
                "{} before the recording began, so {} creation is not known.",
                count(total, "thread ran", "threads ran"),
                if total == 1 { "its" } else { "their" }
            );
            notes.push(Note::info(text).with_details(details));
        }
        let notes = notes.into_iter();
        notes.map(|note| note.about(Topic::Threads)).collect()
    }

    /// Notes on threads whose start or end is not certain.
    fn doubtful_threads(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let failed = self.pending.len() as u64;
        if failed > 0 {
            let text = format!(
                "{} not lead to a thread that was seen.",
                count(failed, "creation did", "creations did")
            );
            let details =
                "Creation failed, or the thread had not started when the recording ended.";
            notes.push(Note::warning(text).with_details(details));
        }
        if self.counts.unfollowed > 0 {
            let text = format!(
                "The id and the end of {} are not known.",
                count(self.counts.unfollowed, "thread", "threads")
            );
            let details = "The server does not report thread ids, or the thread ended before \
                 Unspool could ask for its id. A failed creation looks the same.";
            notes.push(Note::info(text).with_details(details));
        }
        if self.counts.inferred > 0 {
            notes.push(Note::info(format!(
                "Several creations match {} equally well. Unspool chose by the order of events.",
                count(self.counts.inferred, "thread", "threads")
            )));
        }
        if self.counts.ends_missed > 0 {
            notes.push(Note::info(format!(
                "The end of {} was not seen; a later thread has the same id.",
                count(self.counts.ends_missed, "thread", "threads")
            )));
        }
        let vague = |thread: &&Thread| thread.ending != Ending::Alive && !thread.end_exact;
        let vague = self.threads.iter().filter(vague).count() as u64;
        if vague > 0 {
            notes.push(Note::info(format!(
                "Unspool noticed the end of {} late. Times marked with ≤ are upper limits.",
                count(vague, "thread", "threads")
            )));
        }
        if self.counts.join_assumed {
            let text = "Unspool assumes that the main thread's last join returned.";
            let details =
                "The server did not report the end of the joined thread before the program exited.";
            notes.push(Note::info(text).with_details(details));
        }
        let notes = notes.into_iter();
        notes.map(|note| note.about(Topic::Threads)).collect()
    }

    fn unknown_records(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        if self.counts.undeclared > 0 {
            notes.push(Note::warning(format!(
                "{} of unknown probes left out.",
                count(self.counts.undeclared, "event was", "events were")
            )));
        }
        if self.capture.unknown > 0 {
            notes.push(Note::warning(format!(
                "{} of a kind that this version does not know. A newer Unspool may show more.",
                count(self.capture.unknown, "record is", "records are")
            )));
        }
        notes
    }
}

/// Estimates the hits that a paused probe missed.
///
/// The stub knows how many hits there are per second of the program's processor time, unless it
/// paused the probe before the program had used a millisecond. Then only the number per second of
/// the clock is known.
fn missed_hits(missed: &Missed, recorded: u64, duration_ns: u64) -> u64 {
    if missed.hits > 0 {
        return missed.hits;
    }
    let active_ns = duration_ns
        .saturating_sub(missed.paused_ns)
        .max(MIN_RATE_NS);
    let hits = u128::from(recorded) * u128::from(missed.paused_ns) / u128::from(active_ns);
    u64::try_from(hits).unwrap_or(u64::MAX)
}

impl History<'_> {
    /// Adds notes on events that paused probes missed. Returns true if one of them was to see
    /// creations.
    fn note_pauses(&mut self, unseen: u64, notes: &mut Vec<Note>) -> bool {
        let mut creations = false;
        let mut calls = PausedCalls::default();
        // Only a server that was started by the recorder has the budget that the recorder was
        // given.
        let option = match self.capture.header.source() {
            Source::Connected => "the stub's '--budget none'",
            _ => "'--budget none'",
        };
        for (id, missed) in std::mem::take(&mut self.counts.missed) {
            let probe = self.probes.get(&id);
            let kind = probe.map(|probe| probe.kind());
            // Where the server tells of every thread, threads without a recorded creation are
            // known.
            let exact = kind == Some(ProbeKind::Create)
                && self.counts.create_probes == 1
                && self.capture.target.tells_creators;
            creations |= kind == Some(ProbeKind::Create);
            let joins = matches!(kind, Some(ProbeKind::Join | ProbeKind::Detach));
            self.recording.joins_are_missing |= joins;
            let recorded = self.counts.hits.get(&id).copied().unwrap_or(0);
            let paused = Paused {
                function: probe.map_or(String::new(), |probe| probe.function.clone()),
                of_calls: kind.is_some_and(ProbeKind::is_of_calls),
                recorded,
                pauses: missed.pauses,
                paused_ns: missed.paused_ns,
                missed: match exact {
                    true => unseen,
                    false => missed_hits(&missed, recorded, self.recording.duration_ns),
                },
                exact,
            };
            if paused.of_calls {
                calls.add(&paused);
            } else if !paused.exact || paused.missed > 0 {
                notes.push(paused_probe(&paused, kind, option));
            }
            self.recording.paused.push(paused);
        }
        if self.recording.too_little_seen() {
            // This comes before all other notes, because it says how to read them.
            self.notes.insert(0, too_little(&self.recording, option));
        } else {
            notes.extend(calls.note(option));
        }
        creations
    }
}

fn too_little(recording: &Recording, option: &str) -> Note {
    let text = format!(
        "Too little was recorded to judge: {} recorded, and at least {} missed. Record with \
         {option} to get all of them; the program then runs slower.",
        count(
            recording.calls_recorded,
            "beginning or end of a call was",
            "beginnings and ends of calls were"
        ),
        recording.calls_missed(),
    );
    let details = "The program may have problems that Unspool did not find. For most of the time \
         Unspool does not know what the threads did.";
    Note::error(text).with_details(details)
}

/// One note covers all probes of calls, because they are many.
#[derive(Default)]
struct PausedCalls {
    functions: BTreeSet<String>,
    missed: u64,
    recorded: u64,
    /// The longest pause of one probe.
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
            "Probes at {first}{others} were paused for up to {}, to keep to the budget.",
            match self.paused_ns {
                short if short < 100_000_000 => format!("{:.1} ms", short as f64 / 1e6),
                long => format!("{:.1} s", long as f64 / 1e9),
            }
        );
        // The program is faster between two hits while they are not recorded, so it makes more of
        // them.
        let missed = match self.missed {
            0 => "Calls that began or ended in a pause are missing.".to_owned(),
            missed => format!(
                "At least {} missed, and {} recorded.",
                count(
                    missed,
                    "beginning or end of a call was",
                    "beginnings and ends of calls were"
                ),
                self.recorded,
            ),
        };
        let details = "The counts of calls do not include missed calls. A call that began or \
             ended in a pause has no duration.";
        let note = Note::warning(format!(
            "{paused} {missed} Record with {option} to get every call."
        ));
        Some(note.about(Topic::Calls).with_details(details))
    }
}

fn paused_probe(paused: &Paused, kind: Option<ProbeKind>, option: &str) -> Note {
    let about = if paused.exact { "" } else { "At least " };
    let consequence = match kind {
        Some(ProbeKind::Create) => {
            "The threads that these calls created are in the report, without their creation."
        }
        Some(ProbeKind::Join | ProbeKind::Detach) => {
            "Threads that were joined or detached may be shown as ended."
        }
        _ => "",
    };
    let pause = format!(
        "its probe was paused {} for {:.3} s in total, to keep to the budget. Record with {option} to get every call.",
        count(paused.pauses, "time", "times"),
        paused.paused_ns as f64 / 1e9,
    );
    let function = &paused.function;
    let text = match paused.missed {
        0 => format!("Some calls of {function} may be missing: {pause}"),
        missed => format!(
            "{about}{missed} of {} calls of {function} were not recorded: {pause}",
            missed + paused.recorded
        ),
    };
    let topic = match paused.of_calls {
        true => Topic::Calls,
        false => Topic::Threads,
    };
    Note::warning(text).about(topic).with_details(consequence)
}

fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_without_a_rate_has_one_by_the_clock() {
        let missed = |hits, paused_ns| Missed {
            hits,
            paused_ns,
            ..Missed::default()
        };
        assert_eq!(missed_hits(&missed(7, 90_000_000), 5, 100_000_000), 7);
        assert_eq!(missed_hits(&missed(0, 90_000_000), 5, 100_000_000), 45);
        assert_eq!(missed_hits(&missed(0, 90_000_000), 0, 100_000_000), 0);
        assert_eq!(missed_hits(&missed(0, 90_000_000), 5, 0), 450);
    }
}
