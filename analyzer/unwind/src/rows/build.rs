//! Collects rows in any order and packs them: interns rules, removes overlaps, builds blocks.

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;

use unspool_image::Arch;

use super::Rows;
use super::blocks::{Filler, GAP};
use super::quick::Quick;
use super::runs::Runs;
use crate::registers::{Roles, roles};
use crate::rule::{Cfa, Expression, Place, Row, Source};

/// A rule as a source states it, before interning.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) cfa: Cfa,
    pub(crate) ra: Place,
    pub(crate) saved: &'a [(u8, Place)],
    pub(crate) signal_frame: bool,
    pub(crate) signed: bool,
}

/// An interned list of saved registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SavedId(u32);

/// An interned rule without its CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RestId(u32);

/// A change from one interned rule to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The return address is at this place.
    Ra(Place),
    /// The register is saved at this place, or not saved.
    Saved(u8, Option<Place>),
    /// The return address becomes signed or unsigned.
    Sign,
}

/// Collects rows in any order.
#[derive(Debug)]
pub(crate) struct Builder {
    source: Source,
    arch: Arch,
    roles: &'static Roles,
    runs: Runs,
    hasher: DefaultHashBuilder,
    /// Rules: packed [`Cfa`] and return address, saved list, flags.
    rules: Vec<[u64; 3]>,
    rule_ids: HashMap<[u64; 3], u32>,
    /// The last rule of each hash. Most rows find their rule here.
    recent: Box<[([u64; 3], u32); RECENT]>,
    /// The saved lists one after the other, and the end of each.
    saved: Vec<u64>,
    saved_ends: Vec<u32>,
    saved_ids: HashTable<u32>,
    /// Packed return addresses, saved lists and flags.
    rests: Vec<[u64; 2]>,
    rest_ids: HashMap<[u64; 2], u32>,
    /// A cache of [`Builder::step`], by hash: a rest, the change, and the resulting rest.
    steps: Box<[(RestId, u64, RestId); RECENT]>,
    /// The rule's number plus one, indexed by the rest, and by the distance from the stack pointer
    /// to the CFA in pointers.
    shallow: Vec<u32>,
    expressions: Vec<Box<[u8]>>,
    expression_ids: HashMap<Box<[u8]>, u32>,
}

const RECENT: usize = 512;
/// Distances below this have an entry in `shallow`, for this many rests.
const SHALLOW: u32 = 64;
const RESTS: u32 = 4096;
const SIGNAL: u64 = 1;
const SIGNED: u64 = 2;

impl Builder {
    pub(crate) fn new(source: Source, arch: Arch) -> Self {
        Builder {
            source,
            arch,
            roles: roles(arch),
            runs: Runs::new(),
            hasher: DefaultHashBuilder::default(),
            rules: Vec::new(),
            rule_ids: HashMap::new(),
            recent: Box::new([([u64::MAX; 3], 0); RECENT]),
            saved: Vec::new(),
            // The empty list.
            saved_ends: vec![0],
            saved_ids: HashTable::new(),
            rests: Vec::new(),
            rest_ids: HashMap::new(),
            steps: Box::new([(RestId(0), u64::MAX, RestId(0)); RECENT]),
            shallow: Vec::new(),
            expressions: Vec::new(),
            expression_ids: HashMap::new(),
        }
    }

    /// Reserves memory for `bytes` bytes of call frame information.
    pub(crate) fn make_room(&mut self, bytes: usize) {
        self.runs.reserve(bytes / 5, bytes / 40);
    }

    /// Stores an expression's bytes.
    pub(crate) fn expression(&mut self, bytes: &[u8]) -> Expression {
        if let Some(&id) = self.expression_ids.get(bytes) {
            return Expression(id);
        }
        let id = self.expressions.len() as u32;
        self.expressions.push(bytes.into());
        self.expression_ids.insert(bytes.into(), id);
        Expression(id)
    }

    /// Adds a row for `start..end`. Where rows overlap, the row that starts first wins, then the
    /// one added first.
    pub(crate) fn push(&mut self, start: u64, end: u64, draft: &Draft<'_>) {
        let saved = self.saved(draft.saved.iter().map(|&(n, place)| entry(n, place.pack())));
        self.push_from(self.source, start, end, draft, saved);
    }

