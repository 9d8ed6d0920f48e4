//! Fuzzes `.ARM.exidx` and `.ARM.extab` with any bytes, alone and in an image.

use super::sections::{BASE, image, parts};
use unspool_image::Arch;
use unspool_unwind::exidx::{Entry, frame_of, opcode, read};
use unspool_unwind::{CompileOptions, Source, Table};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    frame_of(&opcode::decode(bytes));
    let [exidx, extab] = parts(bytes);
    let extab_at = |svma: u64, len: usize| {
        let at = usize::try_from(svma.checked_sub(BASE)?).ok()?;
        extab.get(at..at.checked_add(len)?)
    };
    for (_, entry) in read(exidx, BASE, &extab_at) {
        if let Entry::Operations(operations) = entry {
            frame_of(&operations);
        }
    }
    let text = [0; 256];
    let sections = [
        (".text", &text[..]),
        (".ARM.exidx", exidx),
        (".ARM.extab", extab),
    ];
    let table = Table::compile(&image(Arch::Arm, &sections), &CompileOptions::default());
    table.rows_from(Source::Exidx).take(4096).for_each(drop);
    table.lookup(BASE + 0x80);
}
