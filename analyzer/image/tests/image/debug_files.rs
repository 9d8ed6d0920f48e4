//! Tests separate, compressed and minimal debug information.

use std::fs;
use std::path::{Path, PathBuf};

use unspool_image::{Finder, Image, Locator, Wanted};

use crate::lines::compare_lines;
use crate::symbols::sample;
use crate::tools::{compile, directory, run};

fn finder(debug_directories: &[&Path]) -> Finder {
    Finder {
        debug_directories: debug_directories
            .iter()
            .map(|path| path.to_path_buf())
            .collect(),
        ..Finder::default()
    }
}

fn find(finder: &Finder, path: &Path) -> (Image, Vec<String>) {
    let wanted = Wanted {
        path: &path.to_string_lossy(),
        build_id: None,
        local: true,
    };
    let found = finder.find(&wanted, None).expect("the program");
    (found.image, found.notes)
}

/// An image with a debug file gives the same lines and names as the unstripped program.
fn same_as_whole(whole: &Path, image: &Image) {
    let whole = Image::open(whole).expect("the whole program");
    let (theirs, ours) = (Locator::new(&whole), Locator::new(image));
    let addresses = sample(&whole, 300);
    assert!(
        addresses
            .iter()
            .any(|&address| !theirs.locate(address).lines.is_empty())
    );
    for address in addresses {
        assert_eq!(ours.locate(address), theirs.locate(address), "{address:#x}");
    }
    assert!(!image.symbols().named("hidden").is_empty(), "local symbols");
}

/// Makes `program`, `program.stripped` without debug information, and `program.debug` with nothing
/// else.
fn split(directory: &Path, compiler: &str, tools: &str) -> (PathBuf, PathBuf, PathBuf) {
    let whole = compile(directory, "whole", compiler, "plain.c");
    let debug = directory.join("program.debug");
    let stripped = directory.join("program");
    run(&format!(
        "{tools}objcopy --only-keep-debug {} {}",
        whole.display(),
        debug.display()
    ));
    run(&format!(
        "{tools}objcopy --strip-all {} {}",
        whole.display(),
        stripped.display()
    ));
    (whole, stripped, debug)
}

#[test]
fn build_id_directory() {
    for (name, compiler, tools) in [
        ("bid", "gcc -g -O2", ""),
        (
            "bid-arm",
            "arm-linux-gnueabihf-gcc -g -O2 -mthumb",
            "arm-linux-gnueabihf-",
        ),
    ] {
        let directory = directory(name);
        let (whole, stripped, debug) = split(&directory, compiler, tools);
        let id = Image::open(&stripped)
            .expect("an image")
            .build_id()
            .expect("an id")
            .clone();
        let place = directory.join("dbg").join(id.debug_path());
        fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
        fs::rename(&debug, &place).expect("moved");
        let (image, notes) = find(&finder(&[&directory.join("dbg")]), &stripped);
        assert_eq!(notes, Vec::<String>::new());
        assert!(image.debug_image().is_some());
        same_as_whole(&whole, &image);
        if name == "bid-arm" {
            let function = image.symbols().named("hidden")[0];
            assert_eq!(image.thumb_at(function.svma), Some(true));
            assert!(image.section(".debug_frame").is_some());
        }
        // The same through a sysroot with its own debug directory.
        let root = directory.join("root");
        fs::create_dir_all(root.join("usr/lib/debug")).expect("a directory");
        fs::create_dir_all(root.join("bin")).expect("a directory");
        fs::copy(&stripped, root.join("bin/program")).expect("copied");
        run(&format!(
            "cp -r {} {}",
            directory.join("dbg/.build-id").display(),
            root.join("usr/lib/debug").display()
        ));
        let mut finder = Finder::new(Some(root));
        finder.arch = Some(image.arch());
        let found = finder
            .find(
                &Wanted {
                    path: "/bin/program",
                    build_id: Some(&id),
                    local: false,
                },
                None,
            )
            .expect("in the sysroot");
        assert!(found.image.debug_image().is_some());
        same_as_whole(&whole, &found.image);
    }
}

#[test]
fn debug_link_in_the_usual_places() {
    let directory = directory("link");
    let (whole, stripped, debug) = split(&directory, "gcc -g -O1 -Wl,--build-id=none", "");
    run(&format!(
        "objcopy --add-gnu-debuglink={} {}",
        debug.display(),
        stripped.display()
    ));
    let global = directory.join("global");
    let beside = directory.join("program.debug");
    let hidden = directory.join(".debug/program.debug");
    let absolute = directory.canonicalize().expect("a path");
    let below = global
        .join(absolute.strip_prefix("/").expect("absolute"))
        .join("program.debug");
    let mut from = beside.clone();
    for place in [beside, hidden, below] {
        fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
        if from != place {
            fs::rename(&from, &place).expect("moved");
        }
        let (image, notes) = find(&finder(&[&global]), &stripped);
        assert_eq!(notes, Vec::<String>::new());
        assert_eq!(
            image.debug_image().map(Image::name),
            Some(&*place.to_string_lossy())
        );
        same_as_whole(&whole, &image);
        from = place;
    }
    // One more byte, so that the checksum differs.
    let mut bytes = fs::read(&from).expect("the debug file");
    bytes.push(0);
    fs::write(&from, bytes).expect("written");
    let (image, notes) = find(&finder(&[&global]), &stripped);
    assert!(image.debug_image().is_none());
    assert!(
        notes.iter().any(|note| note.contains("expected checksum")),
        "{notes:?}"
    );
}