    /// Interns a list of [`entry`]s that is sorted by register.
    fn saved(&mut self, list: impl Iterator<Item = u64>) -> SavedId {
        let first = self.saved.len();
        self.saved.extend(list);
        self.intern_last(first)
    }

    /// Interns the last list in `saved`, which starts at `first`.
    fn intern_last(&mut self, first: usize) -> SavedId {
        let list = &self.saved[first..];
        if list.is_empty() {
            return SavedId(0);
        }
        let hash = self.hasher.hash_one(list);
        let (saved, ends) = (&self.saved, &self.saved_ends);
        let known = self
            .saved_ids
            .find(hash, |&id| saved_list(saved, ends, id) == list);
        if let Some(&id) = known {
            self.saved.truncate(first);
            return SavedId(id);
        }
        let id = self.saved_ends.len() as u32;
        self.saved_ends.push(self.saved.len() as u32);
        let (saved, ends, hasher) = (&self.saved, &self.saved_ends, &self.hasher);
        self.saved_ids
            .insert_unique(hash, id, |&id| hasher.hash_one(saved_list(saved, ends, id)));
        SavedId(id)
    }

    /// The interned rest of a rule that saves no register.
    pub(crate) fn rest(&mut self, ra: Place, signal_frame: bool) -> RestId {
        let flags = flags(self.source, signal_frame, false);
        self.rest_id([ra.pack(), flags])
    }

    fn rest_id(&mut self, rest: [u64; 2]) -> RestId {
        let rests = &mut self.rests;
        RestId(*self.rest_ids.entry(rest).or_insert_with(|| {
            rests.push(rest);
            rests.len() as u32 - 1
        }))
    }

    /// The place of the return address.
    pub(crate) fn ra(&self, rest: RestId) -> Place {
        Place::unpack(self.rests[rest.0 as usize][0])
    }

    /// The place of a saved register.
    pub(crate) fn place(&self, rest: RestId, number: u8) -> Option<Place> {
        let list = (self.rests[rest.0 as usize][1] >> 32) as u32;
        let list = saved_list(&self.saved, &self.saved_ends, list);
        let known = list.iter().find(|word| *word >> 56 == u64::from(number))?;
        Some(Place::unpack(known & !(0xff << 56)))
    }

    /// Applies `change` to `rest`. Most results are cached.
    #[inline]
    pub(crate) fn step(&mut self, rest: RestId, change: Change) -> RestId {
        // No place has these bits.
        let what = match change {
            Change::Saved(number, Some(place)) => entry(number, place.pack()),
            Change::Saved(number, None) => entry(number, 1 << 55),
            Change::Ra(place) => 1 << 54 | place.pack(),
            Change::Sign => 1 << 53,
        };
        let mixed = (what ^ u64::from(rest.0) << 44).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (mixed >> 40) as usize % RECENT;
        let (from, by, to) = self.steps[at];
        if from == rest && by == what {
            return to;
        }
        let made = self.changed(rest, change);
        self.steps[at] = (rest, what, made);
        made
    }

    #[cold]
    fn changed(&mut self, rest: RestId, change: Change) -> RestId {
        let [ra, other] = self.rests[rest.0 as usize];
        let made = match change {
            Change::Ra(place) => [place.pack(), other],
            Change::Sign => [ra, other ^ SIGNED],
            Change::Saved(number, place) => {
                let saved = self.saved_with((other >> 32) as u32, number, place);
                [ra, u64::from(saved.0) << 32 | other & 0xffff_ffff]
            }
        };
        self.rest_id(made)
    }

    /// Interns a copy of `list` in which one register is saved at `place`, or not saved.
    fn saved_with(&mut self, list: u32, number: u8, place: Option<Place>) -> SavedId {
        let first = self.saved.len();
        let end = self.saved_ends[list as usize] as usize;
        let start = end - saved_list(&self.saved, &self.saved_ends, list).len();
        let is_before = |word: &u64| *word >> 56 < u64::from(number);
        let split = start + self.saved[start..end].partition_point(is_before);
        let known = split < end && self.saved[split] >> 56 == u64::from(number);
        self.saved.extend_from_within(start..split);
        self.saved
            .extend(place.map(|place| entry(number, place.pack())));
        self.saved
            .extend_from_within(split + usize::from(known)..end);
        self.intern_last(first)
    }

