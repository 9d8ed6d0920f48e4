//! The analysis of code against the CFI that the same compiler wrote, withheld from the analysis.

use unspool_image::Image;
use unspool_unwind::verify::{Agreement, verify};
use unspool_unwind::{CompileOptions, Table};

use crate::tools::{Scratch, armhf_sysroot, compile, need, stripped};

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

/// Debian's armhf C library, stripped as it is shipped; the truth is in libc6-dbg:armhf.
#[test]
fn debian_armhf_libraries() {
    // Not the cross compiler's: libc6-dbg is for Debian's own.
    let root = armhf_sysroot();
    let directory = root.join("lib/arm-linux-gnueabihf");
    for (name, floor, wrong_ceiling) in [
        ("libc.so.6", 98.0, 0.1),
        ("ld-linux-armhf.so.3", 98.0, 0.6),
        ("libm.so.6", 99.0, 0.1),
    ] {
        let analysed = Image::open(&directory.join(name)).expect("library");
        let id = analysed.build_id().expect("build-id").to_string();
        let debug = root.join(format!(
            "usr/lib/debug/.build-id/{}/{}.debug",
            &id[..2],
            &id[2..]
        ));
        let debug = Image::open(&debug).expect("debug file of the same version");
        let image = analysed.clone().with_debug_file(debug);
        let agreement = measure(name, &analysed, &image, true);
        let (agree, _, wrong) = agreement.percent();
        assert!(
            agree >= floor && wrong <= wrong_ceiling,
            "{name}: {agree} {wrong}"
        );
    }
}
