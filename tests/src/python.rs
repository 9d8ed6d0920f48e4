//! Python packages that judge our files, each in an environment of its own in the target directory.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::memo::Memo;
use crate::{process, workspace};

const LIMIT: Duration = Duration::from_secs(300);

/// A Python that can import `module`, from this version of a package: `perfetto==0.59.1`.
pub fn with(package: &'static str, module: &str) -> Result<PathBuf> {
    static INSTALLED: Memo<&str, PathBuf> = Memo::new();
    let installed = INSTALLED.get(package, || {
        let folder = workspace::target_directory().join("python").join(package);
        let python = folder.join("bin/python");
        let has_module = || {
            let mut import = Command::new(&python);
            import.args(["-c", &format!("import {module}")]);
            process::run(&mut import, LIMIT).is_ok_and(|run| run.success().is_ok())
        };
        if !has_module() {
            let mut venv = Command::new("python3");
            process::run(venv.args(["-m", "venv"]).arg(&folder), LIMIT)?.success()?;
            let mut pip = Command::new(folder.join("bin/pip"));
            process::run(pip.args(["install", "--quiet", package]), LIMIT)?.success()?;
        }
        if !has_module() {
            bail!("no module {module} in {}", folder.display());
        }
        Ok(python)
    })?;
    Ok(installed.as_ref().clone())
}
