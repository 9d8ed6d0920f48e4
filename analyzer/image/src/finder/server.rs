//! Files by build-id from servers, as the finder sees them.
//!
//! Apart from the client of the servers, because this crate has no network code.

use std::fmt;
use std::path::Path;

use super::Finder;
use crate::{Arch, BuildId, Image};

/// Servers that send files by build-id, with the cache of what they sent.
pub trait Servers: fmt::Debug + Send + Sync {
    /// Returns a file, from the cache or from a server.
    ///
    /// `open` opens a received file. Its error is a clause that says why the file is not the
    /// requested one; such a file is neither used nor cached.
    fn file(
        &self,
        request: &Request<'_>,
        open: &dyn Fn(&Path) -> Result<Image, String>,
    ) -> Option<Image>;

    /// Problems with servers and their files so far, a sentence without a period each.
    fn problems(&self) -> Vec<String>;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let open = |path: &Path| {
            let image = Image::open(path).map_err(|_| "it is not a usable ELF file".to_owned())?;
            let (seen, own) = (image.build_id(), image.arch());
            if seen != Some(build_id) {
                let seen = seen.map_or("none".to_owned(), ToString::to_string);
                return Err(format!("expected build-id {build_id}, found {seen}"));
            }
            if let Some(arch) = arch.filter(|arch| *arch != own) {
                return Err(format!("it is for {own}, not for {arch}"));
            }
            match image.notes().is_empty() {
                true => Ok(image),
                false => Err("it is cut off or damaged".to_owned()),
            }
        };
        let request = Request {
            build_id,
            artifact,
            name,
            cached_only: self.cached_only,
        };
        self.servers.as_ref()?.file(&request, &open)
    }
}
