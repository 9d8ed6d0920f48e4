//! Compiles rows when a walk first needs them: one FDE or one region of code at a time.
//!
//! Separate from [`super::maker`], which compiles all rows of a source. One inspection of a program
//! needs a hundred rules of files that have a million. A report on a long recording needs nearly
//! all rules of some files, so these are compiled as a whole after many lookups
//! ([`Demand::is_worth_compiling`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use unspool_image::Image;

use super::compile::{CompileOptions, eh_frame};
use crate::cfi::index::{self, Index};
use crate::code::region::{self, Outline};
use crate::doubt::{self, Doubt};
use crate::rows::Rows;

/// Cost of compiling one FDE alone, as a number of FDEs compiled together.
const ENTRY_COST: usize = 16;
/// Minimum number of FDEs for which compiling all is considered.
const MIN_ENTRIES: usize = 64;

/// The rows compiled so far.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// By the first address of the FDE.
    entries: RwLock<BTreeMap<u64, (u64, Arc<Rows>)>>,
    /// Number of FDEs in the search table; `None` if there is no such table.
    listed: OnceLock<Option<usize>>,
    outline: OnceLock<Option<Outline>>,
    /// By the first address of the region.
    regions: RwLock<BTreeMap<u64, Arc<Region>>>,
}

/// An analysed region of code.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) range: Range<u64>,
    /// The function starts in the region, and the start of the function that reaches into it.
    pub(super) starts: Vec<u64>,
    pub(super) rows: Arc<Rows>,
    /// Call frame information that the code contradicts.
    doubts: OnceLock<Vec<Doubt>>,
}

impl Region {
    pub(super) fn new(range: Range<u64>, starts: Vec<u64>, rows: Rows) -> Region {
        Region {
            range,
            starts,
            rows: Arc::new(rows),
            doubts: OnceLock::new(),
        }
    }

    /// The start of the function that contains `svma`.
    pub(super) fn function_start(&self, svma: u64) -> Option<u64> {
        let after = self.starts.partition_point(|&start| start <= svma);
        self.starts.get(after.checked_sub(1)?).copied()
    }
}

impl Demand {
    /// The rows of the `.eh_frame` FDE that covers `svma`. `Err` if the section has no usable
    /// search table, so that it must be compiled as a whole.
    pub(super) fn entry(&self, image: &Image, svma: u64) -> Result<Option<Arc<Rows>>, Unlisted> {
        let known = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, (end, rows))) = known.range(..=svma).next_back()
            && svma < *end
        {
            return Ok(Some(rows.clone()));
        }
        drop(known);
        let section = eh_frame(image).ok_or(Unlisted)?;
        let (header_svma, header) = section.header.ok_or(Unlisted)?;
        let index = match self.listed.get() {
            Some(None) => return Err(Unlisted),
            // The table has already been checked to be sorted.
            Some(Some(_)) => Index::known(header_svma, header),
            None => Index::new(header_svma, header),
        };
        self.listed.get_or_init(|| Some(index?.len()));
        let index = index.ok_or(Unlisted)?;
        let text = image.text_ranges();
        let compiled = index::compile_one(image.arch(), &section, &index, &text, svma);
        let Some((range, rows)) = compiled else {
            return Ok(None);
        };
        let rows = Arc::new(rows);
        let mut known = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(range.start, (range.end, rows.clone()));
        Ok(Some(rows))
    }

    /// True once compiling all FDEs would have taken no longer than the lookups so far.
    pub(super) fn is_worth_compiling(&self) -> bool {
        let all = self.listed.get().copied().flatten().unwrap_or(0);
        let known = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        known.len() > MIN_ENTRIES.max(all / ENTRY_COST)
    }

    /// The region that contains `svma`, analysed now if it was not before.
    pub(super) fn region(
        &self,
        image: &Image,
        options: &CompileOptions,
        svma: u64,
    ) -> Option<Arc<Region>> {
        if let Some(known) = self.known_region(svma) {
            return Some(known);
        }
        let outline = self
            .outline
            .get_or_init(|| Outline::new(image, options.symbols));
        let (range, analysis) = region::analyze(image, outline.as_ref()?, svma, options.symbols)?;
        let (rows, starts) = analysis.into_parts();
        let region = Region::new(range, starts, rows);
        Some(self.add_region(region))
    }

    /// The region that contains `svma`, if it has been analysed.
    pub(super) fn known_region(&self, svma: u64) -> Option<Arc<Region>> {
        let known = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (_, region) = known.range(..=svma).next_back()?;
        region.range.contains(&svma).then(|| region.clone())
    }

    pub(super) fn add_region(&self, region: Region) -> Arc<Region> {
        let region = Arc::new(region);
        let mut known = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(region.range.start, region.clone());
        region
    }

    /// All analysed regions, in order of address.
    #[cfg(feature = "cache")]
    pub(super) fn regions(&self) -> Vec<Arc<Region>> {
        let known = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        known.values().cloned().collect()
    }

    /// A doubt about the call frame information of the function that contains `svma`, if its code
    /// was analysed.
    pub(super) fn doubt(&self, image: &Image, svma: u64) -> Option<Doubt> {
        let region = self.known_region(svma)?;
        let doubts = region.doubts.get_or_init(|| {
            let Some(section) = eh_frame(image) else {
                return Vec::new();
            };
            let index = section
                .header
                .and_then(|(svma, header)| Index::new(svma, header));
            let Some(index) = index else {
                return Vec::new();
            };
            let text = image.text_ranges();
            let stated = index::compile_range(image.arch(), &section, &index, &text, &region.range);
            doubt::doubts(&stated, &region.rows, &|svma| region.function_start(svma))
        });
        let after = doubts.partition_point(|doubt| doubt.start <= svma);
        let doubt = &doubts[after.checked_sub(1)?];
        (svma < doubt.end).then(|| doubt.clone())
    }
}

/// There is no search table in the form that all linkers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unlisted;

#[cfg(test)]
mod tests;
