//! Compiles the table of an image.

use std::borrow::Cow;
use std::ops::Range;

use unspool_image::{Arch, Image, Section, Segment};

use super::maker::Maker;
use super::{Layout, Note, Table};
#[cfg(feature = "cache")]
use crate::cache::Cache;
use crate::cfi;
use crate::code::Analysis;
use crate::exidx;
use crate::frame_pointer;
use crate::once::Once;
use crate::rows::{Builder, Rows};
use crate::rule::{Row, Source};

/// Options: which sources to compile, and their order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompileOptions {
    /// `.eh_frame`, `.debug_frame`.
    pub cfi: bool,
    /// `.ARM.exidx`.
    pub exidx: bool,
    /// Analysis of the code, made once per image when a walk first needs it.
    pub code: bool,
    /// Whether the code analysis may take function starts from symbols. False only to measure the
    /// analysis without them.
    pub symbols: bool,
    /// The sources to prefer where several cover an address. Other sources come last.
    pub prefer: Vec<Source>,
}

impl CompileOptions {
    /// All sources, best first.
    pub(super) fn order(&self) -> Vec<Source> {
        let mut order = self.prefer.clone();
        order.extend(Source::ALL);
        let mut known = Vec::with_capacity(Source::ALL.len());
        order.retain(|source| {
            !known.contains(source) && {
                known.push(*source);
                true
            }
        });
        order
    }
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            cfi: true,
            exidx: true,
            code: true,
            symbols: true,
            prefer: Vec::new(),
        }
    }
}

impl Table {
    /// Compiles `image`'s unwind information. Never fails: unreadable parts are left out and noted.
    pub fn compile(image: &Image, options: &CompileOptions) -> Table {
        let table = Table::on_demand(image, options);
        table.stated();
        table
    }

    /// A table of `image` that compiles rows when they are first needed.
    pub fn on_demand(image: &Image, options: &CompileOptions) -> Table {
        Table::new(Maker::new(image, options))
    }

    /// Like [`Table::on_demand`], but takes rows from `cache` if it has them.
    #[cfg(feature = "cache")]
    pub(crate) fn caching(image: &Image, options: &CompileOptions, cache: Cache) -> Table {
        Table::new(Maker::new(image, options).with_cache(cache))
    }

    pub(super) fn new(maker: Maker) -> Table {
        let (image, options) = (&maker.image, &maker.options);
        let order = options.order();
        let but = |other: Source| order.iter().find(|source| **source != other);
        Table {
            arch: image.arch(),
            layout: Layout {
                segments: image.segments().iter().map(Segment::range).collect(),
                text: image.text_ranges(),
                bytes: Vec::new(),
            },
            extensible: options.code,
            cfi_before_code: but(Source::Exidx) == Some(&Source::Cfi),
            cfi_before_exidx: but(Source::Code) == Some(&Source::Cfi),
            order,
            stated: Once::new(),
            whole: Once::new(),
            code: Once::new(),
            doubts: Once::new(),
            notes: Once::new(),
            maker: Some(maker),
        }
    }

    /// Compiles the rows of all sources but the code analysis, or reads them from the cache.
    pub(super) fn make_stated(&self) {
        let Some(maker) = &self.maker else {
            return;
        };
        #[cfg(feature = "cache")]
        if self.read_saved(maker) {
            return;
        }
        let mut notes = Vec::new();
        let stated = maker.stated(&self.order, &mut notes);
        // Another thread may have set them first.
        let _ = self.notes.set(notes);
        let _ = self.stated.set(stated);
    }

    /// The image of this table. `None` if the table came without one ([`Table::from_slice`]).
    pub fn image(&self) -> Option<&Image> {
        Some(&self.maker.as_ref()?.image)
    }

    /// Rows of the architecture's frame-pointer chain, as if all code kept a frame pointer in the
    /// usual way. Ignore [`Row::source`] in them.
    pub fn rows_of_frame_pointer(&self) -> Vec<Row<'static>> {
        self.image().map_or(Vec::new(), frame_pointer::rows)
    }

    /// Number of code regions analysed so far.
    #[cfg(test)]
    pub(crate) fn known_regions(&self) -> usize {
        let maker = self.maker.as_ref();
        maker.map_or(0, |maker| maker.demand.regions().len())
    }

    /// The analysis of all code, if it has been made.
    #[cfg(test)]
    pub(super) fn analysis_made(&self) -> Option<&Analysis> {
        self.maker.as_ref()?.analysis_made()
    }

    /// The analysis of the code, made when first needed. `None` if the options forbid it, or
    /// without an image.
    pub fn analysis(&self) -> Option<&Analysis> {
        self.maker.as_ref()?.analysis()
    }

    /// The start of the function that contains `svma`, by the code and the file's tables. Analyses
    /// no more code than needed. `None` without an image.
    pub fn function_start(&self, svma: u64) -> Option<u64> {
        self.maker.as_ref()?.function_start(svma)
    }
}

