//! Rows on their way into a table: run by run as functions give them, put in order and freed of overlaps when all are known.
//!
//! Apart from [`super::build`], which knows what rules are: here they are numbers. What is paid for is memory that is touched
//! for the first time, so a row takes four bytes, and what is in order is handed on, not stored once more. Linkers put parts of
//! several sections side by side, of which call frame information then tells in turns: each is in order, and they are merged when
//! they are handed on.

/// Stands for no rule.
pub(super) const NONE: u32 = u32::MAX;

/// A row in one word: `length:12 rule:20`. [`LONG`]: the length and the rule follow in words of their own.
const RULE_BITS: u32 = 20;
const LONG: u32 = u32::MAX;

/// How far from the first one rows may lie: so far, and so much more for each row. What is farther away is damage, and would
/// make a large index of nothing: images of 4 GiB and more of text do not exist, nor those without a row in 16 KiB.
const NEAR: u64 = 128 << 20;
const NEAR_EACH: u64 = 16 << 10;

/// How many sequences of runs there are. Files have two or three, some a dozen; what fits none is put in order at last.
const PILES: usize = 8;

/// Rows without a gap between them, as an FDE gives them.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    /// In bytes of text; longer ones are damage.
    len: u32,
    /// Place of its first word; the last is the one at which its rows are as long as it is.
    first: u32,
}

impl Run {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len.into())
    }

    /// Of runs with equal starts the first added comes first.
    fn key(&self) -> (u64, u32) {
        (self.start, self.first)
    }
}

/// Rows in any order.
#[derive(Debug)]
pub(super) struct Runs {
    words: Vec<u32>,
    /// All but the last are in order.
    piles: [Vec<Run>; PILES],
    /// The run that may become longer, and the last one's pile.
    run: Option<Run>,
    pile: usize,
    /// The last row, which may become longer: length and rule.
    open: (u32, u32),
    /// Where it ends.
    end: u64,
    rows: usize,
    /// By rule: how many rows have it.
    uses: Vec<u32>,
}

impl Runs {
    pub(super) fn new() -> Runs {
        Runs {
            words: Vec::new(),
            piles: Default::default(),
            run: None,
            pile: 0,
            open: (0, 0),
            end: u64::MAX,
            rows: 0,
            uses: Vec::new(),
        }
    }

    /// Make room for so many rows and runs: growing would copy them. What is not used of it is never touched.
    pub(super) fn reserve(&mut self, rows: usize, runs: usize) {
        self.words.reserve(rows);
        self.piles[0].reserve(runs);
    }

    #[inline]
    pub(super) fn push(&mut self, start: u64, end: u64, rule: u32) {
        if start >= end {
            return;
        }
        // None is 4 GiB long that is not damage.
        let len = u32::try_from(end - start).unwrap_or(u32::MAX);
        if self.end != start {
            self.begin(start);
        } else if self.open.1 == rule
            && let Some(sum) = self.open.0.checked_add(len)
        {
            self.open.0 = sum;
            self.end = start.saturating_add(len.into());
            return;
        } else {
            self.close();
        }
        self.open = (len, rule);
        self.end = start.saturating_add(len.into());
        self.rows += 1;
        match self.uses.get_mut(rule as usize) {
            Some(uses) => *uses += 1,
            None => {
                self.uses.resize(rule as usize + 1, 0);
                self.uses[rule as usize] = 1;
            }
        }
    }

    /// Another run starts.
    fn begin(&mut self, start: u64) {
        self.close_run();
        self.run = Some(Run {
            start,
            len: 0,
            first: self.words.len() as u32,
        });
    }

    fn close_run(&mut self) {
        self.close();
        if let Some(mut run) = self.run.take() {
            run.len = u32::try_from(self.end - run.start).unwrap_or(u32::MAX);
            let start = run.start;
            let follows = |pile: &Vec<Run>| pile.last().is_none_or(|last| last.start <= start);
            // Where the one before went, as a rule.
            if !follows(&self.piles[self.pile]) || self.pile == PILES - 1 {
                let fitting = self.piles.iter().position(follows);
                self.pile = fitting.unwrap_or(PILES - 1);
            }
            self.piles[self.pile].push(run);
        }
    }

    /// The last row does not become longer.
    #[inline]
    fn close(&mut self) {
        let (len, rule) = self.open;
        if len < 1 << (32 - RULE_BITS) && rule < (1 << RULE_BITS) - 1 {
            if len != 0 {
                self.words.push(len << RULE_BITS | rule);
            }
        } else {
            self.words.extend([LONG, len, rule]);
        }
    }

    /// By rule: how many rows have it. Those without any at the end are left out.
    pub(super) fn uses(&self) -> &[u32] {
        &self.uses
    }

    /// Put all in order.
    pub(super) fn settle(mut self) -> Settled {
        self.close_run();
        let rest = &mut self.piles[PILES - 1];
        if !rest.is_sorted_by_key(Run::key) {
            rest.sort_unstable_by_key(Run::key);
        }
        let farthest = NEAR.saturating_add(NEAR_EACH.saturating_mul(self.rows as u64));
        Settled {
            words: self.words,
            piles: self.piles,
            rows: self.rows,
            farthest: farthest.min(u32::MAX.into()),
        }
    }
}

