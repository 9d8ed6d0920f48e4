//! Records the order in which locks are taken, and finds orders that could block each other.
//!
//! Every pair of locks is an edge, from the held lock to the taken one. It has the circumstances in
//! which it was seen: the thread, both places, and the other locks held.
//!
//! A circle of edges can deadlock only if different threads can run its parts at the same time, and
//! no other lock excludes that. A semaphore that all threads have passed may exclude it too,
//! because the number of threads it lets in is not recorded. So may a condition, future or flag for
//! which a thread waited, if all its steps came after all of another thread's. The method is that
//! of lock graphs with gate locks, as in the detectors that followed Savage et al., "Eraser", 1997.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};

use super::happens_before::{Barriers, HappensBefore, Rounds, Times};
use super::holds::Held;
use super::lock_order::{Exclusion, OrderCounts};
use super::meetings::{Meetings, Work};
use super::objects::{ObjectIndex, UseIndex};
use crate::model::{Model, ThreadIndex};

/// Maximum number of distinct circumstances kept for one order of locks.
const MAX_CIRCUMSTANCES: usize = 12;
/// Maximum length of a circle that the search finds.
const MAX_CIRCLE_LENGTH: usize = 8;
/// Maximum number of steps of the search.
const MAX_SEARCH_STEPS: u32 = 2_000_000;
/// Maximum number of combinations of circumstances tried per circle.
const MAX_COMBINATIONS: u32 = 20_000;
/// Maximum number of them that are tried to explain why a circle is no finding.
const MAX_EXPLAINED_COMBINATIONS: u32 = 100;
/// Maximum number of circles that are reported.
const MAX_CIRCLES: usize = 100;

/// The circumstances in which a lock was taken while another was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circumstance {
    pub(super) thread: ThreadIndex,
    /// Where the held lock had been taken.
    pub(super) held: UseIndex,
    /// Where the other lock was taken.
    pub(super) taken: UseIndex,
    /// The held lock.
    object: ObjectIndex,
    /// The locks that the thread held exclusively, with the held one if it is one of them. All
    /// circumstances of a call share them, so that a call needs memory in proportion to its locks.
    exclusive: Rc<[ObjectIndex]>,
    /// Semaphores that the thread had taken and not posted.
    semaphores: Rc<[ObjectIndex]>,
    rounds: Rounds,
    held_shared: bool,
    taken_shared: bool,
    timed: bool,
    first_ns: u64,
    last_ns: u64,
    pub(super) count: u64,
}

/// A call that takes a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking {
    pub(super) thread: ThreadIndex,
    pub(super) object: ObjectIndex,
    pub(super) used: UseIndex,
    /// True if readers can take it together.
    pub(super) shared: bool,
    /// True if the caller limits the wait.
    pub(super) timed: bool,
    pub(super) now: u64,
}

#[derive(Debug, Default)]
pub(super) struct Order {
    edges: HashMap<(ObjectIndex, ObjectIndex), Vec<Circumstance>>,
    /// Locks taken by a thread while it held an object that it has not yet been seen to release.
    open: HashMap<(ThreadIndex, ObjectIndex), Vec<(ObjectIndex, Circumstance)>>,
    /// Semaphores that a thread has waited for more often than it has posted them.
    semaphores: HashMap<ThreadIndex, BTreeMap<ObjectIndex, u64>>,
    pub(super) barriers: Barriers,
    pub(super) counts: OrderCounts,
    meetings: Meetings,
}

impl Circumstance {
    fn is_like(&self, other: &Circumstance) -> bool {
        (self.thread, self.held, self.taken) == (other.thread, other.held, other.taken)
            && self.held_shared == other.held_shared
            && self.exclusive == other.exclusive
            && self.semaphores == other.semaphores
    }

    /// Other locks that the thread held exclusively.
    fn gates(&self) -> impl Iterator<Item = ObjectIndex> {
        let locks = self.exclusive.iter().copied();
        locks.filter(|lock| *lock != self.object)
    }

    fn times(&self) -> Times<'_> {
        (self.thread, self.first_ns, self.last_ns, &self.rounds)
    }
}

/// A circle of orders: each object is held while the next is taken.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Circle {
    pub(super) objects: Vec<ObjectIndex>,
    /// The step of each object, in the order of the objects.
    pub(super) steps: Vec<Circumstance>,
    pub(super) likelihood: Likelihood,
}

