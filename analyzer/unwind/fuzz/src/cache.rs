//! Fuzzes the bytes of a table. Any bytes may change, and the checksum is then corrected.
//!
//! The table must be rejected, or lookups, listing and writing must work. It is also read without
//! checking key and checksum. Input: four bytes for each change, three for the position and one for
//! the new byte. A fifth byte at the end truncates the table.

use std::cell::LazyCell;

use unspool_image::{Arch, Image};
use unspool_unwind::{CompileOptions, Table};

use super::sections::{BASE, image};

/// T32 code, repeated: `push {r4, lr}; sub sp, #8; bl .+16; add sp, #8; pop {r4, pc}`.
const TEXT: &[u8] = b"\x10\xb5\x82\xb0\x00\xf0\x06\xf8\x02\xb0\x10\xbd";
const LEN: u64 = 8 * TEXT.len() as u64;

struct Kept {
    image: Image,
    bytes: Vec<u8>,
}

fn keep() -> Kept {
    let image = image(Arch::Arm, &[(".text", &TEXT.repeat(8))]);
    let table = Table::compile(&image, &CompileOptions::default());
    assert!(table.rows_of_all().count() > 8);
    let bytes = table.to_bytes();
    Kept { image, bytes }
}

thread_local! {
    static KEPT: LazyCell<Kept> = const { LazyCell::new(keep) };
}

/// Runs one input.
pub fn run(input: &[u8]) {
    KEPT.with(|kept| {
        let mut bytes = kept.bytes.clone();
        for change in input.chunks_exact(4).take(64) {
            let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
            // Skip the magic and the checksum.
            let at = 16 + at % (bytes.len() - 16);
            bytes[at] = change[3];
        }
        if input.len() % 4 == 1 {
            bytes.truncate(16 + usize::from(input[input.len() - 1]) * (bytes.len() - 16) / 256);
        }
        let sum = u64::from(crc32c::crc32c(&bytes[16..]));
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        if let Some(table) = Table::from_slice(&bytes) {
            for svma in BASE..BASE + 2 * LEN {
                table.lookup(svma);
            }
            table.rows_of_all().take(256).for_each(drop);
        }
        let Some(table) = Table::from_bytes(&kept.image, &CompileOptions::default(), &bytes) else {
            return;
        };
        assert!(
            table.to_bytes() == bytes,
            "what was read is what is written"
        );
        for svma in BASE..BASE + 2 * LEN {
            table.lookup(svma);
        }
        table.rows_of_all().take(256).for_each(drop);
        table.notes();
        table.doubts();
    });
}
