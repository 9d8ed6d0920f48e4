//! Keeps what a table is made from, and compiles what is needed later: the rows of single sources
//! and the code analysis.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use unspool_image::Image;

use super::compile::{CompileOptions, compile_cfi, compile_exidx};
use super::demand::{Demand, Region, Unlisted};
#[cfg(feature = "cache")]
use super::file::SavedExtent;
use super::merge::{Layer, merge};
use super::{Note, RowsRef};
use crate::code::{self, Analysis};
use crate::doubt::{self, Doubt};
use crate::exidx;
use crate::rows::Rows;
use crate::rule::Source;

#[derive(Debug)]
pub(super) struct Maker {
    pub(super) image: Image,
    pub(super) options: CompileOptions,
    cfi: OnceLock<Arc<Rows>>,
    exidx: OnceLock<Arc<Rows>>,
    code: OnceLock<Analysis>,
    /// Ranges where an exidx entry reaches over functions without an entry.
    neighbours: OnceLock<Vec<Range<u64>>>,
    exidx_starts: OnceLock<Vec<u64>>,
    /// Rows of single FDEs and regions.
    pub(super) demand: Demand,
    /// How much of the table is on disk.
    #[cfg(feature = "cache")]
    pub(super) saved: SavedExtent,
}

impl Maker {
    pub(super) fn new(image: &Image, options: &CompileOptions) -> Maker {
        Maker {
            image: image.clone(),
            options: options.clone(),
            cfi: OnceLock::new(),
            exidx: OnceLock::new(),
            code: OnceLock::new(),
            neighbours: OnceLock::new(),
            exidx_starts: OnceLock::new(),
            demand: Demand::default(),
            #[cfg(feature = "cache")]
            saved: SavedExtent::default(),
        }
    }

    /// Compiles the rows of all sources but the code analysis. Adds notes about parts that could
    /// not be used.
    pub(super) fn stated(&self, order: &[Source], notes: &mut Vec<Note>) -> Arc<Rows> {
        let (image, options) = (&self.image, &self.options);
        let cfi = self
            .cfi
            .get_or_init(|| Arc::new(compile_cfi(image, options, notes)));
        let exidx = self
            .exidx
            .get_or_init(|| Arc::new(compile_exidx(image, options, notes)));
        if exidx.is_empty() {
            return cfi.clone();
        }
        if cfi.is_empty() {
            return exidx.clone();
        }
        let layers = order.iter().filter_map(|source| match source {
            Source::Cfi => Some(Layer::whole(cfi)),
            Source::Exidx => Some(Layer::whole(exidx)),
            Source::Code => None,
        });
        Arc::new(merge(image.arch(), &layers.collect::<Vec<_>>()))
    }

    /// True once compiling all rows takes no longer than the single lookups so far.
    pub(super) fn is_worth_compiling(&self) -> bool {
        self.demand.is_worth_compiling()
    }

    pub(super) fn bytes_at(&self, svma: u64, len: usize) -> Option<&[u8]> {
        self.image.bytes_at(svma, len)
    }

    pub(super) fn analysis(&self) -> Option<&Analysis> {
        self.options.code.then(|| {
            self.code
                .get_or_init(|| code::analyze(&self.image, self.options.symbols))
        })
    }

    #[cfg(test)]
    pub(super) fn analysis_made(&self) -> Option<&Analysis> {
        self.code.get()
    }

    pub(super) fn rows(&self, source: Source) -> Option<&Rows> {
        // A table read from the cache has its notes already, but not the rows of single sources.
        let unnoted = &mut Vec::new();
        match source {
            Source::Cfi => Some(
                self.cfi
                    .get_or_init(|| Arc::new(compile_cfi(&self.image, &self.options, unnoted))),
            ),
            Source::Exidx => Some(
                self.exidx
                    .get_or_init(|| Arc::new(compile_exidx(&self.image, &self.options, unnoted))),
            ),
            Source::Code => self.analysis().map(Analysis::rows),
        }
    }

