//! Finds separate debug files: by build-id, by `.gnu_debuglink`, and dwz's supplementary files.
//!
//! Apart because gdb defines the places (manual, "Separate Debug Files"), not the target.

use std::path::{Path, PathBuf};

use super::{Artifact, Finder, sysroot};
use crate::{BuildId, Image};

impl Finder {
    /// Attaches the debug file of an image, unless the image has debug information itself, and any
    /// supplementary file.
    ///
    /// `host_path` is the place where the image was found; `target_path` is its path on the target.
    pub fn attach_debug_file(
        &self,
        image: Image,
        host_path: Option<&Path>,
        target_path: &str,
        notes: &mut Vec<String>,
    ) -> Image {
        let mut image = image;
        if !image.has_section(".debug_info") {
            let debug = self
                .by_build_id(&image)
                .or_else(|| self.by_link(&image, host_path, target_path, notes))
                .or_else(|| self.downloaded(image.build_id()?, &image));
            if let Some(debug) = debug {
                image = image.with_debug_file(debug);
            }
        }
        match self.supplementary(&image, notes) {
            Some(supplementary) => image.with_supplementary_file(supplementary),
            None => image,
        }
    }

    fn by_build_id(&self, image: &Image) -> Option<Image> {
        let build_id = image.build_id()?;
        self.in_debug_directories(&build_id.debug_path())
            .into_iter()
            .filter(|file| file.is_file())
            .filter_map(|file| Image::open(&file).ok())
            .find(|debug| debug.build_id() == Some(build_id) && debug.arch() == image.arch())
    }

    /// The debug file of this build, or a supplementary file, from the servers.
    fn downloaded(&self, build_id: &BuildId, image: &Image) -> Option<Image> {
        let arch = Some(image.arch());
        self.ask_servers(build_id, Artifact::DebugInfo, image.name(), arch)
    }

    /// The three usual places: beside the file, in `.debug` beside it, and in the debug directories
    /// below the file's own directory.
    fn by_link(
        &self,
        image: &Image,
        host_path: Option<&Path>,
        target_path: &str,
        notes: &mut Vec<String>,
    ) -> Option<Image> {
        let (name, expected) = debug_link(image)?;
        let mut places: Vec<PathBuf> = Vec::new();
        let mut directories = Vec::new();
        if let Some(directory) = host_path.and_then(Path::parent) {
            directories.push(directory.to_owned());
        }
        // The file may be a symbolic link into another directory.
        let real = host_path.and_then(|path| path.canonicalize().ok());
        directories.extend(real.as_deref().and_then(Path::parent).map(Path::to_owned));
        for directory in &directories {
            places.push(directory.join(&name));
            places.push(directory.join(".debug").join(&name));
        }
        let target_directory = Path::new(target_path).parent().unwrap_or(Path::new(""));
        directories.push(target_directory.to_owned());
        for directory in &directories {
            let relative = directory.strip_prefix("/").unwrap_or(directory).join(&name);
            places.extend(self.in_debug_directories(&relative.to_string_lossy()));
        }
        for place in places {
            if !place.is_file() || Some(&place) == real.as_ref() {
                continue;
            }
            let Ok(debug) = Image::open(&place) else {
                notes.push(format!("{} is not a usable debug file", place.display()));
                continue;
            };
            let mut crc = flate2::Crc::new();
            if debug.visit_bytes(&mut |bytes| crc.update(bytes)).is_err() {
                continue;
            }
            if crc.sum() == expected && debug.arch() == image.arch() {
                return Some(debug);
            }
            // The stripped file itself may have the name in its link.
            if debug.file_size() != image.file_size() || debug.bytes() != image.bytes() {
                notes.push(format!(
                    "{} is not the debug file of {}: expected checksum {expected:#010x}, found {:#010x}",
                    place.display(),
                    image.name(),
                    crc.sum()
                ));
            }
        }
        None
    }

    fn supplementary(&self, image: &Image, notes: &mut Vec<String>) -> Option<Image> {
        let section = image.section(".gnu_debugaltlink")?;
        let end = section.data.iter().position(|&byte| byte == 0)?;
        let (name, id) = section.data.split_at(end);
        let build_id = BuildId::new(&id[1..])?;
        let name = String::from_utf8_lossy(name).into_owned();
        let referring = image.debug_image().unwrap_or(image);
        let mut places = Vec::new();
        let directory = Path::new(referring.name()).parent();
        if Path::new(&name).is_absolute() {
            let root = self.sysroot.as_ref();
            places.extend(root.and_then(|root| sysroot::resolve(root, Path::new(&name))));
            places.push(PathBuf::from(&name));
        } else if let Some(directory) = directory {
            places.push(directory.join(&name));
            // Build-id directories contain symbolic links; the name is relative to the real file.
            let real = Path::new(referring.name()).canonicalize().ok();
            places.extend(real.and_then(|real| Some(real.parent()?.join(&name))));
        }
        if let Some((_, below)) = name.rsplit_once(".dwz/") {
            places.extend(self.in_debug_directories(&format!(".dwz/{below}")));
        }
        places.extend(self.in_debug_directories(&build_id.debug_path()));
        let found = places
            .iter()
            .filter(|place| place.is_file())
            .filter_map(|place| Image::open(place).ok())
            .find(|file| file.build_id() == Some(&build_id));
        // Stripping keeps the reference, but a stripped file does not need it.
        if !image.has_section(".debug_info") {
            return found;
        }
        let found = found.or_else(|| self.downloaded(&build_id, referring));
        let may_be_downloaded = self.servers.is_some() && self.cached_only;
        if found.is_none() && !may_be_downloaded {
            notes.push(format!(
                "the supplementary debug file {name} (build-id {build_id}) of {} was not found: \
                 some names are missing",
                referring.name()
            ));
        }
        found
    }
}

/// Reads `.gnu_debuglink`: file name, NUL, padding to 4 bytes, CRC-32 of the debug file in the
/// image's byte order (gdb manual, "Separate Debug Files"). The name must be a basename; else it is
/// ignored.
fn debug_link(image: &Image) -> Option<(String, u32)> {
    let section = image.section(".gnu_debuglink")?;
    let end = section.data.iter().position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(&section.data[..end]).ok()?;
    if name.is_empty() || name.contains('/') || name == ".." {
        return None;
    }
    let at = (end + 1).next_multiple_of(4);
    let crc: [u8; 4] = section.data.get(at..at + 4)?.try_into().ok()?;
    let crc = if image.is_big_endian() {
        u32::from_be_bytes(crc)
    } else {
        u32::from_le_bytes(crc)
    };
    Some((name.to_owned(), crc))
}
