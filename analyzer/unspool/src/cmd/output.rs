//! The file of a recording, and the treatment of an earlier file with its name.
//!
//! Separate from `record` because the rules are easy to get wrong. An older recording is kept as
//! `FILE.old` (as perf does), a file of any other kind is never touched, and nothing is renamed
//! before the new recording has begun.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use unspool_capture::{Resolution, Writer};

/// A checked output file for a recording.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    before: Before,
    opened: Cell<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Empty,
    Recording,
    /// A device or a pipe, which is opened and written as it is.
    Special,
}

impl Output {
    /// Checks the present file at `path`, and that the directory is writable, so that no program
    /// starts in vain.
    pub(super) fn prepare(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            bail!(
                "a recording cannot go to standard output, because the program may use it; name a \
                 file with -o (for a file named `-`: -o ./-)"
            );
        }
        let before = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Before::Nothing,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot write to {}", path.display()));
            }
            Ok(metadata) if metadata.is_dir() => {
                bail!("{} is a directory; name a file with -o", path.display())
            }
            Ok(metadata) if !metadata.is_file() => Before::Special,
            Ok(metadata) if metadata.len() == 0 => Before::Empty,
            Ok(_) if is_recording(path)? => Before::Recording,
            Ok(_) => bail!(
                "{} exists and is not a recording of unspool; name another file with -o",
                path.display()
            ),
        };
        let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        if before == Before::Nothing && !directory.is_dir() {
            bail!(
                "cannot write {}: there is no directory {}",
                path.display(),
                directory.display()
            );
        }
        nix::unistd::access(
            if matches!(before, Before::Nothing | Before::Recording) {
                directory
            } else {
                path
            },
            nix::unistd::AccessFlags::W_OK,
        )
        .with_context(|| format!("cannot write {}; name another file with -o", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            before,
            opened: Cell::new(false),
        })
    }

    /// Opens the file for writing. Moves an older recording to `FILE.old`.
    pub(super) fn open(&self) -> io::Result<File> {
        if self.before == Before::Recording {
            fs::rename(&self.path, self.old())?;
        }
        self.opened.set(true);
        let mut options = OpenOptions::new();
        options.write(true);
        match self.before {
            Before::Nothing | Before::Recording => options.create_new(true),
            Before::Empty => options.truncate(true),
            Before::Special => &mut options,
        };
        options.open(&self.path)
    }

    /// Restores the earlier state after a recording that failed to begin.
    pub(super) fn discard(&self) {
        if !self.opened.get() {
            return;
        }
        match self.before {
            Before::Nothing => drop(fs::remove_file(&self.path)),
            Before::Recording if self.old().exists() && self.path.exists() => {
                drop(fs::rename(self.old(), &self.path));
            }
            _ => {}
        }
    }

    /// True if the written recording can be read back.
    pub(super) fn is_readable(&self) -> bool {
        self.before != Before::Special
    }

    /// Appends records of a process, by its number, to the recording, or leaves that unchanged.
    pub(super) fn append(
        &self,
        process: u32,
        records: impl IntoIterator<Item = Resolution>,
    ) -> anyhow::Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        let length = file.metadata()?.len();
        let mut writer = Writer::append(&mut file, length);
        let mut records = records.into_iter();
        let written = records
            .try_for_each(|record| writer.record_of(process, record))
            .and_then(|()| writer.flush());
        drop(writer);
        if let Err(error) = written {
            // An incomplete block would look as if the recording had been cut.
            file.set_len(length)?;
            return Err(error.into());
        }
        Ok(())
    }

    fn old(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".old");
        name.into()
    }
}

fn is_recording(path: &Path) -> anyhow::Result<bool> {
    let mut head = [0; unspool_capture::MAGIC.len()];
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(file.read_exact(&mut head).is_ok() && head == unspool_capture::MAGIC)
}
