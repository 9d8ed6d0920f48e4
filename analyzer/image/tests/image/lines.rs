//! Source lines and inlined frames against addr2line, function names against gdb.

use std::path::{Path, PathBuf};
use std::time::Instant;

use unspool_image::{Image, Locator, demangle};

use crate::symbols::sample;
use crate::tools::{Agreement, compile, directory, pipe, run};

/// `addr2line -i -f -a`: for each address its frames, innermost first, as (name, file, line).
pub(crate) fn addr2line(
    tool: &str,
    path: &Path,
    addresses: &[u64],
) -> Vec<Vec<(String, String, u32)>> {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let out = pipe(&format!("{tool} -a -i -f -e {}", path.display()), &input);
    let mut answers: Vec<Vec<(String, String, u32)>> = Vec::new();
    let mut name = None;
    for line in out.lines() {
        match name.take() {
            _ if line.starts_with("0x") && line.len() >= 10 && !line.contains(':') => {
                answers.push(Vec::new());
            }
            None => name = Some(line.to_owned()),
            Some(name) => {
                let (file, line) = line.rsplit_once(':').expect("file:line");
                let line = line
                    .split(' ')
                    .next()
                    .and_then(|line| line.parse().ok())
                    .unwrap_or(0);
                answers
                    .last_mut()
                    .expect("an address")
                    .push((name, file.to_owned(), line));
            }
        }
    }
    assert_eq!(answers.len(), addresses.len(), "{tool} answered all");
    answers
}

/// File names without what `..` takes back, which the tools resolve differently.
pub(crate) fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn compare_lines(what: &str, tool: &str, path: &Path, questions: usize, least: f64) {
    let image = Image::open(path).expect("an image");
    let locator = Locator::new(&image);
    assert!(locator.notes().is_empty(), "{:?}", locator.notes());
    let addresses = sample(&image, 4000);
    let mut agreement = Agreement::default();
    let start = Instant::now();
    let ours: Vec<_> = addresses
        .iter()
        .map(|&address| locator.locate(address))
        .collect();
    let elapsed = start.elapsed();
    for ((&address, ours), theirs) in addresses
        .iter()
        .zip(ours)
        .zip(addr2line(tool, path, &addresses))
    {
        let theirs: Vec<(&str, u32)> = theirs
            .iter()
            .map(|(_, file, line)| (base(file), *line))
            .filter(|(_, line)| *line != 0)
            .collect();
        let ours: Vec<(&str, u32)> = ours
            .lines
            .iter()
            .map(|frame| {
                (
                    base(frame.file.as_deref().unwrap_or("??")),
                    frame.line.unwrap_or(0),
                )
            })
            .filter(|(_, line)| *line != 0)
            .collect();
        agreement.note(ours == theirs, || {
            format!("{address:#x}: {ours:?}, {tool}: {theirs:?}")
        });
    }
    println!("{what}: {} lookups in {elapsed:?}", addresses.len());
    agreement.check(&format!("lines of {what}"), questions, least);
}

/// Programs with debug information, of every compiler.
fn programs(directory: &Path) -> Vec<(&'static str, &'static str, PathBuf)> {
    [
        ("gcc-O0", "g++ -g -O0 -pthread", "shapes.cpp", "addr2line"),
        ("gcc-O2", "g++ -g -O2 -pthread", "shapes.cpp", "addr2line"),
        (
            "gcc-O2-static",
            "gcc -g -O2 -static",
            "plain.c",
            "addr2line",
        ),
        (
            "gcc-dwarf4",
            "g++ -gdwarf-4 -O2 -no-pie -pthread",
            "shapes.cpp",
            "addr2line",
        ),
        (
            "gcc-gz",
            "g++ -g -gz -O2 -pthread",
            "shapes.cpp",
            "addr2line",
        ),
        (
            "clang-O0",
            "clang++ -g -O0 -pthread",
            "shapes.cpp",
            "addr2line",
        ),
        (
            "clang-O2",
            "clang++ -g -O2 -pthread",
            "shapes.cpp",
            "addr2line",
        ),
        (
            "arm-O2",
            "arm-linux-gnueabihf-g++ -marm -g -O2 -pthread",
            "shapes.cpp",
            "arm-linux-gnueabihf-addr2line",
        ),
        (
            "thumb-O2",
            "arm-linux-gnueabihf-g++ -mthumb -g -O2 -pthread",
            "shapes.cpp",
            "arm-linux-gnueabihf-addr2line",
        ),
        ("rust-O0", "rustc -g", "shapes.rs", "addr2line"),
        ("rust-O2", "rustc -g -O", "shapes.rs", "addr2line"),
    ]
    .into_iter()
    .map(|(name, compiler, file, tool)| (name, tool, compile(directory, name, compiler, file)))
    .collect()
}

