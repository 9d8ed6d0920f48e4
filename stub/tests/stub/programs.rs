//! The C programs that are debugged, compiled once for each run of the tests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// Compiles `programs/NAME.c` with `flags`, and returns the executable.
pub fn build(name: &str, flags: &[&str]) -> PathBuf {
    static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let mut built = BUILT
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let key = format!("{name} {}", flags.join(" "));
    if let Some(path) = built.get(&key) {
        return path.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(format!("{name}.c"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir_all(&directory).unwrap();
    let output = directory.join(format!("{name}-{}", built.len()));
    let status = Command::new("cc")
        .args(["-g", "-O1", "-pthread", "-o"])
        .arg(&output)
        .arg(source)
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success(), "cannot compile {name}");
    built.insert(key, output.clone());
    output
}

/// The address of a symbol in a program linked at fixed addresses (`-no-pie`).
pub fn address(program: &Path, symbol: &str) -> u64 {
    let output = Command::new("nm").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let (address, _, name) = (words.next()?, words.next()?, words.next()?);
            (name == symbol).then(|| u64::from_str_radix(address, 16).unwrap())
        })
        .unwrap_or_else(|| panic!("no symbol {symbol}"))
}
