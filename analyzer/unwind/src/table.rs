//! The compiled unwind rules of one image.

#[cfg(feature = "cache")]
mod file;
mod merge;

use std::ops::Range;
#[cfg(feature = "cache")]
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use unspool_image::{Arch, Image};

use crate::cfi;
use crate::code::{self, Analysis};
use crate::doubt::{self, Doubt};
use crate::exidx;
use crate::frame_pointer;
use crate::rows::{Builder, Quick, Rows};
use crate::rule::{Expression, Row, Source};
#[cfg(feature = "cache")]
pub(crate) use file::variant;
use merge::{Layer, merge};

/// Which sources to compile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CompileOptions {
    /// `.eh_frame`, `.debug_frame`.
    pub cfi: bool,
    /// `.ARM.exidx`.
    pub exidx: bool,
    /// Analysis of the code: done once per image, when a walk first needs it.
    pub code: bool,
    /// Let the analysis of the code use symbols for function starts. False only to measure it without.
    pub symbols: bool,
    /// Which source to believe first where several know an address; those not named come last.
    pub prefer: Vec<Source>,
}

impl CompileOptions {
    /// All sources, best first.
    fn order(&self) -> Vec<Source> {
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

/// Something in the image that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// A sentence without its full stop.
    pub text: String,
}

impl Note {
    pub(crate) fn new(text: String) -> Self {
        Note { text }
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// The rules of one image, by address (svma). Shared between all modules and walks that use it.
///
/// One set of rows holds, for every address, the rule of the best source that knows it
/// ([`Table::lookup`]). What a single source says ([`Table::lookup_from`]) is compiled when first asked.
#[derive(Debug)]
pub struct Table {
    arch: Arch,
    pub(crate) image: Image,
    pub(crate) options: CompileOptions,
    order: Vec<Source>,
    cfi_before_code: bool,
    /// What the file states: all sources but the analysis of the code.
    stated: Arc<Rows>,
    /// All sources.
    whole: OnceLock<Rows>,
    cfi: OnceLock<Arc<Rows>>,
    exidx: OnceLock<Arc<Rows>>,
    code: OnceLock<Analysis>,
    /// Where an exidx entry reaches over functions that have none.
    neighbours: OnceLock<Vec<Range<u64>>>,
    /// Functions of which CFI and code contradict each other, in order of address.
    doubts: OnceLock<Vec<Doubt>>,
    pub(crate) notes: Vec<Note>,
    /// How much of it is on disk: nothing, what the file states, all.
    #[cfg(feature = "cache")]
    kept: AtomicU8,
}

impl Table {
    /// Compile `image`'s unwind information. Never fails: what is unreadable is left out and noted.
    pub fn compile(image: &Image, options: &CompileOptions) -> Table {
        let mut notes = Vec::new();
        let cfi = Arc::new(compile_cfi(image, options, &mut notes));
        let exidx = Arc::new(compile_exidx(image, options, &mut notes));
        let stated = if exidx.is_empty() {
            cfi.clone()
        } else if cfi.is_empty() {
            exidx.clone()
        } else {
            let layers = options
                .order()
                .into_iter()
                .filter_map(|source| match source {
                    Source::Cfi => Some(Layer::whole(&cfi)),
                    Source::Exidx => Some(Layer::whole(&exidx)),
                    Source::Code => None,
                });
            Arc::new(merge(image.arch(), &layers.collect::<Vec<_>>()))
        };
        let mut table = Table::new(image, options, stated, notes);
        table.cfi = cfi.into();
        table.exidx = exidx.into();
        table
    }

    fn new(image: &Image, options: &CompileOptions, stated: Arc<Rows>, notes: Vec<Note>) -> Table {
        let order = options.order();
        Table {
            arch: image.arch(),
            image: image.clone(),
            options: options.clone(),
            cfi_before_code: order.iter().find(|source| **source != Source::Exidx)
                == Some(&Source::Cfi),
            order,
            stated,
            whole: OnceLock::new(),
            cfi: OnceLock::new(),
            exidx: OnceLock::new(),
            code: OnceLock::new(),
            neighbours: OnceLock::new(),
            doubts: OnceLock::new(),
            notes,
            #[cfg(feature = "cache")]
            kept: AtomicU8::new(0),
        }
    }

    /// What could not be used, and why.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Call frame information that the code contradicts. Known once the analysis of the code has been made, as it is when
    /// call frame information fails; nothing before.
    pub fn doubts(&self) -> Option<Note> {
        doubt::note(self.doubted())
    }

    /// The same of the function that contains `svma`, alone.
    pub fn doubt_at(&self, svma: u64) -> Option<Note> {
        let doubted = self.doubted();
        let after = doubted.partition_point(|doubt| doubt.start <= svma);
        let doubt = after.checked_sub(1).map(|at| &doubted[at..after])?;
        doubt::note(doubt).filter(|_| svma < doubt[0].end)
    }

    fn doubted(&self) -> &[Doubt] {
        let made = self.doubts.get().or_else(|| {
            let (cfi, analysis) = (self.rows(Source::Cfi)?, self.code.get()?);
            let found = self.doubts.get_or_init(|| doubt::doubts(cfi, analysis));
            Some(found).filter(|_| self.cfi_before_code)
        });
        made.map_or(&[], |doubted| doubted)
    }

    /// The architecture of the image.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The best row for `svma`, taken as an address inside a call: CFI, else exidx, else code, or as
    /// [`CompileOptions::prefer`] has it.
    pub fn lookup(&self, svma: u64) -> Option<Row<'_>> {
        self.best_at(svma).lookup(svma)
    }

    /// The row that one source has for `svma`. [`Source::Code`] analyses the image's code when first asked.
    pub fn lookup_from(&self, source: Source, svma: u64) -> Option<Row<'_>> {
        self.rows(source)?.lookup(svma)
    }

