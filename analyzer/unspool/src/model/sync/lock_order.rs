//! The lock order: every pair of locks of which one was taken while the other was held.
//!
//! Separate from `order`, which keeps only a few circumstances per pair to search for circles. This
//! module counts all of them, for people who want to see the whole order.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashMap;

use super::objects::{ObjectIndex, UseIndex};
use super::order::Order;
use crate::model::circles::{circles, components, targets};
use crate::model::{Facts, Finding, ThreadIndex};

/// Maximum number of pairs in circles for which the reason why they are no finding is searched.
const MAX_EXPLAINED_EDGES: usize = 1000;

/// Maximum number of pairs of locks that are counted, and of pairs of holds that have not ended.
/// Limits the memory.
pub(super) const MAX_EDGES: usize = 100_000;

/// The lock order of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockOrder {
    /// The pairs of locks, by held and then by taken object.
    pub edges: Vec<OrderEdge>,
    /// True if there were more pairs than can be counted, or more locks of one thread.
    pub cut: bool,
}

/// A lock that was taken while another was held.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderEdge {
    /// The object that was held.
    pub held: ObjectIndex,
    /// The object that was taken meanwhile.
    pub taken: ObjectIndex,
    /// Number of calls that took it, or waited for it when the recording ended.
    pub count: u64,
    /// The first of these calls, nanoseconds since the recording began.
    pub first_ns: u64,
    /// The first use that had taken the held object.
    pub held_at: UseIndex,
    /// The use that took the other object meanwhile.
    pub taken_at: UseIndex,
    /// The threads that did it, in order.
    pub threads: Vec<ThreadIndex>,
    /// True if other edges lead from the taken object back to the held one.
    pub in_circle: bool,
    /// The reason why the shortest circle with it is no finding, if it is in a circle and in no
    /// finding.
    pub exclusion: Option<Exclusion>,
}

/// The reason why a circle of lock orders is no finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exclusion {
    /// One thread takes all steps.
    OneThread,
    /// Threads hold this other lock during several steps.
    Gate(ObjectIndex),
    /// A call stops waiting after some time.
    TimeLimit,
    /// A lock is both held and taken by readers.
    SharedHolds,
    /// Some of its locks make a shorter circle that is a finding.
    ShorterCircle,
    /// The search for findings has limits, and did not judge it.
    Limit,
}

impl LockOrder {
    /// Per pair of held and taken object, the first finding about a circle that contains it.
    pub fn findings(findings: &[Finding]) -> BTreeMap<(ObjectIndex, ObjectIndex), usize> {
        let mut first = BTreeMap::new();
        for (index, finding) in findings.iter().enumerate() {
            if let Facts::LockOrder { steps, .. } = &finding.facts {
                for step in steps {
                    first.entry((step.holds, step.takes)).or_insert(index);
                }
            }
        }
        first
    }

    /// Sets the exclusions. `order` has found the circles of these findings.
    pub(super) fn explain(&mut self, order: &Order, findings: &[Finding]) {
        let found = LockOrder::findings(findings);
        let mut exclusions: HashMap<(ObjectIndex, ObjectIndex), Exclusion> = HashMap::default();
        for circle in self.circles() {
            let nexts = circle.iter().cycle().skip(1);
            let steps: Vec<_> = circle.iter().copied().zip(nexts.copied()).collect();
            let is_known = |step| found.contains_key(step) || exclusions.contains_key(step);
            if !steps.iter().all(is_known) {
                let exclusion = if self.is_of_one_thread(&steps) {
                    Exclusion::OneThread
                } else if has_shorter(findings, &circle) {
                    Exclusion::ShorterCircle
                } else {
                    order.exclusion(&circle)
                };
                for step in steps {
                    exclusions.entry(step).or_insert(exclusion);
                }
            }
        }
        for edge in self.edges.iter_mut().filter(|edge| edge.in_circle) {
            let step = (edge.held, edge.taken);
            if !found.contains_key(&step) {
                let known = exclusions.get(&step).copied();
                edge.exclusion = Some(known.unwrap_or(Exclusion::Limit));
            }
        }
    }

    /// For each edge in a circle, the shortest circle with it; the shortest ones come first. None
    /// if there are too many edges.
    fn circles(&self) -> Vec<Vec<ObjectIndex>> {
        let edges = self.edges.iter().filter(|edge| edge.in_circle);
        let edges: Vec<(usize, usize)> = edges.map(|e| (e.held.0, e.taken.0)).collect();
        if edges.len() > MAX_EXPLAINED_EDGES {
            return Vec::new();
        }
        let circles = circles(&edges).into_iter();
        let mut circles: Vec<Vec<ObjectIndex>> = circles
            .map(|circle| circle.into_iter().map(ObjectIndex).collect())
            .collect();
        circles.sort_by_key(Vec::len);
        circles
    }

    /// True if all of these steps are those of one thread.
    fn is_of_one_thread(&self, steps: &[(ObjectIndex, ObjectIndex)]) -> bool {
        let edge = |step| {
            let at = (self.edges).binary_search_by_key(step, |edge| (edge.held, edge.taken));
            at.ok().map(|at| &self.edges[at])
        };
        let threads = steps.iter().filter_map(edge).flat_map(|edge| &edge.threads);
        threads.collect::<BTreeSet<_>>().len() == 1
    }
}

