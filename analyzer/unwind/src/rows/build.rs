//! Collecting rows in any order and packing them: interned rules, no overlaps, buckets.

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::hash::BuildHasher;
use std::ops::Range;

use unspool_image::Arch;

use super::quick::Quick;
use super::{GAP, Rows, WINDOW};
use crate::rule::{Cfa, Expression, Place, Row, Source};

/// Rows a bucket has on average, at most.
const ROWS_PER_BUCKET: u64 = 10;

/// A rule as a source states it, before interning.
#[derive(Clone, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) cfa: Cfa,
    pub(crate) ra: Place,
    pub(crate) saved: &'a [(u8, Place)],
    pub(crate) signal_frame: bool,
    pub(crate) signed: bool,
}

/// A list of saved registers that was interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SavedId(u32);

/// Collects rows in any order.
#[derive(Debug)]
pub(crate) struct Builder {
    source: Source,
    arch: Arch,
    /// Lengths and rules.
    rows: Vec<(u32, u32)>,
    runs: Vec<Run>,
    hasher: DefaultHashBuilder,
    /// Rules: [`Cfa`] and return address packed, saved list, flags.
    rules: Vec<[u64; 3]>,
    rule_ids: HashMap<[u64; 3], u32>,
    /// The last rule of each hash: most rows find theirs here.
    recent: Box<[([u64; 3], u32); RECENT]>,
    /// Saved lists one after the other, and where each ends.
    saved: Vec<u64>,
    saved_ends: Vec<u32>,
    saved_ids: HashTable<u32>,
    expressions: Vec<Box<[u8]>>,
    expression_ids: HashMap<Box<[u8]>, u32>,
}

const RECENT: usize = 512;
const SIGNAL: u64 = 1;
const SIGNED: u64 = 2;

impl Builder {
    pub(crate) fn new(source: Source, arch: Arch) -> Self {
        Builder {
            source,
            arch,
            rows: Vec::new(),
            runs: Vec::new(),
            hasher: DefaultHashBuilder::default(),
            rules: Vec::new(),
            rule_ids: HashMap::new(),
            recent: Box::new([([u64::MAX; 3], 0); RECENT]),
            saved: Vec::new(),
            saved_ends: Vec::new(),
            saved_ids: HashTable::new(),
            expressions: Vec::new(),
            expression_ids: HashMap::new(),
        }
    }

    /// Keep an expression's bytes.
    pub(crate) fn expression(&mut self, bytes: &[u8]) -> Expression {
        if let Some(&id) = self.expression_ids.get(bytes) {
            return Expression(id);
        }
        let id = self.expressions.len() as u32;
        self.expressions.push(bytes.into());
        self.expression_ids.insert(bytes.into(), id);
        Expression(id)
    }

    /// Add a row for `start..end`; where rows overlap, the one that starts first stays, then the one
    /// added first.
    pub(crate) fn push(&mut self, start: u64, end: u64, draft: &Draft<'_>) {
        let saved = self.saved(draft.saved.iter().map(|&(n, place)| entry(n, place.pack())));
        self.push_saved(start, end, draft, saved);
    }

