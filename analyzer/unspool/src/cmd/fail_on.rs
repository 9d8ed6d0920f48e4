//! `--fail-on`: findings that make a command fail, for scripts and CI.

use std::collections::HashSet;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::terminal;
use crate::collect::Sync;
use crate::model::{Finding, FindingKind, Model, Recording};

/// Exit code if a selected finding exists.
pub(super) const FOUND: u8 = 3;
/// Exit code if no selected finding exists, but too little was seen to exclude one.
pub(super) const TOO_LITTLE_SEEN: u8 = 4;
/// Kinds that the state of a program at one moment shows.
const OF_STATES: [FindingKind; 4] = [
    FindingKind::Deadlock,
    FindingKind::SelfDeadlock,
    FindingKind::AbandonedLock,
    FindingKind::LostWakeup,
];
/// Kinds of findings that depend on threads' lives, not on calls.
const OF_LIVES: [FindingKind; 2] = [FindingKind::Unjoined, FindingKind::Churn];
/// Kinds that need every call of a lock or condition variable.
const OF_ALL_CALLS: [FindingKind; 4] = [
    FindingKind::LockOrder,
    FindingKind::DestroyedHeld,
    FindingKind::WrongUnlock,
    FindingKind::UnlockedSignal,
];
/// Kinds that need the waits for locks.
const OF_WAITS: [FindingKind; 3] = [
    FindingKind::Convoy,
    FindingKind::LongHold,
    FindingKind::Contention,
];

/// Findings that make the command fail.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "For scripts")]
pub(super) struct FailOn {
    /// Exit with code 3 if there is a finding of this kind (repeatable, or separated by commas)
    ///
    /// KIND is `any`, deadlock, self-deadlock, abandoned-lock, lost-wakeup, destroyed-held,
    /// wrong-unlock, lock-order, convoy, long-hold, contention, bottleneck, unlocked-signal,
    /// unjoined or churn. KIND:proved ignores inferred findings. `inspect` finds only deadlock,
    /// self-deadlock, abandoned-lock and lost-wakeup.
    ///
    /// Exit code 4 means that there is no such finding, but too little was seen to exclude one:
    /// most calls were missed, or a named process was not inspected. For `any` and `lock-order`, it
    /// is enough that most lock calls were missed.
    #[arg(long = "fail-on", value_name = "KIND", value_delimiter = ',', value_parser = condition)]
    conditions: Vec<Condition>,
}

/// A kind of finding. `None` stands for any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Condition {
    kind: Option<FindingKind>,
    proved: bool,
}

impl Condition {
    /// True if there may be such a finding although the recording shows none.
    fn may_be_missed(self, recording: &Recording) -> bool {
        let (of_calls, of_locks) = match self.kind {
            None => (true, true),
            Some(kind) => (!OF_LIVES.contains(&kind), kind == FindingKind::LockOrder),
        };
        let of_joins = self.kind == Some(FindingKind::Unjoined);
        of_calls && recording.too_little_seen()
            || of_locks && recording.too_few_lock_calls()
            || of_joins && !recording.knows_joins()
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let (name, proved) = match text.strip_suffix(":proved") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let kind = match name {
        "any" => None,
        name => Some(FindingKind::of_name(name).ok_or_else(|| {
            let all: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.as_str()).collect();
            format!(
                "there is no such kind of finding; use any, {}",
                all.join(", ")
            )
        })?),
    };
    Ok(Condition { kind, proved })
}

impl FailOn {
    /// Fails if a recording of `sync` can show no finding of a selected kind.
    pub(super) fn check(&self, sync: Option<Sync>) -> anyhow::Result<()> {
        for kind in self.kinds() {
            let needed = match sync {
                Some(Sync::All) => continue,
                _ if OF_ALL_CALLS.contains(&kind) => "--sync=all",
                None if OF_WAITS.contains(&kind) => "--sync",
                _ => continue,
            };
            bail!(
                "--fail-on {} needs {needed}, because other recordings cannot show such a finding",
                kind.as_str()
            );
        }
        Ok(())
    }

