//! Finds the target's files on the host, and checks that they are the right ones.
//!
//! Separate from the image because this is the only code that searches directories: the sysroot,
//! the host, the debug directories. It checks files by build-id, and never uses a wrong file
//! silently.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Arch, BuildId, Error, Image};

mod debug_file;
mod server;
mod sysroot;

pub use server::{Artifact, Open, Request, Servers, Unusable};

/// The places to search.
#[derive(Clone, Debug)]
pub struct Finder {
    /// A copy of the target's file system.
    pub sysroot: Option<PathBuf>,
    /// The sysroot is the file system that a program of this machine sees. So a file with the same
    /// path outside of it may be another one.
    pub sysroot_is_live: bool,
    /// The debug directories, by default `/usr/lib/debug`. Each is searched below the sysroot
    /// first.
    pub debug_directories: Vec<PathBuf>,
    /// The target's architecture, if known. Files of other architectures are skipped.
    pub arch: Option<Arch>,
    /// Servers to ask by build-id for files that this machine does not have.
    pub servers: Option<Arc<dyn Servers>>,
    /// Ask no server, but take the files that were cached before.
    pub cached_only: bool,
}

/// The file to find.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted<'a> {
    /// Path on the target, or a basename.
    pub path: &'a str,
    /// The build-id that the target has mapped, if known.
    pub build_id: Option<&'a BuildId>,
    /// The target runs on this machine, so local paths are right even without a sysroot.
    pub local: bool,
}

/// A file that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The image, with its debug file attached.
    pub image: Image,
    /// The place where it was found.
    pub origin: Origin,
    /// Problems, a clause each.
    pub notes: Vec<String>,
}

/// The origin of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A file on the host.
    File(PathBuf),
    /// Fetched from the target; its path there.
    Target(String),
    /// Downloaded from a server now or before; its path on the target.
    Server(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => path.display().fmt(f),
            Origin::Target(path) => write!(f, "target:{path}"),
            Origin::Server(path) => write!(f, "the server's file of {path}"),
        }
    }
}

/// The reason why a file was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The file is in none of the searched places.
    #[error("cannot find {path}: tried {}; {advice}", list(tried))]
    NotFound {
        /// The path on the target.
        path: String,
        /// The searched places and what was found there.
        tried: Vec<String>,
        /// Advice for the user.
        advice: &'static str,
    },
    /// The file found is another build than the target's.
    #[error(
        "{file} differs from the target's file: expected build-id {expected}, found {}; copy the \
         target's file there, or name its directory tree with --sysroot",
        seen.as_ref().map_or("none".to_owned(), |seen| seen.to_string())
    )]
    WrongBuildId {
        /// The file.
        file: String,
        /// The build-id on the target.
        expected: BuildId,
        /// The build-id of the file.
        seen: Option<BuildId>,
    },
    /// The program runs a file that its path no longer leads to, and only root can read that file.
    #[error("{path} was deleted or replaced; only root can read the file that was loaded")]
    Replaced {
        /// The path on the target.
        path: String,
    },
    /// The file was found, but it is truncated.
    #[error("{file} is cut off before its end; copy the whole file again")]
    Truncated {
        /// The file.
        file: String,
    },
    /// The file was found, but is unusable.
    #[error(transparent)]
    Image(#[from] Error),
}

/// Lists the most likely place and the target itself. A sysroot alone has a dozen more.
fn list(tried: &[String]) -> String {
    let (mut told, mut others) = (Vec::new(), 0);
    for place in tried {
        if told.is_empty() || tried.len() <= 3 || place.starts_with("target:") {
            told.push(place.as_str());
        } else {
            others += 1;
        }
    }
    match (told.is_empty(), others) {
        (true, _) => "nothing".to_owned(),
        (_, 0) => told.join(", "),
        _ => format!("{} and {others} other places", told.join(", ")),
    }
}

/// Reads a file from the target by its path there.
pub type Fetch<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<u8>, String>;