    /// Intern a list made of [`entry`]s, in order of register.
    pub(crate) fn saved(&mut self, list: impl Iterator<Item = u64>) -> SavedId {
        let first = self.saved.len();
        self.saved.extend(list);
        let list = &self.saved[first..];
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

    /// As [`Builder::push`], of which `draft.saved` was interned as `saved`.
    pub(crate) fn push_saved(&mut self, start: u64, end: u64, draft: &Draft<'_>, saved: SavedId) {
        self.push_from(self.source, start, end, draft, saved);
    }

    /// Add another table's row, with the source it has there.
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

    /// Keep a rule, of which rows may say later where it holds. Returns its number.
    pub(crate) fn rule(&mut self, draft: &Draft<'_>) -> u32 {
        let saved = self.saved(draft.saved.iter().map(|&(n, place)| entry(n, place.pack())));
        self.intern(self.source, draft, saved)
    }

    /// As [`Builder::push`] of the rule with this number.
    pub(crate) fn push_rule(&mut self, start: u64, end: u64, id: u32) {
        if start >= end {
            return;
        }
        // None is 4 GiB long that is not damage.
        let len = u32::try_from(end - start).unwrap_or(u32::MAX);
        let end = start.saturating_add(len.into());
        match (self.runs.last_mut(), self.rows.last_mut()) {
            (Some(run), Some(last)) if run.end == start => {
                run.end = end;
                match last.0.checked_add(len) {
                    Some(sum) if last.1 == id => last.0 = sum,
                    _ => {
                        self.rows.push((len, id));
                        run.rows.end += 1;
                    }
                }
            }
            _ => {
                let first = self.rows.len();
                self.rows.push((len, id));
                self.runs.push(Run {
                    start,
                    end,
                    rows: first..first + 1,
                });
            }
        }
    }

    fn intern(&mut self, source: Source, draft: &Draft<'_>, saved: SavedId) -> u32 {
        let mut flags = (source as u64) << 2;
        if draft.signal_frame {
            flags |= SIGNAL;
        }
        if draft.signed {
            flags |= SIGNED;
        }
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
        let recent = &mut self.recent[(mixed >> 40) as usize % RECENT];
        // One by one: as a whole they would be compared as vectors, which wait for the words just written.
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

    /// Pack what was collected.
    pub(crate) fn finish(self) -> Rows {
        let (base, flat) = flatten(&self.runs, &self.rows);
        let numbers = self.by_use(&flat);
        let mut packed = Rows::empty(self.arch, base);
        for rule in numbers.iter().skip(1) {
            self.pack_rule(self.rules[*rule as usize], &mut packed);
        }
        let mut id_of = vec![GAP; self.rules.len()];
        for (id, rule) in numbers.iter().enumerate().skip(1).take((1 << 20) - 2) {
            id_of[*rule as usize] = id as u32;
        }
        let (rule_bits, shift) = widths(&flat, numbers.len());
        (packed.rule_bits, packed.shift) = (rule_bits, shift);
        let longest = Rows::longest(rule_bits);
        packed.entries.reserve_exact(flat.len() + WINDOW);
        let mut put = |address: u32, id: u32| {
            while packed.index.len() <= (address >> shift) as usize {
                packed.index.push(packed.entries.len() as u32);
            }
            packed.entries.push(address << rule_bits | id);
        };
        let mut ahead = flat.iter().skip(1).map(|next| next.0);
        for (start, rule) in &flat {
            let id = id_of.get(*rule as usize).copied().unwrap_or(GAP);
            let end = ahead.next().unwrap_or(start + 1);
            if end - start <= longest {
                put(*start, id);
                continue;
            }
            for address in (*start..end).step_by(longest as usize) {
                put(address, id);
            }
        }
        let last = flat.last().map_or(0, |row| row.0);
        for more in 1..=WINDOW as u32 {
            packed
                .entries
                .push(last.wrapping_add(more) << rule_bits | GAP);
        }
        for bytes in &self.expressions {
            packed.expression_bytes.extend(&bytes[..]);
            packed
                .expression_ends
                .push(packed.expression_bytes.len() as u32);
        }
        packed
    }

    /// Rules in order of use, after a place for [`GAP`]: those of most rows share cache lines.
    fn by_use(&self, flat: &[(u32, u32)]) -> Vec<u32> {
        let mut uses = vec![0u32; self.rules.len()];
        for &(_, rule) in flat.iter().filter(|row| row.1 != NONE) {
            uses[rule as usize] += 1;
        }
        let mut used: Vec<u32> = (0..self.rules.len() as u32)
            .filter(|rule| uses[*rule as usize] > 0)
            .collect();
        used.sort_by_key(|rule| std::cmp::Reverse(uses[*rule as usize]));
        used.insert(0, 0);
        used
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

/// One saved register as [`Builder::saved`] takes it.
pub(crate) fn entry(number: u8, place: u64) -> u64 {
    u64::from(number) << 56 | place
}

fn saved_list<'a>(saved: &'a [u64], ends: &[u32], id: u32) -> &'a [u64] {
    let id = id as usize;
    let start = id.checked_sub(1).map_or(0, |before| ends[before] as usize);
    &saved[start..ends[id] as usize]
}

/// Rows without a gap between them, as an FDE gives them.
#[derive(Clone, Debug)]
struct Run {
    start: u64,
    end: u64,
    rows: Range<usize>,
}

impl Run {
    /// Its rows of all `rows`: start, end, rule.
    fn stretches<'a>(&self, rows: &'a [(u32, u32)]) -> impl Iterator<Item = (u64, u64, u32)> + 'a {
        let mut end = self.start;
        rows[self.rows.clone()].iter().map(move |&(len, rule)| {
            let start = end;
            end = end.saturating_add(len.into());
            (start, end, rule)
        })
    }
}

