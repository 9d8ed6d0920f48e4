//! Runs the tools that the tests need, and fails with a hint how to install what is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Fails the test unless everything in `tools` (program names or full paths) exists. The message
/// names the command that installs it. So no test passes without running.
pub(crate) fn need(tools: &[&str]) {
    for tool in tools {
        let found = Path::new(tool).is_absolute() && Path::new(tool).exists()
            || std::env::var_os("PATH").is_some_and(|path| {
                std::env::split_paths(&path).any(|dir| dir.join(tool).exists())
            });
        let package = match *tool {
            "arm-linux-gnueabihf-gcc" => "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
            "aarch64-linux-gnu-gcc" => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
            "arm-linux-gnueabihf-strip" => "binutils-arm-linux-gnueabihf",
            "aarch64-linux-gnu-strip" => "binutils-aarch64-linux-gnu",
            "readelf" | "objdump" => "binutils",
            "/usr/aarch64-linux-gnu/lib/libc.so.6" => "libc6-dev-arm64-cross",
            "qemu-arm" | "qemu-aarch64" => "qemu-user",
            path if path.ends_with("libunwind-x86_64.h") => "libunwind-dev",
            "musl-gcc" => "musl-tools",
            "perf" => "linux-perf",
            "xz" => "xz-utils",
            "/usr/bin/python3" => "python3",
            "/usr/arm-linux-gnueabihf/lib/libc.so.6" => "libc6-dev-armhf-cross",
            path if path.starts_with("/usr/aarch64-linux-gnu") => {
                "libc6-dev-arm64-cross libstdc++6-arm64-cross"
            }
            path if path.contains("libstdc++") => "libstdc++6",
            path if path.starts_with("/usr/lib/debug") => "libc6-dbg:armhf",
            path if path.contains("libc.so") => "libc6",
            program => program,
        };
        assert!(
            found,
            "{tool} is missing: run: sudo apt-get install --no-install-recommends {package}"
        );
    }
}

/// Debian's armhf libraries, as `tests/run` assembles them. Assembles them if that has not been
/// done.
pub(crate) fn armhf_sysroot() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let text = output(Command::new(root.join("qemu/sysroot.sh")).arg(target.join("sysroot-armhf")));
    PathBuf::from(text.trim_end())
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

/// Compiles a C program of `tests/programs`.
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

/// A copy of `file` without symbols and debug information.
pub(crate) fn stripped(file: &Path, strip: &str) -> PathBuf {
    let target = file.with_extension("stripped");
    output(Command::new(strip).arg("-o").arg(&target).arg(file));
    target
}

/// A directory that is removed at the end.
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
