//! Compares the exception index with call frame information at call sites, where both are valid.

use std::process::Command;

use unspool_image::Image;
use unspool_unwind::{Cfa, CompileOptions, Source, Table};

use crate::tools::{Scratch, armhf_sysroot, need, output};

/// Addresses inside the call instructions that objdump prints for `file`.
fn call_sites(file: &std::path::Path) -> Vec<u64> {
    let text = output(
        Command::new("arm-linux-gnueabihf-objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(file),
    );
    let call = |line: &str| {
        let (address, rest) = line.split_once(':')?;
        let mnemonic = rest.split_whitespace().next()?;
        // ble and blt are branches. All other mnemonics with this prefix are calls, including
        // conditional ones.
        let is_call = mnemonic.starts_with("bl")
            && !matches!(
                mnemonic.trim_end_matches(".n"),
                "ble" | "blt" | "blt.w" | "ble.w" | "bls" | "bls.w"
            );
        let svma = u64::from_str_radix(address.trim(), 16).ok()?;
        // An address inside the instruction, whether it has two or four bytes.
        is_call.then_some(svma + 1)
    };
    text.lines().filter_map(call).collect()
}

#[test]
fn equals_call_frame_information_at_call_sites() {
    need(&["arm-linux-gnueabihf-objdump", "eu-unstrip"]);
    let root = armhf_sysroot();
    let directory = root.join("lib/arm-linux-gnueabihf");
    let dir = Scratch::new("exidx");
    let (mut equal, mut different, mut otherwise) = (0, Vec::new(), 0);
    for name in ["libc.so.6", "libm.so.6", "ld-linux-armhf.so.3"] {
        let path = directory.join(name);
        let image = Image::open(&path).expect("library");
        let id = image.build_id().expect("build-id").to_string();
        let debug = root.join(format!(
            "usr/lib/debug/.build-id/{}/{}.debug",
            &id[..2],
            &id[2..]
        ));
        // The file with symbols, so that objdump can tell A32 from T32.
        let whole = dir.path().join(name);
        output(
            Command::new("eu-unstrip")
                .arg("-o")
                .arg(&whole)
                .arg(&path)
                .arg(&debug),
        );
        let with_debug = image
            .clone()
            .with_debug_file(Image::open(&debug).expect("debug file"));
        let truth = Table::compile(&with_debug, &CompileOptions::default());
        let mut options = CompileOptions::default();
        options.cfi = false;
        // The merged table knows where an entry belongs to a neighbour.
        let table = Table::compile(&with_debug, &options);
        for svma in call_sites(&whole) {
            let Some(found) = table.lookup(svma).filter(|row| row.source == Source::Exidx) else {
                continue;
            };
            let Some(stated) = truth.lookup_from(Source::Cfi, svma) else {
                continue;
            };
            match (found.rule.cfa, stated.rule.cfa) {
                (Cfa::Register { register: a, .. }, Cfa::Register { register: b, .. })
                    if a == b =>
                {
                    if (found.rule.cfa, found.rule.ra) == (stated.rule.cfa, stated.rule.ra) {
                        equal += 1;
                    } else {
                        different.push(format!("{name} {svma:#x}: {found:?} {stated:?}"));
                    }
                }
                // The CFA uses another register: both may be right.
                _ => otherwise += 1,
            }
        }
    }
    let all = equal + different.len();
    let percent = 100.0 * equal as f64 / all as f64;
    println!(
        "{equal} of {all} call sites equal ({percent:.2} %), {otherwise} stated by another register"
    );
    for line in different.iter().take(8) {
        println!("  {line}");
    }
    assert!(all > 500, "{all}");
    assert!(
        percent >= 99.9,
        "{percent} {:#?}",
        &different[..different.len().min(8)]
    );
}