/// Stands for no rule while rows are put together.
const NONE: u32 = u32::MAX;

/// The first start, and all starts relative to it with their rules, [`NONE`] where nothing is known; without
/// overlaps, and without two neighbours of one rule. Ends with a gap.
///
/// Rows come function by function. Only where functions overlap do rows have to be sorted one by one.
fn flatten(runs: &[Run], rows: &[(u32, u32)]) -> (u64, Vec<(u32, u32)>) {
    let mut runs: Vec<&Run> = runs.iter().collect();
    runs.sort_by_key(|run| run.start);
    let base = runs.first().map_or(0, |run| run.start);
    let mut flat = Flat {
        base,
        covered: base,
        rows: Vec::with_capacity(rows.len() + rows.len() / 4),
    };
    let mut rest = &runs[..];
    while let Some(first) = rest.first() {
        let mut end = first.end;
        let mut count = 1;
        while let Some(next) = rest.get(count).filter(|next| next.start < end) {
            end = end.max(next.end);
            count += 1;
        }
        if count == 1 {
            flat.push_run(first, rows);
        } else {
            let mut tangle = rest[..count].to_vec();
            tangle.sort_unstable_by_key(|run| run.rows.start);
            let tangle = tangle.into_iter().flat_map(|run| run.stretches(rows));
            let mut tangled: Vec<_> = tangle.collect();
            // Stable: of rows with equal starts the first added stays first.
            tangled.sort_by_key(|row| row.0);
            tangled.into_iter().for_each(|row| flat.push(row));
        }
        rest = &rest[count..];
    }
    (base, flat.rows)
}

/// Images of 4 GiB and more of text do not exist; a row so far away is damage. And behind the last address there is
/// room for the entries of a window.
const FARTHEST: u64 = u32::MAX as u64 - WINDOW as u64;

struct Flat {
    base: u64,
    covered: u64,
    rows: Vec<(u32, u32)>,
}

impl Flat {
    /// A run that overlaps nothing.
    fn push_run(&mut self, run: &Run, rows: &[(u32, u32)]) {
        if run.end - self.base > FARTHEST {
            return run.stretches(rows).for_each(|row| self.push(row));
        }
        let mut from = (run.start - self.base) as u32;
        if self.rows.last().is_some_and(|last| last.0 == from) {
            // The gap that the previous row opened at its end.
            self.rows.pop();
        }
        let mut before = self.rows.last().map_or(NONE, |last| last.1);
        for &(len, rule) in &rows[run.rows.clone()] {
            if rule != before {
                self.rows.push((from, rule));
            }
            before = rule;
            from += len;
        }
        self.rows.push((from, NONE));
        self.covered = run.end;
    }

    #[inline]
    fn push(&mut self, (start, end, rule): (u64, u64, u32)) {
        let start = start.max(self.covered);
        let (from, to) = (start - self.base, end.saturating_sub(self.base));
        if from >= to || to > FARTHEST {
            return;
        }
        let (from, to) = (from as u32, to as u32);
        if self.rows.last().is_some_and(|last| last.0 == from) {
            // The gap that the previous row opened at its end.
            self.rows.pop();
        }
        if self.rows.last().is_none_or(|last| last.1 != rule) {
            self.rows.push((from, rule));
        }
        self.rows.push((to, NONE));
        self.covered = self.base + u64::from(to);
    }
}

/// Bits for the rules' numbers, and bytes of text in a bucket as a power of two: few rows each, and less than
/// the other bits of an entry tell apart.
fn widths(flat: &[(u32, u32)], rules: usize) -> (u32, u32) {
    // More than a million different rules would not be unwind information.
    let rule_bits = (usize::BITS - rules.leading_zeros()).clamp(1, 20);
    let span = flat.last().map_or(0, |row| u64::from(row.0)) + 1;
    let wanted = span * ROWS_PER_BUCKET / (flat.len() as u64).max(1);
    let shift = wanted.max(1).ilog2().clamp(6, 16);
    (rule_bits, shift.min(32 - rule_bits - 6))
}
