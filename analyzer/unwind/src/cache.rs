//! Tables on disk: one file for each build-id, so that the next run compiles and analyses nothing.
//!
//! The only part of this crate that reads and writes files, and a feature of its own (`cache`, on by default) so that
//! the rest can be had without. A file holds what [`Table::to_bytes`] gives. What [`Table::from_bytes`] does not
//! take is not an error and not believed: the table is made anew and the file replaced.

use std::io::Write;
use std::path::PathBuf;

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

    /// The table of `image`. What it is asked for comes from the cache if it is there, else it is compiled or analysed.
    pub fn table(&self, image: &Image, options: &CompileOptions) -> Table {
        Table::caching(image, options, self.clone())
    }

    /// Keep what `table` holds by now: walks have compiled or analysed what they needed, and calling this after saves the
    /// next run from doing so. Does nothing if the cache holds as much already.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn keep(&self, table: &Table) -> std::io::Result<()> {
        let Some((image, options)) = table.origin() else {
            return Ok(());
        };
        if table.has_news()
            && let Some(name) = name(image, options, "table")
        {
            self.write(&name, &table.to_bytes())?;
            table.was_kept();
        }
        if let Some(name) = name(image, options, "regions")
            && let Some(bytes) = table.regions_to_bytes()
        {
            self.write(&name, &bytes)?;
        }
        Ok(())
    }

    /// The file of this name, unless it is larger than `limit`: then it is none of ours.
    pub fn read(&self, name: &str, limit: u64) -> Option<Vec<u8>> {
        let path = self.directory.join(name);
        let metadata = std::fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > limit {
            return None;
        }
        std::fs::read(path).ok()
    }

    /// Puts a file there, whole or not at all, in the place of one of the same name.
    ///
    /// # Errors
    /// The directory cannot be made, or the file not be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(bytes)?;
        file.persist(self.directory.join(name))?;
        Ok(())
    }

    /// What was kept of a table.
    pub(crate) fn stored(&self, image: &Image, options: &CompileOptions) -> Option<Vec<u8>> {
        self.read(&name(image, options, "table")?, SIZE_LIMIT)
    }

    /// What was kept of the regions of an image's code.
    pub(crate) fn regions(&self, image: &Image, options: &CompileOptions) -> Option<Vec<u8>> {
        self.read(&name(image, options, "regions")?, SIZE_LIMIT)
    }
}

/// `None`: without a build-id nothing proves what a table belongs to.
fn name(image: &Image, options: &CompileOptions, kind: &str) -> Option<String> {
    let id = image.build_id()?;
    // Tables of other options and with a debug file are beside one another.
    let variant = crc32c::crc32c(&variant(image, options));
    Some(format!("{id}-{variant:08x}.{kind}"))
}

#[cfg(test)]
mod tests;
