//! Any bytes as an ELF file with DWARF: source lines and inlined calls.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unspool_image::{Image, Locator};

fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse("fuzz", bytes.to_vec()) else {
        return;
    };
    let locator = Locator::new(&image);
    locator.locate(image.entry());
    for symbol in image.symbols().functions().take(8) {
        locator.locate(symbol.svma);
        locator.locate(symbol.svma.wrapping_add(symbol.size / 2));
    }
    locator.notes();
});
