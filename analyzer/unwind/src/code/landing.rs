//! Whose the tables of call sites in `.gcc_except_table` are, where nothing that may be used says it.
//!
//! A function's table (Itanium C++ ABI, exception handling, section 7) says which of its calls lead where when
//! an exception passes, all relative to the function's start. What says whose table it is is call frame
//! information, which code analysis does not use. But only its own function has calls at the very places that
//! a table names, and tables are in the order of functions: so each finds its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use unspool_image::Image;

use super::byte_map::ByteMap;
use super::handlers::Handler;
use super::lsda::{OMIT, Site, Sites};
use super::text::Text;

/// No table has more call sites, and no offset is larger.
const MAX_CALL_SITES: usize = 1 << 14;
const MAX_OFFSET: u64 = 1 << 22;

/// The tables of one image.
#[derive(Clone, Debug, Default)]
pub(super) struct Landings {
    all: Arc<Tables>,
    /// Which have found their function.
    taken: Vec<bool>,
    /// Whole functions and the numbers of their tables.
    known: BTreeMap<u64, u32>,
}

#[derive(Debug, Default)]
struct Tables {
    tables: Vec<Vec<Site>>,
    /// Tables by where their first call site ends.
    by_end: HashMap<u64, Vec<u32>>,
    /// The farthest of these places.
    longest: u64,
}

impl Landings {
    pub(super) fn new(image: &Image) -> Landings {
        let mut all = Tables::default();
        if let Some(section) = image.section(".gcc_except_table") {
            all.tables = tables(&section.data);
        }
        for (number, table) in all.tables.iter().enumerate() {
            if let Some(first) = table.first() {
                let end = first.start + first.len;
                all.longest = all.longest.max(end);
                all.by_end.entry(end).or_default().push(number as u32);
            }
        }
        Landings {
            taken: vec![false; all.tables.len()],
            all: Arc::new(all),
            known: BTreeMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.tables.is_empty()
    }

    /// Where exceptions are caught in those functions at `starts`, in order, that tables belong to.
    /// `returns` are the addresses behind calls, `lines` those of instructions that control does not come to from
    /// the one before, or comes to behind a call. `whole`: they are no parts of functions, which lie elsewhere.
    pub(super) fn find(
        &mut self,
        starts: &[u64],
        whole: bool,
        text: &Text<'_>,
        returns: &ByteMap,
        lines: &ByteMap,
    ) -> Vec<Handler> {
        let longest = self.all.longest;
        // Pairs of function and table, such that among those of a function the last table is first: a chain of
        // rising tables has one of each function at most.
        let mut pairs: Vec<(u64, u32)> = Vec::new();
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(u64::MAX);
            let end = end.min(start.saturating_add(longest + 1)).min(text.end());
            let (mut lowest, mut highest) = (0, u32::MAX);
            if whole {
                let before = self.known.range(..start).next_back();
                let after = self.known.range(start..).next();
                lowest = before.map_or(0, |known| *known.1);
                highest = after.map_or(u32::MAX, |known| *known.1);
            }
            let mut found: Vec<u32> = returns
                .within(start + 1..end.saturating_add(1))
                .filter_map(|svma| self.all.by_end.get(&(svma - start)))
                .flatten()
                .copied()
                .filter(|&number| !self.taken[number as usize] && number >= lowest)
                .filter(|&number| number < highest)
                .filter(|&number| self.fits(number, start, returns, lines))
                .collect();
            found.sort_unstable_by(|a, b| b.cmp(a));
            pairs.extend(found.into_iter().map(|number| (start, number)));
        }
        let mut found = Vec::new();
        for (start, number) in self.heaviest(&pairs) {
            self.taken[number as usize] = true;
            if whole {
                self.known.insert(start, number);
            }
            let sites = self.all.tables[number as usize].iter();
            found.extend(sites.filter(|site| site.pad != 0).map(|site| Handler {
                start: start + site.start,
                end: start + site.start + site.len,
                pad: start + site.pad,
            }));
        }
        found
    }

    fn fits(&self, number: u32, start: u64, returns: &ByteMap, lines: &ByteMap) -> bool {
        let table = &self.all.tables[number as usize];
        table.iter().all(|site| {
            returns.contains(start + site.start + site.len)
                && (site.pad == 0 || lines.contains(start + site.pad))
        })
    }

    /// Of `pairs`, the chain with rising tables that has the most call sites.
    fn heaviest(&self, pairs: &[(u64, u32)]) -> Vec<(u64, u32)> {
        // By table: the weight of the best chain that ends there or before, as a Fenwick tree of maxima, with
        // the number of its last pair.
        let mut best: Vec<(u64, usize)> = vec![(0, usize::MAX); self.all.tables.len() + 1];
        let mut before = Vec::with_capacity(pairs.len());
        for (index, &(_, number)) in pairs.iter().enumerate() {
            let mut at = number as usize;
            let mut top = (0, usize::MAX);
            while at > 0 {
                if best[at].0 > top.0 {
                    top = best[at];
                }
                at &= at - 1;
            }
            before.push(top.1);
            let weight = top.0 + self.weight(number);
            let mut at = number as usize + 1;
            while at < best.len() {
                if weight > best[at].0 {
                    best[at] = (weight, index);
                }
                at += at & at.wrapping_neg();
            }
        }
        let mut last = best
            .iter()
            .max_by_key(|entry| entry.0)
            .map_or(usize::MAX, |entry| entry.1);
        let mut chain = Vec::new();
        while let Some(&pair) = pairs.get(last) {
            chain.push(pair);
            last = before[last];
        }
        chain.reverse();
        chain
    }

    /// How much a table says about its function.
    fn weight(&self, number: u32) -> u64 {
        let table = &self.all.tables[number as usize];
        let pads = table.iter().filter(|site| site.pad != 0).count();
        (table.len() + pads) as u64
    }
}

/// The tables of a section, wherever something that reads as one is.
fn tables(data: &[u8]) -> Vec<Vec<Site>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(skip) = data
        .get(at..)
        .and_then(|rest| rest.iter().position(|&byte| byte == OMIT))
    {
        at += skip;
        match table(data, at) {
            Some((sites, end)) => {
                found.push(sites);
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// The table at `at` and where it ends.
fn table(data: &[u8], at: usize) -> Option<(Vec<Site>, usize)> {
    let mut table = Sites::read(&data[at..])?;
    let mut sites: Vec<Site> = Vec::new();
    while !table.is_done() {
        let site = table.site()?;
        let before = sites.last();
        let in_order = before.is_none_or(|before| before.start + before.len <= site.start);
        let furthest = site.start.max(site.len).max(site.pad);
        if !in_order || site.len == 0 || furthest > MAX_OFFSET || sites.len() >= MAX_CALL_SITES {
            return None;
        }
        sites.push(site);
    }
    (!sites.is_empty()).then_some((sites, at + table.len))
}
