//! The cache that elfutils, gdb and Unspool share.
//!
//! Separate from the client because its layout is elfutils': a directory per build-id, in it one
//! file per artifact. An empty file says that no server had it when it was last asked.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::{AT_FDCWD, AtFlags};
use unspool_image::Request;

/// Seconds for which a missing file is not asked for again, unless `cache_miss_s` in the cache says
/// otherwise.
const DEFAULT_MISS_SECONDS: u64 = 600;

/// Bytes of the cache's file system that stay free.
const MIN_FREE: u64 = 64 << 20;

/// Largest file in bytes that is stored outside the cache. The directory for temporary files is
/// often in memory.
const MAX_TEMPORARY: u64 = 64 << 20;

/// A directory of downloaded files.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

/// The cache's answer.
pub(super) enum Cached {
    File(PathBuf),
    /// A recent request has shown that no server has the file.
    Missing,
    Unknown,
}

impl Cache {
    /// Takes elfutils' directory.
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>) -> Cache {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let home = || set("HOME").map(PathBuf::from);
        let old = || home().map(|home| home.join(".debuginfod_client_cache"));
        let below = |cache: PathBuf| cache.join("debuginfod_client");
        let directory = set("DEBUGINFOD_CACHE_PATH")
            .map(PathBuf::from)
            .or_else(|| old().filter(|old| old.is_dir()))
            .or_else(|| set("XDG_CACHE_HOME").map(|cache| below(cache.into())))
            .or_else(|| home().map(|home| below(home.join(".cache"))));
        Cache {
            directory: directory.unwrap_or_else(|| below(std::env::temp_dir())),
        }
    }

    pub(super) fn look(&self, request: &Request<'_>) -> Cached {
        let path = self.path(request);
        let Ok(metadata) = fs::metadata(&path) else {
            return Cached::Unknown;
        };
        if metadata.len() > 0 {
            return Cached::File(path);
        }
        let age = metadata
            .modified()
            .ok()
            .and_then(|then| then.elapsed().ok());
        let setting = fs::read_to_string(self.directory.join("cache_miss_s")).ok();
        let seconds = setting.and_then(|text| text.trim().parse().ok());
        let limit = Duration::from_secs(seconds.unwrap_or(DEFAULT_MISS_SECONDS));
        match age.is_some_and(|age| age < limit) {
            true => Cached::Missing,
            false => Cached::Unknown,
        }
    }

    /// Removes what is cached of a file. A file that cannot be removed is only asked for again.
    pub(super) fn forget(&self, request: &Request<'_>) {
        let _ = fs::remove_file(self.path(request));
    }

    /// A new file that vanishes if this process ends before [`keep`](Cache::keep), and the number
    /// of bytes that it has room for.
    pub(super) fn unnamed_file(&self, request: &Request<'_>) -> io::Result<(File, u64)> {
        let inside = self.make_directory(request);
        let (file, limit) = match inside.and_then(tempfile::tempfile_in) {
            Ok(file) => (file, u64::MAX),
            Err(_) => (tempfile::tempfile()?, MAX_TEMPORARY),
        };
        let system = nix::sys::statvfs::fstatvfs(&file)?;
        let free = system
            .blocks_available()
            .saturating_mul(system.fragment_size());
        Ok((file, free.saturating_sub(MIN_FREE).min(limit)))
    }

    /// Puts a file into the cache, at once and as a whole. Replaces no other file.
    pub(super) fn keep(&self, request: &Request<'_>, mut file: File) -> io::Result<PathBuf> {
        let path = self.path(request);
        file.set_permissions(Permissions::from_mode(0o400))?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        if fs::metadata(&path).is_ok_and(|expired| expired.len() == 0) {
            self.forget(request);
        }
        let follow = AtFlags::AT_SYMLINK_FOLLOW;
        if nix::unistd::linkat(AT_FDCWD, own.as_str(), AT_FDCWD, &path, follow).is_err() {
            // The file system has no unnamed files, or the file is on another one.
            file.rewind()?;
            let named = tempfile::NamedTempFile::new_in(self.make_directory(request)?)?;
            io::copy(&mut file, &mut named.as_file())?;
            named
                .as_file()
                .set_permissions(Permissions::from_mode(0o400))?;
            named.persist_noclobber(&path)?;
        }
        Ok(path)
    }

    /// Notes that no server has a file. If the cache is not writable, that only costs time.
    pub(super) fn keep_missing(&self, request: &Request<'_>) {
        let _ = self
            .make_directory(request)
            .and_then(|_| {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(false);
                options.open(self.path(request))
            })
            .and_then(|file| match file.metadata()?.len() {
                0 => file.set_modified(std::time::SystemTime::now()),
                // Another process has the file.
                _ => Ok(()),
            });
    }

    fn path(&self, request: &Request<'_>) -> PathBuf {
        self.of_build(request).join(request.artifact.name())
    }

    fn of_build(&self, request: &Request<'_>) -> PathBuf {
        self.directory.join(request.build_id.to_string())
    }

    fn make_directory(&self, request: &Request<'_>) -> io::Result<PathBuf> {
        let directory = self.of_build(request);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&directory)?;
        Ok(directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_that_of_elfutils() {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().to_str().expect("text");
        let directory = |variables: &[(&str, &str)]| {
            let value = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Cache::new(&value).directory
        };
        let home_only = [("HOME", root)];
        let with_xdg = [("HOME", root), ("XDG_CACHE_HOME", "/x")];
        let with_path = [("HOME", root), ("DEBUGINFOD_CACHE_PATH", "/d")];
        let below = home.path().join(".cache/debuginfod_client");
        assert_eq!(directory(&home_only), below);
        assert_eq!(directory(&with_xdg), PathBuf::from("/x/debuginfod_client"));
        assert_eq!(directory(&with_path), PathBuf::from("/d"));
        let old = home.path().join(".debuginfod_client_cache");
        fs::create_dir(&old).expect("a directory");
        assert_eq!(directory(&with_xdg), old);
        assert_eq!(directory(&with_path), PathBuf::from("/d"));
    }
}
