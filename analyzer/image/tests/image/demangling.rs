//! Compares demangled names with c++filt, which prints the same as gdb with `--no-verbose`.

use std::collections::BTreeSet;

use unspool_image::{Image, demangle, function_name};

use crate::tools::{Agreement, compile, directory, pipe};

fn names(path: &str) -> BTreeSet<String> {
    let image = Image::open(path.as_ref()).expect("an image");
    image
        .symbols()
        .iter()
        .map(|symbol| symbol.name.to_owned())
        .filter(|name| !name.ends_with("@plt"))
        .collect()
}

fn compare(what: &str, names: &BTreeSet<String>, least: f64) {
    let input: String = names.iter().map(|name| format!("{name}\n")).collect();
    let out = pipe("c++filt --no-verbose", &input);
    let mut agreement = Agreement::default();
    for (name, theirs) in names.iter().zip(out.lines()) {
        if name == theirs {
            continue;
        }
        let ours = demangle(name);
        agreement.note(ours == theirs, || {
            format!("{name}:\n    {ours}\n    {theirs}")
        });
        let short = function_name(name);
        assert!(
            short.len() <= ours.len() && !short.is_empty(),
            "{name}: {short}"
        );
    }
    agreement.check(what, 100, least);
}

#[test]
fn cpp_names_agree_with_cxxfilt() {
    compare(
        "c++filt, libstdc++",
        &names("/usr/lib/x86_64-linux-gnu/libstdc++.so.6"),
        1.0,
    );
    let directory = directory("demangling");
    let program = compile(&directory, "cpp", "g++ -O0 -pthread", "shapes.cpp");
    compare(
        "c++filt, a program",
        &names(&program.to_string_lossy()),
        1.0,
    );
}

#[test]
fn rust_names_agree_with_cxxfilt() {
    let directory = directory("demangling-rust");
    for (name, flags) in [("legacy", ""), ("v0", "-C symbol-mangling-version=v0")] {
        let program = compile(&directory, name, &format!("rustc {flags}"), "shapes.rs");
        let names = names(&program.to_string_lossy());
        let rust = names
            .into_iter()
            .filter(|name| name.starts_with("_ZN") || name.starts_with("_R"));
        compare(&format!("c++filt, Rust {name}"), &rust.collect(), 0.95);
    }
}