    /// Like [`Builder::push`], for a rule given as CFA and rest.
    #[inline]
    pub(crate) fn push_rest(&mut self, start: u64, end: u64, cfa: Cfa, rest: RestId) {
        if start >= end {
            return;
        }
        // The offset in pointers. A rotation is faster than a division. It makes an offset large
        // that is not a multiple of a pointer.
        let unit = self.roles.pointer.trailing_zeros();
        let depth = match cfa {
            Cfa::Register { register, offset } if register == self.roles.sp => {
                (offset as u32).rotate_right(unit)
            }
            _ => u32::MAX,
        };
        let id = if depth < SHALLOW && rest.0 < RESTS {
            let at = (rest.0 * SHALLOW + depth) as usize;
            match self.shallow.get(at) {
                Some(&id) if id != 0 => id - 1,
                _ => {
                    let id = self.rest_rule(cfa, rest);
                    if self.shallow.len() <= at {
                        self.shallow.resize(at + SHALLOW as usize, 0);
                    }
                    self.shallow[at] = id + 1;
                    id
                }
            }
        } else {
            self.rest_rule(cfa, rest)
        };
        self.runs.push(start, end, id);
    }

    fn rest_rule(&mut self, cfa: Cfa, rest: RestId) -> u32 {
        let [ra, other] = self.rests[rest.0 as usize];
        self.rule_id([cfa.pack(), ra, other])
    }

    /// Adds a row of another table, with its source.
    pub(crate) fn copy(&mut self, from: &Rows, row: &Row<'_>) {
        let mut moved = |place: Place| match place {
            Place::AtExpression(id) => Place::AtExpression(self.expression(from.expression(id))),
            Place::Value(id) => Place::Value(self.expression(from.expression(id))),
            place => place,
        };
        let ra = moved(row.rule.ra);
        let saved: Vec<u64> = row
            .rule
            .saved
            .iter()
            .map(|&(number, place)| entry(number, moved(place).pack()))
            .collect();
        let cfa = match row.rule.cfa {
            Cfa::Expression(id) => Cfa::Expression(self.expression(from.expression(id))),
            cfa => cfa,
        };
        let draft = Draft {
            cfa,
            ra,
            saved: &[],
            signal_frame: row.rule.signal_frame,
            signed: row.rule.signed,
        };
        let saved = self.saved(saved.into_iter());
        self.push_from(row.source, row.start, row.end, &draft, saved);
    }

    /// The number in this builder of a rule from another builder.
    pub(crate) fn adopt(&mut self, other: &Builder, id: u32) -> u32 {
        let [cfa, ra, rest] = other.rules[id as usize];
        let mut moved = |place: Place| match place {
            Place::AtExpression(id) => Place::AtExpression(self.expression(other.bytes(id))),
            Place::Value(id) => Place::Value(self.expression(other.bytes(id))),
            place => place,
        };
        let list = saved_list(&other.saved, &other.saved_ends, (rest >> 32) as u32);
        let saved: Vec<u64> = list
            .iter()
            .map(|&word| {
                let place = moved(Place::unpack(word & !(0xff << 56)));
                entry((word >> 56) as u8, place.pack())
            })
            .collect();
        let ra = moved(Place::unpack(ra)).pack();
        let cfa = match Cfa::unpack(cfa) {
            Cfa::Expression(id) => Cfa::Expression(self.expression(other.bytes(id))).pack(),
            _ => cfa,
        };
        let saved = self.saved(saved.into_iter());
        self.rule_id([cfa, ra, u64::from(saved.0) << 32 | rest & 0xffff_ffff])
    }

    fn bytes(&self, expression: Expression) -> &[u8] {
        &self.expressions[expression.0 as usize]
    }

    fn push_from(
        &mut self,
        source: Source,
        start: u64,
        end: u64,
        draft: &Draft<'_>,
        saved: SavedId,
    ) {
        if start < end {
            let id = self.intern(source, draft, saved);
            self.push_rule(start, end, id);
        }
    }

    /// Interns a rule for which rows may follow. Returns its number.
    pub(crate) fn rule(&mut self, draft: &Draft<'_>) -> u32 {
        let saved = self.saved(draft.saved.iter().map(|&(n, place)| entry(n, place.pack())));
        self.intern(self.source, draft, saved)
    }

