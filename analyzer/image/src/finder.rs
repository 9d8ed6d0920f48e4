//! Where on the host the target's files are, and whether they are the right ones.

use std::path::PathBuf;

use crate::{BuildId, Error, Image};

/// Where to look for files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finder {
    /// Copy of the target's file system.
    pub sysroot: Option<PathBuf>,
    /// Where debug files are; by default `/usr/lib/debug`. Also tried below the sysroot.
    pub debug_directories: Vec<PathBuf>,
}

/// A file that is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Path on the target, or a basename.
    pub path: &'a str,
    /// What the target has mapped, if known.
    pub build_id: Option<&'a BuildId>,
    /// The target runs on this machine: local paths are right even without sysroot.
    pub local: bool,
}

/// A file that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The image, debug file attached.
    pub image: Image,
    /// Where it was.
    pub origin: Origin,
    /// What is not as it should be.
    pub notes: Vec<String>,
}

/// Where an image came from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A file on the host.
    File(PathBuf),
    /// Fetched from the target, under its path there.
    Target(String),
}

/// Why a file was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// Nowhere.
    #[error("not found")]
    NotFound {
        /// The path on the target.
        path: String,
        /// Places tried and what was there.
        tried: Vec<String>,
    },
    /// Found, but another build.
    #[error("wrong build-id")]
    WrongBuildId {
        /// The file.
        file: String,
        /// Expected.
        expected: BuildId,
        /// Seen.
        seen: Option<BuildId>,
    },
    /// Found, but unusable.
    #[error(transparent)]
    Image(#[from] Error),
}

/// Reads a file of the target.
pub type Fetch<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

impl Default for Finder {
    fn default() -> Finder {
        Finder {
            sysroot: None,
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
        }
    }
}

impl Finder {
    /// Finds an image.
    pub fn find(&self, wanted: &Wanted<'_>, fetch: Option<Fetch<'_>>) -> Result<Found, FindError> {
        todo!()
    }
}
