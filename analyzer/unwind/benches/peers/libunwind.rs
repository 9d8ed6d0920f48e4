//! Compiles and runs the C program that measures libunwind, and parses its output.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program's output, by the first word of each line.
pub(crate) struct Output {
    pub(crate) modules: Vec<(u64, PathBuf)>,
    pub(crate) registers: HashMap<String, u64>,
    pub(crate) memory: (u64, Vec<u8>),
    /// Pcs of the stack, innermost first.
    pub(crate) frames: Vec<u64>,
    /// CFA minus sp of each step.
    pub(crate) cfas: Vec<u64>,
    /// Nanoseconds per frame.
    pub(crate) uncached: f64,
    pub(crate) cached: f64,
}

/// Compiles the program.
pub(crate) fn program(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/libunwind.c");
    let program = directory.join("libunwind");
    let status = Command::new("gcc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(source)
        .args(["-lunwind", "-ldl"])
        .status()
        .expect("gcc");
    assert!(
        status.success(),
        "the program did not compile: run: sudo apt-get install --no-install-recommends gcc libunwind-dev"
    );
    program
}

pub(crate) fn run(program: &Path, arguments: &[&Path]) -> Output {
    let status = Command::new(program).args(arguments).status();
    assert!(status.expect("start").success(), "{arguments:?}");
    let path = arguments.last().expect("output");
    let text = std::fs::read_to_string(path).expect("output");
    let mut output = Output {
        modules: Vec::new(),
        registers: HashMap::new(),
        memory: (0, Vec::new()),
        frames: Vec::new(),
        cfas: Vec::new(),
        uncached: 0.0,
        cached: 0.0,
    };
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["module", bias, "/proc/self/exe"] => {
                output.modules.push((hex(bias), program.to_owned()));
            }
            ["module", bias, path] => output.modules.push((hex(bias), path.into())),
            ["register", name, value] => {
                output.registers.insert(name.into(), hex(value));
            }
            ["memory", at, bytes] => {
                let pairs = bytes.as_bytes().chunks(2);
                let bytes = pairs.map(|pair| hex(std::str::from_utf8(pair).expect("hex")) as u8);
                output.memory = (hex(at), bytes.collect());
            }
            ["frame", pc] => output.frames.push(hex(pc)),
            ["cfa", cfa] => output.cfas.push(hex(cfa)),
            ["uncached", time] => output.uncached = time.parse().expect("time"),
            ["cached", time] => output.cached = time.parse().expect("time"),
            _ => panic!("{line}"),
        }
    }
    output
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word, 16).expect("hex number")
}
