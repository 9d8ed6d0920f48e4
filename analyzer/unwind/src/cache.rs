//! Tables on disk: one file for each build-id, so that the next run compiles and analyses nothing.
//!
//! The only part of this crate that reads and writes files, and a feature of its own (`cache`, on by default) so that
//! the rest can be had without. A file holds what [`Table::to_bytes`] gives. What [`Table::from_bytes`] does not
//! take is not an error and not believed: the table is made anew and the file replaced.

use std::io::Write;
use std::path::{Path, PathBuf};

use unspool_image::Image;

use crate::table::{CompileOptions, Table, variant};

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
        let path = table
            .origin()
            .and_then(|(image, options)| self.path(image, options));
        let (Some(path), true) = (path, table.has_news()) else {
            return Ok(());
        };
        std::fs::create_dir_all(&self.directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(&table.to_bytes())?;
        file.persist(path)?;
        table.was_kept();
        Ok(())
    }

    fn load(&self, image: &Image, options: &CompileOptions) -> Option<Table> {
        Table::from_bytes(image, options, &read(&self.path(image, options)?)?)
    }

    /// `None`: without a build-id nothing proves what a table belongs to.
    fn path(&self, image: &Image, options: &CompileOptions) -> Option<PathBuf> {
        let id = image.build_id()?;
        // Tables of other options and with a debug file are beside one another.
        let variant = crc32c::crc32c(&variant(image, options));
        Some(self.directory.join(format!("{id}-{variant:08x}.table")))
    }
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
