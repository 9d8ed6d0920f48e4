//! Tables on disk: one file for each build-id, so that the next run compiles and analyses nothing.
//!
//! The only part of this crate that reads and writes files, and a feature of its own (`cache`, on by default) so that
//! the rest can be had without. A file holds
//!
//! ```text
//! "unspool\0"   8 bytes
//! checksum      CRC-32C of what follows
//! key           what the table was made of and by: see [`Cache::key`]
//! notes         what could not be used of the image
//! rows          of what the file states; then, if they were needed, of all sources, and what is doubted
//! ```
//! A file of another key or checksum is not an error and not believed: the table is made anew and the
//! file replaced.

use std::io::Write;
use std::path::{Path, PathBuf};

use unspool_image::Image;

use crate::rows::{Damage, Rows, array, number};
use crate::table::{CompileOptions, Note, Table};

const MAGIC: &[u8; 8] = b"unspool\0";
/// Larger ones are no tables of ours.
const SIZE_LIMIT: u64 = 1 << 30;

/// A directory of tables.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The user's: `$XDG_CACHE_HOME/unspool`, or `~/.cache/unspool`. `None` where neither is known.
    pub fn of_user() -> Option<Cache> {
        let set = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            // The XDG base directory specification: relative paths are to be ignored.
            path.is_absolute().then_some(path)
        };
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(Cache::at(base.join("unspool")))
    }

    /// In this directory, which is made when the first table is kept.
    pub fn at(directory: impl Into<PathBuf>) -> Cache {
        Cache {
            directory: directory.into(),
        }
    }

    /// The table of `image`: from the cache if it is there, else compiled and kept.
    pub fn table(&self, image: &Image, options: &CompileOptions) -> Table {
        if let Some(table) = self.load(image, options) {
            return table;
        }
        let table = Table::compile(image, options);
        // A cache that cannot be written costs time, nothing else.
        let _ = self.keep(&table);
        table
    }

    /// Keep what `table` holds by now. A walk that needed the analysis of the code has made it; calling this
    /// after saves the next run from doing so. Does nothing if the cache holds as much already.
    pub fn keep(&self, table: &Table) -> std::io::Result<()> {
        let (Some(path), true) = (self.path(&table.image, &table.options), table.has_news()) else {
            return Ok(());
        };
        let mut body = Vec::new();
        put(&mut body, &key(&table.image, &table.options));
        body.extend((table.notes.len() as u64).to_le_bytes());
        for note in &table.notes {
            put(&mut body, note.text.as_bytes());
        }
        table.write(&mut body);
        std::fs::create_dir_all(&self.directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(MAGIC)?;
        file.write_all(&u64::from(crc32c::crc32c(&body)).to_le_bytes())?;
        file.write_all(&body)?;
        file.persist(path)?;
        table.was_kept();
        Ok(())
    }

    fn load(&self, image: &Image, options: &CompileOptions) -> Option<Table> {
        let bytes = read(&self.path(image, options)?)?;
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
            .map(|_| {
                let text = String::from_utf8_lossy(array(body, 1)?).into_owned();
                Ok(Note { text })
            })
            .collect::<Result<Vec<Note>, Damage>>()
            .ok()?;
        let stated = Rows::read(image.arch(), body).ok()?;
        let whole = match number(body).ok()? {
            0 => None,
            _ => {
                let rows = Rows::read(image.arch(), body).ok()?;
                let text = String::from_utf8_lossy(array(body, 1).ok()?).into_owned();
                Some((rows, (!text.is_empty()).then_some(Note { text })))
            }
        };
        Some(Table::from_rows(image, options, stated, whole, notes))
    }

    /// `None`: without a build-id nothing proves what a table belongs to.
    fn path(&self, image: &Image, options: &CompileOptions) -> Option<PathBuf> {
        let id = image.build_id()?;
        // Tables of other options and with a debug file are beside one another.
        let variant = crc32c::crc32c(&variant(image, options));
        Some(self.directory.join(format!("{id}-{variant:08x}.table")))
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

fn variant(image: &Image, options: &CompileOptions) -> Vec<u8> {
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

fn read(path: &Path) -> Option<Vec<u8>> {
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > SIZE_LIMIT {
        return None;
    }
    std::fs::read(path).ok()
}

#[cfg(test)]
mod tests;
