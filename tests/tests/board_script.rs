//! Tests `qemu/board.sh` on a machine that lacks something it needs: it prints one command that
//! installs everything, and creates nothing.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Trial;

use unspool_tests::{process, workspace};

pub(crate) fn trials() -> Vec<Trial> {
    vec![crate::trial("board_script::names_what_is_missing", missing)]
}

/// A folder with all commands except `missing`.
fn commands_without(folder: &Path, missing: &[&str]) -> Result<()> {
    for path in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        for file in std::fs::read_dir(path).into_iter().flatten() {
            let file = file?;
            let link = folder.join(file.file_name());
            let absent = missing.iter().any(|name| file.file_name() == *name);
            if !absent && !link.exists() {
                let _ = symlink(file.path(), link);
            }
        }
    }
    Ok(())
}

fn missing() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("bin");
    let target = folder.path().join("target");
    std::fs::create_dir(&bin)?;
    commands_without(
        &bin,
        &["cpio", "qemu-system-arm", "arm-linux-gnueabihf-gcc"],
    )?;
    let mut script = Command::new(workspace::root().join("qemu/board.sh"));
    script.args(["arm", "--build"]);
    script.env("PATH", &bin).env("CARGO_TARGET_DIR", &target);
    let run = process::run(&mut script, Duration::from_secs(60))?;
    ensure!(run.code()? == 1, "{run}");
    let install = "apt-get install -y --no-install-recommends \
                   qemu-system-arm cpio gcc-arm-linux-gnueabihf";
    ensure!(
        run.stderr.lines().any(|line| line.ends_with(install)),
        "{run}"
    );
    ensure!(!target.exists(), "it has begun all the same: {run}");
    Ok(())
}
