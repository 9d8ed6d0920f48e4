//! Files that a command writes as a whole: if it fails, an older file of that name stays as it was.
//!
//! The command writes to a temporary file beside it and renames that. Some files can only be
//! written in place.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::{Builder, NamedTempFile};

/// Writes a file, or leaves what is there.
pub(super) fn write(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    match beside(path)? {
        Some(file) => {
            fill(file.as_file(), write)?;
            file.persist(path).map_err(|error| error.error)?;
            Ok(())
        }
        None => fill(&File::create(path)?, write),
    }
}

/// Writes to an open file.
pub(super) fn fill(
    file: &File,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush()
}

/// A temporary file that may take the place of the one at `path`; `None` if that must be written in
/// place.
fn beside(path: &Path) -> io::Result<Option<NamedTempFile>> {
    let old = match fs::symlink_metadata(path) {
        Ok(old) if !old.is_file() || old.nlink() > 1 => return Ok(None),
        Ok(old) => {
            // A rename would replace a file that may not be written.
            OpenOptions::new().write(true).open(path)?;
            Some(old)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    let mut builder = Builder::new();
    // The process's umask applies.
    let builder = builder
        .prefix(".unspool-")
        .permissions(Permissions::from_mode(0o666));
    let file = match builder.tempfile_in(parent.unwrap_or(Path::new("."))) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some(old) = old else {
        return Ok(Some(file));
    };
    let owner = |of: &Metadata| (of.uid(), of.gid());
    if owner(&file.as_file().metadata()?) != owner(&old) {
        return Ok(None);
    }
    file.as_file().set_permissions(old.permissions())?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const HALF: &str = "half";

    fn fails(out: &mut dyn Write) -> io::Result<()> {
        out.write_all(HALF.as_bytes())?;
        out.flush()?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn a_failure_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        assert!(write(&path, fails).is_err());
        assert!(names(folder.path()).is_empty());
        write(&path, |out| out.write_all(b"old")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(write(&path, fails).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["report"]);
    }

    #[test]
    fn links_and_devices_are_written_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink("file", at("link")).unwrap();
        fs::hard_link(at("file"), at("hard")).unwrap();
        for name in ["link", "hard"] {
            write(&at(name), |out| out.write_all(name.as_bytes())).unwrap();
            assert_eq!(fs::read(at("file")).unwrap(), name.as_bytes());
        }
        assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
        write(Path::new("/dev/null"), |out| out.write_all(b"any")).unwrap();
        assert!(write(&at("no/such"), |_| Ok(())).is_err());
    }
}
