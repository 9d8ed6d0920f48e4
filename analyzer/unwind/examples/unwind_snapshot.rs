//! Unwind a snapshot kept in a text file:
//!
//! ```text
//! arch arm | x86_64 | aarch64
//! module 0xBIAS PATH          an ELF file, and what to add to its addresses
//! register NAME 0xVALUE       gdb's names; one line each
//! memory 0xADDRESS HEXBYTES   stack memory, in as many pieces as were kept
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use unspool_image::{Arch, Image};
use unspool_unwind::{
    CompileOptions, Module, ModuleMap, RegisterFile, SnapshotMemory, Table, WalkOptions, walk,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args()
        .nth(1)
        .ok_or("usage: unwind_snapshot FILE")?;
    let text = std::fs::read_to_string(file)?;
    let mut arch = Arch::X86_64;
    let mut files = Vec::new();
    let mut registers: HashMap<&str, u64> = HashMap::new();
    let mut memory = SnapshotMemory::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["arch", name] => {
                let known = Arch::ALL.into_iter().find(|arch| arch.name() == name);
                arch = known.ok_or("unknown architecture")?;
            }
            ["module", bias, path] => files.push((hex(bias)?, path)),
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
    let mut modules = ModuleMap::new(arch);
    for (id, (bias, path)) in files.into_iter().enumerate() {
        let image = Image::open(Path::new(path))?;
        let table = Arc::new(Table::compile(&image, &CompileOptions::default()));
        modules.add(Module {
            id: id as u32,
            name: path.into(),
            bias,
            image,
            table,
        });
    }
    let registers = RegisterFile::new(arch, |name| registers.get(name).copied());
    let stack = walk(&modules, &registers, &mut memory, &WalkOptions::default());
    for (index, frame) in stack.frames.iter().enumerate() {
        println!(
            "#{index} {:#x} sp {:#x} {}",
            frame.pc, frame.sp, frame.provenance
        );
    }
    println!("{}", stack.end);
    Ok(())
}

fn hex(word: &str) -> Result<u64, std::num::ParseIntError> {
    u64::from_str_radix(word.trim_start_matches("0x"), 16)
}
