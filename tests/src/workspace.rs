//! Paths: the repository, the target directory, the commands under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::memo::Memo;
use crate::process;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in the workspace")
}

/// Cargo's target directory, which keeps test programs and sysroots between runs.
pub fn target_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        // .../target/<profile>/deps/all-<hash>
        let test = std::env::current_exe().expect("the test knows its own path");
        test.ancestors()
            .nth(3)
            .expect("the test is in target/<profile>/deps")
            .to_path_buf()
    })
}

/// A file of this crate, by its path in `tests/`.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// glibc 2.41 from Debian 13 for an architecture, as `qemu/packages.sh` unpacks it.
pub fn newer_glibc(architecture: &'static str) -> Result<Arc<PathBuf>> {
    static UNPACKED: Memo<&str, PathBuf> = Memo::new();
    UNPACKED.get(architecture, || {
        let directory = target_directory().join(format!("trixie-{architecture}"));
        let mut script = Command::new(root().join("qemu/packages.sh"));
        script.args(["--suite", "trixie"]).arg(&directory);
        script.args([architecture, "libc6", "libgcc-s1"]);
        process::run(&mut script, Duration::from_secs(600))?.success()?;
        Ok(directory)
    })
}

/// The `unspool` command, built from this checkout.
pub fn unspool() -> Result<PathBuf> {
    command("unspool")
}

/// The `unspool-stub` command, built from this checkout.
pub fn stub() -> Result<PathBuf> {
    command("unspool-stub")
}

/// A command of another package. Cargo builds it for `cargo test --workspace`, but not for `cargo
/// test -p unspool-tests`, which would test an old one. So this builds it, unless `UNSPOOL_BUILT`
/// says that the caller has.
fn command(name: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if std::env::var_os("UNSPOOL_BUILT").is_some() {
                return Ok(());
            }
            let mut cargo =
                Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo
                .current_dir(root())
                .env("CARGO_TARGET_DIR", target_directory())
                .args([
                    "build",
                    "--quiet",
                    "-p",
                    "unspool",
                    "-p",
                    "unspool-stub",
                    "--bins",
                ]);
            process::run(&mut cargo, Duration::from_secs(1800))
                .and_then(|run| run.success())
                .map(|_| ())
                .map_err(|error| format!("{error:#}"))
        })
        .as_ref()
        .map_err(|error| anyhow!("building the commands: {error}"))?;
    let path = target_directory().join("debug").join(name);
    path.canonicalize()
        .with_context(|| format!("cargo built no {}", path.display()))
}
