//! The compiled unwind rules of one image.
//!
//! This module needs neither the image's file nor `std`: a table may come from bytes that another
//! machine made ([`Table::from_slice`]). [`maker`] holds the parts that compile rules from an
//! image.

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
use crate::rule::{Cfa, Expression, Row, Source};
#[cfg(feature = "std")]
pub use compile::CompileOptions;
#[cfg(feature = "std")]
pub(crate) use compile::eh_frame;
#[cfg(feature = "cache")]
pub(crate) use file::variant;
use maker::Maker;

/// A part of the image that could not be used.
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

/// The rules of one image, by address (svma). All modules and walks that use the image share it.
///
/// One set of rows holds, for every address, the rule of the best source that covers it
/// ([`Table::lookup`]). The rows of a single source ([`Table::lookup_from`]) are compiled when they
/// are first needed. A walk needs single addresses. Rows are then compiled for one function at a
/// time, until it has needed enough of them that compiling all is cheaper.
#[derive(Debug)]
pub struct Table {
    arch: Arch,
    layout: Layout,
    order: Vec<Source>,
    /// True if the code analysis may add rows.
    extensible: bool,
    cfi_before_code: bool,
    cfi_before_exidx: bool,
    /// Rows of all sources but the code analysis.
    stated: Once<Arc<Rows>>,
    /// Rows of all sources.
    whole: Once<Rows>,
    /// The rows of the code analysis that came with stored bytes. Used at instructions where exidx
    /// rows are not valid.
    code: Once<Rows>,
    /// Functions whose CFI and code contradict each other, in order of address.
    doubts: Once<Vec<Doubt>>,
    /// Set together with `stated`.
    notes: Once<Vec<Note>>,
    /// Compiles missing rows. `None` if the table cannot grow.
    maker: Option<Maker>,
}

/// The facts about an image, besides its rules, that a walk needs. All addresses are svma.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    /// Mapped address ranges.
    pub(crate) segments: Vec<Range<u64>>,
    /// Code address ranges.
    pub(crate) text: Vec<Range<u64>>,
    /// Bytes that are known without the image, by address.
    bytes: Vec<(u64, Arc<[u8]>)>,
}

/// Rows of a table, or rows that were compiled for a single address.
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
    /// Gives walks the bytes that the image has at `svma`, usually its code. A table made from an
    /// image already has them. Without the code, a walk cannot check that a return address follows
    /// a call. So it finds no frame by frame pointers, by the link register or by scanning. It also
    /// recognizes no signal trampoline.
    pub fn with_bytes(mut self, svma: u64, bytes: impl Into<Arc<[u8]>>) -> Table {
        self.layout.bytes.push((svma, bytes.into()));
        self
    }

    /// The parts that could not be used, and why. Compiles all sources but the code analysis.
    pub fn notes(&self) -> &[Note] {
        self.stated();
        self.notes.get().map_or(&[], |notes| notes)
    }

    /// A note about call frame information that the code contradicts. Known once all rows have been
    /// compiled ([`Table::rows_of_all`]); `None` before.
    pub fn doubts(&self) -> Option<Note> {
        doubt::note(self.doubted())
    }

    /// Like [`Table::doubts`], for the function that contains `svma`. Known once the function's
    /// code has been analysed, which happens when its call frame information fails.
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

    /// The best row for `svma`, taken as an address inside a call. The order is CFI, exidx, code,
    /// unless the table's options state another.
    pub fn lookup(&self, svma: u64) -> Option<Row<'_>> {
        self.best_at(svma).lookup(svma)
    }

    /// The row that one source has for `svma`. [`Source::Code`] analyses the image's code when
    /// first used.
    pub fn lookup_from(&self, source: Source, svma: u64) -> Option<Row<'_>> {
        self.rows(source)?.lookup(svma)
    }

    /// The addresses and the CFA of the row that one source has for `svma`. Compiles no more than
    /// needed.
    pub fn cfa_from(&self, source: Source, svma: u64) -> Option<(Range<u64>, Cfa)> {
        let rows = self.rows_at(source, svma)?;
        let row = rows.lookup(svma)?;
        Some((row.start..row.end, row.rule.cfa))
    }

    /// All rows of one source, in order of address.
    pub fn rows_from(&self, source: Source) -> impl Iterator<Item = Row<'_>> {
        self.rows(source).into_iter().flat_map(Rows::iter)
    }

    /// The best row for every address, in order of address. Analyses the image's code if the
    /// options allow it.
    pub fn rows_of_all(&self) -> impl Iterator<Item = Row<'_>> {
        self.whole().iter()
    }

    /// The number of rows and of distinct rules of one source.
    pub fn size(&self, source: Source) -> (usize, usize) {
        self.rows(source).map_or((0, 0), Rows::size)
    }

    /// Size in bytes of the merged table, in memory and on disk, as far as it was compiled.
    pub fn bytes(&self) -> usize {
        self.whole.get().unwrap_or_else(|| self.stated()).bytes()
    }

    /// The bytes of an expression. It belongs to a row of [`Table::rows_from`], or, without a
    /// source, of [`Table::rows_of_all`].
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

    /// An expression as text: `DW_OP_breg7 8; DW_OP_deref`.
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

    /// The rows that contain a source's row for `svma`, if it has one. Compiles no more than
    /// needed.
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

    /// The merged rows with the best rule for `svma`, if they have been compiled.
    pub(crate) fn merged_at(&self, svma: u64) -> Option<&Rows> {
        if let Some(whole) = self.whole.get() {
            return Some(whole);
        }
        let stated = self.stated.get()?;
        let best =
            !self.extensible || self.cfi_before_code && stated.source(svma) == Some(Source::Cfi);
        best.then_some(stated)
    }

    /// The rows to search first for `svma`. These are the rows of all sources in two cases: the
    /// file's tables do not cover `svma`, or only with an exidx entry that may belong to a
    /// neighbouring function.
    fn best_at(&self, svma: u64) -> &Rows {
        self.stated();
        self.merged_at(svma).unwrap_or_else(|| self.whole())
    }

    /// The quick word of the best row for `svma`, and whether that row may end directly after
    /// `svma`.
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

    /// The rows of all sources but the code analysis.
    fn stated(&self) -> &Rows {
        if let Some(stated) = self.stated.get() {
            return stated;
        }
        self.make_stated();
        self.stated
            .get_or_init(|| Arc::new(Rows::empty(self.arch, 0)))
    }

    /// The rows of all sources, as far as they can be compiled.
    fn whole(&self) -> &Rows {
        match &self.maker {
            Some(maker) if self.extensible => self.whole.get_or_init(|| {
                let whole = maker.whole(&self.order);
                // The doubts are stored with the table.
                self.doubted();
                whole
            }),
            _ => self.whole.get().unwrap_or_else(|| self.stated()),
        }
    }

    /// Whether the exidx entry for `svma` belongs to an earlier function than the one at `svma`.
    pub(crate) fn is_neighbours(&self, svma: u64) -> bool {
        self.maker
            .as_ref()
            .is_some_and(|maker| maker.is_neighbours(svma))
    }
}