/// How likely a circle is to block threads. The most likely comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Likelihood {
    /// One thread takes all of its steps.
    OneThread,
    /// A thread takes several of its steps.
    FewThreads,
    /// Its steps cannot happen at the same time.
    Ordered,
    /// The threads of all steps had taken this semaphore, which may exclude it.
    BehindSemaphore(ObjectIndex),
    /// A thread's steps were over before another's began, each time or all of them. Any
    /// communication may have caused that, and not all communication is recorded.
    Successive,
    /// Nothing is known that would exclude it.
    Free,
}

impl Likelihood {
    /// `spans`: for each step, when its thread did it first and last.
    fn of(
        steps: &[&Circumstance],
        spans: &[(u64, u64)],
        happens_before: &HappensBefore<'_>,
    ) -> Likelihood {
        let all_pairs = |holds: &dyn Fn(usize, usize) -> bool| {
            (0..steps.len()).all(|a| (0..a).all(|b| holds(a, b)))
        };
        if !all_pairs(&|a, b| happens_before.can_meet(steps[a].times(), steps[b].times())) {
            let threads: BTreeSet<_> = steps.iter().map(|step| step.thread).collect();
            return match threads.len() {
                1 => Likelihood::OneThread,
                count if count < steps.len() => Likelihood::FewThreads,
                _ => Likelihood::Ordered,
            };
        }
        match common_semaphore(steps) {
            Some(semaphore) => Likelihood::BehindSemaphore(semaphore),
            None if all_pairs(&|a, b| spans[a].0 <= spans[b].1 && spans[b].0 <= spans[a].1) => {
                Likelihood::Free
            }
            None => Likelihood::Successive,
        }
    }
}

impl Order {
    /// Notes that a thread has passed a semaphore.
    pub(super) fn passes_semaphore(&mut self, thread: ThreadIndex, semaphore: ObjectIndex) {
        let semaphores = self.semaphores.entry(thread).or_default();
        *semaphores.entry(semaphore).or_default() += 1;
    }

    /// Notes that a thread posts a semaphore, which returns its own pass if it had one.
    pub(super) fn posts_semaphore(&mut self, thread: ThreadIndex, semaphore: ObjectIndex) {
        let semaphores = self.semaphores.entry(thread).or_default();
        if let Some(count) = semaphores.get_mut(&semaphore) {
            *count -= 1;
            if *count == 0 {
                semaphores.remove(&semaphore);
            }
        }
    }

    /// Notes that a thread that holds `held` is about to take a lock.
    pub(super) fn takes(&mut self, held: &[Held], taking: Taking) {
        let Taking {
            thread,
            object,
            used,
            now,
            ..
        } = taking;
        // A lock that its holder takes again has no order.
        if held.is_empty() || held.iter().any(|h| h.object == object) {
            return;
        }
        let semaphores = self.semaphores.get(&thread);
        let semaphores: Rc<[ObjectIndex]> = semaphores
            .into_iter()
            .flat_map(|s| s.keys().copied())
            .collect();
        let exclusive = held.iter().filter(|h| !h.shared).map(|h| h.object);
        let exclusive: Rc<[ObjectIndex]> = exclusive.collect();
        let rounds = self.barriers.rounds(thread);
        for before in held {
            let first = (before.object, before.taken);
            self.counts.takes(thread, first, (object, used), now);
            let open = self.open.entry((thread, before.object)).or_default();
            // After this many locks, one more adds no information.
            if open.len() < MAX_CIRCUMSTANCES {
                open.push((
                    object,
                    Circumstance {
                        thread,
                        held: before.taken,
                        taken: used,
                        object: before.object,
                        exclusive: Rc::clone(&exclusive),
                        semaphores: Rc::clone(&semaphores),
                        rounds: rounds.clone(),
                        held_shared: before.shared,
                        taken_shared: taking.shared,
                        timed: taking.timed,
                        first_ns: now,
                        last_ns: now,
                        count: 1,
                    },
                ));
            }
        }
    }

    /// A thread releases an object: confirms the orders seen while it held the object.
    pub(super) fn confirm(&mut self, thread: ThreadIndex, held: &Held, now: u64) {
        let before = held.object;
        let work = Work {
            thread,
            asked_ns: held.asked_ns,
            released_ns: now,
        };
        self.counts.confirm(thread, before);
        for (after, seen) in self.open.remove(&(thread, before)).unwrap_or_default() {
            self.meetings.add(before, after, work);
            let known = self.edges.entry((before, after)).or_default();
            if let Some(same) = known.iter_mut().find(|c| c.is_like(&seen)) {
                same.count += 1;
                same.last_ns = same.last_ns.max(seen.last_ns);
                same.rounds.add(&seen.rounds);
            } else if known.len() < MAX_CIRCUMSTANCES {
                known.push(seen);
            }
        }
    }