    /// Fails if an inspection can show no finding of a selected kind.
    pub(super) fn check_inspection(&self) -> anyhow::Result<()> {
        if let Some(kind) = self.kinds().find(|kind| !OF_STATES.contains(kind)) {
            let kind = kind.as_str();
            bail!(
                "--fail-on {kind} needs a recording, because an inspection cannot show such a finding"
            );
        }
        Ok(())
    }

    fn kinds(&self) -> impl Iterator<Item = FindingKind> {
        let conditions = self.conditions.iter();
        conditions.filter_map(|condition| condition.kind)
    }

    /// The exit code if a selected finding exists, or may exist. Prints the reason on standard
    /// error.
    pub(super) fn exit_code(&self, model: &Model) -> Option<ExitCode> {
        let is_selected = |finding: &Finding| {
            self.conditions.iter().any(|condition| {
                condition.kind.is_none_or(|kind| kind == finding.kind)
                    && (finding.proved || !condition.proved)
            })
        };
        let mut found: Vec<&str> = Vec::new();
        // Each process has the findings about several processes, so count them once.
        let mut across = HashSet::new();
        for one in model.all_recorded() {
            for finding in one.findings.iter().filter(|finding| is_selected(finding)) {
                let threads = finding.threads.iter();
                let is_own = threads.clone().all(|thread| one.thread(*thread).is_some());
                let mut tids: Vec<Option<u64>> = threads
                    .map(|thread| one.any_thread(*thread).and_then(|thread| thread.tid))
                    .collect();
                tids.sort_unstable();
                if is_own || across.insert((finding.kind.as_str(), tids)) {
                    found.push(finding.kind.as_str());
                }
            }
        }
        let Some(first) = found.first() else {
            return self.too_little_seen(model);
        };
        terminal::say(&match found.len() {
            1 => format!("failing on a finding: {first}"),
            count => format!("failing on {count} findings; the first is {first}"),
        });
        Some(ExitCode::from(FOUND))
    }

    fn too_little_seen(&self, model: &Model) -> Option<ExitCode> {
        if model.inspection.is_incomplete && !self.conditions.is_empty() {
            terminal::say("failing: a process was not inspected, so it may have such a finding");
            return Some(ExitCode::from(TOO_LITTLE_SEEN));
        }
        let mut all = model.all_recorded();
        let is_missed =
            |condition: &Condition, model: &Model| condition.may_be_missed(&model.recording);
        if !all.any(|model| self.conditions.iter().any(|one| is_missed(one, model))) {
            return None;
        }
        terminal::say("failing: too little was recorded to rule out such a finding");
        Some(ExitCode::from(TOO_LITTLE_SEEN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_need_the_calls_that_show_them() {
        for (kind, needed) in [
            ("lock-order", Some("--sync=all")),
            ("wrong-unlock:proved", Some("--sync=all")),
            ("convoy", Some("--sync")),
            ("deadlock", None),
            ("unjoined", None),
            ("any", None),
        ] {
            let conditions = vec![condition(kind).unwrap()];
            let fail_on = FailOn { conditions };
            let fails = |sync| fail_on.check(sync).is_err();
            assert_eq!(fails(None), needed.is_some(), "{kind}");
            let contended = fails(Some(Sync::Contended));
            assert_eq!(contended, needed == Some("--sync=all"), "{kind}");
            assert!(!fails(Some(Sync::All)), "{kind}");
        }
    }

    #[test]
    fn missed_calls_of_locks_hide_lock_orders() {
        let recording = Recording {
            calls_recorded: 400,
            lock_calls_recorded: 145,
            lock_calls_dropped: 148,
            calls_dropped: 148,
            ..Recording::default()
        };
        for (kind, missed) in [
            ("lock-order", true),
            ("lock-order:proved", true),
            ("any", true),
            ("deadlock", false),
            ("unjoined", false),
        ] {
            let condition = condition(kind).unwrap();
            assert_eq!(condition.may_be_missed(&recording), missed, "{kind}");
        }
    }
}
