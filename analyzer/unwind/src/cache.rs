//! Keeps compiled tables on disk, one file for each build-id, so that the next run compiles
//! nothing.
//!
//! The only part of this crate that reads and writes files. It is a feature of its own (`cache`, on
//! by default), so that the rest works without files. A file holds what [`Table::to_bytes`]
//! returns. If [`Table::from_bytes`] rejects a file, the cache compiles the table again and
//! replaces the file.

use std::io::Write;
use std::path::PathBuf;

use unspool_image::Image;

use crate::table::{CompileOptions, Table, variant};

/// Largest file that is read, in bytes. A table never gets this large.
const SIZE_LIMIT: u64 = 1 << 30;

/// A directory of compiled tables.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The user's cache: `$XDG_CACHE_HOME/unspool`, or `~/.cache/unspool`. `None` if neither is
    /// known.
    pub fn of_user() -> Option<Cache> {
        let set = |name: &str| {
            let path = PathBuf::from(std::env::var_os(name)?);
            // The XDG base directory specification says to ignore relative paths.
            path.is_absolute().then_some(path)
        };
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(Cache::at(base.join("unspool")))
    }

    /// A cache in this directory. The directory is created when the first table is kept.
    pub fn at(directory: impl Into<PathBuf>) -> Cache {
        Cache {
            directory: directory.into(),
        }
    }

    /// The table of `image`. Rows come from the cache if they are there. Other rows are compiled
    /// when they are first needed.
    pub fn table(&self, image: &Image, options: &CompileOptions) -> Table {
        Table::caching(image, options, self.clone())
    }

    /// Writes the rows that `table` has by now. Call it after walks, so that the next run need not
    /// compile what they needed. Does nothing if the cache already holds as much.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn keep(&self, table: &Table) -> std::io::Result<()> {
        let Some((image, options)) = table.origin() else {
            return Ok(());
        };
        if table.has_unsaved_rows()
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

    /// Reads the file `name`. `None` if it is missing or larger than `limit`.
    pub fn read(&self, name: &str, limit: u64) -> Option<Vec<u8>> {
        let path = self.directory.join(name);
        let metadata = std::fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > limit {
            return None;
        }
        std::fs::read(path).ok()
    }

    /// Writes a file atomically. It replaces a file of the same name.
    ///
    /// # Errors
    /// The directory cannot be created, or the file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        file.write_all(bytes)?;
        file.persist(self.directory.join(name))?;
        Ok(())
    }

    /// The bytes of the stored table, if there is one.
    pub(crate) fn stored(&self, image: &Image, options: &CompileOptions) -> Option<Vec<u8>> {
        self.read(&name(image, options, "table")?, SIZE_LIMIT)
    }

    /// The bytes of the stored code regions, if there are any.
    pub(crate) fn regions(&self, image: &Image, options: &CompileOptions) -> Option<Vec<u8>> {
        self.read(&name(image, options, "regions")?, SIZE_LIMIT)
    }
}

/// The name of a cache file. `None` without a build-id, because nothing else proves which image a
/// table belongs to.
fn name(image: &Image, options: &CompileOptions, kind: &str) -> Option<String> {
    let id = image.build_id()?;
    // Tables with other options or with a debug file have their own files.
    let variant = crc32c::crc32c(&variant(image, options));
    Some(format!("{id}-{variant:08x}.{kind}"))
}

#[cfg(test)]
mod tests;