impl Default for Finder {
    fn default() -> Finder {
        Finder {
            sysroot: None,
            sysroot_is_live: false,
            debug_directories: vec![PathBuf::from("/usr/lib/debug")],
            arch: None,
            servers: None,
            cached_only: false,
        }
    }
}

impl Finder {
    /// A finder for a sysroot, or without one.
    pub fn new(sysroot: Option<PathBuf>) -> Finder {
        Finder {
            sysroot,
            ..Finder::default()
        }
    }

    /// Finds an image and its debug file. Searches in this order:
    /// 1. the sysroot,
    /// 2. this machine, if the target runs here and sees the same files, or the build-id proves the
    ///    file right (a relative path is searched in the current directory),
    /// 3. the target itself, through `fetch`,
    /// 4. the debug directories and then the servers, by build-id,
    /// 5. for a remote target, a local file with the same path, with a note that nothing proves it
    ///    right.
    pub fn find(&self, wanted: &Wanted<'_>, fetch: Option<Fetch<'_>>) -> Result<Found, FindError> {
        let mut search = Search {
            wanted,
            arch: self.arch,
            tried: Vec::new(),
            failed: None,
        };
        let mut found = self.search(&mut search, fetch);
        if let (Some((_, origin, notes)), Some(failed)) = (&mut found, &search.failed) {
            notes.push(format!("{failed}; {origin} was used instead"));
        }
        let Some((image, origin, mut notes)) = found else {
            return Err(search.failed.unwrap_or_else(|| FindError::NotFound {
                path: wanted.path.to_owned(),
                tried: search.tried,
                advice: match self.sysroot {
                    Some(_) => "copy the target's file into the sysroot",
                    None => "name a copy of the target's files with --sysroot DIR",
                },
            }));
        };
        let host_path = match &origin {
            Origin::File(path) => Some(path.as_path()),
            Origin::Target(_) | Origin::Server(_) => None,
        };
        let image = self.attach_debug_file(image, host_path, wanted.path, &mut notes);
        Ok(Found {
            image,
            origin,
            notes,
        })
    }

    /// Opens the file that the target has mapped, at a path of this machine that leads to it, and
    /// finds its debug file. For a file that the wanted path no longer leads to.
    ///
    /// # Errors
    /// The file cannot be read, or it is not the wanted one.
    pub fn open_mapped(&self, wanted: &Wanted<'_>, file: &Path) -> Result<Found, FindError> {
        let mut search = Search {
            wanted,
            arch: self.arch,
            tried: Vec::new(),
            failed: None,
        };
        let Some(image) = search.open(file) else {
            return Err(search.failed.unwrap_or_else(|| FindError::Replaced {
                path: wanted.path.to_owned(),
            }));
        };
        let mut notes = Vec::new();
        // Debug files lie beside the place where the file was.
        let place = Some(Path::new(wanted.path));
        let image = self.attach_debug_file(image, place, wanted.path, &mut notes);
        Ok(Found {
            image,
            origin: Origin::File(file.to_owned()),
            notes,
        })
    }