/// Rows in order of their runs' starts.
#[derive(Debug)]
pub(super) struct Settled {
    words: Vec<u32>,
    piles: [Vec<Run>; PILES],
    rows: usize,
    /// How far from the first one the last row may end.
    farthest: u64,
}

impl Settled {
    fn runs(&self) -> Merge<'_> {
        let piles = self.piles.each_ref().map(|pile| &pile[..]);
        let mut merge = Merge {
            piles,
            pile: 0,
            until: (0, 0),
        };
        merge.choose();
        merge
    }

    /// The first address.
    pub(super) fn base(&self) -> u64 {
        self.runs().next().map_or(0, |run| run.start)
    }

    /// How many rows there are at most, gaps between them included, and how far the last one ends from the first one's start.
    pub(super) fn extent(&self) -> (usize, u32) {
        let (mut gaps, mut before, mut end) = (0, None, 0);
        for run in self.runs() {
            gaps += usize::from(before.is_some_and(|before| before != run.start));
            before = Some(run.end());
            end = end.max(run.end());
        }
        let end = end.saturating_sub(self.base()).min(self.farthest);
        (self.rows + gaps + 1, end as u32)
    }

    /// Hand all rows to `put`, in order: starts relative to the first, and rules, [`NONE`] where nothing is known; without
    /// overlaps, and without two neighbours of one rule. Ends with a gap.
    ///
    /// Rows come function by function. Only where functions overlap do rows have to be sorted one by one.
    #[inline]
    pub(super) fn hand_on(&self, mut put: impl FnMut(u32, u32)) {
        let mut flat = Flat {
            base: self.base(),
            farthest: self.farthest,
            covered: 0,
            before: NONE,
        };
        let mut runs = self.runs();
        let mut next = runs.next();
        while let Some(first) = next {
            let mut end = first.end();
            next = runs.next();
            if next.is_none_or(|next| next.start >= end) && end - flat.base <= flat.farthest {
                flat.reach((first.start - flat.base) as u32, &mut put);
                let mut from = flat.covered;
                for (len, rule) in self.words(&first) {
                    if rule != flat.before {
                        put(from, rule);
                        flat.before = rule;
                    }
                    from += len;
                }
                flat.covered = from;
                continue;
            }
            let mut tangle = vec![first];
            while let Some(run) = next.filter(|next| next.start < end) {
                end = end.max(run.end());
                tangle.push(run);
                next = runs.next();
            }
            self.untangle(&mut tangle, &mut flat, &mut put);
        }
        if flat.covered > 0 {
            put(flat.covered, NONE);
        }
    }

    #[cold]
    fn untangle(&self, runs: &mut [Run], flat: &mut Flat, put: &mut dyn FnMut(u32, u32)) {
        runs.sort_unstable_by_key(|run| run.first);
        let mut rows = Vec::new();
        for run in runs {
            let mut start = run.start;
            for (len, rule) in self.words(run) {
                let end = start.saturating_add(len.into());
                rows.push((start, end, rule));
                start = end;
            }
        }
        // Stable: of rows with equal starts the first added stays first.
        rows.sort_by_key(|row| row.0);
        for row in rows {
            flat.push(row, put);
        }
    }

    /// The rows of a run: length, rule.
    #[inline]
    fn words(&self, run: &Run) -> impl Iterator<Item = (u32, u32)> {
        let mut words = self.words.get(run.first as usize..).unwrap_or(&[]).iter();
        let mut left = run.len;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let row = match *words.next()? {
                LONG => (*words.next()?, *words.next()?),
                word => (word >> RULE_BITS, word & ((1 << RULE_BITS) - 1)),
            };
            left = left.saturating_sub(row.0);
            Some(row)
        })
    }
}

/// Runs of several sequences, in order.
struct Merge<'r> {
    /// What is left of each.
    piles: [&'r [Run]; PILES],
    /// The one that the next run is of, and where another's comes before.
    pile: usize,
    until: (u64, u32),
}

impl Merge<'_> {
    fn choose(&mut self) {
        let (mut best, mut until) = ((u64::MAX, u32::MAX), (u64::MAX, u32::MAX));
        for (number, pile) in self.piles.iter().enumerate() {
            let Some(head) = pile.first().map(Run::key) else {
                continue;
            };
            if head < best {
                (self.pile, until, best) = (number, best, head);
            } else {
                until = until.min(head);
            }
        }
        self.until = until;
    }
}

impl Iterator for Merge<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.piles[self.pile]
            .first()
            .is_none_or(|head| head.key() >= self.until)
        {
            self.choose();
        }
        self.piles[self.pile].split_off_first().copied()
    }
}

struct Flat {
    base: u64,
    farthest: u64,
    /// Where the last row ends.
    covered: u32,
    /// Its rule.
    before: u32,
}

impl Flat {
    /// The next row starts at `from`.
    fn reach(&mut self, from: u32, put: &mut dyn FnMut(u32, u32)) {
        if from > self.covered {
            put(self.covered, NONE);
            (self.covered, self.before) = (from, NONE);
        }
    }

    fn push(&mut self, (start, end, rule): (u64, u64, u32), put: &mut dyn FnMut(u32, u32)) {
        let from = (start - self.base).max(self.covered.into());
        let to = end - self.base;
        if from >= to || to > self.farthest {
            return;
        }
        self.reach(from as u32, put);
        if rule != self.before {
            put(from as u32, rule);
            self.before = rule;
        }
        self.covered = to as u32;
    }
}
