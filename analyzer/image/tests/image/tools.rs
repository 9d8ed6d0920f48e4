//! Runs compilers and other tools, and provides files for several tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Real, stripped Debian binaries.
pub(crate) fn debian_binaries() -> Vec<PathBuf> {
    [
        "/usr/bin/python3",
        "/usr/bin/xz",
        "/bin/bash",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/arm-linux-gnueabihf/lib/libc.so.6",
        "/usr/arm-linux-gnueabihf/lib/ld-linux-armhf.so.3",
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
    ]
    .iter()
    .map(PathBuf::from)
    .collect()
}

/// An empty directory for one test.
pub(crate) fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("image-{test}"));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a directory for the test");
    path
}

pub(crate) fn source(name: &str) -> String {
    format!("{}/tests/sources/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command line split at spaces. Returns its standard output. A missing tool fails the test.
pub(crate) fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("this test needs {}: {error}", words[0]));
    assert!(
        output.status.success(),
        "{line}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Like [`run`], with standard input.
pub(crate) fn pipe(line: &str, input: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs {}: {error}", words[0]));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("output");
    let _ = writer.join();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compiles a program of `tests/sources` to `directory/name`.
pub(crate) fn compile(directory: &Path, name: &str, compiler: &str, file: &str) -> PathBuf {
    let out = directory.join(name);
    let flag = if compiler.contains("--build-id") {
        ""
    } else if compiler.starts_with("rustc") {
        "--crate-name shapes"
    } else {
        "-Wl,--build-id"
    };
    run(&format!(
        "{compiler} {flag} {} -o {}",
        source(file),
        out.display()
    ));
    out
}

/// Counts how many of two tools' answers agree, and stores the first few differences.
#[derive(Default)]
pub(crate) struct Agreement {
    pub(crate) equal: usize,
    pub(crate) total: usize,
    differences: Vec<String>,
}

impl Agreement {
    pub(crate) fn note(&mut self, equal: bool, difference: impl FnOnce() -> String) {
        self.total += 1;
        if equal {
            self.equal += 1;
        } else if self.differences.len() < 12 {
            let difference = difference();
            if !self.differences.contains(&difference) {
                self.differences.push(difference);
            }
        }
    }

    /// Prints the result, and asserts that at least the fraction `least` agrees, of at least
    /// `questions`.
    pub(crate) fn check(&self, what: &str, questions: usize, least: f64) {
        let share = self.equal as f64 / self.total.max(1) as f64;
        println!(
            "{what}: {} of {} agree ({:.3} %)",
            self.equal,
            self.total,
            share * 100.0
        );
        for difference in &self.differences {
            println!("  {difference}");
        }
        assert!(
            self.total >= questions,
            "{what}: only {} questions",
            self.total
        );
        assert!(share >= least, "{what}: {share} is less than {least}");
    }
}

/// Parses hex digits, with or without `0x`.
pub(crate) fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("{text:?}"))
}
