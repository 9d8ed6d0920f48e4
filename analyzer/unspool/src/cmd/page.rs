//! The HTML report as a file: its embedded sources, its path, and the browser that shows it.
//!
//! Separate from the commands because `report`, `view`, `record` and `demo` all write it.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail, ensure};

use super::whole_file;
use crate::model::Model;
use crate::views::html::{self, SourceFile};

/// Maximum size in bytes of an embedded source file.
const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Maximum total size in bytes of the embedded source files.
const MAX_SOURCES_BYTES: u64 = 16 << 20;

/// Writes the report of a model and these source files to a file.
pub(super) fn write_file(
    model: &Model,
    sources: Vec<SourceFile>,
    path: &Path,
) -> anyhow::Result<()> {
    let written = whole_file::write(path, |out| html::write(model, &sources, out));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that a file can be written, before a program runs for it.
pub(super) fn prepare(path: &Path) -> anyhow::Result<()> {
    let existed = path.exists();
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot write {}", path.display()))?;
    if !existed {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// The source files that the recording names and this machine has.
pub(super) fn sources(model: &Model) -> Vec<SourceFile> {
    let mut left = MAX_SOURCES_BYTES;
    let mut sources = Vec::new();
    for path in html::source_paths(model) {
        let file = Path::new(&path);
        // A relative path is relative to the build directory, which is unknown.
        let readable = fs::metadata(file).is_ok_and(|metadata| {
            metadata.is_file() && metadata.len() <= MAX_SOURCE_BYTES.min(left)
        });
        let text = readable.then(|| fs::read(file).ok()).flatten();
        if let Some(text) = text {
            left = left.saturating_sub(text.len() as u64);
            sources.push(SourceFile {
                changed: is_younger(file, model),
                text: String::from_utf8_lossy(&text).into_owned(),
                path,
            });
        }
    }
    sources
}

/// What to tell about a source file that [`is_younger`].
pub(super) const CHANGED: &str = "The file was changed after the recording began, so its lines may \
                                  differ from those that ran.";

/// What to tell about a source file that [`html::source_paths`] leaves out.
pub(super) const FROM_SERVER: &str = "Only a debug file from a server names this file, so its \
                                      text is not shown.";

/// True if a file was changed after the recording began.
pub(super) fn is_younger(path: &Path, model: &Model) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    let changed = changed
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let began = model.recording.start_unix_ns;
    changed.is_some_and(|at| began != 0 && at.as_nanos() > u128::from(began))
}

/// Writes the report of a model to a new temporary file.
pub(super) fn write_temporary(model: &Model, sources: Vec<SourceFile>) -> anyhow::Result<PathBuf> {
    let file = tempfile::Builder::new()
        .prefix("unspool-")
        .suffix(".html")
        .tempfile()
        .context("cannot make a temporary file")?;
    whole_file::fill(file.as_file(), |out| html::write(model, &sources, out))
        .with_context(|| format!("cannot write {}", file.path().display()))?;
    let (_, path) = file.keep().context("cannot keep the temporary file")?;
    Ok(path)
}

/// Shows a file in the user's browser: `$BROWSER`, or the desktop's.
pub(super) fn open_browser(path: &Path) -> anyhow::Result<()> {
    let wanted = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let browser = wanted.unwrap_or_else(|| "xdg-open".into());
    let ran = Command::new(&browser)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let hint = || format!("open {} in a browser yourself", path.display());
    match ran {
        Ok(status) => ensure!(
            status.success(),
            "{} could not open a browser ({status}); {}",
            browser.display(),
            hint()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "cannot find {} to open a browser; {}, or set BROWSER",
            browser.display(),
            hint()
        ),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot run {}", browser.display()));
        }
    }
    Ok(())
}
