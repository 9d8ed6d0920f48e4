//! Findings about synchronization, as facts with evidence. Each module covers one kind of cause.
//!
//! A finding that rests on events that may be missing is never called proved: it is an inference,
//! and its facts say so.

mod lives;
mod load;
mod misuse;
mod orders;
mod parked;

use std::sync::Arc;

use super::kernel_waits::KernelWaits;
use super::naming::name_of;
use super::objects::{Object, ObjectIndex, Use, UseIndex};
use super::replay::Replay;
use crate::model::backtrace::Backtrace;
use crate::model::calls::PathId;
use crate::model::finding::{Act, Evidence, Finding, FindingKind, ObjectName, Shows};
use crate::model::{Model, ThreadIndex};

pub(in crate::model) use load::is_much;

/// Maximum number of findings of one kind in a report.
const MAX_PER_KIND: usize = 25;

/// Size of the largest object of a C library (glibc: a read-write lock has 56 bytes).
const MAX_OBJECT_SIZE: u64 = 56;

/// The data on which findings rest.
pub(super) struct Basis<'a> {
    pub(super) model: &'a Model,
    pub(super) objects: &'a [Object],
    pub(super) uses: &'a [Use],
    pub(super) paths: &'a [Arc<Backtrace>],
    /// Per thread, its identity.
    pub(super) identity_of: &'a [usize],
    pub(super) kernel_waits: KernelWaits,
    /// Approximate time that recording one event costs its thread, nanoseconds.
    pub(super) event_ns: u64,
    /// True if the recorder delayed threads so much that others probably waited for processors too.
    pub(super) is_overloaded: bool,
    /// True if the recorded times do not go backwards.
    pub(super) clock_is_sound: bool,
}

impl Basis<'_> {
    /// Returns all findings except hangs, which the wait graph reports; the gravest first.
    pub(super) fn all(&self, replay: &Replay<'_>, joins_are_seen: bool) -> Vec<Finding> {
        let mut findings = Vec::new();
        misuse::find(self, replay, &mut findings);
        orders::find(self, replay, joins_are_seen, &mut findings);
        load::find(self, &mut findings);
        lives::find(self, joins_are_seen, replay.latest_ns, &mut findings);
        let rank = |kind: FindingKind| FindingKind::ALL.iter().position(|k| *k == kind);
        findings.sort_by_key(|finding| (rank(finding.kind), !finding.proved));
        let mut kept = Vec::new();
        for kind in FindingKind::ALL {
            let of_kind = findings.iter().filter(|finding| finding.kind == kind);
            kept.extend(of_kind.take(MAX_PER_KIND).cloned());
        }
        kept
    }

    /// True if no missing event could change the conclusions.
    pub(super) fn lossless(&self) -> bool {
        self.clock_is_sound && self.model.recording.is_lossless()
    }

    /// The object that contains a futex word: the nearest one that begins at or before it.
    fn object_with(&self, word: u64) -> Option<ObjectIndex> {
        let offset = |index: &usize| word.wrapping_sub(self.objects[*index].address);
        let near = (0..self.objects.len()).filter(|index| offset(index) < MAX_OBJECT_SIZE);
        near.min_by_key(offset).map(ObjectIndex)
    }

    fn name(&self, index: ObjectIndex) -> Option<Arc<str>> {
        let object = &self.objects[index.0];
        name_of(object, self.paths.get(object.origin.0).map(|path| &**path))
    }

    fn named(&self, index: ObjectIndex) -> ObjectName {
        let object = &self.objects[index.0];
        ObjectName {
            kind: object.kind,
            address: object.address,
            name: self.name(index),
        }
    }

    fn evidence(
        &self,
        thread: ThreadIndex,
        used: UseIndex,
        act: Act,
        object: ObjectIndex,
    ) -> Evidence {
        self.evidence_at(thread, self.uses[used.0].path, act, object)
    }

    fn evidence_at(
        &self,
        thread: ThreadIndex,
        path: PathId,
        act: Act,
        object: ObjectIndex,
    ) -> Evidence {
        let path = self.paths.get(path.0);
        Evidence {
            thread,
            shows: Shows::Act { act, object },
            stack: path.filter(|path| !path.frames.is_empty()).cloned(),
        }
    }
}

/// Formats a duration with three digits, e.g. `1.33 s`, `52.1 ms`, `840 µs`.
pub(crate) fn length(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        _ if ns >= 999.5e6 => (ns / 1e9, "s"),
        _ if ns >= 999.5e3 => (ns / 1e6, "ms"),
        _ => (ns / 1e3, "µs"),
    };
    let digits = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}
