//! What a table is made of, for what is made when first asked: the rows of single sources, the analysis of the code.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use unspool_image::Image;

use super::compile::{CompileOptions, compile_cfi, compile_exidx};
use super::demand::{Demand, Region, Unlisted};
#[cfg(feature = "cache")]
use super::file::Kept;
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
    /// Where an exidx entry reaches over functions that have none.
    neighbours: OnceLock<Vec<Range<u64>>>,
    exidx_starts: OnceLock<Vec<u64>>,
    /// Rows of single entries and regions.
    pub(super) demand: Demand,
    /// How much of the table is on disk.
    #[cfg(feature = "cache")]
    pub(super) kept: Kept,
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
            kept: Kept::default(),
        }
    }

    /// The rows of all that the file states. What could not be used is added to `notes`.
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

    /// So much was asked for that it takes no longer to compile all.
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
        // Of a table read from the cache, a source's own rows are not there yet; its notes are.
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

    /// The rows of all sources, of which the first in `order` that knows an address has it.
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

    /// Once the analysis of the code has been made: what of the call frame information it contradicts.
    pub(super) fn doubts(&self) -> Option<Vec<Doubt>> {
        let analysis = self.code.get()?;
        let start = |svma: u64| analysis.function_start(svma);
        Some(doubt::doubts(
            self.rows(Source::Cfi)?,
            analysis.rows(),
            &start,
        ))
    }

    /// The rows in which a source's row for `svma` is, if it has one: no more of them than need be.
    pub(super) fn rows_at(&self, source: Source, svma: u64) -> Option<RowsRef<'_>> {
        match source {
            Source::Cfi if self.options.cfi && self.cfi.get().is_none() => {
                match self.demand.entry(&self.image, svma) {
                    Ok(Some(rows)) => Some(RowsRef::Shared(rows)),
                    // The rest is in another section, which has no search table.
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

    /// The region of code that `svma` belongs to.
    fn region(&self, svma: u64) -> Option<Arc<Region>> {
        if !self.options.code {
            return None;
        }
        #[cfg(feature = "cache")]
        self.load_regions();
        self.demand.region(&self.image, &self.options, svma)
    }

    /// Of the function that contains `svma`: what of the call frame information its code contradicts, if its code was
    /// analysed, now or in an earlier run.
    pub(super) fn doubt_at(&self, svma: u64) -> Option<Doubt> {
        #[cfg(feature = "cache")]
        self.load_regions();
        self.demand.doubt(&self.image, svma)
    }

    /// Whether the exidx entry for `svma` is that of a function before the one that `svma` is in.
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
        let start = self
            .region(svma)
            .and_then(|region| region.function_start(svma));
        start.is_some_and(|start| start > entry)
    }

    /// Where entries of the exception index start, sorted.
    fn exidx_starts(&self) -> &[u64] {
        self.exidx_starts.get_or_init(|| {
            let index = self.image.section(".ARM.exidx");
            index.map_or(Vec::new(), |index| exidx::starts(&index.data, index.svma))
        })
    }

    /// An exidx entry holds until the next one starts; functions without an entry of their own fall to
    /// their neighbour's. A function start between an entry's and the next one gives that away: from there
    /// on the entry says nothing.
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