    fn search(
        &self,
        search: &mut Search<'_>,
        fetch: Option<Fetch<'_>>,
    ) -> Option<(Image, Origin, Vec<String>)> {
        let wanted = search.wanted;
        // The kernel's name for a mapped file that has been replaced.
        let path = wanted
            .path
            .strip_suffix(" (deleted)")
            .unwrap_or(wanted.path);
        if path.is_empty() || path.starts_with('[') || path.starts_with("linux-vdso") {
            search.tried.push(format!("{path:?} (not a file)"));
            return None;
        }
        let from = |image, path| Some((image, Origin::File(path), Vec::new()));
        if let Some(root) = &self.sysroot {
            for candidate in sysroot::candidates(path) {
                let Some(file) = sysroot::resolve(root, Path::new(&candidate)) else {
                    search.missing(root.join(candidate.trim_start_matches('/')));
                    continue;
                };
                if let Some(image) = search.open(&file) {
                    return from(image, file);
                }
            }
            // qemu-user and gdbserver in a chroot report paths of the host.
            if Path::new(path).starts_with(root)
                && let Some(image) = search.open(Path::new(path))
            {
                return from(image, path.into());
            }
        }
        let sees_same_files = wanted.local && !self.sysroot_is_live;
        if sees_same_files || wanted.build_id.is_some() {
            // QEMU's user mode reports a program's path as it was given: relative to the start
            // directory, which is usually this one.
            let here = (!path.starts_with('/')).then(|| path.to_owned());
            for candidate in here.into_iter().chain(sysroot::candidates(path)) {
                let file = PathBuf::from(candidate);
                if !file.is_file() {
                    if sees_same_files {
                        search.missing(file);
                    }
                } else if sees_same_files {
                    if let Some(image) = search.open(&file) {
                        return from(image, file);
                    }
                } else if let Some(image) = search.open_if_proved(&file) {
                    return from(image, file);
                }
            }
        }
        if let Some(fetch) = fetch {
            match fetch(path) {
                Ok(bytes) => {
                    if let Some(image) = search.check(Image::parse(path, bytes)) {
                        return Some((image, Origin::Target(path.to_owned()), Vec::new()));
                    }
                }
                Err(why) => search.tried.push(format!("target:{path} ({why})")),
            }
        }
        if let Some(build_id) = wanted.build_id {
            for file in self.in_debug_directories(&build_id.path("")) {
                if let Some(image) = search.open_if_proved(&file) {
                    return from(image, file);
                }
            }
            let arch = self.arch;
            if let Some(image) = self.ask_servers(build_id, Artifact::Executable, path, arch) {
                return Some((image, Origin::Server(path.to_owned()), Vec::new()));
            }
        } else if !wanted.local {
            let file = PathBuf::from(path);
            if let Some(image) = search.open(&file) {
                let note = format!(
                    "{path} was taken from this machine; it may differ from the target's file"
                );
                return Some((image, Origin::File(file), vec![note]));
            }
        }
        None
    }

    /// `relative` in each debug directory, below the sysroot first.
    fn in_debug_directories(&self, relative: &str) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for directory in &self.debug_directories {
            let file = directory.join(relative);
            if let Some(root) = &self.sysroot {
                files.extend(sysroot::resolve(root, &file));
            }
            files.push(file);
        }
        files
    }
}

/// One search: the places tried, and the first error worth reporting.
struct Search<'a> {
    wanted: &'a Wanted<'a>,
    arch: Option<Arch>,
    tried: Vec<String>,
    failed: Option<FindError>,
}

impl Search<'_> {
    fn missing(&mut self, path: PathBuf) {
        self.tried.push(path.display().to_string());
    }

    fn open(&mut self, path: &Path) -> Option<Image> {
        if !path.is_file() {
            self.missing(path.to_owned());
            return None;
        }
        self.check(Image::open(path))
    }

    /// For places where the file name proves nothing: only the build-id counts.
    fn open_if_proved(&mut self, path: &Path) -> Option<Image> {
        let image = path.is_file().then(|| Image::open(path).ok()).flatten();
        let image = image.filter(|image| image.build_id() == self.wanted.build_id);
        if image.is_none() {
            self.missing(path.to_owned());
        }
        image
    }

    fn check(&mut self, image: Result<Image, Error>) -> Option<Image> {
        let error = match image {
            Ok(image) if self.arch.is_some_and(|arch| arch != image.arch()) => {
                self.tried
                    .push(format!("{} (is for {})", image.name(), image.arch()));
                return None;
            }
            Ok(image) => match self.wanted.build_id {
                Some(expected) if image.build_id() != Some(expected) => FindError::WrongBuildId {
                    file: image.name().to_owned(),
                    expected: expected.clone(),
                    seen: image.build_id().cloned(),
                },
                _ if image.is_truncated() => FindError::Truncated {
                    file: image.name().to_owned(),
                },
                _ => return Some(image),
            },
            Err(error) => FindError::Image(error),
        };
        self.failed.get_or_insert(error);
        None
    }
}