    /// Like [`Builder::push`], for the rule with this number.
    #[inline]
    pub(crate) fn push_rule(&mut self, start: u64, end: u64, id: u32) {
        self.runs.push(start, end, id);
    }

    fn intern(&mut self, source: Source, draft: &Draft<'_>, saved: SavedId) -> u32 {
        let flags = flags(source, draft.signal_frame, draft.signed);
        let rule = [
            draft.cfa.pack(),
            draft.ra.pack(),
            u64::from(saved.0) << 32 | flags,
        ];
        self.rule_id(rule)
    }

    #[inline]
    fn rule_id(&mut self, rule: [u64; 3]) -> u32 {
        let mixed = rule[0]
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(rule[1].wrapping_mul(0xbf58_476d_1ce4_e5b9))
            .wrapping_add(rule[2].wrapping_mul(0x94d0_49bb_1331_11eb));
        let recent = &mut self.recent[(mixed >> 40) as usize % (RECENT)];
        // Compared word by word. A vector comparison would wait for the words that were just
        // written.
        let same = recent.0[0] == rule[0] && recent.0[1] == rule[1] && recent.0[2] == rule[2];
        if !same {
            let rules = &mut self.rules;
            let id = *self.rule_ids.entry(rule).or_insert_with(|| {
                rules.push(rule);
                rules.len() as u32 - 1
            });
            *recent = (rule, id);
        }
        recent.1
    }

    /// Packs the collected rows.
    pub(crate) fn finish(mut self) -> Rows {
        let numbers = by_use(self.runs.uses());
        let runs = std::mem::replace(&mut self.runs, Runs::new()).sort();
        let mut packed = Rows::empty(self.arch, runs.base());
        let mut id_of = vec![GAP; self.rules.len()];
        for (id, rule) in (1..(1 << 20) - 1).zip(&numbers) {
            id_of[*rule as usize] = id;
        }
        for rule in numbers.iter() {
            self.pack_rule(self.rules[*rule as usize], &mut packed);
        }
        let (most, last) = runs.extent();
        let mut blocks = Filler::new(most, last, numbers.len() + 1);
        runs.for_each_row(|start, rule| {
            blocks.put(start, id_of.get(rule as usize).copied().unwrap_or(GAP));
        });
        packed.blocks = blocks.finish();
        for bytes in &self.expressions {
            packed.expression_bytes.extend(&bytes[..]);
            packed
                .expression_ends
                .push(packed.expression_bytes.len() as u32);
        }
        packed
    }

    fn pack_rule(&self, [cfa, ra, rest]: [u64; 3], packed: &mut Rows) {
        let list = saved_list(&self.saved, &self.saved_ends, (rest >> 32) as u32);
        let saved = packed.pack_saved((rest >> 32) as u32, list);
        let quick = Quick::new(
            self.arch,
            Source::from_number(rest >> 2),
            Cfa::unpack(cfa),
            Place::unpack(ra),
            list.iter()
                .map(|&word| ((word >> 56) as u8, Place::unpack(word & !(0xff << 56)))),
            rest & SIGNED != 0,
            rest & SIGNAL != 0,
        );
        packed.push_rule(quick, cfa, ra, rest & 0xff, saved);
    }
}

fn flags(source: Source, signal_frame: bool, signed: bool) -> u64 {
    (source as u64) << 2 | if signal_frame { SIGNAL } else { 0 } | if signed { SIGNED } else { 0 }
}

/// One saved register in the form that [`Builder::saved`] takes.
fn entry(number: u8, place: u64) -> u64 {
    u64::from(number) << 56 | place
}

fn saved_list<'a>(saved: &'a [u64], ends: &[u32], id: u32) -> &'a [u64] {
    let id = id as usize;
    let start = id.checked_sub(1).map_or(0, |before| ends[before] as usize);
    &saved[start..ends[id] as usize]
}

/// Renumbers rules by use, so that the rules of most rows share cache lines.
fn by_use(uses: &[u32]) -> Vec<u32> {
    let mut used: Vec<u32> = (0..uses.len() as u32)
        .filter(|rule| uses[*rule as usize] > 0)
        .collect();
    used.sort_by_key(|rule| std::cmp::Reverse(uses[*rule as usize]));
    used
}
