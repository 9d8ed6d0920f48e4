//! The options that say where the program's files and their debug files are.

use std::path::PathBuf;

use clap::Args;
use unspool_image::Finder;
use unspool_unwind::Cache;

use crate::store::Store;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Where the program's files are")]
pub(super) struct Symbols {
    /// Directory that holds a copy of the target's root file system
    ///
    /// The target's /usr/lib/libc.so.6 is then read from DIR/usr/lib/libc.so.6. Needed when the
    /// program runs on another machine or under QEMU, and the server cannot send its files.
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,

    /// Directory of separate debug files, searched before /usr/lib/debug; may be repeated
    ///
    /// Files are found by build-id (DIR/.build-id/ab/cdef.debug) and by debug link.
    #[arg(long = "debug-dir", value_name = "DIR")]
    debug_dirs: Vec<PathBuf>,
}

impl Symbols {
    /// A store of the files that these options describe; a named directory that does not exist is an error.
    pub(super) fn store(&self) -> anyhow::Result<Store> {
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
        Ok(Store::from(finder).caching(Cache::of_user()))
    }
}
