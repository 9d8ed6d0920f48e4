//! Compares source lines and inlined frames with addr2line, and function names with gdb.

use std::path::{Path, PathBuf};
use std::time::Instant;

use unspool_image::{Image, Locator, demangle};

use crate::symbols::sample;
use crate::tools::{Agreement, compile, directory, pipe, run};

/// `addr2line -i -f -a`: the frames of each address, innermost first, as (name, file, line).
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

/// The file name without directories, because tools resolve `..` differently.
pub(crate) fn base(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// `eu-addr2line`: the innermost file and line. It reads all architectures.
fn eu_addr2line(path: &Path, addresses: &[u64]) -> Vec<(String, u32)> {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let out = pipe(&format!("eu-addr2line -s -e {}", path.display()), &input);
    let answers: Vec<(String, u32)> = out
        .lines()
        .map(|line| {
            let mut parts = line.split(':');
            let file = parts.next().expect("a file").to_owned();
            (
                file,
                parts.next().and_then(|line| line.parse().ok()).unwrap_or(0),
            )
        })
        .collect();
    assert_eq!(answers.len(), addresses.len(), "eu-addr2line answered all");
    answers
}

/// Compares the innermost line with eu-addr2line, and the lines of all inlined frames with
/// addr2line, whose file names are wrong if a unit has several (binutils 2.40).
pub(crate) fn compare_lines(what: &str, tool: &str, image: &Image, dwarf: &Path, least: f64) {
    let locator = Locator::new(image);
    let addresses = covered(image, 4000);
    let start = Instant::now();
    locator.locate(image.entry());
    println!("{what}: the first lookup took {:?}", start.elapsed());
    assert!(locator.notes().is_empty(), "{:?}", locator.notes());
    let ours: Vec<_> = addresses
        .iter()
        .map(|&address| locator.locate(address))
        .collect();
    println!(
        "{what}: {} lookups in {:?}",
        addresses.len(),
        start.elapsed()
    );
    let mut innermost = Agreement::default();
    let mut inlined = Agreement::default();
    let all = addr2line(tool, dwarf, &addresses);
    let first = eu_addr2line(dwarf, &addresses);
    for (((&address, ours), all), (file, line)) in addresses.iter().zip(ours).zip(all).zip(first) {
        let lines = |lines: Vec<u32>| {
            lines
                .into_iter()
                .filter(|&line| line != 0)
                .collect::<Vec<u32>>()
        };
        let theirs = lines(all.iter().map(|(_, _, line)| *line).collect());
        let frames = lines(
            ours.lines
                .iter()
                .map(|frame| frame.line.unwrap_or(0))
                .collect(),
        );
        if theirs.is_empty() && frames.is_empty() {
            continue;
        }
        inlined.note(frames == theirs, || {
            format!("{address:#x}: {frames:?}, {tool}: {theirs:?}")
        });
        let frame = ours.lines.first();
        let place =
            frame.and_then(|frame| Some((base(frame.file.as_deref()?), frame.line.unwrap_or(0))));
        let equal = place.unwrap_or(("??", 0)) == (base(&file), line)
            || line == 0 && place.is_none_or(|p| p.1 == 0);
        innermost.note(equal, || {
            format!("{address:#x}: {place:?}, eu-addr2line: {file}:{line}")
        });
    }
    innermost.check(&format!("innermost lines of {what}"), 100, least);
    // binutils 2.40 misses some inlined frames of clang's code, which gdb shows.
    inlined.check(&format!("inlined lines of {what}"), 100, least - 0.02);
}

/// Addresses spread over the text, and in each function of `plain.c`, which has only a few in a
/// static program.
fn covered(image: &Image, count: u64) -> Vec<u64> {
    let mut addresses = sample(image, count);
    for name in ["visible", "hidden", "main"] {
        for symbol in image.symbols().named(name) {
            addresses.extend(symbol.svma..symbol.svma + symbol.size);
        }
    }
    addresses
}

/// Programs with debug information, from every compiler.
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
            "clang++ -g -gdwarf-aranges -O0 -pthread",
            "shapes.cpp",
            "addr2line",
        ),
        (
            "clang-O2",
            "clang++ -g -gdwarf-aranges -O2 -pthread",
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
        let image = Image::open(&path).expect("an image");
        compare_lines(name, tool, &image, &path, 0.97);
    }
}

/// gdb's `bt` names of the functions at an address, innermost first, including inlined ones.
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
        let addresses = covered(&image, 2500);
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
            // gdb's blocks continue outward: from a lambda to the enclosing function.
            let equal = !ours.is_empty() && theirs.starts_with(&ours);
            agreement.note(equal, || format!("{ours:?}, gdb: {theirs:?}"));
        }
        agreement.check(&format!("names of {name}"), 30, 0.9);
    }
}

#[test]
fn lookups_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Locator>();
    shared::<Image>();
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

#[test]
fn lambdas_have_different_names() {
    let directory = directory("lambdas");
    let path = compile(&directory, "lambdas", "g++ -g -O1", "lambdas.cpp");
    let image = Image::open(&path).expect("an image");
    let locator = Locator::new(&image);
    let lambdas = image.symbols().functions();
    let lambdas = lambdas.filter(|symbol| symbol.name.contains("ENKUlvE"));
    let mut names: Vec<String> = lambdas
        .map(|symbol| {
            let location = locator.locate(symbol.svma + 4);
            let line = location.lines.last().expect("a line");
            let name = location.function.expect("a function").name;
            assert_eq!(line.function.as_deref(), Some(&*name));
            name
        })
        .collect();
    names.sort();
    let of = |outer: &str, number: u32| format!("{outer}()::{{lambda()#{number}}}::operator()");
    let expected = [
        of("first", 1),
        of("first", 2),
        of("second", 1),
        of("second", 2),
    ];
    assert_eq!(names, expected);
}
