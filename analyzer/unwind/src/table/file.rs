//! A table as bytes: the content of [`crate::Cache`]'s files.
//!
//! ```text
//! "unspool\0"   8 bytes
//! checksum      CRC-32C of what follows
//! key           what the table was compiled from and by which build
//! image         architecture, order of sources, mapped ranges, code ranges
//! notes         parts of the image that could not be used
//! rows          of all sources but the code analysis; then, if they were needed, of all sources,
//!               of the code alone where exidx covers something, and the doubts
//! ```

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use unspool_image::Arch;

use super::{Layout, Note, Table};
use crate::doubt::Doubt;
use crate::once::Once;
use crate::rows::{Damage, Rows, array, number};
use crate::rule::Source;
#[cfg(feature = "cache")]
pub(super) use keyed::SavedExtent;
#[cfg(feature = "cache")]
pub(crate) use keyed::variant;

#[cfg(feature = "cache")]
mod keyed;

const MAGIC: &[u8; 8] = b"unspool\0";

impl Table {
    /// Reads a table that `Table::to_bytes` returned. Needs no file, no image and no `std`.
    ///
    /// The table never compiles further rows: it has exactly the rows in `bytes`, which are the
    /// best row for each address. [`lookup_from`](Table::lookup_from) therefore finds nothing. The
    /// function does not check the checksum and the key, so the caller must trust the bytes. But
    /// lookups terminate and stay within the bytes even if these are damaged. `None` if the bytes
    /// do not contain a table.
    pub fn from_slice(bytes: &[u8]) -> Option<Table> {
        let body = &mut bytes.strip_prefix(MAGIC)?.get(8..)?;
        array(body, 1).ok()?;
        Table::read(body)
    }
}

impl Table {
    /// Reads the part after the key.
    fn read(body: &mut &[u8]) -> Option<Table> {
        let arch = *Arch::ALL.get(usize::try_from(number(body).ok()?).ok()?)?;
        let order = array(body, 1).ok()?.iter();
        let source = |&number: &u8| Source::ALL.get(usize::from(number)).copied();
        let order: Vec<Source> = order.map(source).collect::<Option<_>>()?;
        let layout = Layout {
            segments: ranges(body)?,
            text: ranges(body)?,
            bytes: Vec::new(),
        };
        let notes = (0..number(body).ok()?)
            .map(|_| text(body).map(Note::new))
            .collect::<Result<Vec<Note>, Damage>>()
            .ok()?;
        let stated = Rows::read(arch, body).ok()?;
        let (whole, code, doubts) = match number(body).ok()? {
            0 => (Once::new(), Once::new(), Once::new()),
            1 => {
                let whole = Rows::read(arch, body).ok()?;
                let code = match number(body).ok()? {
                    0 => Once::new(),
                    1 => Rows::read(arch, body).ok()?.into(),
                    _ => return None,
                };
                let (doubts, _) = array(body, 24).ok()?.as_chunks::<24>();
                let doubts = doubts.iter().map(doubt).collect::<Vec<Doubt>>();
                (whole.into(), code, doubts.into())
            }
            _ => return None,
        };
        let but = |other: Source| order.iter().find(|source| **source != other);
        let table = Table {
            arch,
            layout,
            extensible: false,
            cfi_before_code: but(Source::Exidx) == Some(&Source::Cfi),
            cfi_before_exidx: but(Source::Code) == Some(&Source::Cfi),
            order,
            stated: Arc::new(stated).into(),
            whole,
            code,
            doubts,
            notes: notes.into(),
            maker: None,
        };
        body.is_empty().then_some(table)
    }
}

fn ranges(body: &mut &[u8]) -> Option<Vec<Range<u64>>> {
    let (chunks, _) = array(body, 16).ok()?.as_chunks::<16>();
    let range = |chunk: &[u8; 16]| word(chunk, 0)..word(chunk, 8);
    Some(chunks.iter().map(range).collect())
}

fn text(bytes: &mut &[u8]) -> Result<String, Damage> {
    let text = core::str::from_utf8(array(bytes, 1)?);
    text.map(Into::into).map_err(|_| Damage)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|index| bytes[at + index]))
}

fn doubt(bytes: &[u8; 24]) -> Doubt {
    Doubt {
        start: word(bytes, 0),
        end: word(bytes, 8),
        first: word(bytes, 16),
    }
}