/// Mini debug info as Fedora makes it: the local functions that .dynsym lacks, in an xz-compressed
/// ELF file.
pub(crate) fn with_mini_debug_info(directory: &Path) -> PathBuf {
    let whole = compile(directory, "mini-whole", "gcc -g -O2", "plain.c");
    let [debug, mini, stripped, keep] =
        ["mini.debug", "mini.elf", "mini", "mini.keep"].map(|name| directory.join(name));
    let names = |line: String| -> Vec<String> {
        run(&line)
            .lines()
            .filter(|line| line.contains(" FUNC ") || line.contains(" T ") || line.contains(" t "))
            .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
            .collect()
    };
    let dynamic = names(format!("nm -D --defined-only {}", whole.display()));
    let wanted: Vec<String> = names(format!("nm --defined-only {}", whole.display()))
        .into_iter()
        .filter(|name| !dynamic.contains(name))
        .collect();
    fs::write(&keep, wanted.join("\n") + "\n").expect("names");
    run(&format!(
        "objcopy --only-keep-debug {} {}",
        whole.display(),
        debug.display()
    ));
    run(&format!(
        "objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols={} {} {}",
        keep.display(),
        debug.display(),
        mini.display()
    ));
    run(&format!(
        "strip --strip-all -R .comment {} -o {}",
        whole.display(),
        stripped.display()
    ));
    let _ = fs::remove_file(directory.join("mini.elf.xz"));
    run(&format!("xz -k {}", mini.display()));
    run(&format!(
        "objcopy --add-section .gnu_debugdata={}.xz {}",
        mini.display(),
        stripped.display()
    ));
    stripped
}

#[test]
fn mini_debug_info() {
    let directory = directory("mini");
    let stripped = with_mini_debug_info(&directory);
    let image = Image::open(&stripped).expect("an image");
    let whole = Image::open(&directory.join("mini-whole")).expect("an image");
    for name in ["hidden", "visible", "main"] {
        let [ours, theirs] = [&image, &whole].map(|image| {
            image
                .symbols()
                .named(name)
                .first()
                .map(|s| (s.svma, s.size))
        });
        assert!(ours.is_some());
        assert_eq!(ours, theirs, "{name}");
    }
    assert_eq!(image.notes(), Vec::<String>::new());
}

#[test]
fn compressed_sections_give_the_same_lines() {
    let directory = directory("compressed");
    let whole = compile(&directory, "whole", "gcc -g -O2", "plain.c");
    for kind in ["zlib", "zlib-gnu", "zlib-gabi", "zstd"] {
        let packed = directory.join(kind);
        run(&format!(
            "objcopy --compress-debug-sections={kind} {} {}",
            whole.display(),
            packed.display()
        ));
        let image = Image::open(&packed).expect("an image");
        let plain = Image::open(&whole).expect("an image");
        for name in [".debug_info", ".debug_line", ".debug_str"] {
            assert_eq!(
                image.section(name).expect(name).data,
                plain.section(name).expect(name).data,
                "{kind} {name}"
            );
        }
        same_as_whole(&whole, &image);
    }
}

#[test]
fn debian_debug_files_of_libc_agree_with_addr2line() {
    for path in [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/libm.so.6",
    ] {
        let (image, notes) = find(&Finder::default(), Path::new(path));
        assert_eq!(notes, Vec::<String>::new());
        let debug = image
            .debug_image()
            .expect("libc6-dbg is installed")
            .name()
            .to_owned();
        compare_lines(path, "addr2line", &image, Path::new(&debug), 0.97);
    }
}

/// dwz moves the common parts of two programs to a supplementary file.
#[test]
fn supplementary_files_of_dwz() {
    let directory = directory("dwz");
    let names = ["one", "two", "plain"];
    let [one, two, plain] = names.map(|name| {
        compile(
            &directory,
            name,
            "g++ -g -O2 -gdwarf-4 -pthread",
            "shapes.cpp",
        )
    });
    let sup = directory.join("sup.debug");
    run(&format!(
        "dwz -m {} -M sup.debug {} {}",
        sup.display(),
        one.display(),
        two.display()
    ));
    let whole = Image::open(&plain).expect("an image");
    let (image, notes) = find(&Finder::default(), &one);
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(
        image.supplementary_image().map(Image::name),
        Some(&*sup.to_string_lossy())
    );
    let (ours, theirs) = (Locator::new(&image), Locator::new(&whole));
    let mut named = 0;
    for address in sample(&whole, 500) {
        let [ours, theirs] = [ours.locate(address), theirs.locate(address)];
        named += usize::from(ours.lines.iter().any(|frame| frame.function.is_some()));
        assert_eq!(ours, theirs, "{address:#x}");
    }
    assert!(named > 100, "{named} named");
    fs::remove_file(&sup).expect("removed");
    let (image, notes) = find(&Finder::default(), &one);
    assert!(notes[0].contains("sup.debug"), "{notes:?}");
    assert!(!Locator::new(&image).notes().is_empty());
    // Stripped files keep the reference but do not need it.
    run(&format!("strip {}", one.display()));
    let (image, notes) = find(&Finder::default(), &one);
    assert!(image.section(".gnu_debugaltlink").is_some());
    assert_eq!(notes, Vec::<String>::new());
}
