//! Writes tables, and accepts only tables that this build made from this image.
//!
//! Regions of code that walks needed are stored apart ([`Table::regions_to_bytes`]): a table has
//! megabytes, a region of code a few hundred bytes.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use unspool_image::{Arch, Image};

use super::MAGIC;
use crate::cache::Cache;
use crate::once::Once;
use crate::rows::{Rows, array, number};
use crate::rule::Source;
use crate::table::demand::Region;
use crate::table::maker::Maker;
use crate::table::{CompileOptions, Table};

/// Records how much of a table is on disk.
#[derive(Debug, Default)]
pub(crate) struct SavedExtent {
    /// The cache; `None` if the table is not stored.
    cache: Option<Cache>,
    /// Nothing, the stated rows, or all rows.
    extent: AtomicU8,
    /// Number of stored code regions.
    regions: AtomicUsize,
    /// Set once stored regions have been loaded.
    loaded: OnceLock<()>,
}

impl Maker {
    /// Makes the table use the rows in `cache`.
    pub(crate) fn with_cache(mut self, cache: Cache) -> Maker {
        self.saved.cache = Some(cache);
        self
    }

    /// Adds the regions of code that earlier runs analysed.
    pub(in crate::table) fn load_regions(&self) {
        self.saved.loaded.get_or_init(|| {
            let cache = self.saved.cache.as_ref();
            let bytes = cache.and_then(|cache| cache.regions(&self.image, &self.options));
            let Some(bytes) = bytes else { return };
            let regions = self.regions(&bytes).unwrap_or_default();
            self.saved.regions.store(regions.len(), Ordering::Relaxed);
            for region in regions {
                self.demand.add_region(region);
            }
        });
    }

    fn regions(&self, bytes: &[u8]) -> Option<Vec<Region>> {
        let mut body = checked(bytes)?;
        if array(&mut body, 1).ok()? != key_of(&self.image, &self.options) {
            return None;
        }
        let count = number(&mut body).ok()?;
        let regions = (0..count).map(|_| {
            let start = number(&mut body).ok()?;
            let end = number(&mut body).ok()?;
            let (starts, _) = array(&mut body, 8).ok()?.as_chunks::<8>();
            let starts = starts.iter().map(|bytes| u64::from_le_bytes(*bytes));
            let rows = Rows::read(self.image.arch(), &mut body).ok()?;
            Some(Region::new(start..end, starts.collect(), rows))
        });
        regions.collect()
    }
}

