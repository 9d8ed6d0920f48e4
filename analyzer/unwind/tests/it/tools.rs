//! Programs that the tests run, and the skip that is printed where one is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether all of `tools` are there. In CI (`UNSPOOL_NO_SKIP` set) a missing one is a failure.
pub(crate) fn have(tools: &[&str]) -> bool {
    for tool in tools {
        let found = tool.starts_with('/') && Path::new(tool).exists()
            || std::env::var_os("PATH").is_some_and(|path| {
                std::env::split_paths(&path).any(|dir| dir.join(tool).exists())
            });
        if !found {
            assert!(
                std::env::var_os("UNSPOOL_NO_SKIP").is_none(),
                "{tool} is missing"
            );
            println!("SKIPPED: {tool} is missing");
            return false;
        }
    }
    true
}

/// Standard output of a command that must succeed.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().expect("start");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A C program of `tests/programs`, compiled.
pub(crate) fn compile(dir: &Path, compiler: &str, program: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(program);
    let target = dir.join(format!(
        "{}{}",
        program.trim_end_matches(".c"),
        flags.concat()
    ));
    output(
        Command::new(compiler)
            .args(flags)
            .arg("-w")
            .arg("-o")
            .arg(&target)
            .arg(source),
    );
    target
}

/// `file` without symbols and debug information.
pub(crate) fn stripped(file: &Path, strip: &str) -> PathBuf {
    let target = file.with_extension("stripped");
    output(Command::new(strip).arg("-o").arg(&target).arg(file));
    target
}

/// A directory that is removed in the end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("unspool-unwind-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("temporary directory");
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
