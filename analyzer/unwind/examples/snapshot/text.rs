//! A snapshot kept in a text file:
//!
//! ```text
//! arch arm | x86_64 | aarch64
//! module 0xBIAS PATH          an ELF file, and what to add to its addresses
//! register NAME 0xVALUE       gdb's names; one line each
//! memory 0xADDRESS HEXBYTES   stack memory, in as many pieces as were kept
//! ```

use std::collections::HashMap;
use std::num::ParseIntError;

use unspool_image::Arch;
use unspool_unwind::{RegisterFile, SnapshotMemory, Stack};

pub(crate) struct Snapshot {
    pub(crate) arch: Arch,
    /// Biases and paths.
    pub(crate) modules: Vec<(u64, String)>,
    pub(crate) registers: RegisterFile,
    pub(crate) memory: SnapshotMemory,
}

impl Snapshot {
    /// Reads the file named on the command line.
    pub(crate) fn read() -> Result<Snapshot, Box<dyn std::error::Error>> {
        let file = std::env::args()
            .nth(1)
            .ok_or("expected a file with a snapshot")?;
        let text = std::fs::read_to_string(file)?;
        let mut arch = Arch::X86_64;
        let mut modules = Vec::new();
        let mut registers: HashMap<&str, u64> = HashMap::new();
        let mut memory = SnapshotMemory::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["arch", name] => {
                    let known = Arch::ALL.into_iter().find(|arch| arch.name() == name);
                    arch = known.ok_or("unknown architecture")?;
                }
                ["module", bias, path] => modules.push((hex(bias)?, path.to_owned())),
                ["register", name, value] => {
                    registers.insert(name, hex(value)?);
                }
                ["memory", address, bytes] => {
                    let pairs = bytes.as_bytes().chunks(2);
                    let bytes: Result<Vec<u8>, _> = pairs
                        .map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16))
                        .collect();
                    memory.insert(hex(address)?, bytes?);
                }
                _ => {}
            }
        }
        Ok(Snapshot {
            arch,
            modules,
            registers: RegisterFile::new(arch, |name| registers.get(name).copied()),
            memory,
        })
    }
}

pub(crate) fn print(stack: &Stack) {
    for (index, frame) in stack.frames.iter().enumerate() {
        println!(
            "#{index} {:#x} sp {:#x} {}",
            frame.pc, frame.sp, frame.provenance
        );
    }
    println!("{}", stack.end);
}

fn hex(word: &str) -> Result<u64, ParseIntError> {
    u64::from_str_radix(word.trim_start_matches("0x"), 16)
}