    /// Merges the rows of all sources. The first in `order` that covers an address wins.
    pub(super) fn whole(&self, order: &[Source]) -> Rows {
        let layers = order.iter().filter_map(|&source| {
            let cuts: &[Range<u64>] = match source {
                Source::Exidx => self.neighbours(),
                _ => &[],
            };
            let rows = self.rows(source)?;
            Some(Layer { rows, cuts })
        });
        merge(self.image.arch(), &layers.collect::<Vec<_>>())
    }

    /// The doubts about call frame information, if the code analysis has been made.
    pub(super) fn doubts(&self) -> Option<Vec<Doubt>> {
        let analysis = self.code.get()?;
        let start = |svma: u64| analysis.function_start(svma);
        Some(doubt::doubts(
            self.rows(Source::Cfi)?,
            analysis.rows(),
            &start,
        ))
    }

    /// The rows that contain a source's row for `svma`, if it has one. Compiles no more than
    /// needed.
    pub(super) fn rows_at(&self, source: Source, svma: u64) -> Option<RowsRef<'_>> {
        match source {
            Source::Cfi if self.options.cfi && self.cfi.get().is_none() => {
                match self.demand.entry(&self.image, svma) {
                    Ok(Some(rows)) => Some(RowsRef::Shared(rows)),
                    // Other FDEs are in .debug_frame, which has no search table.
                    Ok(None) if !self.image.has_section(".debug_frame") => None,
                    Ok(None) | Err(Unlisted) => self.rows(source).map(RowsRef::Borrowed),
                }
            }
            Source::Code if self.code.get().is_none() => {
                let region = self.region(svma)?;
                Some(RowsRef::Shared(region.rows.clone()))
            }
            _ => self.rows(source).map(RowsRef::Borrowed),
        }
    }

    /// The region of code that contains `svma`.
    fn region(&self, svma: u64) -> Option<Arc<Region>> {
        if !self.options.code {
            return None;
        }
        #[cfg(feature = "cache")]
        self.load_regions();
        self.demand.region(&self.image, &self.options, svma)
    }

    /// A doubt about the call frame information of the function that contains `svma`, if its code
    /// was analysed now or in an earlier run.
    pub(super) fn doubt_at(&self, svma: u64) -> Option<Doubt> {
        #[cfg(feature = "cache")]
        self.load_regions();
        self.demand.doubt(&self.image, svma)
    }

    /// Whether the exidx entry for `svma` belongs to an earlier function than the one at `svma`.
    pub(super) fn is_neighbours(&self, svma: u64) -> bool {
        if self.code.get().is_some() || self.neighbours.get().is_some() {
            let cuts = self.neighbours();
            let after = cuts.partition_point(|cut| cut.start <= svma);
            return after > 0 && cuts[after - 1].contains(&svma);
        }
        let entry = self.exidx_starts();
        let after = entry.partition_point(|start| *start <= svma);
        let Some(entry) = after.checked_sub(1).map(|at| entry[at]) else {
            return false;
        };
        self.function_start(svma).is_some_and(|start| start > entry)
    }

    /// The start of the function that contains `svma`.
    pub(super) fn function_start(&self, svma: u64) -> Option<u64> {
        match self.code.get() {
            Some(analysis) => analysis.function_start(svma),
            None => self.region(svma)?.function_start(svma),
        }
    }

    /// The start addresses of exidx entries, sorted.
    fn exidx_starts(&self) -> &[u64] {
        self.exidx_starts.get_or_init(|| {
            let index = self.image.section(".ARM.exidx");
            index.map_or(Vec::new(), |index| exidx::starts(&index.data, index.svma))
        })
    }

    /// Ranges in which an exidx entry does not hold. An entry covers all addresses up to the next
    /// entry, including functions that have none. So it says nothing from the next function start
    /// on.
    fn neighbours(&self) -> &[Range<u64>] {
        self.neighbours.get_or_init(|| {
            let Some(analysis) = self.analysis() else {
                return Vec::new();
            };
            let starts = self.exidx_starts();
            let mut cuts = Vec::new();
            for (at, &start) in starts.iter().enumerate() {
                let end = starts.get(at + 1).copied().unwrap_or(u64::MAX);
                if let Some(cut) = analysis.next_start(start).filter(|&cut| cut < end) {
                    cuts.push(cut..end);
                }
            }
            cuts
        })
    }
}
