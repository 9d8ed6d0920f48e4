//! The compiled unwind rules of one image.

use std::ops::Range;
use std::sync::OnceLock;

use unspool_image::{Arch, Image};

use crate::cfi;
use crate::code::{self, Analysis};
use crate::exidx;
use crate::rows::{Builder, Rows};
use crate::rule::{Row, Source};

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
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            cfi: true,
            exidx: true,
            code: true,
            symbols: true,
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
#[derive(Debug)]
pub struct Table {
    arch: Arch,
    image: Image,
    options: CompileOptions,
    cfi: Rows,
    exidx: Rows,
    code: OnceLock<Analysis>,
    notes: Vec<Note>,
}

impl Table {
    /// Compile `image`'s unwind information. Never fails: what is unreadable is left out and noted.
    pub fn compile(image: &Image, options: &CompileOptions) -> Table {
        let arch = image.arch();
        let text = image.text_ranges();
        let mut notes = Vec::new();
        let mut rows = Builder::new(Source::Cfi);
        if options.cfi {
            // First added wins where both cover an address; they say the same.
            compile_section(image, ".eh_frame", &text, &mut rows, &mut notes);
            compile_section(image, ".debug_frame", &text, &mut rows, &mut notes);
            if let Some(debug) = image.debug_image() {
                compile_section(debug, ".debug_frame", &text, &mut rows, &mut notes);
            }
        }
        let cfi = rows.finish();
        let mut rows = Builder::new(Source::Exidx);
        if options.exidx
            && arch == Arch::Arm
            && let Some(index) = image.section(".ARM.exidx")
        {
            exidx::compile(
                &index.data,
                index.svma,
                &|svma, len| image.bytes_at(svma, len),
                text.iter().map(|range| range.end).max().unwrap_or(0),
                &mut rows,
                &mut notes,
            );
        }
        Table {
            arch,
            image: image.clone(),
            options: options.clone(),
            cfi,
            exidx: rows.finish(),
            code: OnceLock::new(),
            notes,
        }
    }

    /// What could not be used, and why.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The architecture of the image.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The best row for `svma`, taken as an address inside a call: CFI, else exidx, else code.
    pub fn lookup(&self, svma: u64) -> Option<Row<'_>> {
        [Source::Cfi, Source::Exidx, Source::Code]
            .into_iter()
            .find_map(|source| self.lookup_from(source, svma))
    }

    /// The row that one source has for `svma`. [`Source::Code`] analyses the image's code when first asked.
    pub fn lookup_from(&self, source: Source, svma: u64) -> Option<Row<'_>> {
        self.rows(source)?.lookup(svma)
    }

    /// All rows of one source, in order of address.
    pub fn rows_from(&self, source: Source) -> impl Iterator<Item = Row<'_>> {
        self.rows(source).into_iter().flat_map(Rows::iter)
    }

    /// How many rows and distinct rules one source has.
    pub fn size(&self, source: Source) -> (usize, usize) {
        self.rows(source).map_or((0, 0), Rows::size)
    }

    /// What the analysis of the code found; it is made when first asked. `None` if the options forbid it.
    pub fn analysis(&self) -> Option<&Analysis> {
        self.options.code.then(|| {
            self.code
                .get_or_init(|| code::analyze(&self.image, self.options.symbols))
        })
    }

    pub(crate) fn rows(&self, source: Source) -> Option<&Rows> {
        match source {
            Source::Cfi => Some(&self.cfi),
            Source::Exidx => Some(&self.exidx),
            Source::Code => self.analysis().map(Analysis::rows),
        }
    }
}

fn compile_section(
    image: &Image,
    name: &str,
    text: &[Range<u64>],
    rows: &mut Builder,
    notes: &mut Vec<Note>,
) {
    if let Some(section) = image.section(name) {
        let section = cfi::Section {
            data: &section.data,
            svma: section.svma,
            debug: name == ".debug_frame",
        };
        cfi::compile(image.arch(), &section, text, rows, notes);
    } else if name == ".eh_frame"
        && let Some((svma, data)) = eh_frame_by_header(image)
    {
        let section = cfi::Section {
            data,
            svma,
            debug: false,
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
