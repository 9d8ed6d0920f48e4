//! Joins threads, objects and functions of several recordings by their identity.
//!
//! Keys are equal in every run of one build. After a rebuild, addresses differ, so names decide: of
//! the function, and of the functions on the creation stack. A program without symbols has no
//! names. Then candidates that look alike are joined in the order of their addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::Key;
use crate::model::backtrace::Place;

/// What identifies a thread, an object or a function.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Identity {
    /// The key, equal in each run of one build.
    pub(super) key: Option<Key>,
    /// The build of the executable, if known.
    pub(super) build: Option<Arc<str>>,
    /// The names of all functions on its stack, with modules instead of missing names.
    pub(super) full: String,
    /// The name that remains if the stack changes.
    pub(super) short: Option<String>,
    /// The modules on its stack.
    pub(super) bare: String,
    /// True if `full` has all names.
    pub(super) is_named: bool,
    /// Addresses that order candidates with equal names.
    pub(super) order: Vec<u64>,
    /// Its own name; candidates with equal names are more alike.
    pub(super) own_name: String,
    /// Number of members, and their time; similar candidates are more alike.
    pub(super) size: (u64, u64),
}

/// The name of a place: its function, otherwise its module. The executable's own name is left out,
/// because a rebuilt program may have another.
pub(super) fn label(place: Option<&Place>, executable: &str, out: &mut String) -> bool {
    let module = place.and_then(Place::module_name).unwrap_or("?");
    if module != executable {
        out.push_str(module);
    }
    out.push('!');
    match place.and_then(|place| place.function.as_deref()) {
        Some(function) => out.push_str(function),
        None => out.push('?'),
    }
    place.is_some_and(|place| place.function.is_some())
}

/// A candidate for joining.
pub(super) trait Identified {
    fn identity(&self) -> &Identity;
}

/// One thing in all recordings.
#[derive(Clone, Debug)]
pub(super) struct Joined<T> {
    /// Per recording, what it has of the thing.
    pub(super) runs: Vec<Option<T>>,
    /// Its identities in the recordings so far.
    seen: Vec<Identity>,
}

impl<T> Joined<T> {
    /// The first recorded one.
    pub(super) fn sample(&self) -> Option<&T> {
        self.runs.iter().flatten().next()
    }

    /// Adds another thing, whose parts of a recording become parts of this.
    pub(super) fn merge(&mut self, other: &Joined<T>, merge: impl Fn(&mut T, &T))
    where
        T: Clone,
    {
        for (run, part) in self.runs.iter_mut().zip(&other.runs) {
            match (run, part) {
                (Some(run), Some(part)) => merge(run, part),
                (run @ None, part) => run.clone_from(part),
                (Some(_), None) => {}
            }
        }
        self.seen.extend(other.seen.iter().cloned());
    }
}

/// Joins the things of several recordings.
pub(super) fn join<T: Identified>(runs: Vec<Vec<T>>) -> Vec<Joined<T>> {
    let count = runs.len();
    let mut all: Vec<Joined<T>> = Vec::new();
    for (run, things) in runs.into_iter().enumerate() {
        let places = places(&all, &things);
        for (thing, place) in things.into_iter().zip(places) {
            let at = place.unwrap_or(all.len());
            if at == all.len() {
                all.push(Joined {
                    runs: (0..count).map(|_| None).collect(),
                    seen: Vec::new(),
                });
            }
            let joined = &mut all[at];
            if !joined.seen.contains(thing.identity()) {
                joined.seen.push(thing.identity().clone());
            }
            joined.runs[run] = Some(thing);
        }
    }
    all
}

/// Per candidate, its place among the known things.
fn places<T: Identified>(known: &[Joined<T>], things: &[T]) -> Vec<Option<usize>> {
    let mut latest = known.iter().filter_map(|known| known.seen.last());
    let mut own = things.iter().map(Identified::identity);
    let all_named = latest.all(|known| known.is_named) && own.all(|own| own.is_named);
    let mut search = Search {
        known: known.iter().map(|known| &known.seen[..]).collect(),
        things: things.iter().map(Identified::identity).collect(),
        taken: vec![false; known.len()],
        places: vec![None; things.len()],
    };
    search.by_key();
    search.by_label(|identity, is_same_build| {
        let usable = identity.is_named || !is_same_build;
        usable.then(|| identity.full.clone())
    });
    search.by_label(|identity, _| identity.short.clone());
    search.by_label(|identity, is_same_build| {
        let is_told_by_name = identity.is_named && all_named;
        let usable = !(is_same_build || is_told_by_name);
        usable.then(|| identity.bare.clone())
    });
    search.places
}

