//! Compares symbols with readelf, nm and gdb.

use std::collections::HashSet;
use std::path::Path;

use unspool_image::{Arch, CodeKind, Image, SymbolKind};

use crate::tools::{Agreement, compile, debian_binaries, directory, hex, run};

#[test]
fn every_function_and_object_that_readelf_lists_is_there() {
    let directory = directory("readelf");
    let mut files = debian_binaries();
    files.push(compile(&directory, "c", "gcc -g -O1", "plain.c"));
    files.push(compile(
        &directory,
        "arm",
        "arm-linux-gnueabihf-gcc -g -O1 -mthumb",
        "plain.c",
    ));
    files.push(compile(&directory, "cpp", "g++ -g -O2", "shapes.cpp"));
    for path in files {
        let image = Image::open(&path).expect("an image");
        let ours: HashSet<(u64, u64, bool, &str)> = image
            .symbols()
            .iter()
            .map(|s| {
                (
                    s.svma + u64::from(s.thumb),
                    s.size,
                    s.kind == SymbolKind::Function,
                    s.name,
                )
            })
            .collect();
        let places: HashSet<(u64, &str)> = ours.iter().map(|s| (s.0, s.3)).collect();
        let mut agreement = Agreement::default();
        for line in run(&format!("readelf -sW {}", path.display())).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, value, size, kind, _, _, section, name, ..] = words[..] else {
                continue;
            };
            if !["FUNC", "IFUNC", "OBJECT"].contains(&kind) || ["UND", "ABS"].contains(&section) {
                continue;
            }
            let size = size
                .strip_prefix("0x")
                .map_or_else(|| size.parse().expect("a size"), hex);
            let name = name.split('@').next().expect("a name");
            let value = hex(value);
            let found = if size == 0 {
                places.contains(&(value, name))
            } else {
                ours.contains(&(value, size, kind != "OBJECT", name))
            };
            agreement.note(found, || line.to_owned());
            assert!(
                image
                    .symbols()
                    .named(name)
                    .iter()
                    .any(|s| s.svma == value & !u64::from(s.thumb))
            );
        }
        agreement.check(&format!("symbols of {}", path.display()), 2, 0.996);
    }
}

/// Addresses spread over the text.
pub(crate) fn sample(image: &Image, count: u64) -> Vec<u64> {
    let ranges = image.text_ranges();
    // Damaged images may state any sizes.
    let total = ranges.iter().fold(0u64, |sum, range| {
        sum.saturating_add(range.end - range.start)
    });
    let step = usize::try_from((total / count) | 1).expect("64-bit host");
    let limit = usize::try_from(count * 2).expect("64-bit host");
    ranges
        .into_iter()
        .flat_map(|range| range.step_by(step))
        .take(limit)
        .collect()
}

/// gdb's `info symbol`: `name + offset in section .text`, or `No symbol matches`.
fn gdb_symbols(
    directory: &Path,
    path: &Path,
    addresses: &[u64],
    setup: &str,
) -> Vec<Option<(String, u64)>> {
    let script = directory.join("symbols.gdb");
    let mut text = format!(
        "set debuginfod enabled off\nset print demangle off\n{setup}\nfile {}\n",
        path.display()
    );
    for address in addresses {
        text += &format!("info symbol {address:#x}\n");
    }
    std::fs::write(&script, text).expect("the script");
    let out = run(&format!(
        "gdb-multiarch -q -nx -batch -x {}",
        script.display()
    ));
    let answers: Vec<_> = out
        .lines()
        .filter(|line| line.contains(" in section ") || line.starts_with("No symbol matches"))
        .map(|line| {
            let (place, _) = line.split_once(" in section ")?;
            match place.split_once(" + ") {
                Some((name, offset)) => Some((name.to_owned(), offset.parse().expect("an offset"))),
                None => Some((place.to_owned(), 0)),
            }
        })
        .collect();
    assert_eq!(answers.len(), addresses.len(), "gdb answered all");
    answers
}

