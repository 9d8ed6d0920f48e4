//! Tests damaged ELF files: no panic, no endless loop, no memory by an unchecked length.

use std::time::{Duration, Instant};

use unspool_image::{Error, Image, Locator};

use crate::tools::{compile, directory, run};

/// Uses everything that an image offers.
fn exercise(bytes: &[u8]) -> bool {
    let image = match Image::parse("damaged", bytes) {
        Ok(image) => image,
        Err(error) => {
            assert!(error.to_string().contains("damaged"), "{error}");
            return false;
        }
    };
    for name in [
        ".text",
        ".eh_frame",
        ".eh_frame_hdr",
        ".debug_info",
        ".debug_frame",
        ".ARM.exidx",
    ] {
        let _ = image.section(name);
    }
    let symbols = image.symbols();
    for address in [0, image.entry(), u64::MAX] {
        let _ = (
            symbols.containing(address),
            image.thumb_at(address),
            image.bytes_at(address, 16),
        );
    }
    assert!(symbols.functions().count() <= symbols.len());
    let _ = symbols.named("main");
    let locator = Locator::new(&image);
    for address in crate::symbols::sample(&image, 40).into_iter().take(64) {
        let _ = locator.locate(address);
    }
    let _ = image.notes();
    true
}

/// Small programs with DWARF, compressed DWARF, mini debug info, and ARM code.
fn files(test: &str) -> Vec<(String, Vec<u8>)> {
    let directory = directory(test);
    let mut files = Vec::new();
    for (name, compiler, file) in [
        ("c", "gcc -g -O2", "plain.c"),
        ("gz", "gcc -g -gz -O2", "plain.c"),
        ("arm", "arm-linux-gnueabihf-gcc -g -O2", "plain.c"),
        ("cpp", "clang++ -g -O1 -pthread", "shapes.cpp"),
    ] {
        let path = compile(&directory, name, compiler, file);
        files.push((name.to_owned(), std::fs::read(path).expect("the program")));
    }
    let mini = crate::debug_files::with_mini_debug_info(&directory);
    files.push(("mini".to_owned(), std::fs::read(mini).expect("the program")));
    files
}

/// xorshift64: the same damage in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

#[test]
fn every_truncation_is_survived() {
    let (mut tried, mut opened) = (0, 0);
    for (name, bytes) in files("truncation") {
        let step = bytes.len() / 150 + 1;
        for end in (0..bytes.len()).step_by(step).chain(0..80) {
            let start = Instant::now();
            opened += usize::from(exercise(&bytes[..end]));
            tried += 1;
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{name} cut at {end:#x}"
            );
        }
    }
    println!("{tried} truncated files, {opened} of them of some use");
    assert!(tried > 1000 && opened > tried / 2);
}

#[test]
fn flipped_bytes_are_survived() {
    let mut random = Random(0x5eed_1e55);
    let (mut tried, mut slowest) = (0, Duration::ZERO);
    for (_, bytes) in files("flips") {
        for round in 0..400 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(24) {
                // The headers get as much damage as the rest, because each of their bytes matters
                // more.
                let at = match round % 3 {
                    0 => random.below(0x400),
                    1 => damaged.len() - 1 - random.below(0x800),
                    _ => random.below(damaged.len()),
                };
                damaged[at] = match random.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => damaged[at] ^ 1 << random.below(8),
                    _ => random.next() as u8,
                };
            }
            let start = Instant::now();
            exercise(&damaged);
            slowest = slowest.max(start.elapsed());
            tried += 1;
        }
    }
    println!("{tried} damaged files, the slowest took {slowest:?}");
    assert!(slowest < Duration::from_secs(5));
}

#[test]
fn damaged_debug_sections_are_survived() {
    let directory = directory("corrupt-dwarf");
    let path = compile(&directory, "c", "gcc -g -O2", "plain.c");
    let bytes = std::fs::read(&path).expect("the program");
    let sections = run(&format!("readelf -SW {}", path.display()));
    let mut random = Random(0xdeb0_6000);
    for line in sections.lines().filter(|line| line.contains(" .debug_")) {
        let words: Vec<&str> = line
            .split_once(']')
            .expect("a number")
            .1
            .split_whitespace()
            .collect();
        let (start, size) = (
            crate::tools::hex(words[3]) as usize,
            crate::tools::hex(words[4]) as usize,
        );
        for _ in 0..150 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(8) {
                damaged[start + random.below(size)] = random.next() as u8;
            }
            assert!(exercise(&damaged));
        }
    }
}

#[test]
fn endlessly_nested_debug_information_is_survived() {
    let directory = directory("nested");
    let path = compile(&directory, "nested", "gcc -nostdlib -static", "nested.s");
    let image = Image::open(&path).expect("an image");
    let location = Locator::new(&image).locate(image.entry() + 1);
    assert_eq!(location.function.expect("by its symbol").name, "_start");
    assert!(location.lines.is_empty());
}

#[test]
fn non_images_are_rejected() {
    let message = |bytes: &[u8]| Image::parse("x", bytes).expect_err("no image").to_string();
    assert!(message(b"").contains("an empty file"));
    assert!(message(b"#!/bin/sh\n").contains("found 23 21 2f 62"));
    assert!(message(b"\x7fELF\x02\x01").contains("cut off at 0x6"));
    assert!(message(b"\x7fELF\x07\x01").contains("class at offset 0x4 is 7"));
    assert!(message(b"\x7fELF\x02\x07").contains("byte order"));
    let mut elf = std::fs::read("/usr/bin/xz").expect("xz");
    elf[0x12] = 243;
    assert!(message(&elf).contains("machine 243"), "RISC-V");
    elf[0x12] = 40;
    assert!(matches!(
        Image::parse("x", elf),
        Err(Error::WrongClass { bits: 64, .. })
    ));
    let error = Image::open("/nonexistent/file".as_ref()).expect_err("no file");
    assert!(error.to_string().contains("/nonexistent/file"));
    assert!(Image::open("/usr".as_ref()).is_err());
}

#[test]
fn a_cut_file_says_what_is_missing() {
    let bytes = std::fs::read("/usr/bin/xz").expect("xz");
    let image = Image::parse("xz", &bytes[..bytes.len() / 2]).expect("headers are intact");
    let notes = image.notes().join("; ");
    assert!(
        notes.contains("section headers") && notes.contains("truncated"),
        "{notes}"
    );
    assert!(image.build_id().is_some());
}

#[test]
fn a_compression_bomb_is_refused() {
    let directory = directory("bomb");
    let path = compile(&directory, "gz", "gcc -g -gz=zlib -O2", "plain.c");
    let mut bytes = std::fs::read(&path).expect("the program");
    let sections = run(&format!("readelf -SW {}", path.display()));
    let line = sections
        .lines()
        .find(|line| line.contains(" .debug_info"))
        .expect("a section");
    let words: Vec<&str> = line
        .split_once(']')
        .expect("a number")
        .1
        .split_whitespace()
        .collect();
    // ch_size of Elf64_Chdr.
    let at = crate::tools::hex(words[3]) as usize + 8;
    let image = Image::parse("gz", bytes.clone()).expect("an image");
    assert!(image.section(".debug_info").is_some());
    for size in [u64::MAX, 3 << 30, 1] {
        bytes[at..at + 8].copy_from_slice(&size.to_le_bytes());
        let image = Image::parse("gz", bytes.clone()).expect("an image");
        assert!(image.section(".debug_info").is_none(), "{size:#x}");
        assert!(Locator::new(&image).locate(image.entry()).lines.is_empty());
    }
}
