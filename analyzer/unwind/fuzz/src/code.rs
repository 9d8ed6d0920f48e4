//! Fuzzes the code analysis with any bytes. The first byte selects the architecture, and whether
//! symbols may be used.

use super::sections::{arch, image};
use unspool_unwind::code::{analyze, instruction_len};
use unspool_unwind::{CompileOptions, Source, Table};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let arch = arch(*choice);
    for thumb in [false, true] {
        if let Some(len) = instruction_len(arch, text, thumb) {
            assert!(len > 0 && usize::from(len) <= text.len());
        }
    }
    let image = image(arch, &[(".text", text)]);
    let analysis = analyze(&image, choice & 0x80 == 0);
    analysis.function_start(image.entry());
    let table = Table::compile(&image, &CompileOptions::default());
    table.analysis();
    let mut end = 0;
    for row in table.rows_from(Source::Code) {
        assert!(
            row.start >= end && row.end > row.start,
            "sorted, apart, not empty"
        );
        end = row.end;
    }
}
