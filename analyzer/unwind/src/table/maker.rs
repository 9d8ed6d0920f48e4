//! What a table is made of, for what is made when first asked: the rows of single sources, the analysis of the code.

use std::ops::Range;
#[cfg(feature = "cache")]
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock};

use unspool_image::Image;

use super::compile::{CompileOptions, compile_cfi, compile_exidx};
use super::merge::{Layer, merge};
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
    /// How much of the table is on disk: nothing, what the file states, all.
    #[cfg(feature = "cache")]
    pub(super) kept: AtomicU8,
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
            #[cfg(feature = "cache")]
            kept: AtomicU8::new(0),
        }
    }

    /// With the rows that have been made already.
    pub(super) fn with_rows(mut self, cfi: Arc<Rows>, exidx: Arc<Rows>) -> Maker {
        self.cfi = cfi.into();
        self.exidx = exidx.into();
        self
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
        Some(doubt::doubts(self.rows(Source::Cfi)?, analysis))
    }

    /// An exidx entry holds until the next one starts; functions without an entry of their own fall to
    /// their neighbour's. A function start between an entry's and the next one gives that away: from there
    /// on the entry says nothing.
    pub(super) fn neighbours(&self) -> &[Range<u64>] {
        self.neighbours.get_or_init(|| {
            let (Some(index), Some(analysis)) = (self.image.section(".ARM.exidx"), self.analysis())
            else {
                return Vec::new();
            };
            let starts = exidx::starts(&index.data, index.svma);
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
