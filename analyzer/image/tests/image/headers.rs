//! Compares headers, segments, notes and dynamic values with readelf.

use unspool_image::{Arch, Image, ImageKind};

use crate::tools::{debian_binaries, directory, hex, run};

#[test]
fn segments_agree_with_readelf() {
    for path in debian_binaries() {
        let image = Image::open(&path).expect("an image");
        let text = run(&format!("readelf -lW {}", path.display()));
        let loads: Vec<[u64; 4]> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("LOAD "))
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                [words[1], words[0], words[3], words[4]].map(hex)
            })
            .collect();
        let ours: Vec<[u64; 4]> = image
            .segments()
            .iter()
            .map(|s| [s.svma, s.file_offset, s.file_size, s.mem_size])
            .collect();
        assert!(!ours.is_empty());
        assert_eq!(ours, loads, "{}", path.display());
        assert_eq!(image.notes(), Vec::<String>::new());
        let interpreter = text.lines().find_map(|line| {
            line.trim()
                .strip_prefix("[Requesting program interpreter: ")?
                .strip_suffix(']')
        });
        assert_eq!(image.interpreter(), interpreter);
        let first = image.segments()[0];
        assert_eq!(image.bytes_at(first.svma, 4), Some(&b"\x7fELF"[..]));
        assert_eq!(image.bytes_at(first.svma.wrapping_sub(1), 4), None);
        assert!(
            image
                .text_ranges()
                .iter()
                .any(|range| range.contains(&(image.entry() & !1)))
                || image.entry() == 0
        );
    }
}

#[test]
fn notes_and_dynamic_values_agree_with_readelf() {
    for path in debian_binaries() {
        let image = Image::open(&path).expect("an image");
        let notes = run(&format!("readelf -n {}", path.display()));
        let id = notes
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "));
        assert_eq!(image.build_id().map(|id| id.to_string()).as_deref(), id);

        let text = run(&format!("readelf -dW {}", path.display()));
        let named = |tag: &str| -> Vec<String> {
            text.lines()
                .filter(|line| line.contains(tag))
                .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()))
                .collect()
        };
        assert_eq!(image.needed(), named("(NEEDED)"));
        assert_eq!(image.dynamic().soname.as_ref(), named("(SONAME)").first());
        let debug = text.contains("(DEBUG)");
        assert_eq!(image.dynamic().debug_value_svma.is_some(), debug);
        if let Some(svma) = image.dynamic().debug_value_svma {
            let tag = svma - image.arch().address_size() as u64;
            assert_eq!(image.bytes_at(tag, 4), Some(&[21, 0, 0, 0][..]), "DT_DEBUG");
        }
    }
}

#[test]
fn sections_agree_with_readelf_and_survive_without_section_headers() {
    for path in debian_binaries() {
        let mut bytes = std::fs::read(&path).expect("the file");
        let image = Image::parse("whole", bytes.clone()).expect("an image");
        let text = run(&format!("readelf -SW {}", path.display()));
        for line in text
            .lines()
            .filter_map(|line| line.trim().strip_prefix('['))
        {
            let words: Vec<&str> = line
                .split_once(']')
                .expect("a number")
                .1
                .split_whitespace()
                .collect();
            if words.len() < 5
                || ["NULL", "NOBITS", "Type"].contains(&words[1])
                || !words[0].starts_with('.')
            {
                continue;
            }
            let section = image.section(words[0]).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                (section.svma, section.data.len() as u64),
                (hex(words[2]), hex(words[4])),
                "{line}"
            );
        }
        // e_shoff, e_shnum, e_shstrndx.
        let is_64 = image.arch() != Arch::Arm;
        let (offset, width, count) = if is_64 {
            (0x28, 8, 0x3c)
        } else {
            (0x20, 4, 0x30)
        };
        bytes[offset..offset + width].fill(0);
        bytes[count..count + 4].fill(0);
        let bare = Image::parse("bare", bytes).expect("an image without section headers");
        assert_eq!(bare.build_id(), image.build_id());
        assert_eq!(bare.needed(), image.needed());
        for name in [".eh_frame_hdr", ".ARM.exidx", ".dynamic", ".interp"] {
            let [with, without] = [&image, &bare].map(|image| {
                image
                    .section(name)
                    .map(|section| (section.svma, section.data.into_owned()))
            });
            assert_eq!(with, without, "{name} of {}", path.display());
        }
        if let Some(with) = image.section(".eh_frame")
            && image.section(".eh_frame_hdr").is_some()
        {
            let without = bare.section(".eh_frame").expect(".eh_frame by its header");
            assert_eq!(with.svma, without.svma);
            assert!(without.data.starts_with(&with.data));
        }
        let functions = |image: &Image| {
            image
                .symbols()
                .functions()
                .filter(|symbol| !symbol.name.ends_with("@plt"))
                .map(|symbol| (symbol.svma, symbol.name.to_owned()))
                .collect::<Vec<_>>()
        };
        let (with, without) = (functions(&image), functions(&bare));
        println!(
            "{}: {} of {} functions without section headers",
            path.display(),
            without.len(),
            with.len()
        );
        assert!(without.len() * 10 >= with.len() * 9 || !image.symbols().named("main").is_empty());
    }
}

#[test]
fn kinds_of_executables() {
    let directory = directory("kinds");
    for (flags, kind, pie, interpreter) in [
        ("-static -no-pie", ImageKind::Executable, false, false),
        ("-static-pie", ImageKind::Dynamic, true, false),
        ("-no-pie", ImageKind::Executable, false, true),
        ("-pie", ImageKind::Dynamic, true, true),
        ("-shared -fPIC", ImageKind::Dynamic, false, false),
    ] {
        let program = crate::tools::compile(&directory, "kind", &format!("gcc {flags}"), "plain.c");
        let image = Image::open(&program).expect("an image");
        assert_eq!(image.kind(), kind, "{flags}");
        assert_eq!(image.is_pie(), pie, "{flags}");
        assert_eq!(image.interpreter().is_some(), interpreter, "{flags}");
        assert_eq!(
            image.dynamic_svma().is_some(),
            flags != "-static -no-pie",
            "{flags}"
        );
    }
}
