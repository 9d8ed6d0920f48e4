//! Rows on their way into a table: collected in runs as functions produce them, then sorted and
//! freed of overlaps.
//!
//! Separate from [`super::build`], which knows what rules are: here a rule is a number. The cost is
//! memory that is touched for the first time. So a row takes four bytes, and sorted rows are passed
//! on without another copy. Linkers interleave parts of several sections, and call frame
//! information then alternates between them. Each sequence is in order, and [`Merge`] merges them
//! at the end.

/// Stands for no rule.
pub(super) const NONE: u32 = u32::MAX;

/// A row in one word: `length:12 rule:20`. With [`LONG`], length and rule follow in their own
/// words.
const RULE_BITS: u32 = 20;
const LONG: u32 = u32::MAX;

/// Maximum distance of a row from the first one, in bytes; each row adds 16 KiB. Rows farther away
/// are damage and would make the index large. No image has 4 GiB of text, or 16 KiB without a row.
const MAX_DISTANCE: u64 = 128 << 20;
const MAX_DISTANCE_PER_ROW: u64 = 16 << 10;

/// Number of sequences of runs. Files have two or three, some a dozen. Runs that fit none are
/// sorted at the end.
const PILE_COUNT: usize = 8;

/// Rows without a gap between them, as an FDE produces them.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    /// Length in bytes of text. A longer run is damage.
    len: u32,
    /// Index of its first word. Its rows end where their lengths add up to `len`.
    first: u32,
}

impl Run {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len.into())
    }

    /// Of runs with equal starts, the one added first comes first.
    fn key(&self) -> (u64, u32) {
        (self.start, self.first)
    }
}

/// Collects rows in any order.
#[derive(Debug)]
pub(super) struct Runs {
    words: Vec<u32>,
    /// Sequences of runs. All but the last are sorted.
    piles: [Vec<Run>; PILE_COUNT],
    /// The run that may still grow, and the pile of the last run.
    run: Option<Run>,
    pile: usize,
    /// Length and rule of the last row, which may still grow.
    open: (u32, u32),
    /// The end of the last row.
    end: u64,
    rows: usize,
    /// By rule: the number of its rows.
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

    /// Reserves memory for rows and runs, because growing would copy them. Unused memory is never
    /// touched.
    pub(super) fn reserve(&mut self, rows: usize, runs: usize) {
        self.words.reserve(rows);
        self.piles[0].reserve(runs);
    }

    #[inline]
    pub(super) fn push(&mut self, start: u64, end: u64, rule: u32) {
        if start >= end {
            return;
        }
        // A row of 4 GiB is damage.
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

    /// Starts another run.
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
            // Most runs continue the sequence of the previous run.
            if !follows(&self.piles[self.pile]) || self.pile == PILE_COUNT - 1 {
                let fitting = self.piles.iter().position(follows);
                self.pile = fitting.unwrap_or(PILE_COUNT - 1);
            }
            self.piles[self.pile].push(run);
        }
    }

    /// Closes the last row.
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

    /// By rule: the number of its rows. Rules at the end without any row are left out.
    pub(super) fn uses(&self) -> &[u32] {
        &self.uses
    }

    /// Sorts all runs.
    pub(super) fn sort(mut self) -> SortedRuns {
        self.close_run();
        let rest = &mut self.piles[PILE_COUNT - 1];
        if !rest.is_sorted_by_key(Run::key) {
            rest.sort_unstable_by_key(Run::key);
        }
        let farthest =
            MAX_DISTANCE.saturating_add(MAX_DISTANCE_PER_ROW.saturating_mul(self.rows as u64));
        SortedRuns {
            words: self.words,
            piles: self.piles,
            rows: self.rows,
            farthest: farthest.min(u32::MAX.into()),
        }
    }
}

/// Rows in order of their runs' starts.
#[derive(Debug)]
pub(super) struct SortedRuns {
    words: Vec<u32>,
    piles: [Vec<Run>; PILE_COUNT],
    rows: usize,
    /// Maximum distance of the last row's end from the first row.
    farthest: u64,
}

impl SortedRuns {
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

    /// The maximum number of rows, including gaps between them, and the distance from the first
    /// row's start to the last row's end.
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

    /// Passes all rows to `put`, in order: the start relative to the first row, and the rule, or
    /// [`NONE`] for a gap. They do not overlap, neighbours have different rules, and the last one
    /// is a gap.
    ///
    /// Rows come function by function, so they are sorted one by one only where functions overlap.
    #[inline]
    pub(super) fn for_each_row(&self, mut put: impl FnMut(u32, u32)) {
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
        // A stable sort: of rows with equal starts, the one added first stays first.
        rows.sort_by_key(|row| row.0);
        for row in rows {
            flat.push(row, put);
        }
    }

    /// The rows of a run: length and rule.
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

/// Merges sequences of runs.
struct Merge<'r> {
    /// The remaining runs of each sequence.
    piles: [&'r [Run]; PILE_COUNT],
    /// Index in `piles` of the sequence that has the next run.
    pile: usize,
    /// The smallest key of a first run in the other sequences.
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
    /// The end of the last row.
    covered: u32,
    /// The rule of the last row.
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
