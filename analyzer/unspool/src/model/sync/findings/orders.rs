//! Finds locks that are taken in both orders, whether or not this has already led to a deadlock.

use super::Basis;
use crate::model::finding::{Act, Facts, Finding, FindingKind, OrderRisk, OrderStep};
use crate::model::sync::order::Likelihood;
use crate::model::sync::replay::Replay;
use crate::model::{Creation, Model, ThreadIndex};

pub(super) fn find(
    basis: &Basis<'_>,
    replay: &Replay<'_>,
    joins_are_seen: bool,
    findings: &mut Vec<Finding>,
) {
    let joins_are_seen = joins_are_seen && !basis.model.recording.joins_are_missing;
    let counts = &replay.order.counts;
    for circle in replay.order.circles(basis.model) {
        let doubtful = circle.objects.iter().any(|o| basis.objects[o.0].doubtful);
        // Other locks may have had the same memory in between.
        let mut objects = circle.objects.iter().map(|o| &basis.objects[o.0]);
        let may_be_reused = objects.any(|object| !object.is_static && !object.made);
        // A thread's steps before it creates another thread, or after it joins it, never run at the
        // same time as that thread's.
        let mut steps = circle.steps.iter();
        let ancestry = steps.all(|step| is_descent_known(basis.model, step.thread));
        let complete = !doubtful && basis.lossless() && ancestry && joins_are_seen;
        let risk = match circle.likelihood {
            Likelihood::OneThread => OrderRisk::OneThread,
            Likelihood::FewThreads | Likelihood::Ordered => OrderRisk::Apart,
            Likelihood::BehindSemaphore(semaphore) => OrderRisk::Semaphore(semaphore),
            _ if !complete => OrderRisk::EventsMissing,
            Likelihood::Successive => OrderRisk::Successive,
            Likelihood::Free if may_be_reused => OrderRisk::Reused,
            Likelihood::Free => OrderRisk::Proved,
        };
        let mut steps = Vec::new();
        let mut evidence = Vec::new();
        for (at, step) in circle.steps.iter().enumerate() {
            let holds = circle.objects[at];
            let takes = circle.objects[(at + 1) % circle.objects.len()];
            steps.push(OrderStep {
                thread: step.thread,
                holds,
                takes,
                taken: step.taken,
                // From all places, unless there were too many pairs.
                count: counts
                    .calls_of(step.thread, holds, takes)
                    .unwrap_or(step.count),
            });
            evidence.push(basis.evidence(step.thread, step.held, Act::Takes, holds));
            let act = Act::TakesWhile(holds);
            evidence.push(basis.evidence(step.thread, step.taken, act, takes));
        }
        let mut threads: Vec<_> = circle.steps.iter().map(|step| step.thread).collect();
        threads.dedup();
        findings.push(Finding {
            kind: FindingKind::LockOrder,
            proved: risk == OrderRisk::Proved,
            threads,
            circle: false,
            objects: circle.objects.iter().map(|o| basis.named(*o)).collect(),
            facts: Facts::LockOrder { steps, risk },
            evidence,
        });
    }
}

/// True if the chain of a thread's creators was recorded, as far as the recording goes back.
fn is_descent_known(model: &Model, thread: ThreadIndex) -> bool {
    let mut at = thread;
    // The bound also ends the climb if damaged records form a circle.
    for _ in 0..model.threads.len() {
        at = match model.threads.get(at.0).map(|thread| &thread.creation) {
            Some(Creation::Main | Creation::Before) => return true,
            Some(Creation::Seen {
                creator,
                inferred: false,
                ..
            }) => *creator,
            _ => return false,
        };
    }
    false
}
