//! A table as bytes, and back: what [`crate::Cache`] keeps in files, for those who keep it elsewhere.
//!
//! ```text
//! "unspool\0"   8 bytes
//! checksum      CRC-32C of what follows
//! key           what the table was made of and by
//! notes         what could not be used of the image
//! rows          of what the file states; then, if they were needed, of all sources, and what is doubted
//! ```

use unspool_image::Image;

use super::{CompileOptions, Note, Table};
use crate::doubt::Doubt;
use crate::rows::{Damage, Rows, array, number};

const MAGIC: &[u8; 8] = b"unspool\0";

impl Table {
    /// The table as it is by now, for [`Table::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put(&mut body, &key(&self.image, &self.options));
        body.extend((self.notes.len() as u64).to_le_bytes());
        for note in &self.notes {
            put(&mut body, note.text.as_bytes());
        }
        self.stated.write(&mut body);
        body.extend(u64::from(self.whole.get().is_some()).to_le_bytes());
        if let Some(whole) = self.whole.get() {
            whole.write(&mut body);
            let doubts = self.doubts.get().map_or(&[][..], |doubts| doubts);
            body.extend((doubts.len() as u64).to_le_bytes());
            for doubt in doubts {
                let words = [doubt.start, doubt.end, doubt.first];
                body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u64::from(crc32c::crc32c(&body)).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    /// The table that [`Table::to_bytes`] gave, without compiling or analysing anything. `None` if the bytes are
    /// damaged, or were made of another image, with other options, or by another build of this crate.
    pub fn from_bytes(image: &Image, options: &CompileOptions, bytes: &[u8]) -> Option<Table> {
        let body = bytes.strip_prefix(MAGIC)?;
        let (checksum, mut body) = body.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*checksum) != u64::from(crc32c::crc32c(body)) {
            return None;
        }
        let body = &mut body;
        if array(body, 1).ok()? != key(image, options) {
            return None;
        }
        let notes = (0..number(body).ok()?)
            .map(|_| text(body).map(Note::new))
            .collect::<Result<Vec<Note>, Damage>>()
            .ok()?;
        let stated = Rows::read(image.arch(), body).ok()?;
        let mut table = Table::new(image, options, stated.into(), notes);
        match number(body).ok()? {
            0 => {}
            1 => {
                table.whole = Rows::read(image.arch(), body).ok()?.into();
                let (doubts, _) = array(body, 24).ok()?.as_chunks::<24>();
                table.doubts = doubts.iter().map(doubt).collect::<Vec<Doubt>>().into();
            }
            _ => return None,
        }
        if !body.is_empty() {
            return None;
        }
        table.was_kept();
        Some(table)
    }
}

/// What a table was made of, and by which code. The sections' checksums tell a damaged or doctored file from
/// the one that its build-id names.
fn key(image: &Image, options: &CompileOptions) -> Vec<u8> {
    let mut key = env!("UNWIND_REVISION").as_bytes().to_vec();
    key.extend(image.arch().name().as_bytes());
    put(&mut key, image.build_id().map_or(&[], |id| id.as_bytes()));
    key.extend((image.bytes().len() as u64).to_le_bytes());
    for name in [".eh_frame", ".ARM.exidx"] {
        let section = image.section(name);
        let sum = section.map_or(0, |section| crc32c::crc32c(&section.data));
        key.extend(sum.to_le_bytes());
    }
    key.extend(variant(image, options));
    key
}

/// Tells tables of one image apart: options and debug file.
pub(crate) fn variant(image: &Image, options: &CompileOptions) -> Vec<u8> {
    let mut variant = vec![
        u8::from(options.cfi),
        u8::from(options.exidx),
        u8::from(options.code),
        u8::from(options.symbols),
    ];
    variant.extend(options.prefer.iter().map(|source| *source as u8 + 2));
    if let Some(debug) = image.debug_image() {
        variant.extend((debug.bytes().len() as u64).to_le_bytes());
        variant.extend(debug.build_id().map_or(&[][..], |id| id.as_bytes()));
    }
    variant
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn text(bytes: &mut &[u8]) -> Result<String, Damage> {
    let text = std::str::from_utf8(array(bytes, 1)?);
    text.map(ToOwned::to_owned).map_err(|_| Damage)
}

fn doubt(bytes: &[u8; 24]) -> Doubt {
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    Doubt {
        start: word(0),
        end: word(8),
        first: word(16),
    }
}