#[test]
fn lines_and_inlining_agree_with_addr2line() {
    for (name, tool, path) in programs(&directory("lines")) {
        compare_lines(name, tool, &path, 500, 0.97);
    }
}

/// What gdb's `bt` would call the functions at an address, innermost first, inlined ones included.
const GDB_NAMES: &str = r#"
import gdb
for line in open(ADDRESSES):
    pc = int(line, 16)
    block = gdb.block_for_pc(pc)
    names = []
    while block is not None and not block.is_static and not block.is_global:
        if block.function is not None:
            names.append(block.function.name)
        block = block.superblock
    print("@", line.strip(), "\x01".join(names))
"#;

fn gdb_names(directory: &Path, path: &Path, addresses: &[u64]) -> Vec<Vec<String>> {
    let list = directory.join("addresses");
    let text: String = addresses
        .iter()
        .map(|address| format!("{address:x}\n"))
        .collect();
    std::fs::write(&list, text).expect("addresses");
    let script = directory.join("names.py");
    std::fs::write(&script, format!("ADDRESSES = {list:?}{GDB_NAMES}")).expect("a script");
    let out = run(&format!(
        "gdb-multiarch -q -nx -batch {} -x {}",
        path.display(),
        script.display()
    ));
    let answers: Vec<Vec<String>> = out
        .lines()
        .filter_map(|line| line.strip_prefix("@ "))
        .map(|line| {
            let names = line.split_once(' ').map_or("", |(_, names)| names);
            names
                .split('\x01')
                .filter(|name| !name.is_empty())
                .map(without_parameters)
                .collect()
        })
        .collect();
    assert_eq!(answers.len(), addresses.len());
    answers
}

/// `a::f<int>(int) const` -> `a::f<int>`, as gdb drops the parameters of a frame's function.
fn without_parameters(name: &str) -> String {
    let name = name.strip_suffix(" const").unwrap_or(name);
    if !name.ends_with(')') || name.ends_with("operator()") {
        return name.to_owned();
    }
    let mut depth = 0;
    for (at, c) in name.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return name[..at].to_owned();
        }
    }
    name.to_owned()
}

#[test]
fn function_names_agree_with_gdb() {
    let directory = directory("names");
    for (name, _, path) in programs(&directory) {
        let image = Image::open(&path).expect("an image");
        let locator = Locator::new(&image);
        let addresses = sample(&image, 2500);
        let mut agreement = Agreement::default();
        for (&address, theirs) in addresses
            .iter()
            .zip(gdb_names(&directory, &path, &addresses))
        {
            if theirs.is_empty() {
                continue;
            }
            let ours: Vec<String> = locator
                .locate(address)
                .lines
                .into_iter()
                .map(|frame| frame.function.unwrap_or_default())
                .collect();
            agreement.note(ours == theirs, || format!("{ours:?}, gdb: {theirs:?}"));
        }
        agreement.check(&format!("names of {name}"), 30, 0.9);
    }
}

#[test]
fn symbols_name_what_dwarf_does_not() {
    let libstdcxx =
        Image::open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6".as_ref()).expect("an image");
    let locator = Locator::new(&libstdcxx);
    let symbol = libstdcxx
        .symbols()
        .functions()
        .find(|symbol| {
            symbol.name.starts_with("_ZNSt6thread15_M_start_thread")
                && !symbol.name.ends_with("@plt")
        })
        .expect("libstdc++ starts threads");
    let location = locator.locate(symbol.svma + 1);
    assert!(location.lines.is_empty());
    let function = location.function.expect("a function");
    assert_eq!(function.name, "std::thread::_M_start_thread");
    assert_eq!(function.start, symbol.svma);
    assert!(demangle(&function.raw).starts_with("std::thread::_M_start_thread(std::unique_ptr<"));
    assert_eq!(locator.locate(u64::MAX), Default::default());
}