    /// Drops the orders of a hold that may have been interrupted.
    pub(super) fn discard(&mut self, thread: ThreadIndex, before: ObjectIndex) {
        self.counts.discard(thread, before);
        self.open.remove(&(thread, before));
    }

    /// Circles of orders in which locks could block each other, shortest first. Circles that
    /// another lock always prevents are left out.
    pub(super) fn circles(&self, model: &Model) -> Vec<Circle> {
        let mut next: HashMap<ObjectIndex, BTreeSet<ObjectIndex>> = HashMap::new();
        for (before, after) in self.edges.keys() {
            next.entry(*before).or_default().insert(*after);
        }
        keep_circles(&mut next);
        let happens_before = HappensBefore::new(model, &self.barriers);
        let mut steps_left = MAX_SEARCH_STEPS;
        let mut starts: Vec<ObjectIndex> = next.keys().copied().collect();
        starts.sort_unstable();
        let mut circles: Vec<Circle> = Vec::new();
        for length in 2..=MAX_CIRCLE_LENGTH {
            for &start in &starts {
                let mut path = vec![start];
                self.search(
                    &happens_before,
                    &next,
                    length,
                    &mut path,
                    &mut circles,
                    &mut steps_left,
                );
            }
        }
        circles
    }

    /// Extends a path of objects to circles of a length. Each circle is found from its lowest
    /// object.
    fn search(
        &self,
        happens_before: &HappensBefore<'_>,
        next: &HashMap<ObjectIndex, BTreeSet<ObjectIndex>>,
        length: usize,
        path: &mut Vec<ObjectIndex>,
        circles: &mut Vec<Circle>,
        steps_left: &mut u32,
    ) {
        if *steps_left == 0 {
            return;
        }
        *steps_left -= 1;
        let (Some(&first), Some(&last)) = (path.first(), path.last()) else {
            return;
        };
        let Some(after) = next.get(&last) else { return };
        if path.len() == length {
            if after.contains(&first) && circles.len() < MAX_CIRCLES {
                // A shorter circle within this one is reported instead.
                let within = |c: &Circle| c.objects.iter().all(|object| path.contains(object));
                if !circles.iter().any(within)
                    && let Some(circle) = self.judge(happens_before, path)
                {
                    circles.push(circle);
                }
            }
            return;
        }
        for &object in after.range(first..).filter(|object| **object != first) {
            if !path.contains(&object) {
                path.push(object);
                self.search(happens_before, next, length, path, circles, steps_left);
                path.pop();
            }
        }
    }

    /// The most likely circumstances of a circle; none if it cannot block any thread.
    fn judge(&self, happens_before: &HappensBefore<'_>, objects: &[ObjectIndex]) -> Option<Circle> {
        let mut best: Option<Circle> = None;
        self.choices(objects, MAX_COMBINATIONS, &mut |steps| {
            let found = best.as_ref().map(|circle| circle.likelihood);
            if found == Some(Likelihood::Free) || exclusion(steps).is_some() {
                return;
            }
            let nexts = objects.iter().cycle().skip(1);
            let orders = objects.iter().zip(nexts).zip(steps);
            let spans: Vec<(u64, u64)> = orders
                .map(|((held, taken), step)| self.span(*held, *taken, step.thread))
                .collect();
            let likelihood = match Likelihood::of(steps, &spans, happens_before) {
                Likelihood::Free if self.are_kept_apart(objects) => Likelihood::Successive,
                likelihood => likelihood,
            };
            if found.is_none_or(|found| likelihood > found) {
                best = Some(Circle {
                    objects: objects.to_vec(),
                    steps: steps.iter().map(|step| (*step).clone()).collect(),
                    likelihood,
                });
            }
        });
        best
    }

    /// True if something seems to keep apart the threads that take two locks in opposite orders.
    fn are_kept_apart(&self, objects: &[ObjectIndex]) -> bool {
        matches!(*objects, [a, b] if self.meetings.are_kept_apart(a, b))
    }

