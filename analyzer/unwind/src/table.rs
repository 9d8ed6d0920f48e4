//! The compiled unwind rules of one image.
//!
//! What is here needs neither the image's file nor `std`: a table may come from bytes that another machine made
//! ([`Table::from_slice`]). What makes rules out of an image is behind [`maker`].

#[cfg(feature = "std")]
mod compile;
#[cfg(feature = "std")]
mod demand;
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
use core::ops::{Deref, Range};

use unspool_image::Arch;

use crate::doubt::{self, Doubt};
use crate::expression::text::text;
use crate::once::Once;
use crate::rows::{Quick, Rows};
use crate::rule::{Expression, Row, Source};
#[cfg(feature = "std")]
pub use compile::CompileOptions;
#[cfg(feature = "std")]
pub(crate) use compile::eh_frame;
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
/// ([`Table::lookup`]). What a single source says ([`Table::lookup_from`]) is compiled when first asked. A walk asks for single
/// addresses: rows are then made for one function at a time, until so many were asked for that all are compiled.
#[derive(Debug)]
pub struct Table {
    arch: Arch,
    layout: Layout,
    order: Vec<Source>,
    /// Sources by which the table may be extended: the analysis of the code.
    extensible: bool,
    cfi_before_code: bool,
    cfi_before_exidx: bool,
    /// What the file states: all sources but the analysis of the code.
    stated: Once<Arc<Rows>>,
    /// All sources.
    whole: Once<Rows>,
    /// The code's own rows, as they were read from bytes: asked at instructions for which exidx promises nothing.
    code: Once<Rows>,
    /// Functions of which CFI and code contradict each other, in order of address.
    doubts: Once<Vec<Doubt>>,
    /// Known once `stated` is.
    notes: Once<Vec<Note>>,
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

/// Rows of a table, or some that were made for a single address.
#[derive(Clone, Debug)]
pub(crate) enum RowsRef<'t> {
    Borrowed(&'t Rows),
    #[cfg_attr(not(feature = "std"), expect(dead_code))]
    Shared(Arc<Rows>),
}

impl Deref for RowsRef<'_> {
    type Target = Rows;

    fn deref(&self) -> &Rows {
        match self {
            RowsRef::Borrowed(rows) => rows,
            RowsRef::Shared(rows) => rows,
        }
    }
}

impl Table {
    /// Let the bytes that the image has at `svma` be known to walks: its code, as a rule. A table made from an image
    /// knows them. Without the code, no frame can be found by frame pointers, the link register or scanning, because
    /// nothing shows that a return address follows a call, and no signal trampoline is recognized.
    pub fn with_bytes(mut self, svma: u64, bytes: impl Into<Arc<[u8]>>) -> Table {
        self.layout.bytes.push((svma, bytes.into()));
        self
    }

    /// What could not be used, and why. Compiles what the file states.
    pub fn notes(&self) -> &[Note] {
        self.stated();
        self.notes.get().map_or(&[], |notes| notes)
    }

    /// Call frame information that the code contradicts. Known once all rows have been made ([`Table::rows_of_all`]); nothing
    /// before.
    pub fn doubts(&self) -> Option<Note> {
        doubt::note(self.doubted())
    }

    /// The same of the function that contains `svma`, alone. Known once its code has been analysed, as it is when its call
    /// frame information fails.
    pub fn doubt_at(&self, svma: u64) -> Option<Note> {
        let doubted = self.doubted();
        if self.whole.get().is_none() {
            let maker = self.maker.as_ref().filter(|_| self.cfi_before_code)?;
            return doubt::note(&[maker.doubt_at(svma)?]);
        }
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
        self.whole.get().unwrap_or_else(|| self.stated()).bytes()
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
                .unwrap_or_else(|| self.stated())
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
        match self.code.get() {
            Some(code) if source == Source::Code => Some(code),
            _ => self.maker.as_ref()?.rows(source),
        }
    }

    /// The rows in which a source's row for `svma` is, if it has one: no more of them are made than need be.
    pub(crate) fn rows_at(&self, source: Source, svma: u64) -> Option<RowsRef<'_>> {
        match (source, self.code.get(), self.stated.get()) {
            (Source::Code, Some(code), _) => return Some(RowsRef::Borrowed(code)),
            (Source::Cfi, _, Some(stated)) if self.cfi_before_exidx => {
                let is_cfi = stated.source(svma) == Some(Source::Cfi);
                return is_cfi.then_some(RowsRef::Borrowed(stated));
            }
            _ => {}
        }
        let maker = self.maker.as_ref()?;
        let rows = maker.rows_at(source, svma);
        if maker.is_worth_compiling() {
            self.stated();
        }
        rows
    }

    /// The rows that say what is best at `svma`, if they were made already.
    pub(crate) fn merged_at(&self, svma: u64) -> Option<&Rows> {
        if let Some(whole) = self.whole.get() {
            return Some(whole);
        }
        let stated = self.stated.get()?;
        let best =
            !self.extensible || self.cfi_before_code && stated.source(svma) == Some(Source::Cfi);
        best.then_some(stated)
    }

    /// The rows to ask about `svma` first. They are those of all sources only if the file states nothing of it,
    /// or states it by an exidx entry, which may be a neighbour's.
    fn best_at(&self, svma: u64) -> &Rows {
        self.stated();
        self.merged_at(svma).unwrap_or_else(|| self.whole())
    }

    /// The quick word of the best row for `svma`, and whether that row may end right behind `svma`.
    #[inline(always)]
    pub(crate) fn quick(&self, svma: u64) -> Option<(Quick, bool)> {
        let whole = self.whole.get();
        if let Some(rows) = whole.or_else(|| Some(self.stated.get()?)) {
            let found = rows.quick(svma);
            if whole.is_some()
                || self.cfi_before_code
                    && found
                        .is_some_and(|(quick, _)| !quick.is_slow() && quick.source() == Source::Cfi)
            {
                return found;
            }
        }
        self.quick_on_demand(svma)
    }

    #[cold]
    fn quick_on_demand(&self, svma: u64) -> Option<(Quick, bool)> {
        if let Some(rows) = self.merged_at(svma) {
            return rows.quick(svma);
        }
        self.order.iter().find_map(|&source| {
            let found = self.rows_at(source, svma)?.quick(svma)?;
            let own = source != Source::Exidx || !self.is_neighbours(svma);
            own.then_some(found)
        })
    }

    /// The sources, best first.
    pub(crate) fn order(&self) -> &[Source] {
        &self.order
    }

    /// What the file states.
    fn stated(&self) -> &Rows {
        if let Some(stated) = self.stated.get() {
            return stated;
        }
        self.make_stated();
        self.stated
            .get_or_init(|| Arc::new(Rows::empty(self.arch, 0)))
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
            _ => self.whole.get().unwrap_or_else(|| self.stated()),
        }
    }

    /// Whether the exidx entry for `svma` is that of a function before the one that `svma` is in.
    pub(crate) fn is_neighbours(&self, svma: u64) -> bool {
        self.maker
            .as_ref()
            .is_some_and(|maker| maker.is_neighbours(svma))
    }
}
