//! Files by build-id from servers, as the finder sees them.
//!
//! Separate from the client of the servers, because this crate has no network code.

use std::fmt;
use std::fs::File;

use super::Finder;
use crate::{Arch, BuildId, Image};

/// Servers that send files by build-id, with the cache of what they sent.
pub trait Servers: fmt::Debug + Send + Sync {
    /// Returns a file, from the cache or from a server. A file that `open` refuses is neither used
    /// nor cached.
    fn file(&self, request: &Request<'_>, open: &Open<'_>) -> Option<Image>;

    /// True if a `cached_only` request since the last call found no file, and no request was sent
    /// to a server for that file.
    fn take_unasked(&self) -> bool;

    /// Problems with servers and their files so far, a sentence without a period each.
    fn problems(&self) -> Vec<String>;
}

/// Opens a file as an image with this name, if it is the requested one.
pub type Open<'a> = dyn Fn(File, &str) -> Result<Image, Unusable> + 'a;

/// The reason why a file is not the requested one, as a clause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// The file cannot be read, or is no ELF file.
    #[error("it is not a usable ELF file")]
    NoImage,
    /// The file is of another build.
    #[error(
        "expected build-id {expected}, found {}",
        seen.as_ref().map_or("none".to_owned(), ToString::to_string)
    )]
    OtherBuild {
        /// The requested build-id.
        expected: BuildId,
        /// The build-id of the file.
        seen: Option<BuildId>,
    },
    /// The file is for another architecture.
    #[error("it is for {seen}, not for {expected}")]
    OtherArch {
        /// The requested architecture.
        expected: Arch,
        /// The architecture of the file.
        seen: Arch,
    },
    /// Parts of the file are missing or invalid.
    #[error("it is cut off or damaged")]
    Damaged,
}

/// A file to ask servers for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The build-id of the file.
    pub build_id: &'a BuildId,
    /// The requested file of this build.
    pub artifact: Artifact,
    /// The file's name for messages.
    pub name: &'a str,
    /// Ask no server: take only a cached file.
    pub cached_only: bool,
}

/// The files that a server has of one build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Artifact {
    /// A file with the debug information.
    DebugInfo,
    /// The program or library itself.
    Executable,
}

impl Artifact {
    /// The last part of its URL, and its name in the cache.
    pub fn name(self) -> &'static str {
        match self {
            Artifact::DebugInfo => "debuginfo",
            Artifact::Executable => "executable",
        }
    }
}

impl Finder {
    /// Gets a file from the servers, if any are set. Every architecture fits `None`.
    pub(super) fn ask_servers(
        &self,
        build_id: &BuildId,
        artifact: Artifact,
        name: &str,
        arch: Option<Arch>,
    ) -> Option<Image> {
        let open = |file: File, name: &str| {
            let image = Image::of_file(file, name).map_err(|_| Unusable::NoImage)?;
            if image.build_id() != Some(build_id) {
                return Err(Unusable::OtherBuild {
                    expected: build_id.clone(),
                    seen: image.build_id().cloned(),
                });
            }
            let seen = image.arch();
            if let Some(expected) = arch.filter(|arch| *arch != seen) {
                return Err(Unusable::OtherArch { expected, seen });
            }
            match image.notes().is_empty() {
                true => Ok(image),
                false => Err(Unusable::Damaged),
            }
        };
        let request = Request {
            build_id,
            artifact,
            name,
            cached_only: self.cached_only,
        };
        let image = self.servers.as_ref()?.file(&request, &open)?;
        Some(image.downloaded())
    }
}
