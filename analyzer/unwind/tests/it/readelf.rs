//! Compares compiled tables with readelf's output for the same files.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use unspool_image::Image;
use unspool_unwind::{Cfa, CompileOptions, Place, Source, Table, exidx};

use crate::tools::{need, output};

/// readelf's names of x86-64 registers.
const X86: [&str; 17] = [
    "rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "ra",
];

/// Every row that `readelf --debug-dump=frames-interp` prints: address, CFA, and the registers'
/// places.
fn interpreted(path: &Path) -> Vec<(u64, String, HashMap<u8, String>)> {
    // Its exit code is not 0 if a separate debug file is missing, which does not matter here.
    let text = Command::new("readelf")
        .arg("--debug-dump=frames-interp")
        .arg(path)
        .env("LC_ALL", "C")
        .output()
        .expect("readelf");
    let text = String::from_utf8_lossy(&text.stdout);
    let mut rows = Vec::new();
    let mut columns: Vec<String> = Vec::new();
    let mut in_fde = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.contains(" FDE ") {
            in_fde = true;
        } else if line.contains(" CIE ") {
            in_fde = false;
        } else if words.first() == Some(&"LOC") {
            columns = words[2..].iter().map(|word| (*word).to_owned()).collect();
        } else if in_fde
            && words.len() >= 2
            && words[0].len() == 16
            && words.len() == columns.len() + 2
        {
            let Ok(at) = u64::from_str_radix(words[0], 16) else {
                continue;
            };
            let registers = columns
                .iter()
                .zip(&words[2..])
                .filter_map(|(name, place)| {
                    let number = X86.iter().position(|known| known == name)?;
                    Some((number as u8, (*place).to_owned()))
                })
                .collect();
            rows.push((at, words[1].to_owned(), registers));
        }
    }
    rows
}

fn place(place: Place) -> String {
    match place {
        Place::AtCfa(offset) => format!("c{offset:+}"),
        Place::CfaPlus(offset) => format!("v{offset:+}"),
        Place::AtExpression(_) => "exp".into(),
        Place::Value(_) => "vexp".into(),
        Place::Undefined => "u".into(),
        Place::Same => "s".into(),
        other => format!("{other:?}"),
    }
}

#[test]
fn cfi_rows_equal_readelf() {
    need(&["readelf"]);
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    ] {
        need(&[path]);
        let path = Path::new(path);
        let image = Image::open(path).expect("image");
        let start = Instant::now();
        let table = Table::compile(&image, &CompileOptions::default());
        let took = start.elapsed();
        assert!(table.notes().is_empty(), "{:?}", table.notes());
        let mut compared = 0;
        let rows = interpreted(path);
        for (index, (at, cfa, registers)) in rows.iter().enumerate() {
            // The next row overrides a row of length 0.
            if rows.get(index + 1).is_some_and(|next| next.0 == *at) {
                continue;
            }
            let row = table
                .lookup_from(Source::Cfi, *at)
                .unwrap_or_else(|| panic!("{}: no row for {at:#x}", path.display()));
            let own = match row.rule.cfa {
                Cfa::Register { register, offset } => {
                    format!("{}{offset:+}", X86[usize::from(register)])
                }
                Cfa::Expression(_) => "exp".into(),
                Cfa::Unknown => "?".into(),
            };
            assert_eq!(&own, cfa, "{}: CFA at {at:#x}", path.display());
            for (number, expected) in registers {
                let own = if *number == 16 {
                    Some(row.rule.ra)
                } else {
                    row.rule
                        .saved
                        .iter()
                        .find(|saved| saved.0 == *number)
                        .map(|saved| saved.1)
                };
                let own = own.map_or("u".into(), place);
                // readelf prints a register without a rule like one with an undefined rule.
                assert_eq!(
                    &own,
                    expected,
                    "{}: register {number} at {at:#x}",
                    path.display()
                );
            }
            compared += 1;
        }
        println!(
            "{}: {compared} rows equal, compiled in {took:?}",
            path.display()
        );
        assert!(compared > 10_000, "{compared}");
    }
}

/// `readelf -u` prints `0xADDRESS <name>: ...`, then the operations.
#[test]
fn exidx_operations_equal_readelf() {
    let path = Path::new("/usr/arm-linux-gnueabihf/lib/libc.so.6");
    need(&["readelf", "/usr/arm-linux-gnueabihf/lib/libc.so.6"]);
    let text = output(
        Command::new("readelf")
            .arg("-u")
            .arg(path)
            .env("LC_ALL", "C"),
    );
    let mut expected: HashMap<u64, (Vec<Vec<u8>>, bool)> = HashMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("0x")
            && !line.starts_with("  ")
        {
            let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
            let at = u64::from_str_radix(&digits, 16).expect("address");
            expected.insert(at, (Vec::new(), line.contains("[cantunwind]")));
            current = Some(at);
        } else if let Some(rest) = line.strip_prefix("  0x")
            && let Some(at) = current
        {
            let bytes: Vec<u8> = std::iter::once(&rest[..2])
                .chain(
                    rest[2..]
                        .split_whitespace()
                        .map_while(|word| word.strip_prefix("0x")),
                )
                .filter_map(|digits| u8::from_str_radix(digits, 16).ok())
                .collect();
            expected.get_mut(&at).expect("entry").0.push(bytes);
        }
    }
    let image = Image::open(path).expect("image");
    let index = image.section(".ARM.exidx").expect("index");
    let bytes_at = |svma: u64, len: usize| image.bytes_at(svma, len);
    let mut compared = 0;
    for (start, entry) in exidx::read(&index.data, index.svma, &bytes_at) {
        let (operations, cantunwind) = &expected[&start];
        match entry {
            exidx::Entry::CantUnwind => assert!(cantunwind, "{start:#x}"),
            exidx::Entry::Operations(own) => {
                assert!(!cantunwind);
                let theirs: Vec<_> = operations
                    .iter()
                    .flat_map(|bytes| exidx::opcode::decode(bytes))
                    .collect();
                let cut = |list: &[exidx::opcode::Op]| {
                    let end = list.iter().position(|op| *op == exidx::opcode::Op::Finish);
                    list[..end.unwrap_or(list.len())].to_vec()
                };
                // readelf does not print the operations of generic entries.
                if !operations.is_empty() {
                    assert_eq!(cut(&own), cut(&theirs), "{start:#x}");
                    compared += 1;
                }
            }
            exidx::Entry::Unreadable(why) => panic!("{start:#x}: {why}"),
        }
    }
    println!("{compared} entries equal to readelf's");
    assert!(compared > 300, "{compared}");
}