    /// All rows of one source, in order of address.
    pub fn rows_from(&self, source: Source) -> impl Iterator<Item = Row<'_>> {
        self.rows(source).into_iter().flat_map(Rows::iter)
    }

    /// The best row of every address, in order of address. Analyses the image's code if the options allow it.
    pub fn rows_of_all(&self) -> impl Iterator<Item = Row<'_>> {
        let rows = if self.options.code {
            self.whole()
        } else {
            &self.stated
        };
        rows.iter()
    }

    /// How many rows and distinct rules one source has.
    pub fn size(&self, source: Source) -> (usize, usize) {
        self.rows(source).map_or((0, 0), Rows::size)
    }

    /// Bytes of the merged table, in memory and on disk, as far as it was needed.
    pub fn bytes(&self) -> usize {
        self.whole.get().unwrap_or(&self.stated).bytes()
    }

    /// The bytes of an expression that a row of [`Table::rows_from`] names, or, without a source, one of
    /// [`Table::rows_of_all`].
    pub fn expression(&self, source: Option<Source>, expression: Expression) -> &[u8] {
        match source {
            Some(source) => self
                .rows(source)
                .map_or(&[], |rows| rows.expression(expression)),
            None => self
                .whole
                .get()
                .unwrap_or(&self.stated)
                .expression(expression),
        }
    }

    /// The same in words: `DW_OP_breg7 8; DW_OP_deref`.
    pub fn expression_text(&self, source: Option<Source>, expression: Expression) -> String {
        let bytes = self.expression(source, expression);
        cfi::expression::text::text(bytes, self.arch.address_size())
    }

    /// Rows of the architecture's frame-pointer chain: what a frame looks like in compilers' usual shape, wherever
    /// code keeps a frame pointer. Nothing says where it does. [`Row::source`] means nothing in them.
    pub fn rows_of_frame_pointer(&self) -> Vec<Row<'static>> {
        frame_pointer::rows(&self.image)
    }

    /// What the analysis of the code found; it is made when first asked. `None` if the options forbid it.
    pub fn analysis(&self) -> Option<&Analysis> {
        self.options.code.then(|| {
            self.code
                .get_or_init(|| code::analyze(&self.image, self.options.symbols))
        })
    }

    pub(crate) fn rows(&self, source: Source) -> Option<&Rows> {
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

    /// The rows to ask about `svma` first. They are those of all sources only if the file states nothing of it,
    /// or states it by an exidx entry, which may be a neighbour's.
    pub(crate) fn best_at(&self, svma: u64) -> &Rows {
        match self.whole.get() {
            Some(whole) => whole,
            None if !self.options.code => &self.stated,
            None if self.cfi_before_code && self.stated.source(svma) == Some(Source::Cfi) => {
                &self.stated
            }
            None => self.whole(),
        }
    }

    /// The quick word of [`Table::lookup`], and whether its row may end right behind `svma`.
    #[inline]
    pub(crate) fn quick(&self, svma: u64) -> Option<(Quick, bool)> {
        if self.whole.get().is_none()
            && self.cfi_before_code
            && let Some((quick, ends)) = self.stated.quick(svma)
            && !quick.is_slow()
            && quick.source() == Source::Cfi
        {
            return Some((quick, ends));
        }
        self.best_at(svma).quick(svma)
    }

    /// The order of [`CompileOptions::prefer`].
    pub(crate) fn order(&self) -> &[Source] {
        &self.order
    }

    fn whole(&self) -> &Rows {
        self.whole.get_or_init(|| {
            // What is kept on disk is known from then on.
            self.analysis();
            self.doubted();
            let layers = self.order.iter().filter_map(|&source| {
                let cuts: &[Range<u64>] = match source {
                    Source::Exidx => self.neighbours(),
                    _ => &[],
                };
                let rows = self.rows(source)?;
                Some(Layer { rows, cuts })
            });
            merge(self.arch, &layers.collect::<Vec<_>>())
        })
    }

    /// An exidx entry holds until the next one starts; functions without an entry of their own fall to
    /// their neighbour's. A function start between an entry's and the next one gives that away: from there
    /// on the entry says nothing.
    pub(crate) fn neighbours(&self) -> &[Range<u64>] {
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

/// For the cache on disk.
#[cfg(feature = "cache")]
impl Table {
    /// Whether there is more than was kept.
    pub(crate) fn has_news(&self) -> bool {
        self.kept.load(Ordering::Relaxed) < self.extent()
    }

    pub(crate) fn was_kept(&self) {
        self.kept.store(self.extent(), Ordering::Relaxed);
    }

    fn extent(&self) -> u8 {
        1 + u8::from(self.whole.get().is_some())
    }
}

fn compile_cfi(image: &Image, options: &CompileOptions, notes: &mut Vec<Note>) -> Rows {
    let mut rows = Builder::new(Source::Cfi, image.arch());
    if options.cfi {
        let text = image.text_ranges();
        // First added wins where both cover an address; they say the same.
        compile_section(image, ".eh_frame", &text, &mut rows, notes);
        compile_section(image, ".debug_frame", &text, &mut rows, notes);
        // The image takes it from its debug file only if it has none itself.
        if let Some(debug) = image.debug_image() {
            let place = |image: &Image| Some(image.section(".debug_frame")?.data.as_ptr());
            if place(debug) != place(image) {
                compile_section(debug, ".debug_frame", &text, &mut rows, notes);
            }
        }
    }
    rows.finish()
}

fn compile_exidx(image: &Image, options: &CompileOptions, notes: &mut Vec<Note>) -> Rows {
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
    let header = image.section(".eh_frame_hdr");
    let header = header
        .as_ref()
        .filter(|_| name == ".eh_frame")
        .map(|header| (header.svma, &header.data[..]));
    let debug = name == ".debug_frame";
    if let Some(section) = image.section(name) {
        let section = cfi::Section {
            data: &section.data,
            svma: section.svma,
            debug,
            header,
        };
        cfi::compile(image.arch(), &section, text, rows, notes);
    } else if name == ".eh_frame"
        && let Some((svma, data)) = eh_frame_by_header(image)
    {
        let section = cfi::Section {
            data,
            svma,
            debug,
            header,
        };
        cfi::compile(image.arch(), &section, text, rows, notes);
    }
}

/// `.eh_frame` where section headers are gone: `PT_GNU_EH_FRAME` leads to `.eh_frame_hdr`, which names its start
/// (LSB 5.0, 10.6.2). It ends with a zero length, at the latest with its segment.
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
