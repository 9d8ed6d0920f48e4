//! Synchronization objects of equal identity as one: a thousand nodes with a lock each are one line.

use std::collections::{BTreeMap, HashMap};

use super::line::clean;
use super::names::middle;
use super::phrase;
use crate::model::Key;
use crate::model::calls::PathId;
use crate::model::sync::{Blame, Object, ObjectIndex, Share, Spread, Sync, Use, Waiting, share};
use crate::primitives::{Kind, Operation};

/// Objects of one identity, and the sums of what happened to them.
#[derive(Debug, Default)]
pub(super) struct Kin {
    pub(super) members: Vec<ObjectIndex>,
    /// The array whose elements they are, if that makes them one.
    variable: Option<String>,
    pub(super) waits: Spread,
    pub(super) holds: Spread,
    pub(super) taken: u64,
    pub(super) longest_queue: usize,
    pub(super) doubtful: bool,
    /// What is done to them and where, the most frequent first.
    pub(super) uses: Vec<KinUse>,
    /// Who made whom wait, the heaviest first.
    pub(super) blames: Vec<Blame>,
}

/// One operation on one path, on any of them.
#[derive(Debug)]
pub(super) struct KinUse {
    /// One of the uses that are summed up.
    pub(super) sample: Use,
    pub(super) calls: u64,
    pub(super) waits: Spread,
    pub(super) holds: Spread,
    pub(super) shares: Vec<Share>,
}

impl KinUse {
    /// Whose they are.
    pub(super) fn identities(&self) -> Vec<usize> {
        self.shares.iter().map(|share| share.identity).collect()
    }
}

/// All objects, those that were waited for longest first.
pub(super) fn of(sync: &Sync) -> Vec<Kin> {
    sorted(sync, |object| Group::Identity(object.key))
}

/// The same, with the many elements of an array as one, too.
pub(super) fn of_variables(sync: &Sync) -> Vec<Kin> {
    let mut sizes: HashMap<(Kind, String), usize> = HashMap::new();
    for object in &sync.objects {
        if let Some(variable) = variable(object) {
            *sizes.entry((object.kind, variable)).or_default() += 1;
        }
    }
    sorted(sync, |object| {
        let whole = variable(object).map(|variable| (object.kind, variable));
        match whole.filter(|whole| sizes.get(whole).is_some_and(|size| *size >= MANY)) {
            Some((kind, variable)) => Group::Elements(kind, variable),
            None => Group::Identity(object.key),
        }
    })
}

/// Locks that stand in one variable by themselves, as in a structure, are fewer.
const MANY: usize = 8;

/// What objects are of one kin by.
#[derive(PartialEq, Eq, Hash)]
enum Group {
    Identity(Key),
    Elements(Kind, String),
}

/// The variable that an object is part of, without the place in it: `table` of `table[3].lock`.
fn variable(object: &Object) -> Option<String> {
    let name = object.symbol.as_ref()?.function.as_deref()?;
    Some(name.to_owned())
}

fn sorted(sync: &Sync, group_of: impl Fn(&Object) -> Group) -> Vec<Kin> {
    let mut all: Vec<Kin> = Vec::new();
    let mut known: HashMap<Group, usize> = HashMap::new();
    for (index, object) in sync.objects.iter().enumerate() {
        let group = group_of(object);
        let variable = match &group {
            Group::Elements(_, variable) => Some(variable.clone()),
            Group::Identity(_) => None,
        };
        let at = *known.entry(group).or_insert(all.len());
        if at == all.len() {
            all.push(Kin {
                variable,
                ..Kin::default()
            });
        }
        let kin = &mut all[at];
        kin.members.push(ObjectIndex(index));
        kin.waits.merge(&object.waits);
        kin.holds.merge(&object.holds);
        kin.taken += object.taken;
        kin.longest_queue = kin.longest_queue.max(object.longest_queue);
        kin.doubtful |= object.doubtful;
        kin.blames.extend(object.blames.iter().cloned());
    }
    for kin in &mut all {
        kin.uses = uses(sync, &kin.members);
        kin.blames = blames(sync, std::mem::take(&mut kin.blames));
    }
    // Sorting is stable: otherwise in the order of their first use.
    all.sort_by_key(|kin| {
        let idle = kin.is_idle();
        (idle, std::cmp::Reverse((kin.waits.total_ns, kin.taken)))
    });
    all
}

impl Kin {
    /// All waiting for it is waiting for work.
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
        if let Some(variable) = &self.variable {
            let noun = self.kind(sync).noun();
            let room = room.saturating_sub(count.len() + noun.len() + 4).max(12);
            return format!("{count}{noun} in {}", middle(&clean(variable), room));
        }
        format!(
            "{count}{}",
            phrase::object(sync, *first, room.saturating_sub(count.len()))
        )
    }

    pub(super) fn kind(&self, sync: &Sync) -> Kind {
        let first = self.members.first();
        first.map_or(Kind::Futex, |first| sync.object(*first).kind)
    }
}

fn uses(sync: &Sync, members: &[ObjectIndex]) -> Vec<KinUse> {
    let mut all: BTreeMap<(Operation, usize), KinUse> = BTreeMap::new();
    for index in members.iter().flat_map(|member| &sync.object(*member).uses) {
        let used = sync.used(*index);
        let sum = all
            .entry((used.operation, used.path.0))
            .or_insert_with(|| KinUse {
                sample: used.clone(),
                calls: 0,
                waits: Spread::default(),
                holds: Spread::default(),
                shares: Vec::new(),
            });
        sum.calls += used.calls;
        sum.waits.merge(&used.waits);
        sum.holds.merge(&used.holds);
        for part in &used.shares {
            let share = share(&mut sum.shares, part.identity);
            share.calls += part.calls;
            share.waited_ns += part.waited_ns;
        }
    }
    let mut all: Vec<KinUse> = all.into_values().collect();
    all.sort_by_key(|used| std::cmp::Reverse((used.waits.total_ns, used.calls)));
    all
}

/// Paths of the wait, of the taking and of the end; identities of who waited and who held.
type Alike = (usize, Option<usize>, Option<PathId>, usize, usize);

/// Blames of the same paths and identities as one.
fn blames(sync: &Sync, blames: Vec<Blame>) -> Vec<Blame> {
    let mut sums: Vec<Blame> = Vec::new();
    let mut known: HashMap<Alike, usize> = HashMap::new();
    for blame in blames {
        let path = |used| sync.used(used).path.0;
        let same = (
            path(blame.waiter),
            blame.holder.map(path),
            blame.ended,
            blame.waiting,
            blame.holding,
        );
        let at = *known.entry(same).or_insert(sums.len());
        match sums.get_mut(at) {
            Some(sum) => {
                sum.count += blame.count;
                sum.for_one &= blame.for_one && sum.longest.1 == blame.longest.1;
                sum.total_ns = sum.total_ns.saturating_add(blame.total_ns);
                if blame.max_ns > sum.max_ns {
                    sum.max_ns = blame.max_ns;
                    sum.longest = blame.longest;
                }
            }
            None => sums.push(blame),
        }
    }
    sums.sort_by_key(|blame| std::cmp::Reverse(blame.total_ns));
    sums
}