pub(super) fn compile_cfi(image: &Image, options: &CompileOptions, notes: &mut Vec<Note>) -> Rows {
    let mut rows = Builder::new(Source::Cfi, image.arch());
    if options.cfi {
        let text = image.text_ranges();
        // Where both sections cover an address, they agree, and the first one added wins.
        compile_section(image, ".eh_frame", &text, &mut rows, notes);
        compile_section(image, ".debug_frame", &text, &mut rows, notes);
        // The image takes the section from its debug file only if it has none itself.
        if let Some(debug) = image.debug_image() {
            let place = |image: &Image| Some(image.section(".debug_frame")?.data.as_ptr());
            if place(debug) != place(image) {
                compile_section(debug, ".debug_frame", &text, &mut rows, notes);
            }
        }
    }
    rows.finish()
}

pub(super) fn compile_exidx(
    image: &Image,
    options: &CompileOptions,
    notes: &mut Vec<Note>,
) -> Rows {
    let mut rows = Builder::new(Source::Exidx, image.arch());
    if options.exidx
        && image.arch() == Arch::Arm
        && let Some(index) = image.section(".ARM.exidx")
    {
        let text = image.text_ranges();
        exidx::compile(
            &index.data,
            index.svma,
            &|svma, len| image.bytes_at(svma, len),
            text.iter().map(|range| range.end).max().unwrap_or(0),
            &mut rows,
            notes,
        );
    }
    rows.finish()
}

fn compile_section(
    image: &Image,
    name: &str,
    text: &[Range<u64>],
    rows: &mut Builder,
    notes: &mut Vec<Note>,
) {
    if name == ".eh_frame" {
        if let Some(section) = eh_frame(image) {
            cfi::compile(image.arch(), &section, text, rows, notes);
        }
    } else if let Some(section) = image.section(name) {
        let section = cfi::Section {
            data: &section.data,
            svma: section.svma,
            debug: true,
            header: None,
        };
        cfi::compile(image.arch(), &section, text, rows, notes);
    }
}

/// `.eh_frame` with its header.
pub(crate) fn eh_frame(image: &Image) -> Option<cfi::Section<'_>> {
    let header = image.section(".eh_frame_hdr").and_then(borrowed);
    let (svma, data) = match image.section(".eh_frame") {
        Some(section) => borrowed(section)?,
        None => eh_frame_by_header(image)?,
    };
    Some(cfi::Section {
        data,
        svma,
        debug: false,
        header,
    })
}

/// The address and the bytes of a mapped section, which is never compressed.
fn borrowed(section: Section<'_>) -> Option<(u64, &[u8])> {
    match section.data {
        Cow::Borrowed(data) => Some((section.svma, data)),
        Cow::Owned(_) => None,
    }
}

/// Finds `.eh_frame` without section headers. `PT_GNU_EH_FRAME` leads to `.eh_frame_hdr`, which
/// states the start (LSB 5.0, 10.6.2). The section ends with a zero length, or with its segment.
fn eh_frame_by_header(image: &Image) -> Option<(u64, &[u8])> {
    let header = image.section(".eh_frame_hdr")?;
    // version 1; pointer encoding 0x1b: pc-relative, signed 4 bytes, as all linkers write it
    let [1, 0x1b, _, _, a, b, c, d] = *header.data.first_chunk::<8>()? else {
        return None;
    };
    let offset = i32::from_le_bytes([a, b, c, d]);
    let svma = header
        .svma
        .wrapping_add(4)
        .wrapping_add_signed(i64::from(offset));
    let segment = image
        .segments()
        .iter()
        .find(|segment| svma.wrapping_sub(segment.svma) < segment.file_size)?;
    let len = segment.file_size - (svma - segment.svma);
    Some((svma, image.bytes_at(svma, usize::try_from(len).ok()?)?))
}
