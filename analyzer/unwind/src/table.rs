//! The compiled unwind rules of one image.
//!
//! What is here needs neither the image's file nor `std`: a table may come from bytes that another machine made
//! ([`Table::from_slice`]). What makes rules out of an image is behind [`maker`].

#[cfg(feature = "std")]
mod compile;
mod file;
#[cfg(feature = "std")]
mod maker;
#[cfg(not(feature = "std"))]
#[path = "table/no_maker.rs"]
mod maker;
#[cfg(feature = "std")]
mod merge;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use unspool_image::Arch;

use crate::doubt::{self, Doubt};
use crate::expression::text::text;
use crate::once::Once;
use crate::rows::{Quick, Rows};
use crate::rule::{Expression, Row, Source};
#[cfg(feature = "std")]
pub use compile::CompileOptions;
#[cfg(feature = "cache")]
pub(crate) use file::variant;
use maker::Maker;

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

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    layout: Layout,
    order: Vec<Source>,
    /// Sources by which the table may be extended: the analysis of the code.
    extensible: bool,
    cfi_before_code: bool,
    /// What the file states: all sources but the analysis of the code.
    stated: Arc<Rows>,
    /// All sources.
    whole: Once<Rows>,
    /// The code's own rows, as they were read from bytes: asked at instructions for which exidx promises nothing.
    code: Option<Rows>,
    /// Functions of which CFI and code contradict each other, in order of address.
    doubts: Once<Vec<Doubt>>,
    notes: Vec<Note>,
    /// Makes what is not there yet; `None` if the table is all there is.
    maker: Option<Maker>,
}

/// What a walk has to know of an image beside its rules. All addresses are svma.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    /// What is mapped.
    pub(crate) segments: Vec<Range<u64>>,
    /// What is code.
    pub(crate) text: Vec<Range<u64>>,
    /// Bytes of it that are known without the image, by their addresses.
    bytes: Vec<(u64, Arc<[u8]>)>,
}

impl Table {
    /// Let the bytes that the image has at `svma` be known to walks: its code, as a rule. A table made from an image
    /// knows them. Without the code, no frame can be found by frame pointers, the link register or scanning, because
    /// nothing shows that a return address follows a call, and no signal trampoline is recognized.
    pub fn with_bytes(mut self, svma: u64, bytes: impl Into<Arc<[u8]>>) -> Table {
        self.layout.bytes.push((svma, bytes.into()));
        self
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
            let found = self.maker.as_ref()?.doubts()?;
            let found = self.doubts.get_or_init(|| found);
            Some(found).filter(|_| self.cfi_before_code)
        });
        made.map_or(&[], |doubted| doubted)
    }

    /// The architecture of the image.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The best row for `svma`, taken as an address inside a call: CFI, else exidx, else code, or as the options
    /// of its making have it.
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
        self.whole().iter()
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
        text(bytes, self.arch.address_size())
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes that the image has at `svma`, if they are known.
    pub(crate) fn bytes_at(&self, svma: u64, len: usize) -> Option<&[u8]> {
        if let Some(maker) = &self.maker {
            return maker.bytes_at(svma, len);
        }
        self.layout.bytes.iter().find_map(|(start, bytes)| {
            let skip = usize::try_from(svma.checked_sub(*start)?).ok()?;
            bytes.get(skip..)?.get(..len)
        })
    }

    pub(crate) fn rows(&self, source: Source) -> Option<&Rows> {
        match &self.code {
            Some(code) if source == Source::Code => Some(code),
            _ => self.maker.as_ref()?.rows(source),
        }
    }

    /// The rows to ask about `svma` first. They are those of all sources only if the file states nothing of it,
    /// or states it by an exidx entry, which may be a neighbour's.
    pub(crate) fn best_at(&self, svma: u64) -> &Rows {
        match self.whole.get() {
            Some(whole) => whole,
            None if !self.extensible => &self.stated,
            None if self.cfi_before_code && self.stated.source(svma) == Some(Source::Cfi) => {
                &self.stated
            }
            None => self.whole(),
        }
    }

    /// The quick word of [`Table::lookup`], and whether its row may end right behind `svma`.
    #[inline(always)]
    pub(crate) fn quick(&self, svma: u64) -> Option<(Quick, bool)> {
        let whole = self.whole.get();
        let found = whole.unwrap_or(&self.stated).quick(svma);
        if whole.is_some()
            || self.cfi_before_code
                && found.is_some_and(|(quick, _)| !quick.is_slow() && quick.source() == Source::Cfi)
        {
            return found;
        }
        self.quick_of_all(svma)
    }

    #[cold]
    fn quick_of_all(&self, svma: u64) -> Option<(Quick, bool)> {
        self.best_at(svma).quick(svma)
    }

    /// The sources, best first.
    pub(crate) fn order(&self) -> &[Source] {
        &self.order
    }

    /// The rows of all sources, as far as there is something to make them of.
    fn whole(&self) -> &Rows {
        match &self.maker {
            Some(maker) if self.extensible => self.whole.get_or_init(|| {
                let whole = maker.whole(&self.order);
                // What is kept on disk is known from then on.
                self.doubted();
                whole
            }),
            _ => self.whole.get().unwrap_or(&self.stated),
        }
    }

    pub(crate) fn neighbours(&self) -> &[Range<u64>] {
        self.maker.as_ref().map_or(&[], Maker::neighbours)
    }
}
