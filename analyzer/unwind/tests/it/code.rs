//! Compares the code analysis with the CFI of the same compiler. The analysis does not see that
//! CFI.

use std::process::Command;

use unspool_image::{Arch, Image};
use unspool_unwind::code::instruction_len;
use unspool_unwind::verify::{Agreement, verify, verify_by_region};
use unspool_unwind::{CompileOptions, Table};

use crate::tools::{Scratch, armhf_sysroot, compile, need, output, stripped};

fn measure(name: &str, analysed: &Image, image: &Image, symbols: bool) -> Agreement {
    let truth = Table::compile(image, &CompileOptions::default());
    let agreement = verify(analysed, image, &truth, symbols);
    let (agree, unknown, wrong) = agreement.percent();
    println!(
        "{name}: {} instructions, agree {agree:.3} % unknown {unknown:.3} % wrong {wrong:.3} %",
        agreement.total()
    );
    agreement
}

#[test]
fn compiled_programs() {
    need(&["arm-linux-gnueabihf-gcc", "arm-linux-gnueabihf-strip"]);
    let dir = Scratch::new("code");
    let mut sums = [(0, 0, 0); 2];
    for mode in ["-marm", "-mthumb"] {
        for optimize in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
            let flags = ["-g", mode, optimize];
            let program = compile(dir.path(), "arm-linux-gnueabihf-gcc", "steps.c", &flags);
            let image = Image::open(&program).expect("image");
            let bare = stripped(&program, "arm-linux-gnueabihf-strip");
            let bare = Image::open(&bare).expect("image");
            let with = measure(
                &format!("{mode} {optimize} with symbols"),
                &image,
                &image,
                true,
            );
            let without = measure(&format!("{mode} {optimize} stripped"), &bare, &image, true);
            for (sum, agreement) in sums.iter_mut().zip([with, without]) {
                sum.0 += agreement.agree;
                sum.1 += agreement.wrong;
                sum.2 += agreement.total();
            }
        }
    }
    let percent = |part: u64, (_, _, total): (u64, u64, u64)| 100.0 * part as f64 / total as f64;
    let [with, without] = sums;
    println!(
        "sum with symbols: {:.3} % wrong {:.3} %",
        percent(with.0, with),
        percent(with.1, with)
    );
    println!(
        "sum stripped: {:.3} % wrong {:.3} %",
        percent(without.0, without),
        percent(without.1, without)
    );
    assert!(percent(with.0, with) > 99.5, "{with:?}");
    assert!(percent(with.1, with) < 0.1, "{with:?}");
    assert!(percent(without.0, without) > 97.0, "{without:?}");
    assert!(percent(without.1, without) < 1.0, "{without:?}");
}

/// Debian's stripped armhf C library; the truth is in libc6-dbg:armhf.
#[test]
fn debian_armhf_libraries() {
    // The cross compiler's library has no matching debug file; libc6-dbg is for Debian's own.
    let root = armhf_sysroot();
    let directory = root.join("lib/arm-linux-gnueabihf");
    for (name, with, without) in [
        ("libc.so.6", (99.95, 0.01), (99.8, 0.015)),
        ("ld-linux-armhf.so.3", (99.77, 0.095), (99.77, 0.095)),
        ("libm.so.6", (99.99, 0.005), (99.25, 0.08)),
    ] {
        let analysed = Image::open(&directory.join(name)).expect("library");
        let image = analysed.clone();
        let image = image.with_debug_file(armhf_debug_file(&analysed));
        for (symbols, (floor, ceiling)) in [(true, with), (false, without)] {
            let name = format!("{name}{}", if symbols { "" } else { " without symbols" });
            let (agree, _, wrong) = measure(&name, &analysed, &image, symbols).percent();
            assert!(
                agree >= floor && wrong <= ceiling,
                "{name}: {agree} {wrong}"
            );
        }
    }
}

