//! Fuzzes `.eh_frame` and `.debug_frame` with any bytes. The first byte selects the architecture.

use super::sections::{BASE, arch, image, parts};
use unspool_unwind::{CompileOptions, Source, Table};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let [eh_frame, debug_frame] = parts(rest);
    let text = [0; 256];
    let sections = [
        (".text", &text[..]),
        (".eh_frame", eh_frame),
        (".debug_frame", debug_frame),
    ];
    let image = image(arch(*choice), &sections);
    let table = Table::compile(&image, &CompileOptions::default());
    let mut end = 0;
    for row in table.rows_from(Source::Cfi).take(4096) {
        assert!(
            row.start >= end && row.end > row.start,
            "sorted, apart, not empty"
        );
        end = row.end;
    }
    for svma in BASE..BASE + 512 {
        table.lookup(svma);
    }
}
