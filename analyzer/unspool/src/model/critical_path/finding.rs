//! The finding about what limits the run, with its evidence.

use std::sync::Arc;

use super::{Item, Segment};
use crate::model::Model;
use crate::model::backtrace::Backtrace;
use crate::model::calls::PathId;
use crate::model::finding::{Act, Evidence, Facts, Finding, FindingKind, ObjectName, Shows};
use crate::model::thread::{Creation, ThreadIndex};

/// The finding about what limits the run, with the stacks of who waits and of who is waited for.
pub(in crate::model) fn finding(model: &Model) -> Option<Finding> {
    let path = model.critical_path.as_ref()?;
    let limit = path
        .bottleneck
        .filter(|_| !model.recording.too_little_seen())?;
    if let Item::Lock(lock) = limit.item
        && model.findings.iter().any(|it| it.is_parking_with(lock))
    {
        return None;
    }
    let stack = |path: PathId| model.sync.paths.get(path.0).cloned();
    let mut finding = Finding {
        kind: FindingKind::Bottleneck,
        proved: false,
        threads: Vec::new(),
        circle: false,
        objects: Vec::new(),
        facts: Facts::Bottleneck(limit),
        evidence: Vec::new(),
    };
    let mut shows = |thread: ThreadIndex, shows: Shows, stack: Option<Arc<Backtrace>>| {
        finding.threads.push(thread);
        finding.evidence.push(Evidence {
            thread,
            shows,
            stack: stack.filter(|stack| !stack.frames.is_empty()),
        });
    };
    let is_own = |segment: &&Segment| match limit.item {
        Item::Threads(identity) => model.sync.identity_of.get(segment.thread.0) == Some(&identity),
        Item::Function(function) => segment.function == Some(function),
        Item::Lock(_) | Item::LockWaits(_) | Item::Processors => false,
    };
    let longest = path
        .segments
        .iter()
        .filter(is_own)
        .max_by_key(|s| s.length_ns());
    if let Some(longest) = longest {
        let creation = model.thread(longest.thread).map(|thread| &thread.creation);
        match creation {
            Some(Creation::Seen { stack, .. }) => {
                shows(longest.thread, Shows::Created, Some(stack.clone()));
            }
            _ => shows(longest.thread, Shows::LongestPart, None),
        }
    }
    if let Item::Lock(lock) = limit.item {
        let object = model.sync.object(lock);
        let name = ObjectName {
            kind: object.kind,
            address: object.address,
            name: model.sync.name(object),
        };
        if let Some(worst) = object.contention.first() {
            let (waiter, holder) = worst.longest;
            let waited = stack(model.sync.used(worst.waiter).path);
            let did = |act| Shows::Act { act, object: lock };
            shows(waiter, did(Act::WaitedFor), waited);
            let taken = worst.holder.map(|taken| model.sync.used(taken).path);
            let act = match taken {
                Some(_) => Act::Took,
                None => Act::GaveUp,
            };
            shows(holder, did(act), taken.or(worst.ended).and_then(stack));
        }
        finding.objects.push(name);
    }
    if let Item::LockWaits(index) = limit.item {
        let waits = &model.lock_waits[index];
        let longest = [waits.waiters.first(), waits.holders.first()];
        let threads = longest.into_iter().flatten().map(|(thread, _)| *thread);
        finding.threads.extend(threads);
        finding.objects.push(waits.object.clone());
    }
    Some(finding)
}