fn compare_with_gdb(name: &str, path: &Path, debug: bool, least: f64) {
    let directory = directory(name);
    let mut image = Image::open(path).expect("an image");
    let setup = if debug {
        let finder = unspool_image::Finder::default();
        image =
            finder.attach_debug_file(image, Some(path), &path.to_string_lossy(), &mut Vec::new());
        assert!(
            image.debug_image().is_some(),
            "{} has a debug file",
            path.display()
        );
        "set debug-file-directory /usr/lib/debug"
    } else {
        "set debug-file-directory /nonexistent"
    };
    let addresses = sample(&image, 3000);
    let mut agreement = Agreement::default();
    for (&address, theirs) in addresses
        .iter()
        .zip(gdb_symbols(&directory, path, &addresses, setup))
    {
        let ours = image.symbols().containing(address);
        let theirs = theirs.map(|(name, offset)| {
            (
                name.split_once("@")
                    .filter(|(_, v)| *v != "plt")
                    .map_or(name.clone(), |(n, _)| n.to_owned()),
                offset,
            )
        });
        // `info symbol` shows a demangled name if the objfile's language is C++.
        let equal = match (&ours, &theirs) {
            (None, None) => true,
            (Some(symbol), Some((name, offset))) => {
                (symbol.name == name || unspool_image::demangle(symbol.name) == *name)
                    && address - symbol.svma == *offset
            }
            _ => false,
        };
        agreement.note(equal, || format!("{address:#x}: {ours:?}, gdb: {theirs:?}"));
    }
    agreement.check(&format!("info symbol, {}", path.display()), 1500, least);
}

#[test]
fn libc_agrees_with_gdb() {
    compare_with_gdb(
        "gdb-libc",
        "/usr/lib/x86_64-linux-gnu/libc.so.6".as_ref(),
        false,
        0.99,
    );
}

#[test]
fn libc_with_its_debug_file_agrees_with_gdb() {
    compare_with_gdb(
        "gdb-libc-debug",
        "/usr/lib/x86_64-linux-gnu/libc.so.6".as_ref(),
        true,
        0.99,
    );
}

#[test]
fn libstdcxx_agrees_with_gdb() {
    compare_with_gdb(
        "gdb-libstdcxx",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6".as_ref(),
        false,
        0.98,
    );
}

#[test]
fn python_agrees_with_gdb() {
    compare_with_gdb("gdb-python", "/usr/bin/python3".as_ref(), false, 0.99);
}

#[test]
fn bash_agrees_with_gdb() {
    compare_with_gdb("gdb-bash", "/bin/bash".as_ref(), false, 0.99);
}

#[test]
fn armhf_libc_agrees_with_gdb() {
    compare_with_gdb(
        "gdb-armhf",
        "/usr/arm-linux-gnueabihf/lib/libc.so.6".as_ref(),
        false,
        0.99,
    );
}

#[test]
fn plt_stubs_have_the_names_that_objdump_gives() {
    let directory = directory("plt");
    let mut files = vec![];
    for (name, compiler, objdump) in [
        ("x86", "gcc", "objdump"),
        (
            "x86-ibt",
            "gcc -fcf-protection=full -Wl,-z,ibtplt",
            "objdump",
        ),
        ("x86-now", "gcc -Wl,-z,now -fno-plt", "objdump"),
        ("clang", "clang -fuse-ld=bfd", "objdump"),
        (
            "arm",
            "arm-linux-gnueabihf-gcc -marm",
            "arm-linux-gnueabihf-objdump",
        ),
        (
            "thumb",
            "arm-linux-gnueabihf-gcc -mthumb",
            "arm-linux-gnueabihf-objdump",
        ),
    ] {
        files.push((compile(&directory, name, compiler, "plain.c"), objdump));
    }
    files.push(("/usr/bin/python3".into(), "objdump"));
    files.push(("/bin/bash".into(), "objdump"));
    files.push((
        "/usr/aarch64-linux-gnu/lib/libm.so.6".into(),
        "aarch64-linux-gnu-objdump",
    ));
    files.push((
        "/usr/aarch64-linux-gnu/lib/libc.so.6".into(),
        "aarch64-linux-gnu-objdump",
    ));
    let mut agreement = Agreement::default();
    for (path, objdump) in files {
        let image = Image::open(&path).expect("an image");
        for line in run(&format!(
            "{objdump} -d -j .plt -j .plt.sec -j .plt.got {}",
            path.display()
        ))
        .lines()
        {
            let Some((address, name)) = line
                .strip_suffix("@plt>:")
                .and_then(|line| line.split_once(" <"))
            else {
                continue;
            };
            let ours = image.symbols().containing(hex(address));
            // PLT0 has no name; objdump invents one.
            let equal = ours.is_some_and(|symbol| symbol.name.strip_suffix("@plt") == Some(name));
            agreement.note(equal, || format!("{}: {line}: {ours:?}", path.display()));
        }
    }
    agreement.check("PLT stubs", 100, 0.99);
}