    /// When a thread first and last took a lock while it held another, at any place.
    fn span(&self, held: ObjectIndex, taken: ObjectIndex, thread: ThreadIndex) -> (u64, u64) {
        let all = self.edges.get(&(held, taken)).into_iter().flatten();
        all.filter(|one| one.thread == thread)
            .fold((u64::MAX, 0), |(first, last), one| {
                (first.min(one.first_ns), last.max(one.last_ns))
            })
    }

    /// The reason why a circle is no finding.
    pub(super) fn exclusion(&self, objects: &[ObjectIndex]) -> Exclusion {
        let mut first = None;
        let mut blocks = false;
        if objects.len() <= MAX_CIRCLE_LENGTH {
            let visit = &mut |steps: &[&Circumstance]| match exclusion(steps) {
                Some(exclusion) => _ = first.get_or_insert(exclusion),
                None => blocks = true,
            };
            self.choices(objects, MAX_EXPLAINED_COMBINATIONS, visit);
        }
        first.filter(|_| !blocks).unwrap_or(Exclusion::Limit)
    }

    /// Visits choices of one circumstance for each step of a circle, up to a limit.
    fn choices(
        &self,
        objects: &[ObjectIndex],
        limit: u32,
        visit: &mut dyn FnMut(&[&Circumstance]),
    ) {
        let edges: Vec<&[Circumstance]> = (0..objects.len())
            .map(|at| {
                let edge = (objects[at], objects[(at + 1) % objects.len()]);
                self.edges.get(&edge).map_or(&[][..], Vec::as_slice)
            })
            .collect();
        let mut combinations_left = limit;
        choose(&edges, &mut Vec::new(), &mut combinations_left, visit);
    }
}

/// Removes edges that are in no circle; most programs then have none left.
fn keep_circles(next: &mut HashMap<ObjectIndex, BTreeSet<ObjectIndex>>) {
    loop {
        let before = next.values().map(BTreeSet::len).sum::<usize>();
        let reached: BTreeSet<ObjectIndex> = next.values().flatten().copied().collect();
        next.retain(|object, _| reached.contains(object));
        let going: BTreeSet<ObjectIndex> = next.keys().copied().collect();
        for after in next.values_mut() {
            after.retain(|object| going.contains(object));
        }
        next.retain(|_, after| !after.is_empty());
        if next.values().map(BTreeSet::len).sum::<usize>() == before {
            return;
        }
    }
}

/// Visits all choices of one circumstance per edge.
fn choose<'a>(
    edges: &[&'a [Circumstance]],
    chosen: &mut Vec<&'a Circumstance>,
    combinations_left: &mut u32,
    visit: &mut dyn FnMut(&[&'a Circumstance]),
) {
    let Some(edge) = edges.get(chosen.len()) else {
        *combinations_left = combinations_left.saturating_sub(1);
        return visit(chosen);
    };
    for circumstance in *edge {
        if *combinations_left == 0 {
            return;
        }
        chosen.push(circumstance);
        choose(edges, chosen, combinations_left, visit);
        chosen.pop();
    }
}

/// The reason why threads that each did one of the steps would not wait for each other. `None` if
/// they would.
///
/// Then no lock is common to two steps, no step has a timeout, and each hold excludes the thread of
/// the step before.
fn exclusion(steps: &[&Circumstance]) -> Option<Exclusion> {
    let gate = (0..steps.len()).find_map(|a| {
        let mut gates = steps[a].gates();
        gates.find(|gate| (0..a).any(|b| steps[b].gates().any(|other| other == *gate)))
    });
    let is_shared = |at: usize| {
        let holder = steps[(at + 1) % steps.len()];
        steps[at].taken_shared && holder.held_shared
    };
    match gate {
        Some(gate) => Some(Exclusion::Gate(gate)),
        None if steps.iter().any(|step| step.timed) => Some(Exclusion::TimeLimit),
        None if (0..steps.len()).any(is_shared) => Some(Exclusion::SharedHolds),
        None => None,
    }
}

/// A semaphore that the threads of all steps had taken.
fn common_semaphore(steps: &[&Circumstance]) -> Option<ObjectIndex> {
    let (first, others) = steps.split_first()?;
    let mut semaphores = first.semaphores.iter();
    let common = semaphores.find(|semaphore| {
        others
            .iter()
            .all(|step| step.semaphores.contains(semaphore))
    });
    common.copied()
}