/// True if both come from one build, so that their keys can be compared.
fn is_same_build(one: &Identity, other: Option<&Identity>) -> bool {
    other.is_some_and(|other| one.build.is_some() && one.build == other.build)
}

struct Search<'a> {
    /// The identities of each known thing, the latest last.
    known: Vec<&'a [Identity]>,
    things: Vec<&'a Identity>,
    taken: Vec<bool>,
    places: Vec<Option<usize>>,
}

impl Search<'_> {
    /// Joins equal keys of one build. Of different or unknown builds, the names must be equal, too.
    fn by_key(&mut self) {
        let mut by_key: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (at, seen) in self.known.iter().enumerate() {
            for key in seen.iter().filter_map(|identity| identity.key) {
                let places = by_key.entry(key).or_default();
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
        }
        for (index, thing) in self.things.iter().enumerate() {
            let Some(places) = thing.key.and_then(|key| by_key.get(&key)) else {
                continue;
            };
            let equal = |seen: &Identity| {
                let names = thing.is_named && seen.full == thing.full;
                seen.key == thing.key && (is_same_build(thing, Some(seen)) || names)
            };
            let mut free = places.iter().filter(|at| !self.taken[**at]);
            if let Some(at) = free.find(|at| self.known[**at].iter().any(equal)) {
                self.taken[*at] = true;
                self.places[index] = Some(*at);
            }
        }
    }

    /// Joins known things and candidates with the same label. `label` gets a thing, and whether it
    /// is a known one from the build of the candidates.
    fn by_label(&mut self, label: impl Fn(&Identity, bool) -> Option<String>) {
        type Sides = (Vec<usize>, Vec<usize>);
        let mut sides: BTreeMap<String, Sides> = BTreeMap::new();
        let latest = |at: usize| self.known[at].last();
        let candidate = self.things.first().copied();
        for at in (0..self.known.len()).filter(|at| !self.taken[*at]) {
            let label = latest(at).and_then(|known| label(known, is_same_build(known, candidate)));
            if let Some(label) = label {
                sides.entry(label).or_default().0.push(at);
            }
        }
        for (index, thing) in self.things.iter().enumerate() {
            if self.places[index].is_none()
                && let Some(label) = label(thing, false)
                && let Some((_, things)) = sides.get_mut(&label)
            {
                things.push(index);
            }
        }
        for (mut known, mut things) in sides.into_values() {
            known.sort_by_key(|at| latest(*at).map(|identity| &identity.order));
            things.sort_by_key(|index| &self.things[*index].order);
            let likeness = |at: usize, index: usize| {
                latest(known[at]).map_or(f64::MAX, |one| distance(one, self.things[things[index]]))
            };
            for (at, index) in aligned(known.len(), things.len(), likeness) {
                self.taken[known[at]] = true;
                self.places[things[index]] = Some(known[at]);
            }
        }
    }
}

/// How unlike two candidates with the same label are.
fn distance(one: &Identity, other: &Identity) -> f64 {
    let ratio = |a: u64, b: u64| ((a + 1) as f64 / (b + 1) as f64).ln().abs();
    let name = f64::from(u8::from(one.own_name != other.own_name));
    2.0 * ratio(one.size.0, other.size.0)
        + ratio(one.size.1 / 1_000_000, other.size.1 / 1_000_000)
        + 4.0 * name
}

/// Pairs two lists without changing their order, so that all of the shorter one have partners and
/// the sum of the distances is minimal.
fn aligned(
    known: usize,
    things: usize,
    distance: impl Fn(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    /// Longer lists are paired from the beginning.
    const MAX_CELLS: usize = 4_000_000;
    if known == things || known.saturating_mul(things) > MAX_CELLS {
        return (0..known.min(things)).map(|at| (at, at)).collect();
    }
    let (short, long) = (known.min(things), known.max(things));
    let pair = |a: usize, b: usize| match known < things {
        true => (a, b),
        false => (b, a),
    };
    // sums[a][b]: the least sum for the first a of the shorter and the first b of the longer list.
    let mut sums = vec![vec![f64::INFINITY; long + 1]; short + 1];
    sums[0].fill(0.0);
    for a in 1..=short {
        for b in a..=long {
            let (x, y) = pair(a - 1, b - 1);
            let with = sums[a - 1][b - 1] + distance(x, y);
            sums[a][b] = with.min(sums[a][b - 1]);
        }
    }
    let (mut a, mut b) = (short, long);
    let mut pairs = Vec::new();
    while a > 0 {
        if b > a && sums[a][b] == sums[a][b - 1] {
            b -= 1;
            continue;
        }
        (a, b) = (a - 1, b - 1);
        pairs.push(pair(a, b));
    }
    pairs
}
