//! Threads of several identities with one function, any of which may do the same work.
//!
//! Two threads are created in two places, and the first to take a ticket does most of the work. In
//! another run it is the other thread. Then the differences of each thread say nothing, and those
//! of both together say what changed. Only such threads are compared as one, because threads with
//! one function can also have tasks of their own.

use super::effects::{noise_floor, of_threads};
use super::join::Joined;
use super::run::{Role, ThreadFacts};
use super::spread::Change;
use super::{Sides, Subject, ThreadChange};

/// The changes of threads. Identities between which work moves have one.
pub(super) fn changes(
    threads: Vec<Joined<ThreadFacts>>,
    sides: &Sides,
    net_ns: &Change,
) -> Vec<ThreadChange> {
    let least = noise_floor(net_ns);
    let mut groups: Vec<Vec<Joined<ThreadFacts>>> = Vec::new();
    for threads in threads {
        let like = |group: &&mut Vec<Joined<ThreadFacts>>| {
            role(&threads).is_some() && role(&group[0]) == role(&threads)
        };
        match groups.iter_mut().find(like) {
            Some(group) => group.push(threads),
            None => groups.push(vec![threads]),
        }
    }
    let mut all = Vec::new();
    for group in groups {
        let mut whole = group[0].clone();
        for other in &group[1..] {
            whole.merge(other, ThreadFacts::merge);
        }
        let members: Vec<ThreadChange> = group.iter().map(|one| sides.threads(one)).collect();
        let whole = ThreadChange {
            identities: members.len(),
            ..sides.threads(&whole)
        };
        match members.len() > 1 && is_one(&members, &whole, least) {
            true => all.push(whole),
            false => all.extend(members),
        }
    }
    all
}

/// True if the differences of these threads are not the parts of the difference of the whole.
fn is_one(members: &[ThreadChange], whole: &ThreadChange, least: u64) -> bool {
    let effect_ns = |threads: &ThreadChange| {
        let effect = of_threads(Subject::Threads(0), threads, least);
        if effect.is_noise { 0 } else { effect.effect_ns }
    };
    let has_opposites = |values: &[i64], limit: i64| {
        let exceeds = |sign: i64| values.iter().any(|ns| ns * sign > limit);
        exceeds(1) && exceeds(-1)
    };
    let limit = i64::try_from(least.max(whole.path_ns.noise_ns)).unwrap_or(i64::MAX);
    let effects: Vec<i64> = members.iter().map(effect_ns).collect();
    let paths: Vec<i64> = members.iter().map(|one| one.path_ns.delta()).collect();
    let sum: i64 = effects.iter().sum();
    let is_sum = |ns: i64| (sum - ns).abs() <= limit;
    let whole_ns = effect_ns(whole);
    let moves = has_opposites(&paths, limit);
    has_opposites(&effects, 0)
        || moves && !is_sum(whole_ns) && !is_sum(whole.path_ns.delta())
        || whole_ns != 0 && effects.iter().all(|ns| *ns == 0)
}

fn role(threads: &Joined<ThreadFacts>) -> Option<Role<'_>> {
    threads.sample().and_then(ThreadFacts::role)
}
