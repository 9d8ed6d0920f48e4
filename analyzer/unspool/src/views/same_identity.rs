//! Groups synchronization objects of equal identity: a thousand nodes with one lock each are one
//! line.

use std::collections::{BTreeMap, HashMap};

use super::names::middle;
use super::object_name;
use super::text::line::clean;
use crate::model::Key;
use crate::model::calls::PathId;
use crate::model::schedule::add_time;
use crate::model::sync::{
    Contention, Histogram, Object, ObjectIndex, Share, Sync, TimedOut, Use, Waiting, share,
};
use crate::primitives::{Kind, Operation};

/// Objects with the same identity, and the sums of their statistics.
#[derive(Debug, Default)]
pub(super) struct ObjectGroup {
    pub(super) members: Vec<ObjectIndex>,
    /// The array that contains them, if they are grouped as its elements.
    variable: Option<String>,
    pub(super) waits: Histogram,
    pub(super) holds: Histogram,
    pub(super) taken: u64,
    pub(super) longest_queue: usize,
    pub(super) doubtful: bool,
    /// True if all are semaphores that threads use as locks.
    pub(super) used_as_lock: bool,
    /// Their uses, the most frequent first.
    pub(super) uses: Vec<GroupUse>,
    /// Pairs of waiters and holders, the longest waits first.
    pub(super) contention: Vec<Contention>,
}

/// One operation on one path, on any of the objects.
#[derive(Debug)]
pub(super) struct GroupUse {
    /// One of the uses that were added up.
    pub(super) sample: Use,
    pub(super) calls: u64,
    pub(super) waits: Histogram,
    pub(super) timed_out: TimedOut,
    pub(super) holds: Histogram,
    pub(super) shares: Vec<Share>,
}

impl GroupUse {
    /// The identities of the threads.
    pub(super) fn identities(&self) -> Vec<usize> {
        self.shares.iter().map(|share| share.identity).collect()
    }
}

/// All objects, those with the longest waits first.
pub(super) fn of(sync: &Sync) -> Vec<ObjectGroup> {
    sorted(sync, |object| GroupKey::Identity(object.key))
}

/// Like [`of`], but also groups the elements of an array if they are many.
pub(super) fn of_variables(sync: &Sync) -> Vec<ObjectGroup> {
    let mut sizes: HashMap<(Kind, String), usize> = HashMap::new();
    for object in &sync.objects {
        if let Some(variable) = variable(object) {
            *sizes.entry((object.kind, variable)).or_default() += 1;
        }
    }
    sorted(sync, |object| {
        let whole = variable(object).map(|variable| (object.kind, variable));
        match whole.filter(|whole| {
            sizes
                .get(whole)
                .is_some_and(|size| *size >= MIN_GROUPED_ELEMENTS)
        }) {
            Some((kind, variable)) => GroupKey::Elements(kind, variable),
            None => GroupKey::Identity(object.key),
        }
    })
}

/// Minimum number of objects in a variable that are grouped. A structure contains fewer locks.
const MIN_GROUPED_ELEMENTS: usize = 8;

/// The property by which objects are grouped.
#[derive(PartialEq, Eq, Hash)]
enum GroupKey {
    Identity(Key),
    Elements(Kind, String),
}

/// The variable that contains an object, without the place in it: `table` for `table[3].lock`.
fn variable(object: &Object) -> Option<String> {
    let name = object.symbol.as_ref()?.function.as_deref()?;
    Some(name.to_owned())
}

fn sorted(sync: &Sync, group_of: impl Fn(&Object) -> GroupKey) -> Vec<ObjectGroup> {
    let mut all: Vec<ObjectGroup> = Vec::new();
    let mut known: HashMap<GroupKey, usize> = HashMap::new();
    for (index, object) in sync.objects.iter().enumerate() {
        let key = group_of(object);
        let variable = match &key {
            GroupKey::Elements(_, variable) => Some(variable.clone()),
            GroupKey::Identity(_) => None,
        };
        let at = *known.entry(key).or_insert(all.len());
        if at == all.len() {
            all.push(ObjectGroup {
                variable,
                used_as_lock: true,
                ..ObjectGroup::default()
            });
        }
        let group = &mut all[at];
        group.members.push(ObjectIndex(index));
        group.waits.merge(&object.waits);
        group.holds.merge(&object.holds);
        group.taken += object.taken;
        group.longest_queue = group.longest_queue.max(object.longest_queue);
        group.doubtful |= object.doubtful;
        group.used_as_lock &= object.used_as_lock;
        group.contention.extend(object.contention.iter().cloned());
    }
    for group in &mut all {
        group.uses = uses(sync, &group.members);
        group.contention = contention(sync, std::mem::take(&mut group.contention));
    }
    // The sort is stable, so equal groups keep the order of their first use.
    all.sort_by_key(|group| {
        let idle = group.is_idle();
        (idle, std::cmp::Reverse((group.waits.total_ns, group.taken)))
    });
    all
}

