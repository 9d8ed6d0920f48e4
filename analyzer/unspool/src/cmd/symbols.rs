//! The options that locate the program's files and debug files.

use std::path::PathBuf;

use clap::Args;
use unspool_capture::Header;
use unspool_image::Finder;
use unspool_unwind::Cache;

use crate::debuginfod;
use crate::store::Store;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Where the program's files are")]
pub(super) struct Symbols {
    /// Directory that holds a copy of the target's root file system
    ///
    /// /usr/lib/libc.so.6 of the target is then read from DIR/usr/lib/libc.so.6. Use it if the
    /// program runs on another machine or under QEMU. Without it, Unspool fetches the files from
    /// the server, if the server can send them.
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,

    /// Directory of separate debug files, searched before /usr/lib/debug (repeatable)
    ///
    /// Files are found by build-id (DIR/.build-id/ab/cdef.debug) and by debug link. If the
    /// environment variable DEBUGINFOD_URLS names debuginfod servers, missing files are downloaded.
    #[arg(long = "debug-dir", value_name = "DIR")]
    debug_dirs: Vec<PathBuf>,
}

impl Symbols {
    /// True if any of these options is given.
    pub(super) fn is_given(&self) -> bool {
        self.sysroot.is_some() || !self.debug_dirs.is_empty()
    }

    /// Replaces missing options with the recording's directories, as far as they still exist.
    pub(super) fn or_of(mut self, header: &Header) -> Symbols {
        let there = |dir: &String| Some(PathBuf::from(dir)).filter(|dir| dir.is_dir());
        if self.sysroot.is_none() && !header.sysroot.is_empty() {
            self.sysroot = there(&header.sysroot);
        }
        if self.debug_dirs.is_empty() {
            self.debug_dirs = header.debug_directories.iter().filter_map(there).collect();
        }
        self
    }

    /// Creates a store with these directories. Fails if a named directory does not exist.
    pub(super) fn store(&self) -> anyhow::Result<Store> {
        Ok(Store::from(self.finder()?).caching(Cache::of_user()))
    }

    /// Creates a finder with these directories. Fails if a named directory does not exist.
    pub(super) fn finder(&self) -> anyhow::Result<Finder> {
        let named = self.sysroot.iter().map(|dir| ("--sysroot", dir));
        for (option, dir) in named.chain(self.debug_dirs.iter().map(|dir| ("--debug-dir", dir))) {
            anyhow::ensure!(
                dir.is_dir(),
                "{option} {}: no such directory",
                dir.display()
            );
        }
        let mut finder = Finder::default();
        finder
            .debug_directories
            .splice(0..0, self.debug_dirs.iter().cloned());
        finder.sysroot = self.sysroot.clone();
        finder.servers = debuginfod::servers();
        Ok(finder)
    }
}