/// True if some of the objects make a shorter circle that is a finding.
fn has_shorter(findings: &[Finding], circle: &[ObjectIndex]) -> bool {
    findings.iter().any(|finding| match &finding.facts {
        Facts::LockOrder { steps, .. } => {
            steps.len() < circle.len() && steps.iter().all(|step| circle.contains(&step.holds))
        }
        _ => false,
    })
}

/// The calls that took one lock while another was held.
#[derive(Clone, Debug)]
struct Seen {
    count: u64,
    first_ns: u64,
    held_at: UseIndex,
    taken_at: UseIndex,
}

/// Counts the pairs during the replay.
#[derive(Debug, Default)]
pub(super) struct OrderCounts {
    /// With the number of calls of each thread.
    edges: HashMap<(ObjectIndex, ObjectIndex), (Seen, HashMap<ThreadIndex, u64>)>,
    /// What a thread has taken during a hold that it has not yet been seen to end. Sorted by taken
    /// object, so that the limit keeps the same pairs each time.
    open: HashMap<(ThreadIndex, ObjectIndex), BTreeMap<ObjectIndex, Seen>>,
    /// Number of pairs in `open`.
    open_pairs: usize,
    cut: bool,
}

impl OrderCounts {
    /// A thread that took `held` at `held_at` is about to take `taken`.
    pub(super) fn takes(
        &mut self,
        thread: ThreadIndex,
        (held, held_at): (ObjectIndex, UseIndex),
        (taken, taken_at): (ObjectIndex, UseIndex),
        now: u64,
    ) {
        match self.open.entry((thread, held)).or_default().entry(taken) {
            Entry::Occupied(mut seen) => seen.get_mut().count += 1,
            Entry::Vacant(_) if self.open_pairs >= MAX_EDGES => self.cut = true,
            Entry::Vacant(pair) => {
                self.open_pairs += 1;
                pair.insert(Seen {
                    count: 1,
                    first_ns: now,
                    held_at,
                    taken_at,
                });
            }
        }
    }

    /// A thread releases an object: counts what it took during the hold.
    pub(super) fn confirm(&mut self, thread: ThreadIndex, held: ObjectIndex) {
        for (taken, seen) in self.end_hold(thread, held) {
            if self.edges.len() >= MAX_EDGES && !self.edges.contains_key(&(held, taken)) {
                self.cut = true;
                continue;
            }
            let first = || (Seen { count: 0, ..seen }, HashMap::default());
            let (sum, threads) = self.edges.entry((held, taken)).or_insert_with(first);
            let count = sum.count + seen.count;
            *threads.entry(thread).or_default() += seen.count;
            if seen.first_ns < sum.first_ns {
                *sum = seen;
            }
            sum.count = count;
        }
    }

    /// How often a thread took `taken` during holds of `held` that it has been seen to end.
    pub(super) fn calls_of(
        &self,
        thread: ThreadIndex,
        held: ObjectIndex,
        taken: ObjectIndex,
    ) -> Option<u64> {
        let (_, threads) = self.edges.get(&(held, taken))?;
        threads.get(&thread).copied()
    }

    /// Drops what a thread took during a hold that may have been interrupted.
    pub(super) fn discard(&mut self, thread: ThreadIndex, held: ObjectIndex) {
        self.end_hold(thread, held);
    }

    /// Removes what a thread took during a hold.
    fn end_hold(&mut self, thread: ThreadIndex, held: ObjectIndex) -> BTreeMap<ObjectIndex, Seen> {
        let ended = self.open.remove(&(thread, held)).unwrap_or_default();
        self.open_pairs -= ended.len();
        ended
    }

    /// All pairs that were confirmed.
    pub(super) fn finish(self) -> LockOrder {
        let all = self.edges.into_iter();
        let all = all.map(|((held, taken), (seen, threads))| {
            let mut threads: Vec<ThreadIndex> = threads.into_keys().collect();
            threads.sort_unstable();
            OrderEdge {
                held,
                taken,
                count: seen.count,
                first_ns: seen.first_ns,
                held_at: seen.held_at,
                taken_at: seen.taken_at,
                threads,
                in_circle: false,
                exclusion: None,
            }
        });
        let mut edges: Vec<OrderEdge> = all.collect();
        edges.sort_unstable_by_key(|edge| (edge.held, edge.taken));
        mark_circles(&mut edges);
        LockOrder {
            edges,
            cut: self.cut,
        }
    }
}

/// Marks the edges whose two objects reach each other.
fn mark_circles(edges: &mut [OrderEdge]) {
    let targets = targets(edges.iter().map(|edge| (edge.held.0, edge.taken.0)));
    let groups = components(&targets).into_iter().enumerate();
    let group_of = groups.flat_map(|(at, group)| group.into_iter().map(move |lock| (lock, at)));
    let group_of: HashMap<usize, usize> = group_of.collect();
    for edge in edges {
        edge.in_circle = group_of.get(&edge.held.0) == group_of.get(&edge.taken.0);
    }
}
