//! Assigns the call-site tables in `.gcc_except_table` to their functions.
//!
//! A function's table (Itanium C++ ABI, exception handling, section 7) lists its calls and their
//! landing pads, relative to the function's start. Call frame information names the function, but
//! the code analysis does not use it. However, only the right function has calls exactly where the
//! table says, and tables are in the order of their functions. So each function can find its table.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use unspool_image::Image;

use super::byte_map::ByteMap;
use super::handlers::Handler;
use super::lsda::{OMIT, Site, Sites};
use super::text::Text;

/// Limits of a table's call sites and of its offsets.
const MAX_CALL_SITES: usize = 1 << 14;
const MAX_OFFSET: u64 = 1 << 22;

/// The tables of one image.
#[derive(Clone, Debug, Default)]
pub(super) struct Landings {
    all: Arc<Tables>,
    /// Whether each table has been assigned.
    taken: Vec<bool>,
    /// Whole functions and their table numbers.
    known: BTreeMap<u64, u32>,
}

#[derive(Debug, Default)]
struct Tables {
    tables: Vec<Vec<Site>>,
    /// Tables by the end of their first call site.
    by_end: HashMap<u64, Vec<u32>>,
    /// The largest of these ends.
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

    /// Assigns tables to the functions at `starts`, in order, and returns their handlers.
    ///
    /// `returns` holds the addresses after calls. `lines` holds the addresses that control does not
    /// reach from the instruction before, and those after calls. `whole` means that the functions
    /// are not separate parts.
    pub(super) fn find(
        &mut self,
        starts: &[u64],
        whole: bool,
        text: &Text<'_>,
        returns: &ByteMap,
        lines: &ByteMap,
    ) -> Vec<Handler> {
        let longest = self.all.longest;
        // Pairs of function and table. The tables of one function are in descending order, so that
        // a chain of rising tables has at most one of each function.
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

    /// The chain of `pairs` with rising tables that has the greatest weight.
    fn heaviest(&self, pairs: &[(u64, u32)]) -> Vec<(u64, u32)> {
        // By table: the weight of the best chain that ends at or before it, and the index of that
        // chain's last pair. This is a Fenwick tree of maxima.
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

    /// A table's weight: the number of facts it states about its function.
    fn weight(&self, number: u32) -> u64 {
        let table = &self.all.tables[number as usize];
        let pads = table.iter().filter(|site| site.pad != 0).count();
        (table.len() + pads) as u64
    }
}

/// Everything in a section that reads as a table.
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

/// The table at `at`, and its end.
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
