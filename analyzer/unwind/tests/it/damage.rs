//! Tests that damaged call frame information is detected and does no harm.

use unspool_image::Image;
use unspool_unwind::{CompileOptions, Source, Table};

use crate::tools::{Scratch, compile, need};

/// File offset and size of `.eh_frame` or `.debug_frame`.
fn section(image: &Image, name: &str) -> (usize, usize) {
    let section = image.section(name).expect(name);
    let offset = section.data.as_ptr() as usize - image.bytes().as_ptr() as usize;
    (offset, section.data.len())
}

fn doubts(image: &Image) -> Option<String> {
    let table = Table::compile(image, &CompileOptions::default());
    table.rows_of_all().for_each(drop);
    table.doubts().map(|note| note.to_string())
}

/// Flips the offset of a `DW_CFA_def_cfa_offset` (0x0e) that readelf prints, found by its bytes
/// after an advance.
fn flipped(image: &Image, name: &str, nth: usize) -> Option<Image> {
    let (offset, len) = section(image, name);
    let mut bytes = image.bytes().to_vec();
    let place = bytes[offset..offset + len]
        .windows(3)
        .enumerate()
        .filter(|(_, window)| (0x40..0x80).contains(&window[0]) && window[1] == 0x0e)
        .filter(|(_, window)| window[2] >= 0x20 && window[2] < 0x80)
        .map(|(at, _)| offset + at + 2)
        .nth(nth)?;
    bytes[place] ^= 0x08;
    Some(Image::parse("damaged", bytes).expect("image"))
}

#[test]
fn flipped_frame_sizes_are_detected() {
    need(&["gcc", "arm-linux-gnueabihf-gcc"]);
    let dir = Scratch::new("damage");
    let (mut all, mut all_noticed) = (0, 0);
    for (compiler, section, flags) in [
        ("gcc", ".eh_frame", &["-O2", "-g"][..]),
        (
            "arm-linux-gnueabihf-gcc",
            ".debug_frame",
            &["-O2", "-g", "-mthumb"][..],
        ),
    ] {
        let program = compile(dir.path(), compiler, "steps.c", flags);
        let image = Image::open(&program).expect("image");
        assert_eq!(doubts(&image), None, "{compiler}");
        let mut noticed = 0;
        let mut tried = 0;
        while let Some(damaged) = flipped(&image, section, tried) {
            tried += 1;
            if let Some(doubt) = doubts(&damaged) {
                assert!(doubt.contains("contradicts most of the code"), "{doubt}");
                noticed += 1;
            }
        }
        println!("{compiler}: {noticed} of {tried} damaged frame sizes noticed");
        assert!(noticed >= 1, "{compiler}: {noticed} of {tried}");
        all += tried;
        all_noticed += noticed;
    }
    // Damage in short epilogues contradicts little of its function.
    assert!(all_noticed * 2 >= all, "{all_noticed} of {all}");
}

/// No flipped bytes cause a panic. Rows stay in order, and functions of other entries keep theirs.
#[test]
fn any_damage_is_survived() {
    let path = "/usr/bin/bash";
    need(&[path]);
    // The image is parsed from memory, so that an address gives the offset in the file.
    let image = Image::parse(path, std::fs::read(path).expect("bash")).expect("image");
    let whole = Table::compile(&image, &CompileOptions::default())
        .size(Source::Cfi)
        .0;
    let (offset, len) = section(&image, ".eh_frame");
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut kept = 0;
    for _ in 0..60 {
        let mut bytes = image.bytes().to_vec();
        for _ in 0..20 {
            bytes[offset + next() as usize % len] = next() as u8;
        }
        let damaged = Image::parse("damaged", bytes).expect("image");
        let mut options = CompileOptions::default();
        options.code = false;
        let table = Table::compile(&damaged, &options);
        let mut last = 0;
        for row in table.rows_of_all() {
            assert!(row.start >= last && row.end > row.start);
            last = row.end;
        }
        kept += usize::from(table.size(Source::Cfi).0 * 10 > whole * 9);
    }
    // .eh_frame_hdr finds the entries after a damaged length. A damaged range may still cover
    // others.
    assert!(kept >= 25, "{kept} of 60");
}