/// Debian amd64 and arm64 programs and libraries; the truth is their `.eh_frame`, which the
/// analysis does not see.
#[test]
fn debian_64_bit_libraries() {
    for (path, with, without) in [
        (
            "/lib/x86_64-linux-gnu/libc.so.6",
            (99.8, 0.05),
            (99.7, 0.05),
        ),
        (
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            (99.75, 0.01),
            (99.6, 0.02),
        ),
        (
            "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
            (99.65, 0.01),
            (99.6, 0.015),
        ),
        ("/bin/bash", (99.9, 0.01), (99.9, 0.01)),
        (
            "/usr/aarch64-linux-gnu/lib/libc.so.6",
            (99.85, 0.01),
            (99.5, 0.03),
        ),
        (
            "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
            (99.85, 0.01),
            (99.6, 0.08),
        ),
    ] {
        need(&[path]);
        let image = Image::open(path.as_ref()).expect("library");
        let (agree, _, wrong) = measure(path, &image, &image, true).percent();
        assert!(
            agree >= with.0 && wrong <= with.1,
            "{path}: {agree} {wrong}"
        );
        let bare = measure(&format!("{path} without symbols"), &image, &image, false);
        let (agree, _, wrong) = bare.percent();
        assert!(
            agree >= without.0 && wrong <= without.1,
            "{path} without symbols: {agree} {wrong}"
        );
    }
}

/// Results of walks in libraries that are too large to analyse as a whole. Call frame information
/// gives the function starts. Parts that only jumps from other regions lead to stay unknown (GCC
/// makes them on x86-64).
#[test]
fn debian_libraries_by_region() {
    let armhf = armhf_sysroot().join("lib/arm-linux-gnueabihf/libc.so.6");
    let armhf = armhf.to_str().expect("text").to_owned();
    for (path, floor, ceiling) in [
        (&*armhf, 99.95, 0.01),
        ("/lib/x86_64-linux-gnu/libc.so.6", 98.6, 0.05),
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6", 96.9, 0.03),
        ("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 99.65, 0.01),
        ("/usr/aarch64-linux-gnu/lib/libc.so.6", 99.8, 0.03),
        ("/usr/aarch64-linux-gnu/lib/libstdc++.so.6", 99.8, 0.03),
    ] {
        need(&[path]);
        let analysed = Image::open(path.as_ref()).expect("library");
        let mut image = analysed.clone();
        if path == armhf {
            image = image.with_debug_file(armhf_debug_file(&analysed));
        }
        let truth = Table::compile(&image, &CompileOptions::default());
        let agreement = verify_by_region(&analysed, &image, &truth, true);
        let (agree, unknown, wrong) = agreement.percent();
        println!("{path} by region: agree {agree:.3} % unknown {unknown:.3} % wrong {wrong:.3} %");
        assert!(agreement.total() > 200_000, "{path}");
        assert!(
            agree >= floor && wrong <= ceiling,
            "{path}: {agree} {wrong}"
        );
    }
}

fn armhf_debug_file(image: &Image) -> Image {
    let id = image.build_id().expect("build-id").to_string();
    let file = format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]);
    Image::open(&armhf_sysroot().join(file)).expect("debug file of the same version")
}

/// The length of every instruction in whole libraries equals objdump's.
#[test]
fn x86_lengths_are_those_of_objdump() {
    need(&["objdump"]);
    let mut compared = 0;
    for path in [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
    ] {
        need(&[path]);
        let image = Image::open(path.as_ref()).expect("library");
        let text = output(Command::new("objdump").args(["-d", "--wide", path]));
        for line in text.lines() {
            let mut parts = line.splitn(3, '\t');
            let (Some(svma), Some(bytes), Some(what)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let Ok(svma) = u64::from_str_radix(svma.trim().trim_end_matches(':'), 16) else {
                continue;
            };
            let len = bytes.split_whitespace().count();
            // Skip invalid instructions. objdump prints `fwait` and the next instruction as one.
            if what.contains("(bad)") || what.starts_with(".byte") || bytes.starts_with("9b ") {
                continue;
            }
            let known = image.bytes_at(svma, 15).or(image.bytes_at(svma, len));
            let own = instruction_len(Arch::X86_64, known.expect("text"), false);
            assert_eq!(own, u8::try_from(len).ok(), "{path} {line}");
            compared += 1;
        }
    }
    println!("{compared} lengths equal to objdump's");
    assert!(compared > 400_000, "{compared}");
}
