//! Fuzzes ELF files with any bytes: everything that is read from headers and symbol tables.

use unspool_image::Image;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Ok(image) = Image::parse("fuzz", bytes.to_vec()) else {
        return;
    };
    let symbols = image.symbols();
    for symbol in symbols.iter().take(64) {
        symbols.containing(symbol.svma);
        symbols.named(symbol.name);
        image.thumb_at(symbol.svma);
    }
    for segment in image.segments() {
        image.bytes_at(segment.svma, 16);
        image.pointer_at(segment.svma);
        image.bytes_at(segment.range().end.wrapping_sub(1), usize::MAX);
    }
    for name in [
        ".text",
        ".eh_frame",
        ".debug_frame",
        ".debug_line",
        ".ARM.exidx",
    ] {
        image.section(name);
    }
    image.text_ranges();
    image.dynamic();
    image.notes();
}