impl Table {
    /// The table in its current extent, for [`Table::from_bytes`] and [`Table::from_slice`]. It
    /// contains the rules of the code once all rows were requested ([`Table::rows_of_all`]). Only
    /// [`crate::Cache`] stores the rules of single regions.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let key = self.maker.as_ref();
        put(
            &mut body,
            &key.map_or(Vec::new(), |maker| key_of(&maker.image, &maker.options)),
        );
        let arch = Arch::ALL.iter().position(|arch| *arch == self.arch);
        body.extend((arch.unwrap_or(usize::MAX) as u64).to_le_bytes());
        let order: Vec<u8> = self.order.iter().map(|source| *source as u8).collect();
        put(&mut body, &order);
        put_ranges(&mut body, &self.layout.segments);
        put_ranges(&mut body, &self.layout.text);
        body.extend((self.notes().len() as u64).to_le_bytes());
        for note in self.notes() {
            put(&mut body, note.text.as_bytes());
        }
        self.stated().write(&mut body);
        body.extend(u64::from(self.whole.get().is_some()).to_le_bytes());
        if let Some(whole) = self.whole.get() {
            whole.write(&mut body);
            let beside_exidx = self.code.get().is_some() || self.size(Source::Exidx).0 > 0;
            let code = self.rows(Source::Code).filter(|_| beside_exidx);
            body.extend(u64::from(code.is_some()).to_le_bytes());
            if let Some(code) = code {
                code.write(&mut body);
            }
            let doubts = self.doubts.get().map_or(&[][..], |doubts| doubts);
            body.extend((doubts.len() as u64).to_le_bytes());
            for doubt in doubts {
                let words = [doubt.start, doubt.end, doubt.first];
                body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        sealed(&body)
    }

    /// Reads a table that [`Table::to_bytes`] returned, without compiling or analysing anything.
    /// `None` if the bytes are damaged, or come from another image, other options, or another build
    /// of this crate.
    pub fn from_bytes(image: &Image, options: &CompileOptions, bytes: &[u8]) -> Option<Table> {
        let table = Table::on_demand(image, options);
        table.take(bytes)?;
        Some(table)
    }

    /// Reads the rows in the cache. Returns whether there are any.
    pub(in crate::table) fn read_saved(&self, maker: &Maker) -> bool {
        let cache = maker.saved.cache.as_ref();
        let bytes = cache.and_then(|cache| cache.stored(&maker.image, &maker.options));
        bytes.is_some_and(|bytes| self.take(&bytes).is_some())
    }

    /// Takes the rows in these bytes, if they were made from the same image.
    fn take(&self, bytes: &[u8]) -> Option<()> {
        let maker = self.maker.as_ref()?;
        let mut body = checked(bytes)?;
        if array(&mut body, 1).ok()? != key_of(&maker.image, &maker.options) {
            return None;
        }
        let read = Table::read(&mut body)?;
        if (&self.layout, self.arch, &self.order) != (&read.layout, read.arch, &read.order) {
            return None;
        }
        fill(&self.notes, read.notes);
        fill(&self.code, read.code);
        fill(&self.doubts, read.doubts);
        fill(&self.whole, read.whole);
        fill(&self.stated, read.stated);
        self.was_kept();
        Some(())
    }

    /// The analysed regions of code. `None` if all of them are stored.
    pub(crate) fn regions_to_bytes(&self) -> Option<Vec<u8>> {
        let maker = self.maker.as_ref()?;
        let regions = maker.demand.regions();
        if regions.len() <= maker.saved.regions.load(Ordering::Relaxed) {
            return None;
        }
        let mut body = Vec::new();
        put(&mut body, &key_of(&maker.image, &maker.options));
        body.extend((regions.len() as u64).to_le_bytes());
        for region in &regions {
            body.extend(region.range.start.to_le_bytes());
            body.extend(region.range.end.to_le_bytes());
            body.extend((region.starts.len() as u64).to_le_bytes());
            body.extend(region.starts.iter().flat_map(|start| start.to_le_bytes()));
            region.rows.write(&mut body);
        }
        maker.saved.regions.store(regions.len(), Ordering::Relaxed);
        Some(sealed(&body))
    }

    /// The image and the options, if they are known.
    pub(crate) fn origin(&self) -> Option<(&Image, &CompileOptions)> {
        let maker = self.maker.as_ref()?;
        Some((&maker.image, &maker.options))
    }

    /// Whether the table holds more than its stored form.
    pub(crate) fn has_unsaved_rows(&self) -> bool {
        self.maker
            .as_ref()
            .is_some_and(|maker| maker.saved.extent.load(Ordering::Relaxed) < self.extent())
    }

    pub(crate) fn was_kept(&self) {
        if let Some(maker) = &self.maker {
            maker.saved.extent.store(self.extent(), Ordering::Relaxed);
        }
    }

    fn extent(&self) -> u8 {
        u8::from(self.stated.get().is_some()) + u8::from(self.whole.get().is_some())
    }
}

/// Sets a value that is not set yet. A value that is set is the same.
fn fill<T>(place: &Once<T>, read: Once<T>) {
    if let Some(value) = read.into_inner() {
        place.get_or_init(|| value);
    }
}

/// Adds the magic bytes and a checksum.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(u64::from(crc32c::crc32c(body)).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The inverse of [`sealed`]; `None` if the bytes are damaged.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let body = bytes.strip_prefix(MAGIC)?;
    let (checksum, body) = body.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*checksum) == u64::from(crc32c::crc32c(body))).then_some(body)
}

/// The key: what a table was made from, and by which build. A damaged or modified file may have the
/// build-id of the original, so the key covers more than that.
fn key_of(image: &Image, options: &CompileOptions) -> Vec<u8> {
    let mut key = env!("UNWIND_REVISION").as_bytes().to_vec();
    key.extend(image.arch().name().as_bytes());
    put(&mut key, image.build_id().map_or(&[], |id| id.as_bytes()));
    put(&mut key, &image.identity().to_bytes());
    key.extend(variant(image, options));
    key
}

/// The options and the debug file, which tell tables of one image apart.
pub(crate) fn variant(image: &Image, options: &CompileOptions) -> Vec<u8> {
    let mut variant = vec![
        u8::from(options.cfi),
        u8::from(options.exidx),
        u8::from(options.code),
        u8::from(options.symbols),
    ];
    variant.extend(options.prefer.iter().map(|source| *source as u8 + 2));
    if let Some(debug) = image.debug_image() {
        variant.extend(debug.file_size().to_le_bytes());
        variant.extend(debug.build_id().map_or(&[][..], |id| id.as_bytes()));
    }
    variant
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put_ranges(out: &mut Vec<u8>, ranges: &[Range<u64>]) {
    out.extend((ranges.len() as u64).to_le_bytes());
    for range in ranges {
        out.extend(range.start.to_le_bytes());
        out.extend(range.end.to_le_bytes());
    }
}
