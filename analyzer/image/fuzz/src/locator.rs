//! Fuzzes ELF files with DWARF, with any bytes: source lines and inlined calls.

use unspool_image::{Image, Locator};

/// Runs one input.
pub fn run(bytes: &[u8]) {
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
}