#[test]
fn thumb_and_mapping_symbols() {
    let directory = directory("mapping");
    for (name, flags, thumb) in [("arm", "-marm", false), ("thumb", "-mthumb", true)] {
        let program = compile(
            &directory,
            name,
            &format!("arm-linux-gnueabihf-gcc {flags} -O2"),
            "plain.c",
        );
        let image = Image::open(&program).expect("an image");
        let symbol = image.symbols().named("visible")[0];
        assert_eq!(symbol.thumb, thumb);
        assert_eq!(symbol.svma & 1, 0);
        assert_eq!(image.thumb_at(symbol.svma + 2), Some(thumb));
        assert_eq!(
            image.symbols().containing(symbol.svma + 2).map(|s| s.svma),
            Some(symbol.svma)
        );
        let mut agreement = Agreement::default();
        for line in run(&format!("readelf -sW {}", program.display())).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.len() != 8 || words[6] == "UND" {
                continue;
            }
            let kind = match words[7] {
                "$a" => CodeKind::Arm,
                "$t" => CodeKind::Thumb,
                "$d" => CodeKind::Data,
                _ => continue,
            };
            let ours = image.symbols().code_kind(hex(words[1]));
            agreement.note(ours == Some(kind), || format!("{line}: {ours:?}"));
        }
        agreement.check("mapping symbols", 10, 0.85);
        run(&format!("arm-linux-gnueabihf-strip {}", program.display()));
        let stripped = Image::open(&program).expect("an image");
        assert_eq!(stripped.thumb_at(symbol.svma), None);
    }
    let libc = Image::open("/usr/arm-linux-gnueabihf/lib/libc.so.6".as_ref()).expect("an image");
    let create = libc.symbols().named("pthread_create")[0];
    assert!(create.thumb);
    assert_eq!(libc.thumb_at(create.svma), Some(true));
}

#[test]
fn ifunc_slots_agree_with_readelf() {
    let directory = directory("ifuncs");
    let mut files = debian_binaries();
    for (name, compiler) in [
        ("dynamic", "gcc -O1"),
        ("static", "gcc -O1 -static"),
        ("arm", "arm-linux-gnueabihf-gcc -O1 -mthumb"),
        ("aarch64", "aarch64-linux-gnu-gcc -O1"),
    ] {
        files.push(compile(&directory, name, compiler, "chosen.c"));
    }
    let mut all = 0;
    for path in files {
        let image = Image::open(&path).expect("an image");
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for line in run(&format!("readelf -rW {}", path.display())).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [slot, _, kind, ref resolver @ ..] = words[..]
                && kind.contains("IRELATIV")
            {
                let slot = hex(slot);
                // ARM's relocations have no addends; they are in the slot.
                let in_slot = || {
                    let bytes = image.bytes_at(slot, 4).expect("a slot");
                    u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes"))) & !1
                };
                expected.push((resolver.first().map_or_else(in_slot, |r| hex(r)), slot));
            }
        }
        expected.sort_unstable();
        expected.dedup_by_key(|(resolver, _)| *resolver);
        let ours: Vec<(u64, u64)> = image
            .ifuncs()
            .iter()
            .map(|choice| (choice.resolver_svma, choice.slot_svma))
            .collect();
        assert_eq!(ours, expected, "{}", path.display());
        if path.starts_with(&directory) {
            let named = image.symbols().named("more")[0];
            let known = |(resolver, _): &(u64, u64)| *resolver == named.svma;
            assert!(ours.iter().any(known), "{}", path.display());
            assert!(named.is_ifunc, "{}", path.display());
        }
        let mut choosing: Vec<(u64, String)> = Vec::new();
        for line in run(&format!("readelf -sW --dyn-syms {}", path.display())).lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [_, value, _, "IFUNC", _, _, index, name, ..] = words[..]
                && index != "UND"
            {
                let name = name.split('@').next().unwrap_or_default();
                let bits = u64::from(image.arch() == Arch::Arm);
                choosing.push((hex(value) & !bits, name.to_owned()));
            }
        }
        choosing.sort_unstable();
        choosing.dedup();
        let symbols = image.symbols().iter().filter(|symbol| symbol.is_ifunc);
        let mut ours: Vec<(u64, String)> = symbols
            .map(|symbol| (symbol.svma, symbol.name.to_owned()))
            .collect();
        ours.sort_unstable();
        // A debug file may contain more names than the file itself.
        let missing: Vec<_> = choosing.iter().filter(|one| !ours.contains(one)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", path.display());
        all += ours.len();
    }
    assert!(all > 50, "{all}");
}
