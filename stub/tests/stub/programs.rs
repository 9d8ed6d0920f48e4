//! The C programs to debug, compiled once per test run.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex};

use object::{Object, ObjectSymbol};

use super::target;

/// A process to attach to. The caller must end it.
pub fn sleeper() -> Child {
    Command::new("sleep").arg("100").spawn().unwrap()
}

/// Compiles `programs/NAME.c` with `flags`, if necessary, and returns the path of the executable.
pub fn build(name: &str, flags: &[&str]) -> PathBuf {
    static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);
    let file = format!("{name}{}", flags.concat());
    if let Some(elsewhere) = target::programs() {
        let program = elsewhere.join(&file);
        assert!(
            program.exists(),
            "{file} has not been built for this machine"
        );
        return program;
    }
    let mut built = BUILT
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(path) = built.get(&file) {
        return path.clone();
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(format!("{name}.c"));
    let directory = target::scratch().join(std::process::id().to_string());
    std::fs::create_dir_all(&directory).unwrap();
    let output = directory.join(&file);
    let status = Command::new("cc")
        .args(["-g", "-O1", "-pthread", "-o"])
        .arg(&output)
        .arg(source)
        .args(flags)
        .status()
        .unwrap();
    assert!(status.success(), "cannot compile {name}");
    built.insert(file, output.clone());
    output
}

/// The address of a symbol in a program linked at fixed addresses (`-no-pie`), without the Thumb
/// bit.
pub fn address(program: &Path, symbol: &str) -> u64 {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found = file.symbol_by_name(symbol);
    let address = found
        .unwrap_or_else(|| panic!("no symbol {symbol}"))
        .address();
    match file.architecture() {
        object::Architecture::Arm => address & !1,
        _ => address,
    }
}