impl ObjectGroup {
    /// True if all waits for the objects are waits for work.
    pub(super) fn is_idle(&self) -> bool {
        let mut waited = self
            .uses
            .iter()
            .filter(|used| used.waits.count > 0)
            .peekable();
        waited.peek().is_some() && waited.all(|used| used.sample.waiting == Waiting::Idle)
    }

    /// `mutex lock`, `300 × mutex made in new_node (node.c:12)`.
    pub(super) fn title(&self, sync: &Sync, room: usize) -> String {
        let Some(first) = self.members.first() else {
            return String::new();
        };
        let count = match self.members.len() {
            1 => String::new(),
            count => format!("{count} × "),
        };
        let left = room.saturating_sub(count.len());
        if let Some(variable) = &self.variable {
            let noun = self.kind(sync).noun();
            let room = room.saturating_sub(count.len() + noun.len() + 4).max(12);
            return format!("{count}{noun} in {}", middle(&clean(variable), room));
        }
        match self.members[..] {
            [only] => object_name::one(sync, only, room),
            _ => count + &object_name::shared(sync, *first, left),
        }
    }

    pub(super) fn kind(&self, sync: &Sync) -> Kind {
        let first = self.members.first();
        first.map_or(Kind::Futex, |first| sync.object(*first).kind)
    }
}

fn uses(sync: &Sync, members: &[ObjectIndex]) -> Vec<GroupUse> {
    let mut all: BTreeMap<(Operation, usize), GroupUse> = BTreeMap::new();
    for index in members.iter().flat_map(|member| &sync.object(*member).uses) {
        let used = sync.used(*index);
        let sum = all
            .entry((used.operation, used.path.0))
            .or_insert_with(|| GroupUse {
                sample: used.clone(),
                calls: 0,
                waits: Histogram::default(),
                timed_out: TimedOut::default(),
                holds: Histogram::default(),
                shares: Vec::new(),
            });
        sum.calls += used.calls;
        sum.waits.merge(&used.waits);
        sum.timed_out.merge(used.timed_out);
        sum.holds.merge(&used.holds);
        for part in &used.shares {
            let share = share(&mut sum.shares, part.identity);
            share.calls += part.calls;
            share.taken += part.taken;
            share.waited_ns += part.waited_ns;
        }
    }
    let mut all: Vec<GroupUse> = all.into_values().collect();
    all.sort_by_key(|used| std::cmp::Reverse((used.waits.total_ns, used.calls)));
    all
}

/// Paths of the wait, of the acquisition and of the release; identities of the waiters and holders.
type SumKey = (usize, Option<usize>, Option<PathId>, usize, usize);

/// Adds up contention with equal paths and identities.
fn contention(sync: &Sync, contention: Vec<Contention>) -> Vec<Contention> {
    let mut sums: Vec<Contention> = Vec::new();
    let mut known: HashMap<SumKey, usize> = HashMap::new();
    for pair in contention {
        let path = |used| sync.used(used).path.0;
        let same = (
            path(pair.waiter),
            pair.holder.map(path),
            pair.ended,
            pair.waiting,
            pair.holding,
        );
        let at = *known.entry(same).or_insert(sums.len());
        match sums.get_mut(at) {
            Some(sum) => {
                sum.count += pair.count;
                sum.for_one &= pair.for_one && sum.longest.1 == pair.longest.1;
                sum.total_ns = sum.total_ns.saturating_add(pair.total_ns);
                for (call, ns) in pair.holder_calls {
                    add_time(&mut sum.holder_calls, call, ns);
                }
                if pair.max_ns > sum.max_ns {
                    sum.max_ns = pair.max_ns;
                    sum.longest = pair.longest;
                }
            }
            None => sums.push(pair),
        }
    }
    sums.sort_by_key(|pair| std::cmp::Reverse(pair.total_ns));
    sums
}
